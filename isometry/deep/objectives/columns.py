"""Columns of samples through one network: queries and documents, views, pairs with a score."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from isometry.deep.distributed import gather
from isometry.deep.loss import Loss
from isometry.deep.losses.columns import Ranking
from isometry.deep.losses.proxy import ProxyForm
from isometry.deep.objective import parameter_groups, watch
from isometry.deep.pair_form import PairForm

TARGETS = ("label", "labels", "score", "scores", "target")  # names of the column that holds the target


class Columns(nn.Module):
    """Columns of a batch, encoded by one network and compared row by row.

        z¹, z², … = f(x¹), f(x²), …,     L(z¹, z², …)   or   L(z¹, z², …; target)

    A batch is a tuple (x¹, x², …), or a dictionary of columns in this order: anchors, what belongs to them, hard
    negatives. For a loss with a target it is the last one of the tuple, or called label, labels, score, scores or
    target; a guide's embeddings, one (n, q) for each column, come after that, or under the name guide. A column is a
    tensor, or a dictionary of tensors such as a tokeniser's.

    Parameters
    ----------
    loss : PairForm, Loss, Matryoshka or None, default=None
        A loss of columns; None: ``Ranking()``. A loss of embeddings and labels, such as ``InfoNCE`` or ``SigLIP``,
        compares the first column with the others: the partner in the second is the positive, all others are negatives.
    separate_forward : bool, default=False
        Pass the columns one after another, so that batch normalisation sees each by itself. Columns of different shape
        always are.

    Notes
    -----
    For texts, views and other rows that belong together; for classes, give a loss to the `Trainer` as it is. Costs a
    pass of the network over all columns and what the loss costs, O(n² p) for most; ``GradientCache(Columns(...), 32)``
    bounds the memory.

    References
    ----------
    | N. Reimers, I. Gurevych, "Sentence-BERT: sentence embeddings using Siamese BERT-networks", EMNLP 2019.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import MLP, Columns, Ranking, Trainer
    >>> rows = torch.utils.data.TensorDataset(torch.eye(8), torch.eye(8))  # queries and their documents
    >>> trainer = Trainer(MLP(8, 4), Columns(Ranking()), max_epochs=1)
    >>> trainer.fit(torch.utils.data.DataLoader(rows, 4)).embed(torch.eye(8)).shape
    torch.Size([8, 4])
    """

    def __init__(self, loss: nn.Module | None = None, *, separate_forward: bool = False):
        super().__init__()
        self.loss: nn.Module = Ranking() if loss is None else loss
        wrapper = not isinstance(self.loss, (PairForm, Loss))
        self.inner: Any = getattr(self.loss, "loss", None) if wrapper else self.loss
        if not has_columns(self.loss, self.inner):
            raise TypeError(f"{type(self.loss).__name__} has no form for columns; take Ranking, InfoNCE or SigLIP")
        self.separate_forward = separate_forward
        self.active: Tensor | None = None  # share of the samples that the loss still moves, known after backward

    def forward(self, model: nn.Module, batch: Any) -> Tensor:
        """The loss of a batch of columns.

        Parameters
        ----------
        model : nn.Module
            Samples to embeddings (B, p).
        batch : tuple or dict
            The columns, with target and guide if the loss has them.

        Returns
        -------
        Tensor
            The scalar.
        """
        columns, target, guide = self.parts(batch)
        z = encode(model, columns, self.separate_forward)
        watch(self, z)
        zs = gather(*z.chunk(len(columns)))
        if not all(z.isfinite().all() for z in zs):
            return torch.stack([z.sum() for z in zs]).sum()  # not finite: the trainer counts and reports it
        if isinstance(self.inner, Loss):
            return as_references(self.loss, zs)
        given: dict[str, Any] = {} if target is None else {"target": gather(target)[0]}
        if guide is not None:
            given["guide"] = gather(*guide)
        return self.loss(*zs, **given)

    def parts(self, batch: Any) -> tuple[list[Any], Tensor | None, Sequence[Tensor] | None]:
        """The columns of samples, the target, and the guide's embeddings, as far as the loss has them.

        Parameters
        ----------
        batch : tuple or dict
            The columns, with target and guide if the loss has them.
        """
        has_target = getattr(self.inner, "target", None) is not None
        has_guide = getattr(self.inner, "needs_guide", False)
        if isinstance(batch, Mapping):
            names = [name for name in batch if name in TARGETS]
            if has_target and len(names) != 1:
                raise ValueError(f"a batch must have one column of {', '.join(TARGETS)}, got {', '.join(batch)}")
            columns = [x for name, x in batch.items() if name not in (*TARGETS, "guide")]
            return columns, batch[names[0]] if has_target else None, batch["guide"] if has_guide else None
        if isinstance(batch, Tensor):
            raise ValueError("a batch must be a tuple or a dictionary of columns, got one tensor")
        columns = list(batch)
        guide = columns.pop() if has_guide else None
        return columns, columns.pop() if has_target else None, guide

    def param_groups(self, lr: float) -> list[dict[str, Any]]:
        """Optimiser groups for the parameters of the loss.

        Parameters
        ----------
        lr : float
            Learning rate of the backbone.
        """
        return parameter_groups(self.loss, lr)


def has_columns(loss: nn.Module, inner: Any) -> bool:
    """Whether a loss, or what it wraps, compares columns, or embeddings with references."""
    if isinstance(inner, PairForm):
        return True
    if not isinstance(inner, Loss) or isinstance(inner, ProxyForm):
        return False
    try:
        inspect.signature(loss.forward).bind("z", "y", "refs", "ref_y", "self_index")
    except TypeError:
        return False
    return True


def encode(model: nn.Module, columns: Sequence[Any], separate: bool = False) -> Tensor:
    """Embeddings of all columns one below the other: one pass where their shapes agree, else one for each."""
    kinds = {
        tuple((name, x.shape[1:]) for name, x in column.items())
        if isinstance(column, Mapping)
        else column.shape[1:]
        if isinstance(column, Tensor)
        else None
        for column in columns
    }
    if separate or len(kinds) > 1 or kinds == {None}:
        return torch.cat([model(column) for column in columns])
    if isinstance(columns[0], Mapping):
        return model({name: torch.cat([column[name] for column in columns]) for name in columns[0]})
    return model(torch.cat(list(columns)))


def as_references(loss: nn.Module, columns: Sequence[Tensor]) -> Tensor:
    """A loss of embeddings and labels on columns: row i of the first belongs to row i of the second, to no other."""
    first, *others = columns
    row = torch.arange(len(first), device=first.device)
    labels = torch.cat([row, *(torch.full_like(row, -1) for _ in others[1:])])
    return loss(first, row, torch.cat(others), labels)
