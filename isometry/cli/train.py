"""`isometry train`: a network for a table or for images, trained, watched, saved, and compared."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections import Counter
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isometry.cli import options
from isometry.cli.app import app
from isometry.cli.code import is_code, is_library, load_factory
from isometry.cli.config import parse_settings, read_config
from isometry.cli.inputs import (
    as_frame,
    draw_sample,
    is_embedded,
    make_card,
    parse_value,
    read_table_or_embedded,
)
from isometry.cli.outputs import (
    UsageError,
    interval_text,
    make_table,
    plain,
    print_json,
    printer,
    process_number,
    resumable,
    usage_errors,
)

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from rich.console import Console
    from rich.table import Table as RichTable

    from isometry.cli.run_folder import RunFolder
    from isometry.deep import DeepMetric, Trainer
    from isometry.io import Table
    from isometry.select.network import MapScore

BACKBONES = ("auto", "linear", "mlp", "conv")


@app.command()
def train(
    file: Annotated[
        Path,
        typer.Argument(
            help="csv, tsv, parquet, npy or npz file; a folder with a sub-folder of images for each class",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="folder for checkpoints, model, history and report")],
    target: options.Target = None,
    loss: Annotated[
        str,
        typer.Option(help='a loss, with its parameters if wanted: "Triplet(margin=0.3)"; see `isometry info Triplet`'),
    ] = "Triplet",
    miner: Annotated[
        str | None, typer.Option(help='a miner, e.g. BatchSemiHard or "Extreme(strategy=HPHN)"; by default all pairs')
    ] = None,
    backbone: Annotated[
        str,
        typer.Option(
            help="auto (conv for images, else mlp), linear, mlp, conv; timm:NAME, torchvision:NAME or "
            "transformers:FOLDER; or module:factory, code of your own that makes a torch module from the shape of a "
            "sample and the dimension of the embedding"
        ),
    ] = "auto",
    weights: Annotated[
        str | None,
        typer.Option(help="safetensors file for a backbone of timm or torchvision, or random; nothing is downloaded"),
    ] = None,
    backbone_options: Annotated[
        list[str] | None, typer.Option("--backbone-option", help="name=value for the backbone, e.g. img_size=64")
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(help="column of texts, with labels in --target; or several, whose rows belong together: a,b"),
    ] = None,
    embedding: Annotated[int, typer.Option(min=1, help="dimension of the embeddings")] = 64,
    epochs: Annotated[int, typer.Option(min=1, help="passes over the samples, longer where these are few")] = 10,
    batch: Annotated[str, typer.Option(help="classes x samples of each in a batch")] = "8x8",
    chunk: Annotated[
        int | None, typer.Option(min=1, help="samples at a time through the network, for batches beyond memory")
    ] = None,
    lr: Annotated[float, typer.Option(help="learning rate")] = 1e-3,
    validation: Annotated[float, typer.Option(help="share held out to watch and compare on; 0 for none")] = 0.2,
    protocol: Annotated[str, typer.Option(help="open: whole classes are held out; closed: a share of each")] = "open",
    patience: Annotated[
        int | None, typer.Option(min=1, help="stop after so many epochs without a better MAP@R, and keep the best")
    ] = None,
    augment: Annotated[
        bool | None, typer.Option("--augment/--no-augment", help="vary the samples in training; by default images")
    ] = None,
    image_shape: Annotated[
        str | None, typer.Option(help="rows are images of this shape, e.g. 28x28 or 3x32x32; an npz file may say so")
    ] = None,
    precision: Annotated[str, typer.Option(help="no, bf16, fp16 or auto: of the network's arithmetic")] = "no",
    trainer_settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="name=value for the trainer, e.g. ema=0.999, schedule=plateau, freeze=backbone"),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(callback=read_config, is_eager=True, help="TOML file with any of these; the command line wins"),
    ] = None,
    sample: Annotated[int | None, typer.Option(help="use this many rows, drawn evenly from the classes")] = None,
    seed: options.Seed = 0,
    drop: options.Drop = None,
    key: options.Key = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = None,
    resume: Annotated[
        bool, typer.Option("--resume/--fresh", help="go on where a run in this folder stopped, or train anew")
    ] = True,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train a network, compare it with classical metrics on held-out classes, and report.

    The same command goes on where it was stopped, whatever stopped it, and ends as if it had not been; with more
    --epochs it makes a finished run longer.
    """
    from isometry.cli.run_folder import RunFolder

    RunFolder(out).check_inputs(
        {"the table": file, "--config": config, "--weights": Path(weights) if weights else None}
    )
    samples = file.is_dir() or text is not None
    if backbone not in BACKBONES and not is_code(backbone) and not is_library(backbone):
        raise UsageError(
            f"--backbone {backbone} is unknown: expected {', '.join(BACKBONES)}, module:factory, or a network of timm, "
            "torchvision or transformers such as timm:resnet18"
        )
    if not 0 < lr < math.inf:
        raise UsageError(f"--lr {lr:g} is the learning rate: choose a positive number, e.g. 0.001")
    if not 0 <= validation < 1:
        raise UsageError(f"--validation {validation:g} is the share held out: choose it between 0 and 1, e.g. 0.2")
    if patience is not None and not validation:
        raise UsageError("--patience waits for a better MAP@R on held-out samples: give --validation, e.g. 0.2")
    P, K = parse_sizes("--batch", batch, (2,))
    settings: dict[str, Any] = {
        "loss": loss,
        "miner": miner,
        "backbone": backbone,
        "embedding": embedding,
        "epochs": epochs,
        "batch": [P, K],
        "chunk": chunk,
        "lr": lr,
        "validation": validation,
        "protocol": protocol,
        "patience": patience,
        "precision": precision,
        "seed": seed,
    }
    if trainer_settings:
        settings["trainer"] = parse_settings(trainer_settings)
    if samples:
        from isometry.cli.train_samples import train_samples

        shape = None if image_shape is None else parse_sizes("--image-shape", image_shape, (2, 3))
        settings |= {
            "weights": weights,
            "backbone_options": dict(parse_option("--backbone-option", o) for o in backbone_options or []),
            "augment": text is None if augment is None else augment,
            "image_shape": None if shape is None else (1, *shape)[-3:],
        }
        train_samples(file, target, text, delimiter, out, settings, fresh=not resume, silent=quiet or as_json)
        _print_outcome(out, settings, as_json)
        return
    if is_library(backbone) or weights is not None:
        if not file.exists() and not is_embedded(file):
            raise UsageError(f"there is no file or folder {file}")
        raise UsageError(
            f"--backbone {backbone} takes images or texts: give a folder with a sub-folder of images for each class, "
            "or a table and --text COLUMN"
        )
    table = read_table_or_embedded(file, target, drop, key, delimiter, decimal, float32=True, labels_for="training")
    if sample is not None:
        table = draw_sample(table, sample, seed)
    check_loss(loss, miner, embedding)
    shape = find_image_shape(file, image_shape, table)
    settings |= {"augment": shape is not None if augment is None else augment, "image_shape": shape}
    _train(table, settings, out, fresh=not resume, silent=quiet or as_json)
    _print_outcome(out, settings, as_json)


