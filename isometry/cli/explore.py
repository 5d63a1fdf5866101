"""`isometry explore`: look at the space of a metric, point by point."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isometry.cli import options
from isometry.cli.app import app
from isometry.cli.fit import make_learner
from isometry.cli.inputs import (
    as_frame,
    check_page,
    configure,
    parse_prepare,
    prepared_scaler,
    read_table_or_embedded,
    told_unlabelled,
)
from isometry.cli.models import load_model, read_for
from isometry.cli.outputs import UsageError, plain, print_json, printer, usage_errors
from isometry.cli.train import find_image_shape

if TYPE_CHECKING:
    import numpy as np

    from isometry.io import Table
    from isometry.report.explorer import Shown, Space

METHODS = "GMML,FisherML,LMNN"
HELD_OUT = 0.3  # share of the rows that is shown where metrics are learned here


@app.command()
def explore(
    file: options.File,
    target: options.Target = None,
    unlabelled: options.Unlabelled = "refuse",
    model: Annotated[
        list[Path] | None, typer.Option(help="saved metric to look at; may be repeated. Without one, --methods")
    ] = None,
    methods: Annotated[
        str, typer.Option(help="methods to learn from 70 % of the rows; the others are shown")
    ] = METHODS,
    show: Annotated[str | None, typer.Option(help="column of text to show with each row; no feature")] = None,
    image_shape: Annotated[
        str | None, typer.Option(help="rows are images of this shape, e.g. 28x28 or 3x32x32; an npz file may say so")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="write the page to this html file; serve nothing")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="of 127.0.0.1; 0: any that is free")] = 0,
    points: Annotated[int, typer.Option(min=10, help="rows that are shown, at most")] = 1500,
    seed: options.Seed = 0,
    drop: options.Drop = None,
    key: options.Key = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = None,
    prepare: options.Prepare = "auto",
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Open a page with the space before and after: click a point, see its neighbours and why they are near."""
    from isometry.report.explorer import explorer_data, write_explorer

    given = {f"--model {k}": path for k, path in enumerate(model or [])}
    out = check_page("--out", out, {}, {"the table": file, **given})
    left_out = ",".join(name for name in (drop, show) if name) or None
    if model:
        loaded = [load_model(path) for path in model]
        table = read_for(loaded[0], model[0], file, target, left_out, key, delimiter, decimal, unlabelled=unlabelled)
        for path, other in zip(model[1:], loaded[1:], strict=True):
            if other.n_features_in_ != loaded[0].n_features_in_:
                raise UsageError(f"{path} takes {other.n_features_in_} features, {model[0]} {loaded[0].n_features_in_}")
        fitted = list(zip([path.stem for path in model], loaded, strict=True))
        rows, notes = (
            _draw(len(table.X), points, seed),
            ["The rows of the table, under metrics that were saved before."],
        )
    else:
        table = read_table_or_embedded(
            file,
            target,
            left_out,
            key,
            delimiter,
            decimal,
            labels_for="a metric",
            prepare=parse_prepare(prepare, False, False),
            unlabelled=unlabelled,
        )
        fitted, rows, notes = _learn(table, methods, points, seed)
    notes += told_unlabelled(table)
    text = None if show is None else _texts(file, show, delimiter, table)
    shape = find_image_shape(file, image_shape, table)
    with usage_errors(ValueError):
        shown, spaces = _spaces(table, fitted, rows, text, shape, notes)
        data = explorer_data(shown, spaces, table.name)
    if out is not None:
        written = write_explorer(data, out)
        print_json({"file": written, "rows": len(rows)}) if as_json else printer(quiet).print(f"page: {plain(written)}")
        return
    _serve(data, shown, spaces, port, as_json)


def _serve(data: dict[str, Any], shown: Shown, spaces: list[Space], port: int, as_json: bool) -> None:
    from isometry.cli.page_server import PageServer
    from isometry.report.explorer import explorer_page, shares_of_pair

    def answer(question: dict[str, str]) -> dict[str, Any]:
        space = spaces[_number(question, "space", len(spaces))]
        i, j = (_number(question, name, len(shown.X)) for name in "ij")
        return {"shares": shares_of_pair(space, shown, i, j)}

    try:
        server = PageServer(lambda nonce, ask: explorer_page(data, nonce=nonce, ask=ask), answer, port)
    except OSError as error:
        raise UsageError(f"--port {port} cannot be used ({error.strerror}): choose another, or 0 for any") from error
    with server:
        if as_json:
            print_json({"address": server.address, "rows": len(shown.X)})
        else:
            printer().print(f"open {plain(server.address)} in a browser; Ctrl-C ends it")
        server.serve_forever()


