"""Private helpers of metric-learn, which have no counterpart here: a test that calls one fails, and is listed."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)

    def absent(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{name} is a private helper of metric-learn")

    return absent