def _print_outcome(out: Path, settings: dict[str, Any], as_json: bool) -> None:
    from isometry.cli.run_folder import RunFolder

    if as_json:
        folder = RunFolder(out)
        model = folder.model if folder.model.exists() else folder.network
        scores = json.loads(folder.scores.read_text(encoding="utf-8")) if folder.scores.exists() else None
        print_json({"settings": settings, "model": model, "report": folder.report, "scores": scores})


def parse_option(option: str, text: str) -> tuple[str, Any]:
    """``name=value`` with a Python literal or text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"{option} {text}: expected name=value")
    return name.strip(), parse_value(value.strip())


def _train(table: Table, settings: dict[str, Any], out: Path, fresh: bool, silent: bool = False) -> None:
    import numpy

    from isometry.cli.run_folder import RunFolder
    from isometry.deep.batches import hold_out
    from isometry.io import fingerprint

    y = numpy.asarray(table.y)
    if (table.X[:1] == table.X).all():
        raise UsageError(f"all rows of {table.name} are equal: there is nothing to learn a distance from")
    kept, held = numpy.arange(len(y)), numpy.arange(0)
    if settings["validation"]:
        with usage_errors(ValueError):
            kept, held = hold_out(y, settings["validation"], settings["protocol"], settings["seed"])
    settings = {"data": table.name, "rows": len(y), "fingerprint": fingerprint(table.X, y), **settings}
    folder = RunFolder(out)
    settings = folder.check(settings, fresh)
    learner = make_learner(settings)
    with folder.locked() if not process_number() else nullcontext():
        _run(table, settings, learner, kept, held, folder, fresh, silent)


def _run(
    table: Table,
    settings: dict[str, Any],
    learner: DeepMetric,
    kept: np.ndarray,
    held: np.ndarray,
    folder: RunFolder,
    fresh: bool,
    silent: bool,
) -> None:
    """Train in a folder that is ours, and write what came of it."""
    import numpy

    from isometry.io import save

    console, y = printer(silent), numpy.asarray(table.y)
    going_on = folder.begun and not fresh
    wait_for_everyone(settings["precision"])  # all have looked at the folder before the first one changes it
    if not process_number():
        with usage_errors(OSError):
            folder.begin(settings, fresh)
    wait_for_everyone(settings["precision"])
    shown = f"{len(kept)} rows of {len(set(y[kept]))} classes, {len(held)} rows of {len(set(y[held]))} held out"
    doing = "going on" if going_on else "starting"
    console.print(f"{plain(table.name)}: {shown}; {doing} in {plain(folder.path)}", style="dim")
    K = settings["batch"][1]
    small = sum(count < K for count in Counter(y[kept].tolist()).values())
    if small:
        note = f"{small} classes have fewer than {K} samples, the number of each class in a batch: theirs are repeated"
        console.print(f"note: {note}", style="dim")
    _fit(learner, as_frame(table), y, kept, held, folder, silent)
    if learner.n_iter_ == 0:
        raise RuntimeError("no epoch was finished, so there is no model to keep; see the warning for what to change")
    if process_number():
        raise typer.Exit(0 if learner.converged_ else 1)
    network = learner.model
    learner.set_params(verbose=False)
    if is_code(settings["backbone"]):
        learner.set_params(model=settings["backbone"])  # a file holds the name of the code, and `load` runs none
    save(learner, folder.model, make_card(table, settings["loss"], torch=version("torch")))
    learner.set_params(model=network)
    history: Any = learner.history_  # a dict of columns here, where other methods have a list
    folder.write_history(history)
    console.print(f"{learner.n_iter_} epochs: {plain(learner.stop_reason_)}")
    console.print(f"model: {plain(folder.model)}")
    _report(table, settings, learner, kept, held, folder, console)
    if not learner.converged_:
        raise typer.Exit(1)


def check_loss(loss: str, miner: str | None, embedding: int) -> None:
    """Refuse a loss or miner that cannot be made before anything is written."""
    from isometry.deep.loss import LossModule
    from isometry.deep.named import make_named
    from isometry.deep.objectives.reconstruction import AutoencoderObjective

    known = {"embedding_size": embedding, "num_classes": 2, "class_counts": [2, 2]}
    with usage_errors(ValueError):
        make_named("loss", loss, (LossModule, AutoencoderObjective), known, {} if miner is None else {"miner": miner})


def wait_for_everyone(precision: str) -> None:
    """Wait for the other processes, if torchrun has started several."""
    from isometry.deep.engine import make_accelerator

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        make_accelerator(precision, None).wait_for_everyone()


def make_learner(settings: dict[str, Any]) -> DeepMetric:
    """The estimator of these settings, not yet trained."""
    from isometry.deep import DeepMetric

    miner = {} if settings["miner"] is None else {"miner": settings["miner"]}
    backbone, more = settings["backbone"], dict(settings.get("trainer", {}))
    own = {name: more.pop(name) for name in ("weight_decay",) if name in more}  # a parameter of the estimator too
    return DeepMetric(
        load_factory(backbone) if is_code(backbone) else None if backbone == "auto" else backbone,
        settings["loss"],
        loss_params=miner or None,
        n_components=settings["embedding"],
        lr=settings["lr"],
        classes_per_batch=settings["batch"][0],
        samples_per_class=settings["batch"][1],
        max_epochs=settings["epochs"],
        min_steps=settings["min_steps"],
        patience=settings["patience"],
        image_shape=None if settings["image_shape"] is None else tuple(settings["image_shape"]),
        augment=settings["augment"],
        chunk_size=settings["chunk"],
        # without patience nothing is chosen on the held-out samples, and the comparison on them is fair
        trainer_params={
            "precision": settings["precision"],
            "monitor": "last" if settings["patience"] is None else "map@r",
            **more,
        },
        **own,
        random_state=settings["seed"],
        verbose=sys.stderr.isatty(),
    )


def _fit(
    learner: DeepMetric,
    X: pd.DataFrame,
    y: np.ndarray,
    kept: np.ndarray,
    held: np.ndarray,
    folder: RunFolder,
    silent: bool,
) -> None:
    held_out = (X.iloc[held], y[held]) if len(held) else None
    callbacks = () if learner.verbose or silent or process_number() else (_print_epoch,)
    if silent:
        learner.set_params(verbose=False)
    with resumable(), usage_errors(ValueError):
        learner.fit(X.iloc[kept], y[kept], held_out=held_out, folder=folder.checkpoints, callbacks=callbacks)


def _print_epoch(trainer: Trainer) -> None:
    """For a log file; a terminal has a bar."""
    last = {name: trainer.history[name][-1] for name in ("loss", "active", "recall@1", "map@r")}
    shown = ", ".join(f"{name} {value:.4f}" for name, value in last.items() if value == value)  # NaN: not measured
    print(f"epoch {trainer.run.epoch} of {trainer.stopping.max_epochs}: {shown}", flush=True)


def _report(
    table: Table,
    settings: dict[str, Any],
    learner: DeepMetric,
    kept: np.ndarray,
    held: np.ndarray,
    folder: RunFolder,
    console: Console,
) -> None:
    import numpy

    from isometry.report.training_page import TrainingReport, write_training_report
    from isometry.select.network import compare_network

    found = None
    X, y = table.X, numpy.asarray(table.y)
    if len(held):
        found = compare_network(learner, (X[kept], y[kept]), (X[held], y[held]), settings["image_shape"])
        folder.write_scores([s.as_dict() for s in found.scores])
        console.print(score_table(found.scores))
        console.print(f"intervals are over the held-out {found.unit}", style="dim")
        console.print(f"\n[bold]{plain(found.verdict)}[/]")
    history: Any = learner.history_
    report = TrainingReport(table.name, settings, history, learner.stop_reason_, learner.converged_, found)
    console.print(f"report: {plain(write_training_report(report, folder.report))}")


def score_table(scores: list[MapScore]) -> RichTable:
    heads = ("", "map@r, 95 % interval", "recall@1, 95 % interval", "network − this")
    table = make_table(*heads, right=heads[1:], whole=("",))
    for s in scores:
        gain = interval_text(s.gain, "+.4f") if s.gain else ""
        table.add_row(plain(s.name), interval_text(s.map_at_r, ".4f"), interval_text(s.recall, ".4f"), gain)
    return table


def find_image_shape(file: Path, given: str | None, table: Table) -> tuple[int, ...] | None:
    """(c, h, w) from the option or from an array ``image_shape`` in the file; None if the rows are no images."""
    import math

    import numpy

    if given is not None:
        shape = parse_sizes("--image-shape", given, (2, 3))
    elif file.suffix.lower() == ".npz":
        with numpy.load(file, allow_pickle=False) as arrays:
            shape = stored_shape(file, arrays["image_shape"]) if "image_shape" in arrays else ()
    else:
        shape = ()
    if not shape:
        return None
    shape = (1, *shape)[-3:]
    if math.prod(shape) != table.X.shape[1]:
        raise UsageError(
            f"images of shape {'x'.join(map(str, shape))} have {math.prod(shape)} pixels, but {file} has "
            f"{table.X.shape[1]} features: see --image-shape and --drop"
        )
    return shape


def stored_shape(file: Path, shape: np.ndarray) -> tuple[int, ...]:
    """The array ``image_shape`` of a file as two or three sizes."""
    sizes = shape.tolist()
    if shape.dtype.kind not in "iu" or shape.shape not in ((2,), (3,)) or min(sizes) < 1:
        raise UsageError(
            f"image_shape in {file} is {sizes}: expected two or three sizes, such as [28, 28] or [3, 32, 32]; "
            "--image-shape overrules it"
        )
    return tuple(sizes)


def parse_sizes(option: str, text: str, lengths: tuple[int, ...]) -> tuple[int, ...]:
    """``8x8`` as (8, 8)."""
    if not re.fullmatch(r"[1-9]\d*([x×][1-9]\d*)*", text) or len(re.split("[x×]", text)) not in lengths:
        raise UsageError(f"{option} {text}: expected {' or '.join(map(str, lengths))} numbers, such as 8x8")
    return tuple(int(v) for v in re.split("[x×]", text))
