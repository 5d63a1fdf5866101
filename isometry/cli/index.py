"""`isometry index build` and `isometry index query`: search by a metric."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isometry.cli import options
from isometry.cli.app import app
from isometry.cli.inputs import as_frame, check_distinct, check_frame, check_writable, is_stdout, make_card, read_file
from isometry.cli.models import load_model, read_for
from isometry.cli.outputs import (
    UsageError,
    make_table,
    plain,
    print_json,
    printer,
    shows_progress,
    usage_errors,
    write_frame,
)

if TYPE_CHECKING:
    import pandas as pd

    from isometry.io import Table

SHOWN = 10  # queries that are printed

group = typer.Typer(no_args_is_help=True, help="Search by a metric: build an index of rows, and query it.")
app.add_typer(group, name="index")

Ids = Annotated[
    str | None, typer.Option("--id", "--ids", help="column that names the rows; by default their numbers, from 0")
]


@group.command()
def build(
    file: options.File,
    out: Annotated[Path, typer.Option("--out", "-o", help="file for the index, e.g. items.index.safetensors")],
    model: Annotated[Path | None, typer.Option(help="saved metric that maps the rows; it is kept in the index")] = None,
    metric: Annotated[str, typer.Option(help="without --model, for embeddings: euclidean or cosine")] = "euclidean",
    ids: Ids = None,
    engine: Annotated[str, typer.Option(help="exact, or of FAISS: faiss-flat, faiss-ivf, faiss-hnsw")] = "exact",
    quantizer: Annotated[
        str | None, typer.Option("--quantizer", "--quantize", help="keep short codes: float16, int8 or binary")
    ] = None,
    drop: options.Drop = None,
    key: options.Key = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Build an index of the rows of a table, under their ids."""
    from isometry.io.model_card import outline
    from isometry.search import Index

    check_distinct({"--out": out}, {"the table": file, "the model": model})
    check_writable(out)
    by: Any = metric if model is None else load_model(model)
    table = _read(by, model, file, ids, drop, key, delimiter, decimal)
    index = Index(by, engine=engine, quantizer=quantizer, verbose=shows_progress(quiet, as_json))  # type: ignore[arg-type]
    with usage_errors(ValueError, TypeError):
        index.fit(_rows(table, by), ids=table.y if ids else None)
    index.verbose = False
    name = outline(by)
    named = model is None and not _are_places(table.feature_names)  # a metric knows its own columns
    index.save(out, make_card(table, f"index by {name}", **({"columns": table.feature_names} if named else {})))
    facts = {"rows": len(index), "features": index.n_features_in_, "dimensions": index.embeddings_.shape[1]}
    if as_json:
        print_json({"file": out, "metric": name, "engine": engine, "quantizer": quantizer, **facts})
        return
    printer(quiet).print(f"{len(index)} rows by {plain(name)}, {plain(engine)}: {plain(out)}")


