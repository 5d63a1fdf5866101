"""`isometry verify`: are two rows the same? A threshold with its errors, and a file that answers the question."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isometry.cli import options
from isometry.cli.app import app
from isometry.cli.fit import make_learner
from isometry.cli.inputs import (
    check_distinct,
    check_writable,
    configure,
    is_stdout,
    make_card,
    read_file,
    read_table_or_embedded,
)
from isometry.cli.outputs import UsageError, make_table, plain, print_json, printer, usage_errors
from isometry.cli.tuples import RowNames, make_pairs, read_named_rows, read_signs

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from isometry.io import Table
    from isometry.select import OperatingPoint, PairVerifier


@app.command()
def verify(
    file: options.File,
    pairs: Annotated[
        Path | None,
        typer.Option(help="table of pairs: two columns that name rows, and one that says whether they are the same"),
    ] = None,
    target: options.Target = None,
    row_id: Annotated[
        str | None, typer.Option("--id", help="column that names the rows; by default their numbers, from 0")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="judge the pairs by this saved verifier, and learn nothing")
    ] = None,
    method: Annotated[str, typer.Option(help="metric to learn, by name or key; Euclidean: none")] = "GMML",
    set_: Annotated[list[str] | None, typer.Option("--set", help="parameter as name=value; may be repeated")] = None,
    fpr: Annotated[float | None, typer.Option(help="threshold at this false-match rate")] = None,
    precision: Annotated[float | None, typer.Option(help="threshold at this precision")] = None,
    cost: Annotated[
        str | None, typer.Option(help="threshold of least cost: of a false match, of a false non-match, e.g. 10,1")
    ] = None,
    band: Annotated[
        str | None, typer.Option(help="leave pairs undecided: false-match and false-non-match rate, e.g. 0.01,0.01")
    ] = None,
    prior: Annotated[
        float | None, typer.Option(help="share of same pairs among those that will be asked about; by default as here")
    ] = None,
    link: Annotated[str, typer.Option(help="from distance to probability: sigmoid or isotonic")] = "sigmoid",
    scaler: Annotated[str, typer.Option(help="auto, standard, minmax, robust, normalize or none")] = "auto",
    folds: Annotated[int, typer.Option(help="folds in which pairs are held out")] = 5,
    seed: options.Seed = 0,
    drop: options.Drop = None,
    key: options.Key = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = None,
    float32: options.Float32 = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="csv or parquet file for what --model says of each pair")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="file for the verifier, e.g. verifier.safetensors")] = None,
    report: Annotated[Path | None, typer.Option(help="folder or .html file for the report page")] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Learn when two rows are the same, with a threshold whose errors are known; or judge pairs with such a file."""
    if (pairs is None) == (target is None) and not _has_labels(file, pairs, target):
        raise UsageError("say which rows are the same: --target names a column of labels, or --pairs a table of pairs")
    check_distinct({"--save": save, "--out": out}, {"the table": file, "the pairs": pairs, "the model": model})
    check_writable(save)
    dropped = ",".join(c for c in (drop, _quoted(row_id)) if c) or None
    read: Any = read_table_or_embedded if pairs is None else read_file
    table = read(file, target, dropped, key, delimiter, decimal, float32=float32)
    listed = None if pairs is None else _read_pairs(pairs, _row_names(file, row_id, delimiter, decimal), len(table.X))
    if model is not None:
        if listed is None:
            raise UsageError("--model judges pairs: name a table of them with --pairs")
        _judge(model, table, listed[0], out, as_json, quiet)
        return
    goals = _goals(fpr, precision, cost, band)
    y = table.y if listed is None else make_pairs(*listed, len(table.X))
    _, learner = make_learner(method)
    learner = configure(learner, set_ or [], seed)
    verifier = _fit(learner, table, y, scaler, prior=prior, method=link, n_splits=folds, random_state=seed)
    with usage_errors(ValueError):
        if "band" in goals:
            verifier.set_band(fpr=goals["band"][0], fnr=goals["band"][1])
        elif goals:
            verifier.set_threshold(verifier.operating_point(**goals).threshold)
    point = verifier.operating_point()
    outcome = _outcome(verifier, point)
    if save is not None:
        from isometry.io import save as write

        write(
            verifier, save, make_card(table, f"PairVerifier({method})", **{k: outcome[k] for k in ("auc", "threshold")})
        )
    page = None
    if report is not None:
        from isometry.report import write_verification_report

        command = shlex.join(["isometry", *sys.argv[1:]])
        page = write_verification_report(verifier, report, name=table.name, command=command)
    if as_json:
        print_json({**outcome, "saved": save, "report": page})
        return
    _show(verifier, point, table, quiet)
    for what, path in (("report", page), ("saved", save)):
        if path is not None:
            printer(quiet).print(f"{what}: {plain(path)}")


def _has_labels(file: Path, pairs: Path | None, target: str | None) -> bool:
    """Whether a table without --target has labels that are known: an npz file, or an embedded data set."""
    from isometry.cli.inputs import is_embedded

    return pairs is None and target is None and (file.suffix.lower() == ".npz" or is_embedded(file))


def _quoted(name: str | None) -> str | None:
    return None if name is None else f'"{name}"' if "," in name else name


def _goals(fpr: float | None, precision: float | None, cost: str | None, band: str | None) -> dict[str, Any]:
    given: dict[str, Any] = {"fpr": fpr, "precision": precision, "cost": cost, "band": band}
    given = {name: value for name, value in given.items() if value is not None}
    if len(given) > 1:
        raise UsageError(f"give one target for the threshold, not {' and '.join('--' + name for name in given)}")
    for name in ("cost", "band"):
        if name in given:
            parts = given[name].split(",")
            try:
                first, second = map(float, parts)
            except ValueError:
                raise UsageError(f"--{name} {given[name]}: expected two numbers such as 10,1") from None
            given[name] = (first, second)
    return given


