"""A network for samples described in several ways: an encoder for each modality, one shared code, decoders back."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from isometry.deep.models.mlp import MLP
from isometry.parameters import one_of


class MultiModalNet(nn.Module):
    """Stacked autoencoders, one for each modality, that share their innermost layers.

        h^l = encoder_l(x^l),    f = shared([h^1; …; h^M]),    x̂^l = decoder_l(unshared_l(f))

    A sample is one row with its modalities side by side. Where the columns of a modality are NaN it is missing: its
    encoder takes no part, and its decoder can tell what it might have been.

    Parameters
    ----------
    sizes : sequence of int
        Columns d_l of each modality.
    n_components : int
        Dimension p of the code f, which is the embedding.
    hidden : sequence of int, default=(64,)
        Layers of each encoder; the decoders mirror them.
    fusion : {"concat", "mean"}, default="concat"
        The shared layers see the encoders' outputs side by side, zero where missing, with a flag for each that is
        there; or the mean of those that are there.

    Notes
    -----
    For samples described in several ways, of which some may be missing. `MultiModal` trains it, `pretrain_levels` layer
    by layer before. Costs O(B) times the number of weights.

    References
    ----------
    | S. M. Roostaiyan, E. Imani, M. S. Baghshah, "Multi-modal deep distance metric learning", Intelligent Data Analysis
      2017; how the modalities are merged is this library's choice.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import MultiModalNet
    >>> net = MultiModalNet([2, 3], n_components=4, hidden=(8,))
    >>> X = torch.rand(5, 5)
    >>> X[0, :2] = torch.nan  # the first modality of the first sample is missing
    >>> net(X).shape, [part.shape[1] for part in net.decode(net(X))]
    (torch.Size([5, 4]), [2, 3])
    """

    def __init__(self, sizes: Sequence[int], n_components: int, hidden: Sequence[int] = (64,), fusion: str = "concat"):
        super().__init__()
        if not sizes or not hidden or min(*sizes, *hidden, n_components) < 1:
            raise ValueError(f"every size must be at least 1, got sizes={tuple(sizes)}, hidden={tuple(hidden)}")
        self.sizes, self.fusion = tuple(sizes), one_of("fusion", fusion, ("concat", "mean"))
        M, width = len(sizes), hidden[-1]
        self.encoders = nn.ModuleList(nn.ModuleList(map(_up, itertools.pairwise((d, *hidden)))) for d in sizes)
        self.decoders = nn.ModuleList(
            nn.ModuleList(_down(ends, last=k == 0) for k, ends in enumerate(itertools.pairwise((d, *hidden))))
            for d in sizes
        )  # block k undoes block k of the encoder
        # a hidden layer, for a sum of what modalities say could not allow for one that is missing
        self.shared = MLP(M * width + M if fusion == "concat" else width, n_components, (width,))
        self.unshared = nn.Sequential(MLP(n_components, M * width, (width,)), nn.ReLU())

    @property
    def depth(self) -> int:
        """Layers of an encoder below the shared ones."""
        return len(self.encoders[0])  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """Samples (B, Σ d_l) to codes (B, p).

        Parameters
        ----------
        x : Tensor
            Samples (B, Σ d_l), NaN where a modality is missing.

        Returns
        -------
        Tensor
            Codes (B, p).
        """
        return self.code(*self.split(x))

    def split(self, x: Tensor) -> tuple[list[Tensor], Tensor]:
        """The modalities, M of (B, d_l), with zeros where missing; and which are there, (B, M).

        Parameters
        ----------
        x : Tensor
            Samples (B, Σ d_l), NaN where a modality is missing.
        """
        if x.ndim != 2 or x.shape[1] != sum(self.sizes):
            raise ValueError(f"samples must be rows of Σ sizes = {sum(self.sizes)} columns, got {tuple(x.shape)}")
        parts = x.split(self.sizes, dim=1)
        present = torch.stack([~part.isnan().any(1) for part in parts], 1)  # (B, M)
        if not present.any(1).all():
            row = int((~present.any(1)).nonzero()[0, 0])
            raise ValueError(f"row {row} has no modality: each of them holds a NaN; leave such rows out")
        return [part.masked_fill(~there[:, None], 0) for part, there in zip(parts, present.T)], present

    def code(self, parts: Sequence[Tensor], present: Tensor) -> Tensor:
        """Codes (B, p) from the modalities that are present.

        Parameters
        ----------
        parts : sequence of Tensor
            The modalities, (B, d_l) each.
        present : Tensor
            Which modalities are there, a boolean matrix (B, M).
        """
        return self.shared(self.fuse(self.climb(parts, self.depth), present))

    def climb(self, parts: Sequence[Tensor], level: int) -> list[Tensor]:
        """Each modality after ``level`` layers of its encoder.

        Parameters
        ----------
        parts : sequence of Tensor
            The modalities, (B, d_l) each.
        level : int
            How many layers.
        """
        return [nn.Sequential(*blocks[:level])(x) for blocks, x in zip(self.encoders, parts)]  # type: ignore[index]

    def fuse(self, hidden: Sequence[Tensor], present: Tensor) -> Tensor:
        """What the shared layers see.

        Parameters
        ----------
        hidden : sequence of Tensor
            Outputs of the encoders, (B, width) each.
        present : Tensor
            Which modalities are there, a boolean matrix (B, M).
        """
        H = torch.stack(list(hidden), 1).masked_fill(~present[:, :, None], 0)  # (B, M, width)
        there = present.to(H.dtype)
        if self.fusion == "concat":
            return torch.cat([H.flatten(1), there], 1)
        return H.sum(1) / there.sum(1, keepdim=True)

    def decode(self, code: Tensor) -> list[Tensor]:
        """All modalities (B, d_l), also those that were missing.

        Parameters
        ----------
        code : Tensor
            Codes (B, p).

        Returns
        -------
        list of Tensor
            The modalities (B, d_l).
        """
        hidden = self.unshared(code).chunk(len(self.sizes), dim=1)
        return [nn.Sequential(*reversed(blocks))(h) for blocks, h in zip(self.decoders, hidden)]  # type: ignore[call-overload]

    def level(self, k: int) -> list[nn.Module]:
        """The modules of the k-th layer of all encoders and of its decoders; after the last come the shared ones.

        Parameters
        ----------
        k : int
            Number of the layer, from 0.
        """
        if k == self.depth:
            return [self.shared, self.unshared]
        return [blocks[k] for stacks in (self.encoders, self.decoders) for blocks in stacks]  # type: ignore[index]


def _up(ends: tuple[int, int]) -> nn.Module:
    return nn.Sequential(nn.Linear(*ends), nn.ReLU())


def _down(ends: tuple[int, int], last: bool) -> nn.Module:
    """Back from a layer to what it came from; samples may have any sign, hidden units have not."""
    back = nn.Linear(ends[1], ends[0])
    return back if last else nn.Sequential(back, nn.ReLU())
