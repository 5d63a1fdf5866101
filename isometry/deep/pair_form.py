"""Losses of columns: row i of every column belongs to one item, such as a query, its document and hard negatives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from isometry.deep.functional import without_autocast
from isometry.deep.loss import LossModule, as_embeddings, finite


class PairForm(nn.Module, ABC):
    """A scalar from two or more columns of embeddings (n, p), and a target for each row if the loss has one.

    ``Columns(loss)`` makes an objective of it, which encodes the columns of a batch. It is no loss of embeddings and
    labels, and cannot take the place of one.

    Notes
    -----
    Base class of the losses of matching rows, such as queries and documents or views. The other rows of a batch serve
    as negatives where a loss needs them, so that no two rows should mean the same: ``NoDuplicates``.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import PairForm, Ranking
    >>> loss = Ranking()
    >>> isinstance(loss, PairForm), loss(torch.eye(4), torch.eye(4)).item() < 1e-6
    (True, True)
    """

    fewest_columns: int = 2
    most_columns: int | None = None  # None: any number of further columns, which are hard negatives
    target: str | None = None  # what the target of a row is; None: there is none
    normalize = False  # True: only the directions of embeddings count
    lr_mult, lr_cap = LossModule.lr_mult, LossModule.lr_cap
    param_groups = LossModule.param_groups

    def forward(self, *columns: Tensor, target: Tensor | None = None, **given: Any) -> Tensor:
        """The loss of columns (n, p) whose rows belong together.

        Parameters
        ----------
        *columns : Tensor (n, p)
            First what is asked with, then what belongs to it, then what does not. Half precision is raised to float32.
        target : Tensor (n, …) or None, default=None
            What the rows are compared with, for losses that have such a target.
        **given : dict
            What else a loss takes, such as a guide's embeddings.

        Returns
        -------
        Tensor
            A scalar: zero, but part of the graph, for empty columns.
        """
        name, n = type(self).__name__, len(columns)
        if not all(isinstance(z, Tensor) for z in columns):
            raise TypeError(f"{name} compares columns of embeddings; to train a network give Columns({name}())")
        if n < self.fewest_columns or (self.most_columns is not None and n > self.most_columns):
            more = " or more" * (self.most_columns is None)
            raise ValueError(f"{name} takes {self.most_columns or self.fewest_columns}{more} columns, got {n}")
        columns = tuple(as_embeddings(z, f"column {k}") for k, z in enumerate(columns))
        if len({z.shape for z in columns}) > 1:
            shapes = ", ".join(str(tuple(z.shape)) for z in columns)
            raise ValueError(f"columns must agree in length and dimension: their rows belong together; got {shapes}")
        if target is not None or self.target is not None:
            given["target"] = self.check_target(target, columns[0])
        if not len(columns[0]):
            return torch.cat(columns).sum() * 0
        with without_autocast(columns[0].device):
            return finite(self.compute(*columns, **given), self, torch.cat(columns))

    def check_target(self, target: Tensor | None, z: Tensor) -> Tensor:
        """The target in the precision of the embeddings, or an error that says what it should be.

        Parameters
        ----------
        target : Tensor or None
            The target as it was given.
        z : Tensor
            Embeddings (B, p).
        """
        name = type(self).__name__
        if target is None or self.target is None:
            raise ValueError(f"{name} needs a target: {self.target}" if target is None else f"{name} takes no target")
        target = torch.as_tensor(target, device=z.device).to(z.dtype)
        if len(target) != len(z):
            raise ValueError(f"{len(z)} rows need as many targets, got {len(target)}")
        if not target.isfinite().all():
            raise ValueError(f"targets have NaN or infinite values; {name} needs {self.target}")
        return target

    @abstractmethod
    def compute(self, *columns: Tensor, **given: Any) -> Tensor:
        """The scalar, in full precision.

        Parameters
        ----------
        *columns : Tensor (n, p)
            Embeddings of one column each.
        **given : dict
            The target, and what else the loss takes.

        Returns
        -------
        Tensor
            The scalar.
        """
