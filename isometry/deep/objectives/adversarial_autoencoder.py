"""The adversarial autoencoder: three players, one scalar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isometry.deep.functional import full_precision
from isometry.deep.loss import own_parameters
from isometry.deep.models.mlp import MLP
from isometry.deep.objectives.reconstruction import (
    FIDELITIES,
    AutoencoderObjective,
    decode,
    draw_rows,
    feature_errors,
    mean_of_all,
    samples_of,
)
from isometry.parameters import one_of

PRIORS: dict[str, Callable[..., Tensor]] = {"normal": torch.randn, "uniform": torch.rand}


class AdversarialReconstruction(AutoencoderObjective):
    """Adversarial autoencoder: a reconstruction whose codes a discriminator T cannot tell from a prior.

        E, D:  (1/B) Σ_i δ(x_i, D(z_i)) − λ log σ(T(z_i)),                 z = E(x)
        T:     (1/B) Σ_i −log σ(T(h_i)) − log(1 − σ(T(z_i))),              h ∼ prior

    All are minimised at once: their sum is one scalar in which T sees the codes, and E sees T, as constants, so that
    its gradient is that of each player's own loss. The discriminator is trained and saved with the objective.

    Parameters
    ----------
    embedding_size : int
        Dimension p of the codes, the input of T.
    hidden : sequence of int, default=(1000, 1000)
        Layers of T.
    prior : str or callable, default="normal"
        What the codes are to look like: "normal", "uniform" on (0, 1), or a function called as ``torch.randn`` is.
    weight : float, default=1.0
        The weight λ. In the original the two terms of E have an optimiser each; here they share one, and δ is a sum
        over features.
    fidelity : {"sq", "l1", "bce"}, default="sq"
        The error δ, see `Reconstruction`.
    lr_mult : float, default=1.0
        Learning rate of T, in units of the trainer's.

    Notes
    -----
    When codes shall follow a given distribution, such as a mixture, which ``VariationalReconstruction`` cannot have.
    Two players may circle; watch both losses. A step costs O(B) times the weights of encoder, decoder and T, which is
    seen twice.

    References
    ----------
    | A. Makhzani, J. Shlens, N. Jaitly, I. Goodfellow, B. Frey, "Adversarial autoencoders", arXiv 2015.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import AdversarialReconstruction, mlp_autoencoder
    >>> objective = AdversarialReconstruction(2, hidden=(8,))
    >>> objective(mlp_autoencoder(4, 2, hidden=(8,)), torch.eye(4)).item() > 0
    True
    """

    def __init__(
        self,
        embedding_size: int,
        hidden: Sequence[int] = (1000, 1000),
        prior: str | Callable[..., Tensor] = "normal",
        weight: float = 1.0,
        fidelity: str = "sq",
        lr_mult: float = 1.0,
    ):
        super().__init__()
        self.discriminator = MLP(embedding_size, 1, hidden)
        self.prior = PRIORS[one_of("prior", prior, tuple(PRIORS))] if isinstance(prior, str) else prior
        self.weight, self.fidelity, self.lr_mult = weight, one_of("fidelity", fidelity, tuple(FIDELITIES)), lr_mult

    def forward(self, model: nn.Module, batch: Any) -> Tensor:
        """The sum of the players' losses on a batch.

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
        z = model(x)
        errors = feature_errors(self.fidelity, decode(model, z), x).sum(1)  # (B,)
        return mean_of_all(errors + self.weight * self.generator_loss(z) + self.discriminator_loss(z))

    def generator_loss(self, z: Tensor) -> Tensor:
        """−log σ(T(z)), (B,); its gradient is the encoder's alone.

        Parameters
        ----------
        z : Tensor
            Codes (B, p).
        """
        constants = {name: value.detach() for name, value in self.discriminator.named_parameters()}
        return F.softplus(-full_precision(torch.func.functional_call(self.discriminator, constants, z))).squeeze(1)

    def discriminator_loss(self, z: Tensor) -> Tensor:
        """−log σ(T(h)) − log(1 − σ(T(z))), (B,), h ∼ prior; its gradient is the discriminator's alone.

        Parameters
        ----------
        z : Tensor
            Codes (B, p).
        """
        h = draw_rows(self.prior, z, z.shape[1])
        real, coded = full_precision(self.discriminator(torch.cat([h, z.detach()]))).squeeze(1).chunk(2)
        return F.softplus(-real) + F.softplus(coded)

    def param_groups(self, lr: float) -> list[dict[str, Any]]:
        """Optimiser groups for the discriminator, given the learning rate of the model.

        Parameters
        ----------
        lr : float
            Learning rate of the backbone.
        """
        return own_parameters(self.discriminator, lr * self.lr_mult)
