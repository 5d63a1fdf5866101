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
    """An autoencoder of any two networks: z = E(x), x̂ = D(z).

    Parameters
    ----------
    encoder : nn.Module
        The encoder E, samples (B, …) to codes (B, p).
    decoder : nn.Module
        The decoder D, codes to samples, or to their logits if the reconstruction is measured by cross-entropy.

    Notes
    -----
    The forward pass is the encoder: the code is the embedding. `Reconstruction` trains it.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import MLP, Autoencoder
    >>> model = Autoencoder(MLP(4, 2), MLP(2, 4))
    >>> z = model(torch.eye(4))
    >>> z.shape, model.decode(z).shape
    (torch.Size([4, 2]), torch.Size([4, 4]))
    """

    def __init__(self, encoder: nn.Module, decoder: nn.Module):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, x: Tensor) -> Tensor:
        """Samples (B, …) to codes (B, p).

        Parameters
        ----------
        x : Tensor
            Samples (B, …).

        Returns
        -------
        Tensor
            Codes (B, p).
        """
        return self.encoder(x)

    def decode(self, z: Tensor) -> Tensor:
        """Codes (B, p) to samples (B, …).

        Parameters
        ----------
        z : Tensor
            Codes (B, p).

        Returns
        -------
        Tensor
            Samples (B, …), or their logits.
        """
        return self.decoder(z)


class VariationalAutoencoder(Autoencoder):
    """A variational autoencoder: q(h | x) = N(μ(x), diag σ²(x)), and the embedding is μ(x).

    Parameters
    ----------
    encoder : nn.Module
        Samples to (B, 2p): μ, then log σ².
    decoder : nn.Module
        Codes (B, p) to the mean of p(x | h), or to logits if that is Bernoulli.

    Notes
    -----
    `VariationalReconstruction` trains it; ``decode(torch.randn(m, p))`` draws samples.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import MLP, VariationalAutoencoder
    >>> model = VariationalAutoencoder(MLP(4, 2 * 3), MLP(3, 4))
    >>> mean, logvar = model.posterior(torch.eye(4))
    >>> mean.shape, logvar.shape, model(torch.eye(4)).shape
    (torch.Size([4, 3]), torch.Size([4, 3]), torch.Size([4, 3]))
    """

    def forward(self, x: Tensor) -> Tensor:
        """Samples (B, …) to means (B, p).

        Parameters
        ----------
        x : Tensor
            Samples (B, …).

        Returns
        -------
        Tensor
            Means (B, p).
        """
        return self.posterior(x)[0]

    def posterior(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """μ and log σ², each (B, p), the latter between −15 and 15.

        Parameters
        ----------
        x : Tensor
            Samples (B, …).

        Returns
        -------
        tuple of Tensor
            Means μ and log σ², (B, p) each.
        """
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
    n_features : int
        Dimension d of the samples.
    n_components : int
        Dimension p of the codes.
    bias : bool, default=True
        Learn the mean too. Without it the subspace goes through the origin: centre the samples.
    init : {"random", "svd"}, default="random"
        "svd" is the optimum itself, from ``samples``.
    samples : array (n, d) or None, default=None
        Samples for ``init="svd"``; None: they are not needed.

    Notes
    -----
    For seeing what a trained network adds to principal components; PCA itself is faster and exact. A step costs
    O(B d p).

    References
    ----------
    | P. Baldi, K. Hornik, "Neural networks and principal component analysis: learning from examples without local
      minima", Neural Networks 1989.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import LinearAutoencoder
    >>> X = torch.tensor([[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> model = LinearAutoencoder(2, 1, init="svd", samples=X)
    >>> model(X).shape
    torch.Size([4, 1])
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

        Parameters
        ----------
        samples : array (n, d)
            Samples whose codes shall be uncorrelated.

        Returns
        -------
        LinearAutoencoder
            The network itself.
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
    n_features : int
        Dimension d of the samples.
    n_components : int
        Dimension p of the codes: p < d is under-complete, p > d over-complete, which needs a penalty or noise to learn
        anything.
    hidden : sequence of int, default=(512, 256)
        Sizes of the layers between.
    activation : {"relu", "tanh", "sigmoid", "gelu", "linear"}, default="relu"
        The nonlinearity between layers.
    code : {"relu", "tanh", "sigmoid", "gelu", "linear"}, default="linear"
        The nonlinearity on the code: "sigmoid" for the penalty "code_kl", "relu" for codes with exact zeros.
    tied : bool, default=False
        The decoder's matrices are the transposes of the encoder's.

    Returns
    -------
    Autoencoder
        The network, at random weights.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import mlp_autoencoder
    >>> model = mlp_autoencoder(4, 2, hidden=(8,), tied=True)
    >>> model.decode(model(torch.eye(4))).shape
    torch.Size([4, 4])
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
    """A variational autoencoder of linear layers.

    Parameters
    ----------
    n_features : int
        Dimension d of the samples.
    n_components : int
        Dimension p of the codes.
    hidden : sequence of int, default=(512, 256)
        Sizes of the layers between.
    activation : {"relu", "tanh", "sigmoid", "gelu", "linear"}, default="relu"
        The nonlinearity between layers.

    Returns
    -------
    VariationalAutoencoder
        The network, at random weights.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import mlp_variational
    >>> mlp_variational(4, 2, hidden=(8,))(torch.eye(4)).shape
    torch.Size([4, 2])
    """
    encoder = _layers([n_features, *hidden, 2 * n_components], activation)
    return VariationalAutoencoder(encoder, _layers([n_components, *reversed(hidden), n_features], activation))


def _layers(sizes: Sequence[int], activation: str) -> nn.Sequential:
    """Linear layers with an activation between them."""
    make = ACTIVATIONS[one_of("activation", activation, tuple(ACTIVATIONS))]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), make()]
    return nn.Sequential(*layers[:-1])
