"""One self-contained HTML page for a training run: learning curves, a comparison, and retrieval before and after."""

from __future__ import annotations

import base64
import io
import os
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from isometry.report import page, views
from isometry.report.heldout import NETWORK, HeldOutScene, HeldOutScore
from isometry.report.scene import Scene, View

CURVES = {  # column of the history → title, what it says
    "loss": ("Loss", "mean of the epoch"),
    "map@r": ("MAP@R", "of held-out samples"),
    "recall@1": ("Recall@1", "of held-out samples"),
    "active": ("Active share", "of the samples that still get a gradient"),
    "rank": ("Effective rank", "of the embeddings; 1 is a line"),
}
MAX_POINTS = 2000
STYLE = f"""<style>
.hits {{ display: grid; grid-template-columns: 3.6em repeat(9, minmax(0, 1fr)); gap: 3px; align-items: center; }}
.hits span {{ color: var(--soft); font-size: .8rem; }}
.hits img {{ width: 100%; aspect-ratio: 1; object-fit: contain; image-rendering: pixelated; background: #000;
  border: 3px solid transparent; border-radius: 4px; }}
.hits img.right {{ border-color: {views.BETTER}; }}
.hits img.wrong {{ border: 3px dashed {views.WORSE}; }}
.queries {{ gap: 22px; }}
.numbers thead th:last-child {{ text-align: right; }}
</style>"""


@dataclass
class TrainingReport:
    """What is told of a run."""

    name: str  # of the data
    settings: dict[str, Any]
    history: dict[str, list[float]]
    stop_reason: str
    converged: bool
    scene: HeldOutScene | None  # None if nothing was held out


def write_training_report(report: TrainingReport, path: str | os.PathLike) -> Path:
    """Write the page to ``path``, an ``.html`` file or a folder, and return where it is."""
    scene, sections = report.scene, [_curves_section(report)]
    if scene is not None:
        sections = [_scores_section(scene), *sections, _retrieval_section(scene), _space_section(scene)]
    return page.write_page(
        path,
        title=f"{report.name}: training",
        name=report.name,
        facts=_facts(report),
        verdict=_verdict(report),
        good=report.converged and scene is not None and scene.better,
        sections=[*sections, _method_section(report)],
    )


def _facts(report: TrainingReport) -> str:
    s, epochs = report.settings, len(report.history["loss"])
    facts = [f"{s['loss']} loss", f"embeddings of {s['embedding']} dimensions", f"{epochs} epochs"]
    if report.scene is not None:
        facts.insert(0, f"{report.scene.n_train} training and {len(report.scene.X)} held-out samples")
    return " · ".join(facts)


def _verdict(report: TrainingReport) -> str:
    stopped = "" if report.converged else f"Training stopped early: {report.stop_reason}. "
    return stopped + (report.scene.verdict if report.scene is not None else "Nothing was held out to judge by.")


# -- the comparison ----------------------------------------------------------------------------------------------------


def _scores_section(scene: HeldOutScene) -> str:
    who = "samples of classes that training never saw" if scene.new_classes else "samples that training never saw"
    intro = (
        f"How well {who} find others of their class among themselves, with 95 % intervals over the {scene.unit}. "
        "The classical metrics learned from the same training part as the network."
    )
    return page.section(
        "Does the network help?", page.paragraph(intro), _dots(scene.scores), _table(scene.scores), STYLE
    )


def _dots(scores: list[HeldOutScore]) -> str:
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "x": [s.map_at_r.mean],
            "y": [escape(s.name)],
            "marker": {"color": views.BETTER if s.name == NETWORK else views.UNCLEAR, "size": 10},
            "error_x": {
                "type": "data",
                "array": [s.map_at_r.high - s.map_at_r.mean],
                "arrayminus": [s.map_at_r.mean - s.map_at_r.low],
                "thickness": 2,
                "width": 4,
            },
            "hovertext": [f"{escape(s.name)}: {s.map_at_r.mean:.4f} {page.span(s.map_at_r)}"],
            "hoverinfo": "text",
        }
        for s in scores
    ]
    layout = {
        "showlegend": False,
        "xaxis": {"title": {"text": "MAP@R"}, "rangemode": "tozero", "zeroline": False},
        "yaxis": {"autorange": "reversed", "automargin": True, "type": "category", "fixedrange": True},
        "margin": {"l": 10, "r": 15, "t": 10, "b": 45},
    }
    return page.plot(data, layout, 90 + 26 * len(scores), "MAP@R of each map with its interval")


