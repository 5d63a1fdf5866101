"""Small pictures as SVG inside the page: no script, no library, colours of the page's light or dark theme."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from isometry.report import views

WIDTH = 460
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 10, 40  # margins of a plot with axes
OUTLIERS = 0.01  # share of the points at either end that may lie outside the axes


class Line(NamedTuple):
    """A curve."""

    name: str
    x: np.ndarray
    y: np.ndarray
    colour: str
    dashed: bool = False


def picture(width: float, height: float, label: str, *parts: str, limit: int | None = None, kind: str = "") -> str:
    """An image that is as wide as there is room; ``label`` says what it shows to a screen reader."""
    style = f' style="max-width:{limit}px"' if limit else ""
    return (
        f'<svg class="{f"plot {kind}".strip()}" role="img" aria-label="{escape(label)}" '
        f'viewBox="0 0 {_n(width)} {_n(height)}"{style}>{"".join(parts)}</svg>'
    )


def scatter(at: np.ndarray, codes: np.ndarray, classes: Sequence[str], label: str, height: int = 320) -> str:
    """Points at (m, 2) in the colour and shape of their class; what lies far outside is drawn at the edge."""
    low, high = robust_range(at)
    scale = min((WIDTH - 20) / (high - low)[0], (height - 20) / (high - low)[1])
    middle = (low + high) / 2
    xy = (at - middle) * scale * [1, -1] + [WIDTH / 2, height / 2]
    xy = np.clip(xy, 6, [WIDTH - 6, height - 6])
    parts = []
    for c in np.unique(codes):
        turn, colour = divmod(int(c), len(views.PALETTE))
        square, small = turn % 2, turn // 2 % 2
        size = (6 if len(codes) < 800 else 4.5) - 2 * small
        d = "".join(f"M{_n(x)} {_n(y)}h0" for x, y in xy[codes == c])
        cap = "square" if square else "round"
        parts.append(
            f'<path d="{d}" stroke="{views.PALETTE[colour]}" stroke-width="{_n(size)}" stroke-linecap="{cap}" '
            f'opacity=".8"><title>{escape(classes[c])}</title></path>'
        )
    return picture(WIDTH, height, label, '<g fill="none">', *parts, "</g>")


def robust_range(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper ends (2,) of the axes: those of all points but a few that lie far outside."""
    low, high = np.quantile(at, [OUTLIERS, 1 - OUTLIERS], axis=0)
    room = 0.15 * (high - low)
    low, high = np.maximum(at.min(axis=0), low - room), np.minimum(at.max(axis=0), high + room)
    return low, np.where(high > low, high, low + 1)


def strip(mean: float, low: float, high: float, colour: str, axis: tuple[float, float], text: str) -> str:
    """One interval on the axis that all rows of a table share, with a line at zero if that is on it."""
    start, end = axis

    def place(v: float) -> float:
        return 4 + 192 * (min(max(v, start), end) - start) / (end - start)

    zero = f'<path class="zero" d="M{_n(place(0))} 0V18"/>' if start <= 0 <= end else ""
    bar = f'<path d="M{_n(place(low))} 9H{_n(place(high))}" stroke="{colour}" stroke-width="2.5"/>'
    dot = f'<circle cx="{_n(place(mean))}" cy="9" r="4.5" fill="{colour}"/>'
    return picture(200, 18, text, f"<title>{escape(text)}</title>", zero, bar, dot, kind="strip")


def lines(
    curves: Sequence[Line],
    label: str,
    *,
    x: str,
    y: str,
    x_range: tuple[float, float] | None = None,
    y_range: tuple[float, float] | None = None,
    log_x: bool = False,
    percent: bool = False,
    height: int = 280,
) -> str:
    """Curves over common axes, with a legend below where they have names."""
    known = [(c, np.asarray(c.x, float), np.asarray(c.y, float)) for c in curves]
    known = [(c, a[np.isfinite(a) & np.isfinite(b)], b[np.isfinite(a) & np.isfinite(b)]) for c, a, b in known]
    known = [(c, np.log10(a) if log_x else a, b) for c, a, b in known if len(a)]
    if not known:
        return ""
    x_ends = x_range or _ends([a for _, a, _ in known])
    y_ends = y_range or _ends([b for _, _, b in known])
    places = _Places(x_ends, y_ends, height)
    drawn = [_curve(c, places, a, b) for c, a, b in known]
    named = [(c.colour, "┅" if c.dashed else "━", c.name) for c, _, _ in known if c.name]
    return picture(WIDTH, height, label, *_axes(places, x, y, log_x, percent), *drawn, limit=640) + legend(named)


class _Places(NamedTuple):
    x: tuple[float, float]
    y: tuple[float, float]
    height: int

    def across(self, v: np.ndarray | float) -> np.ndarray:
        return LEFT + (WIDTH - LEFT - RIGHT) * (np.asarray(v) - self.x[0]) / (self.x[1] - self.x[0])

    def up(self, v: np.ndarray | float) -> np.ndarray:
        return (
            self.height - BOTTOM - (self.height - TOP - BOTTOM) * (np.asarray(v) - self.y[0]) / (self.y[1] - self.y[0])
        )


