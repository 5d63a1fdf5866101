"""One self-contained HTML page for a comparison: opens offline, asks no server for anything."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isometry.eval import Roc, roc
from isometry.report import page, views
from isometry.report.scene import BASELINE, Scene, View, make_scene

if TYPE_CHECKING:
    from isometry.select.result import Comparison, MethodResult

HEATMAP_FEATURES = 16
SCORES = {
    "knn": "the share of held-out points whose class the vote of their {n_neighbors} nearest neighbours gets right",
    "map@r": "MAP@R, the mean average precision of the R nearest, where R is the number of points of the same class",
    "r_precision": "R-precision, the share of the same class among the R nearest, where R is the size of that class",
    "pair_auc": "the probability that a similar pair is nearer than a dissimilar one (AUC)",
    "ordering": "the share of held-out comparisons that the distances put in the right order",
}
PROTOCOLS = {
    "closed": "Held-out points were new, their classes known: neighbours come from the training part.",
    "open": "Held-out classes were never seen in training: their points look for neighbours among themselves.",
}


def write_report(
    comparison: Comparison, path: str | os.PathLike, X: Any = None, y: Any = None, max_points: int = 2000
) -> Path:
    """Write the page of a comparison and return where it is.

    Parameters
    ----------
    comparison : what `isometry.compare` returned
    path : an ``.html`` file, or a folder, which is created if need be and gets an ``index.html``
    X, y : the data that were compared, for pictures of the space before and after. The best metrics are fitted once
        more for them, on a part of the rows, and the pictures show the others
    max_points : points drawn in a picture, at most
    """
    path = page.report_file(path)  # before the work: an impossible place is told at once
    scene = make_scene(comparison, X, y, max_points)
    name = str(comparison.data.get("name") or "data")
    return page.write_page(
        path,
        title=f"{name}: comparison of metrics",
        name=name,
        facts=_facts(comparison),
        verdict=comparison.verdict,
        good=bool(comparison.best),
        sections=[
            _ranking_section(comparison),
            _space_section(comparison, scene),
            _weights_section(comparison, scene),
            _pairs_section(scene),
            _convergence_section(scene),
            _method_section(comparison, scene),
        ],
    )


def _facts(comparison: Comparison) -> str:
    d = comparison.data
    facts = [f"{d.get('n_samples', '?')} samples", f"{d.get('n_features', '?')} features"]
    if d.get("n_classes"):
        facts.append(f"{d['n_classes']} classes")
    return " · ".join([*facts, f"{len(comparison.results)} metrics"])


def _ranking_section(comparison: Comparison) -> str:
    percent = f"{100 * comparison.level:g} %"
    rows = [r for r in comparison.results if r.difference is not None]
    intro = (
        f"Each line is the difference of a metric to {BASELINE} distance on the same held-out points, with its "
        f"{percent} interval. Blue is reliably better, red-orange reliably worse, grey unclear; the colours allow for "
        "the number of metrics that were tried."
    )
    return page.section(
        f"Difference to {BASELINE}",
        page.paragraph(intro) if rows else page.paragraph(f"No metric could be compared with {BASELINE}."),
        _forest(rows, comparison.scoring) if rows else "",
        _table(comparison, percent),
    )


def _forest(rows: Sequence[MethodResult], scoring: str) -> str:
    gaps = [r.difference for r in rows if r.difference is not None]
    colours = [views.VERDICTS.get(r.reliable, views.UNCLEAR) for r in rows]
    half = [[g.high - g.mean for g in gaps], [g.mean - g.low for g in gaps]]
    hover = [
        f"{escape(r.name)}: {page.signed(g.mean)} {page.span(g, signed=True)}" for r, g in zip(rows, gaps, strict=True)
    ]
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "x": [g.mean],
            "y": [escape(r.name)],
            "marker": {"color": c, "size": 9},
            "error_x": {"type": "data", "array": [up], "arrayminus": [down], "color": c, "thickness": 2, "width": 4},
            "hovertext": [text],
            "hoverinfo": "text",
        }
        for r, g, c, up, down, text in zip(rows, gaps, colours, *half, hover, strict=True)
    ]
    layout = {
        "showlegend": False,
        "xaxis": {"title": {"text": f"{escape(scoring)} − {BASELINE}"}, "zeroline": True, "tickformat": "+.3~f"},
        "yaxis": {"autorange": "reversed", "automargin": True, "type": "category", "fixedrange": True},
        "margin": {"l": 10, "r": 10, "t": 10, "b": 45},
    }
    return page.plot(data, layout, 90 + 26 * len(rows), f"Differences to {BASELINE} with intervals")


def _table(comparison: Comparison, percent: str) -> str:
    heads = [
        "metric",
        comparison.scoring,
        f"{percent} interval",
        f"− {BASELINE}",
        f"{percent} interval",
        "",
        "fit",
        "notes",
    ]
    body = "\n".join(_row(r, r.name == comparison.best) for r in comparison.results)
    head = "".join(f"<th>{escape(h)}</th>" for h in heads)
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'
    )


def _row(r: MethodResult, best: bool) -> str:
    remarks = [*([f"{r.unconverged} of {r.n_fits} fits did not converge"] if r.unconverged else []), *r.warnings[:1]]
    if r.score is None:
        why = f"failed: {r.failures[0]}" if r.failures else "not run"
        return f'<tr class="failed"><th>{escape(r.name)}</th><td colspan="7" class="text">{escape(why)}</td></tr>'
    if r.failures:
        remarks.insert(0, f"{len(r.failures)} of {r.n_fits} fits failed: {r.failures[0]}")
    d = r.difference
    cells = [
        f"{r.score.mean:.4f}",
        page.span(r.score),
        page.signed(d.mean) if d else "",
        page.span(d, signed=True) if d else "",
    ]
    numbers = "".join(f"<td>{escape(c)}</td>" for c in cells)
    mark = f'<td class="text"><span class="mark {escape(r.reliable)}">{escape(r.reliable)}</span></td>'
    seconds = f"<td>{page.seconds(r.fit_seconds)}</td>"
    notes = f'<td class="text">{escape("; ".join(remarks))}</td>'
    return f"<tr{' class=best' if best else ''}><th>{escape(r.name)}</th>{numbers}{mark}{seconds}{notes}</tr>"


def _space_section(comparison: Comparison, scene: Scene) -> str:
    if not scene.views:
        return ""
    panels = [
        _figure(v, f"{comparison.scoring} {_score(comparison, v.name):.3f}", page.points(v, scene)) for v in scene.views
    ]
    intro = (
        f"{scene.held_out} Each panel is the plane of the two widest directions (PCA) of the space that the "
        "metric makes; a good metric draws a class together and sets classes apart. Point at a dot for its class."
    )
    return page.section(
        "The space, before and after",
        page.paragraph(intro),
        page.legend(scene.classes),
        f'<div class="grid">{"".join(panels)}</div>',
    )


def _weights_section(comparison: Comparison, scene: Scene) -> str:
    if scene.weights is None:
        return ""
    name, W = scene.weights
    names = comparison.data.get("feature_names")
    known = names is not None and len(names) == len(W)  # a projection in front of the metric makes features of its own
    block, features = views.leading_features(W, names if known else None, HEATMAP_FEATURES)
    shown = f"the {len(features)} heaviest of {len(W)} features" if len(features) < len(W) else "the features"
    top = float(np.abs(block).max()) or 1.0
    ticks = [escape(page.short(f)) for f in features]
    trace = {
        "type": "heatmap",
        "z": block,
        "x": list(range(len(ticks))),
        "y": list(range(len(ticks))),
        "zmin": -top,
        "zmax": top,
        "colorscale": [[0, "#B35806"], [0.25, "#F1A340"], [0.5, "#F7F7F7"], [0.75, "#998EC3"], [1, "#542788"]],
        "text": [[f"{escape(a)} × {escape(b)}" for b in features] for a in features],
        "hovertemplate": "%{text}: %{z:.3f}<extra></extra>",
        "colorbar": {"thickness": 10},
    }
    axis = {"tickvals": list(range(len(ticks))), "ticktext": ticks, "showgrid": False, "automargin": True}
    layout = {
        "xaxis": {**axis, "tickangle": -90},
        "yaxis": {**axis, "autorange": "reversed"},
        "margin": {"l": 10, "r": 10, "t": 10, "b": 10},
    }
    intro = (
        f"The matrix W of {name} over {shown}, heaviest first, after scaling and relative to the mean weight. "
        "Columns are in the order of the rows. The diagonal says how much a feature counts in the distance; a positive "
        "entry off it says that differences of the same sign in both features count extra, a negative one that they "
        "partly cancel."
    )
    height = 190 + 24 * len(ticks)
    return page.section(
        "What the metric looks at",
        page.paragraph(intro),
        page.plot([trace], layout, height, f"Matrix of {name}", width=height + 160, squeeze=True),
    )


def _pairs_section(scene: Scene) -> str:
    if not scene.views or scene.similar.all() or not scene.similar.any():
        return ""
    curves = [roc(v.distances, scene.similar) for v in scene.views]
    panels = [_figure(v, f"AUC {c.auc:.3f}", _densities(v, scene)) for v, c in zip(scene.views, curves, strict=True)]
    intro = (
        f"Distances of {len(scene.similar):,} held-out pairs. The less the two heaps overlap, the better a threshold "
        "on the distance tells whether two things are of the same kind; the curve shows every threshold at once."
    )
    return page.section(
        "Same or different?",
        page.paragraph(intro),
        f'<ul class="legend"><li><b style="color:{views.SAME}">■</b> same class</li>'
        f'<li><b style="color:{views.DIFFERENT}">■</b> different classes</li></ul>',
        f'<div class="grid">{"".join(panels)}</div>',
        _roc(scene, curves),
    )


def _densities(view: View, scene: Scene) -> str:
    edges, same, different = views.densities(view.distances, scene.similar)
    middle, width = (edges[1:] + edges[:-1]) / 2, edges[1] - edges[0]
    data = [
        {"type": "bar", "x": middle, "y": h, "width": width, "marker": {"color": c}, "opacity": 0.6, "name": n}
        for h, c, n in ((same, views.SAME, "same"), (different, views.DIFFERENT, "different"))
    ]
    layout = {
        "barmode": "overlay",
        "bargap": 0,
        "showlegend": False,
        "xaxis": {"title": {"text": "distance"}, "zeroline": False},
        "yaxis": {"showticklabels": False},
        "margin": {"l": 10, "r": 10, "t": 5, "b": 40},
    }
    return page.plot(data, layout, 240, f"Distances of same and different pairs under {view.name}")


def _roc(scene: Scene, curves: Sequence[Roc]) -> str:
    data: list[dict[str, Any]] = [
        {"type": "scatter", "mode": "lines", "x": [0, 1], "y": [0, 1], "line": {"color": views.UNCLEAR, "dash": "dot"}}
    ]
    data[0] |= {"showlegend": False, "hoverinfo": "skip"}
    for k, (view, curve) in enumerate(zip(scene.views, curves, strict=True)):
        at = np.unique(np.linspace(0, len(curve.fpr) - 1, 400).astype(int))
        line = {"color": views.PALETTE[k], "dash": "dash" if view.name == BASELINE else "solid"}
        name = f"{escape(view.name)}, AUC {curve.auc:.3f}"
        data.append(
            {"type": "scatter", "mode": "lines", "x": curve.fpr[at], "y": curve.tpr[at], "name": name, "line": line}
        )
    layout = {
        "xaxis": {"title": {"text": "different pairs accepted"}, "range": [-0.01, 1.01], "zeroline": False},
        "yaxis": {"title": {"text": "same pairs accepted"}, "range": [-0.01, 1.01], "zeroline": False},
        "legend": {"x": 1, "xanchor": "right", "y": 0.02, "yanchor": "bottom"},
        "margin": {"l": 50, "r": 10, "t": 10, "b": 45},
    }
    return page.plot(data, layout, 400, "ROC curves of the pictured metrics", width=640)


def _convergence_section(scene: Scene) -> str:
    if not scene.histories:
        return ""
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": list(range(1, len(share) + 1)),
            "y": share,
            "name": escape(name),
            "line": {"color": views.PALETTE[k]},
        }
        for k, (name, share) in enumerate((n, views.remaining(h)) for n, h in scene.histories.items())
    ]
    layout = {
        "showlegend": True,
        "xaxis": {"title": {"text": "iteration"}, "type": "log", "dtick": 1, "zeroline": False},
        "yaxis": {"title": {"text": "still to come"}, "tickformat": ".0%"},
        "legend": {"x": 1, "xanchor": "right", "y": 1},
        "margin": {"l": 60, "r": 10, "t": 10, "b": 45},
    }
    intro = (
        "For metrics found by iteration: the share of the whole change of the objective that is still to come. A curve "
        "that lies flat well before its end has converged; one that still falls there would gain from more iterations. "
        "A jump is a new stage of a method that solves its problem in stages."
    )
    return page.section(
        "Convergence", page.paragraph(intro), page.plot(data, layout, 320, "Convergence of iterative metrics")
    )


def _method_section(comparison: Comparison, scene: Scene) -> str:
    c, s = comparison, comparison.settings
    score = SCORES.get(c.scoring, c.scoring).format(n_neighbors=s.get("n_neighbors", "k"))
    repeats = f", repeated {c.n_repeats} times with other folds" if c.n_repeats > 1 else ""
    scaler = str(s.get("scaler") or "none")
    scaled = "Features were left as they are." if scaler == "none" else f"Features went through the scaler “{scaler}”, "
    tuned = (
        "Parameters were chosen inside each training part alone."
        if s.get("tune")
        else "Every metric ran with its default parameters; tuning may change the order."
    )
    items = [
        f"The score is {score}. {PROTOCOLS.get(c.protocol, '')}",
        f"It is measured by {c.n_splits}-fold cross-validation{repeats}: every metric is fitted on the same training "
        "parts and scored on the same held-out points, so differences are paired, point by point.",
        scaled
        + ("" if scaler == "none" else "fitted on the training part only, for every metric alike.")
        + f" {tuned}",
        f"Each interval holds {100 * c.level:g} % of the time. “Better” and “worse” are corrected for the number of "
        "metrics (Holm), so that the luckiest of many does not pass for the best. They speak of new points, not of new "
        "training sets.",
        *([scene.held_out] if scene.held_out else []),
        *scene.notes,
        *c.notes,
        *(["The run was interrupted: what had finished is shown."] if c.interrupted else []),
        page.made_with(s),
    ]
    lines = "".join(f"<li>{escape(item)}</li>" for item in items)
    return page.section("How it was measured", f"<ul>{lines}</ul>")


def _figure(view: View, remark: str, plot: str) -> str:
    title = f"{BASELINE}, after scaling" if view.name == BASELINE else view.name
    return f"<figure><figcaption>{escape(title)} <span>{escape(remark)}</span></figcaption>{plot}</figure>"


def _score(comparison: Comparison, name: str) -> float:
    score = comparison[name].score
    return score.mean if score is not None else math.nan
