"""The method table: one row for every method of the survey."""

from __future__ import annotations

from collections.abc import Collection

from isometry.registry import geometric, kernel, losses, miners, networks, objectives, probabilistic, samplers, spectral
from isometry.registry.method import FAMILIES, Method

__all__ = ["FAMILIES", "METHODS", "Method", "all_methods", "get"]

_FILES = (spectral, geometric, kernel, probabilistic, losses, miners, networks, objectives, samplers)
METHODS: tuple[Method, ...] = tuple(
    sorted((row for file in _FILES for row in file.ROWS), key=lambda m: (FAMILIES.index(m.family), m.key))
)


def all_methods(*, family: str | None = None, kind: str | None = None, sees: str | None = None) -> list[Method]:
    """Rows of the table that match every filter given.

    Parameters
    ----------
    family : str or None, default=None
        One of ``FAMILIES``: "spectral", "geometric", "kernel", "probabilistic" or "deep"; None: all.
    kind : str or None, default=None
        Kind of the rows, "estimator" for example; None: all.
    sees : str or None, default=None
        Kind of supervision that a method takes: "labels", "pairs", "triplets", …; None: any.

    Returns
    -------
    list of Method
        The rows, by family and key.

    Examples
    --------
    >>> from isometry.registry import all_methods
    >>> "RCA" in [row.name for row in all_methods(family="spectral", sees="chunklets")]
    True
    """
    if family is not None and family not in FAMILIES:
        raise ValueError(f"unknown family {family!r}; expected one of {', '.join(FAMILIES)}")
    return [
        m
        for m in METHODS
        if (family is None or m.family == family)
        and (kind is None or m.kind == kind)
        and (sees is None or sees in m.sees.replace(",", " ").split())
    ]


def get(name: str, kinds: Collection[str] | None = None) -> Method:
    """The row with this key or name, whatever the case; the first one if a name has several rows.

    Parameters
    ----------
    name : str
        Key or name of a method, such as "M06" or "RCA".
    kinds : collection of str or None, default=None
        Kinds of rows that an error may suggest; None: all.

    Returns
    -------
    Method
        The row.

    Raises
    ------
    KeyError
        If there is no such row; the message suggests names that are near.

    Examples
    --------
    >>> from isometry.registry import get
    >>> get("rca").key
    'M06'
    """
    wanted = name.strip().lower()
    for row in METHODS:
        if wanted in (row.key.lower(), row.name.lower()):
            return row
    import difflib

    from isometry.registry.around import ROWS

    for row in ROWS:
        if wanted in (row.key.lower(), row.name.lower()):
            raise KeyError(f"{row.name} is no method, but stands around one: see `isometry info {row.name}`")
    names = {m.name.lower(): m.name for m in METHODS if kinds is None or m.kind in kinds}
    close = [names[name] for name in difflib.get_close_matches(wanted, names, n=3, cutoff=0.4)]  # the closest first
    hint = f"; did you mean {', '.join(close)}?" if close else ";"
    what, option = ("method", "") if kinds is None else (next(iter(kinds)), " --family deep")
    raise KeyError(f"no {what} called {name!r}{hint} `isometry list{option}` shows all of them")