@group.command()
def query(
    index_file: Annotated[Path, typer.Argument(help="file written by index build", show_default=False)],
    file: options.File,
    neighbors: Annotated[int, typer.Option("--neighbors", "-k", help="neighbours of each row")] = 10,
    threshold: Annotated[
        float | None, typer.Option(help="in place of -k: all within this distance, or of at least this cosine")
    ] = None,
    ids: Ids = None,
    model: Annotated[Path | None, typer.Option(help="saved metric that the index must be of; else an error")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="csv, tsv or parquet file for all neighbours; - prints csv")
    ] = None,
    drop: options.Drop = None,
    key: options.Key = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Find the rows of an index that are nearest to the rows of a table."""
    import numpy as np

    from isometry.io import read_card
    from isometry.search import Index

    check_distinct({"--out": out}, {"the table": file, "the index": index_file, "the model": model})
    check_frame(out)
    with usage_errors(FileNotFoundError, IsADirectoryError, ValueError):
        index = Index.load(index_file, metric=None if model is None else load_model(model))
    table = _read(index.metric, index_file, file, ids, drop, key, delimiter, decimal)
    if isinstance(index.metric, str):
        table = _in_order(table, read_card(index_file).get("columns"), index_file, file)
    index.verbose = shows_progress(quiet, as_json)
    X, names = _rows(table, index.metric), np.arange(len(table.X)) if ids is None else np.asarray(table.y)
    with usage_errors(ValueError):
        if threshold is None:
            found = index.search(X, neighbors)
            rows = np.repeat(np.arange(len(names)), neighbors)
            near, scores = found.ids.ravel(), found.scores.ravel()
        else:
            rows, near, scores = index.within(X, threshold)
    frame = _frame(names, rows, near, scores)
    if out is not None:
        write_frame(frame, out)
    if as_json and not (out is not None and is_stdout(out)):
        print_json({"index": index_file, "queries": len(names), "found": len(frame), "file": out,
                    "neighbors": [] if out is not None else frame.to_dict("records")})  # fmt: skip
    elif out is None:
        _show(frame, len(names), index.metric == "cosine" if isinstance(index.metric, str) else False, quiet)
    elif not is_stdout(out):
        printer(quiet).print(f"{len(frame)} neighbours of {len(names)} rows: {plain(out)}")


def _read(
    metric: Any,
    metric_file: Path | None,
    file: Path,
    ids: str | None,
    drop: str | None,
    key: str | None,
    delimiter: str | None,
    decimal: str | None,
) -> Table:
    from isometry.io.columns import MissingLabels

    try:
        if isinstance(metric, str) or metric_file is None:
            return read_file(file, ids, drop, key, delimiter, decimal, float32=True)
        return read_for(metric, metric_file, file, ids, drop, key, delimiter, decimal)
    except UsageError as error:
        if isinstance(error.__cause__, MissingLabels):
            raise UsageError(f"--id {ids}: {file} has {error.__cause__.gaps('id')}: every row needs one") from error
        raise


def _are_places(names: list[str]) -> bool:
    """Whether these are the names that columns without names are given."""
    return names == [f"x{k}" for k in range(len(names))]


def _in_order(table: Table, columns: Any, index_file: Path, file: Path) -> Table:
    """The columns of the index, by name; of a table that has none of its names, by place."""
    from dataclasses import replace

    if not isinstance(columns, list):
        return table
    here = {name: k for k, name in enumerate(table.feature_names)}
    missing = [name for name in columns if name not in here]
    if len(missing) == len(columns):
        return table
    if missing:
        raise UsageError(
            f"{index_file} was built of columns that {file} lacks: {', '.join(missing[:5])}"
            + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        )
    return replace(table, X=table.X[:, [here[name] for name in columns]], feature_names=columns)


def _rows(table: Table, metric: Any) -> Any:
    """The rows as the metric knows them: by name, if it was fitted so."""
    return as_frame(table) if hasattr(metric, "feature_names_in_") else table.X


def _frame(names: Any, rows: Any, near: Any, scores: Any) -> pd.DataFrame:
    """One line for each neighbour: the query, its rank, id and score."""
    import numpy as np
    import pandas

    first = np.searchsorted(rows, rows)  # rows ascend
    return pandas.DataFrame(
        {"query": names[rows], "rank": np.arange(len(rows)) - first + 1, "id": near, "score": scores}
    )


def _show(frame: pd.DataFrame, n_queries: int, cosine: bool, quiet: bool) -> None:
    console = printer(quiet)
    table = make_table("query", "nearest first", "cosine" if cosine else "distance", right=(), whole=("query",))
    shown = frame.groupby("query", sort=False)
    for name, part in list(shown)[:SHOWN]:
        cells = ", ".join(map(str, part["id"])), ", ".join(f"{s:.4g}" for s in part["score"])
        table.add_row(plain(name), *map(plain, cells))
    console.print(table)
    if n_queries > SHOWN:
        console.print(f"{n_queries} rows were asked about; --out FILE writes all, --json prints them", style="dim")
