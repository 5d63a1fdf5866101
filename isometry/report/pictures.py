"""Sections of the page of a comparison that show fitted metrics on held-out rows."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from isometry.eval import Roc, roc
from isometry.report import page, views
from isometry.select.heldout import Refits
from isometry.select.result import BASELINE

if TYPE_CHECKING:
    from isometry.select.result import Comparison

HEATMAP_FEATURES = 16
N_CURVES = 4  # metrics whose convergence is drawn


def describe_rows(refits: Refits) -> str:
    """Which rows are drawn, in words."""
    n = len(refits.codes)
    rows = f"{n} held-out rows" if n == refits.n_held_out else f"{n} of {refits.n_held_out} held-out rows"
    new = ", of classes that the metrics never saw" if refits.new_classes else ""
    return (
        f"The pictures show {rows}{new}. For them the metrics were fitted once more, on the other {refits.n_train} "
        "rows; the scores come from the cross-validation."
    )


def space_section(comparison: Comparison, refits: Refits) -> str:
    if not refits.best:
        return ""
    panels = []
    for found in refits.best:
        score = comparison[found.name].score
        remark = f"{comparison.scoring} {score.mean if score else math.nan:.3f}"
        points = page.points(found.name, views.planar(found.Z), refits.codes, refits.classes)
        panels.append(page.figure(_title(found.name), remark, points))
    intro = (
        f"{describe_rows(refits)} Each panel is the plane of the two widest directions (PCA) of the space that the "
        "metric makes; a good metric draws a class together and sets classes apart. Point at a dot for its class."
    )
    return page.section(
        "The space, before and after", page.paragraph(intro), page.legend(refits.classes), page.grid(panels)
    )


def weights_section(names: list[str] | None, learners: dict[str, Any]) -> str:
    """The matrix of the best linear metric."""
    linear = [name for name, learner in learners.items() if name != BASELINE and hasattr(learner, "mahalanobis_")]
    if not linear:
        return ""
    name, W = linear[0], views.weight_matrix(learners[linear[0]])
    known = names is not None and len(names) == len(W)  # after a projection the features are others
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


def pairs_section(refits: Refits, seed: int) -> str:
    pairs = {m.name: views.pair_sample(m.Z, refits.codes, random_state=seed) for m in refits.best}
    similar = next(iter(pairs.values()))[1] if pairs else np.zeros(0, dtype=bool)  # (m,) the same for all metrics
    if similar.all() or not similar.any():
        return ""
    curves = {name: roc(distances, similar) for name, (distances, _) in pairs.items()}
    panels = [
        page.figure(_title(name), f"AUC {curves[name].auc:.3f}", _densities(name, distances, similar))
        for name, (distances, _) in pairs.items()
    ]
    intro = (
        f"Distances of {len(similar):,} held-out pairs. The less the two histograms overlap, the better a threshold "
        "on the distance tells whether two things are of the same kind; the curve shows every threshold at once."
    )
    return page.section(
        "Same or different?",
        page.paragraph(intro),
        page.colour_key((views.SAME, "■", "same class"), (views.DIFFERENT, "■", "different classes")),
        page.grid(panels),
        _roc(curves),
    )


def _densities(name: str, distances: np.ndarray, similar: np.ndarray) -> str:
    edges, same, different = views.densities(distances, similar)
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
    return page.plot(data, layout, 240, f"Distances of same and different pairs under {name}")


def _roc(curves: dict[str, Roc]) -> str:
    chance: page.Json = {"type": "scatter", "mode": "lines", "x": [0, 1], "y": [0, 1]}
    chance |= {"line": {"color": views.UNCLEAR, "dash": "dot"}, "showlegend": False, "hoverinfo": "skip"}
    data: list[page.Json] = [chance]
    for k, (name, curve) in enumerate(curves.items()):
        at = np.unique(np.linspace(0, len(curve.fpr) - 1, 400).astype(int))
        line = {"color": views.PALETTE[k], "dash": "dash" if name == BASELINE else "solid"}
        title = f"{escape(name)}, AUC {curve.auc:.3f}"
        data.append(
            {"type": "scatter", "mode": "lines", "x": curve.fpr[at], "y": curve.tpr[at], "name": title, "line": line}
        )
    layout = {
        "xaxis": {"title": {"text": "different pairs accepted"}, "range": [-0.01, 1.01], "zeroline": False},
        "yaxis": {"title": {"text": "same pairs accepted"}, "range": [-0.01, 1.01], "zeroline": False},
        "legend": {"x": 1, "xanchor": "right", "y": 0.02, "yanchor": "bottom"},
        "margin": {"l": 50, "r": 10, "t": 10, "b": 45},
    }
    return page.plot(data, layout, 400, "ROC curves of the pictured metrics", width=640)


def convergence_section(learners: dict[str, Any]) -> str:
    histories = [(name, getattr(learner, "history_", None)) for name, learner in learners.items()]
    histories = [(name, h) for name, h in histories if h is not None and len(h) > 1][:N_CURVES]
    if not histories:
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
        for k, (name, share) in enumerate((n, views.remaining(h)) for n, h in histories)
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


def _title(name: str) -> str:
    return f"{BASELINE}, after scaling" if name == BASELINE else name
