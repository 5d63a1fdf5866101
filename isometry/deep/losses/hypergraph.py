"""Hypergraph-induced semantic tuplets: classes of a batch as edges that join many samples."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isometry.deep.functional import unit
from isometry.deep.loss import LabelLoss, check_classes
from isometry.parameters import Count, NotNegative, Positive, checked


class HIST(LabelLoss):
    """Hypergraph-induced semantic tuplet loss: class Gaussians, and a graph network over the batch that they weave.

        M_il = Σ (ẑ_i − μ̂_l)²/σ_l²,     −mean log softmax_l(−τ M_i)[y_i] + λ CE(G φ(G ẑ Θ₁) Θ₂, y)
        G = D_v^{−½} H D_e^{−1} Hᵀ D_v^{−½},  H_il = 1 if l = y_i, else e^{−αM_il},  for the classes l of the batch

    D_v and D_e are the sums of rows and of columns of H; φ is batch normalisation and a leaky ReLU. A batch of one
    class has no graph, and the first term only. Memory is O(B C): G itself is never built.

    Parameters
    ----------
    num_classes : int
        Number of classes C.
    embedding_size : int
        Dimension p of the embeddings.
    tau : float, default=32.0
        The factor τ of the distances in the softmax.
    alpha : float, default=0.9
        How fast membership falls with the distance, α.
    weight : float, default=1.0
        The weight λ of the graph network.
    hidden : int, default=512
        Outputs of the first layer of the graph network.

    Notes
    -----
    For batches of several samples of each class, ``PKBatchSampler``: the graph is that of the batch. Costs
    O(B C p + B p hidden).

    References
    ----------
    | J. Lim, S. Yun, S. Park, J. Y. Choi, "Hypergraph-induced semantic tuplet loss for deep metric learning", CVPR
      2022.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import HIST
    >>> loss = HIST(num_classes=3, embedding_size=4, hidden=8)
    >>> z, y = torch.eye(4), torch.tensor([0, 0, 1, 2])
    >>> value = loss(z, y)
    >>> value.shape, bool(value.isfinite())
    (torch.Size([]), True)
    """

    normalize = True
    squared = True
    lr_mult = 1000.0  # of the Gaussians
    lr_mult_net = 10.0  # of Θ

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        tau: float = 32.0,
        alpha: float = 0.9,
        weight: float = 1.0,
        hidden: int = 512,
    ):
        super().__init__()
        self.tau, self.alpha = checked("tau", tau, Positive), checked("alpha", alpha, Positive)
        self.weight = checked("weight", weight, NotNegative)
        shape = checked("num_classes", num_classes, Count), checked("embedding_size", embedding_size, Count)
        size = math.sqrt(2 / num_classes)
        self.means = nn.Parameter(size * torch.randn(shape))
        self.log_vars = nn.Parameter(size * torch.randn(shape))
        self.first = nn.Linear(embedding_size, checked("hidden", hidden, Count))
        self.norm, self.last = nn.BatchNorm1d(hidden), nn.Linear(hidden, num_classes)

    def compute(self, z: Tensor, y: Tensor) -> Tensor:
        check_classes(z, y, self.means)
        x = unit(z)
        M = self.mahalanobis(x)  # (B, C)
        value = F.cross_entropy(-self.tau * M, y)
        classes, code = y.unique(return_inverse=True)
        if len(classes) < 2 or not self.weight:
            return value
        H = (-self.alpha * M[:, classes]).exp().masked_fill(F.one_hot(code).bool(), 1.0)  # (B, C_b)
        return value + self.weight * F.cross_entropy(self.graph_net(x, H), y)

    def mahalanobis(self, x: Tensor) -> Tensor:
        """M (B, C) by products; log-variances are kept in [0, 6].

        Parameters
        ----------
        x : Tensor
            Embeddings (B, p).
        """
        precision, mu = (-F.relu6(self.log_vars.to(x.dtype))).exp(), unit(self.means.to(x.dtype))
        M = x.square() @ precision.T - 2 * x @ (mu * precision).T + (mu.square() * precision).sum(1)
        return M.clamp_min(0)

    def graph_net(self, x: Tensor, H: Tensor) -> Tensor:
        """Two layers, each followed by G; (B, p) to (B, C). Lengths are √p, as after a layer normalisation.

        Parameters
        ----------
        x : Tensor
            Embeddings (B, p).
        H : Tensor
            Memberships (B, classes of the batch).
        """
        x, H = (t.to(self.first.weight.dtype) for t in (x, H))
        hidden = F.leaky_relu(self.norm(spread(H, self.first(math.sqrt(x.shape[1]) * x))), 0.1)
        return spread(H, self.last(hidden))

    def param_groups(self, lr: float) -> list[dict[str, Any]]:
        gaussians = [self.means, self.log_vars]
        net = [p for part in (self.first, self.norm, self.last) for p in part.parameters()]
        pairs = ((gaussians, self.lr_mult), (net, self.lr_mult_net))
        return [{"params": part, "lr": min(lr * mult, self.lr_cap), "weight_decay": 0.0} for part, mult in pairs]


def spread(H: Tensor, X: Tensor) -> Tensor:
    """G X = D_v^{−½} H D_e^{−1} Hᵀ D_v^{−½} X, from right to left."""
    v, e = H.sum(1, keepdim=True).rsqrt(), H.sum(0)[:, None]
    return v * (H @ ((H.T @ (v * X)) / e))
