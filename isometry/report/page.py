"""What the pages are made of: the template, sections, tables, legends, and how numbers are written."""

from __future__ import annotations

import os
import platform
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np

from isometry.io.atomic import atomic_write
from isometry.report import svg, views

if TYPE_CHECKING:
    from isometry.eval import Interval

LEGEND_CLASSES = 24  # with more classes there is no legend
GLYPHS = ("●", "■", "•", "▪")


def write_page(
    path: str | os.PathLike[str], *, title: str, name: str, facts: str, verdict: str, good: bool, sections: list[str]
) -> Path:
    """Fill the page template, write it where `report_file` says, all or nothing, and return that path."""
    page = Template(files("isometry.report").joinpath("page.html").read_text(encoding="utf-8")).substitute(
        title=escape(title),
        name=escape(name),
        facts=escape(facts),
        verdict=escape(verdict),
        tone="good" if good else "plain",
        sections="\n".join(s for s in sections if s),
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
    if path.exists() and not path.is_dir():
        raise FileExistsError(
            f"cannot make a folder for the report (there is something else of this name): {path}; give a folder, or a "
            "name that ends in .html"
        )
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(error.errno, f"cannot make a folder for the report ({error.strerror})", str(path)) from error
    return path / "index.html"


def section(title: str, *parts: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n" + "\n".join(p for p in parts if p) + "\n</section>"


def paragraph(text: str, kind: str = "") -> str:
    return f"<p{f' class={kind}' if kind else ''}>{escape(text)}</p>" if text else ""


def points(name: str, at: np.ndarray, codes: np.ndarray, classes: list[str]) -> str:
    """Held-out rows as points at (m, 2)."""
    return svg.scatter(at, codes, classes, f"Held-out points under {name}")


def interval_plot(rows: list[tuple[str, Interval, str]], *, signed: bool = False) -> str:
    """Intervals by (name, interval, colour), one below the other."""
    axis = interval_axis([value for _, value, _ in rows], zero=True)
    lines = [
        f"<tr><th>{escape(name)}</th>{strip_cell(value, colour, axis, signed)}</tr>" for name, value, colour in rows
    ]
    return f'<div class="scroll forest"><table><tbody>{"".join(lines)}</tbody></table></div>'


def strip_cell(value: Interval, colour: str, axis: tuple[float, float], signed: bool) -> str:
    text = f"{number(value.mean, signed=signed)} {span(value, signed=signed)}"
    return f'<td class="strips">{svg.strip(*value, colour, axis, text)}</td>'


def interval_axis(values: list[Interval], zero: bool) -> tuple[float, float]:
    """From the lowest to the highest end; infinite ends and a few wild ones do not count."""
    ends = np.array([[v.low, v.mean, v.high] for v in values]) if values else np.zeros((1, 3))
    ends = np.where(np.isfinite(ends), ends, ends[:, 1:2])
    low, high = float(ends[:, 0].min()), float(ends[:, 2].max())
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    return (low, high) if high > low else (low - 1, high + 1)


def bars(rows: list[tuple[str, float, str]]) -> str:
    """(name, value ≥ 0, text), one below the other."""
    top = max((value for _, value, _ in rows), default=0.0) or 1.0
    lines = [
        f'<tr><th>{escape(name)}</th><td class="bars"><i style="width:{100 * value / top:.1f}%"></i></td>'
        f"<td>{escape(text)}</td></tr>"
        for name, value, text in rows
    ]
    return f'<div class="scroll forest"><table><tbody>{"".join(lines)}</tbody></table></div>'


def code(text: str) -> str:
    return f"<pre><code>{escape(text)}</code></pre>"


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
    return svg.legend(entries)


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
