"""What the pages are made of: the template, sections, plots, tables, legends, and how numbers are written."""

from __future__ import annotations

import json
import math
import os
import platform
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np

from isometry.io.atomic import atomic_write
from isometry.report import views

if TYPE_CHECKING:
    from isometry.eval import Interval

Json = dict[str, Any]  # a part of a plotly figure
LEGEND_CLASSES = 24  # with more classes there is no legend
SYMBOLS = ("circle", "square", "triangle-up", "diamond", "cross")
GLYPHS = ("●", "■", "▲", "◆", "✚")


def write_page(
    path: str | os.PathLike[str], *, title: str, name: str, facts: str, verdict: str, good: bool, sections: list[str]
) -> Path:
    """Fill the page template, write it where `report_file` says, all or nothing, and return that path."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ImportError('the report needs plotly: pip install "isometry[cli]"', name="plotly") from error
    page = Template(files("isometry.report").joinpath("page.html").read_text(encoding="utf-8")).substitute(
        title=escape(title),
        name=escape(name),
        facts=escape(facts),
        verdict=escape(verdict),
        tone="good" if good else "plain",
        sections="\n".join(s for s in sections if s),
        plotly=get_plotlyjs(),
    )
    path = report_file(path)
    with atomic_write(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


def report_file(path: str | os.PathLike[str]) -> Path:
    """Where a report at ``path`` goes: an ``.html`` file itself, else ``index.html`` in that folder, which is made."""
    path = Path(path)
    if path.suffix.lower() in (".html", ".htm"):
        return path
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(error.errno, f"cannot make a folder for the report ({error.strerror})", str(path)) from error
    return path / "index.html"


def section(title: str, *parts: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n" + "\n".join(p for p in parts if p) + "\n</section>"


def paragraph(text: str, kind: str = "") -> str:
    return f"<p{f' class={kind}' if kind else ''}>{escape(text)}</p>" if text else ""


def plot(
    data: list[Json], layout: Json, height: int, label: str, *, width: int | None = None, squeeze: bool = False
) -> str:
    """A figure as JSON for the script at the end of the page; ``label`` says what it shows to a screen reader.

    ``squeeze`` leaves out the names along the horizontal axis and the colour scale where the window is narrow.
    """
    figure = finite({"data": data, "layout": layout, "squeeze": squeeze})
    spec = json.dumps(figure, allow_nan=False, separators=(",", ":"))
    spec = spec.replace("<", "\\u003c")  # no text can end the script or comment it out
    limit = f";max-width:{width}px" if width else ""
    return (
        f'<div class="plot" role="img" aria-label="{escape(label)}" style="height:{height}px{limit}">'
        f'<script type="application/json">{spec}</script></div>'
    )


def finite(value: Any) -> Any:
    """``value`` with arrays as lists, five digits to a number, and null for what is no number."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [finite(v) for v in value]
    if isinstance(value, (float, np.floating)):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value


def points(name: str, at: np.ndarray, codes: np.ndarray, classes: list[str]) -> str:
    """Rows as points at (m, 2), with the colour and the shape of their class."""
    shape, colour = np.divmod(codes, len(views.PALETTE))
    trace = {
        "type": "scatter",
        "mode": "markers",
        "x": at[:, 0],
        "y": at[:, 1],
        "text": [escape(classes[c]) for c in codes],
        "hoverinfo": "text",
        "marker": {
            "size": 6 if len(codes) < 800 else 4,
            "opacity": 0.8,
            "color": [views.PALETTE[k] for k in colour],
            "symbol": [SYMBOLS[k % len(SYMBOLS)] for k in shape],
        },
    }
    bare = {"showticklabels": False, "zeroline": False}
    layout = {
        "showlegend": False,
        "xaxis": bare,
        "yaxis": {**bare, "scaleanchor": "x"},
        "margin": {"l": 5, "r": 5, "t": 5, "b": 5},
    }
    return plot([trace], layout, 320, f"Held-out points under {name}")


