"""Matches between embeddings that are distributions."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isometry.deep.distributed import gather
from isometry.deep.functional import full_precision, masked_min, sqeuclidean
from isometry.deep.loss import as_labels, own_parameters
from isometry.deep.models.autoencoder import LOG_VARIANCE
from isometry.deep.objectives.variational import kl_to_standard_normal, posterior
from isometry.parameters import NotNegative, Positive, checked


class ProbabilisticPairs(nn.Module):
    """Probabilistic pairs, PCME++: whether two samples match, from the mean squared distance of their distributions.

        d_ij = ‖μ_i − μ_j‖² + Σ σ_i² + Σ σ_j²,     BCE(b − a d_ij, match) + α BCE(b − a d_ij, match or nearer) + β KL

    a and b are learned, a > 0. The second term counts as matches also the pairs that are nearer than the nearest true
    match of the anchor. KL, a mean over coordinates, is the divergence from N(0, I). Batches are (samples, labels),
    compared with one another, or two columns of samples whose rows match. The model gives ``posterior(x)``, as
    `GaussianNet` does.

    Parameters
    ----------
    scale : float, default=5.0
        The factor a at the start.
    shift : float, default=5.0
        The offset b at the start.
    pseudo_weight : float, default=0.1
        The weight α of the second term.
    kl_weight : float, default=1e-4
        The weight β of the divergence.
    columns : bool, default=False
        A batch is two columns of samples in place of samples and labels.

    Notes
    -----
    For matches that are ambiguous, such as images and captions of which several fit. Do not expect the variance to tell
    errors where the training set is learned without any: on digits (700 to learn from) it ranked the errors of nearest
    neighbours with an AUC of 0.48 and 0.57 (two seeds). Costs O(B² p).

    References
    ----------
    | S. Chun, "Improved probabilistic image-text representations", ICLR 2024.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import MLP, GaussianNet, ProbabilisticPairs
    >>> model = GaussianNet(MLP(4, 8), n_features=8, n_components=2)
    >>> ProbabilisticPairs()(model, (torch.eye(4), torch.tensor([0, 0, 1, 1]))).item() > 0
    True
    """

    def __init__(
        self,
        scale: float = 5.0,
        shift: float = 5.0,
        pseudo_weight: float = 0.1,
        kl_weight: float = 1e-4,
        columns: bool = False,
    ):
        super().__init__()
        checked("scale", scale, Positive)
        self.raw_scale = nn.Parameter(torch.tensor(scale + math.log(-math.expm1(-scale))))  # softplus of it is a
        self.shift = nn.Parameter(torch.tensor(float(checked("shift", shift, float))))
        self.pseudo_weight = checked("pseudo_weight", pseudo_weight, NotNegative)
        self.kl_weight = checked("kl_weight", kl_weight, NotNegative)
        self.columns = columns

    @property
    def scale(self) -> Tensor:
        """The factor a, which is positive."""
        return F.softplus(self.raw_scale)

    def forward(self, model: nn.Module, batch: Any) -> Tensor:
        """The loss of a batch of samples with labels, or of two columns.

        Parameters
        ----------
        model : GaussianNet
            A network with a ``posterior``.
        batch : tuple
            Samples and labels, or two columns of samples.

        Returns
        -------
        Tensor
            The scalar.
        """
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            what = "two columns of samples" if self.columns else "(samples, labels)"
            raise ValueError(f"ProbabilisticPairs needs batches of {what}, got {type(batch).__name__}")
        if not self.columns:
            x, y = batch
            mean, logvar = map(full_precision, posterior(model, x))
            return self.of_labels(*gather(mean, logvar, as_labels(y, mean.device)))
        both = [tuple(map(full_precision, posterior(model, x))) for x in batch]
        (m1, v1), (m2, v2) = gather(*both[0]), gather(*both[1])
        return self.of_columns(m1, v1, m2, v2)

    def of_labels(self, mean: Tensor, logvar: Tensor, y: Tensor) -> Tensor:
        """The loss of means and log-variances (B, p) with labels (B,): all pairs of different samples.

        Parameters
        ----------
        mean : Tensor
            Means (B, p).
        logvar : Tensor
            Logarithms of the variances (B, p).
        y : Tensor
            Labels (B,).
        """
        if len(y) != len(mean):
            raise ValueError(f"{len(mean)} distributions need as many labels, got {len(y)}")
        other = ~torch.eye(len(y), dtype=torch.bool, device=y.device)
        return self.pairs(mean, logvar, mean, logvar, (y[:, None] == y) & other, other)

    def of_columns(self, m1: Tensor, v1: Tensor, m2: Tensor, v2: Tensor) -> Tensor:
        """The loss of two columns of distributions: those of one row match.

        Parameters
        ----------
        m1 : Tensor
            Means of the first column (B, p).
        v1 : Tensor
            Logarithms of its variances (B, p).
        m2 : Tensor
            Means of the second column (R, p).
        v2 : Tensor
            Logarithms of its variances (R, p).
        """
        if len(m1) != len(m2):
            raise ValueError(f"two columns need as many rows, got {len(m1)} and {len(m2)}")
        match = torch.eye(len(m1), dtype=torch.bool, device=m1.device)
        return self.pairs(m1, v1, m2, v2, match, torch.ones_like(match))

    def pairs(self, m1: Tensor, v1: Tensor, m2: Tensor, v2: Tensor, match: Tensor, used: Tensor) -> Tensor:
        """The loss of all pairs ``used`` (B, R), of which some ``match``.

        Parameters
        ----------
        m1 : Tensor
            Means of the first column (B, p).
        v1 : Tensor
            Logarithms of its variances (B, p).
        m2 : Tensor
            Means of the second column (R, p).
        v2 : Tensor
            Logarithms of its variances (R, p).
        match : Tensor
            Which pairs match, a boolean matrix (B, R).
        used : Tensor
            Which pairs are compared, a boolean matrix (B, R).
        """
        with torch.autocast(m1.device.type, enabled=False):
            m1, v1, m2, v2 = map(full_precision, (m1, v1, m2, v2))
            v1, v2 = (v.clamp(-LOG_VARIANCE, LOG_VARIANCE) for v in (v1, v2))
            D = mean_sqdist(m1, v1, m2, v2)
            x = self.shift - self.scale * D  # (B, R)
            value = mean_bce(x, match, used)
            if self.pseudo_weight:
                ways = nearer(D, match), nearer(D.T, match.T).T
                pseudo = torch.stack([mean_bce(x, matches & used, used) for matches in ways]).mean()
                value = value + self.pseudo_weight * pseudo
            if self.kl_weight:
                kl = torch.cat([kl_to_standard_normal(m1, v1), kl_to_standard_normal(m2, v2)]).mean() / m1.shape[1]
                value = value + self.kl_weight * kl
        return value

    def param_groups(self, lr: float) -> list[dict[str, Any]]:
        """Optimiser groups for a and b.

        Parameters
        ----------
        lr : float
            Learning rate of the backbone.
        """
        return own_parameters(self, lr)


def mean_sqdist(m1: Tensor, v1: Tensor, m2: Tensor, v2: Tensor) -> Tensor:
    """E ‖u − w‖² (B, R) of independent u ∼ N(μ_i, σ_i²), w ∼ N(μ_j, σ_j²), from means and log-variances."""
    return sqeuclidean(m1, m2) + v1.exp().sum(1)[:, None] + v2.exp().sum(1)


def mean_bce(x: Tensor, match: Tensor, used: Tensor) -> Tensor:
    """Mean over the pairs ``used`` of the binary cross-entropy of logits; 0 if there are none."""
    terms = F.binary_cross_entropy_with_logits(x, match.to(x.dtype), reduction="none")
    return terms.masked_fill(~used, 0).sum() / used.count_nonzero().clamp_min(1)


def nearer(D: Tensor, match: Tensor) -> Tensor:
    """Matches, and pairs no farther apart than the nearest match of the row, if it has one."""
    return match | (D.detach() <= masked_min(D.detach(), match)[:, None]) & match.any(1, keepdim=True)
