"""Reconstruction by an autoencoder: plain, regularised or denoising. The code is the embedding; labels are not used."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from isometry.deep.distributed import first_stream, gather, is_distributed
from isometry.deep.functional import full_precision
from isometry.deep.models.autoencoder import Autoencoder
from isometry.parameters import one_of

FIDELITIES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {  # x̂ and x to the error of each feature
    "sq": partial(F.mse_loss, reduction="none"),
    "l1": partial(F.l1_loss, reduction="none"),
    "bce": partial(F.binary_cross_entropy_with_logits, reduction="none"),
}


class AutoencoderObjective(nn.Module):
    """Abstract: an objective of an autoencoder, which learns without labels."""

    needs_labels = False  # of a batch (samples, labels) the labels are ignored
    network: ClassVar[type[Autoencoder]] = Autoencoder  # what it trains


class Reconstruction(AutoencoderObjective):
    """Reconstruction autoencoder: the embedding is the code from which a decoder finds the sample again.

        (1/B) Σ_i δ(x_i, D(E(x̃_i))) + λΩ,     x̃ ∼ q(x̃ | x) in training, x̃ = x otherwise

    The target is always the clean x. Labels in a batch are ignored. The model has a ``decode``, as `Autoencoder` has.

    Parameters
    ----------
    fidelity : {"sq", "l1", "bce"}, default="sq"
        The error δ, a sum over features, so that λ keeps its meaning when their number changes: squares, absolute
        values, or cross-entropy of samples in [0, 1], for which the decoder gives logits.
    penalty : str, callable or None, default=None
        The penalty λΩ: "weights_l2", "weights_l1", "code_l1", "code_l2", "code_kl", "contractive", one of
        `WeightPenalty`, `CodePenalty`, `SparseCode`, `Contractive` with parameters of its own, or ``(model, x, z) →
        scalar``; None: no penalty.
    noise : str, callable or None, default=None
        The corruption q: "gaussian", "masking", "salt_pepper", one of `GaussianNoise`, `MaskingNoise`,
        `SaltPepperNoise`, or ``x → (x̃, corrupted)``; None: no noise.
    emphasis : tuple (α, β) or None, default=None
        Weights of the features that noise has corrupted, and of those it has spared; None: 1 each.

    Notes
    -----
    For samples without labels. It keeps what varies most, which need not be what tells classes apart: with labels, take
    a loss that sees them. A step costs one pass of encoder and decoder, O(B) times the number of weights, and what the
    penalty costs.

    References
    ----------
    | D. E. Rumelhart, G. E. Hinton, R. J. Williams, "Learning representations by back-propagating errors", Nature 1986.
    | S. Rifai, P. Vincent, X. Muller, X. Glorot, Y. Bengio, "Contractive auto-encoders: explicit invariance during
      feature extraction", ICML 2011.
    | P. Vincent, H. Larochelle, I. Lajoie, Y. Bengio, P.-A. Manzagol, "Stacked denoising autoencoders", JMLR 2010.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Reconstruction, Trainer, mlp_autoencoder
    >>> model = mlp_autoencoder(4, 2, hidden=(8,))
    >>> trainer = Trainer(model, Reconstruction(noise="masking"), max_epochs=1, monitor="loss")
    >>> trainer.fit(torch.eye(4).repeat(4, 1)).embed(torch.eye(4)).shape
    torch.Size([4, 2])
    """

    def __init__(
        self,
        fidelity: str = "sq",
        penalty: str | Callable[[nn.Module, Tensor, Tensor], Tensor] | None = None,
        noise: str | Callable[[Tensor], tuple[Tensor, Tensor]] | None = None,
        emphasis: tuple[float, float] | None = None,
    ):
        super().__init__()
        self.fidelity = one_of("fidelity", fidelity, tuple(FIDELITIES))
        self.penalty = PENALTIES[one_of("penalty", penalty, tuple(PENALTIES))] if isinstance(penalty, str) else penalty
        self.noise = NOISES[one_of("noise", noise, tuple(NOISES))] if isinstance(noise, str) else noise
        if emphasis is not None and (self.noise is None or isinstance(self.noise, GaussianNoise)):
            raise ValueError(
                "emphasis tells corrupted features from spared ones: give noise='masking' or 'salt_pepper'"
            )
        self.emphasis = emphasis
        self._warned = False

    def forward(self, model: nn.Module, batch: Any) -> Tensor:
        """The reconstruction error of a batch, and the penalty.

        Parameters
        ----------
        model : Autoencoder
            A network with a ``decode``.
        batch : Tensor or tuple
            Samples (B, …); labels beside them are not used.

        Returns
        -------
        Tensor
            The scalar.
        """
        x = samples_of(batch)
        seen, corrupted = self.noise(x) if self.noise is not None and self.training else (x, None)
        if getattr(self.penalty, "needs_input_gradient", False):
            seen = seen.detach().requires_grad_()
        z = model(seen)
        self._warn_of_copies(x, z)
        errors = feature_errors(self.fidelity, decode(model, z), x)  # (B, D)
        if self.emphasis is not None and corrupted is not None:
            alpha, beta = self.emphasis
            errors = errors * torch.where(corrupted.flatten(1), alpha, beta)
        value = mean_of_all(errors.sum(1))
        return value if self.penalty is None else value + self.penalty(model, seen, z)

    def _warn_of_copies(self, x: Tensor, z: Tensor) -> None:
        p, d = z[0].numel(), x[0].numel()
        if self._warned or p < d or self.penalty is not None or self.noise is not None:
            return
        self._warned = True
        warnings.warn(
            f"a code of {p} numbers can copy samples of {d} features and need not learn anything; give a penalty or "
            "noise, or a smaller code",
            stacklevel=2,
        )


# -- what the objectives of autoencoders share -------------------------------------------------------------------------


def samples_of(batch: Any) -> Tensor:
    """The samples of a batch, with or without labels."""
    return batch[0] if isinstance(batch, (tuple, list)) else batch


def decode(model: Any, z: Tensor) -> Tensor:
    """D(z), or an error that says what model is needed."""
    if not hasattr(model, "decode"):
        raise TypeError(
            f"a reconstruction needs a model with decode(z), and {type(model).__name__} has none; build it as "
            "Autoencoder(encoder, decoder)"
        )
    return model.decode(z)


def feature_errors(fidelity: str, output: Tensor, x: Tensor) -> Tensor:
    """δ by feature (B, D), in full precision, of what the decoder gives for samples x (B, …)."""
    output, target = full_precision(output.flatten(1)), full_precision(x.flatten(1))
    if output.shape != target.shape:
        raise ValueError(
            f"the decoder gave {output.shape[1]} features for {len(output)} samples; {len(target)} samples of "
            f"{target.shape[1]} were to be reconstructed"
        )
    if fidelity == "bce" and not ((target >= 0) & (target <= 1)).all():
        raise ValueError("cross-entropy is for samples in [0, 1]; bring them there, or take the fidelity 'sq' or 'l1'")
    with torch.autocast(x.device.type, enabled=False):
        return FIDELITIES[fidelity](output, target)


def mean_of_all(terms: Tensor) -> Tensor:
    """The mean of one term a sample, (B,), over the batches of all processes."""
    return gather(terms)[0].mean()


def draw_rows(sample: Callable[..., Tensor], like: Tensor, *shape: int) -> Tensor:
    """Random numbers (B, *shape) for the rows of ``like``, from a function such as ``torch.randn``.

    Each process draws those of the whole batch, from the stream of the first, and keeps its own: no two rows get the
    same noise, and the number of processes does not matter. The generator is torch's, which `Trainer` seeds and saves.
    """
    if not is_distributed():
        return sample((len(like), *shape), device=like.device, dtype=like.dtype)
    rank, sizes = dist.get_rank(), gather(torch.tensor([len(like)], device=like.device))[0].tolist()
    with first_stream(like.device):
        whole = sample((sum(sizes), *shape), device=like.device, dtype=like.dtype)
    return whole.split(sizes)[rank]


# -- penalties ---------------------------------------------------------------------------------------------------------


NORMS: dict[str, Callable[[Tensor], Tensor]] = {"l1": torch.abs, "l2": torch.square}


class Penalty(ABC):
    """λΩ of a model, the samples x (B, …) it has seen and their codes z (B, p)."""

    weight: float  # λ
    needs_input_gradient: ClassVar[bool] = False  # whether z must be differentiable in x

    def __call__(self, model: nn.Module, x: Tensor, z: Tensor) -> Tensor:
        with torch.autocast(z.device.type, enabled=False):
            return self.weight * self.omega(model, x, full_precision(z))

    @abstractmethod
    def omega(self, model: nn.Module, x: Tensor, z: Tensor) -> Tensor:
        """The penalty Ω, before its weight.

        Parameters
        ----------
        model : nn.Module
            The network.
        x : Tensor
            Samples (B, …).
        z : Tensor
            Their codes (B, p).
        """


@dataclass(frozen=True)
class WeightPenalty(Penalty):
    """A penalty on weights: λ ½ Σ_l ‖W_l‖_F² for ``norm="l2"``, λ Σ_l ‖W_l‖₁ for "l1", no biases or norm layers.

    As part of the loss it goes through the optimiser's scaling; the ``weight_decay`` of AdamW does not.

    Parameters
    ----------
    norm : {"l2", "l1"}, default="l2"
        Squares, or absolute values.
    weight : float, default=0.0001
        The weight λ.

    Notes
    -----
    Costs one pass over the weights.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Reconstruction, WeightPenalty, mlp_autoencoder
    >>> objective = Reconstruction(penalty=WeightPenalty("l1", weight=1e-3))
    >>> objective(mlp_autoencoder(4, 2, hidden=(8,)), torch.eye(4)).item() > 0
    True
    """

    norm: str = "l2"
    weight: float = 1e-4

    def __post_init__(self) -> None:
        one_of("norm", self.norm, tuple(NORMS))

    def omega(self, model: nn.Module, x: Tensor, z: Tensor) -> Tensor:
        sizes = [NORMS[self.norm](full_precision(W)).sum() for W in model.parameters() if W.ndim > 1]
        return torch.stack(sizes).sum() * (0.5 if self.norm == "l2" else 1.0)


@dataclass(frozen=True)
class CodePenalty(Penalty):
    """A penalty on codes: λ (1/B) Σ_i ‖h_i‖₁ for ``norm="l1"``, which makes codes sparse, λ (1/B) Σ_i ‖h_i‖² for "l2".

    Parameters
    ----------
    norm : {"l1", "l2"}, default="l1"
        Absolute values, or squares.
    weight : float, default=0.001
        The weight λ.

    Notes
    -----
    Costs O(B p).

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import CodePenalty
    >>> z = torch.tensor([[3.0, -4.0], [1.0, 0.0]])
    >>> CodePenalty("l1", weight=1.0)(None, None, z).item()
    4.0
    """

    norm: str = "l1"
    weight: float = 1e-3

    def __post_init__(self) -> None:
        one_of("norm", self.norm, tuple(NORMS))

    def omega(self, model: nn.Module, x: Tensor, z: Tensor) -> Tensor:
        return mean_of_all(NORMS[self.norm](z).sum(1))


@dataclass(frozen=True)
class SparseCode(Penalty):
    """A penalty on mean activations: λ Σ_j KL(ρ ‖ ρ̂_j), ρ̂_j = (1/B) Σ_i h_ij.

    Each unit, in (0, 1), is to be on for a share ρ of the samples.

    Parameters
    ----------
    rho : float, default=0.05
        The share ρ.
    weight : float, default=0.001
        The weight λ.

    Notes
    -----
    For encoders with ``code="sigmoid"``, in batches that are large enough for ρ̂. Costs O(B p).

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import SparseCode
    >>> penalty = SparseCode(rho=0.5, weight=1.0)
    >>> abs(penalty(None, None, torch.tensor([[0.0], [1.0]])).item()) < 1e-6  # on for half of the samples
    True
    """

    rho: float = 0.05
    weight: float = 1e-3
    eps: ClassVar[float] = 1e-6

    def omega(self, model: nn.Module, x: Tensor, z: Tensor) -> Tensor:
        if not ((z >= 0) & (z <= 1)).all():
            raise ValueError("SparseCode is for codes in (0, 1); build the encoder with code='sigmoid'")
        rho, seen = self.rho, gather(z)[0].mean(0).clamp(self.eps, 1 - self.eps)  # (p,)
        return -(rho * (seen / rho).log() + (1 - rho) * ((1 - seen) / (1 - rho)).log()).sum()


@dataclass(frozen=True)
class Contractive(Penalty):
    """A penalty on the encoder's Jacobian: λ (1/B) Σ_i ‖∂h_i/∂x_i‖_F².

    Exact by one vector–Jacobian product for each of the p outputs, memory O(p · B · d); by the formula
    Σ_j (h_j(1 − h_j))² ‖w_j‖² if the encoder is a single sigmoid layer. With ``probes`` m it is estimated: the mean of
    ‖vᵀJ‖² over m vectors v ∼ N(0, I). A sample's code must depend on that sample alone: no norms over the batch.

    Parameters
    ----------
    weight : float, default=0.0001
        The weight λ.
    probes : int or None, default=None
        The number m of random vectors of the estimate; None: exact.

    Notes
    -----
    Keeps codes from following small changes of a sample. Costs p backward passes of the encoder, or m with ``probes``.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Contractive, Reconstruction, mlp_autoencoder
    >>> objective = Reconstruction(penalty=Contractive(weight=0.1))
    >>> objective(mlp_autoencoder(4, 2, hidden=(8,)), torch.eye(4)).item() > 0
    True
    """

    weight: float = 1e-4
    probes: int | None = None
    needs_input_gradient: ClassVar[bool] = True

    def omega(self, model: nn.Module, x: Tensor, z: Tensor) -> Tensor:
        W = None if self.probes else _sigmoid_layer(model)
        if W is not None:
            return mean_of_all((z * (1 - z)).square() @ full_precision(W).square().sum(1))
        p = z.shape[1]
        if self.probes:
            v = draw_rows(torch.randn, z, self.probes, p).transpose(0, 1)  # (m, B, p)
        else:
            v = torch.eye(p, device=z.device, dtype=z.dtype)[:, None].expand(p, len(z), p)
        return mean_of_all(squared_products(x, z, v).sum(0)) / (self.probes or 1)


def squared_products(x: Tensor, z: Tensor, v: Tensor) -> Tensor:
    """‖v_kiᵀ ∂z_i/∂x_i‖², (m, B), for vectors v (m, B, p)."""
    (products,) = torch.autograd.grad(z, x, v, create_graph=True, is_grads_batched=True)  # (m, B, …)
    return full_precision(products).flatten(2).square().sum(2)


def _sigmoid_layer(model: nn.Module) -> Tensor | None:
    """The matrix (p, d) of an encoder that is one sigmoid layer."""
    match list(getattr(model, "encoder", nn.Identity()).children()):
        case [nn.Linear() as layer, nn.Sigmoid()]:
            return layer.weight
    return None


PENALTIES: dict[str, Penalty] = {
    "weights_l2": WeightPenalty("l2"),
    "weights_l1": WeightPenalty("l1"),
    "code_l1": CodePenalty("l1"),
    "code_l2": CodePenalty("l2"),
    "code_kl": SparseCode(),
    "contractive": Contractive(),
}


# -- noise -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GaussianNoise:
    """Noise that adds normal numbers: x̃ = x + σε, ε ∼ N(0, I).

    Parameters
    ----------
    sigma : float, default=0.1
        The standard deviation σ, in the units of the samples.

    Notes
    -----
    For real-valued features.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import GaussianNoise
    >>> noisy, corrupted = GaussianNoise(sigma=0.1)(torch.zeros(2, 3))
    >>> noisy.shape, bool(corrupted.all())
    (torch.Size([2, 3]), True)
    """

    sigma: float = 0.1

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x + self.sigma * draw_rows(torch.randn, x, *x.shape[1:]), torch.ones_like(x, dtype=torch.bool)


@dataclass(frozen=True)
class MaskingNoise:
    """Noise that sets each feature to zero with probability ν.

    Parameters
    ----------
    nu : float, default=0.25
        The probability ν.

    Notes
    -----
    For features of which 0 means absence, and for learning what others tell of a missing one.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import MaskingNoise
    >>> noisy, corrupted = MaskingNoise(nu=0.5)(torch.ones(2, 3))
    >>> torch.equal(noisy == 0, corrupted)
    True
    """

    nu: float = 0.25

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        corrupted = draw_rows(torch.rand, x, *x.shape[1:]) < self.nu
        return x.masked_fill(corrupted, 0), corrupted


@dataclass(frozen=True)
class SaltPepperNoise:
    """Noise that sets each feature to the lowest or to the highest value, each with probability ν/2.

    Parameters
    ----------
    nu : float, default=0.25
        The probability ν of either.
    low : float, default=0.0
        The lowest value.
    high : float, default=1.0
        The highest value.

    Notes
    -----
    For features in a known range, such as pixels.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import SaltPepperNoise
    >>> noisy, corrupted = SaltPepperNoise(nu=0.5)(torch.full((2, 3), 0.5))
    >>> torch.equal(noisy != 0.5, corrupted)
    True
    """

    nu: float = 0.25
    low: float = 0.0
    high: float = 1.0

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        u = draw_rows(torch.rand, x, *x.shape[1:])
        x = x.masked_fill(u < self.nu, self.high).masked_fill(u < self.nu / 2, self.low)
        return x, u < self.nu


NOISES: dict[str, Callable[[Tensor], tuple[Tensor, Tensor]]] = {
    "gaussian": GaussianNoise(),
    "masking": MaskingNoise(),
    "salt_pepper": SaltPepperNoise(),
}
