"""Sections of the page of a comparison that show fitted metrics on held-out rows."""

from __future__ import annotations

import math
from collections import Counter
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from isometry.eval import Roc, nearest, roc
from isometry.report import page, svg, views
from isometry.report.retrieval_section import draw_queries, neighbors_of
from isometry.select.heldout import Refits
from isometry.select.result import BASELINE
from isometry.supervision import Labels

if TYPE_CHECKING:
    from isometry.select.result import Comparison

HEATMAP_FEATURES = 16
N_CURVES = 4  # metrics whose convergence is drawn
MAX_CLASSES = 24  # rows of the table of classes
MAX_CONFUSIONS = 8
N_QUERIES = 6  # rows whose neighbours are listed
N_NEIGHBORS = 4


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
        same = refits.same.get(found.name, [])
        title = _title(found.name) + (f" = {', '.join(same)}" if same else "")
        wide = page.points(f"{found.name}, widest view", views.planar(found.Z), refits.codes, refits.classes)
        apart = views.discriminant_plane(found.Z, refits.codes)
        apart_view = page.points(f"{found.name}, discriminant view", apart, refits.codes, refits.classes)
        panels.append(page.figure(title, remark, f'<div class="views">{wide}{apart_view}</div>'))
    intro = (
        f"{describe_rows(refits)} Each pair of panels shows the space that a metric makes: first the plane of its two "
        "widest directions (PCA), then the plane that tells the classes of these very points apart best (Fisher's, so "
        "it flatters every metric alike). Points far outside are drawn at the edge. Point at a dot for its class. "
        "Metrics that agree on every held-out point share a panel."
    )
    return page.section(
        "The space, before and after", page.paragraph(intro), page.legend(refits.classes), page.grid(panels, "wide")
    )


def weights_section(names: list[str] | None, learners: dict[str, Any]) -> str:
    """How much each feature counts in the best linear metric, and how features act together."""
    linear = [name for name, learner in learners.items() if name != BASELINE and hasattr(learner, "mahalanobis_")]
    if not linear:
        return ""
    name, W = linear[0], views.weight_matrix(learners[linear[0]])
    known = names is not None and len(names) == len(W)  # after a projection the features are others
    block, features = views.leading_features(W, names if known else None, HEATMAP_FEATURES)
    shown = f"the {len(features)} heaviest of {len(W)} features" if len(features) < len(W) else "the features"
    weights = [(f, float(w), f"{w:.2f}") for f, w in zip(features, np.diag(block), strict=True)]
    intro = (
        f"How much {shown} count in the distance of {name}, heaviest first: the diagonal of its matrix W, after "
        "scaling and relative to the mean weight."
    )
    more = (
        "The whole matrix over these features, columns in the order of the rows. Violet off the diagonal says that "
        "differences of the same sign in both features count extra, orange that they partly cancel: two features that "
        "say nearly the same may both weigh much and cancel."
    )
    matrix = svg.heatmap(block, [page.short(f) for f in features], f"Matrix of {name}")
    return page.section(
        "What the metric looks at", page.paragraph(intro), page.bars(weights), page.paragraph(more), matrix
    )


