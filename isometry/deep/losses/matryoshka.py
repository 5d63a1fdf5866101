"""Embeddings whose first coordinates serve by themselves."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from isometry.deep.loss import LossModule, as_embeddings
from isometry.deep.losses.contrast import SupCon
from isometry.deep.miners import Draws
from isometry.deep.objective import parameter_groups
from isometry.deep.pair_form import PairForm
from isometry.parameters import one_of


class Matryoshka(Draws, LossModule):
    """Matryoshka: a loss on the first m coordinates for several widths m, so that embeddings may be cut.

        (1/M) Σ_m c_m L(z_{1:m})

    A loss that normalises does so anew for every width. Proxies and other parameters of the width of the embedding are
    cut too: there is one set for all.

    A rotation after training, ``principal_axes``, costs nothing and often serves as well.

    Parameters
    ----------
    loss : Loss, LabelLoss, PairForm or None, default=None
        The loss L, of embeddings and labels or of columns (then inside ``Columns``); None: ``SupCon()``.
    sizes : sequence of int or None, default=None
        The widths m, among them the full width; None: the full width and its half, quarter and eighth.
    weights : sequence of float or None, default=None
        The weights c of the widths; None: 1 each.
    reduction : {"mean", "sum"}, default="mean"
        Whether to divide by the number of widths.
    sizes_per_step : int or None, default=None
        How many widths are drawn at each step in training; None: all take part.
    random_state : int or None, default=None
        Seed of the draws; None: torch's global generator.

    Notes
    -----
    When embeddings will be cut to save memory or time in a search. Costs that of L once for each width, O(B² Σ m) for a
    loss of pairs; ``sizes_per_step`` bounds it.

    References
    ----------
    | A. Kusupati, G. Bhatt, A. Rege, M. Wallingford, A. Sinha, V. Ramanujan, W. Howard-Snyder, K. Chen, S. Kakade,
      P. Jain, A. Farhadi, "Matryoshka representation learning", NeurIPS 2022.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Matryoshka, SupCon
    >>> loss = Matryoshka(SupCon(), sizes=(4, 2))
    >>> z, y = torch.eye(4), torch.tensor([0, 0, 1, 1])
    >>> mean = (SupCon()(z, y) + SupCon()(z[:, :2], y)) / 2
    >>> bool(torch.isclose(loss(z, y), mean))
    True
    """

    warned = False  # that the full width is missing

    def __init__(
        self,
        loss: nn.Module | None = None,
        sizes: Sequence[int] | None = None,
        weights: Sequence[float] | None = None,
        reduction: str = "mean",
        sizes_per_step: int | None = None,
        random_state: int | None = None,
    ):
        super().__init__()
        self.loss = SupCon() if loss is None else loss
        self.sizes: tuple[int, ...] | None = None if sizes is None else tuple(sizes)
        number = 4 if sizes is None else len(sizes)
        if self.sizes is not None and (not self.sizes or min(self.sizes) < 1):
            raise ValueError(f"sizes must be one or more numbers from 1 on, got {sizes!r}")
        self.weights = (1.0,) * number if weights is None else tuple(weights)
        if len(self.weights) != number:
            raise ValueError(f"{number} sizes need as many weights, got {len(self.weights)}")
        self.reduction = one_of("reduction", reduction, ("mean", "sum"))
        if sizes_per_step is not None and not 1 <= sizes_per_step <= number:
            raise ValueError(f"sizes_per_step must lie in 1 … {number}, got {sizes_per_step}")
        self.sizes_per_step, self.random_state = sizes_per_step, random_state

    def forward(self, *arguments: Any, **given: Any) -> Tensor:
        """The loss of embeddings (B, p) with labels, and references if it takes any; or of columns (n, p).

        Parameters
        ----------
        *arguments : Tensor
            Embeddings (B, p) and labels (B,), with references if the loss takes any; or columns (n, p).
        **given : dict
            What else the loss takes, such as ``target``.

        Returns
        -------
        Tensor
            The scalar.
        """
        z = as_embeddings(arguments[0], "z")
        p = z.shape[1]
        sizes = tuple(max(p >> k, 1) for k in range(4)) if self.sizes is None else self.sizes
        if max(sizes) > p:
            raise ValueError(f"sizes {sizes} go beyond the embeddings, which have {p} dimensions")
        if p not in sizes and not self.warned:
            self.warned = True
            warnings.warn(f"sizes {sizes} do not hold the full width {p}, which is not trained then", stacklevel=2)
        columns = isinstance(self.loss, PairForm)
        values = []
        for k in self.chosen(z.device):
            m = sizes[k]
            cut = [x[:, :m] if columns or (i in (0, 2) and x is not None) else x for i, x in enumerate(arguments)]
            references = {"refs": given["refs"][:, :m]} if given.get("refs") is not None else {}
            parameters = {n: w[..., :m] for n, w in self.loss.named_parameters() if w.ndim > 1 and w.shape[-1] == p}
            value = functional_call(self.loss, parameters, tuple(cut), given | references)
            values.append(self.weights[k] * value)
        total = torch.stack(values).sum()
        return total / len(values) if self.reduction == "mean" else total

    def chosen(self, device: torch.device) -> list[int]:
        """Which of the widths take part.

        Parameters
        ----------
        device : torch.device
            Where random numbers are drawn.
        """
        if self.sizes_per_step is None or not self.training:
            return list(range(len(self.weights)))
        order = torch.randperm(len(self.weights), generator=self.generator(device), device=device)
        return order[: self.sizes_per_step].tolist()

    def param_groups(self, lr: float) -> list[dict[str, Any]]:
        return parameter_groups(self.loss, lr)
