"""`isometry compare`: whether a learned metric beats Euclidean distance."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from isometry.cli import options
from isometry.cli.app import app
from isometry.cli.inputs import (
    as_frame,
    check_distinct,
    check_page,
    check_writable,
    describe_target,
    draw_sample,
    is_embedded,
    load_embedded,
    make_card,
    parse_prepare,
    prepared_scaler,
    read_file,
    supervision_of,
)
from isometry.cli.outputs import (
    UsageError,
    as_json_values,
    as_options,
    collect_errors,
    interval_text,
    make_table,
    plain,
    print_json,
    print_to_stderr,
    printer,
    raise_first,
    usage_errors,
)
from isometry.cli.signals import sigterm_keeps_results
from isometry.cli.views import join_view

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from isometry.io import Table
    from isometry.select import Comparison

MARKS = {"better": "[green]better[/]", "worse": "[red]worse[/]", "unclear": "[dim]unclear[/]"}
WIDE = 100  # columns of a terminal; from here on scores have a fourth digit


@app.command()
def compare(
    file: Annotated[
        Path | None,
        typer.Argument(help="csv, tsv, parquet or npz file; or wine, iris, breast_cancer, digits (default: wine)"),
    ] = None,
    target: options.Target = None,
    target_is: options.TargetIs = "auto",
    unlabelled: options.Unlabelled = "refuse",
    view: options.View = None,
    methods: Annotated[
        str, typer.Option(help="names separated by commas, or default (what `fit auto` tries), all, fast, or a family")
    ] = "default",
    budget: Annotated[
        float | None,
        typer.Option(help="seconds for all fits; by default 60, or no limit where --methods says what to compare"),
    ] = None,
    protocol: Annotated[str, typer.Option(help="closed: new points of known classes; open: of new classes")] = "closed",
    scoring: Annotated[
        str | None,
        typer.Option(
            help="knn, balanced_accuracy, precision@3, recall@1, map@r, r_precision or pair_auc; by default knn, of "
            "open map@r; fit auto decides by precision@3"
        ),
    ] = None,
    neighbors: Annotated[int, typer.Option("--neighbors", "-k", help="neighbours that vote in scoring `knn`")] = 3,
    folds: Annotated[int, typer.Option(help="folds of the cross-validation")] = 5,
    repeats: Annotated[int, typer.Option(help="repeats of it with other folds")] = 1,
    tune: Annotated[
        bool, typer.Option("--tune", help="search a small parameter grid inside each training fold")
    ] = False,
    scaler: Annotated[
        str,
        typer.Option(help="auto (the angle of embeddings, else standard), standard, minmax, robust, normalize or none"),
    ] = "auto",
    unit: options.Unit = False,
    jobs: Annotated[int, typer.Option(help="processes; -1 for all cores")] = 1,
    seed: options.Seed = 0,
    sample: Annotated[int | None, typer.Option(help="compare on this many rows, drawn evenly from the classes")] = None,
    drop: options.Drop = None,
    key: options.Key = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = None,
    float32: options.Float32 = False,
    prepare: options.Prepare = "auto",
    impute: options.Impute = False,
    one_hot: options.OneHot = False,
    report: Annotated[Path | None, typer.Option(help="folder or .html file for the report page")] = None,
    save: Annotated[Path | None, typer.Option(help="file for the best metric, fitted on all rows")] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Say, with intervals, whether a learned metric beats Euclidean distance on held-out data."""
    from isometry.io.prepare import describe
    from isometry.select import compare as run
    from isometry.select.budget import DEFAULT_BUDGET

    table_file = None if file is None or is_embedded(file) else file
    if table_file is None:
        table = load_embedded(str(file or "wine"), target)
    else:
        needs = None if view else "a comparison"
        steps = () if view else parse_prepare(prepare, impute, one_hot)
        table = read_file(
            table_file,
            target,
            drop,
            key,
            delimiter,
            decimal,
            float32=float32,
            labels_for=needs,
            prepare=steps,
            target_is=target_is,
            unlabelled=unlabelled if view is None else None,
        )
    views = None
    if view is not None:
        if target is not None or sample is not None or unlabelled != "refuse":
            raise UsageError("--view lets two tables find each other: leave out --target, --unlabelled and --sample")
        table, views = join_view(table, view, key, delimiter, decimal)
    elif sample is not None:
        table = draw_sample(table, sample, seed)
    inputs = {"the table": table_file, "the second view": view}
    check_distinct({"--save": save}, dict(inputs))
    check_writable(save)
    report = check_page("--report", report, {"--save": save}, dict(inputs))
    console = printer(quiet or as_json)
    command = shlex.join(["isometry", *sys.argv[1:]])
    X = as_frame(table)
    seen_by = f"labels {table.target_name}" if views is None else f"views of {views.widths[0]} and {views.widths[1]}"
    console.print(f"{plain(table.name)}: {len(X)} rows, {X.shape[1]} features, {plain(seen_by)}", style="dim")
    if told := describe_target(table) if views is None else "":
        console.print(f"note: {plain(told)}", style="dim")
    y = supervision_of(table) if views is None else views
    for told in (*table.notes, describe(X)):
        console.print(f"note: {plain(told)}", style="dim") if told else None
    chosen = [name for name in methods.split(",") if name.strip()]
    with usage_errors(ValueError, TypeError), sigterm_keeps_results() as stopped:
        outcome = run(
            X,
            y,
            chosen[0] if len(chosen) == 1 else chosen,
            protocol=cast(Any, protocol),  # checked by compare itself
            scoring=scoring,
            n_neighbors=neighbors,
            n_splits=folds,
            n_repeats=repeats,
            tune="default" if tune else None,
            unit=unit,
            scaler=prepared_scaler(X, scaler),
            n_jobs=jobs,
            random_state=seed,
            budget=DEFAULT_BUDGET if budget is None and chosen == ["default"] else budget,
            verbose=not quiet,
            name=table.name,
        )
    problems: list[Exception] = []
    saved, page = "", None
    with collect_errors(problems):  # first, since it cannot be had again
        saved = _save(outcome, save, table)
    console.print(comparison_table(outcome, console.width))
    failed = [f"{r.name} failed: {r.failures[0]}" for r in outcome.results if r.score is None and r.failures]
    if any(r.only_alone for r in outcome.results):
        console.print(f"‡ {plain(outcome.about_marks)}", style="dim")
    if outcome.automatic is not None:
        console.print(plain(outcome.automatic))
    for note in failed + outcome.notes:
        console.print(f"note: {plain(as_options(note))}", style="dim")
    if save is None and "," in (outcome.best_name or ""):  # no name of the method table, as `fit` takes it
        console.print(f"note: {plain(outcome.best_name)} is kept by this command with --save", style="dim")
    console.print(f"\n[bold]{plain(outcome.verdict)}[/]")
    with collect_errors(problems):
        if report is not None:
            from isometry.report import write_report

            page = write_report(outcome, report, X=X, y=y, command=command, rows=table.rows)
            console.print(f"report: {plain(page)}")
    if saved:
        console.print(f"saved {plain(saved)}: {plain(save)}")
    if as_json:
        print_json({**outcome.to_dict(), "report": page, "saved": save if saved else None})
    raise_first(problems)
    if outcome.interrupted:
        raise typer.Exit(143 if stopped else 130)
    if all(r.score is None for r in outcome.results):
        raise RuntimeError("every metric failed, Euclidean included: there is no comparison. See the notes for why")


