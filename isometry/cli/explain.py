"""`isometry explain`: what a saved metric looks at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isometry.cli import options
from isometry.cli.app import app
from isometry.cli.inputs import as_frame, check_page, told_unlabelled
from isometry.cli.models import load_model, read_for
from isometry.cli.outputs import (
    UsageError,
    collect_errors,
    make_table,
    plain,
    print_json,
    printer,
    shows_progress,
    usage_errors,
)

if TYPE_CHECKING:
    import numpy as np

    from isometry.explanation import Changed, Explanation


@app.command()
def explain(
    model: Annotated[Path, typer.Argument(help="file written by fit or compare --save", show_default=False)],
    file: options.File,
    target: Annotated[
        str | None,
        typer.Option("--target", "-y", help="column of labels: the intervals then allow for the rows learned from"),
    ] = None,
    unlabelled: options.Unlabelled = "refuse",
    pair: Annotated[
        tuple[int, int] | None, typer.Option(help="numbers of two rows, from 0, whose distance is taken apart")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="features that are shown")] = 15,
    draws: Annotated[int, typer.Option(min=2, help="half samples that the metric is learned from again")] = 20,
    report: Annotated[Path | None, typer.Option(help="html file, or folder, for a page with pictures")] = None,
    seed: options.Seed = 0,
    backbone: options.Backbone = None,
    drop: options.Drop = None,
    key: options.Key = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Say how much each feature counts in a saved metric, and which rows it has moved."""
    import numpy as np

    import isometry

    report = check_page("--report", report, {}, {"the table": file, "the model": model})
    metric = load_model(model, backbone)
    table = read_for(metric, model, file, target, drop, key, delimiter, decimal, unlabelled=unlabelled)
    for row in pair or ():
        if table.rows is not None and row not in table.rows:
            raise UsageError(f"--pair {row}: {file} has no such row with a label")
        if table.rows is None and not 0 <= row < len(table.X):
            raise UsageError(f"--pair {row}: {file} has rows 0 to {len(table.X) - 1}")
    rows = np.arange(len(table.X)) if table.rows is None else table.rows
    ends = None if pair is None else (int(np.searchsorted(rows, pair[0])), int(np.searchsorted(rows, pair[1])))
    with usage_errors(ValueError):
        found = isometry.explain(
            metric, as_frame(table), table.y, n_draws=draws, random_state=seed, verbose=shows_progress(quiet, as_json)
        )
    shares = None if ends is None else found.distance(*ends)
    written: Path | None = None
    problems: list[Exception] = []
    if report is not None:
        from isometry.report.explanation_page import write_explanation

        with collect_errors(problems):
            written = write_explanation(found, report, name=table.name, y=table.y, pair=ends, rows=table.rows)
    if as_json:
        nearer, farther = _changed(found, rows)
        facts: dict[str, Any] = {
            "linear": found.linear,
            "incomplete": found.incomplete,
            "level": found.level,
            "varied": found.varied,
            "features": [dict(zip(("name", "share", "low", "high"), line, strict=True)) for line in found.ranking()],
            "nearer": nearer,
            "farther": farther,
        }
        if shares is not None:
            facts["pair"] = {"rows": pair, "squared_distance": float(shares.sum()), "shares": shares}
        print_json(facts | ({"report": written} if written else {}))
    else:
        for told in told_unlabelled(table):
            printer(quiet).print(f"note: {plain(told)}", style="dim")
        _show(found, rows, pair, shares, top, quiet)
        if written:
            printer(quiet).print(f"report: {plain(written)}")
    if problems:
        raise problems[0]


def _changed(found: Explanation, rows: np.ndarray) -> list[list[Changed]]:
    """The pairs that came nearer and moved apart most, by the numbers of their rows in the file."""
    return [[c._replace(i=int(rows[c.i]), j=int(rows[c.j])) for c in pairs] for pairs in found.changed(5)]


def _show(
    found: Explanation,
    rows: np.ndarray,
    pair: tuple[int, int] | None,
    shares: np.ndarray | None,
    top: int,
    quiet: bool,
) -> None:
    console = printer(quiet)
    heads = ("feature", "share", f"{100 * found.level:g} % interval")
    lines = make_table(*heads, right=heads[1:], whole=())
    for name, share, low, high in found.ranking()[:top]:
        lines.add_row(plain(name), f"{share:.3f}", f"{low:.3f} to {high:.3f}")
    console.print(lines)
    console.print(plain(found), style="dim")
    if shares is not None and pair is not None:
        console.print(f"rows {pair[0]} and {pair[1]}: squared distance {shares.sum():.4g}, of which")
        names = sorted(zip(found.names, shares.tolist(), strict=True), key=lambda named: -abs(named[1]))
        of_pair = make_table("feature", "share", right=("share",), whole=())
        for name, share in names[:top]:
            of_pair.add_row(plain(name), f"{share:+.4g}")
        console.print(of_pair)
    nearer, farther = _changed(found, rows)
    for words, pairs in (("came nearer most", nearer), ("moved apart most", farther)):
        if pairs:
            listed = ", ".join(f"{c.i} and {c.j} (× {c.factor:.2f})" for c in pairs)
            console.print(f"rows that {words}: {listed}")