def classes_section(comparison: Comparison, y: Any, refits: Refits) -> str:
    """The score of each class before and after, and which classes are taken for one another."""
    after = next((r for r in comparison.results if r.score is not None and r.name != BASELINE), None)
    before = next((r for r in comparison.results if r.name == BASELINE), None)
    if after is None or before is None or before.score is None:
        return ""
    labels = y if isinstance(y, Labels) else Labels(y)
    rows = []
    for c, name in enumerate(labels.classes):
        mine = (labels.codes == c) & np.isfinite(before.values) & np.isfinite(after.values)
        if mine.any():
            rows.append((str(name), int(mine.sum()), before.values[mine].mean(), after.values[mine].mean()))
    if not rows:
        return ""
    rows.sort(key=lambda row: row[3] - row[2])
    cut = rows if len(rows) <= MAX_CLASSES else rows[: MAX_CLASSES // 2] + rows[-(MAX_CLASSES // 2) :]
    body = [
        f"<tr><th>{escape(name)}</th><td>{n}</td><td>{a:.3f}</td><td>{b:.3f}</td>"
        f'<td class="{"right" if b > a else "wrong" if b < a else ""}">{page.number(b - a, signed=True)}</td></tr>'
        for name, n, a, b in cut
    ]
    some = "" if len(cut) == len(rows) else f" Of {len(rows)} classes those that lose and gain most are shown."
    intro = f"Mean score ({comparison.scoring}) of the held-out points of each class, before and after.{some}"
    heads = ["class", "points", BASELINE, after.name, "difference"]
    return page.section(
        "Class by class", page.paragraph(intro), page.table(heads, body, "numbers"), _confusions(refits, after.name)
    )


def _confusions(refits: Refits, name: str) -> str:
    """Pairs of classes whose points are most often each other's nearest neighbour, before and after."""
    maps = {m.name: m.Z for m in refits.best}
    if BASELINE not in maps or name not in maps or len(refits.codes) < 3:
        return ""
    found = {m: refits.codes[_nearest_other(maps[m])] for m in (BASELINE, name)}
    pairs = {m: Counter(zip(refits.codes.tolist(), near.tolist(), strict=True)) for m, near in found.items()}
    wrong = [pair for pair in pairs[BASELINE] | pairs[name] if pair[0] != pair[1]]
    wrong.sort(key=lambda pair: -max(pairs[BASELINE][pair], pairs[name][pair]))
    if not wrong:
        return page.paragraph("The nearest neighbour of every held-out row is of its class.")
    body = [
        f"<tr><th>{escape(refits.classes[a])}</th><td class='text'>{escape(refits.classes[b])}</td>"
        f"<td>{pairs[BASELINE][a, b]}</td><td>{pairs[name][a, b]}</td></tr>"
        for a, b in wrong[:MAX_CONFUSIONS]
    ]
    intro = (
        "What is most often taken for what: held-out rows whose nearest neighbour, among the held-out rows, is wrong."
    )
    return page.paragraph(intro) + page.table(["class", "taken for", BASELINE, name], body, "numbers confusions")


def _nearest_other(Z: np.ndarray) -> np.ndarray:
    """(n,) the nearest other row of each row."""
    found = nearest(Z, 2, Z)[0]
    rows = np.arange(len(Z))
    return np.where(found[:, 0] == rows, found[:, 1], found[:, 0])


def neighbours_section(refits: Refits, seed: int) -> str:
    """The nearest neighbours of a few rows, before and after."""
    maps = {m.name: m.Z for m in refits.best[:2]}
    if len(maps) < 2 or len(refits.codes) <= N_NEIGHBORS:
        return ""
    queries = draw_queries(refits.codes, seed, N_QUERIES)
    found = {name: neighbors_of(queries, Z)[:, :N_NEIGHBORS] for name, Z in maps.items()}
    body = []
    for k, q in enumerate(queries):
        cells = [f"<th>row {refits.rows[q]}: {escape(refits.classes[refits.codes[q]])}</th>"]
        for near in found.values():
            listed = [_neighbour(refits, q, r) for r in near[k]]
            cells.append(f'<td class="text">{", ".join(listed)}</td>')
        body.append(f"<tr>{''.join(cells)}</tr>")
    intro = "A few held-out rows, drawn at random, with the classes and numbers of their nearest neighbours."
    return page.section("What is near what", page.paragraph(intro), page.table(["row", *found], body, "numbers near"))


def _neighbour(refits: Refits, query: int, row: int) -> str:
    kind = "right" if refits.codes[row] == refits.codes[query] else "wrong"
    return f'<span class="{kind}">{escape(refits.classes[refits.codes[row]])}</span> ({refits.rows[row]})'


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
        page.grid([page.figure("Every threshold at once", "", _roc(curves)), *_thresholds(pairs, curves)]),
    )


def _densities(name: str, distances: np.ndarray, similar: np.ndarray) -> str:
    return svg.histogram(*views.densities(distances, similar), f"Distances of same and different pairs under {name}")


def _roc(curves: dict[str, Roc]) -> str:
    drawn = [svg.Line("", np.array([0.0, 1.0]), np.array([0.0, 1.0]), views.UNCLEAR, True)]
    for k, (name, curve) in enumerate(curves.items()):
        at = np.unique(np.linspace(0, len(curve.fpr) - 1, 200).astype(int))
        title = f"{name}, AUC {curve.auc:.3f}"
        drawn.append(svg.Line(title, curve.fpr[at], curve.tpr[at], views.PALETTE[k], name == BASELINE))
    return svg.lines(
        drawn,
        "ROC curves of the pictured metrics",
        x="different pairs accepted",
        y="same pairs accepted",
        x_range=(0, 1),
        y_range=(0, 1),
    )


def _thresholds(pairs: dict[str, tuple[np.ndarray, np.ndarray]], curves: dict[str, Roc]) -> list[str]:
    """Precision and recall of "same" over the threshold, for the best learned metric."""
    name = next((n for n in pairs if n != BASELINE), None)
    if name is None:
        return []
    curve, share = curves[name], float(np.mean(pairs[name][1]))
    at = np.unique(np.linspace(1, len(curve.fpr) - 1, 200).astype(int))
    right, wrong = share * curve.tpr[at], (1 - share) * curve.fpr[at]
    drawn = [
        svg.Line(
            "precision: accepted pairs that are the same", curve.thresholds[at], right / (right + wrong), views.SAME
        ),
        svg.Line("recall: same pairs that are accepted", curve.thresholds[at], curve.tpr[at], views.DIFFERENT),
    ]
    picture = svg.lines(
        drawn, f"Precision and recall of {name}", x="distance up to which a pair is accepted", y="share", y_range=(0, 1)
    )
    return [page.figure(f"Where to put the threshold: {name}", f"{share:.0%} of the pairs are the same", picture)]


def convergence_section(learners: dict[str, Any]) -> str:
    histories = [(name, getattr(learner, "history_", None)) for name, learner in learners.items()]
    histories = [(name, h) for name, h in histories if h is not None and len(h) > 1][:N_CURVES]
    if not histories:
        return ""
    drawn = [
        svg.Line(name, np.arange(1, len(share) + 1), share, views.PALETTE[k])
        for k, (name, share) in enumerate((n, views.remaining(h)) for n, h in histories)
    ]
    picture = svg.lines(
        drawn, "Convergence of iterative metrics", x="iteration", y="still to come", log_x=True, percent=True
    )
    intro = (
        "For metrics found by iteration: the share of the whole change of the objective that is still to come. A curve "
        "that lies flat well before its end has converged; one that still falls there would gain from more iterations. "
        "A jump is a new stage of a method that solves its problem in stages."
    )
    return page.section("Convergence", page.paragraph(intro), picture)


def _title(name: str) -> str:
    return f"{BASELINE}, after scaling" if name == BASELINE else name