def _save(outcome: Comparison, path: Path | None, table: Table) -> str:
    """Write the best metric, if that is wanted and there is one, and return what it is and why."""
    if path is None:
        return ""
    if outcome.best_estimator is None:
        print_to_stderr("warning: nothing was saved, since no metric was fitted on all rows")
        return ""
    from isometry.io import save

    name = outcome.best_name or ""
    score: dict[str, Any] = {"scoring": outcome.scoring, "protocol": outcome.protocol, "verdict": outcome.verdict}
    score |= {"score": outcome[name].score, "euclidean": outcome["Euclidean"].score}
    save(outcome.best_estimator, path, make_card(table, name, **as_json_values(score)))
    other = "; isometry fit saves another metric" if outcome.best_name == "Euclidean" else ""
    return f"{outcome.best_name}, fitted on all rows ({outcome.why_saved}{other})"


def comparison_table(outcome: Comparison, width: int) -> RichTable:
    digits = 4 if width >= WIDE else 3
    score, gap = f"{outcome.scoring}, {100 * outcome.level:g} % interval", "− Euclidean"
    table = make_table("metric", score, gap, "verdict", "fit s", right=(score, gap, "fit s"), whole=("verdict",))
    for r in outcome.results:
        name = f"[bold]{plain(r.name)}[/]" if r.name == outcome.best else plain(r.name)
        if r.score is None:
            table.add_row(name, "", "", "left out" if r.left_out else "[red]failed[/]" if r.failures else "not run", "")
            continue
        verdict = MARKS.get(r.reliable, "") + (" ‡" if r.only_alone else "") + ("" if r.complete else " …")
        gap = interval_text(r.difference, f"+.{digits}f") if r.difference else ""
        table.add_row(name, interval_text(r.score, f".{digits}f"), gap, verdict, f"{r.fit_seconds:.{digits - 1}f}")
    return table
