"""The command line: list, info, compare, fit, transform.

Exit codes: 0 done, 1 failed at run time, 2 wrong usage (unknown method, missing file or column), 130 interrupted.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

try:
    import typer
    from rich.console import Console
    from typer.core import TyperGroup
except ImportError as missing:
    raise SystemExit(f'the isometry command needs {missing.name}: pip install "isometry[cli]"') from None

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from isometry.eval import Interval
    from isometry.io import Table
    from isometry.registry import Method
    from isometry.select import Comparison

EXTRAS = {"torch": "deep", "accelerate": "deep", "onnx": "export", "faiss": "index", "dask": "dask"}
EMBEDDED = {"wine": "cultivar", "iris": "species", "breast_cancer": "diagnosis", "digits": "digit"}  # and labels
MARKS = {"better": "[green]better[/]", "worse": "[red]worse[/]", "unclear": "[dim]unclear[/]"}
EVERYWHERE = {  # parameters that mean the same in every method, which docstrings therefore pass over
    "max_iter": "iterations at most",
    "tol": "relative change or gradient below which the search ends",
    "random_state": "seed of what is random",
    "verbose": "show a progress bar",
}
WIDE = 100  # columns of a terminal that has room for a fourth digit
UNBOUNDED = 10_000  # columns: a pipe has no edge at which lines must break


class Usage(Exception):
    """The command cannot be carried out as it was given."""


class Group(TyperGroup):
    """Turns what goes wrong into one line on stderr and an exit code; ``--debug`` lets the traceback through."""

    def invoke(self, ctx: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = lambda message, *_, **__: _say(f"warning: {message}")
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt as stop:
                _say(str(stop) or "interrupted")
                raise typer.Exit(130) from None
            except Exception as error:
                if hasattr(error, "exit_code") or isinstance(error, (typer.Abort, BrokenPipeError)):
                    raise  # typer's business
                if ctx.params.get("debug"):
                    raise
                _say(f"error: {_explain(error)}")
                raise typer.Exit(2 if isinstance(error, Usage) else 1) from None


app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Metric learning: compare learned metrics with Euclidean distance, fit one, transform data with it.",
)


def main() -> None:
    """Entry point of the console script."""
    app()


def _show_version(wanted: bool) -> None:
    if wanted:
        from isometry import __version__

        typer.echo(f"isometry {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    pass


File = Annotated[Path, typer.Argument(help="csv, tsv, parquet, npy or npz file", show_default=False)]
Target = Annotated[str | None, typer.Option("--target", "-y", help="column of labels; in npz the array `y` by default")]
Drop = Annotated[str | None, typer.Option(help="columns to leave out, separated by commas")]
Key = Annotated[str | None, typer.Option(help="array of features in an npz file, `X` by default")]
Seed = Annotated[int, typer.Option(help="seed of everything random")]
Single = Annotated[bool, typer.Option("--float32", help="work in 32 bits: half the memory, for large embeddings")]


@app.command("list")
def list_methods(
    family: Annotated[str | None, typer.Option(help="spectral, geometric, kernel, probabilistic or deep")] = None,
    sees: Annotated[str | None, typer.Option(help="kind of supervision: labels, pairs, triplets, none, …")] = None,
) -> None:
    """Show the methods there are."""
    from isometry.registry import METHODS, all_methods

    with _usage(ValueError):
        rows = all_methods(family=family, sees=sees)
    if not rows:
        kinds = sorted({s for m in METHODS for s in m.sees.replace(",", " ").split()})
        raise Usage(f"no method sees {sees!r} in this family; kinds of supervision are {', '.join(kinds)}")
    table = _table("key", "name", "family", "sees", "title")
    for m in rows:
        table.add_row(*map(_plain, (m.key, m.name, m.family, m.sees, m.title)))
    _console().print(table)


@app.command()
def info(method: Annotated[str, typer.Argument(help="name or key, e.g. LMNN or M11", show_default=False)]) -> None:
    """Show a method's equation, parameters, reference, and where it departs from the survey."""
    from isometry.registry import METHODS

    row = _method(method)
    rows = [m for m in METHODS if m.name == row.name] if method.strip().lower() == row.name.lower() else [row]
    console = _console()
    for m in rows:
        console.print(f"[bold]{_plain(m.name)}[/] ({m.key})  {_plain(m.title)}")
        console.print(f"{m.family} {m.kind}; learns from {_plain(m.sees)}; survey: {_plain(m.section)}", style="dim")
        for head, text in (
            ("Problem", m.equation),
            ("Reference", m.cite),
            ("Departs from the survey", m.deviates or "nowhere"),
        ):
            console.print(f"\n[bold]{head}[/]\n{_plain(text)}")
        console.print("\n[bold]Parameters[/]")
        console.print(_parameter_table(m))


