"""What commands are given: files, embedded data sets, methods and their settings; places to write to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isometry.cli.outputs import explain

if TYPE_CHECKING:
    from isometry.io import Table
    from isometry.registry import Method

STDOUT = "-"
EMBEDDED = {"wine": "cultivar", "iris": "species", "breast_cancer": "diagnosis", "digits": "digit"}  # and labels

File = Annotated[Path, typer.Argument(help="csv, tsv, parquet, npy or npz file", show_default=False)]
Target = Annotated[str | None, typer.Option("--target", "-y", help="column of labels; in npz the array `y` by default")]
Drop = Annotated[str | None, typer.Option(help="columns to leave out, separated by commas")]
Key = Annotated[str | None, typer.Option(help="array of features in an npz file, `X` by default")]
Delimiter = Annotated[str | None, typer.Option(help="sign between cells of a text table, e.g. ; or tab")]
Decimal = Annotated[str | None, typer.Option(help="sign before the fraction of numbers in a text table: . or ,")]
Seed = Annotated[int, typer.Option(help="seed of everything random")]
Single = Annotated[bool, typer.Option("--float32", help="work in 32 bits: half the memory, for large embeddings")]


class Usage(Exception):
    """The command cannot be carried out as it was given."""


@contextlib.contextmanager
def usage(*kinds: type[Exception]) -> Iterator[None]:
    """Errors of these kinds, raised inside, are the caller's."""
    try:
        yield
    except kinds as error:
        raise Usage(explain(error)) from error


def find_method(name: str) -> Method:
    from isometry.registry import get

    with usage(KeyError):
        return get(name)


def read_file(
    file: Path,
    target: str | None,
    drop: str | None,
    key: str | None,
    float32: bool,
    features: list[str] | None = None,
    *,
    delimiter: str | None = None,
    decimal: str | None = None,
) -> Table:
    import csv

    from isometry.io import TableError, read_table

    names = next(csv.reader([drop], skipinitialspace=True)) if drop else []  # a name with a comma may be quoted
    with usage(FileNotFoundError, IsADirectoryError, TableError):
        return read_table(
            file,
            target,
            drop=[c.strip() for c in names],
            features=features,
            key=key,
            dtype="float32" if float32 else "float64",
            delimiter=delimiter,
            decimal=decimal,
        )


def load_embedded(name: str, target: str | None) -> Table:
    """A data set that comes with scikit-learn."""
    from sklearn import datasets

    from isometry.io import Table

    if target is not None:
        raise Usage(f"--target names a column of a file, but {name} is embedded and knows its labels")
    data = getattr(datasets, f"load_{name}")()
    return Table(data.data, data.target_names[data.target], list(data.feature_names), EMBEDDED[name], name)


def draw_sample(table: Table, n: int, seed: int) -> Table:
    """n rows, with the classes in proportion as far as that can be, and at least one row of each."""
    from dataclasses import replace

    import numpy as np

    y = np.asarray(table.y)
    classes, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    if not len(classes) <= n <= len(y):
        raise Usage(
            f"--sample {n} must be between the number of classes, {len(classes)}, and the number of rows, {len(y)}"
        )
    if n == len(y):
        return table
    share = n * counts / len(y)
    wanted = np.maximum(np.floor(share), 1).astype(int)
    while wanted.sum() != n:  # at most once for each class
        step = 1 if wanted.sum() < n else -1
        room = wanted < counts if step > 0 else wanted > 1
        wanted[np.argmax(np.where(room, step * (share - wanted), -np.inf))] += step
    rng = np.random.default_rng(seed)
    rows = np.concatenate([rng.permutation(np.flatnonzero(codes == c))[:m] for c, m in enumerate(wanted)])
    rows = rng.permutation(rows)
    return replace(table, X=table.X[rows], y=y[rows], name=f"{table.name}, {n} of {len(y)} rows")


def frame(table: Table) -> Any:
    """A DataFrame, so that the fitted metric knows the names of its features."""
    import pandas as pd

    return pd.DataFrame(table.X, columns=table.feature_names)


def configured(row: Method, settings: list[str], seed: int) -> Any:
    """The learner with ``name=value`` settings; values are Python literals, anything else is text."""
    learner = row.make()
    known = learner.get_params()
    params = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or name not in known:
            raise Usage(f"--set {setting}: expected name=value with a parameter of {row.name}: {', '.join(known)}")
        params[name] = literal(text)
        check_setting(learner, setting, name, params[name])
    if "random_state" in known and known["random_state"] is None:
        params.setdefault("random_state", seed)
    return learner.set_params(**params)


KINDS = {"int": "a whole number", "float": "a number", "bool": "True or False", "None": "None"}


def check_setting(learner: Any, setting: str, name: str, value: Any) -> None:
    """Refuse text or a fraction for a parameter that is declared as a number or a truth value."""
    import inspect

    declared = inspect.signature(type(learner)).parameters.get(name)
    kinds = str(getattr(declared, "annotation", "")).replace("Seed", "int | None").split(" | ")
    if not set(kinds) <= KINDS.keys():
        return
    given = "None" if value is None else type(value).__name__
    if given not in kinds and not (given == "int" and "float" in kinds):
        example = name + "=" + str(getattr(learner, name))
        expected = " or ".join(KINDS[k] for k in kinds)
        raise Usage(f"--set {setting}: {name} of {type(learner).__name__} must be {expected}, such as {example}")


def literal(text: str) -> Any:
    import ast

    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def check_outputs(path: Path | None, *, table: bool = False) -> None:
    """Refuse a place that cannot be written before hours are spent on what should go there."""
    from isometry.io.atomic import atomic_write
    from isometry.io.tables import TableError, table_format

    if path is None:
        return
    if str(path) == STDOUT:
        raise Usage("this cannot be written to standard output: give the name of a file")
    with usage(OSError, TableError), contextlib.suppress(_Rehearsed):
        if table:
            table_format(path)
        with atomic_write(path):
            raise _Rehearsed


def check_apart(outputs: dict[str, Path | None], inputs: dict[str, Path | None]) -> None:
    """Refuse an output that is an input or another output, under whatever name: one of the two would be lost."""
    from isometry.core.files import same_file

    read = [(what, path) for what, path in inputs.items() if path is not None]
    written = [(option, path) for option, path in outputs.items() if path is not None and not is_stdout(path)]
    for k, (option, path) in enumerate(written):
        for what, other in read:
            if same_file(path, other):
                raise Usage(f"{option} {path} is {what} itself ({other}), which would be lost: give another name")
        for what, other in written[:k]:
            if same_file(path, other):
                raise Usage(f"{option} and {what} are one file ({path}): give two names")


def is_stdout(path: Path) -> bool:
    return str(path) in (STDOUT, "/dev/stdout")


class _Rehearsed(Exception):
    """Ends a rehearsal of writing a file, so that nothing is replaced."""