def _curve(c: Line, places: _Places, x: np.ndarray, y: np.ndarray) -> str:
    points = " ".join(f"{_n(a)},{_n(b)}" for a, b in zip(places.across(x), places.up(y), strict=True))
    dash = ' stroke-dasharray="4 4"' if c.dashed else ""
    title = f"<title>{escape(c.name)}</title>" if c.name else ""
    shape = f'points="{points}" fill="none" stroke="{c.colour}" stroke-width="2"{dash}'
    dot = f'<circle cx="{points.split(",")[0]}" cy="{points.split(",")[1]}" r="3" fill="{c.colour}"/>'
    return f"<polyline {shape}>{title}</polyline>" if len(x) > 1 else dot


def _axes(places: _Places, x: str, y: str, log_x: bool, percent: bool) -> list[str]:
    parts = []
    for v in _ticks(*places.y):
        at = _n(float(places.up(v)))
        text = f"{100 * v:g}%" if percent else f"{v:g}"
        parts.append(f'<path class="rule" d="M{LEFT} {at}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{at}" dy=".35em" text-anchor="end">{text}</text>')
    low = places.height - BOTTOM
    whole = [float(k) for k in range(math.ceil(places.x[0]), math.floor(places.x[1]) + 1)]
    parts += _x_axis(places, x, whole if log_x else None)
    turned = f'transform="translate(11 {_n((TOP + low) / 2)}) rotate(-90)"'
    parts.append(f'<text class="axis" {turned} text-anchor="middle">{escape(y)}</text>')
    return parts


def histogram(edges: np.ndarray, same: np.ndarray, different: np.ndarray, label: str, height: int = 200) -> str:
    """Two densities over one axis."""
    places = _Places((float(edges[0]), float(edges[-1])), (0.0, float(max(same.max(), different.max(), 1e-12))), height)
    parts = []
    for density, colour, name in ((same, views.SAME, "same class"), (different, views.DIFFERENT, "different classes")):
        x = places.across(np.repeat(edges, 2)[1:-1])
        y = places.up(np.repeat(density, 2))
        top = " ".join(f"{_n(a)},{_n(b)}" for a, b in zip(x, y, strict=True))
        base = _n(float(places.up(0)))
        shape = f"{_n(x[0])},{base} {top} {_n(x[-1])},{base}"
        parts.append(f'<polygon points="{shape}" fill="{colour}" opacity=".6"><title>{name}</title></polygon>')
    return picture(WIDTH, height, label, *parts, *_x_axis(places, "distance"), limit=640)


def _x_axis(places: _Places, title: str, exponents: list[float] | None = None) -> list[str]:
    """The axis below, with round numbers, or with powers of ten."""
    low = places.height - BOTTOM
    ticks = {v: v for v in _ticks(*places.x)} if exponents is None else {v: 10**v for v in exponents}
    marks = [
        f'<text x="{_n(float(places.across(v)))}" y="{low + 15}" text-anchor="middle">{text:g}</text>'
        for v, text in ticks.items()
    ]
    middle = (LEFT + WIDTH - RIGHT) / 2
    at = f'x="{_n(middle)}" y="{places.height - 6}" text-anchor="middle"'
    return [
        f'<path class="rule" d="M{LEFT} {low}H{WIDTH - RIGHT}"/>',
        *marks,
        f'<text class="axis" {at}>{escape(title)}</text>',
    ]


def heatmap(matrix: np.ndarray, names: Sequence[str], label: str) -> str:
    """A symmetric matrix as coloured squares, with the names of its rows."""
    n, side, left = len(matrix), 20, 150
    top = float(np.abs(matrix).max()) or 1.0
    parts = []
    for i in range(n):
        at = f'x="{left - 6}" y="{side * i + side / 2:g}" dy=".35em"'
        parts.append(f'<text {at} text-anchor="end">{escape(names[i])}</text>')
        for j in range(n):
            share = matrix[i, j] / top
            colour = views.NEGATIVE if share < 0 else views.POSITIVE
            title = f"{escape(names[i])} × {escape(names[j])}: {matrix[i, j]:.3f}"
            parts.append(
                f'<rect x="{left + side * j}" y="{side * i}" width="{side - 1}" height="{side - 1}" fill="{colour}" '
                f'opacity="{abs(share):.2f}"><title>{title}</title></rect>'
            )
    return picture(left + side * n, side * n, label, *parts, limit=int(1.3 * (left + side * n)))


def legend(entries: Sequence[tuple[str, str, str]]) -> str:
    """Of (colour, sign, text)."""
    items = (f'<li><b style="color:{colour}">{sign}</b> {escape(text)}</li>' for colour, sign, text in entries)
    return f'<ul class="legend">{"".join(items)}</ul>' if entries else ""


def _ends(values: Sequence[np.ndarray]) -> tuple[float, float]:
    low, high = float(min(v.min() for v in values)), float(max(v.max() for v in values))
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers."""
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step *= next(k for k in (1, 2, 2.5, 5, 10) if (high - low) / (step * k) <= 5)
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) for k in range(first, first + 8) if k * step <= high + 1e-9 * step]


def _n(value: float) -> str:
    """A coordinate, short."""
    return f"{value:.1f}".removesuffix(".0")