def _table(scores: list[HeldOutScore]) -> str:
    heads = ["map", "MAP@R", "95 % interval", "Recall@1", "95 % interval", "network − this", "95 % interval"]
    rows = []
    for s in scores:
        gain = [page.signed(s.gain.mean), page.span(s.gain, signed=True)] if s.gain else ["", ""]
        cells = [f"{s.map_at_r.mean:.4f}", page.span(s.map_at_r), f"{s.recall.mean:.4f}", page.span(s.recall), *gain]
        numbers = "".join(f"<td>{escape(c)}</td>" for c in cells)
        rows.append(f"<tr{' class=best' if s.name == NETWORK else ''}><th>{escape(s.name)}</th>{numbers}</tr>")
    head = "".join(f"<th>{escape(h)}</th>" for h in heads)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<div class="scroll numbers" tabindex="0">{table}</div>'


# -- learning curves ---------------------------------------------------------------------------------------------------


def _curves_section(report: TrainingReport) -> str:
    raw = None if report.scene is None else report.scene[report.scene.raw]
    level = {} if raw is None else {"map@r": raw.map_at_r.mean, "recall@1": raw.recall.mean}
    panels = [
        f"<figure><figcaption>{escape(title)} <span>{escape(remark)}</span></figcaption>"
        f"{_curve(title, report.history[column], level.get(column))}</figure>"
        for column, (title, remark) in CURVES.items()
        if np.isfinite(report.history.get(column, [])).any()
    ]
    dotted = f"The dotted line is {raw.name}. " if raw is not None else ""
    intro = f"By epoch. {dotted}Training ended because: {report.stop_reason}."
    grid = f'<div class="grid">{"".join(panels)}</div>'
    return page.section("Learning curves", page.paragraph(intro), grid) if panels else ""


