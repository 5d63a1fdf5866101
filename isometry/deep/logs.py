"""Logs of a run: a table of all epochs, and events for TensorBoard. They are callbacks of a `Trainer`."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from isometry.core.files import taking_place
from isometry.deep.extras import needs
from isometry.deep.functional import masks, unit
from isometry.deep.samplers import rank_and_size
from isometry.deep.wrapper import innermost

if TYPE_CHECKING:
    from isometry.deep.trainer import Trainer

TAGS = {  # column of the history → tag; others are under "train"
    "recall@1": "val/recall@1",
    "map@r": "val/map@r",
    "rank": "val/rank",
    "lr": "lr",
    "grad_norm": "grad_norm",
}


class CSVLog:
    """The history of a run as a csv file, written anew after each epoch: a line an epoch, empty where not measured.

    Parameters
    ----------
    path : str or Path
        The file; one that is there is replaced by a complete one.

    Notes
    -----
    A callback of a `Trainer`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import torch
    >>> from isometry.deep import MLP, CSVLog, Trainer, Triplet
    >>> X, y = torch.eye(8), [0, 0, 0, 0, 1, 1, 1, 1]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = CSVLog(Path(folder) / "history.csv")
    ...     trainer = Trainer(MLP(8, 2), Triplet(), max_epochs=2, classes_per_batch=2, callbacks=[log]).fit(X, y)
    ...     len(log.path.read_text().splitlines())  # a heading, and a line an epoch
    3
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)

    def __call__(self, trainer: Trainer) -> None:
        if rank_and_size()[0] == 0:
            write_history(self.path, trainer.history)


def write_history(path: Path, history: Mapping[str, Sequence[float]]) -> None:
    """One line an epoch; empty where something was not measured."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    with taking_place(part, path), part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["epoch", *history])
        for epoch, row in enumerate(zip(*history.values()), start=1):
            writer.writerow([epoch, *("" if math.isnan(v) else repr(float(v)) for v in row)])


class TensorBoard:
    """Events for TensorBoard: train/loss, train/active, val/map@r, lr, grad_norm and the rest of the history by epoch.

        Trainer(model, loss, callbacks=[TensorBoard("runs/first")])

    A resumed run goes on in the same folder; what an interrupted one wrote of later epochs is hidden. Others, such as
    Weights & Biases or MLflow, are a callback of one line: ``lambda t: wandb.log({k: v[-1] for k, v in
    t.history.items()})``.

    Parameters
    ----------
    folder : str or Path
        Where the event files are written.
    histograms_every : int, default=0
        Epochs between two histograms of the similarities of positive and negative pairs of the last batch; 0 for none.

    Notes
    -----
    A callback of a `Trainer`; needs the package tensorboard.

    Examples
    --------
    >>> from isometry.deep import TensorBoard
    >>> TensorBoard("runs/first", histograms_every=5).histograms_every  # Trainer(..., callbacks=[...])
    5
    """

    def __init__(self, folder: str | os.PathLike[str], histograms_every: int = 0):
        with needs("tensorboard", "logs", "TensorBoard"):
            from torch.utils.tensorboard import SummaryWriter
        self.folder, self.histograms_every = folder, histograms_every
        self._make_writer: Any = SummaryWriter
        self._writer: Any = None

    def __call__(self, trainer: Trainer) -> None:
        if rank_and_size()[0]:
            return
        epoch = trainer.run.epoch
        if self._writer is None or epoch == 1:
            self._writer = self._make_writer(os.fspath(self.folder), purge_step=epoch)
        for name, column in trainer.history.items():
            if not math.isnan(column[-1]):
                self._writer.add_scalar(TAGS.get(name, f"train/{name}"), column[-1], epoch)
        if self.histograms_every and epoch % self.histograms_every == 0:
            for name, values in pair_similarities(innermost(trainer.objective)).items():
                self._writer.add_histogram(f"train/{name}", values, epoch)
        self._writer.flush()


@torch.no_grad()
def pair_similarities(objective: Any) -> dict[str, torch.Tensor]:
    """Cosines of the positive and of the negative pairs of the last batch, if the objective keeps it."""
    last: Any = getattr(objective, "last", None)
    if last is None:
        return {}
    z, y = last
    if y.ndim != 1 or y.is_floating_point() or not z.isfinite().all():
        return {}
    z = unit(z.float())
    pairs = masks(y, self_index=torch.arange(len(y), device=y.device))
    return {name: (z @ z.T)[pair] for name, pair in zip(("s_pos", "s_neg"), pairs) if pair.any()}
