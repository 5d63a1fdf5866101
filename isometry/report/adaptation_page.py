"""One self-contained HTML page for adapted embeddings: what was gained, by what, and how to use it."""

from __future__ import annotations

import os
from collections import Counter
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from isometry.io import exportable_forms
from isometry.report import page, views
from isometry.select.questions import TITLES

if TYPE_CHECKING:
    from isometry.eval import Interval
    from isometry.select import Adaptation

MEANINGS = {
    "map@r": "mean average precision of the R nearest, where R is the number of rows that should be found",
    "recall@1": "share of rows whose nearest is one that should be found",
    "recall@10": "share of rows with at least one of those among the ten nearest",
    "ndcg@10": "discounted gain of the ten nearest, as a share of the best that is possible",
    "pair_auc": "probability that two rows that belong together are nearer than two that do not",
    "ordering": "share of triplets in the right order",
}


def write_adaptation_report(
    outcome: Adaptation,
    path: str | os.PathLike[str],
    *,
    command: str | None = None,
    saved: str | os.PathLike[str] | None = None,
) -> Path:
    """Write the page of an `Adaptation` and return where it is.

    Parameters
    ----------
    outcome : Adaptation
        What `isometry.adapt` returned.
    path : str or path-like
        An ``.html`` file, or a folder, which is created if need be and gets an ``index.html``.
    command : str or None, default=None
        The command line that made it, if one did.
    saved : str, path-like or None, default=None
        Where the head was saved, if it was.

    Returns
    -------
    Path
        Where the page is.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from isometry import adapt
    >>> from isometry.report import write_adaptation_report
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(np.arange(12), 6)
    >>> outcome = adapt(rng.normal(size=(12, 4))[y] + rng.normal(size=(72, 4)), y, heads=False, n_splits=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_adaptation_report(outcome, pathlib.Path(folder) / "page.html").name
    'page.html'
    """
    data = dict(outcome.data)
    name = str(data.pop("name"))
    facts = " · ".join(f"{value:,} {key}" for key, value in data.items())
    return page.write_page(
        path,
        title=f"{name}: adapted embeddings",
        name=name,
        facts=facts,
        verdict=outcome.verdict,
        good=outcome.adapted,
        sections=[
            _warning_section(outcome),
            _score_section(outcome),
            _use_section(outcome, saved),
            _candidate_section(outcome),
            _method_section(outcome, command),
        ],
    )


def _warning_section(outcome: Adaptation) -> str:
    return page.section("Be careful", page.bullets(outcome.warnings)) if outcome.warnings else ""


def _score_section(outcome: Adaptation) -> str:
    axis = page.interval_axis([s.difference for s in outcome.scores], zero=True)
    rows = []
    for s in outcome.scores:
        strip = page.strip_cell(s.difference, _colour(s.difference), axis, signed=True)
        mean, span = page.number(s.difference.mean, signed=True), page.span(s.difference, signed=True)
        gap = f"<td>{mean}</td>{strip}<td>{span}</td>"
        rows.append(f"<tr><th>{escape(TITLES[s.name])}</th><td>{s.before:.4f}</td><td>{s.after:.4f}</td>{gap}</tr>")
    interval = f"{100 * outcome.level:g} % interval"
    which = "" if outcome.adapted else " It is not reliable here, and the embeddings stay as they are."
    intro = (
        f"Scores with {outcome.held_out} held out. “After” is the map that did best in the other parts, learned from "
        f"them: no part has a say in its own choice.{which} Blue intervals leave out zero upwards, red-orange ones "
        "downwards."
    )
    meanings = [f"{TITLES[s.name]}: {MEANINGS[s.name]}." for s in outcome.scores]
    heads = ["score", "before", "after", "difference", "", interval]
    return page.section("Before and after", page.paragraph(intro), page.table(heads, rows), page.bullets(meanings))


def _colour(value: Interval) -> str:
    return views.PALETTE[0] if value.low > 0 else views.PALETTE[1] if value.high < 0 else views.UNCLEAR


def _use_section(outcome: Adaptation, saved: str | os.PathLike[str] | None) -> str:
    if not outcome.adapted:
        text = "Nothing needs to be changed: the saved head, if there is one, brings rows to unit length and no more."
        return page.section("How to use it", page.paragraph(text))
    file = str(saved or "head.safetensors")
    if outcome.query_only:
        text = "Queries are mapped when they come; the index of documents stays as it is."
        lines = ["queries = head.transform(queries)  # then search as before, by inner product or cosine"]
    else:
        text = "Map what is indexed and what is asked, and index it anew."
        lines = ["index = isometry.Index(head).add(embeddings)", "found = index.search(queries, k=10)"]
    code = "\n".join(["import isometry", "", f"head = isometry.load({file!r})", *lines])
    forms = exportable_forms(outcome.head)
    shell = f"isometry export {file} head.onnx    # forms that it can have: {', '.join(forms)}"
    save = [] if saved else [page.paragraph("Give --save head.safetensors to keep the head.", "small")]
    return page.section("How to use it", page.paragraph(text), page.code(code), page.code(shell), *save)


def _candidate_section(outcome: Adaptation) -> str:
    intro = (
        "Of each method the setting that did best, with what it gained on the rows by which maps were chosen. The best "
        "of many looks a little better than it is: the table above does not have this fault."
    )
    rows = [(page.short(str(s), 44), gain, _colour(gain)) for s, gain in outcome.candidates]
    chosen = [f"{name}: chosen in {n} of {len(outcome.by_fold)} folds" for name, n in Counter(outcome.by_fold).items()]
    return page.section(
        "What was tried", page.paragraph(intro), page.interval_plot(rows, signed=True), page.bullets(chosen)
    )


def _method_section(outcome: Adaptation, command: str | None) -> str:
    notes = [
        f"Known: {outcome.kind}. Held out: {outcome.held_out}.",
        "Rows are of unit length before the map, so that they are compared by their angle.",
        "The map is of queries alone: score = ⟨Aq, d⟩, least squares over queries and documents, drawn to the identity."
        if outcome.query_only
        else "Maps follow from moments of the rows, mixed with the metric that is there; share and ridge were chosen.",
        "How uneven neighbours are (skewness of the number of times a row is among the ten nearest): "
        f"{outcome.hubs[0]:.2f} before, {outcome.hubs[1]:.2f} after; 0 is even.",
        *outcome.notes,
    ]
    made = [page.paragraph("This page was made by"), page.code(command)] if command else []
    settings = {"random_state": outcome.random_state, "seconds": outcome.seconds}
    return page.section(
        "How this was computed", page.bullets(notes), *made, page.paragraph(page.made_with(settings), "small")
    )
