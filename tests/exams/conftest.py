"""Exams of networks are left out where torch is not installed."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = (
    [] if find_spec("torch") else ["test_few_shot.py", "test_loss_edges.py", "test_backbones.py", "test_training.py"]
)
