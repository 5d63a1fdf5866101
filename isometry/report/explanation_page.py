"""One self-contained HTML page for what a metric looks at."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from isometry.eval import Interval
from isometry.explanation import Changed, Explanation
from isometry.report import page, svg, views
from isometry.report.retrieval_section import draw_queries

SHOWN = 20  # features
N_PAIRS = 8  # pairs that changed most
N_QUERIES = 6  # rows whose neighbours are listed
N_NEIGHBORS = 5
REACH = 3.0  # of the picture of a ball, in radii of the Euclidean one


def write_explanation(
    found: Explanation,
    path: str | os.PathLike[str],
    *,
    name: str = "data",
    y: Any = None,
    pair: tuple[int, int] | None = None,
    rows: Any = None,
) -> Path:
    """Write the page of an explanation and return where it is.

    Parameters
    ----------
    found : Explanation
        What `isometry.explain` returned.
    path : str or path
        An ``.html`` file, or a folder, which gets an ``index.html``.
    name : str, default="data"
        Of the data.
    y : sequence, default=None
        Labels of the rows, to be shown beside their numbers.
    pair : two int, default=None
        Rows whose distance is taken apart.
    rows : sequence of int, default=None
        Numbers by which the rows are called; by default their places.
    """
    names = _row_names(len(found._X), y, rows)
    ranked = found.ranking()
    leading = ", ".join(f"{label} ({share:.0%})" for label, share, *_ in ranked[:3])
    return page.write_page(
        path,
        title=f"{name}: what the metric looks at",
        name=name,
        facts=f"{len(found._X)} samples · {len(found.names)} features",
        verdict=f"Distances are made of {leading}{' and others' if len(ranked) > 3 else ''}.",
        good=True,
        sections=[
            importance_section(found),
            _ball_section(found),
            _pair_section(found, pair, rows) if pair is not None else "",
            _changed_section(found, names),
            _neighbors_section(found, y, names),
        ],
    )


def importance_section(found: Explanation) -> str:
    """Shares of the leading features, with intervals."""
    ranked = [(label, Interval(*ends)) for label, *ends in found.ranking()[:SHOWN]]
    axis = page.interval_axis([share for _, share in ranked], zero=True)
    body = [
        f"<tr><th>{escape(page.short(label))}</th>"
        f"{page.strip_cell(share, views.BETTER if share.low > 0 else views.UNCLEAR, axis, False)}"
        f"<td>{share.mean:.3f}</td><td>{share.low:.3f} to {share.high:.3f}</td></tr>"
        for label, share in ranked
    ]
    some = "" if len(ranked) == len(found.names) else f" The {len(ranked)} largest of {len(found.names)} are shown."
    intro = (
        "The share of each feature in the mean squared distance of two samples. The shares of all features add up to "
        f"1; a negative one says that a feature mostly takes back what others add.{some} {found}"
    )
    heads = ["feature", "", "share", f"{100 * found.level:g} % interval"]
    return page.section("What the metric looks at", page.paragraph(intro), page.table(heads, body, "ranking"))


def _ball_section(found: Explanation) -> str:
    """All points at distance 1 in the plane of the two leading features, before and after."""
    if not found.linear or len(found.names) < 2:
        return ""
    first, second = (label for label, *_ in found.ranking()[:2])
    i, j = found.names.index(first), found.names.index(second)
    unit = found._X.std(axis=0)[[i, j]]
    learned = found.ball(first, second) / np.where(unit > 0, unit, 1.0)
    if not np.isfinite(learned).all():
        return ""
    angle = np.linspace(0, 2 * np.pi, 100)
    size = float(np.median(np.linalg.norm(learned, axis=1)))
    circle = size * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    learned = np.clip(learned, -REACH * size, REACH * size)  # a direction that hardly counts would leave the picture
    reach = 1.1 * max(float(np.abs(learned).max()), size)
    curves = [
        svg.Line("learned metric", learned[:, 0], learned[:, 1], views.BETTER),
        svg.Line("Euclidean distance, as large", circle[:, 0], circle[:, 1], views.UNCLEAR, dashed=True),
    ]
    intro = (
        f"All points that are equally far from the middle, in the plane of {first} (across) and {second} (up), each in "
        "units of its standard deviation. Where the blue curve is narrow, the metric sees small differences."
    )
    return page.section(
        "The unit ball",
        page.paragraph(intro),
        svg.lines(
            curves,
            f"Unit ball in the plane of {first} and {second}",
            x=page.short(first),
            y=page.short(second),
            x_range=(-reach, reach),
            y_range=(-reach, reach),
            height=svg.WIDTH,
        ),
    )


def _pair_section(found: Explanation, pair: tuple[int, int], rows: Any) -> str:
    shares = found.distance(*pair)
    order = np.argsort(-np.abs(shares), kind="stable")[:SHOWN]
    body = [
        f"<tr><th>{escape(found.names[k])}</th><td>{found._X[pair[0], k]:.4g}</td><td>{found._X[pair[1], k]:.4g}</td>"
        f"<td>{page.number(float(shares[k]), signed=True)}</td></tr>"
        for k in order
    ]
    first, second = pair if rows is None else (rows[pair[0]], rows[pair[1]])
    intro = f"The squared distance of rows {first} and {second} is {shares.sum():.4g}; this is what it is made of."
    heads = ["feature", f"row {first}", f"row {second}", "share"]
    return page.section("One distance, taken apart", page.paragraph(intro), page.table(heads, body, "numbers"))


def _changed_section(found: Explanation, names: list[str]) -> str:
    nearer, farther = found.changed(N_PAIRS)
    if not nearer and not farther:
        return ""

    def line(change: Changed) -> str:
        shares = found.distance(change.i, change.j)
        why = found.names[int(np.abs(shares).argmax())]
        rows = "".join(f"<td>{escape(names[r])}</td>" for r in (change.i, change.j))
        return f"<tr>{rows}<td>× {change.factor:.2f}</td><td>{escape(why)}</td></tr>"

    heads = ["row", "row", "distance", "largest share now"]
    intro = (
        "Pairs whose distance learning has changed most, among each other's neighbours before or after. The factor is "
        "the distance after, divided by that before, each in units of its mean over all samples."
    )
    panels = [
        page.figure(title, "", page.table(heads, [line(c) for c in pairs], "numbers"))
        for title, pairs in (("Came nearer", nearer), ("Moved apart", farther))
        if pairs
    ]
    return page.section("What has changed", page.paragraph(intro), page.grid(panels, "wide"))


def _neighbors_section(found: Explanation, y: Any, names: list[str]) -> str:
    n = len(found._X)
    rows = draw_queries(np.zeros(n, dtype=int) if y is None else np.asarray(y).astype(str), 0, N_QUERIES)
    k = min(N_NEIGHBORS, n - 1)
    before, after = found.neighbors(rows, k)
    body = [
        f"<tr><th>{escape(names[row])}</th>"
        + "".join(f"<td>{', '.join(escape(names[r]) for r in near)}</td>" for near in (old, new))
        + "</tr>"
        for row, old, new in zip(rows, before, after, strict=True)
    ]
    intro = f"The {k} nearest rows of a few rows drawn at random, nearest first."
    heads = ["row", "neighbours before", "neighbours after"]
    return page.section("Neighbours, before and after", page.paragraph(intro), page.table(heads, body))


def _row_names(n: int, y: Any, rows: Any) -> list[str]:
    """What each row is called: its number, and its label if there is one."""
    numbers = [str(row) for row in (range(n) if rows is None else rows)]
    return (
        numbers if y is None else [f"{number} ({label})" for number, label in zip(numbers, np.asarray(y), strict=True)]
    )
