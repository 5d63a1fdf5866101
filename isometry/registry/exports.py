"""What packages export: every method of the table under its own name, and a few names more, loaded on first use."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

NEEDED = {"torch": "deep", "accelerate": "deep"}  # what methods import beyond the core → the extra that brings it


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
            raise AttributeError(f"module {package!r} has no attribute {name!r}{_hint(package, name, known)}")
        module, attribute = known[name].split(":")
        try:
            value = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in NEEDED:
                raise
            install = f'pip install "isometry[{NEEDED[missing]}]"'
            raise ModuleNotFoundError(f"{package}.{name} needs {missing}: {install}", name=missing) from error
        setattr(sys.modules[package], name, value)  # the next use finds it without asking here
        return value

    return list(known), load, lambda: list(known)


def _hint(package: str, name: str, known: Mapping[str, str]) -> str:
    """Where a name is to be found: in another package, or under another spelling."""
    from isometry.registry import METHODS

    if name.startswith("_"):
        return ""
    homes = {m.target.split(":")[1]: "isometry.deep" if m.family == "deep" else "isometry" for m in METHODS}
    if homes.get(name, package) != package:
        return f"; it is in {homes[name]}: from {homes[name]} import {name}"
    near = difflib.get_close_matches(name, [*known, *homes], n=1)
    meant = f"; did you mean {homes.get(near[0], package)}.{near[0]}?" if near else ";"
    return f"{meant} `isometry list` shows every method"
