"""What all losses share.

From ``forward`` to the formula of a loss it is three steps:

1. ``Loss.forward`` checks what it is given and calls ``compute``.
2. ``Loss.compute`` makes the masks of positives and negatives (B, R), brings embeddings and references to unit length
   if so asked (``prepare``), takes the distances D (B, R) between them, and lets the miner narrow the masks.
3. ``loss(D, pos, neg)`` is the formula, in plain operations on D and the masks; autograd differentiates it.

In a ``TripletForm`` the formula is ``triplet_loss(d_ap, d_an)``, of a list of triplets; its ``loss`` takes all triplets
of the masks. A loss that compares something else, such as centres of classes, overrides ``compute``.

``slopes`` is an optional accelerator. It gives the same value as ``loss`` with its slopes ∂loss/∂D in closed form;
``compute`` takes it in place of ``loss`` where ``accelerated`` is True. If ``totals`` says what the slopes are divided
by, they are worked out block by block of anchors, in O(block · R) memory beside the masks. A test compares the two for
every loss that has both: set ``accelerated = False`` to compute by the formula.

A loss that is one mean over terms of anchors writes ``split(D, pos, neg)`` in place of ``loss``: what each term adds,
and what it counts. Weights of anchors, values of each anchor and a range of terms (``losses/weighted.py``) follow.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from isometry.deep.functional import (
    Distance,
    full_precision,
    get_distance,
    masks,
    own_index,
    paired,
    unit,
    without_autocast,
)
from isometry.deep.miners import Miner, TripleMiner
from isometry.deep.named import make_named
from isometry.deep.slopes import Triples, in_blocks, of_triples, with_slopes
from isometry.deep.terms import Terms, as_weight, mean_of_terms, means_of_anchors

ROOTS: dict[Any, Callable[[Tensor], Tensor]] = {  # Euclidean distances from those of the loss
    "euclidean": lambda D: D,
    "sqeuclidean": lambda D: D.clamp_min(0).sqrt(),
}
ADVICE = "normalise the embeddings, lower the learning rate, clip gradients, or compute in float64"


class LossModule(nn.Module):
    """What an optimiser needs to know of a loss that has parameters of its own."""

    lr_mult: float = 1.0  # their learning rate, in units of the backbone's
    lr_cap: float = 1e-2
    beside: str = ""  # if it collapses when it stands alone: with what it is meant to stand

    def no_terms(self) -> TypeError:
        """The error of a loss that is no mean over terms of anchors."""
        return TypeError(
            f"{type(self).__name__}{self.not_split()} is not one mean over terms of anchors: they have no weights "
            "and no values of their own in it; let the sampler draw some samples more often, or take another loss"
        )

    def not_split(self) -> str:
        """With which settings the loss is no mean over terms, if that depends on them."""
        return ""

    def param_groups(self, lr: float) -> list[dict[str, Any]]:
        """Optimiser groups for the parameters of the loss, given the learning rate of the backbone.

        Parameters
        ----------
        lr : float
            Learning rate of the backbone.

        Returns
        -------
        list of dict
            Groups for a ``torch.optim`` optimiser; empty if the loss has nothing to learn.
        """
        return own_parameters(self, min(lr * self.lr_mult, self.lr_cap))


class LabelLoss(LossModule, ABC):
    """A loss of embeddings and labels that compares no pairs."""

    squared = False  # True: it takes squares of the embeddings, which must be finite too

    def forward(self, z: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        """The loss of embeddings (B, p) with labels or targets (B, …).

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p); half precision is raised to float32.
        y : Tensor
            Labels or targets (B, …).
        weight : Tensor (B,) or None, default=None
            Weights of the samples: a whole number counts one so many times, 0 leaves it out. For losses that are one
            mean over terms of samples; a ``TypeError`` for others.

        Returns
        -------
        Tensor
            A scalar: zero, but part of the graph, for an empty batch.
        """
        z, y = self.inputs(z, y)
        weight = None if weight is None else as_weight(weight, z)
        if not len(z):
            return z.sum() * 0
        with without_autocast(z.device):
            value = self.compute(z, y) if weight is None else mean_of_terms(*self.terms(z, y), weight)
            return finite(value, self, z)

    def per_anchor(self, z: Tensor, y: Tensor) -> Tensor:
        """The loss of each sample by itself, (B,).

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        y : Tensor
            Labels or targets (B, …).
        """
        z, y = self.inputs(z, y)
        with without_autocast(z.device):
            return means_of_anchors(*self.terms(z, y))

    def inputs(self, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings and labels of the right kind, or an error.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        y : Tensor
            Labels or targets (B, …).
        """
        z = as_embeddings(z[:, None] if isinstance(z, Tensor) and z.ndim == 1 else z, "z", self.squared)
        y = as_labels(y, z.device)
        if len(y) != len(z):
            raise ValueError(f"{len(z)} embeddings need as many labels or targets, got {len(y)}")
        return z, y

    @abstractmethod
    def compute(self, z: Tensor, y: Tensor) -> Tensor:
        """The scalar, in full precision.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        y : Tensor
            Labels or targets (B, …).

        Returns
        -------
        Tensor
            The scalar.
        """

    def terms(self, z: Tensor, y: Tensor) -> Terms:
        """What each sample adds to the sum, and what it counts in the mean, (B,) each.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        y : Tensor
            Labels or targets (B, …).
        """
        raise self.no_terms()


