"""The method table: one row for every method of the survey."""

from __future__ import annotations

from isometry.registry.deep import ROWS as _deep
from isometry.registry.geometric import ROWS as _geometric
from isometry.registry.kernel import ROWS as _kernel
from isometry.registry.method import FAMILIES, Method
from isometry.registry.networks import ROWS as _networks
from isometry.registry.probabilistic import ROWS as _probabilistic
from isometry.registry.spectral import ROWS as _spectral

__all__ = ["FAMILIES", "METHODS", "Method", "all_methods", "get"]

METHODS: tuple[Method, ...] = tuple(
    row
    for rows in (_spectral, _geometric, _kernel, _probabilistic, _deep + _networks)
    for row in sorted(rows, key=lambda m: m.key)
)


def all_methods(*, family: str | None = None, kind: str | None = None, sees: str | None = None) -> list[Method]:
    """Rows of the table that match every filter given."""
    if family is not None and family not in FAMILIES:
        raise ValueError(f"unknown family {family!r}; expected one of {', '.join(FAMILIES)}")
    return [
        m
        for m in METHODS
        if (family is None or m.family == family)
        and (kind is None or m.kind == kind)
        and (sees is None or sees in m.sees.replace(",", " ").split())
    ]


def get(name: str) -> Method:
    """The row with this key or name, whatever the case; the first one if a name has several rows."""
    wanted = name.strip().lower()
    for row in METHODS:
        if wanted in (row.key.lower(), row.name.lower()):
            return row
    import difflib

    names = {m.name.lower(): m.name for m in METHODS}
    close = [names[name] for name in difflib.get_close_matches(wanted, names, n=3, cutoff=0.4)]  # the closest first
    hint = f"; did you mean {', '.join(close)}?" if close else ""
    raise KeyError(f"no method called {name!r}{hint} `isometry list` shows all of them")
