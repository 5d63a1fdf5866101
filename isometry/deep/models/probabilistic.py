"""Networks that say how sure they are of an embedding."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from isometry.deep.functional import unit
from isometry.deep.models.autoencoder import LOG_VARIANCE
from isometry.parameters import Count, checked


class GaussianNet(nn.Module):
    """A network whose embeddings are normal distributions: a mean of unit length, and a variance of each coordinate.

    ``model(x)`` is the mean μ; ``model.posterior(x)`` gives μ and log σ². ``ProbabilisticPairs`` trains it.

    Parameters
    ----------
    backbone : nn.Module
        Samples (B, …) to features (B, d).
    n_features : int
        Dimension d of the features.
    n_components : int
        Dimension p of the embeddings.

    Notes
    -----
    For matches that are uncertain by nature, such as images and their captions. Two linear heads, O(B d p), beside the
    backbone.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import MLP, GaussianNet
    >>> model = GaussianNet(MLP(4, 8), n_features=8, n_components=2)
    >>> mean, logvar = model.posterior(torch.eye(4))
    >>> mean.shape, logvar.shape
    (torch.Size([4, 2]), torch.Size([4, 2]))
    """

    def __init__(self, backbone: nn.Module, n_features: int, n_components: int):
        super().__init__()
        self.backbone = backbone
        self.mean, self.log_variance = (nn.Linear(n_features, n_components) for _ in range(2))
        nn.init.zeros_(self.log_variance.weight)
        nn.init.constant_(self.log_variance.bias, -4.0)  # variances small beside distances on the sphere

    def forward(self, x: Any) -> Tensor:
        """Samples (B, …) to means (B, p).

        Parameters
        ----------
        x : Tensor or dict
            Samples (B, …).

        Returns
        -------
        Tensor
            Means (B, p), of unit length.
        """
        return unit(self.mean(self.backbone(x)))

    def posterior(self, x: Any) -> tuple[Tensor, Tensor]:
        """μ and log σ², each (B, p).

        Parameters
        ----------
        x : Tensor or dict
            Samples (B, …).

        Returns
        -------
        tuple of Tensor
            Means μ and log σ², (B, p) each.
        """
        f = self.backbone(x)
        return unit(self.mean(f)), self.log_variance(f).clamp(-LOG_VARIANCE, LOG_VARIANCE)


@torch.no_grad()
def embed_mc(model: nn.Module, samples: Any, n: int = 16, batch_size: int = 256) -> tuple[Tensor, Tensor]:
    """Mean and variance (m, p) each of the embeddings of samples under dropout, of n passes.

    Dropout is on, everything else in eval mode; modes are restored. Where the variance is large, the network is not
    sure of an embedding.

    Parameters
    ----------
    model : nn.Module
        A network with dropout.
    samples : data set or array (m, …)
        What is embedded.
    n : int, default=16
        How many passes.
    batch_size : int, default=256
        Samples that pass the network at a time.

    Returns
    -------
    tuple of Tensor
        Means and variances, (m, p) each.

    Notes
    -----
    Costs n passes of the network.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import MLP, embed_mc
    >>> mean, variance = embed_mc(MLP(4, 2, dropout=0.5), torch.randn(10, 4))
    >>> mean.shape, bool((variance >= 0).all())
    (torch.Size([10, 2]), True)
    """
    checked("n", n, Count)
    dropouts = [m for m in model.modules() if isinstance(m, nn.modules.dropout._DropoutNd)]
    if not any(m.p > 0 for m in dropouts):
        raise ValueError(f"{type(model).__name__} has no dropout: all {n} passes would be the same")
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    for dropout in dropouts:
        dropout.train()
    means, variances = [], []
    try:
        for x in DataLoader(samples, batch_size):
            x = (x[0] if isinstance(x, (list, tuple)) else x).to(device)
            z = torch.stack([model(x) for _ in range(n)]).double()  # (n, B, p)
            means.append(z.mean(0))
            variances.append(z.var(0, correction=0))
    finally:
        for module, training in modes:
            module.training = training
    dtype = next((p.dtype for p in model.parameters()), torch.float32)
    return torch.cat(means).to(dtype), torch.cat(variances).to(dtype)
