"""One self-contained HTML page for a comparison: opens offline, asks no server for anything."""

from __future__ import annotations

import json
import os
import shlex
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

import numpy as np

from isometry.registry import get
from isometry.report import page, pictures, views
from isometry.select.heldout import Refits, refit_best
from isometry.select.result import BASELINE

if TYPE_CHECKING:
    from isometry.select.result import Comparison, MethodResult

SCORES = {
    "knn": "the share of held-out points whose class the vote of their {n_neighbors} nearest neighbours gets right",
    "balanced_accuracy": "the share that the vote of {n_neighbors} nearest neighbours gets right, mean over classes",
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
    comparison: Comparison,
    path: str | os.PathLike[str],
    X: Any = None,
    y: Any = None,
    max_points: int = 2000,
    command: str | None = None,
    rows: Any = None,
) -> Path:
    """Write the page of a comparison and return where it is.

    Parameters
    ----------
    comparison : Comparison
        What `isometry.compare` returned.
    path : str or path-like
        An ``.html`` file, or a folder, which is created if need be and gets an ``index.html``.
    X : array-like of shape (n, d) or None, default=None
        The data that were compared, for pictures of the space before and after. The best metrics are fitted once more
        for them, on a part of the rows, and the pictures show the others.
    y : array-like, Supervision or None, default=None
        Their labels or other supervision.
    max_points : int, default=2000
        Number of points drawn in a picture, at most.
    command : str or None, default=None
        The command line that made the comparison, if one did.
    rows : sequence of int or None, default=None
        Numbers by which the rows are called; None: their places.

    Returns
    -------
    Path
        Where the page is.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from sklearn.datasets import load_iris
    >>> from isometry import compare
    >>> from isometry.report import write_report
    >>> X, y = load_iris(return_X_y=True)
    >>> found = compare(X, y, ["RCA"], n_splits=3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_report(found, pathlib.Path(folder) / "report.html")
    ...     print(page.name, "RCA" in page.read_text(encoding="utf-8"))
    report.html True
    """
    path = page.report_file(path)  # before the fits: a path that cannot be written is an error at once
    refits = refit_best(comparison, X, y, max_points)
    if refits is not None and rows is not None:
        refits.rows = np.asarray(rows)[refits.rows]
    learners = _fitted_learners(comparison, refits)
    name = str(comparison.data.get("name") or "data")
    seed = comparison.settings.get("random_state") or 0
    return page.write_page(
        path,
        title=f"{name}: comparison of metrics",
        name=name,
        facts=_facts(comparison),
        verdict=comparison.verdict,
        good=bool(comparison.best),
        sections=[
            _ranking_section(comparison),
            _next_section(comparison, command),
            pictures.space_section(comparison, refits) if refits else "",
            pictures.weights_section(comparison.transformed_names(), learners),
            pictures.classes_section(comparison, y, refits) if refits else "",
            pictures.neighbours_section(refits, seed) if refits else "",
            pictures.pairs_section(refits, seed) if refits else "",
            pictures.convergence_section(learners),
            _about_section(comparison),
            _method_section(comparison, refits),
        ],
    )


def _fitted_learners(comparison: Comparison, refits: Refits | None) -> dict[str, Any]:
    """By name, best first; without data there is only the one that the comparison itself fitted, on all rows."""
    if refits is not None:
        return {found.name: found.model[-1] for found in refits.best + refits.iterative}
    if comparison.best_estimator is None:
        return {}
    learner = comparison.best_estimator[-1]
    ranked = sorted(comparison.results, key=lambda r: r.name != comparison.best)
    names = [r.name for r in ranked if r.score is not None and type(r.estimator) is type(learner)]
    return {names[0] if names else type(learner).__name__: learner}


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
        _table(comparison, percent),
        page.paragraph(f"‡ {comparison.about_marks}.", "small") if any(r.only_alone for r in rows) else "",
        page.paragraph(f"{comparison.automatic}.", "small") if comparison.automatic else "",
    )


def _table(comparison: Comparison, percent: str) -> str:
    interval = f"{percent} interval"
    axis = page.interval_axis([r.difference for r in comparison.results if r.difference], zero=True)
    heads = ["metric", "verdict", f"− {BASELINE}", "", interval, comparison.scoring, interval, "fit", "notes"]
    return page.table(heads, [_row(r, r.name == comparison.best, axis) for r in comparison.results], "ranking")


def _row(r: MethodResult, best: bool, axis: tuple[float, float]) -> str:
    remarks = [*([f"{r.unconverged} of {r.n_fits} fits did not converge"] if r.unconverged else []), *r.warnings[:1]]
    if r.score is None:
        why = escape(r.why_unscored)
        return f'<tr class="failed"><th>{escape(r.name)}</th><td colspan="8" class="text">{why}</td></tr>'
    if r.failures:
        remarks.insert(0, f"{len(r.failures)} of {r.n_fits} fits failed: {r.failures[0]}")
    d = r.difference
    shown = escape(r.reliable) + (" ‡" if r.only_alone else "")
    cells = [f'<td class="text"><span class="mark {escape(r.reliable)}">{shown}</span></td>']
    colour = views.VERDICTS.get(r.reliable, views.UNCLEAR)
    cells.append(page.strip_cell(d, colour, axis, True) if d else "<td></td>")
    numbers = [page.number(d.mean, signed=True), page.span(d, signed=True)] if d else ["", ""]
    numbers += [page.number(r.score.mean), page.span(r.score), page.seconds(r.fit_seconds)]
    cells += [f"<td>{escape(c)}</td>" for c in numbers]
    cells.append(f'<td class="text">{escape("; ".join(remarks))}</td>')
    return f"<tr{' class=best' if best else ''}><th>{escape(r.name)}</th>{''.join(cells)}</tr>"


