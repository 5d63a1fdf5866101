"""`isometry verify`: are two rows the same? A threshold with its errors, and a file that answers the question."""

from __future__ import annotations

import shlex
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isometry.cli import options
from isometry.cli.app import app
from isometry.cli.fit import make_learner
from isometry.cli.inputs import (
    as_frame,
    check_distinct,
    check_frame,
    check_page,
    check_writable,
    configure,
    is_stdout,
    make_card,
    parse_prepare,
    prepared_scaler,
    read_file,
    read_table_or_embedded,
)
from isometry.cli.models import load_model, read_for
from isometry.cli.outputs import (
    UsageError,
    as_json_values,
    collect_errors,
    make_table,
    plain,
    print_json,
    print_to_stderr,
    printer,
    raise_first,
    shows_progress,
    usage_errors,
    write_frame,
)
from isometry.cli.tuples import RowNames, make_pairs, read_named_rows, read_signs

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from rich.table import Table as RichTable

    from isometry.io import Table
    from isometry.select import OperatingPoint, PairVerifier

SHOWN = 10  # pairs that are printed
HELD_OUT = {  # by protocol
    "open": "whole classes were held out: errors among new classes (--protocol closed: new rows of these)",
    "closed": "rows were held out: errors among new rows of these classes (--protocol open: new classes)",
}


