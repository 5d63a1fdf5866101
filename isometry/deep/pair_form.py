"""Losses of columns: row i of every column belongs to one item, such as a query, its document and hard negatives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from isometry.deep.loss import LossModule, as_embeddings, finite


class PairForm(nn.Module, ABC):
    """A scalar from two or more columns of embeddings (n, p), and a target for each row if the loss has one.

    ``Columns(loss)`` makes an objective of it, which encodes the columns of a batch. It is no loss of embeddings and
    labels, and cannot take the place of one.
    """

    most_columns: int | None = None  # None: any number of further columns, which are hard negatives
    target: str | None = None  # what the target of a row is; None: there is none
    lr_mult, lr_cap = LossModule.lr_mult, LossModule.lr_cap
    param_groups = LossModule.param_groups

    def forward(self, a: Tensor, b: Tensor, *negatives: Tensor, target: Tensor | None = None, **given: Any) -> Tensor:
        """The loss of columns (n, p) whose rows belong together.

        Parameters
        ----------
        a, b, *negatives : Tensor (n, p)
            Half precision is raised to float32.
        target : Tensor (n, …), optional
            For losses that have one.
        """
        name, columns = type(self).__name__, (a, b, *negatives)
        if not isinstance(a, Tensor):
            raise TypeError(f"{name} compares columns of embeddings; to train a network give Columns({name}())")
        if self.most_columns is not None and len(columns) > self.most_columns:
            raise ValueError(f"{name} takes {self.most_columns} columns, got {len(columns)}")
        if (target is None) != (self.target is None):
            raise ValueError(f"{name} needs a target: {self.target}" if target is None else f"{name} takes no target")
        columns = tuple(as_embeddings(z, f"column {k}") for k, z in enumerate(columns))
        if len({z.shape for z in columns}) > 1:
            shapes = ", ".join(str(tuple(z.shape)) for z in columns)
            raise ValueError(
                f"columns must agree in length and dimension, since their rows belong together, got {shapes}"
            )
        if target is not None:
            target = torch.as_tensor(target, device=a.device)
            if len(target) != len(a):
                raise ValueError(f"{len(a)} rows need as many targets, got {len(target)}")
            if target.is_floating_point() and not target.isfinite().all():
                raise ValueError(f"targets have NaN or infinite values; {name} needs {self.target}")
            given["target"] = target
        if not len(a):
            return torch.cat(columns).sum() * 0
        with torch.autocast(a.device.type, enabled=False):
            return finite(self.compute(*columns, **given), self, torch.cat(columns))

    @abstractmethod
    def compute(self, *columns: Tensor, **given: Any) -> Tensor:
        """The scalar, in full precision."""
