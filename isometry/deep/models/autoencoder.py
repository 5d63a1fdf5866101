"""Autoencoders: the forward of the network is the encoder, so that the code is the embedding; ``decode`` goes back."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isometry.parameters import one_of

ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "gelu": nn.GELU, "linear": nn.Identity}
LOG_VARIANCE = 15.0  # largest |log σ²| of a code


class Autoencoder(nn.Module):
    """z = E(x), x̂ = D(z): any two networks.

        model = Autoencoder(ConvNet((1, 28, 28), 32), MLP(32, 784))
        Trainer(model, Reconstruction()).fit(images)

    Parameters
    ----------
    encoder : nn.Module
        E, samples (B, …) to codes (B, p).
    decoder : nn.Module
        D, codes to samples, or to their logits if the reconstruction is measured by cross-entropy.
    """

    def __init__(self, encoder: nn.Module, decoder: nn.Module):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, x: Tensor) -> Tensor:
        """Samples (B, …) to codes (B, p)."""
        return self.encoder(x)

    def decode(self, z: Tensor) -> Tensor:
        """Codes (B, p) to samples (B, …)."""
        return self.decoder(z)


class VariationalAutoencoder(Autoencoder):
    """q(h | x) = N(μ(x), diag σ²(x)); the embedding is μ(x).

    Parameters
    ----------
    encoder : nn.Module
        Samples to (B, 2p): μ, then log σ².
    decoder : nn.Module
        Codes (B, p) to the mean of p(x | h), or to logits if that is Bernoulli.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Samples (B, …) to means (B, p)."""
        return self.posterior(x)[0]

    def posterior(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """μ and log σ², each (B, p), the latter between −15 and 15."""
        out = self.encoder(x)
        if out.shape[1] % 2:
            raise ValueError(
                "the encoder of a VariationalAutoencoder gives μ and log σ² side by side, (B, 2p); it gave "
                f"{out.shape[1]} columns, an odd number"
            )
        mean, logvar = out.chunk(2, dim=1)
        return mean, logvar.clamp(-LOG_VARIANCE, LOG_VARIANCE)


class Mirror(nn.Module):
    """A decoder with tied weights: the transposes of the encoder's matrices in reverse order, and biases of its own."""

    def __init__(self, encoder: nn.Sequential, activation: nn.Module):
        super().__init__()
        # a tuple hides them from this module: they are parameters of the encoder alone
        self._layers = tuple(layer for layer in reversed(encoder) if isinstance(layer, nn.Linear))
        self.activation = activation
        self.biases = nn.ParameterList(torch.zeros(layer.in_features) for layer in self._layers)

    def forward(self, z: Tensor) -> Tensor:
        for k, (layer, bias) in enumerate(zip(self._layers, self.biases, strict=True)):
            z = F.linear(self.activation(z) if k else z, layer.weight.T, bias)
        return z


