"""Rows of the deep methods."""

from __future__ import annotations

from isometry.registry.method import Method

ROWS: tuple[Method, ...] = ()
