"""Small trainable parts on networks that stay as they are: heads, low-rank updates, pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isometry.deep.functional import full_precision
from isometry.parameters import Count, Positive, checked


class Headed(nn.Module):
    """A network of two parts, ``features(x)`` and ``head(f)``, for objectives that look at the features too.

    Parameters
    ----------
    backbone : nn.Module
        Samples (B, …) to features (B, d).
    head : nn.Module
        Features to embeddings (B, p).

    Notes
    -----
    For ``S2SD``, and for a small head on a network that stays as it is: ``Trainer(..., freeze="backbone")``.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import MLP, Headed
    >>> model = Headed(MLP(4, 8), torch.nn.Linear(8, 2))
    >>> model.features(torch.eye(4)).shape, model(torch.eye(4)).shape
    (torch.Size([4, 8]), torch.Size([4, 2]))
    """

    def __init__(self, backbone: nn.Module, head: nn.Module):
        super().__init__()
        self.backbone, self.head = backbone, head

    def features(self, x: Any) -> Tensor:
        """Samples (B, …) to features (B, d).

        Parameters
        ----------
        x : Tensor or dict
            Samples (B, …).

        Returns
        -------
        Tensor
            Features (B, d).
        """
        f: Tensor = self.backbone(x)
        return f

    def forward(self, x: Any) -> Tensor:
        """Samples (B, …) to embeddings (B, p).

        Parameters
        ----------
        x : Tensor or dict
            Samples (B, …).

        Returns
        -------
        Tensor
            Embeddings (B, p).
        """
        z: Tensor = self.head(self.features(x))
        return z


class LowRankHead(nn.Module):
    """Low-rank head: embeddings plus a product of two thin matrices, the identity at the start.

        z + (α/r) B A z,     A (r, p), B (p, r),   B = 0 at the start

    Parameters
    ----------
    size : int
        Dimension p of the embeddings.
    rank : int, default=16
        Rank r of the update.
    alpha : float or None, default=None
        The factor α; None: r.

    Notes
    -----
    For adapting embeddings of a network that is out of reach, with few labels: it begins at what is there, and has 2 r
    p numbers to learn. Costs O(B r p).

    References
    ----------
    | E. J. Hu, Y. Shen, P. Wallis, Z. Allen-Zhu, Y. Li, S. Wang, L. Wang, W. Chen, "LoRA: low-rank adaptation of large
      language models", ICLR 2022.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import LowRankHead
    >>> z = torch.eye(4)
    >>> torch.equal(LowRankHead(4, rank=2)(z), z)
    True
    """

    def __init__(self, size: int, rank: int = 16, alpha: float | None = None):
        super().__init__()
        self.update = LowRank(size, size, rank, rank if alpha is None else alpha)

    def forward(self, z: Tensor) -> Tensor:
        """Embeddings (B, p) to embeddings (B, p).

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).

        Returns
        -------
        Tensor
            Embeddings (B, p).
        """
        update: Tensor = self.update(z)
        return z + update


class LowRank(nn.Module):
    """(α/r) B A x, 0 at the start."""

    def __init__(self, n_in: int, n_out: int, rank: int, alpha: float):
        super().__init__()
        checked("rank", rank, Count)
        self.scale = checked("alpha", alpha, Positive) / rank
        self.A = nn.Parameter(torch.empty(rank, n_in))
        self.B = nn.Parameter(torch.zeros(n_out, rank))
        nn.init.kaiming_uniform_(self.A, math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * F.linear(F.linear(x, self.A), self.B)


class GatedHead(nn.Module):
    """Gated head: embeddings plus a network of them behind gates, closed at the start.

        z + tanh(g) ⊙ f(z),     g = 0 at the start

    Parameters
    ----------
    size : int
        Dimension p of the embeddings.
    net : nn.Module or None, default=None
        The network f; None: one linear layer.

    Notes
    -----
    As ``LowRankHead``, for changes that are not linear or not of low rank; it has more to learn and needs more labels.
    Costs O(B p²) with the default f.

    References
    ----------
    | T. Bachlechner, B. P. Majumder, H. H. Mao, G. W. Cottrell, J. McAuley, "ReZero is all you need: fast convergence
      at large depth", UAI 2021.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import GatedHead
    >>> z = torch.eye(4)
    >>> torch.equal(GatedHead(4)(z), z)
    True
    """

    def __init__(self, size: int, net: nn.Module | None = None):
        super().__init__()
        self.net = nn.Linear(size, size) if net is None else net
        self.gate = nn.Parameter(torch.zeros(size))

    def forward(self, z: Tensor) -> Tensor:
        """Embeddings (B, p) to embeddings (B, p).

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).

        Returns
        -------
        Tensor
            Embeddings (B, p).
        """
        return z + self.gate.tanh() * self.net(z)


class GeM(nn.Module):
    """Generalised-mean pooling: between the mean and the maximum over positions, by a learned exponent.

        (mean_t x_t^p)^{1/p},     x ≥ ε

    Parameters
    ----------
    p : float, default=3.0
        The exponent at the start: 1 is the mean, ∞ the maximum.
    eps : float, default=1e-6
        Smaller entries count as this.
    learn : bool, default=True
        Whether p is trained.

    Notes
    -----
    For retrieval with maps of features: large activations count more than by the mean. Costs O(B c positions).

    References
    ----------
    | F. Radenović, G. Tolias, O. Chum, "Fine-tuning CNN image retrieval with no human annotation", TPAMI 2019.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import GeM
    >>> maps = torch.rand(2, 8, 5, 5)
    >>> pooled = GeM(p=3.0)(maps)
    >>> pooled.shape, bool((pooled <= maps.amax((2, 3))).all())
    (torch.Size([2, 8]), True)
    """

    def __init__(self, p: float = 3.0, eps: float = 1e-6, learn: bool = True):
        super().__init__()
        self.p = nn.Parameter(torch.tensor(float(checked("p", p, Positive))), requires_grad=learn)
        self.eps = checked("eps", eps, Positive)

    def forward(self, x: Tensor) -> Tensor:
        """Maps (B, c, …positions) to (B, c).

        Parameters
        ----------
        x : Tensor
            Maps (B, c, …positions).

        Returns
        -------
        Tensor
            Pooled features (B, c).
        """
        if x.ndim < 3:
            raise ValueError(f"GeM pools over positions: (B, c, …), got shape {tuple(x.shape)}")
        with torch.autocast(x.device.type, enabled=False):
            log = full_precision(x).flatten(2).clamp_min(self.eps).log()  # (B, c, t)
            p = self.p.clamp_min(1e-3)
            return ((torch.logsumexp(p * log, 2) - math.log(log.shape[2])) / p).exp()


class LoRALinear(nn.Module):
    """A frozen linear layer and a low-rank update beside it."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.update = LowRank(base.in_features, base.out_features, rank, alpha).to(base.weight)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base(x) + self.update(x)
        return out

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """One linear layer that does the same."""
        self.base.weight += self.update.scale * (self.update.B @ self.update.A)
        return self.base