@app.command()
def verify(
    file: options.File,
    pairs: Annotated[
        Path | None,
        typer.Option(help="table of pairs: two columns that name rows, and one that says whether they are the same"),
    ] = None,
    target: options.Target = None,
    unlabelled: options.Unlabelled = "refuse",
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
    protocol: Annotated[
        str | None,
        typer.Option(
            help="closed: errors among new rows of these classes; open: among new classes, whole ones are held out; "
            "by default open from 20 classes on"
        ),
    ] = None,
    prior: Annotated[
        float | None, typer.Option(help="share of same pairs among those that will be asked about; by default as here")
    ] = None,
    link: Annotated[str, typer.Option(help="from distance to probability: auto, sigmoid or isotonic")] = "auto",
    unit: options.Unit = False,
    scaler: Annotated[str, typer.Option(help="auto, standard, minmax, robust, normalize or none")] = "auto",
    folds: Annotated[int, typer.Option(help="folds in which pairs are held out")] = 5,
    seed: options.Seed = 0,
    drop: options.Drop = None,
    key: options.Key = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = None,
    float32: options.Float32 = False,
    prepare: options.Prepare = "auto",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="csv or parquet file for what --model says of each pair")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="file for the verifier, e.g. verifier.safetensors")] = None,
    report: Annotated[Path | None, typer.Option(help="folder or .html file for the report page")] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Learn when two rows are the same, with a threshold whose errors are known; or judge pairs with such a file."""
    from isometry.core.progress import progress
    from isometry.select import AutoMetric
    from isometry.select.calibrate import usual_protocol

    if (pairs is None) == (target is None) and not _has_labels(file, pairs, target):
        raise UsageError("say which rows are the same: --target names a column of labels, or --pairs a table of pairs")
    if pairs is not None and unlabelled != "refuse":
        raise UsageError("--unlabelled is for the labels of --target, not for pairs")
    if model is not None and pairs is None:
        raise UsageError("--model judges pairs: name a table of them with --pairs")
    if model is not None and (save is not None or report is not None):
        raise UsageError(
            "--model judges pairs, and learns nothing: leave out --save and --report (--out takes decisions)"
        )
    if protocol is not None and (pairs is not None or protocol not in ("closed", "open")):
        wrong = f"{protocol} is unknown: closed or open" if pairs is None else "is for labels, not for pairs"
        raise UsageError(f"--protocol {wrong}")
    inputs = {"the table": file, "the pairs": pairs, "the model": model}
    check_distinct({"--save": save, "--out": out}, inputs)
    check_writable(save)
    check_frame(out)
    report = check_page("--report", report, {"--save": save}, inputs)
    dropped = ",".join(c for c in (drop, _quoted(row_id)) if c) or None
    if model is not None and pairs is not None:
        judge = _load(model)
        table = read_for(judge, model, file, None, dropped, key, delimiter, decimal, float32=float32)
        names = _row_names(file, row_id, delimiter, decimal)
        asked = _read_pairs(pairs, names, len(table.X))[0]
        _judge(judge, table, asked, names, out, as_json, quiet)
        return
    read: Any = read_table_or_embedded if pairs is None else read_file
    steps = parse_prepare(prepare, impute=False, one_hot=False)
    reading = {"float32": float32, "prepare": steps, "unlabelled": unlabelled}
    table = read(file, target, dropped, key, delimiter, decimal, **reading)
    listed = None if pairs is None else _read_pairs(pairs, _row_names(file, row_id, delimiter, decimal), len(table.X))
    goals = _goals(fpr, precision, cost, band)
    y = table.y if listed is None else make_pairs(*listed, len(table.X))
    learner = configure(_learner(method), set_ or [], seed)
    if isinstance(learner, AutoMetric):
        if listed is None and not any(s.startswith("protocol=") for s in set_ or []):
            learner.set_params(protocol=protocol or usual_protocol(y))  # chosen for what will be asked of it
        if not (quiet or as_json):
            print_to_stderr(f"auto chooses {folds + 1} times: on all rows, and anew for each of {folds} folds")
    if unit:
        from isometry import Normalized

        learner = Normalized(learner)
    settings: dict[str, Any] = {"prior": prior, "method": link, "n_splits": folds, "random_state": seed}
    with progress(shows_progress(quiet, as_json), "verify", folds + 1, word="learned from rows:"):
        verifier = _fit(learner, table, y, scaler, protocol=protocol, **settings)
    with usage_errors(ValueError):
        if "band" in goals:
            verifier.set_band(fpr=goals["band"][0], fnr=goals["band"][1])
        elif goals:
            verifier.set_threshold(verifier.operating_point(**goals).threshold)
    point = verifier.operating_point()
    outcome = _outcome(verifier, point)
    problems: list[Exception] = []
    saved: Path | None = None
    with collect_errors(problems):  # first, since it cannot be had again
        if save is not None:
            from isometry.io import save as write

            facts = as_json_values({k: outcome[k] for k in ("auc", "threshold")})  # a line may be at -inf
            write(verifier, save, make_card(table, f"PairVerifier({method})", **facts))
            saved = save
    page: Path | None = None
    if report is not None:
        from isometry.report import write_verification_report

        command = shlex.join(["isometry", *sys.argv[1:]])
        with collect_errors(problems):
            page = write_verification_report(verifier, report, name=table.name, command=command)
    if as_json:
        print_json({**outcome, "saved": saved, "report": page})
    else:
        chosen = getattr(
            verifier.metric_[-1] if hasattr(verifier.metric_, "steps") else verifier.metric_, "best_", None
        )
        named = method if chosen is None else f"{method}: {chosen}"
        _show(verifier, point, table, named, quiet, of_labels=listed is None)
        if not goals:
            told = "the line is where same and different are equally likely; --fpr, --precision, --cost, --band move it"
            printer(quiet).print(f"note: {told}", style="dim")
        for what, path in (("report", page), ("saved", saved)):
            if path is not None:
                printer(quiet).print(f"{what}: {plain(path)}")
    raise_first(problems)


def _has_labels(file: Path, pairs: Path | None, target: str | None) -> bool:
    """Whether a table without --target has labels that are known: an npz file, or an embedded data set."""
    from isometry.cli.inputs import is_embedded

    return pairs is None and target is None and (file.suffix.lower() == ".npz" or is_embedded(file))


def _quoted(name: str | None) -> str | None:
    return None if name is None else f'"{name}"' if "," in name else name


def _learner(method: str) -> Any:
    """A metric to learn; a file of one is refused."""
    if Path(method).is_file():
        raise UsageError(
            f"--method {method}: errors can be told of a metric that has not seen the pairs, and a file of fit has "
            "seen its rows. Name its method, such as --method GMML or auto, and it is learned here"
        )
    return make_learner(method)[1]


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
    with usage_errors(TableError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # all was said when the table was read
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

    X = as_frame(table)
    steps = prepared_scaler(X, scaler)
    if isinstance(steps, str):  # all cells are numbers
        with usage_errors(ValueError):
            steps = make_scaler(choose_scaler(scaler, table.X, "open")[0])
    return PairVerifier(learner if steps == "passthrough" else make_pipeline(steps, learner), **settings).fit(X, y)


def _outcome(verifier: PairVerifier, point: OperatingPoint) -> dict[str, Any]:
    names = ("threshold", "probability", "false_match_rate", "false_non_match_rate", "precision")
    return {
        "pairs": verifier.n_pairs_,
        "protocol": verifier.protocol_,
        "same": int(verifier.held_out_.same.sum()),
        "prior": verifier.prior_,
        "auc": verifier.auc_,
        "equal_error_rate": verifier.roc_.eer,
        "calibration_error": verifier.calibration_error_,
        "sampled_negatives": verifier.n_sampled_negatives_,
        **dict(zip(names, point, strict=True)),
        "reject_threshold": verifier.reject_threshold_,
    }


def _show(
    verifier: PairVerifier, point: OperatingPoint, table: Table, method: str, quiet: bool, *, of_labels: bool
) -> None:
    from isometry.io.prepare import describe

    console = printer(quiet)
    same = int(verifier.held_out_.same.sum())
    console.print(
        f"{plain(table.name)}: {len(table.X)} rows, {table.X.shape[1]} features; metric {plain(method)}; "
        f"{verifier.n_pairs_} held-out pairs, {same} same",
        style="dim",
    )
    if of_labels:
        console.print(f"note: {HELD_OUT[verifier.protocol_]}", style="dim")
    for told in (*table.notes, describe(as_frame(table))):
        console.print(f"note: {plain(told)}", style="dim") if told else None
    shown = make_table("at the threshold", "value", "95 % interval", right=("value", "95 % interval"))
    for name, rate in (("false matches", point.fpr), ("false non-matches", point.fnr), ("precision", point.precision)):
        shown.add_row(name, f"{rate.mean:.4f}", f"\\[{rate.low:.4f}, {rate.high:.4f}]")
    console.print(shown)
    console.print(
        f"AUC {verifier.auc_:.4f}, equal error rate {verifier.roc_.eer:.4f}, calibration error "
        f"{verifier.calibration_error_:.4f}; precision if {verifier.prior_:.2%} of the pairs are the same"
    )
    accepted = f"same up to distance {point.threshold:.6g} (probability {point.probability:.3f})"
    if point.threshold < 0:
        accepted = "no pair is called the same: none is near enough"
    undecided = verifier.reject_threshold_ > verifier.threshold_
    rejected = f"; undecided up to {verifier.reject_threshold_:.6g}" if undecided else ""
    beyond = "; different beyond" if verifier.reject_threshold_ >= 0 else ""
    console.print(f"[bold]{accepted}{rejected}{beyond}[/]")


def _load(model: Path) -> PairVerifier:
    """The verifier of a file."""
    from isometry.select import PairVerifier

    verifier = load_model(model)
    if not isinstance(verifier, PairVerifier):
        raise UsageError(
            f"{model} holds {type(verifier).__name__}, which is no verifier: make one with isometry verify --save"
        )
    return verifier


def _judge(
    verifier: PairVerifier,
    table: Table,
    rows: np.ndarray,
    names: pd.Series | None,
    out: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Distance, probability and decision of pairs by a saved verifier."""
    import numpy as np
    import pandas

    from isometry.io.columns import plural

    X = as_frame(table) if hasattr(verifier, "feature_names_in_") else table.X
    with usage_errors(ValueError):
        d = verifier.pair_distance(X, rows)
        decision = verifier.predict(X, rows)
    p = verifier.pair_probability(X, rows)
    first, second = rows.T if names is None else np.asarray(names)[rows.T]
    judged = {"first": first, "second": second, "distance": d, "probability": p, "decision": decision}
    frame = pandas.DataFrame(judged)
    counts = {int(k): int(np.sum(decision == k)) for k in (1, 0, -1)}
    if out is not None:
        write_frame(frame, out)
    if as_json:
        listed = {name: frame[name].tolist() for name in frame}
        print_json({"same": counts[1], "undecided": counts[0], "different": counts[-1], **listed, "file": out})
        return
    console = printer(quiet or (out is not None and is_stdout(out)))
    if out is None:
        console.print(_first_pairs(frame))
    undecided = f", {counts[0]} undecided" if counts[0] else ""
    more = f" (the first {SHOWN} are shown; --out FILE writes all)" if out is None and len(frame) > SHOWN else ""
    where = f": {plain(out)}" if out else more
    console.print(f"{plural(len(rows), 'pair')}: {counts[1]} same, {counts[-1]} different{undecided}{where}")


def _first_pairs(frame: pd.DataFrame) -> RichTable:
    """The first pairs, and what was decided of them."""
    table = make_table(*frame.columns, right=("distance", "probability"), whole=())
    words = {1: "same", 0: "undecided", -1: "different"}
    for row in frame.head(SHOWN).itertuples():
        cells = plain(row.first), plain(row.second), f"{row.distance:.4g}", f"{row.probability:.4f}"
        table.add_row(*cells, words[int(row.decision)])
    return table