@app.command()
def compare(
    file: Annotated[
        Path | None,
        typer.Argument(help="csv, tsv, parquet or npz file; or wine, iris, breast_cancer, digits (default: wine)"),
    ] = None,
    target: Target = None,
    methods: Annotated[str, typer.Option(help="names separated by commas, or all, fast, or a family")] = "all",
    protocol: Annotated[str, typer.Option(help="closed: new points of known classes; open: of new classes")] = "closed",
    scoring: Annotated[str | None, typer.Option(help="knn, recall@1, map@r, r_precision or pair_auc")] = None,
    neighbors: Annotated[int, typer.Option("--neighbors", "-k", help="neighbours that vote in scoring `knn`")] = 3,
    folds: Annotated[int, typer.Option(help="folds of the cross-validation")] = 5,
    repeats: Annotated[int, typer.Option(help="repeats of it with other folds")] = 1,
    tune: Annotated[
        bool, typer.Option("--tune", help="search a small parameter grid inside each training fold")
    ] = False,
    scaler: Annotated[str, typer.Option(help="standard, minmax, robust, normalize or none")] = "standard",
    jobs: Annotated[int, typer.Option(help="processes; -1 for all cores")] = 1,
    seed: Seed = 0,
    sample: Annotated[int | None, typer.Option(help="compare on this many rows, drawn evenly from the classes")] = None,
    drop: Drop = None,
    key: Key = None,
    float32: Single = False,
    report: Annotated[Path | None, typer.Option(help="folder or .html file for the report page")] = None,
    save: Annotated[Path | None, typer.Option(help="file for the best metric, fitted on all rows")] = None,
) -> None:
    """Say, with intervals, whether a learned metric beats Euclidean distance on held-out data."""
    from isometry.select import compare as run

    if file is not None and target is None and file.is_file() and file.suffix.lower() != ".npz":
        raise Usage(f"a comparison needs labels: name their column in {file} with --target")
    embedded = file is None or (str(file) in EMBEDDED and not file.exists())
    table = _embedded(str(file or "wine"), target) if embedded else _read(cast(Path, file), target, drop, key, float32)
    if table.y is None:
        raise Usage(f"a comparison needs labels: {file} holds no array y; name it with --target")
    if sample is not None:
        table = _sample(table, sample, seed)
    _check_outputs(save)
    if report is not None:
        from isometry.report.html import report_file, write_report

        with _usage(OSError):
            report = report_file(report)
        _check_outputs(report)
    X, console = _frame(table), _console()
    console.print(
        f"{_plain(table.name)}: {len(X)} rows, {X.shape[1]} features, labels {_plain(table.target_name)}", style="dim"
    )
    with _usage(ValueError, TypeError):
        outcome = run(
            X,
            table.y,
            [name for name in methods.split(",") if name.strip()],
            protocol=cast(Any, protocol),  # checked by compare itself
            scoring=scoring,
            n_neighbors=neighbors,
            n_splits=folds,
            n_repeats=repeats,
            tune="default" if tune else None,
            scaler=scaler,
            n_jobs=jobs,
            random_state=seed,
            verbose=sys.stderr.isatty(),
            name=table.name,
        )
    console.print(_comparison_table(outcome, console.width))
    failed = [f"{r.name} failed: {r.failures[0]}" for r in outcome.results if r.score is None and r.failures]
    for note in failed + outcome.notes:
        console.print(f"note: {_plain(note)}", style="dim")
    console.print(f"\n[bold]{_plain(outcome.verdict)}[/]")
    if report is not None:
        console.print(f"report: {_plain(write_report(outcome, report, X=X, y=table.y))}")
    if save is not None and outcome.best_estimator is None:
        _say("warning: nothing was saved, since no metric was fitted on all rows")
    elif save is not None:
        from isometry.io import save as store

        store(outcome.best_estimator, save)
        console.print(f"saved {_plain(type(outcome.best_estimator[-1]).__name__)}, fitted on all rows: {_plain(save)}")
    if outcome.interrupted:
        raise typer.Exit(130)


