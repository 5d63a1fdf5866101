"""`isometry train` on what is no table of numbers: images in a folder, texts in the columns of a table."""

from __future__ import annotations

import copy
import hashlib
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from isometry.cli.code import LIBRARIES, is_code, is_library, load_factory
from isometry.cli.outputs import UsageError, plain, printer, process_number, resumable, usage_errors

if TYPE_CHECKING:
    import numpy as np

    from isometry.cli.run_folder import RunFolder
    from isometry.deep import Trainer

IMAGE_SIDE = 64  # of a network that does not say which images it takes


@dataclass
class Samples:
    """What is trained on: a data set, a label for each sample if there are any, and which are held out."""

    name: str
    data: Any
    y: np.ndarray | None
    kept: np.ndarray
    held: np.ndarray

    @property
    def summary(self) -> str:
        """In a line."""
        if self.y is None:
            return f"{self.name}: {len(self.kept)} samples"
        kinds, others = (len(set(self.y[rows])) for rows in (self.kept, self.held))
        return f"{self.name}: {len(self.kept)} samples of {kinds} classes, {len(self.held)} of {others} held out"

    def fit(self, trainer: Trainer) -> None:
        """Train on what is kept, and watch what is held out."""
        data, y, kept, held = self.data, self.y, self.kept, self.held
        watched = (data.subset(held), y[held]) if y is not None and len(held) else None
        with resumable(), usage_errors(ValueError):
            trainer.fit(data.subset(kept), None if y is None else y[kept], validation=watched, resume=True)


def train_samples(
    file: Path,
    target: str | None,
    text: str | None,
    delimiter: str | None,
    out: Path,
    settings: dict[str, Any],
    fresh: bool,
    silent: bool,
) -> None:
    """Train a network on images or texts in a folder of its own, and write what came of it."""
    from isometry.cli.run_folder import RunFolder

    network = make_network(settings, images=text is None)
    with usage_errors(ValueError, OSError):
        shape, show = settings["image_shape"], not silent and not process_number()
        data, y, splits = read_samples(file, target, text, delimiter, network, shape, show)
    kept, held = split_rows(len(data), y, splits, settings)
    name = file.stem if text is not None else file.resolve().name
    settings = {"data": name, "rows": len(data), "fingerprint": fingerprint(data, y), **settings}
    folder = RunFolder(out)
    settings = folder.check(settings, fresh)
    samples = Samples(name, data, y, kept, held)
    objective = make_objective(settings, network, samples)
    with folder.locked() if not process_number() else nullcontext():
        _run(samples, network, objective, settings, folder, fresh, silent)


def _run(
    samples: Samples,
    network: Any,
    objective: Any,
    settings: dict[str, Any],
    folder: RunFolder,
    fresh: bool,
    silent: bool,
) -> None:
    from isometry.cli import train as command

    console, going_on = printer(silent), folder.begun and not fresh
    command.wait_for_everyone(settings["precision"])  # all have looked at the folder before the first one changes it
    if not process_number():
        with usage_errors(OSError):
            folder.begin(settings, fresh)
    command.wait_for_everyone(settings["precision"])
    doing = "going on" if going_on else "starting"
    console.print(f"{plain(samples.summary)}; {doing} in {plain(folder.path)}", style="dim")
    start = copy.deepcopy(network)
    show = sys.stderr.isatty() and not silent
    callbacks = () if show or silent or process_number() else (command._print_epoch,)
    trainer = make_trainer(network, objective, settings, folder, callbacks, show, held_out=len(samples.held) > 0)
    samples.fit(trainer)
    if trainer.run.epoch == 0:
        raise RuntimeError("no epoch was finished, so there is no model to keep; see the warning for what to change")
    if process_number():
        raise typer.Exit(1 if trainer.run.failed else 0)
    trainer.export(folder.network)
    folder.write_history(trainer.history)
    console.print(f"{trainer.run.epoch} epochs: {plain(trainer.stop_reason)}")
    console.print(f"network: {plain(folder.network)}, and {plain(folder.network.with_suffix('.json').name)} beside it")
    _report(samples, trainer, start, settings, folder, console)
    if trainer.run.failed:
        raise typer.Exit(1)


