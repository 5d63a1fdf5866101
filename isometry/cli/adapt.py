"""`isometry adapt`: embeddings that are there, adapted to labels, pairs, triplets or relevant documents."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isometry.cli import options
from isometry.cli.app import app
from isometry.cli.inputs import check_distinct, check_page, check_writable, made_on
from isometry.cli.outputs import (
    UsageError,
    collect_errors,
    interval_text,
    make_table,
    plain,
    print_json,
    printer,
    raise_first,
    usage_errors,
)
from isometry.cli.tuples import NamedRows, RowNames, contradictory, make_pairs, read_named_rows, read_signs

if TYPE_CHECKING:
    import numpy as np

    from isometry.io.embeddings import Embeddings
    from isometry.select import Adaptation

DIRECTIONS = ("auto", "symmetric", "query")
MOST_LISTED = 5


@app.command()
def adapt(
    file: Annotated[
        Path, typer.Argument(metavar="EMBEDDINGS", help="npy, npz, parquet, csv or tsv file", show_default=False)
    ],
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            "--target",
            "-y",
            help="classes of the rows: a column or array there, or a file of them, with ids or row by row",
        ),
    ] = None,
    unlabelled: options.Unlabelled = "refuse",
    pairs: Annotated[
        Path | None, typer.Option(help="table of pairs: two ids, and 1 or 0 in a third column if some are different")
    ] = None,
    triplets: Annotated[
        Path | None,
        typer.Option(help="table of triplets: three ids; the second is nearer to the first than the third"),
    ] = None,
    relevance: Annotated[
        Path | None,
        typer.Option(help="table of relevant documents: ids of query and document, and grades if there are"),
    ] = None,
    documents: Annotated[
        Path | None,
        typer.Option(help="embeddings of the documents of --relevance; by default those rows that are no queries"),
    ] = None,
    row_id: Annotated[
        str | None,
        typer.Option("--id", help="column or array that names the rows, or a file of ids; by default their numbers"),
    ] = None,
    direction: Annotated[
        str,
        typer.Option("--map", help="symmetric, query (documents stay as indexed), or auto: query with --relevance"),
    ] = "auto",
    known_classes: Annotated[
        bool,
        typer.Option("--known-classes", help="new rows will be of known classes: hold out rows, not classes"),
    ] = False,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="leave out bad rows, unknown ids and contradictions instead of refusing")
    ] = False,
    folds: Annotated[int, typer.Option(min=2, help="folds of the cross-validation")] = 5,
    heads: Annotated[
        bool, typer.Option("--heads/--no-heads", help="train a linear head, too: needs torch, and labels or groups")
    ] = True,
    budget: Annotated[
        float, typer.Option(help="seconds that it may take; maps that there is no time for are left out and named")
    ] = 300.0,
    seed: options.Seed = 0,
    drop: options.Drop = None,
    key: options.Key = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = None,
    report: Annotated[Path | None, typer.Option(help="folder or .html file for the report page")] = None,
    save: Annotated[Path | None, typer.Option(help="file for the head, e.g. head.safetensors")] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Adapt embeddings to what is known of some of them; keep them as they are where no map is reliably better."""
    from isometry.select import adapt as run

    given = {"--labels": labels, "--pairs": pairs, "--triplets": triplets, "--relevance": relevance}
    said = [name for name, value in given.items() if value is not None]
    if len(said) > 1 or (not said and file.suffix.lower() != ".npz"):
        what = " and ".join(said) or "nothing"
        raise UsageError(f"say what is known by one of {', '.join(given)}; got {what}")
    if documents is not None and relevance is None:
        raise UsageError("--documents are those of --relevance")
    if direction not in DIRECTIONS:
        raise UsageError(f"--map {direction} is unknown: expected {', '.join(DIRECTIONS)}")
    report = _check_outputs(report, save, file, [labels, pairs, triplets, relevance, documents, row_id])
    console = printer(quiet or as_json)
    told: list[str] = []
    if unlabelled not in ("refuse", "drop"):
        raise UsageError(f"--unlabelled {unlabelled} is unknown: expected refuse or drop")
    if unlabelled == "drop" and said and labels is None:
        raise UsageError(f"--unlabelled is for --labels, not for {said[0]}")
    source = _Source(key, drop, delimiter, decimal, row_id, skip_bad, told, unlabelled == "drop")
    y: Any
    if relevance is not None:
        X, y, gallery, name = _relevance(source, file, documents, relevance)
    else:
        of_classes = pairs is None and triplets is None
        table, names = source.read(file, labels or "y" if of_classes else None)
        X, gallery, name = table.X, None, table.name
        y = table.columns["labels"] if of_classes else _tuples(pairs, triplets, names, len(X), skip_bad, told)
    if heads and relevance is None and triplets is None and find_spec("torch") is None:
        told.append('no linear head is tried: that needs torch (pip install "isometry[deep]")')
    console.print(f"{plain(name)}: {len(X)} embeddings of {X.shape[1]} numbers", style="dim")
    for note in told:
        console.print(f"note: {plain(note)}", style="dim")
    with usage_errors(ValueError, TypeError):
        outcome = run(
            X,
            y,
            documents=gallery,
            query_only=direction == "query" or (direction == "auto" and relevance is not None),
            protocol="closed" if known_classes else "open",
            heads=heads,
            n_splits=folds,
            budget=budget,
            random_state=seed,
            verbose=not quiet,
            name=name,
        )
    outcome.notes[:0] = told
    problems: list[Exception] = []
    saved: Path | None = None
    with collect_errors(problems):  # first, since it cannot be had again
        if save is not None:
            outcome.save(save, {"method": f"adapt({outcome.setting})", "date": made_on(), "data": outcome.data})
            saved = save
    page: Path | None = None
    if report is not None:
        from isometry.report import write_adaptation_report

        command = shlex.join(["isometry", *sys.argv[1:]])
        with collect_errors(problems):
            page = write_adaptation_report(outcome, report, command=command, saved=saved)
    if as_json:
        print_json({**outcome.to_dict(), "saved": saved, "report": page})
    else:
        _show(outcome, console, told)
        for what, path in (("report", page), ("saved", saved)):
            if path is not None:
                console.print(f"{what}: {plain(path)}")
    raise_first(problems)