def _number(question: dict[str, str], name: str, most: int) -> int:
    text = question.get(name, "")
    if not text.isdecimal() or int(text) >= most:
        raise ValueError(f"{name} must be a number below {most}, got {text!r}")
    return int(text)


def _draw(n: int, most: int, seed: int) -> np.ndarray:
    import numpy as np

    if n < 3:
        raise UsageError(f"there are {n} rows to show: at least 3 are needed")
    return np.sort(np.random.default_rng(seed).permutation(n)[:most])


def _learn(table: Table, methods: str, most: int, seed: int) -> tuple[list[tuple[str, Any]], np.ndarray, list[str]]:
    """Metrics learned from a part of the rows, by name, and the rows of the other part."""
    import numpy as np
    from sklearn.model_selection import train_test_split
    from sklearn.pipeline import make_pipeline

    from isometry.select.inputs import choose_scaler, make_scaler, take_rows
    from isometry.supervision import Labels

    X, codes = as_frame(table), Labels(table.y).codes
    stratify = codes if np.bincount(codes).min() > 1 and HELD_OUT * len(X) >= codes.max() + 1 else None
    train, held = train_test_split(np.arange(len(X)), test_size=HELD_OUT, random_state=seed, stratify=stratify)
    wanted = prepared_scaler(X, "auto")
    scaler = choose_scaler(wanted, table.X, "closed")[0] if isinstance(wanted, str) else wanted
    fitted = []
    for name in (part.strip() for part in methods.split(",")):
        title, learner = make_learner(name)
        fitted.append((title, make_pipeline(make_scaler(scaler), configure(learner, [], seed))))
    with usage_errors(ValueError, TypeError):
        for _, pipeline in fitted:
            pipeline.fit(take_rows(X, train), codes[train])
    note = f"The metrics were learned from {len(train)} rows; those shown are of the other {len(held)}."
    return fitted, held[_draw(len(held), most, seed)], [note]


def _spaces(
    table: Table,
    fitted: list[tuple[str, Any]],
    rows: np.ndarray,
    text: list[str] | None,
    shape: tuple[int, ...] | None,
    notes: list[str],
) -> tuple[Shown, list[Space]]:
    """The rows as numbers, the space before and those of the metrics."""
    import numpy as np

    from isometry.explanation import feature_names, numbers_only, plain_map
    from isometry.report.explorer import Shown, Space
    from isometry.select.inputs import take_rows

    X = take_rows(as_frame(table), rows)
    spaces: list[Space] = []
    names, numbers = [], np.zeros((0, 0))
    for title, model in fitted:
        front, rest, numbers = numbers_only(model, X)
        names = feature_names(None, front, X, numbers.shape[1])
        if not spaces:
            before = rest[:-1] if hasattr(rest, "steps") and len(rest) > 1 else None
            spaces.append(Space("Euclidean", np.asarray if before is None else plain_map(before)))
        spaces.append(Space(title, plain_map(rest)))
    images = None if shape is None else (np.asarray(take_rows(table.X, rows), dtype=np.float64), shape)
    y = None if table.y is None else np.asarray(table.y)[rows]
    texts = None if text is None else [text[r] for r in rows]
    return Shown(numbers, names, rows if table.rows is None else table.rows[rows], y, texts, images, notes), spaces


def _texts(file: Path, column: str, delimiter: str | None, table: Table) -> list[str]:
    """A column of a table, or an array of an npz file, as text for each row."""
    import numpy as np

    from isometry.io import TableError
    from isometry.io.tables import read_columns

    with usage_errors(TableError, OSError):
        if file.suffix.lower() == ".npz":
            with np.load(file, allow_pickle=False) as arrays:
                if column not in arrays.files:
                    raise UsageError(f"--show {column}: {file} has no such array; it has {', '.join(arrays.files)}")
                found = [str(value) for value in arrays[column].ravel()]
        else:
            found = read_columns(file, [column], delimiter=delimiter)[column]
    n = len(table.X)
    if table.rows is not None and table.rows[-1] < len(found):
        return [found[r] for r in table.rows]
    if len(found) != n:
        raise UsageError(f"--show {column} has {len(found)} entries, but there are {n} rows")
    return found