def make_network(settings: dict[str, Any], images: bool) -> Any:
    """The network that --backbone names, with weights from a local file."""
    from isometry.deep.backbones import as_network, backbone
    from isometry.deep.checkpoint import isolated_rng
    from isometry.deep.models import ConvNet

    name, size, shape = settings["backbone"], settings["embedding"], settings["image_shape"]
    with isolated_rng(settings["seed"]), usage_errors(ValueError, FileNotFoundError, ImportError):
        if is_library(name):
            return backbone(name, settings["weights"], size, **settings["backbone_options"])
        if settings["weights"] is not None:
            raise UsageError(f"--weights are for a network of {', '.join(LIBRARIES)}, not for --backbone {name}")
        if is_code(name):
            network = as_network(load_factory(name)(shape if images else None, size), f"--backbone {name}")
            if not images and not hasattr(network, "tokenize"):
                raise UsageError(f"--backbone {name} gave a network without a method tokenize, which texts need: from "
                                 "a list of texts to a dictionary of tensors")  # fmt: skip
            return network
        if not images:
            raise UsageError("texts need a network that reads them: --backbone transformers:FOLDER, or module:factory")
        if name not in ("auto", "conv"):
            raise UsageError(f"--backbone {name} takes a table; for images take conv, timm:NAME or torchvision:NAME")
        shape = shape or (3, IMAGE_SIDE, IMAGE_SIDE)
        return ConvNet(shape, size)


def read_samples(
    file: Path,
    target: str | None,
    text: str | None,
    delimiter: str | None,
    network: Any,
    image_shape: Any,
    show: bool,
) -> tuple[Any, np.ndarray | None, np.ndarray | None]:
    """The data set, a label for each sample if there are any, and "train" or "val" for each if that is said."""
    import numpy

    from isometry.deep.columns import ColumnTable
    from isometry.deep.images import ImageFolder, ImageTransform
    from isometry.deep.objectives.columns import TARGETS

    if text is None:
        transform = getattr(network, "transform", None)
        if transform is None:
            channels, _, side = image_shape or (3, IMAGE_SIDE, IMAGE_SIDE)
            transform = ImageTransform(side, (0.5,) * channels, (0.5,) * channels, 1.0)
        images = ImageFolder(file, transform, progress=show and sys.stderr.isatty())
        return images, images.labels, images.splits
    from isometry.io.tables import read_columns

    names = [name.strip() for name in text.split(",")]
    if len(names) == 1 and target is None:
        raise UsageError(f"training on one column of texts needs labels: name their column in {file} with --target")
    wanted = [*names, *([target] if target else [])]
    columns: dict[str, Any] = dict(read_columns(file, wanted, delimiter=delimiter))
    if len(names) == 1 and target is not None:
        y = numpy.asarray(columns[target])
        _check_labels(y, file, target)
        column = "text" if names[0] in TARGETS else names[0]  # a text may stand in a column that is called label
        return ColumnTable({column: columns[names[0]]}, network.tokenize, y), y, None
    if target is not None:
        columns["score"] = [_number(v, target, k) for k, v in enumerate(columns.pop(target))]
    return ColumnTable(columns, network.tokenize), None, None


def _check_labels(y: np.ndarray, file: Path, target: str) -> None:
    """An error for rows without a label, which would be a class of their own, and for labels that are all the same."""
    bad = [str(row) for row, label in enumerate(y) if not label.strip()]
    if bad:
        rows = ", ".join(bad[:5]) + (f" and {len(bad) - 5} more" if len(bad) > 5 else "")
        raise UsageError(f"--target {target} is empty in {len(bad)} of {len(y)} rows of {file}: rows {rows} (the first "
                         "row is 0); leave these out")  # fmt: skip
    if len(set(y)) < 2:
        raise UsageError(f"all {len(y)} texts of {file} are of one class, {str(y[0])!r} (--target {target}): there is "
                         "nothing to tell apart")  # fmt: skip


def _number(value: str, column: str, row: int) -> float:
    try:
        return float(value)
    except ValueError as error:
        raise UsageError(
            f"--target {column} holds {value!r} in row {row}, which is no number: pairs need scores"
        ) from error


