"""What commands are given, checked: files, embedded data sets, methods and their settings, paths to write to."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isometry.cli.outputs import UsageError, usage_errors

if TYPE_CHECKING:
    import pandas as pd

    from isometry.io import Table
    from isometry.registry import Method

STDOUT = "-"
# data sets of scikit-learn, and what their labels are
EMBEDDED = {"wine": "cultivar", "iris": "species", "breast_cancer": "diagnosis", "digits": "digit"}


def find_method(name: str) -> Method:
    from isometry.registry import get

    with usage_errors(KeyError):
        return get(name)


def read_file(
    file: Path,
    target: str | None,
    drop: str | None,
    key: str | None,
    delimiter: str | None,
    decimal: str | None,
    *,
    float32: bool = False,
    features: list[str] | None = None,
    labels_for: str | None = None,
    prepare: tuple[str, ...] = (),
    categories: list[str] | None = None,
    target_is: str = "classes",
    model: Any = None,
    unlabelled: str | None = None,
) -> Table:
    """The table of a file; ``labels_for`` says what needs labels, if something does.

    ``unlabelled``: "refuse" or "drop"; None where the command does not ask.
    """
    import csv

    from isometry.io import TableError, read_table
    from isometry.io.columns import BY_PANDAS, MissingLabels

    no_labels = UsageError(f"{labels_for} needs labels: name their column in {file} with --target")
    if labels_for and target is None and file.is_file() and file.suffix.lower() != ".npz":
        raise no_labels
    names = next(csv.reader([drop], skipinitialspace=True)) if drop else []  # a name with a comma may be quoted
    columns = [c.strip() for c in names]
    if target_is not in ("classes", "numbers", "auto"):
        raise UsageError(f"--target-is {target_is} is unknown: expected classes, numbers or auto")
    if unlabelled not in (None, "refuse", "drop"):
        raise UsageError(f"--unlabelled {unlabelled} is unknown: expected refuse or drop")
    dtype = "float32" if float32 else "float64"
    with usage_errors(FileNotFoundError, IsADirectoryError, TableError):
        try:
            table = read_table(
                file,
                target,
                drop=columns,
                features=features,
                key=key,
                dtype=dtype,
                delimiter=delimiter,
                decimal=decimal,
                prepare=prepare,
                categories=categories,
                target_is=target_is,
                model=model,
                unlabelled=unlabelled or "refuse",
            )
        except MissingLabels as error:
            raise error if unlabelled else UsageError(error.told(BY_PANDAS)) from error
    if labels_for and table.y is None:
        raise no_labels
    _check_size(table)
    return table


def _check_size(table: Table) -> None:
    """Refuse numbers too large to be scaled, by the name of their column."""
    from isometry.core.scale import check_can_be_scaled

    numbers = table.X.select_dtypes("number") if hasattr(table.X, "iloc") else table.X
    names = list(numbers.columns) if hasattr(numbers, "columns") else table.feature_names
    with usage_errors(ValueError):
        check_can_be_scaled(numbers.to_numpy(dtype=float) if hasattr(numbers, "iloc") else numbers, names, table.name)


def parse_prepare(prepare: str, impute: bool, one_hot: bool) -> tuple[str, ...]:
    """What ``--prepare``, ``--impute`` and ``--one-hot`` ask for."""
    from isometry.io.prepare import STEPS

    if prepare not in ("auto", "none"):
        raise UsageError(f"--prepare {prepare} is unknown: expected auto or none")
    if prepare == "auto":
        return STEPS
    return tuple(step for step, wanted in (("impute", impute), ("one_hot", one_hot)) if wanted)


def prepared_scaler(X: pd.DataFrame, scaler: str) -> Any:
    """The scaler by its name where all cells are numbers, else a transformer that makes them so first."""
    from isometry.io.prepare import needs_preparation, preparation
    from isometry.select.inputs import make_scaler

    if not needs_preparation(X):
        return scaler
    with usage_errors(ValueError):
        return preparation(X, make_scaler(scaler if scaler != "auto" else "standard"))


def load_embedded(name: str, target: str | None) -> Table:
    """A data set that comes with scikit-learn."""
    from sklearn import datasets

    from isometry.io import Table

    if target is not None:
        raise UsageError(f"--target names a column of a file, but {name} is embedded and knows its labels")
    data = getattr(datasets, f"load_{name}")()
    return Table(data.data, data.target_names[data.target], list(data.feature_names), EMBEDDED[name], name)


def read_table_or_embedded(
    file: Path,
    target: str | None,
    drop: str | None = None,
    key: str | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    **options: Any,
) -> Table:
    """The table of a file, or of a data set of scikit-learn if there is no such file."""
    if is_embedded(file):
        return load_embedded(str(file), target)
    return read_file(file, target, drop, key, delimiter, decimal, **options)


def supervision_of(table: Table) -> Any:
    """What a method is given as y: numbers to predict are said to be such."""
    from isometry.supervision import Targets

    return Targets(table.y) if is_numbers(table) else table.y


def is_numbers(table: Table) -> bool:
    return table.y is not None and table.y.dtype.kind == "f"


def told_unlabelled(table: Table) -> list[str]:
    """How many rows were left out for want of a label, where some were."""
    return [] if table.rows is None else [*table.notes[:1]]


def describe_target(table: Table) -> str:
    """How the target is taken, in words, where it could be taken otherwise."""
    import numpy as np

    if table.y is None or table.y.dtype.kind not in "fiu":
        return ""
    if is_numbers(table):
        return f"{table.target_name}: numbers to predict; --target-is classes takes whole numbers for names of classes"
    return (
        f"{table.target_name}: whole numbers, taken for the names of {len(np.unique(table.y))} classes; --target-is "
        "numbers takes them for numbers to predict"
    )


def is_embedded(file: Path) -> bool:
    return str(file) in EMBEDDED and not file.exists()


def make_card(table: Table, method: str, **more: Any) -> dict[str, Any]:
    """What a saved metric says of itself: method, data and the day it was made."""
    data = {"name": table.name, "rows": len(table.X), "fingerprint": table_fingerprint(table)}
    if table.target_name is not None:
        data["labels"] = table.target_name
    return {"method": method, "date": made_on(), "data": data, **more}


def made_on() -> str:
    """The day of today, or that of ``SOURCE_DATE_EPOCH`` where it is set: a build can be repeated byte by byte."""
    import datetime
    import os

    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    zone = datetime.UTC
    day = datetime.datetime.fromtimestamp(int(epoch), zone) if epoch else datetime.datetime.now(zone)
    return day.date().isoformat()


def table_fingerprint(table: Table) -> str:
    """Of cells and labels: the same data, the same text."""
    from isometry.io import fingerprint

    return fingerprint(table.X, table.y)


def draw_sample(table: Table, n: int, seed: int) -> Table:
    """n rows, with the classes in proportion as far as that can be, and at least one row of each."""
    import numpy as np

    y = np.asarray(table.y)
    if is_numbers(table):
        if not 2 <= n <= len(y):
            raise UsageError(f"--sample {n} must be between 2 and the number of rows, {len(y)}")
        return _take_rows(table, np.random.default_rng(seed).permutation(len(y))[:n])
    classes, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    if not len(classes) <= n <= len(y):
        raise UsageError(
            f"--sample {n} must be between the number of classes, {len(classes)}, and the number of rows, {len(y)}"
        )
    if n == len(y):
        return table
    share = n * counts / len(y)
    wanted = np.maximum(np.floor(share), 1).astype(int)
    while wanted.sum() != n:  # at most once for each class
        step = 1 if wanted.sum() < n else -1
        can_change = wanted < counts if step > 0 else wanted > 1
        wanted[np.argmax(np.where(can_change, step * (share - wanted), -np.inf))] += step
    rng = np.random.default_rng(seed)
    rows = np.concatenate([rng.permutation(np.flatnonzero(codes == c))[:m] for c, m in enumerate(wanted)])
    rows = rng.permutation(rows)
    return _take_rows(table, rows)


def _take_rows(table: Table, rows: Any) -> Table:
    from dataclasses import replace

    import numpy as np

    X = table.X.iloc[rows].reset_index(drop=True) if hasattr(table.X, "iloc") else table.X[rows]
    kept = rows if table.rows is None else table.rows[rows]
    name = f"{table.name}, {len(rows)} of {len(table.X)} rows"
    return replace(table, X=X, y=np.asarray(table.y)[rows], name=name, rows=kept)


def as_frame(table: Table) -> pd.DataFrame:
    """A DataFrame, so that the fitted metric knows the names of its features."""
    import pandas

    return table.X if hasattr(table.X, "iloc") else pandas.DataFrame(table.X, columns=table.feature_names)


def configure(learner: Any, settings: list[str], seed: int) -> Any:
    """The learner with ``name=value`` settings; values are Python literals, anything else is text."""
    known = learner.get_params()
    params = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or name not in known:
            kind = type(learner).__name__
            raise UsageError(f"--set {setting}: expected name=value with a parameter of {kind}: {', '.join(known)}")
        params[name] = parse_value(text)
        check_setting(learner, setting, name, params[name])
    if "random_state" in known and known["random_state"] is None:
        params.setdefault("random_state", seed)
    return learner.set_params(**params)


def check_setting(learner: Any, setting: str, name: str, value: Any) -> None:
    """Refuse text or a fraction for a parameter that is declared as a number or a truth value."""
    import numpy as np

    from isometry.parameters import expected_type, parameter_types

    kinds = [kind for kind in parameter_types(learner).get(name, (object,)) if kind is not np.random.RandomState]
    expected = expected_type(value, kinds)
    if expected:
        example = name + "=" + str(getattr(learner, name))
        raise UsageError(f"--set {setting}: {name} of {type(learner).__name__} must be {expected}, such as {example}")


def parse_value(text: str) -> Any:
    import ast

    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def check_writable(path: Path | None, *, table: bool = False) -> None:
    """Refuse a path that cannot be written before hours are spent on what should go there."""
    from isometry.io.atomic import atomic_write
    from isometry.io.tables import TableError, table_format

    if path is None:
        return
    if is_stdout(path):
        raise UsageError("this cannot be written to standard output: give the name of a file")
    with usage_errors(OSError, TableError), contextlib.suppress(_DryRun):
        if table:
            table_format(path)
        with atomic_write(path):
            raise _DryRun


def check_frame(out: Path | None) -> None:
    """Refuse a path at which no table with text can be written, before it is made; standard output will do."""
    if out is None or is_stdout(out):
        return
    if out.suffix.lower() not in (".csv", ".tsv", ".tab", ".parquet", ".pq"):
        raise UsageError(f"--out {out}: expected a csv, tsv or parquet file")
    check_writable(out)


def check_distinct(outputs: dict[str, Path | None], inputs: dict[str, Path | None]) -> None:
    """Refuse an output that is an input or another output, under whatever name: one of the two would be lost."""
    from isometry.core.files import same_file

    read = [(what, path) for what, path in inputs.items() if path is not None]
    written = [(option, path) for option, path in outputs.items() if path is not None and not is_stdout(path)]
    for k, (option, path) in enumerate(written):
        for what, other in read:
            if same_file(path, other):
                raise UsageError(f"{option} {path} is {what} itself ({other}), which would be lost: give another name")
        for what, other in written[:k]:
            if same_file(path, other):
                raise UsageError(f"{option} and {what} are one file ({path}): give two names")


def check_page(
    option: str, path: Path | None, others: dict[str, Path | None], inputs: dict[str, Path | None]
) -> Path | None:
    """Where a page will be, in a folder or in its own file; refused as above, beside ``others`` that are written."""
    from isometry.report.page import report_file

    if path is None:
        return None
    if is_stdout(path):
        raise UsageError("a page cannot be written to standard output: give a folder or the name of an .html file")
    check_distinct({option: path}, inputs)
    with usage_errors(OSError):
        page = report_file(path)
    check_distinct({**others, option: page}, inputs)
    check_writable(page)
    return page


def is_stdout(path: Path) -> bool:
    return str(path) in (STDOUT, "/dev/stdout")


class _DryRun(Exception):
    """Ends a trial of writing a file, so that nothing is replaced."""
