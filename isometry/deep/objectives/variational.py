"""The variational bound of an autoencoder."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from isometry.deep.functional import full_precision
from isometry.deep.models.autoencoder import VariationalAutoencoder
from isometry.deep.objectives.reconstruction import (
    AutoencoderObjective,
    decode,
    draw_rows,
    feature_errors,
    mean_of_all,
    samples_of,
)
from isometry.parameters import one_of

LIKELIHOODS = {"gaussian": "sq", "bernoulli": "bce"}


class VariationalReconstruction(AutoencoderObjective):
    """Variational autoencoder: samples are found again from codes that are drawn, and kept near a normal prior.

        (1/B) Σ_i −E_q log p(x_i | h) + β KL(q(h | x_i) ‖ N(0, I)),     h = μ(x) + σ(x) ⊙ ε,  ε ∼ N(0, I)

    In eval mode h = μ(x). The model has a ``posterior``, as `VariationalAutoencoder` has.

    Parameters
    ----------
    likelihood : {"gaussian", "bernoulli"}, default="gaussian"
        The distribution p(x | h): N(D(h), s²I), or independent bits whose logits are D(h).
    beta : float, default=1.0
        The weight β of the divergence; with 1 the negative of the objective is a lower bound of log p(x).
    n_samples : int, default=1
        Draws of h for each sample.
    scale : float, default=1.0
        The standard deviation s of the Gaussian likelihood.

    Notes
    -----
    For samples without labels, when codes shall be smooth and new samples be drawn: ``model.decode(torch.randn(m,
    p))``. A large β lets coordinates of the code fall silent. A step costs O(n_samples B) times the weights of the
    decoder.

    References
    ----------
    | D. P. Kingma, M. Welling, "Auto-encoding variational Bayes", ICLR 2014.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import VariationalReconstruction, mlp_variational
    >>> model = mlp_variational(4, 2, hidden=(8,))
    >>> VariationalReconstruction()(model, torch.eye(4)).item() > 0
    True
    >>> model.decode(torch.randn(10, 2)).shape
    torch.Size([10, 4])
    """

    network = VariationalAutoencoder

    def __init__(self, likelihood: str = "gaussian", beta: float = 1.0, n_samples: int = 1, scale: float = 1.0):
        super().__init__()
        self.likelihood = one_of("likelihood", likelihood, tuple(LIKELIHOODS))
        self.beta, self.n_samples, self.scale = beta, n_samples, scale

    def forward(self, model: nn.Module, batch: Any) -> Tensor:
        """The negative bound of a batch.

        Parameters
        ----------
        model : VariationalAutoencoder
            A network with a ``posterior`` and a ``decode``.
        batch : Tensor or tuple
            Samples (B, …); labels beside them are not used.

        Returns
        -------
        Tensor
            The scalar.
        """
        x = samples_of(batch)
        mean, logvar = map(full_precision, posterior(model, x))  # (B, p)
        h = self._draw(mean, logvar)  # (B, S, p)
        nll = self.negative_log_likelihood(decode(model, h.flatten(0, 1)), x.repeat_interleave(h.shape[1], dim=0))
        return mean_of_all(nll.reshape(h.shape[:2]).mean(1) + self.beta * kl_to_standard_normal(mean, logvar))

    def _draw(self, mean: Tensor, logvar: Tensor) -> Tensor:
        if not self.training:
            return mean[:, None]
        noise = draw_rows(torch.randn, mean, self.n_samples, mean.shape[1])
        return mean[:, None] + (logvar / 2).exp()[:, None] * noise

    def negative_log_likelihood(self, output: Tensor, x: Tensor) -> Tensor:
        """The negative logarithm of p(x | h), from what the decoder gives for h.

        Parameters
        ----------
        output : Tensor
            What the decoder gives (B, …).
        x : Tensor
            Samples (B, …).
        """
        errors = feature_errors(LIKELIHOODS[self.likelihood], output, x).sum(1)
        if self.likelihood == "bernoulli":
            return errors
        constant = x[0].numel() * math.log(self.scale * math.sqrt(2 * math.pi))
        return errors / (2 * self.scale**2) + constant


def kl_to_standard_normal(mean: Tensor, logvar: Tensor) -> Tensor:
    """½ Σ_k μ_k² + σ_k² − 1 − log σ_k², (B,)."""
    return (mean.square() + logvar.exp() - 1 - logvar).sum(1) / 2


def posterior(model: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """μ and log σ², or an error that says what model is needed."""
    if not hasattr(model, "posterior"):
        raise TypeError(
            f"the variational bound needs a model with posterior(x), and {type(model).__name__} has none; build it as "
            "VariationalAutoencoder(encoder, decoder)"
        )
    return model.posterior(x)
