"""One self-contained HTML page for a training run: learning curves, a comparison, and retrieval before and after."""

from __future__ import annotations

import os
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from isometry.report import page, svg, views
from isometry.report.retrieval_section import retrieval_section
from isometry.select.network import NETWORK, MapScore, NetworkComparison

CURVES = {  # column of the history → title and remark
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
    """What the page shows of a run."""

    name: str  # of the data
    settings: dict[str, Any]
    history: dict[str, list[float]]
    stop_reason: str
    converged: bool
    held_out: NetworkComparison | None  # None if nothing was held out


def write_training_report(report: TrainingReport, path: str | os.PathLike[str]) -> Path:
    """Write the page to ``path``, an ``.html`` file or a folder, and return where it is."""
    found = report.held_out
    sections = [_curves_section(report)]
    if found is not None:
        retrieved = retrieval_section(found, report.settings.get("seed") or 0)
        sections = [_scores_section(found), *sections, retrieved, _space_section(found)]
    return page.write_page(
        path,
        title=f"{report.name}: training",
        name=report.name,
        facts=_facts(report),
        verdict=_verdict(report),
        good=report.converged and found is not None and found.better,
        sections=[*sections, _method_section(report)],
    )


def _facts(report: TrainingReport) -> str:
    s, epochs = report.settings, len(report.history["loss"])
    facts = [f"{s['loss']} loss", f"embeddings of {s['embedding']} dimensions", f"{epochs} epochs"]
    if report.held_out is not None:
        facts.insert(0, f"{report.held_out.n_train} training and {len(report.held_out.X)} held-out samples")
    return " · ".join(facts)


def _verdict(report: TrainingReport) -> str:
    stopped = "" if report.converged else f"Training stopped early: {report.stop_reason}. "
    return stopped + ("Nothing was held out to judge by." if report.held_out is None else report.held_out.verdict)


def _scores_section(found: NetworkComparison) -> str:
    who = "samples of classes that training never saw" if found.new_classes else "samples that training never saw"
    intro = (
        f"How well {who} find others of their class among themselves, with 95 % intervals over the {found.unit}. "
        "The classical metrics learned from the same training part as the network."
    )
    drawn = [(s.name, s.map_at_r, views.BETTER if s.name == NETWORK else views.UNCLEAR) for s in found.scores]
    dots = page.interval_plot(drawn)
    heads = ["map", "MAP@R", "95 % interval", "Recall@1", "95 % interval", "network − this", "95 % interval"]
    table = page.table(heads, [_row(s) for s in found.scores], "numbers")
    return page.section("Does the network help?", page.paragraph(intro), dots, table, STYLE)


def _row(s: MapScore) -> str:
    gain = [page.number(s.gain.mean, signed=True), page.span(s.gain, signed=True)] if s.gain else ["", ""]
    scores = [page.number(s.map_at_r.mean), page.span(s.map_at_r), page.number(s.recall.mean), page.span(s.recall)]
    numbers = "".join(f"<td>{escape(c)}</td>" for c in scores + gain)
    return f"<tr{' class=best' if s.name == NETWORK else ''}><th>{escape(s.name)}</th>{numbers}</tr>"


def _curves_section(report: TrainingReport) -> str:
    raw = None if report.held_out is None else report.held_out[report.held_out.raw]
    level = {} if raw is None else {"map@r": raw.map_at_r.mean, "recall@1": raw.recall.mean}
    panels = [
        page.figure(title, remark, _curve(title, report.history[column], level.get(column)))
        for column, (title, remark) in CURVES.items()
        if np.isfinite(report.history.get(column, [])).any()
    ]
    dotted = f"The dotted line is {raw.name}. " if raw is not None else ""
    intro = f"By epoch. {dotted}Training ended because: {report.stop_reason}."
    return page.section("Learning curves", page.paragraph(intro), page.grid(panels)) if panels else ""


def _curve(title: str, values: list[float], level: float | None) -> str:
    epochs = np.arange(1, len(values) + 1)
    drawn = [svg.Line("", epochs, np.asarray(values, dtype=np.float64), views.BETTER)]
    if level is not None:
        ends = np.array([1.0, max(len(values), 2)])
        drawn.append(svg.Line("", ends, np.full(2, level), views.UNCLEAR, True))
    return svg.lines(drawn, f"{title} by epoch", x="epoch", y="", height=220)


def _space_section(found: NetworkComparison) -> str:
    """The held-out samples in the plane, before and after."""
    rows = np.sort(np.random.default_rng(0).permutation(len(found.y))[:MAX_POINTS])
    classes, codes = np.unique(found.y[rows], return_inverse=True)
    names = [str(c) for c in classes]
    panels = [
        page.figure(name, "", page.points(name, views.planar(Z[rows]), codes, names))
        for name, Z in ((f"before: {found.raw}", found.before), ("after: the network", found.after))
    ]
    shown = f"{len(rows)} of {len(found.y)}" if len(rows) < len(found.y) else f"{len(rows)}"
    intro = f"{shown} held-out samples in the plane of their two widest directions, which hides all other directions."
    return page.section("The space before and after", page.paragraph(intro), page.legend(names), page.grid(panels))


def _method_section(report: TrainingReport) -> str:
    s, found = report.settings, report.held_out
    items = []
    if found is not None:
        chosen = (
            "Nothing was chosen on the held-out samples: the weights are those of the last epoch."
            if s.get("patience") is None
            else "The epoch was chosen by MAP@R on these very samples, which makes the network look a little too good."
        )
        items += [
            f"{s['validation']:.0%} of the {found.unit} were held out. They look for neighbours among themselves. "
            + chosen,
            _about_intervals(found),
            "MAP@R is the mean average precision of the R nearest, where R is the number of samples of the same class; "
            "Recall@1 is the share whose nearest neighbour is of the same class.",
        ]
    shown = ", ".join(f"{k} {_as_text(v)}" for k, v in s.items() if v is not None)
    items += [f"Settings: {shown}.", page.made_with({"random_state": s.get("seed")})]
    return page.section("How it was measured", page.bullets(items))


def _about_intervals(found: NetworkComparison) -> str:
    if found.new_classes:
        return (
            f"Intervals are over the {found.n_classes} held-out classes, each as a whole: they are about other classes "
            "drawn as these were, not about another training run."
        )
    return (
        "Intervals are over the held-out samples: they are about new samples of these classes, not about other classes "
        "or another training run."
    )


def _as_text(value: Any) -> str:
    return "×".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
