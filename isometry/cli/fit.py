"""`isometry fit` and `isometry transform`: one metric, learned and applied."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from isometry.cli import options
from isometry.cli.app import app
from isometry.cli.inputs import (
    as_frame,
    check_distinct,
    check_writable,
    configure,
    describe_target,
    find_method,
    is_stdout,
    make_card,
    parse_prepare,
    prepared_scaler,
    read_table_or_embedded,
    supervision_of,
    told_unlabelled,
)
from isometry.cli.models import load_model, read_for
from isometry.cli.outputs import UsageError, plain, print_json, print_to_stderr, printer, usage_errors
from isometry.cli.signals import sigterm_keeps_results
from isometry.cli.views import join_view, tell_views, transform_one_view


@app.command()
def fit(
    method: options.MethodName,
    file: options.File,
    out: Annotated[Path, typer.Option("--out", "-o", help="file for the fitted metric, e.g. metric.safetensors")],
    target: options.Target = None,
    target_is: options.TargetIs = "auto",
    unlabelled: options.Unlabelled = "refuse",
    view: options.View = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="parameter as name=value; may be repeated")] = None,
    no_scale: Annotated[bool, typer.Option("--no-scale", help="leave the features as they are")] = False,
    unit: options.Unit = False,
    seed: options.Seed = 0,
    drop: options.Drop = None,
    key: options.Key = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = None,
    float32: options.Float32 = False,
    prepare: options.Prepare = "auto",
    impute: options.Impute = False,
    one_hot: options.OneHot = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="hold out a fifth of the rows in a fit of its own, and store the score")
    ] = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Fit one metric on a whole table and save it, together with the scaling of the features."""
    from sklearn.pipeline import make_pipeline

    from isometry.io import save
    from isometry.io.prepare import describe
    from isometry.normalized import Normalized
    from isometry.select import AutoMetric
    from isometry.select.inputs import make_scaler

    check_distinct({"--out": out}, {"the table": file, "the second view": view})
    name, learner = make_learner(method)
    learner = configure(learner, set_ or [], seed)
    if view is not None and unlabelled != "refuse":
        raise UsageError("--view goes row by row through two tables: leave out --unlabelled, and such rows of both")
    if target_is == "auto" and sees_numbers(learner):
        target_is = "numbers"
    if unit:
        if view is not None:
            raise UsageError("--unit would bring both views to one length together: scale each table beforehand")
        if isinstance(learner, AutoMetric):
            raise UsageError("--unit goes with one metric, not with auto: compare --unit --save chooses among several")
        learner = Normalized(learner)
    table = read_table_or_embedded(
        file,
        target,
        drop,
        key,
        delimiter,
        decimal,
        float32=float32,
        prepare=() if view else parse_prepare(prepare, impute, one_hot),
        target_is=target_is,
        unlabelled=unlabelled,
    )
    check_writable(out)
    side = supervision_of(table)
    if view is not None:
        table, views = join_view(table, view, key, delimiter, decimal)
        if isinstance(learner, AutoMetric):
            side = views
        else:
            learner = tell_views(learner, views, name)
    X = as_frame(table)
    scaler = prepared_scaler(X, "none" if no_scale else "standard")
    if isinstance(learner, AutoMetric):  # fits the scaler inside its folds
        model = learner.set_params(scaler=None if no_scale else scaler, verbose=not (quiet or as_json))
    else:
        model = learner if scaler == "none" else make_pipeline(make_scaler(scaler), learner)
    if told := describe_target(table):
        printer(quiet or as_json).print(f"note: {plain(told)}", style="dim")
    interrupted = 0  # the exit code
    if isinstance(learner, AutoMetric):
        with sigterm_keeps_results() as stopped:
            model.fit(X, side)
        interrupted = (143 if stopped else 130) * learner.comparison_.interrupted
    else:
        with usage_errors(TypeError):  # a kind of supervision that the method cannot use
            model.fit(X, side)
    quality = measured_quality(model, X, side, seed, measure)
    save(model, out, make_card(table, name, quality=quality))
    if as_json:
        facts = {"rows": len(X), "features": X.shape[1], "dimensions": model.transform(X[:1]).shape[1]}
        ended = {k: getattr(learner, f"{k}_", None) for k in ("n_iter", "stop_reason", "converged")}
        print_json({"method": name, "file": out, **facts, **ended, "quality": quality})
        raise typer.Exit(interrupted)
    console = printer(quiet)
    learned = f"auto: {learner.best_}" if isinstance(learner, AutoMetric) else learner
    console.print(
        f"{plain(learned)}: {len(X)} rows, {X.shape[1]} features → {model.transform(X[:1]).shape[1]} dimensions"
    )
    for told in (*table.notes, describe(X)):
        console.print(f"note: {plain(told)}", style="dim") if told else None
    for words in (getattr(learner, said, "") for said in ("verdict_", "reg_reason_")):
        console.print(plain(words), style="dim") if words else None
    if hasattr(learner, "stop_reason_"):
        console.print(f"{learner.n_iter_} iterations: {plain(learner.stop_reason_)}", style="dim")
    if measure:
        gains = [f"{k} {v['before']:.4f} → {v['after']:.4f}" for k, v in quality.items() if isinstance(v, dict)]
        console.print(f"{plain(', '.join(gains) or quality['not measured'])} ({plain(quality.get('on', 'no score'))})")
    console.print(f"saved: {plain(out)}")
    raise typer.Exit(interrupted)