class Loss(LossModule, ABC):
    """A scalar from the distances (B, R) of a batch to references, which of them are positive and which negative.

    Parameters
    ----------
    distance : str or callable, default="euclidean"
        How embeddings are compared, smaller for closer pairs: "euclidean", "sqeuclidean", "cosine", "inner",
        "manhattan", "snr", "poincare", or a callable ``(B, p), (R, p) -> (B, R)``, such as ``Lp(p)`` or
        ``Poincare(c)``.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.
    normalize : bool, default=False
        Put embeddings and references on the unit sphere first.

    Notes
    -----
    From ``forward`` to the formula there are three steps: ``forward`` checks what it is given, ``compute`` makes masks
    and distances and lets the miner choose, and ``loss(D, pos, neg)`` is the formula. A loss of your own needs the last
    one only. Distances cost O(B R p) time and O(B R) memory for B samples, R references and p dimensions.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Loss
    >>> class Gap(Loss):
    ...     def loss(self, D, pos, neg):
    ...         return D[pos].mean() - D[neg].mean()
    >>> z = torch.tensor([[0.0], [1.0], [5.0], [6.0]])
    >>> Gap(distance="manhattan")(z, torch.tensor([0, 0, 1, 1]))
    tensor(-4.)
    """

    of_pairs = False  # True: each pair has a term of its own, so that a list of pairs is enough
    accelerated = False  # True: ``slopes`` is used in place of ``loss``

    def __init__(self, distance: Distance = "euclidean", miner: Miner | str | None = None, normalize: bool = False):
        super().__init__()
        get_distance(distance)
        self.distance, self.normalize = distance, normalize
        self.miner: Miner | None = make_named("miner", miner, (Miner,)) if isinstance(miner, str) else miner
        if self.miner is not None and self.miner.needs_unit_euclidean and not (distance in ROOTS and normalize):
            name = type(self).__name__
            raise ValueError(
                f"{type(self.miner).__name__} works on Euclidean distances between unit vectors; "
                f"{name} has distance={distance!r}, normalize={normalize}: build it as "
                f"{name}(distance='euclidean', normalize=True), if it has these parameters, or take another miner"
            )

    def forward(
        self,
        z: Tensor,
        y: Tensor,
        refs: Tensor | None = None,
        ref_y: Tensor | None = None,
        self_index: Tensor | None = None,
        weight: Tensor | None = None,
    ) -> Tensor:
        """The loss of embeddings ``z`` (B, p) against references.

        Parameters
        ----------
        z : Tensor (B, p)
            Embeddings; half precision is raised to float32.
        y : Tensor (B,) or (B, R)
            Labels; or a matrix that says for each reference whether it is similar: boolean, or a number in [0, 1], NaN
            where nothing is known.
        refs : Tensor (R, p) or None, default=None
            References; by default the batch itself.
        ref_y : Tensor (R,) or None, default=None
            Their labels.
        self_index : Tensor (B,) or None, default=None
            Which reference is the anchor itself, −1 for none. Needed only with ``refs``.
        weight : Tensor (B,) or None, default=None
            Weights of the anchors: a whole number counts an anchor so many times, 0 leaves it out. For losses that are
            one mean over terms of anchors; a ``TypeError`` for others.

        Returns
        -------
        Tensor
            A scalar: zero, but part of the graph, if the batch holds nothing to compare.
        """
        inputs = self.inputs(z, y, refs, ref_y, self_index)
        z = inputs[0]
        weight = None if weight is None else as_weight(weight, z)
        if not len(z) or not len(inputs[2]):
            return z.sum() * 0
        with without_autocast(z.device):
            value = self.compute(*inputs) if weight is None else mean_of_terms(*self.terms(*inputs), weight)
            return finite(value, self, z)

    def per_anchor(
        self,
        z: Tensor,
        y: Tensor,
        refs: Tensor | None = None,
        ref_y: Tensor | None = None,
        self_index: Tensor | None = None,
    ) -> Tensor:
        """The loss of each anchor by itself, (B,), against the same references; 0 if it has nothing to compare.

        The arguments are those of ``forward``. The loss of the batch is the mean of these values, in which an anchor
        counts as often as it has terms: once, or once for each of its pairs.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        y : Tensor
            Labels (B,), or a matrix of similarities (B, R).
        refs : Tensor or None, default=None
            References (R, p); None: the batch itself.
        ref_y : Tensor or None, default=None
            Labels of the references (R,).
        self_index : Tensor or None, default=None
            Which reference is the anchor itself (B,), −1 for none.
        """
        inputs = self.inputs(z, y, refs, ref_y, self_index)
        with without_autocast(inputs[0].device):
            return means_of_anchors(*self.terms(*inputs))

    def inputs(
        self, z: Tensor, y: Tensor, refs: Tensor | None, ref_y: Tensor | None, self_index: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
        """The arguments of ``forward``, of the right kind and with references, or an error.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        y : Tensor
            Labels (B,), or a matrix of similarities (B, R).
        refs : Tensor or None
            References (R, p); None: the batch itself.
        ref_y : Tensor or None
            Labels of the references (R,).
        self_index : Tensor or None
            Which reference is the anchor itself (B,), −1 for none.
        """
        z = as_embeddings(z, "z", squared=True)
        y = as_labels(y, z.device)
        if refs is None:
            refs, ref_y, self_index = z, y, own_index(len(z), z.device)
        else:
            refs = as_embeddings(refs, "refs", squared=True).to(z.dtype)
            ref_y = None if ref_y is None else as_labels(ref_y, z.device)
            self_index = None if self_index is None else torch.as_tensor(self_index, device=z.device)
        y, ref_y = self.read_labels(y, ref_y)
        check_batch(z, y, refs, ref_y)
        return z, y, refs, ref_y, self_index

    def compute(self, z: Tensor, y: Tensor, refs: Tensor, ref_y: Tensor | None, self_index: Tensor | None) -> Tensor:
        """The scalar, in full precision: masks, distances, the choice of the miner, then the formula.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        y : Tensor
            Labels (B,), or a matrix of similarities (B, R).
        refs : Tensor
            References (R, p).
        ref_y : Tensor or None
            Labels of the references (R,).
        self_index : Tensor or None
            Which reference is the anchor itself (B,), −1 for none.

        Returns
        -------
        Tensor
            The scalar.
        """
        return self.compare(*self.prepare(z, refs), *self.masks(y, ref_y, self_index, z.dtype))

    def terms(self, z: Tensor, y: Tensor, refs: Tensor, ref_y: Tensor | None, self_index: Tensor | None) -> Terms:
        """What ``compute`` averages: what each term of an anchor adds, and what it counts, (B,) or (B, R) each.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        y : Tensor
            Labels (B,), or a matrix of similarities (B, R).
        refs : Tensor
            References (R, p).
        ref_y : Tensor or None
            Labels of the references (R,).
        self_index : Tensor or None
            Which reference is the anchor itself (B,), −1 for none.
        """
        if type(self).split is Loss.split:
            raise self.no_terms()
        z, refs = self.prepare(z, refs)
        pos, neg = self.masks(y, ref_y, self_index, z.dtype)
        D = get_distance(self.distance)(z, refs)
        return self.split(D, *self.mine(D, pos, neg))

    def compare(self, z: Tensor, refs: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        """The scalar of embeddings and references as they are compared, and masks: distances, miner, formula.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        refs : Tensor
            References (R, p).
        pos : Tensor
            Which references are positive, a boolean matrix (B, R).
        neg : Tensor
            Which references are negative, a boolean matrix (B, R).
        """
        if self.accelerated and self.miner is None and (totals := self.totals(pos, neg)) is not None:
            return in_blocks(self.distance, z, refs, lambda rows, D: self.slopes(D, pos[rows], neg[rows], totals))
        D = get_distance(self.distance)(z, refs)
        pos, neg = self.mine(D, pos, neg)
        if self.accelerated:
            return with_slopes(D, lambda D: self.slopes(D, pos, neg, self.totals(pos, neg)))
        return self.loss(D, pos, neg)

    def read_labels(self, y: Tensor, ref_y: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Labels as ``masks`` takes them, (B,) and (R,), or a matrix (B, R) that a loss makes of labels of its kind.

        Parameters
        ----------
        y : Tensor
            Labels (B,).
        ref_y : Tensor or None
            Labels of the references (R,).
        """
        return y, ref_y

    def masks(
        self, y: Tensor, ref_y: Tensor | None, self_index: Tensor | None, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """Which references are positive and which negative, (B, R) each.

        Parameters
        ----------
        y : Tensor
            Labels (B,).
        ref_y : Tensor or None
            Labels of the references (R,).
        self_index : Tensor or None
            Which reference is the anchor itself (B,), −1 for none.
        dtype : torch.dtype
            Type of the embeddings.
        """
        return masks(y, ref_y, self_index)

    def prepare(self, z: Tensor, refs: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings and references as they are compared: of unit length, if so asked.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        refs : Tensor
            References (R, p).
        """
        if not self.normalize:
            return z, refs
        same, z = refs is z, unit(z)
        return z, z if same else unit(refs)

    def distances(self, z: Tensor, refs: Tensor) -> Tensor:
        """Distances (B, R) as the loss compares them.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        refs : Tensor
            References (R, p).

        Returns
        -------
        Tensor
            Distances (B, R), of unit vectors if the loss normalises.
        """
        return get_distance(self.distance)(*self.prepare(z, refs))

    def pair_distances(self, a: Tensor, b: Tensor) -> Tensor:
        """Distances between partners, (..., p) and (..., p) to (...).

        Parameters
        ----------
        a : Tensor
            Embeddings (..., p).
        b : Tensor
            Their partners (..., p).

        Returns
        -------
        Tensor
            Distances (...).
        """
        if self.normalize:
            a, b = unit(a), unit(b)
        return paired(self.distance, a, b)

    def mine(self, D: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
        """The masks that the miner leaves.

        Parameters
        ----------
        D : Tensor
            Distances (B, R).
        pos : Tensor
            Which references are positive, a boolean matrix (B, R).
        neg : Tensor
            Which references are negative, a boolean matrix (B, R).
        """
        if self.miner is None:
            return pos, neg
        with torch.no_grad():
            return self.miner.select(self.as_mined(D.detach()), pos, neg)

    def as_mined(self, D: Tensor) -> Tensor:
        """The distances as the miner compares them: not squared, if it needs that.

        Parameters
        ----------
        D : Tensor
            Distances (B, R).
        """
        return ROOTS[self.distance](D) if self.miner is not None and self.miner.needs_unit_euclidean else D

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        """The formula: distances and masks, all (B, R), to a scalar.

        Parameters
        ----------
        D : Tensor
            Distances (B, R).
        pos : Tensor
            Which references are positive, a boolean matrix (B, R).
        neg : Tensor
            Which references are negative, a boolean matrix (B, R).

        Returns
        -------
        Tensor
            The scalar.
        """
        return mean_of_terms(*self.split(D, pos, neg))

    def split(self, D: Tensor, pos: Tensor, neg: Tensor) -> Terms:
        """The formula of a loss that is one mean over terms of anchors: what each adds, and what it counts.

        (B,) or (B, R) each, 0 where there is no term.

        Parameters
        ----------
        D : Tensor
            Distances (B, R).
        pos : Tensor
            Which references are positive, a boolean matrix (B, R).
        neg : Tensor
            Which references are negative, a boolean matrix (B, R).
        """
        raise self.no_terms()

    def slopes(self, D: Tensor, pos: Tensor, neg: Tensor, totals: Tensor | None) -> tuple[Tensor, Tensor]:
        """The part of some anchors in ``loss``, and ∂loss/∂D as a new matrix; D stays as it is.

        If D has a graph the slopes must have one too; ``overwritable`` copies what would be overwritten in place.

        Parameters
        ----------
        D : Tensor
            Distances (B, R).
        pos : Tensor
            Which references are positive, a boolean matrix (B, R).
        neg : Tensor
            Which references are negative, a boolean matrix (B, R).
        totals : Tensor or None
            What ``totals`` gave.
        """
        raise NotImplementedError(f"{type(self).__name__} has no slopes: set accelerated = False")

    def totals(self, pos: Tensor, neg: Tensor) -> Tensor | None:
        """What ``slopes`` of some anchors are divided by, counted over the whole batch; None: they need all anchors.

        Parameters
        ----------
        pos : Tensor
            Which references are positive, a boolean matrix (B, R).
        neg : Tensor
            Which references are negative, a boolean matrix (B, R).
        """
        return None

    def views(self, *zs: Tensor) -> Tensor:
        """The loss of two or more views (m, p) of the same unlabelled samples: each instance is a class.

        Parameters
        ----------
        *zs : Tensor
            Embeddings (m, p) of one view each; row i is the same sample in all of them.

        Returns
        -------
        Tensor
            The scalar.
        """
        return self(*as_instances(*zs))


class TripletForm(Loss):
    """A loss that also has a value for a list of triplets: from a miner, or given by the caller.

    Parameters
    ----------
    distance : str or callable, default="euclidean"
        How embeddings are compared, smaller for closer pairs: "euclidean", "sqeuclidean", "cosine", "inner",
        "manhattan", "snr", "poincare", or a callable ``(B, p), (R, p) -> (B, R)``.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.
    normalize : bool, default=False
        Put embeddings and references on the unit sphere first.

    Notes
    -----
    Base class of the losses that ``OfflineTripletSampler`` and ``Siamese`` can feed with triplets. Without a miner all
    O(B R²) triplets of the masks are meant; most losses sum over them in O(B R log B) time without a list.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import BatchHard, Triplet, TripletForm
    >>> isinstance(Triplet(), TripletForm)
    True
    >>> z, y = torch.eye(4), torch.tensor([0, 0, 1, 1])
    >>> loss = Triplet(margin=0.2)
    >>> loss.triplets(z, BatchHard()(z, y)).shape
    torch.Size([])
    """

    uses_pn = False  # True: the loss also depends on the distances between positives and negatives

    @abstractmethod
    def triplet_loss(self, d_ap: Tensor, d_an: Tensor, d_pn: Tensor | None = None) -> Tensor:
        """The loss of triplets from the distances (T,) of anchors to positives and to negatives.

        ``d_pn``, from positives to negatives, is given if ``uses_pn``.

        Parameters
        ----------
        d_ap : Tensor
            Distances (T,) of anchors to positives.
        d_an : Tensor
            Distances (T,) of anchors to negatives.
        d_pn : Tensor or None, default=None
            Distances (T,) of positives to negatives.

        Returns
        -------
        Tensor
            The scalar.
        """

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor, D_refs: Tensor | None = None) -> Tensor:
        """All triplets of the masks as a list; ``D_refs`` (R, R) are the distances among references, if needed.

        Parameters
        ----------
        D : Tensor
            Distances (B, R).
        pos : Tensor
            Which references are positive, a boolean matrix (B, R).
        neg : Tensor
            Which references are negative, a boolean matrix (B, R).
        D_refs : Tensor or None, default=None
            Distances among the references (R, R), if they are needed.
        """
        a, p, n = (pos[:, :, None] & neg[:, None]).nonzero(as_tuple=True)
        return self.triplet_loss(D[a, p], D[a, n], *(() if D_refs is None else (D_refs[p, n],)))

    def lists(self) -> TripleMiner | None:
        """The miner, if it gives a list of triplets."""
        return self.miner if isinstance(self.miner, TripleMiner) and self.miner.gives_triples else None

    def compute(self, z: Tensor, y: Tensor, refs: Tensor, ref_y: Tensor | None, self_index: Tensor | None) -> Tensor:
        miner = self.lists()
        if miner is None and not self.uses_pn:
            return super().compute(z, y, refs, ref_y, self_index)
        pos, neg = self.masks(y, ref_y, self_index, z.dtype)
        z, refs = self.prepare(z, refs)
        if miner is not None:
            d_ap, d_an, _, p, n = of_triples(
                self.distance, z, refs, lambda D: miner.triples(self.as_mined(D), pos, neg)
            )
            d_pn = (paired(self.distance, refs[p], refs[n]),) if self.uses_pn else ()
            return self.triplet_loss(d_ap, d_an, *d_pn)
        distance = get_distance(self.distance)
        D = distance(z, refs)
        return self.loss(D, *self.mine(D, pos, neg), D if refs is z else distance(refs, refs))

    def triplets(self, z: Tensor, triples: Triples | Tensor, refs: Tensor | None = None) -> Tensor:
        """The loss of given triplets.

        ``triplets(z, (a, p, n))`` takes rows of ``z`` as anchors, positives and negatives; given ``refs``, positives
        and negatives are rows of these. ``triplets(anchors, positives, negatives)`` takes embeddings, (T, p) each.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p), or those of the anchors (T, p).
        triples : tuple of Tensor, or Tensor
            Rows (a, p, n) of anchors, positives and negatives, (T,) each; or the embeddings of the positives (T, p).
        refs : Tensor or None, default=None
            What positives and negatives are rows of; or the embeddings of the negatives (T, p).

        Returns
        -------
        Tensor
            The scalar.
        """
        if isinstance(triples, Tensor):
            if refs is None:
                raise ValueError("triplets(anchors, positives, negatives) needs all three; the negatives are missing")
            a = torch.arange(len(z), device=z.device)
            z, triples, refs = torch.cat([z, triples, refs]), (a, a + len(a), a + 2 * len(a)), None
        z = as_embeddings(z, "z", squared=True)
        refs = z if refs is None else as_embeddings(refs, "refs", squared=True).to(z.dtype)
        a, p, n = triples
        with without_autocast(z.device):
            d_pn = (self.pair_distances(refs[p], refs[n]),) if self.uses_pn else ()
            return self.triplet_loss(self.pair_distances(z[a], refs[p]), self.pair_distances(z[a], refs[n]), *d_pn)


class WeightedSum(LossModule):
    """Several losses on the same embeddings: Σ_k w_k L_k(z, y), such as cross-entropy beside a Fisher loss.

    Parameters
    ----------
    *losses : LossModule
        The losses L_k of embeddings and labels; their parameters are trained with the network.
    weights : tuple of float or None, default=None
        The weights w_k; None: 1 each.

    Notes
    -----
    For regularisers such as ``CenterLoss`` or ``ThresholdConsistentMargin``, which draw everything together when they
    stand alone, and for pairs that were published together, such as ``NPair`` and ``Angular``. Costs what the losses
    cost.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Angular, NPair, WeightedSum
    >>> z, y = torch.eye(4), torch.tensor([0, 0, 1, 1])
    >>> both = WeightedSum(NPair(), Angular(), weights=(1.0, 2.0))
    >>> bool(torch.isclose(both(z, y), NPair()(z, y) + 2 * Angular()(z, y)))
    True
    """

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


class LossAround(LossModule):
    """A loss around another one, ``loss``, whose parameters are all there are."""

    def __init__(self, loss: LossModule):
        super().__init__()
        self.loss: Any = loss

    def param_groups(self, lr: float) -> list[dict[str, Any]]:
        groups: list[dict[str, Any]] = self.loss.param_groups(lr)
        return groups


def own_parameters(module: nn.Module, lr: float) -> list[dict[str, Any]]:
    """One optimiser group of the parameters to be trained, or none."""
    params = [p for p in module.parameters() if p.requires_grad]
    return [{"params": params, "lr": lr, "weight_decay": 0.0}] if params else []


def as_instances(*zs: Tensor) -> tuple[Tensor, Tensor]:
    """Views (m, p) of the same samples as one batch, and the number of the sample as its label."""
    if len(zs) < 2 or len({len(z) for z in zs}) > 1:
        raise ValueError(
            f"views must be two or more, of equal length, got lengths {', '.join(str(len(z)) for z in zs)}"
        )
    return torch.cat(zs), torch.arange(len(zs[0]), device=zs[0].device).repeat(len(zs))


def as_embeddings(z: Tensor, name: str, squared: bool = False) -> Tensor:
    """A finite matrix of at least float32, or an error that says what is wrong with it.

    ``squared``: squared distances between its rows shall be finite too.
    """
    if not isinstance(z, Tensor):
        advice = "torch.as_tensor makes one of an array"
        if isinstance(z, tuple):
            advice = "tuples that another library has mined are no references; a loss takes a miner, miner=…"
        raise TypeError(f"{name} must be a tensor of embeddings (n, p), got {type(z).__name__}: {advice}")
    if z.ndim != 2 or not z.is_floating_point():
        raise ValueError(f"{name} must be a floating-point matrix (n, p), got {z.dtype} of shape {tuple(z.shape)}")
    z = full_precision(z)
    if not math.isfinite(
        torch.linalg.vector_norm(z.detach()).item()
    ):  # one pass for good input; squares may also overflow
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
                f"{torch.finfo(z.dtype).max:.2g}; {ADVICE}"
            )
    return z


def as_labels(y: Any, device: torch.device) -> Tensor:
    """Labels (B,), or a matrix, as a tensor: torch indexes by int64 alone, so whole numbers of any type become that."""
    try:
        y = torch.as_tensor(y, device=device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"labels must be numbers ({error}); encode others first: np.unique(labels, return_inverse=True)[1]"
        ) from error
    if y.is_complex():
        raise ValueError(f"labels must be whole numbers, or similarities in [0, 1]; got {y.dtype}")
    whole = not (y.is_floating_point() or (y.dtype == torch.bool and y.ndim != 1))
    return y.long() if whole else y


def largest_norm(z: Tensor) -> float:
    """The largest norm of a row of finite embeddings, also where its square overflows."""
    largest = z.detach().abs().amax().double()
    return float(largest * (z.detach() / largest.to(z.dtype)).double().norm(dim=1).max())


def finite(value: Tensor, loss: nn.Module, z: Tensor) -> Tensor:
    """The value of a loss, or an error that says why it is not finite."""
    if math.isfinite(value.item()):
        return value
    bad = [name for name, p in loss.named_parameters() if not p.isfinite().all()]
    if bad:
        raise OverflowError(f"{type(loss).__name__} has NaN or infinite numbers in its parameters {', '.join(bad)}")
    raise OverflowError(
        f"{type(loss).__name__} is {float(value.detach())} though all embeddings are finite: at norms up to "
        f"{largest_norm(z):.3g} a step of its computation exceeds what {z.dtype} can hold; {ADVICE}"
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
    if y.ndim != 1:
        raise ValueError(f"class labels must be one for each sample, (B,), got shape {tuple(y.shape)}")
    if not len(y):
        return
    lowest, highest = (int(label) for label in y.aminmax())
    if not 0 <= lowest <= highest < num_classes:
        raise ValueError(
            f"labels must lie in 0 … {num_classes - 1} for num_classes={num_classes}, got {lowest} … {highest}; "
            "encode the labels or raise num_classes"
        )


def check_classes(z: Tensor, y: Tensor, points: Tensor) -> None:
    """A label 0 … C − 1 for each embedding, in the dimension of points (C, p), or an error that says what is wrong."""
    if y.ndim != 1:
        raise ValueError(f"{len(z)} embeddings need class labels ({len(z)},), got shape {tuple(y.shape)}")
    check_batch(z, y, points, y.new_empty(()).expand(len(points)))
    check_labels(y, len(points))