def interval_plot(rows: list[tuple[str, Interval, str]], xaxis: Json, label: str, *, signed: bool = False) -> str:
    """Intervals by (name, interval, colour), one below the other."""
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "x": [value.mean],
            "y": [escape(name)],
            "marker": {"color": colour, "size": 9},
            "error_x": {
                "type": "data",
                "array": [value.high - value.mean],
                "arrayminus": [value.mean - value.low],
                "color": colour,
                "thickness": 2,
                "width": 4,
            },
            "hovertext": [f"{escape(name)}: {number(value.mean, signed=signed)} {span(value, signed=signed)}"],
            "hoverinfo": "text",
        }
        for name, value, colour in rows
    ]
    layout = {
        "showlegend": False,
        "xaxis": xaxis,
        "yaxis": {"autorange": "reversed", "automargin": True, "type": "category", "fixedrange": True},
        "margin": {"l": 10, "r": 10, "t": 10, "b": 45},
    }
    return plot(data, layout, 90 + 26 * len(rows), label)


def table(heads: list[str], rows: list[str], kind: str = "") -> str:
    """A table of rows that are HTML already; it scrolls where the window is narrow."""
    head = "".join(f"<th>{escape(h)}</th>" for h in heads)
    body = "\n".join(rows)
    inside = f"<thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody>"
    return f'<div class="{f"scroll {kind}".strip()}" tabindex="0"><table>{inside}</table></div>'


def figure(title: str, remark: str, plot: str) -> str:
    remark = f" <span>{escape(remark)}</span>" if remark else ""
    return f"<figure><figcaption>{escape(title)}{remark}</figcaption>{plot}</figure>"


def grid(panels: list[str], kind: str = "") -> str:
    return f'<div class="{f"grid {kind}".strip()}">{"".join(panels)}</div>'


def colour_key(*entries: tuple[str, str, str]) -> str:
    """A legend of (colour, sign, text)."""
    items = (f'<li><b style="color:{colour}">{sign}</b> {escape(text)}</li>' for colour, sign, text in entries)
    return f'<ul class="legend">{"".join(items)}</ul>'


def bullets(items: list[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>"


def legend(classes: list[str]) -> str:
    if len(classes) > LEGEND_CLASSES:
        return paragraph(f"{len(classes)} classes: colours and shapes repeat; point at a dot for its class.", "small")
    turns = [divmod(c, len(views.PALETTE)) for c in range(len(classes))]
    return colour_key(
        *((views.PALETTE[colour], GLYPHS[shape % len(GLYPHS)], name) for (shape, colour), name in zip(turns, classes))
    )


def made_with(settings: dict[str, Any]) -> str:
    from isometry import __version__

    versions = {"isometry": __version__, "python": platform.python_version()} | dict(settings.get("versions") or {})
    listed = ", ".join(f"{k} {v}" for k, v in versions.items())
    took = f" in {seconds(settings['seconds'])}" if settings.get("seconds") is not None else ""
    return f"Computed{took} with seed {settings.get('random_state')}; {listed}."


def short(name: str, most: int = 22) -> str:
    """Cut in the middle: columns are often told apart by how they end."""
    return name if len(name) <= most else f"{name[: most // 2]}…{name[-(most // 2 - 1) :]}"


def number(value: float, *, signed: bool = False) -> str:
    text = f"{value:+.4f}" if signed else f"{value:.4f}"
    return text.replace("-", "−").replace("inf", "∞")


def span(interval: Interval, *, signed: bool = False) -> str:
    return f"[{number(interval.low, signed=signed)}, {number(interval.high, signed=signed)}]"


def seconds(value: float) -> str:
    return f"{1000 * value:.0f} ms" if value < 1 else f"{value:.1f} s" if value < 100 else f"{value / 60:.0f} min"
