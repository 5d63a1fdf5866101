"""What all losses share: a batch is compared with references, a miner narrows the choice, a reduction is left."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from isometry.deep.functional import Distance, get_distance, masks, paired, unit
from isometry.deep.miners import Miner, TripleMiner, Triples
from isometry.deep.slopes import of_distances, of_matrix, of_triples

SMALLER = "normalise the embeddings, lower the learning rate, clip gradients, or compute in float64"


class LossModule(nn.Module):
    """What an optimiser needs to know of a loss that has parameters of its own."""

    lr_mult: float = 1.0  # their learning rate, in units of the backbone's
    lr_cap: float = 1e-2

    def param_groups(self, lr: float) -> list[dict[str, Any]]:
        """Optimiser groups for the parameters of the loss, given the learning rate of the backbone."""
        params = [p for p in self.parameters() if p.requires_grad]
        return [{"params": params, "lr": min(lr * self.lr_mult, self.lr_cap), "weight_decay": 0.0}] if params else []


class LabelLoss(LossModule, ABC):
    """A loss of embeddings and labels that compares no pairs."""

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        """The loss of embeddings (B, p) with labels or targets (B, …)."""
        z = as_embeddings(z[:, None] if z.ndim == 1 else z, "z")
        y = torch.as_tensor(y, device=z.device)
        if len(y) != len(z):
            raise ValueError(f"{len(z)} embeddings need as many labels or targets, got {len(y)}")
        if not len(z):
            return z.sum() * 0
        with torch.autocast(z.device.type, enabled=False):
            return finite(self.compute(z, y), self, z)

    @abstractmethod
    def compute(self, z: Tensor, y: Tensor) -> Tensor:
        """The scalar, in full precision."""


class Loss(LossModule, ABC):
    """A scalar from the distances (B, R) of a batch to references, which of them are positive and which negative.

    Parameters
    ----------
    distance : {"euclidean", "sqeuclidean", "cosine", "inner"} or callable
        ``(B, p), (R, p) -> (B, R)``, smaller for closer pairs.
    miner : Miner, optional
        Narrows the positives and negatives; by default all take part.
    normalize : bool
        Put embeddings and references on the unit sphere first.
    """

    of_pairs = False  # True: each pair has a term of its own, so that a list of pairs is enough

    def __init__(self, distance: Distance = "euclidean", miner: Miner | None = None, normalize: bool = False):
        super().__init__()
        get_distance(distance)
        self.distance, self.miner, self.normalize = distance, miner, normalize
        if miner is not None and miner.needs_unit_euclidean and (distance != "euclidean" or not normalize):
            raise ValueError(
                f"{type(miner).__name__} works on Euclidean distances between unit vectors; "
                f"build {type(self).__name__} with distance='euclidean', normalize=True"
            )

    def forward(
        self,
        z: Tensor,
        y: Tensor,
        refs: Tensor | None = None,
        ref_y: Tensor | None = None,
        self_index: Tensor | None = None,
    ) -> Tensor:
        """The loss of embeddings ``z`` (B, p) against references.

        Parameters
        ----------
        z : Tensor (B, p)
            Half precision is raised to float32.
        y : Tensor (B,) or (B, R)
            Labels; or a matrix that says for each reference whether it is similar: boolean, or a number in [0, 1],
            NaN where nothing is known.
        refs : Tensor (R, p), optional
            References; by default the batch itself.
        ref_y : Tensor (R,), optional
            Their labels.
        self_index : Tensor (B,), optional
            Which reference is the anchor itself, −1 for none. Needed only with ``refs``.

        Returns
        -------
        Tensor, a scalar. Zero, but part of the graph, if the batch holds nothing to compare.
        """
        z, y = as_embeddings(z, "z", squared=True), torch.as_tensor(y, device=z.device)
        if refs is None:
            refs, ref_y, self_index = z, y, torch.arange(len(z), device=z.device)
        else:
            refs = as_embeddings(refs, "refs", squared=True).to(z.dtype)
            ref_y = None if ref_y is None else torch.as_tensor(ref_y, device=z.device)
            self_index = None if self_index is None else torch.as_tensor(self_index, device=z.device)
        check_batch(z, y, refs, ref_y)
        if not len(z) or not len(refs):
            return z.sum() * 0
        with torch.autocast(z.device.type, enabled=False):
            return finite(self.compute(z, y, refs, ref_y, self_index), self, z)

    def compute(self, z: Tensor, y: Tensor, refs: Tensor, ref_y: Tensor | None, self_index: Tensor | None) -> Tensor:
        D, pos, neg = self.compare(z, y, refs, ref_y, self_index)
        return self.loss(D, *self.mine(D, pos, neg))

    def compare(
        self, z: Tensor, y: Tensor, refs: Tensor, ref_y: Tensor | None, self_index: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Distances (B, R) and the masks of positives and negatives."""
        return self.distances(z, refs), *self.masks(y, ref_y, self_index, z.dtype)

    def masks(
        self, y: Tensor, ref_y: Tensor | None, self_index: Tensor | None, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """Which references are positive and which negative, (B, R) each."""
        return masks(y, ref_y, self_index)

    def distances(self, z: Tensor, refs: Tensor) -> Tensor:
        return get_distance(self.distance)(*self.placed(z, refs))

    def placed(self, z: Tensor, refs: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings and references where they are compared: on the unit sphere, if so asked."""
        if not self.normalize:
            return z, refs
        same, z = refs is z, unit(z)
        return z, z if same else unit(refs)

    def pair_distances(self, a: Tensor, b: Tensor) -> Tensor:
        """Distances between partners, (..., p) and (..., p) to (...)."""
        if self.normalize:
            a, b = unit(a), unit(b)
        return paired(self.distance, a, b)

    def mine(self, D: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
        if self.miner is None:
            return pos, neg
        with torch.no_grad():
            return self.miner.select(D.detach(), pos, neg)

    @abstractmethod
    def loss(self, D: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        """The reduction: distances and masks, all (B, R), to a scalar."""

    def views(self, z1: Tensor, z2: Tensor) -> Tensor:
        """The loss of two views of the same unlabelled samples: each instance is a class of two."""
        instance = torch.arange(len(z1), device=z1.device)
        return self(torch.cat([z1, z2]), torch.cat([instance, instance]))


class SlopeForm(Loss):
    """A loss that gives its slopes ∂L/∂D with its value; the way on to the embeddings is two matrix products.

    Without a miner it is worked out in blocks of anchors, in O(block · R) memory beside the masks, unless ``whole``.
    """

    whole = False  # True: the slopes of one anchor depend on the distances of others

    def totals(self, pos: Tensor, neg: Tensor) -> Any:
        """What to divide by: counts over the masks (B, R) of the whole batch."""
        return None

    @abstractmethod
    def slopes(self, D: Tensor, pos: Tensor, neg: Tensor, totals: Any) -> tuple[Tensor, Tensor]:
        """The part of some anchors in the scalar, and its slopes in a new matrix; D stays as it is.

        If D has a graph the slopes must have one too; for what is overwritten in place there is ``spare``.
        """

    def compute(self, z: Tensor, y: Tensor, refs: Tensor, ref_y: Tensor | None, self_index: Tensor | None) -> Tensor:
        pos, neg = self.masks(y, ref_y, self_index, z.dtype)
        z, refs = self.placed(z, refs)
        if self.whole or self.miner is not None:
            mined = remembered(partial(self.mine, pos=pos, neg=neg))
            return of_distances(self.distance, z, refs, lambda _, D: self.sloped(D, *mined(D)), True)
        totals = self.totals(pos, neg)
        return of_distances(self.distance, z, refs, lambda rows, D: self.slopes(D, pos[rows], neg[rows], totals))

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        return of_matrix(D, lambda _, D: self.sloped(D, pos, neg))

    def sloped(self, D: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
        """Value and slopes of a whole batch."""
        return self.slopes(D, pos, neg, self.totals(pos, neg))


class TripletForm(Loss):
    """A loss that also has a value for a list of triplets: from a miner, or given by the caller."""

    @abstractmethod
    def triplet_loss(self, d_ap: Tensor, d_an: Tensor) -> Tensor:
        """The loss of triplets from the distances (T,) of anchors to positives and to negatives."""

    def compute(self, z: Tensor, y: Tensor, refs: Tensor, ref_y: Tensor | None, self_index: Tensor | None) -> Tensor:
        if self.triple_miner is None:
            return super().compute(z, y, refs, ref_y, self_index)
        return self.triplet_loss(*self.mined(self.triple_miner, z, y, refs, ref_y, self_index)[:2])

    @property
    def triple_miner(self) -> TripleMiner | None:
        """The miner, if its choice is a list of triplets."""
        return self.miner if isinstance(self.miner, TripleMiner) and self.miner.gives_triples else None

    def mined(
        self, miner: TripleMiner, z: Tensor, y: Tensor, refs: Tensor, ref_y: Tensor | None, self_index: Tensor | None
    ) -> tuple[Tensor, ...]:
        """d_ap, d_an, a, p, n (T,) of the triplets that the miner chooses."""
        pos, neg = self.masks(y, ref_y, self_index, z.dtype)
        z, refs = self.placed(z, refs)
        return of_triples(self.distance, z, refs, partial(miner.triples, pos=pos, neg=neg))

    def triplets(self, z: Tensor, triples: Triples, refs: Tensor | None = None) -> Tensor:
        """The loss of given triplets: rows of ``z`` as anchors; positives and negatives are rows of ``refs``."""
        z = as_embeddings(z, "z", squared=True)
        refs = z if refs is None else as_embeddings(refs, "refs", squared=True).to(z.dtype)
        a, p, n = triples
        with torch.autocast(z.device.type, enabled=False):
            return self.triplet_loss(self.pair_distances(z[a], refs[p]), self.pair_distances(z[a], refs[n]))


class WeightedSum(LossModule):
    """Σ_k w_k L_k(z, y): several losses on the same embeddings, such as cross-entropy beside a Fisher loss."""

    def __init__(self, *losses: LossModule, weights: tuple[float, ...] | None = None):
        super().__init__()
        weights = (1.0,) * len(losses) if weights is None else tuple(weights)
        if len(weights) != len(losses):
            raise ValueError(f"{len(losses)} losses need as many weights, got {len(weights)}")
        self.losses, self.weights = nn.ModuleList(losses), weights

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        return torch.stack([w * loss(z, y) for w, loss in zip(self.weights, self.losses)]).sum()

    def param_groups(self, lr: float) -> list[dict[str, Any]]:
        return [group for loss in self.losses for group in loss.param_groups(lr)]  # type: ignore[operator]


def remembered(choose: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """A choice that is made once: a miner that draws at random would choose others in a second pass."""
    made: list[tuple[Tensor, Tensor]] = []

    def chosen(D: Tensor) -> tuple[Tensor, Tensor]:
        if not made:
            made.append(choose(D))
        return made[0]

    return chosen


def as_embeddings(z: Tensor, name: str, squared: bool = False) -> Tensor:
    """A finite matrix of at least float32, or an error that says what is wrong with it.

    ``squared``: squared distances between its rows shall be finite too.
    """
    if z.ndim != 2 or not z.is_floating_point():
        raise ValueError(f"{name} must be a floating-point matrix (n, p), got {z.dtype} of shape {tuple(z.shape)}")
    if z.dtype in (torch.float16, torch.bfloat16):
        z = z.float()
    if not torch.linalg.vector_norm(z.detach()).isfinite():  # one pass for good input; squares may also overflow
        bad = (~z.detach().isfinite().all(1)).nonzero().squeeze(1).tolist()
        if bad:
            raise ValueError(
                f"{name} has NaN or infinite values in {len(bad)} of {len(z)} rows, first in row {bad[0]}; "
                "lower the learning rate, clip gradients, or look for bad input samples"
            )
        norm = largest_norm(z)
        if squared and 4 * norm > torch.finfo(z.dtype).max / norm:  # ‖z_i − z_j‖² ≤ (2 norm)²
            raise OverflowError(
                f"{name} has rows of norm up to {norm:.3g}, whose squared distances exceed what {z.dtype} can hold, "
                f"{torch.finfo(z.dtype).max:.2g}; {SMALLER}"
            )
    return z


def largest_norm(z: Tensor) -> float:
    """The largest norm of a row of finite embeddings, also where its square overflows."""
    largest = z.detach().abs().amax().double()
    return float(largest * (z.detach() / largest.to(z.dtype)).double().norm(dim=1).max())


def finite(value: Tensor, loss: nn.Module, z: Tensor) -> Tensor:
    """The value of a loss, or an error that says why it is not finite."""
    if value.isfinite():
        return value
    bad = [name for name, p in loss.named_parameters() if not p.isfinite().all()]
    if bad:
        raise OverflowError(f"{type(loss).__name__} has NaN or infinite numbers in its parameters {', '.join(bad)}")
    raise OverflowError(
        f"{type(loss).__name__} is {float(value.detach())} though all embeddings are finite: at norms up to "
        f"{largest_norm(z):.3g} a step of its computation exceeds what {z.dtype} can hold; {SMALLER}"
    )


def check_batch(z: Tensor, y: Tensor, refs: Tensor, ref_y: Tensor | None) -> None:
    """Shapes that fit one another, or an error that names the two that do not."""
    if refs.shape[1] != z.shape[1]:
        raise ValueError(f"refs have {refs.shape[1]} dimensions and z has {z.shape[1]}; they must live in one space")
    if y.ndim == 2 and y.shape != (len(z), len(refs)):
        raise ValueError(f"a similarity matrix must be (B, R) = {(len(z), len(refs))}, got {tuple(y.shape)}")
    if y.ndim not in (1, 2) or len(y) != len(z):
        raise ValueError(f"{len(z)} embeddings need labels ({len(z)},) or a matrix (B, R), got shape {tuple(y.shape)}")
    if y.ndim == 1 and (ref_y is None or ref_y.shape != (len(refs),)):
        got = "none" if ref_y is None else f"shape {tuple(ref_y.shape)}"
        raise ValueError(f"{len(refs)} references need ref_y of shape ({len(refs)},), got {got}")


def check_labels(y: Tensor, num_classes: int) -> None:
    """Integer labels 0 … C − 1, or an error that says which are not."""
    if y.is_floating_point() or y.dtype == torch.bool:
        raise ValueError(f"class labels must be integers, got {y.dtype}")
    if len(y) and not 0 <= int(y.min()) <= int(y.max()) < num_classes:
        raise ValueError(
            f"labels must lie in 0 … {num_classes - 1} for num_classes={num_classes}, got {int(y.min())} … "
            f"{int(y.max())}; encode the labels or raise num_classes"
        )