class LinearAutoencoder(Autoencoder):
    """Linear autoencoder: learns the subspace of the first p principal components, up to an invertible p × p map.

        min ‖X − X U_e U_d‖_F²

    Parameters
    ----------
    n_features, n_components : int
        d and p.
    bias : bool
        Learn the mean too. Without it the subspace goes through the origin: centre the samples.
    init : {"random", "svd"}
        "svd" is the optimum itself, from ``samples``.
    samples : (n, d), optional
        For ``init="svd"``.

    References
    ----------
    P. Baldi, K. Hornik, "Neural networks and principal component analysis: learning from examples without local
    minima", Neural Networks 1989.
    """

    encoder: nn.Linear
    decoder: nn.Linear

    def __init__(
        self, n_features: int, n_components: int, *, bias: bool = True, init: str = "random", samples: Any = None
    ):
        super().__init__(nn.Linear(n_features, n_components, bias=bias), nn.Linear(n_components, n_features, bias=bias))
        if one_of("init", init, ("random", "svd")) == "svd":
            if samples is None:
                raise ValueError("init='svd' computes the optimum from the samples: give samples=X")
            X, mean = self._centred(samples)
            self._set(_principal_axes(X, n_components), mean)

    def canonicalise(self, samples: Any) -> LinearAutoencoder:
        """Turn the code into principal components: orthonormal directions in the decoder's subspace, by variance.

        The subspace stays; of the invertible map that training leaves open, the one is taken for which codes of
        ``samples`` (n, d) are uncorrelated and ordered. The largest entry of each direction is positive.
        """
        X, mean = self._centred(samples)
        Q = torch.linalg.qr(self.decoder.weight.detach().to(X)).Q  # (d, p)
        self._set(Q @ _principal_axes(X @ Q, Q.shape[1]), mean)
        return self

    def _centred(self, samples: Any) -> tuple[Tensor, Tensor]:
        """The samples in double precision, less what the biases can express, and that."""
        X = samples if isinstance(samples, Tensor) else torch.as_tensor(np.asarray(samples))
        X = X.to(self.encoder.weight.device, torch.float64)
        mean = X.mean(0) if self.encoder.bias is not None else X.new_zeros(X.shape[1])
        return X - mean, mean

    @torch.no_grad()
    def _set(self, U: Tensor, mean: Tensor) -> None:
        """z = Uᵀ(x − m), x̂ = Uz + m, for orthonormal columns U (d, p)."""
        largest = U.gather(0, U.abs().argmax(0, keepdim=True))  # (1, p)
        U = U * largest.sign()
        self.encoder.weight.copy_(U.T)
        self.decoder.weight.copy_(U)
        if self.encoder.bias is not None:
            self.encoder.bias.copy_(-(mean @ U))
            self.decoder.bias.copy_(mean)


def _principal_axes(X: Tensor, p: int) -> Tensor:
    """The first p right singular vectors (d, p) of X (n, d)."""
    if p > min(X.shape):
        raise ValueError(
            f"{X.shape[0]} samples of {X.shape[1]} features have no {p} principal components; give more samples, or "
            f"n_components of at most {min(X.shape)}"
        )
    return torch.linalg.svd(X, full_matrices=False).Vh[:p].T


def mlp_autoencoder(
    n_features: int,
    n_components: int,
    hidden: Sequence[int] = (512, 256),
    *,
    activation: str = "relu",
    code: str = "linear",
    tied: bool = False,
) -> Autoencoder:
    """An autoencoder of linear layers; the decoder has the encoder's in reverse order, and ends in a linear one.

    Parameters
    ----------
    n_features, n_components : int
        d and p: p < d is under-complete, p > d over-complete, which needs a penalty or noise to learn anything.
    hidden : sequence of int
        Sizes of the layers between.
    activation : {"relu", "tanh", "sigmoid", "gelu", "linear"}
        Between layers.
    code : same names
        On the code: "sigmoid" for the penalty "code_kl", "relu" for codes with exact zeros.
    tied : bool
        The decoder's matrices are the transposes of the encoder's.
    """
    encoder = _layers([n_features, *hidden, n_components], activation)
    if one_of("code", code, tuple(ACTIVATIONS)) != "linear":
        encoder.append(ACTIVATIONS[code]())
    if tied:
        return Autoencoder(encoder, Mirror(encoder, ACTIVATIONS[activation]()))
    return Autoencoder(encoder, _layers([n_components, *reversed(hidden), n_features], activation))


def mlp_variational(
    n_features: int, n_components: int, hidden: Sequence[int] = (512, 256), *, activation: str = "relu"
) -> VariationalAutoencoder:
    """A variational autoencoder of linear layers; parameters as those of `mlp_autoencoder`."""
    encoder = _layers([n_features, *hidden, 2 * n_components], activation)
    return VariationalAutoencoder(encoder, _layers([n_components, *reversed(hidden), n_features], activation))


def _layers(sizes: Sequence[int], activation: str) -> nn.Sequential:
    """Linear layers with an activation between them."""
    make = ACTIVATIONS[one_of("activation", activation, tuple(ACTIVATIONS))]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), make()]
    return nn.Sequential(*layers[:-1])