@app.command()
def fit(
    method: Annotated[str, typer.Argument(help="name or key, e.g. LMNN or M11", show_default=False)],
    file: File,
    out: Annotated[Path, typer.Option("--out", "-o", help="file for the fitted metric, e.g. metric.safetensors")],
    target: Target = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="parameter as name=value; may be repeated")] = None,
    no_scale: Annotated[bool, typer.Option("--no-scale", help="leave the features as they are")] = False,
    seed: Seed = 0,
    drop: Drop = None,
    key: Key = None,
    float32: Single = False,
) -> None:
    """Fit one metric on a whole table and save it, together with the scaling of the features."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from isometry.io import save

    row = _method(method)
    if row.kind != "estimator":
        raise Usage(f"{row.name} is a {row.kind}, not an estimator: it cannot be fitted to a table by itself")
    learner = _configured(row, set_ or [], seed)
    table = _read(file, target, drop, key, float32)
    _check_outputs(out)
    model = learner if no_scale else make_pipeline(StandardScaler(), learner)
    X = _frame(table)
    model.fit(X, table.y)
    save(model, out)
    console = _console()
    console.print(
        f"{_plain(learner)}: {len(X)} rows, {X.shape[1]} features → {model.transform(X[:1]).shape[1]} dimensions"
    )
    if hasattr(learner, "stop_reason_"):
        console.print(f"{learner.n_iter_} iterations: {_plain(learner.stop_reason_)}", style="dim")
    console.print(f"saved: {_plain(out)}")


@app.command()
def transform(
    model: Annotated[Path, typer.Argument(help="file written by fit or compare --save", show_default=False)],
    file: File,
    out: Annotated[Path, typer.Option("--out", "-o", help="csv, tsv, parquet, npy or npz file to write")],
    target: Annotated[str | None, typer.Option("--target", "-y", help="column to carry along unchanged")] = None,
    drop: Drop = None,
    key: Key = None,
    float32: Single = False,
) -> None:
    """Map rows into the space where the learned distance is Euclidean."""
    from isometry.io import load, write_table

    with _usage(FileNotFoundError, IsADirectoryError, ValueError):
        metric = load(model)
    known = getattr(metric, "feature_names_in_", None)
    table = _read(file, target, drop, key, float32, features=None if known is None else list(known))
    _check_outputs(out, table=True)
    if table.X.shape[1] != metric.n_features_in_:
        raise Usage(
            f"{model} was fitted on {metric.n_features_in_} features; {file} has {table.X.shape[1]}: see --drop"
        )
    Z = metric.transform(_frame(table) if known is not None else table.X)
    write_table(out, Z, y=table.y, target=table.target_name or "y")
    _console().print(f"{len(Z)} rows, {Z.shape[1]} dimensions: {_plain(out)}")


# ------------------------------------------------------------------------------------------------------ input


@contextlib.contextmanager
def _usage(*kinds: type[Exception]) -> Iterator[None]:
    """Errors of these kinds, raised inside, are the caller's."""
    try:
        yield
    except kinds as error:
        raise Usage(_explain(error)) from error


def _method(name: str) -> Method:
    from isometry.registry import get

    with _usage(KeyError):
        return get(name)


def _read(file: Path, target, drop: str | None, key, float32: bool, features: list[str] | None = None) -> Table:
    from isometry.io import TableError, read_table

    dropped = [c.strip() for c in drop.split(",")] if drop else None
    with _usage(FileNotFoundError, IsADirectoryError, TableError):
        return read_table(
            file, target, drop=dropped, features=features, key=key, dtype="float32" if float32 else "float64"
        )


def _embedded(name: str, target: str | None) -> Table:
    """A data set that comes with scikit-learn."""
    from sklearn import datasets

    from isometry.io import Table

    if target is not None:
        raise Usage(f"--target names a column of a file, but {name} is embedded and knows its labels")
    data = getattr(datasets, f"load_{name}")()
    return Table(data.data, data.target_names[data.target], list(data.feature_names), EMBEDDED[name], name)


def _sample(table: Table, n: int, seed: int) -> Table:
    """n rows, with the classes in proportion as far as that can be."""
    from dataclasses import replace

    from sklearn.model_selection import train_test_split

    if not 2 <= n <= len(table.X):
        raise Usage(f"--sample {n} must be between 2 and the number of rows, {len(table.X)}")
    if n == len(table.X):
        return table
    with _usage(ValueError):
        X, _, y, _ = train_test_split(table.X, table.y, train_size=n, stratify=table.y, random_state=seed)
    return replace(table, X=X, y=y, name=f"{table.name}, {n} of {len(table.X)} rows")


def _frame(table: Table) -> Any:
    """A DataFrame, so that the fitted metric knows the names of its features."""
    import pandas as pd

    return pd.DataFrame(table.X, columns=table.feature_names)