def _row_names(file: Path, row_id: str | None, delimiter: str | None, decimal: str | None) -> pd.Series | None:
    """What names the rows of the table: the column of --id as text."""
    from isometry.io import TableError
    from isometry.io.tables import read_cells

    if row_id is None:
        return None
    with usage_errors(TableError):
        cells = read_cells(file, delimiter=delimiter, decimal=decimal)
    if row_id not in cells.columns:
        raise UsageError(f"--id {row_id}: {file} has no such column; it has {', '.join(map(str, cells.columns))}")
    names = cells[row_id].astype(str)
    if names.duplicated().any():
        raise UsageError(f"--id {row_id}: {names[names.duplicated()].iloc[0]!r} names more than one row of {file}")
    return names


def _read_pairs(path: Path, names: pd.Series | None, n: int) -> tuple[np.ndarray, np.ndarray | None]:
    """(m, 2) row numbers, and (m,) whether they are the same, if the table says so."""
    expected = "pairs, in two columns that name rows and a third that says whether they are the same"
    named = read_named_rows(path, [RowNames(names, n)] * 2, expected, last=True)
    return named.rows, read_signs(named, path)


def _fit(learner: Any, table: Table, y: Any, scaler: str, **settings: Any) -> PairVerifier:
    from sklearn.pipeline import make_pipeline

    from isometry.select import PairVerifier
    from isometry.select.inputs import choose_scaler, make_scaler

    with usage_errors(ValueError):
        steps = make_scaler(choose_scaler(scaler, table.X, "open")[0])
    return PairVerifier(learner if steps == "passthrough" else make_pipeline(steps, learner), **settings).fit(
        table.X, y
    )


def _outcome(verifier: PairVerifier, point: OperatingPoint) -> dict[str, Any]:
    names = ("threshold", "probability", "false_match_rate", "false_non_match_rate", "precision")
    return {
        "pairs": verifier.n_pairs_,
        "same": int(verifier.held_out_.same.sum()),
        "prior": verifier.prior_,
        "auc": verifier.auc_,
        "equal_error_rate": verifier.roc_.eer,
        "calibration_error": verifier.calibration_error_,
        "sampled_negatives": verifier.n_sampled_negatives_,
        **dict(zip(names, point, strict=True)),
        "reject_threshold": verifier.reject_threshold_,
    }


def _show(verifier: PairVerifier, point: OperatingPoint, table: Table, quiet: bool) -> None:
    console = printer(quiet)
    same = int(verifier.held_out_.same.sum())
    console.print(
        f"{plain(table.name)}: {len(table.X)} rows, {table.X.shape[1]} features; {verifier.n_pairs_} held-out pairs, "
        f"{same} same",
        style="dim",
    )
    shown = make_table("at the threshold", "value", "95 % interval", right=("value", "95 % interval"))
    for name, rate in (("false matches", point.fpr), ("false non-matches", point.fnr), ("precision", point.precision)):
        shown.add_row(name, f"{rate.mean:.4f}", f"\\[{rate.low:.4f}, {rate.high:.4f}]")
    console.print(shown)
    console.print(
        f"AUC {verifier.auc_:.4f}, equal error rate {verifier.roc_.eer:.4f}, calibration error "
        f"{verifier.calibration_error_:.4f}; precision if {verifier.prior_:.2%} of the pairs are the same"
    )
    accepted = f"same up to distance {point.threshold:.6g} (probability {point.probability:.3f})"
    undecided = verifier.reject_threshold_ > verifier.threshold_
    rejected = f"; undecided up to {verifier.reject_threshold_:.6g}" if undecided else ""
    console.print(f"[bold]{accepted}{rejected}; different beyond[/]")


def _judge(model: Path, table: Table, rows: np.ndarray, out: Path | None, as_json: bool, quiet: bool) -> None:
    """Distance, probability and decision of pairs by a saved verifier."""
    import numpy as np

    from isometry.io import load, write_table
    from isometry.select import PairVerifier

    with usage_errors(FileNotFoundError, IsADirectoryError, ValueError):
        verifier = load(model)
    if not isinstance(verifier, PairVerifier):
        raise UsageError(
            f"{model} holds a {type(verifier).__name__}, not a verifier: make one with isometry verify --save"
        )
    with usage_errors(ValueError):
        d = verifier.pair_distance(table.X, rows)
        decision = verifier.predict(table.X, rows)
    p = verifier.pair_probability(table.X, rows)
    counts = {int(k): int(np.sum(decision == k)) for k in (1, 0, -1)}
    if out is not None:
        if not is_stdout(out):
            check_writable(out, table=True)
        path = sys.stdout if is_stdout(out) else out
        write_table(path, np.column_stack([d, p]), ["distance", "probability"], y=decision, target="decision")
    if as_json:
        judged = {"distance": d, "probability": p, "decision": decision}
        print_json({"same": counts[1], "undecided": counts[0], "different": counts[-1], **judged, "file": out})
        return
    undecided = f", {counts[0]} undecided" if counts[0] else ""
    printer(quiet or (out is not None and is_stdout(out))).print(
        f"{len(rows)} pairs: {counts[1]} same, {counts[-1]} different{undecided}" + (f": {plain(out)}" if out else "")
    )