def split_rows(n: int, y: Any, splits: Any, settings: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Rows to learn from, and rows held out: as the data say, or a share."""
    import numpy

    from isometry.deep.batches import hold_out

    if splits is not None and (splits == "val").any():
        return numpy.flatnonzero(splits == "train"), numpy.flatnonzero(splits == "val")
    if y is None or not settings["validation"]:
        return numpy.arange(n), numpy.arange(0)
    with usage_errors(ValueError):
        return hold_out(y, settings["validation"], settings["protocol"], settings["seed"])


def make_objective(settings: dict[str, Any], network: Any, samples: Samples) -> Any:
    """The loss by its name: of labels, or of columns whose rows belong together."""
    import numpy

    from isometry.deep.augment import Affine, Augment, Augmented, Flip
    from isometry.deep.checkpoint import isolated_rng
    from isometry.deep.gradient_cache import GradientCache
    from isometry.deep.loss import Loss, LossModule
    from isometry.deep.named import make_named
    from isometry.deep.objectives.columns import Columns
    from isometry.deep.pair_form import PairForm

    known: dict[str, Any] = {"embedding_size": embedding_size(network, samples.data)}
    params = {} if settings["miner"] is None else {"miner": settings["miner"]}
    with isolated_rng(settings["seed"]), usage_errors(ValueError, TypeError):  # a loss may draw its first proxies
        if samples.y is None:
            loss = make_named("loss", settings["loss"], (PairForm, Loss), known, params)
            _check_columns(loss, samples.data)
            objective: Any = Columns(loss)
        else:
            counts = numpy.unique(samples.y[samples.kept], return_counts=True)[1]
            known |= {"num_classes": len(counts), "class_counts": counts.tolist()}
            objective = make_named("loss", settings["loss"], (LossModule,), known, params)
    if settings["chunk"] is not None:
        objective = GradientCache(objective, settings["chunk"])
    return Augmented(objective, Augment(Affine(), Flip())) if settings["augment"] else objective


def _check_columns(loss: Any, data: Any) -> None:
    """An error, before anything is written, where the columns are not those that the loss compares."""
    from isometry.deep.pair_form import PairForm

    if not isinstance(loss, PairForm):
        return
    name, n, scored = type(loss).__name__, len(data.inputs), len(data.inputs) < len(data.columns)
    if n < loss.fewest_columns or (loss.most_columns is not None and n > loss.most_columns):
        wanted = f"{loss.most_columns}" if loss.most_columns else f"{loss.fewest_columns} or more"
        raise UsageError(f"{name} compares {wanted} columns of texts, and --text names {n}: {', '.join(data.inputs)}")
    if loss.target is not None and not scored:
        raise UsageError(f"{name} needs {loss.target}: name its column with --target")
    if loss.target is None and scored:
        raise UsageError(f"{name} takes no target: leave --target out, or take a loss of scores such as CoSENT")


def embedding_size(network: Any, data: Any) -> int:
    """p, by passing two samples, with an error that says what the network gave instead."""
    from isometry.deep.inference import Encoder

    two = data.subset(range(2))
    if hasattr(two, "texts"):
        two = two.columns[two.texts[0]]  # of several columns one, as texts
    with usage_errors(ValueError, RuntimeError):
        return int(Encoder(network, batch_size=2).encode(two).shape[1])


def make_trainer(
    network: Any,
    objective: Any,
    settings: dict[str, Any],
    folder: RunFolder,
    callbacks: Any,
    show: bool,
    held_out: bool,
) -> Trainer:
    from isometry.deep.trainer import Trainer

    watched = "loss" if not held_out else "last" if settings["patience"] is None else "map@r"
    with usage_errors(ValueError, TypeError):
        return Trainer(
            network,
            objective,
            lr=settings["lr"],
            classes_per_batch=settings["batch"][0],
            samples_per_class=settings["batch"][1],
            max_epochs=settings["epochs"],
            patience=settings["patience"],
            precision=settings["precision"],
            random_state=settings["seed"],
            folder=folder.checkpoints,
            callbacks=callbacks,
            verbose=show,
            **{"monitor": watched, **settings.get("trainer", {})},
        )


class Embedded:
    """Embeddings that are known already, as a fitted map."""

    def __init__(self, Z: np.ndarray):
        self.Z = Z

    def transform(self, _: Any) -> np.ndarray:
        return self.Z


def _report(
    samples: Samples,
    trainer: Trainer,
    start: Any,
    settings: dict[str, Any],
    folder: RunFolder,
    console: Any,
) -> None:
    """The network beside classical metrics on the features that it began with, on what was held out."""
    from isometry.cli.train import score_table
    from isometry.deep.backbones import Network
    from isometry.deep.inference import Encoder
    from isometry.report.training_page import TrainingReport, write_training_report
    from isometry.select.network import compare_network

    found, data, y, kept, held = None, samples.data, samples.y, samples.kept, samples.held
    if y is not None and len(held):
        if isinstance(start, Network):
            start = start.features()
        before = [Encoder(start).encode(data.subset(rows)) for rows in (kept, held)]
        after = trainer.embed(data.subset(held)).numpy(force=True)
        found = compare_network(Embedded(after), (before[0], y[kept]), (before[1], y[held]))
        folder.write_scores([s.as_dict() for s in found.scores])
        console.print(score_table(found.scores))
        console.print(
            f"features are those of the network before training; intervals are over the {found.unit}", style="dim"
        )
        console.print(f"\n[bold]{plain(found.verdict)}[/]")
    report = TrainingReport(
        samples.name, settings, trainer.history, str(trainer.stop_reason), not trainer.run.failed, found
    )
    console.print(f"report: {plain(write_training_report(report, folder.report))}")


def fingerprint(data: Any, y: np.ndarray | None) -> str:
    """Of texts, or of the names and sizes of images, and of labels: the same data, the same text."""
    digest = hashlib.sha256("\n".join(map(str, [] if y is None else y)).encode())
    if hasattr(data, "files"):
        lines = [f"{f.name} {f.stat().st_size}" for f in data.files]
    else:
        lines = [f"{name}\0{value}" for name, column in data.columns.items() for value in column]
    digest.update("\n".join(lines).encode())
    return digest.hexdigest()[:16]