def _configured(row: Method, settings: list[str], seed: int) -> Any:
    """The learner with ``name=value`` settings; values are Python literals, anything else is text."""
    learner = row.make()
    known = learner.get_params()
    params = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or name not in known:
            raise Usage(f"--set {setting}: expected name=value with a parameter of {row.name}: {', '.join(known)}")
        params[name] = _literal(text)
    if "random_state" in known and known["random_state"] is None:
        params.setdefault("random_state", seed)
    return learner.set_params(**params)


def _literal(text: str) -> Any:
    import ast

    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _check_outputs(path: Path | None, *, table: bool = False) -> None:
    """Refuse a place that cannot be written before hours are spent on what should go there."""
    from isometry.io.atomic import replacing
    from isometry.io.tables import TableError, table_format

    if path is None:
        return
    with _usage(OSError, TableError), contextlib.suppress(_Rehearsed):
        if table:
            table_format(path)
        with replacing(path):
            raise _Rehearsed


class _Rehearsed(Exception):
    """Ends a rehearsal of writing a file, so that nothing is replaced."""


# ------------------------------------------------------------------------------------------------------ output


def _console() -> Console:
    """Prints to stdout: in colour and to the width of a terminal, plain and unbroken into a pipe."""
    return Console(width=None if sys.stdout.isatty() else UNBOUNDED, highlight=False, soft_wrap=False)


def _say(text: str) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True).print(text, markup=False)


def _explain(error: BaseException) -> str:
    if isinstance(error, ImportError) and error.name in EXTRAS:
        return f'{error.name} is not installed: pip install "isometry[{EXTRAS[error.name]}]"'
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return text or type(error).__name__


def _plain(value: Any) -> str:
    """Text in which brackets are brackets, not markup."""
    from rich.markup import escape

    return escape(" ".join(str(value).split()))


def _table(*heads: str, right: tuple[str, ...] = (), whole: tuple[str, ...] = ("key", "name")) -> RichTable:
    """A table whose ``right`` and ``whole`` columns are never broken; the others fold where the terminal is narrow."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable

    table = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for head in heads:
        justify: Any = "right" if head in right else "left"
        table.add_column(head, justify=justify, no_wrap=head in right or head in whole, overflow="fold")
    return table


def _comparison_table(outcome: Comparison, width: int) -> RichTable:
    digits = 4 if width >= WIDE else 3
    score, gap = f"{outcome.scoring}, {100 * outcome.level:g} % interval", "− Euclidean"
    table = _table("metric", score, gap, "verdict", "fit s", right=(score, gap, "fit s"), whole=("verdict",))
    for r in outcome.results:
        name = f"[bold]{_plain(r.name)}[/]" if r.name == outcome.best else _plain(r.name)
        if r.score is None:
            table.add_row(name, "", "", "[red]failed[/]" if r.failures else "not run", "")
            continue
        verdict = MARKS.get(r.reliable, "") + ("" if r.complete else " …")
        gap = _interval(r.difference, f"+.{digits}f") if r.difference else ""
        table.add_row(name, _interval(r.score, f".{digits}f"), gap, verdict, f"{r.fit_seconds:.{digits - 1}f}")
    return table


def _interval(value: Interval, form: str) -> str:
    return f"{value.mean:{form}} \\[{value.low:{form}}, {value.high:{form}}]"


def _parameter_table(row: Method) -> RichTable:
    import inspect

    target = row.load()
    texts = _parameter_docs(inspect.getdoc(target) or "")
    table = _table("name", "default", "meaning")
    for p in inspect.signature(target).parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            continue
        default = row.params.get(p.name, p.default)
        shown = "required" if default is p.empty else repr(default)
        text = texts.get(p.name, "")
        text = EVERYWHERE.get(p.name, text) if text in ("", "as everywhere") else text
        table.add_row(_plain(p.name), _plain(shown), _plain(text))
    return table


def _parameter_docs(doc: str) -> dict[str, str]:
    """Parameter → text, from the section of a docstring whose entries read ``a, b : text`` and go on indented."""
    lines = iter(doc.splitlines())
    for line in lines:
        if line.strip() == "Parameters":
            next(lines, None)  # the rule below the heading
            break
    docs: dict[str, str] = {}
    names: list[str] = []
    for line in lines:
        if not line.strip():
            break
        if line.startswith(" "):
            text = line
        else:
            head, _, text = line.partition(" : ")
            names = [name.strip() for name in head.split(",")]
        for name in names:
            docs[name] = f"{docs.get(name, '')} {text.strip()}".strip()
    return docs


if __name__ == "__main__":
    main()
