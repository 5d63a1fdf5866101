"""One self-contained HTML page for a verifier of pairs: its errors, its probabilities, its threshold."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from isometry.report import page, svg, views

if TYPE_CHECKING:
    from isometry.select import PairVerifier

N_POINTS = 300  # of a curve
GOOD_ERROR = 0.03  # an expected calibration error that needs no remark
THRESHOLDS = (0.001, 0.01, 0.05, 0.1)  # false-match rates of the table


def write_verification_report(
    verifier: PairVerifier, path: str | os.PathLike[str], *, name: str = "pairs", command: str | None = None
) -> Path:
    """Write the page of a fitted `PairVerifier` and return where it is.

    Parameters
    ----------
    verifier : PairVerifier
        A fitted verifier; its held-out pairs are what the page shows.
    path : str or path-like
        An ``.html`` file, or a folder, which is created if need be and gets an ``index.html``.
    name : str, default="pairs"
        Name of the data.
    command : str or None, default=None
        The command line that made it, if one did.

    Returns
    -------
    Path
        Where the page is.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from sklearn.datasets import load_iris
    >>> from isometry import PairVerifier
    >>> from isometry.report import write_verification_report
    >>> X, y = load_iris(return_X_y=True)
    >>> verifier = PairVerifier(protocol="closed", random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(write_verification_report(verifier, pathlib.Path(folder) / "pairs.html").name)
    pairs.html
    """
    point = verifier.operating_point()
    held = verifier.held_out_
    same = int(held.same.sum())
    facts = f"{len(held.u):,} held-out pairs · {same:,} same · {len(held.u) - same:,} different"
    error = verifier.calibration_error_
    verdict = (
        f"AUC {verifier.auc_:.4f}. At the threshold in use {point.fpr.mean:.2%} of the different pairs are accepted "
        f"(95 % interval {point.fpr.low:.2%} to {point.fpr.high:.2%}), and {point.fnr.mean:.2%} of the same pairs are "
        f"not. Stated probabilities are off by {error:.3f} on average."
    )
    return page.write_page(
        path,
        title=f"{name}: verification of pairs",
        name=name,
        facts=facts,
        verdict=verdict,
        good=error < GOOD_ERROR,
        sections=[
            _threshold_section(verifier),
            _error_section(verifier),
            _reliability_section(verifier),
            _distance_section(verifier),
            _method_section(verifier, command),
        ],
    )


def _threshold_section(verifier: PairVerifier) -> str:
    points = [("in use", verifier.operating_point())]
    points += [(f"fpr {rate:g}", verifier.operating_point(fpr=rate)) for rate in THRESHOLDS]
    rows = []
    for label, at in points:
        rates = "".join(f"<td>{r.mean:.2%}</td><td>[{r.low:.2%}, {r.high:.2%}]</td>" for r in at[2:])
        rows.append(f"<tr><th>{label}</th><td>{at.threshold:.4g}</td><td>{at.probability:.3f}</td>{rates}</tr>")
    interval = "95 % interval"
    heads = ["", "distance", "P(same)", "false matches", interval, "false non-matches", interval, "precision", interval]
    intro = (
        "A pair is accepted up to a distance. False matches are different pairs that are accepted, false non-matches "
        "same pairs that are not, precision is the share of same pairs among the accepted ones if "
        f"{verifier.prior_:.2%} of all pairs are the same. Intervals are those of as many new classes or samples as "
        "were held out."
    )
    if verifier.reject_threshold_ > verifier.threshold_:
        intro += (
            f" Between {verifier.threshold_:.4g} and {verifier.reject_threshold_:.4g} nothing is decided: beyond the "
            "second distance pairs are rejected."
        )
    return page.section("Thresholds", page.paragraph(intro), page.table(heads, rows))


def _error_section(verifier: PairVerifier) -> str:
    curve = verifier.roc_
    at = np.unique(np.linspace(0, len(curve.fpr) - 1, N_POINTS).astype(int))
    seen = (curve.fpr > 0) & (curve.tpr < 1)
    det = (
        np.flatnonzero(seen)[np.unique(np.linspace(0, max(seen.sum() - 1, 0), N_POINTS).astype(int))]
        if any(seen)
        else np.zeros(0, dtype=int)
    )
    roc_plot = svg.lines(
        [svg.Line("", curve.fpr[at], curve.tpr[at], views.PALETTE[0])],
        "ROC curve of the held-out pairs",
        x="different pairs accepted",
        y="same pairs accepted",
        x_range=(0, 1),
        y_range=(0, 1),
    )
    det_plot = svg.lines(
        [svg.Line("", curve.fpr[det], 1 - curve.tpr[det], views.PALETTE[0])],
        "DET curve of the held-out pairs",
        x="false-match rate",
        y="false-non-match rate",
        log_x=True,
        percent=True,
    )
    panels = [page.figure("ROC", f"AUC {curve.auc:.4f}", roc_plot)]
    if det_plot:
        panels.append(page.figure("DET", f"equal error rate {curve.eer:.2%}", det_plot))
    return page.section("Errors", page.grid(panels))


def _reliability_section(verifier: PairVerifier) -> str:
    curve = verifier.reliability()
    plot = svg.lines(
        [
            svg.Line("as stated", np.array([0.0, 1.0]), np.array([0.0, 1.0]), views.UNCLEAR, True),
            svg.Line("as found", curve.probability, curve.frequency, views.PALETTE[0]),
        ],
        "Stated probabilities against frequencies",
        x="stated probability of same",
        y="share that is the same",
        x_range=(0, 1),
        y_range=(0, 1),
    )
    intro = (
        "Pairs were measured by metrics that had not seen them, and their probability was stated by a link that was "
        f"fitted to other folds. Expected calibration error: {curve.error:.4f}."
    )
    return page.section("Do probabilities mean what they say?", page.paragraph(intro), plot)


def _distance_section(verifier: PairVerifier) -> str:
    held = verifier.held_out_
    d = np.sqrt(held.u * verifier.scale_)
    edges = np.linspace(0, float(np.quantile(d, 0.999)) or 1.0, views.N_BINS + 1)
    same, different = (
        np.histogram(d[of], edges, weights=held.weight[of], density=True)[0] for of in (held.same, ~held.same)
    )
    key = page.colour_key((views.SAME, "■", "same"), (views.DIFFERENT, "■", "different"))
    return page.section("Distances", key, svg.histogram(edges, same, different, "Distances of held-out pairs"))


def _method_section(verifier: PairVerifier, command: str | None) -> str:
    drawn = verifier.n_sampled_negatives_
    notes = [
        f"Metric: {' '.join(str(verifier.learner or 'Euclidean distance').split())}.",
        f"Link from distance to probability: {verifier.method_}.",
        f"Share of same pairs that probabilities and precision assume: {verifier.prior_:.4f}.",
    ]
    if drawn:
        notes.append(f"No different pairs were given: {drawn:,} pairs of rows were drawn at random in their place.")
    made = [page.paragraph("This page was made by"), page.code(command)] if command else []
    return page.section(
        "How this was computed",
        page.bullets(notes),
        *made,
        page.paragraph(page.made_with({"random_state": verifier.random_state}), "small"),
    )
