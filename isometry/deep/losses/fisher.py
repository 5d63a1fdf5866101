"""Fisher discriminant losses for Siamese networks: trace of the within scatter against that of the between scatter."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from isometry.deep.functional import masked_mean
from isometry.deep.loss import Loss, TripletForm
from isometry.deep.losses.triplet import triplet_counts
from isometry.deep.miners import Miner
from isometry.parameters import NotNegative, checked, one_of


class FisherTriplet(TripletForm):
    """Fisher discriminant triplet loss: one hinge for the batch on scatters of positive and negative differences.

        [(2 − λ) tr(UᵀS_W U) − λ tr(UᵀS_B U) + m]_+

    A trace of the scatter after the last layer U is the mean squared distance of the outputs, so no scatter is formed.
    Both traces grow with the scale of the embedding: if (2 − λ) mean d²_ap > λ mean d²_an, shrinking everything lowers
    the loss. Hence λ near 1 and unit length. A trace cannot hold more than two groups apart; for many classes add a
    ``CrossEntropy``.

    Parameters
    ----------
    lam : float, default=0.9
        The weight λ of the scatter between, near 1.
    margin : float, default=1.5
        The margin m.
    layer : nn.Linear or None, default=None
        The last layer U, for the ridge terms ((2 − λ) μ_W − λ μ_B) ‖U‖²; it stays part of the network, not of the loss.
    mu_w : float, default=1e-4
        The multiple μ_W of the identity that is added to S_W.
    mu_b : float, default=1e-4
        The multiple μ_B of the identity that is added to S_B.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.
    normalize : bool, default=True
        Put embeddings and references on the unit sphere first.
    reduction : {"mean", "sum"}, default="mean"
        Scatters as means, or as sums over triplets as in the authors' code.

    Notes
    -----
    For a handful of classes, beside a ``CrossEntropy``. For many classes, or where classes are ranked rather than told
    apart, take ``Triplet``. Costs O(B² p).

    References
    ----------
    | B. Ghojogh, M. Sikaroudi, S. Shafiei, H. Tizhoosh, F. Karray, M. Crowley, "Fisher discriminant triplet and
      contrastive losses for training Siamese networks", IJCNN 2020.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import FisherTriplet
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = FisherTriplet()
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    """

    def __init__(
        self,
        lam: float = 0.9,
        margin: float = 1.5,
        *,
        layer: nn.Linear | None = None,
        mu_w: float = 1e-4,
        mu_b: float = 1e-4,
        miner: Miner | str | None = None,
        normalize: bool = True,
        reduction: str = "mean",
    ):
        super().__init__("sqeuclidean", miner, normalize)
        self.lam, self.margin = checked("lam", lam, float), checked("margin", margin, float)
        self.mu_w, self.mu_b = checked("mu_w", mu_w, NotNegative), checked("mu_b", mu_b, NotNegative)
        self.layer = (layer,)  # in a tuple, so that its weights do not become parameters of the loss
        self.reduction = one_of("reduction", reduction, ("mean", "sum"))

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor, D_refs: Tensor | None = None) -> Tensor:
        w_pos, w_neg = triplet_counts(pos, neg, D.dtype)
        return self.hinge((w_pos * D).sum(), (w_neg * D).sum(), w_pos.sum())

    def triplet_loss(self, d_ap: Tensor, d_an: Tensor, d_pn: Tensor | None = None) -> Tensor:
        return self.hinge(d_ap.sum(), d_an.sum(), d_ap.new_tensor(len(d_ap)))

    def hinge(self, within: Tensor, between: Tensor, n_triplets: Tensor) -> Tensor:
        """The loss of the sums of squared distances of positives and of negatives.

        Parameters
        ----------
        within : Tensor
            Sum over the positives.
        between : Tensor
            Sum over the negatives.
        n_triplets : Tensor
            How many triplets the sums are of.

        Returns
        -------
        Tensor
            The scalar.
        """
        value = (2 - self.lam) * within - self.lam * between
        if self.reduction == "mean":
            value = value / n_triplets.clamp_min(1)
        return (value + ridge(self.layer[0], self.lam, self.mu_w, self.mu_b) + self.margin).relu() * (n_triplets > 0)


class FisherContrastive(Loss):
    """Fisher discriminant contrastive loss: within scatter of similar pairs minimised, between scatter bounded below.

        (2 − λ) tr(UᵀS_W U) + [m − λ tr(UᵀS_B U)]_+

    For use beside a ``CrossEntropy``; by itself it does not raise accuracy.

    Parameters
    ----------
    lam : float, default=0.9
        The weight λ of the scatter between, near 1.
    margin : float, default=0.25
        The margin m of the scatter between.
    layer : nn.Linear or None, default=None
        U, the last layer of the network; without it nothing is added to the scatters.
    mu_w : float, default=1e-4
        The multiple of the identity that is added to S_W.
    mu_b : float, default=1e-4
        The multiple of the identity that is added to S_B.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.
    normalize : bool, default=False
        Put embeddings and references on the unit sphere first.

    Notes
    -----
    For a handful of classes. Costs O(B² p).

    References
    ----------
    | B. Ghojogh, M. Sikaroudi, S. Shafiei, H. Tizhoosh, F. Karray, M. Crowley, "Fisher discriminant triplet and
      contrastive losses for training Siamese networks", IJCNN 2020.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import FisherContrastive
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = FisherContrastive()
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    """

    of_pairs = True

    def __init__(
        self,
        lam: float = 0.9,
        margin: float = 0.25,
        *,
        layer: nn.Linear | None = None,
        mu_w: float = 1e-4,
        mu_b: float = 1e-4,
        miner: Miner | str | None = None,
        normalize: bool = False,
    ):
        super().__init__("sqeuclidean", miner, normalize)
        self.lam, self.margin = checked("lam", lam, float), checked("margin", margin, float)
        self.mu_w, self.mu_b = checked("mu_w", mu_w, NotNegative), checked("mu_b", mu_b, NotNegative)
        self.layer = (layer,)

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        pull = (2 - self.lam) * masked_mean(D, pos) + ridge(self.layer[0], self.lam, self.mu_w, 0.0)
        push = self.margin - self.lam * masked_mean(D, neg) + ridge(self.layer[0], self.lam, 0.0, self.mu_b)
        return (pull + push.relu()) * (pos | neg).any()


def ridge(layer: nn.Linear | None, lam: float, mu_w: float, mu_b: float) -> Tensor | float:
    """((2 − λ) μ_W − λ μ_B) ‖U‖²: what adding μI to the scatters adds to the traces."""
    if layer is None:
        return 0.0
    return ((2 - lam) * mu_w - lam * mu_b) * layer.weight.to(
        torch.promote_types(layer.weight.dtype, torch.float32)
    ).square().sum()