def measured_quality(model: Any, X: Any, side: Any, seed: int, measure: bool) -> dict[str, Any]:
    """Scores before the metric and after it, on rows that it was not learned from; or that there are none, and why."""
    from sklearn.base import clone
    from sklearn.pipeline import Pipeline

    from isometry.io.model_card import quality
    from isometry.select import AutoMetric
    from isometry.spectral import Euclidean

    if isinstance(model, AutoMetric):
        found = {r.name: r.score for r in model.comparison_.results if r.score is not None}
        scores = [float(found[name].mean) for name in ("Euclidean", model.best_) if name in found]
        if len(scores) == 2:
            return {model.comparison_.scoring: _before_after(*scores), "on": "the folds it was chosen by"}
    if side is None:
        return {"not measured": "there is nothing to score it by"}
    if not measure:
        return {"not measured": "it was learned from all rows; fit --measure holds some out"}
    learn, held = held_out_rows(side, len(X), seed)
    plain_model = Pipeline([*model.steps[:-1], ("metric", Euclidean())]) if isinstance(model, Pipeline) else Euclidean()
    y = {"learn": side[learn], "held": side[held]}
    try:
        found_by = [
            quality(clone(m).fit(X.iloc[learn], y["learn"]), X.iloc[held], y["held"]) for m in (plain_model, model)
        ]
    except ValueError as error:  # some of the rows may be too few
        return {"not measured": f"a fifth of the rows could not be held out: {error}"}
    both = {name: _before_after(*(found[name] for found in found_by)) for name in found_by[0]}
    return {**both, "on": f"{len(held)} rows held out, learned from the {len(learn)} others"}


def _before_after(before: float, after: float) -> dict[str, float]:
    return {"before": round(before, 6), "after": round(after, 6)}


def held_out_rows(side: Any, n: int, seed: int) -> tuple[Any, Any]:
    """Four fifths of the rows, and one: of each class, where there are classes."""
    import numpy as np
    from sklearn.model_selection import train_test_split

    classes = side if isinstance(side, np.ndarray) else None
    if classes is not None:
        counts = np.unique(classes, return_counts=True)[1]
        if counts.min() < 2 or n // 5 < len(counts):
            classes = None
    learn, held = train_test_split(np.arange(n), test_size=0.2, random_state=seed, stratify=classes)
    return np.sort(learn), np.sort(held)


def sees_numbers(learner: Any) -> bool:
    """Whether a learner takes an array for numbers to predict."""
    from isometry.supervision import Targets

    return Targets in getattr(learner, "_sees", ())


def make_learner(method: str) -> tuple[str, Any]:
    """Name and estimator of a method, or the one that chooses for itself."""
    from isometry.select import AutoMetric

    if method.strip().lower() in ("auto", "autometric"):
        return "AutoMetric", AutoMetric()
    row = find_method(method)
    if row.kind != "estimator":
        raise UsageError(f"{row.name} is a {row.kind}, not an estimator: it cannot be fitted to a table by itself")
    return row.name, row.make()


@app.command()
def transform(
    model: Annotated[Path, typer.Argument(help="file written by fit or compare --save", show_default=False)],
    file: options.File,
    out: Annotated[Path, typer.Option("--out", "-o", help="csv, tsv, parquet, npy or npz file to write; - prints csv")],
    target: Annotated[str | None, typer.Option("--target", "-y", help="column to carry along unchanged")] = None,
    unlabelled: options.Unlabelled = "refuse",
    backbone: options.Backbone = None,
    view: Annotated[
        str | None, typer.Option(help="first or second: the file holds that view alone, of a metric between two")
    ] = None,
    drop: options.Drop = None,
    key: options.Key = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = None,
    float32: options.Float32 = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Map rows into the space where the learned distance is Euclidean."""
    from isometry.io import write_table

    check_distinct({"--out": out}, {"the table": file, "the model": model})
    metric = load_model(model, backbone)
    if not is_stdout(out):
        check_writable(out, table=True)
    reading = {"target": target, "drop": drop, "key": key, "delimiter": delimiter, "decimal": decimal}
    reading["unlabelled"] = unlabelled
    if view is not None:
        table, Z = transform_one_view(metric, model, file, view, **reading, float32=float32)
    else:
        table = read_for(metric, model, file, **reading, float32=float32)
        known = getattr(metric, "feature_names_in_", None)
        Z = metric.transform(as_frame(table) if known is not None else table.X)
    write_table(sys.stdout if is_stdout(out) else out, Z, y=table.y, target=table.target_name or "y")
    done = "; ".join([f"{len(Z)} rows, {Z.shape[1]} dimensions", *told_unlabelled(table)])
    if as_json and not is_stdout(out):
        print_json({"file": out, "rows": len(Z), "dimensions": Z.shape[1]})
    elif is_stdout(out) and not quiet:
        print_to_stderr(done)
    elif not is_stdout(out):
        printer(quiet).print(f"{done}: {plain(out)}")
