"""What the pages are made of: the frame, sections, plots, legends, and how numbers are written."""

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

from isometry.io.atomic import replacing
from isometry.report import views
from isometry.report.scene import Scene, View

if TYPE_CHECKING:
    from isometry.eval import Interval

LEGEND_CLASSES = 24
SYMBOLS = ("circle", "square", "triangle-up", "diamond", "cross")
GLYPHS = ("●", "■", "▲", "◆", "✚")


def write_page(
    path: str | os.PathLike, *, title: str, name: str, facts: str, verdict: str, good: bool, sections: list[str]
) -> Path:
    """Fill the frame, write it where `report_file` says, all or nothing, and return the place."""
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
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


def report_file(path: str | os.PathLike) -> Path:
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
    data: list[dict], layout: dict, height: int, label: str, *, width: int | None = None, squeeze: bool = False
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


def points(view: View, scene: Scene) -> str:
    turn, colour = np.divmod(scene.codes, len(views.PALETTE))
    trace = {
        "type": "scatter",
        "mode": "markers",
        "x": view.points[:, 0],
        "y": view.points[:, 1],
        "text": [escape(scene.classes[c]) for c in scene.codes],
        "hoverinfo": "text",
        "marker": {
            "size": 6 if len(scene.codes) < 800 else 4,
            "opacity": 0.8,
            "color": [views.PALETTE[k] for k in colour],
            "symbol": [SYMBOLS[t % len(SYMBOLS)] for t in turn],
        },
    }
    bare = {"showticklabels": False, "zeroline": False}
    layout = {
        "showlegend": False,
        "xaxis": bare,
        "yaxis": {**bare, "scaleanchor": "x"},
        "margin": {"l": 5, "r": 5, "t": 5, "b": 5},
    }
    return plot([trace], layout, 320, f"Held-out points under {view.name}")


def legend(classes: list[str]) -> str:
    if len(classes) > LEGEND_CLASSES:
        return paragraph(f"{len(classes)} classes: colours and shapes repeat; point at a dot for its class.", "small")
    items = []
    for c, name in enumerate(classes):
        turn, colour = divmod(c, len(views.PALETTE))
        items.append(
            f'<li><b style="color:{views.PALETTE[colour]}">{GLYPHS[turn % len(GLYPHS)]}</b> {escape(name)}</li>'
        )
    return f'<ul class="legend">{"".join(items)}</ul>'


def made_with(settings: dict[str, Any]) -> str:
    from isometry import __version__

    versions = {"isometry": __version__, "python": platform.python_version()} | dict(settings.get("versions") or {})
    listed = ", ".join(f"{k} {v}" for k, v in versions.items())
    took = f" in {seconds(settings['seconds'])}" if settings.get("seconds") is not None else ""
    return f"Computed{took} with seed {settings.get('random_state')}; {listed}."


def short(name: str, most: int = 22) -> str:
    """Cut in the middle: columns are often told apart by how they end."""
    return name if len(name) <= most else f"{name[: most // 2]}…{name[-(most // 2 - 1) :]}"


def signed(value: float) -> str:
    return f"{value:+.4f}".replace("-", "−")


def span(interval: Interval, *, signed: bool = False) -> str:
    ends = (f"{v:+.4f}" if signed else f"{v:.4f}" for v in (interval.low, interval.high))
    return f"[{', '.join(ends)}]".replace("-", "−").replace("inf", "∞")


def seconds(value: float) -> str:
    return f"{1000 * value:.0f} ms" if value < 1 else f"{value:.1f} s" if value < 100 else f"{value / 60:.0f} min"
