"""Rows of the kernel methods."""

from __future__ import annotations

from isometry.registry.method import Method

ROWS: tuple[Method, ...] = ()
