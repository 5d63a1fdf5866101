"""Centre loss and P2SGrad: embeddings drawn to one point, or one direction, for each class."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from isometry.deep.functional import class_indicator
from isometry.deep.loss import LabelLoss, check_classes
from isometry.deep.losses.margin_softmax import ClassCosines
from isometry.parameters import Count, PositiveShare, checked, one_of


class CenterLoss(LabelLoss):
    """Centre loss: each embedding near the centre of its class; to stand beside a classifier.

        ½ mean_i ‖z_i − c_{y_i}‖²,     c_l ← c_l − α Σ_{y_i=l} (c_l − z_i) / (1 + n_l)

    It stands beside a loss that keeps the classes apart, since alone it is least if all embeddings are one point:
    ``WeightedSum(CrossEntropy(C, p), CenterLoss(C, p), weights=(1, 0.003))``. Embeddings keep their length.

    Parameters
    ----------
    num_classes : int
        Number of classes C, and of centres.
    embedding_size : int
        Dimension p of the embeddings.
    alpha : float, default=0.5
        How far the centres move with a batch, α, in (0, 1].
    update : {"rule", "gradient"}, default="rule"
        Centres follow the rule above, once for each batch in training; or are parameters, trained with the network.

    Notes
    -----
    Beside a classifier that keeps the classes apart; it makes them compact, for verification. The classifier decides
    more than the centres do: with a network that is trained already let it learn faster, ``classifier.lr_mult = 10``.
    Costs O(B p).

    References
    ----------
    | Y. Wen, K. Zhang, Z. Li, Y. Qiao, "A discriminative feature learning approach for deep face recognition", ECCV
      2016.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import CenterLoss, CrossEntropy, WeightedSum
    >>> loss = WeightedSum(CrossEntropy(3, 4), CenterLoss(3, 4), weights=(1, 0.003))
    >>> loss(torch.eye(4), torch.tensor([0, 0, 1, 2])).item() > 0
    True
    """

    squared = True
    beside = "WeightedSum(CrossEntropy(C, p), CenterLoss(C, p), weights=(1, 0.003))"
    centers: Tensor

    def __init__(self, num_classes: int, embedding_size: int, alpha: float = 0.5, update: str = "rule"):
        super().__init__()
        self.alpha = checked("alpha", alpha, PositiveShare)
        self.by_rule = one_of("update", update, ("rule", "gradient")) == "rule"
        shape = checked("num_classes", num_classes, Count), checked("embedding_size", embedding_size, Count)
        start = torch.zeros(shape)
        if self.by_rule:
            self.register_buffer("centers", start)
        else:
            self.centers = nn.Parameter(start)

    def compute(self, z: Tensor, y: Tensor) -> Tensor:
        check_classes(z, y, self.centers)
        value = (z - self.centers.to(z.dtype)[y]).square().sum() / (2 * len(z))
        if self.by_rule and self.training:
            self.move(z.detach(), y)
        return value

    @torch.no_grad()
    def move(self, z: Tensor, y: Tensor) -> None:
        """Take a batch into the centres of its classes.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        y : Tensor
            Labels (B,).
        """
        classes, members = class_indicator(y, z.dtype)
        n, c = members.sum(1, keepdim=True), self.centers[classes].to(z.dtype)  # (C_b, 1), (C_b, p)
        self.centers[classes] = (c - self.alpha * (n * c - members @ z) / (1 + n)).to(self.centers.dtype)


class P2SGrad(ClassCosines):
    """P2SGrad: the cosine to the own class shall be 1, those to the others 0; it has neither scale nor margin.

        ½ mean_i Σ_l (cos θ_il − [l = y_i])²

    Its gradient, Σ_l (cos θ_l − [l = y]) ∇cos θ_l, is what the paper puts in place of that of a softmax.

    Parameters
    ----------
    num_classes : int
        Number of classes C.
    embedding_size : int
        Dimension p of the embeddings.

    Notes
    -----
    Neither scale nor margin has to be chosen, and the gradient never vanishes before the angles are right. Cosines to
    all other classes shall be 0, so the dimension should not be far below the number of classes. Costs O(B C p).

    References
    ----------
    | X. Zhang, R. Zhao, J. Yan, M. Gao, Y. Qiao, X. Wang, H. Li, "P2SGrad: refined gradients for optimizing deep face
      models", CVPR 2019.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import P2SGrad
    >>> loss = P2SGrad(num_classes=3, embedding_size=4)
    >>> z, y = torch.eye(4), torch.tensor([0, 0, 1, 2])
    >>> value = loss(z, y)
    >>> value.shape, bool(value.isfinite())
    (torch.Size([]), True)
    """

    def compute(self, z: Tensor, y: Tensor) -> Tensor:
        y = self.check(z, y)
        wanted = nn.functional.one_hot(y, self.num_classes).to(z.dtype) if y.ndim == 1 else y
        return (self.cosines(z) - wanted).square().sum() / (2 * len(z))