def add_lora(model: nn.Module, names: Sequence[str] = ("q", "v"), rank: int = 8, alpha: float = 16.0) -> nn.Module:
    """Freeze a network and put low-rank updates beside some of its linear layers, in place.

    Parameters
    ----------
    model : nn.Module
        The network, which is changed in place.
    names : sequence of str, default=("q", "v")
        The layers: the last part of their name, such as "query", or the whole of it, such as "encoder.0.query".
    rank : int, default=8
        Rank r of the update (α/r) B A x, which is 0 at the start.
    alpha : float, default=16.0
        The factor α.

    Returns
    -------
    nn.Module
        The network itself.

    Notes
    -----
    Fine-tunes a large network with few numbers to learn; ``lora_state`` saves them alone, ``merge_lora`` folds them in.

    Examples
    --------
    >>> from isometry.deep import MLP, add_lora
    >>> model = add_lora(MLP(4, 2), names=("0",), rank=1)
    >>> [name for name, p in model.named_parameters() if p.requires_grad]
    ['layers.0.update.A', 'layers.0.update.B']
    """
    linear = {name: m for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    chosen = [name for name in linear if name in names or name.rpartition(".")[2] in names]
    if not chosen:
        candidates = ", ".join(linear) or "none"
        raise ValueError(f"no linear layer is called {' or '.join(names)}; there are: {candidates}")
    model.requires_grad_(False)
    for name in chosen:
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, LoRALinear(linear[name], rank, alpha))
    return model


def merge_lora(model: nn.Module) -> nn.Module:
    """Fold the updates of ``add_lora`` into the linear layers, in place: the same function, as fast as before.

    Parameters
    ----------
    model : nn.Module
        A network that ``add_lora`` has changed.

    Returns
    -------
    nn.Module
        The network itself.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import MLP, add_lora, merge_lora
    >>> model = add_lora(MLP(4, 2), names=("0",), rank=1)
    >>> before = model(torch.eye(4))
    >>> torch.allclose(merge_lora(model)(torch.eye(4)), before)
    True
    """
    for name, module in list(model.named_modules()):
        if isinstance(module, LoRALinear):
            parent, _, own = name.rpartition(".")
            setattr(model.get_submodule(parent), own, module.merged())
    return model


def lora_state(model: nn.Module) -> dict[str, Tensor]:
    """The weights of the updates alone, for a small file; ``load_state_dict(state, strict=False)`` restores them.

    Parameters
    ----------
    model : nn.Module
        A network that ``add_lora`` has changed.

    Returns
    -------
    dict of Tensor
        The weights by name.

    Examples
    --------
    >>> from isometry.deep import MLP, add_lora, lora_state
    >>> list(lora_state(add_lora(MLP(4, 2), names=("0",), rank=1)))
    ['layers.0.update.A', 'layers.0.update.B']
    """
    updates = {name for name, m in model.named_modules() if isinstance(m, LoRALinear)}
    return {k: v for k, v in model.state_dict().items() if any(k.startswith(f"{name}.update.") for name in updates)}
