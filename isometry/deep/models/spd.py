"""Layers for symmetric positive definite (SPD) matrices, such as covariances, and a network of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import orthogonal

from isometry.deep.functional import first_derivative_only

Spectral = Callable[[Tensor], Tensor]  # of eigenvalues (B, m)


class BiMap(nn.Module):
    """A layer of SPD matrices, X ↦ W X Wᵀ with orthonormal rows of W: smaller ones from larger ones.

    Parameters
    ----------
    before : int
        Order m of the matrices that come in.
    after : int
        Order m' ≤ m of those that come out; ``weight`` is W (m', m).

    Notes
    -----
    The linear layer of ``SPDNet``. Costs O(B m² m').

    References
    ----------
    | Z. Huang, L. Van Gool, "A Riemannian network for SPD matrix learning", AAAI 2017.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import BiMap
    >>> BiMap(4, 2)(torch.eye(4).expand(3, 4, 4)).shape
    torch.Size([3, 2, 2])
    """

    def __init__(self, before: int, after: int):
        super().__init__()
        if not 1 <= after <= before:
            raise ValueError(f"rows of W can be orthonormal if 1 <= after <= before, got {before} to {after}")
        self.weight = nn.Parameter(nn.init.orthogonal_(torch.empty(after, before)))
        # W = exp(A − Aᵀ) is orthogonal in any precision. Not torch's reflections: the signs they keep among the
        # parameters fall to zero under weight decay, and W with them; nor a base, which keeps its first precision.
        orthogonal(self, "weight", orthogonal_map="matrix_exp", use_trivialization=False)

    def forward(self, X: Tensor) -> Tensor:
        """(B, m, m) to (B, m', m'), in full precision.

        Parameters
        ----------
        X : Tensor
            SPD matrices (B, m, m).

        Returns
        -------
        Tensor
            SPD matrices (B, m', m'), in full precision.
        """
        with torch.autocast(X.device.type, enabled=False):
            W = self.weight
            return W @ X.to(W.dtype) @ W.T


class ReEig(nn.Module):
    """Eigenvalue rectification, the ReLU of SPD matrices: V diag(max(λ, ε)) Vᵀ.

    Parameters
    ----------
    eps : float, default=1e-4
        The smallest eigenvalue ε > 0: the result is definite, and has a logarithm.

    Notes
    -----
    The nonlinearity of ``SPDNet``. Costs O(B m³), an eigendecomposition each.

    References
    ----------
    | Z. Huang, L. Van Gool, "A Riemannian network for SPD matrix learning", AAAI 2017.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import ReEig
    >>> X = ReEig(eps=0.5)(torch.diag(torch.tensor([2.0, 0.1]))[None])
    >>> bool((torch.linalg.eigvalsh(X) > 0.49).all())
    True
    """

    def __init__(self, eps: float = 1e-4):
        super().__init__()
        if not eps > 0:
            raise ValueError(f"eps={eps} must be positive, so that the matrices stay definite")
        self.eps = eps

    def forward(self, X: Tensor) -> Tensor:
        """(B, m, m) to (B, m, m).

        Parameters
        ----------
        X : Tensor
            Symmetric matrices (B, m, m).

        Returns
        -------
        Tensor
            SPD matrices (B, m, m).
        """
        return spectral_map(X, lambda w: w.clamp_min(self.eps), self.slopes)

    def slopes(self, w: Tensor) -> Tensor:
        gap, rise = differences(w), differences(w.clamp_min(self.eps))
        slope = (w > self.eps).to(w.dtype)[:, :, None].expand_as(gap)
        return torch.where(gap == 0, slope, rise / gap)


class LogEig(nn.Module):
    """The matrix logarithm V diag(log λ) Vᵀ, flattened so that the Euclidean distance is that of the matrices.

    Entries off the diagonal come once, times √2. The distance of two results is the log-Euclidean distance.

    Notes
    -----
    The last layer of ``SPDNet``, and by itself a map of covariances into a space where any method works. Costs O(B m³),
    an eigendecomposition each.

    References
    ----------
    | V. Arsigny, P. Fillard, X. Pennec, N. Ayache, "Log-Euclidean metrics for fast and simple calculus on diffusion
      tensors", Magnetic Resonance in Medicine 2006.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import LogEig
    >>> LogEig()(torch.eye(3).expand(2, 3, 3))
    tensor([[0., 0., 0., 0., 0., 0.],
            [0., 0., 0., 0., 0., 0.]])
    """

    def forward(self, X: Tensor) -> Tensor:
        """SPD matrices (B, m, m) to vectors (B, m(m + 1)/2).

        Parameters
        ----------
        X : Tensor
            SPD matrices (B, m, m).

        Returns
        -------
        Tensor
            Vectors (B, m(m + 1)/2).
        """
        return flatten(spectral_map(X, self.log, self.slopes))

    @staticmethod
    def log(w: Tensor) -> Tensor:
        """Logarithms of eigenvalues, or an error where one is not positive.

        Parameters
        ----------
        w : Tensor
            Eigenvalues (B, m).

        Returns
        -------
        Tensor
            Logarithms (B, m).
        """
        if w.numel() and not w.min() > 0:
            raise ValueError(f"a matrix with eigenvalue {float(w.min()):.3g} has no logarithm; put ReEig before LogEig")
        return w.log()

    @staticmethod
    def slopes(w: Tensor) -> Tensor:
        """Divided differences log(λ_i / λ_j) / (λ_i − λ_j), in a form that loses no digits.

        Parameters
        ----------
        w : Tensor
            Eigenvalues (B, m).
        """
        gap, least = differences(w).abs(), torch.minimum(w[:, :, None], w[:, None])
        return torch.where(gap == 0, 1 / least, torch.log1p(gap / least) / gap)


class SPDNet(nn.Module):
    """A network for SPD matrices: BiMap and ReEig by turns, LogEig, a linear layer. For any loss.

        X ↦ WXWᵀ, WWᵀ = I;     X ↦ V diag(max(λ, ε)) Vᵀ;     X ↦ V diag(log λ) Vᵀ

    Parameters
    ----------
    sizes : sequence of int
        Orders of the matrices, from those given down: (9, 6, 4) has two blocks.
    n_components : int or None, default=None
        Dimension p of the embeddings; None: the flattened logarithms themselves.
    eps : float, default=1e-4
        The smallest eigenvalue ε of the rectification. It should lie below those that matter: bring the matrices to a
        scale near 1.

    Notes
    -----
    For covariances and other SPD matrices, such as those of EEG or of image regions. With few matrices ``LogEig`` and a
    linear map may be enough. Costs O(B m³) a block.

    References
    ----------
    | Z. Huang, L. Van Gool, "A Riemannian network for SPD matrix learning", AAAI 2017.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import SPDNet
    >>> SPDNet((4, 2), n_components=3)(torch.eye(4).expand(5, 4, 4)).shape
    torch.Size([5, 3])
    """

    def __init__(self, sizes: Sequence[int], n_components: int | None = None, eps: float = 1e-4):
        super().__init__()
        layers: list[nn.Module] = [ReEig(eps)] if len(sizes) == 1 else []
        for before, after in itertools.pairwise(sizes):
            layers += [BiMap(before, after), ReEig(eps)]
        layers.append(LogEig())
        if n_components is not None:
            layers.append(nn.Linear(sizes[-1] * (sizes[-1] + 1) // 2, n_components))
        self.sizes, self.layers = tuple(sizes), nn.Sequential(*layers)

    def forward(self, X: Tensor) -> Tensor:
        """(B, m, m) to (B, p).

        Parameters
        ----------
        X : Tensor
            SPD matrices (B, m, m).

        Returns
        -------
        Tensor
            Embeddings (B, p).
        """
        m = self.sizes[0]
        if X.shape[1:] != (m, m):
            raise ValueError(f"samples must be matrices {m} × {m}, got shape {tuple(X.shape)}")
        return self.layers(X)


class _SpectralMap(torch.autograd.Function):
    """V diag(f(λ)) Vᵀ of X = V diag(λ) Vᵀ, with the gradient of Daleckii and Krein.

        dL/dX = V (K ∘ Vᵀ G V) Vᵀ,    K_ij = (f(λ_i) − f(λ_j)) / (λ_i − λ_j),    f'(λ_i) where the two are equal

    It needs no differences of eigenvectors, and so is finite for repeated eigenvalues, where that of eigh is not.
    """

    @staticmethod
    def forward(ctx: Any, X: Tensor, f: Spectral, slopes: Spectral) -> Tensor:
        w, V = torch.linalg.eigh(symmetric(X))  # (B, m), (B, m, m)
        ctx.slopes = slopes
        ctx.save_for_backward(w, V)
        return (V * f(w)[:, None]) @ V.mT

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor, None, None]:
        w, V = ctx.saved_tensors
        return V @ (ctx.slopes(w) * (V.mT @ symmetric(G) @ V)) @ V.mT, None, None


def spectral_map(X: Tensor, f: Spectral, slopes: Spectral) -> Tensor:
    """A function f of the eigenvalues of symmetric matrices (B, m, m).

    Parameters
    ----------
    X : Tensor
        Symmetric matrices (B, m, m).
    f : callable
        Eigenvalues (B, m) to (B, m).
    slopes : callable
        Eigenvalues (B, m) to the divided differences K (B, m, m) of f.
    """
    with torch.autocast(X.device.type, enabled=False):
        return _SpectralMap.apply(X.to(torch.promote_types(X.dtype, torch.float32)), f, slopes)


def differences(w: Tensor) -> Tensor:
    """Differences w_i − w_j, (B, m, m)."""
    return w[:, :, None] - w[:, None]


def symmetric(X: Tensor) -> Tensor:
    """The symmetric part (X + Xᵀ) / 2."""
    return (X + X.mT) / 2


def flatten(S: Tensor) -> Tensor:
    """The distinct entries of symmetric matrices (B, m(m + 1)/2), scaled so that the norm stays."""
    i, j = torch.triu_indices(*S.shape[1:], device=S.device)
    return S[:, i, j] * torch.where(i == j, S.new_ones(()), S.new_tensor(2).sqrt())