def _check_outputs(report: Path | None, save: Path | None, file: Path, others: list[str | Path | None]) -> Path | None:
    """Refuse what cannot be written, or would replace what is read, before anything is computed."""
    inputs = {"the embeddings": file} | {str(path): Path(path) for path in others if path and Path(path).exists()}
    check_distinct({"--save": save}, dict(inputs))
    check_writable(save)
    return check_page("--report", report, {"--save": save}, dict(inputs))


class _Source:
    """Reads embeddings with ids and labels, and leaves out bad rows if told so."""

    def __init__(
        self,
        key: str | None,
        drop: str | None,
        delimiter: str | None,
        decimal: str | None,
        row_id: str | None,
        skip: bool,
        told: list[str],
        unlabelled: bool = False,
    ):
        import csv

        self.key, self.row_id, self.skip, self.told, self.unlabelled = key, row_id, skip, told, unlabelled
        self.text = {"delimiter": delimiter, "decimal": decimal}
        self.drop = [c.strip() for c in next(csv.reader([drop], skipinitialspace=True))] if drop else []

    def read(self, file: Path, labels: str | None = None) -> tuple[Embeddings, RowNames]:
        """Embeddings, with ``labels`` in a column of that name if asked for, and what names the rows."""
        import numpy as np
        import pandas

        from isometry.io import TableError
        from isometry.io.columns import BY_OPTION, labelled_rows, told_left_out
        from isometry.io.embeddings import as_labels, read_embeddings

        id_file, label_file = (name if name and Path(name).is_file() else None for name in (self.row_id, labels))
        beside = [name for name, there in ((self.row_id, id_file), (labels, label_file)) if name and not there]
        with usage_errors(FileNotFoundError, IsADirectoryError, TableError):
            table = read_embeddings(file, beside, key=self.key, drop=self.drop, **self.text)
            n = len(table.X)
            ids = self._row_by_row(Path(id_file), n) if id_file else table.columns.get(self.row_id or "")
            names = RowNames(ids, n, str(file))
            if labels is None:
                return self._without_bad(replace(table, columns={}), names)
            if label_file:
                values, known = self._labels(Path(label_file), names)
            else:
                values, known = table.columns[labels], np.ones(n, dtype=bool)
            if not known.all():  # the rest of the rows say nothing
                self.told.append(f"{int(np.sum(~known))} embeddings have no label in {label_file}: they are left out")
                table, names = replace(table, X=table.X[known]), RowNames(np.asarray(names.ids)[known], len(values))
            column = pandas.Series(values, name=labels)
            if self.unlabelled and column.isna().any():
                kept = labelled_rows(column)
                self.told.append(told_left_out(len(values) - len(kept), len(values), str(labels), "embeddings"))
                table, names = replace(table, X=table.X[kept]), RowNames(np.asarray(names.ids)[kept], len(kept))
                values = values[kept]
            table = replace(table, columns={"labels": as_labels(values, str(labels), BY_OPTION)})
        return self._without_bad(table, names)

    def _row_by_row(self, file: Path, n: int) -> np.ndarray:
        from isometry.io.embeddings import read_values

        values = read_values(file)
        if values.ndim != 1 or len(values) != n:
            raise UsageError(f"{file} has shape {values.shape}: expected one value for each of the {n} embeddings")
        return values

    def _labels(self, file: Path, names: RowNames) -> tuple[np.ndarray, np.ndarray]:
        """Labels of those rows that have one, in the order of the rows, and (n,) which these are."""
        import numpy as np

        from isometry.io.embeddings import read_values

        values = read_values(file)
        if values.ndim == 1:
            return self._row_by_row(file, names.n), np.ones(names.n, dtype=bool)
        rows = names.rows(values[:, 0])
        missing = values[rows < 0, 0]
        if len(missing):
            listed = _listed(missing)
            if not self.skip:
                raise UsageError(f"{len(missing)} ids of {file} are not in {names.what} ({listed}): {names.hint()}")
            self.told.append(f"{len(missing)} ids of {file} are not in {names.what} ({listed}): they are left out")
        values, rows = values[rows >= 0], rows[rows >= 0]
        known = np.bincount(rows, minlength=names.n)
        if known.max(initial=0) > 1:
            raise UsageError(f"{file} has more than one label for {names.ids[int(known.argmax())]!r}")
        return values[np.argsort(rows), 1], known > 0

    def _without_bad(self, table: Embeddings, names: RowNames) -> tuple[Embeddings, RowNames]:
        """Refuse rows without a direction by their names, or leave them out."""
        import numpy as np

        from isometry.core.rows import look_at_rows

        facts = look_at_rows(table.X)
        kept = np.ones(len(table.X), dtype=bool)
        for rows, what in ((facts.bad, "hold NaN or infinite numbers"), (facts.zero, "are 0 and have no direction")):
            if len(rows):
                text = f"{len(rows)} rows of {names.what} {what} ({_listed(names.ids[rows])})"
                if not self.skip:
                    raise UsageError(f"{text}: mend them, or leave them out with --skip-bad")
                self.told.append(f"{text}: they are left out")
                kept[rows] = False
        if kept.all():
            return table, names
        if not kept.any():
            raise UsageError(f"no row of {names.what} is left")
        columns = {name: values[kept] for name, values in table.columns.items()}
        ids = np.asarray(names.ids)[kept]
        return replace(table, X=np.asarray(table.X[kept]), columns=columns), RowNames(ids, len(ids), names.what)