def _next_section(comparison: Comparison, command: str | None) -> str:
    """What to do with the outcome."""
    name, why = comparison.best_name, ""
    parts = []
    if command:
        parts += [page.paragraph("This page was made by"), page.code(command)]
    if name is not None:
        why = _what_to_use(comparison)
        saved = _saved_file(command)
        file = saved or "metric.safetensors"
        made = [] if saved else [f"{command or 'isometry compare …'} --save {file}"]
        uses = (
            f"transform {shlex.quote(file)} new.csv --out embedded.parquet",
            f"explain {shlex.quote(file)} new.csv",
            f"export {shlex.quote(file)} metric.onnx",
        )
        parts += [
            page.paragraph(f"{why}Fitted on all rows, it is saved and used by"),
            page.code("\n".join([*made, *(f"isometry {use}" for use in uses)])),
            page.paragraph("or in Python by"),
            page.code(
                "import isometry\n\n"
                f"metric = isometry.load({json.dumps(file)})  # or comparison.best_estimator\n"
                "Z = metric.transform(X_new)  # Euclidean distance between rows of Z is the learned distance"
            ),
        ]
    return page.section("What next", *parts) if parts else ""


def _what_to_use(comparison: Comparison) -> str:
    """Which metric to take, and why."""
    if comparison.best_name != BASELINE:
        return f"The metric to use is {comparison.best_name}: {comparison.why_saved}. "
    told = "Euclidean distance is enough here: no metric is reliably better. "
    top = next((r for r in comparison.results if r.difference is not None and r.difference.mean > 0), None)
    if top is not None:
        told += f"If you want one all the same, {top.name} had the highest score (isometry fit). "
    return f"{told}What is kept is the preparation of the features alone. "


def _saved_file(command: str | None) -> str | None:
    """The file that a command line has saved the metric to, if it has."""
    words = shlex.split(command or "")
    for k, word in enumerate(words):
        if word == "--save" and k + 1 < len(words):
            return words[k + 1]
        if word.startswith("--save="):
            return word.removeprefix("--save=")
    return None


def _about_section(comparison: Comparison) -> str:
    """A sentence and a link for each method of the table."""
    entries = []
    for r in comparison.results:
        try:
            row = get(r.name)
        except KeyError:
            continue
        link = ""
        if row.cite:
            title = row.cite.split('"')[1] if row.cite.count('"') > 1 else row.cite
            address = f"https://scholar.google.com/scholar?q={quote_plus(title)}"
            link = f' <a href="{escape(address)}" rel="noreferrer">{escape(row.cite)}</a>'
        entries.append(f"<dt>{escape(r.name)}</dt><dd>{escape(row.title)}.{link}</dd>")
    return page.section("The methods", f"<dl>{''.join(entries)}</dl>") if entries else ""


def _method_section(comparison: Comparison, refits: Refits | None) -> str:
    c, s = comparison, comparison.settings
    score = SCORES.get(c.scoring, c.scoring).format(n_neighbors=s.get("n_neighbors", "k"))
    repeats = f", repeated {c.n_repeats} times with other folds" if c.n_repeats > 1 else ""
    scaler = str(s.get("scaler") or "none")
    scaled = "Features were left as they are."
    if scaler != "none":
        scaled = (
            f"Features went through the scaler “{scaler}”, fitted on the training part only, for every metric alike."
        )
    tuned = (
        "Parameters were chosen inside each training part alone."
        if s.get("tune")
        else "Every metric ran with its default parameters; tuning may change the order."
    )
    items = [
        f"The score is {score}. {PROTOCOLS.get(c.protocol, '')}",
        f"It is measured by {c.n_splits}-fold cross-validation{repeats}: every metric is fitted on the same training "
        "parts and scored on the same held-out points, so differences are paired, point by point.",
        f"{scaled} {tuned}",
        f"Each interval holds {100 * c.level:g} % of the time. “Better” and “worse” are corrected for the number of "
        "metrics (Holm), so that the luckiest of many does not pass for the best. They are about new points, not about "
        "new training sets.",
        *([f"Columns: {', '.join(map(str, c.data['feature_names']))}."] if c.data.get("feature_names") else []),
        *([pictures.describe_rows(refits), *refits.notes] if refits else []),
        *c.notes,
        *(["The run was interrupted: what had finished is shown."] if c.interrupted else []),
        page.made_with(s),
    ]
    return page.section("How it was measured", page.bullets(items))
