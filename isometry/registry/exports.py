"""What packages export: every method of the table under its own name, and a few names more, loaded on first use."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

DEEP = ("torch", "accelerate")  # what the extra "deep" brings


def targets(package: str, others: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Name → "module:attribute": the methods of a family, or those of all but "deep", and the ``others`` by module."""
    from isometry.registry import METHODS

    family = package.partition(".")[2]
    rows = (m for m in METHODS if (m.family == family if family else m.family != "deep"))
    named = {m.target.split(":")[1]: m.target for m in rows}
    more = {name: f"{package}.{module}:{name}" for module, names in others.items() for name in names}
    return dict(sorted({**named, **more}.items()))


def exports(
    package: str, others: Mapping[str, tuple[str, ...]] | None = None
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of a package."""
    known = targets(package, others or {})

    def load(name: str) -> Any:
        if name not in known:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; `isometry list` shows every method")
        module, attribute = known[name].split(":")
        try:
            value = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            if error.name not in DEEP:
                raise
            hint = f'{package}.{name} needs {error.name}: pip install "isometry[deep]"'
            raise ModuleNotFoundError(hint, name=error.name) from error
        setattr(sys.modules[package], name, value)  # the next use finds it without asking here
        return value

    return list(known), load, lambda: list(known)