def _listed(values: Any) -> str:
    more = f" and {len(values) - MOST_LISTED} more" if len(values) > MOST_LISTED else ""
    return ", ".join(map(str, values[:MOST_LISTED])) + more


def _tuples(pairs: Path | None, triplets: Path | None, names: RowNames, n: int, skip: bool, told: list[str]) -> Any:
    """Pairs or triplets of a file."""
    import numpy as np

    from isometry.supervision import Triplets

    if pairs is not None:
        expected = "pairs, in two columns that name rows and a third that says whether they are the same"
        named = read_named_rows(pairs, [names] * 2, expected, last=True, skip=skip)
        same = read_signs(named, pairs)
        rows = named.rows
        bad = np.zeros(len(rows), dtype=bool) if same is None else contradictory(rows, same, n)
        _tell(named, pairs, int(bad.sum()) if skip else 0, told)
        if skip:
            rows, same = rows[~bad], None if same is None else same[~bad]
        return make_pairs(rows, same, n)
    assert triplets is not None
    named = read_named_rows(triplets, [names] * 3, "triplets, in three columns that name rows", last=False, skip=skip)
    rows = named.rows
    key = (rows[:, 0].astype(object) * n + rows[:, 1]) * n + rows[:, 2]
    turned = (rows[:, 0].astype(object) * n + rows[:, 2]) * n + rows[:, 1]
    bad = np.isin(key, turned)
    if bad.any() and not skip:
        a, p, q = rows[bad][0]
        raise UsageError(
            f"{int(bad.sum())} triplets contradict one another, such as ({a}, {p}, {q}) and ({a}, {q}, {p}): remove "
            "one of the two, or leave them out with --skip-bad"
        )
    _tell(named, triplets, int(bad.sum()), told)
    with usage_errors(ValueError):
        return Triplets(*rows[~bad].T, n_samples=n)


