"""Points of the Poincaré ball, for embeddings that form a tree."""

from __future__ import annotations

import math
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from isometry.deep.functional import euclidean, length, paired
from isometry.parameters import Positive, Rule, checked

Reach = Annotated[float, Rule(lambda v: v > 0, "must be positive")]
FARTHEST = 15.0  # √c r, beyond which float64 cannot tell a point from the boundary of the ball


class _Rescaled(torch.autograd.Function):
    """x, with a gradient in the metric of the ball: times ((1 − c‖x‖²)/2)²."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: Tensor) -> Tensor:
        ctx.save_for_backward(factor)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor, None]:
        (factor,) = ctx.saved_tensors
        return G * factor, None


class ToPoincare(nn.Module):
    """Vectors to points of the Poincaré ball of curvature −c, by the exponential map at its centre.

        x = tanh(√c ‖v‖) v / (√c ‖v‖),     v shortened to length r if it is longer

    The distance between such points is ``Poincare(c, r)`` of the vectors v, which takes them before this map.

    Parameters
    ----------
    c : float, default=0.1
        Minus the curvature, c.
    r : float, default=2.3
        Longest length r of v; beyond √c r = 15 points fall onto the boundary.
    riemannian : bool, default=False
        Gradients in the metric of the ball, ((1 − c‖x‖²)/2)² times as long.

    Notes
    -----
    For data that form a tree, of which few dimensions then hold much. Euclidean distances of the points mean little:
    compare by `Poincare`. Costs O(B p).

    References
    ----------
    | A. Ermolov, L. Mirvakhabova, V. Khrulkov, N. Sebe, I. Oseledets, "Hyperbolic vision transformers: combining
      improvements in metric learning", CVPR 2022.
    | Y. Guo, X. Wang, Y. Chen, S. X. Yu, "Clipped hyperbolic classifiers are super-hyperbolic classifiers", CVPR 2022.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import ToPoincare
    >>> points = ToPoincare(c=1.0)(torch.tensor([[0.5, 0.0], [3.0, 4.0]]))
    >>> bool((points.norm(dim=1) < 1).all())
    True
    """

    def __init__(self, c: float = 0.1, r: float = 2.3, riemannian: bool = False):
        super().__init__()
        self.c, self.r = checked("c", c, Positive), checked("r", r, Reach)
        if math.sqrt(c) * r > FARTHEST:
            raise ValueError(f"√c r = {math.sqrt(c) * r:.3g} is beyond {FARTHEST:g}: points would lie on the boundary")
        self.riemannian = riemannian

    def forward(self, v: Tensor) -> Tensor:
        """Vectors (…, p) to points (…, p).

        Parameters
        ----------
        v : Tensor
            Vectors (…, p).

        Returns
        -------
        Tensor
            Points of the ball (…, p).
        """
        return self.points(v)[0]

    def points(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """The points (…, p), and 1 / √(1 − c‖x‖²) = cosh(√c‖v‖) of each, (…, 1), without cancellation.

        Parameters
        ----------
        v : Tensor
            Vectors (…, p).
        """
        root, n = math.sqrt(self.c), length(v)
        u = root * torch.where(n > self.r, self.r, torch.linalg.vector_norm(v, dim=-1, keepdim=True))  # (…, 1)
        x = v * (u.tanh() / (root * n))
        if self.riemannian:
            x = _Rescaled.apply(x, u.detach().cosh().pow(-4) / 4)
        return x, u.cosh()


class Poincare:
    """The distance of the Poincaré ball between vectors v, w at its centre; ``distance="poincare"`` has the defaults.

        (2/√c) arsinh(√c ‖x − y‖ / √((1 − c‖x‖²)(1 − c‖y‖²))),     x, y = ToPoincare(v), ToPoincare(w)

    For losses and miners: ``InfoNCE(0.2, distance=Poincare(c=0.1), normalize=False)``. It is not Euclidean: neighbours
    in the embedding are to be searched with this distance too.

    Parameters
    ----------
    c : float, default=0.1
        Minus the curvature, c.
    r : float, default=2.3
        Longest length r of a vector; beyond √c r = 15 points fall onto the boundary.
    riemannian : bool, default=False
        Gradients in the metric of the ball, ((1 − c‖x‖²)/2)² times as long.

    Notes
    -----
    Costs O(B R p), with two transcendental functions a pair.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import InfoNCE, Poincare
    >>> distance = Poincare(c=1.0)
    >>> D = distance(torch.eye(3), torch.eye(3))
    >>> D.shape, bool((D.diagonal() == 0).all())
    (torch.Size([3, 3]), True)
    >>> InfoNCE(0.2, distance=distance, normalize=False)(torch.eye(4), torch.tensor([0, 0, 1, 1])).item() > 0
    True
    """

    def __init__(self, c: float = 0.1, r: float = 2.3, riemannian: bool = False):
        self.ball = ToPoincare(c, r, riemannian)

    def __call__(self, z: Tensor, refs: Tensor) -> Tensor:
        x, a = self.ball.points(z)
        y, b = (x, a) if refs is z else self.ball.points(refs)
        return self.stretched(euclidean(x, y) * a * b.squeeze(-1))

    def paired(self, v: Tensor, w: Tensor) -> Tensor:
        """Distances between partners (…, p) and (…, p).

        Parameters
        ----------
        v : Tensor
            Vectors (…, p).
        w : Tensor
            Their partners (…, p).

        Returns
        -------
        Tensor
            Distances (…).
        """
        (x, a), (y, b) = self.ball.points(v), self.ball.points(w)
        return self.stretched(paired("euclidean", x, y) * (a * b).squeeze(-1))

    def stretched(self, d: Tensor) -> Tensor:
        """The distance (2/√c) arsinh(√c d).

        Parameters
        ----------
        d : Tensor
            What arsinh is taken of, divided by √c.
        """
        root = math.sqrt(self.ball.c)
        return (2 / root) * (root * d).asinh()

    def __repr__(self) -> str:
        return f"Poincare(c={self.ball.c}, r={self.ball.r})"