def _curve(title: str, values: list[float], level: float | None) -> str:
    epochs = list(range(1, len(values) + 1))
    trace = {"type": "scatter", "mode": "lines+markers", "x": epochs, "y": values, "marker": {"size": 5}}
    data: list[dict[str, Any]] = [trace | {"line": {"color": views.BETTER}}]
    if level is not None:
        line = {"color": views.UNCLEAR, "dash": "dot"}
        data.append({"type": "scatter", "mode": "lines", "x": [1, len(values)], "y": [level] * 2, "line": line})
    layout = {
        "showlegend": False,
        "xaxis": {"title": {"text": "epoch"}, "zeroline": False, "dtick": max(1, len(values) // 8)},
        "yaxis": {"zeroline": False},
        "margin": {"l": 50, "r": 10, "t": 5, "b": 40},
    }
    return page.plot(data, layout, 220, f"{title} by epoch")


# -- retrieval ---------------------------------------------------------------------------------------------------------


def _retrieval_section(scene: HeldOutScene) -> str:
    if scene.image_shape is None:
        return ""
    pictures = _Pictures(scene)
    panels = "".join(_query(scene, pictures, k) for k in range(len(scene.queries)))
    hits = {name: np.mean(scene.y[rows] == scene.y[scene.queries][:, None]) for name, rows in scene.neighbors.items()}
    intro = (
        f"{len(scene.queries)} held-out images, drawn at random, and their nearest neighbours among the others. "
        f"Of these neighbours, {hits['before']:.0%} are of the right class before and {hits['after']:.0%} after."
    )
    legend = (
        f'<ul class="legend"><li><b style="color:{views.BETTER}">▬</b> right class (solid frame)</li>'
        f'<li><b style="color:{views.WORSE}">┅</b> wrong class (dashed frame)</li></ul>'
    )
    grid = f'<div class="grid queries">{panels}</div>'
    return page.section("What is found", page.paragraph(intro), legend, grid)


def _query(scene: HeldOutScene, pictures: _Pictures, k: int) -> str:
    q = scene.queries[k]
    lines = []
    for name in ("before", "after"):
        rows = scene.neighbors[name][k]
        cells = [f"<span>{name}</span>", pictures.image(q, "", "the query")]
        for row in rows:
            kind = "right" if scene.y[row] == scene.y[q] else "wrong"
            cells.append(pictures.image(row, kind, f"{kind}: {scene.y[row]}"))
        lines.append(f'<div class="hits">{"".join(cells)}</div>')
    return f"<figure><figcaption>{escape(str(scene.y[q]))}</figcaption>{''.join(lines)}</figure>"


class _Pictures:
    """Samples as PNG images inside the page."""

    def __init__(self, scene: HeldOutScene):
        try:
            from matplotlib.image import imsave
        except ImportError as error:
            raise ImportError('pictures need matplotlib: pip install "isometry[cli]"', name="matplotlib") from error
        self._write, self._shape = imsave, scene.image_shape
        self._X, self._range = scene.X, (float(scene.X.min()), float(scene.X.max()))

    def image(self, row: int, kind: str, text: str) -> str:
        c, h, w = self._shape or ()
        low, high = self._range
        pixels = (self._X[row].reshape(c, h, w).transpose(1, 2, 0) - low) / max(high - low, 1e-12)  # (h, w, c)
        buffer = io.BytesIO()
        if c in (3, 4):
            self._write(buffer, pixels, format="png")
        else:
            self._write(buffer, pixels.mean(axis=2), format="png", cmap="gray", vmin=0, vmax=1)
        data = base64.b64encode(buffer.getvalue()).decode()
        return f'<img class="{kind}" alt="{escape(text)}" title="{escape(text)}" src="data:image/png;base64,{data}">'


def _space_section(scene: HeldOutScene) -> str:
    """The held-out samples in the plane, before and after."""
    rows = np.sort(np.random.default_rng(0).permutation(len(scene.y))[:MAX_POINTS])
    classes, codes = np.unique(scene.y[rows], return_inverse=True)
    drawn = Scene(codes=codes, classes=[str(c) for c in classes])
    panels = "".join(
        f"<figure><figcaption>{escape(name)}</figcaption>"
        f"{page.points(View(name, views.planar(Z[rows]), np.zeros(0)), drawn)}</figure>"
        for name, Z in ((f"before: {scene.raw}", scene.before), ("after: the network", scene.after))
    )
    shown = f"{len(rows)} of {len(scene.y)}" if len(rows) < len(scene.y) else f"{len(rows)}"
    intro = f"{shown} held-out samples in the plane of their two widest directions, which hides all other directions."
    return page.section(
        "The space before and after",
        page.paragraph(intro),
        page.legend(drawn.classes),
        f'<div class="grid">{panels}</div>',
    )


# -- how it was done ---------------------------------------------------------------------------------------------------


def _method_section(report: TrainingReport) -> str:
    s, scene = report.settings, report.scene
    items = []
    if scene is not None:
        chosen = (
            "Nothing was chosen on the held-out samples: the weights are those of the last epoch."
            if s.get("patience") is None
            else "The epoch was chosen by MAP@R on these very samples, which makes the network look a little too good."
        )
        what = "classes" if scene.new_classes else "samples"
        items += [
            f"{s['validation']:.0%} of the {what} were held out. They look for neighbours among themselves. {chosen}",
            _unit_of_chance(scene),
            "MAP@R is the mean average precision of the R nearest, where R is the number of samples of the same class; "
            "Recall@1 is the share whose nearest neighbour is of the same class.",
        ]
    shown = ", ".join(f"{k} {_shown(v)}" for k, v in s.items() if v is not None)
    items += [f"Settings: {shown}.", page.made_with({"random_state": s.get("seed")})]
    return page.section("How it was measured", f"<ul>{''.join(f'<li>{escape(i)}</li>' for i in items)}</ul>")


def _unit_of_chance(scene: HeldOutScene) -> str:
    if scene.new_classes:
        return (
            f"Intervals are over the {len(np.unique(scene.y))} held-out classes, each as a whole: they speak of other "
            "classes drawn as these were, not of another training run."
        )
    return (
        "Intervals are over the held-out samples: they speak of new samples of these classes, not of other classes or "
        "another training run."
    )


def _shown(value: Any) -> str:
    return "×".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