def _tell(named: NamedRows, path: Path, contradictions: int, told: list[str]) -> None:
    if named.left_out:
        told.append(f"{named.left_out} lines of {path} name rows that are not there: they are left out")
    if contradictions:
        told.append(f"{contradictions} lines of {path} contradict others: they are left out")


def _relevance(source: _Source, file: Path, documents: Path | None, path: Path) -> tuple[Any, Any, Any, str]:
    """Queries, which documents are relevant to them, documents, and the name of the data."""
    import numpy as np

    from isometry.select import Relevance

    table, names = source.read(file)
    library, document_names = (table, names) if documents is None else source.read(documents)
    if table.X.shape[1] != library.X.shape[1]:
        raise UsageError(f"{file} has {table.X.shape[1]} numbers a row and {documents} {library.X.shape[1]}")
    expected = "ids of a query and of a document, and a grade if there is"
    named = read_named_rows(path, [names, document_names], expected, last=True, skip=source.skip)
    _tell(named, path, 0, source.told)
    i, j = named.rows.T
    grade = None
    if named.more is not None:
        import pandas

        grade = pandas.to_numeric(named.more, errors="coerce").to_numpy(dtype=np.float64)
        if not (np.isfinite(grade) & (grade >= 0)).all():
            wrong = named.more[~(np.isfinite(grade) & (grade >= 0))].iloc[0]
            raise UsageError(f"column {named.column} of {path} holds {wrong!r}: grades are numbers ≥ 0")
    if documents is not None:
        return table.X, Relevance(i, j, grade), library.X, table.name
    both = np.intersect1d(i, j)
    if len(both):
        raise UsageError(
            f"{len(both)} rows are queries and documents at once, such as {names.ids[both[0]]}: give documents in a "
            "file of their own (--documents), or take --pairs"
        )
    asks = np.isin(np.arange(len(table.X)), i)
    number = np.where(asks, np.cumsum(asks), np.cumsum(~asks)) - 1
    X = np.asarray(table.X)
    return X[asks], Relevance(number[i], number[j], grade), X[~asks], table.name


def _show(outcome: Adaptation, console: Any, told: list[str]) -> None:
    from isometry.select.questions import TITLES

    gap = f"difference, {100 * outcome.level:g} % interval"
    shown = make_table("score", "before", "after", gap, right=("before", "after", gap), whole=("score",))
    for score in outcome.scores:
        difference = interval_text(score.difference, "+.4f")
        shown.add_row(TITLES[score.name], f"{score.before:.4f}", f"{score.after:.4f}", difference)
    console.print(shown)
    if outcome.candidates:
        tried = ", ".join(setting.method for setting, _ in outcome.candidates)
        console.print(f"note: tried, best first: {plain(tried)}; --report shows what each gained", style="dim")
    for note in outcome.notes:
        if note not in told:
            console.print(f"note: {plain(note)}", style="dim")
    for warning in outcome.warnings:
        console.print(f"[yellow]warning:[/] {plain(warning)}")
    console.print(f"\n[bold]{plain(outcome.verdict)}[/]")
