"""Learning rates over a run: factors by the share of the steps done, and one that waits for a plateau."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from isometry.parameters import Count, NotNegative, check_parameters


def onecycle(t: float) -> float:
    """From 1/25 up to 1 in three tenths of the steps, then down to 4·10⁻⁶, along half waves (Smith and Topin)."""
    first, last, peak = 1 / 25, 1 / 25e4, 0.3
    start, end, s = (first, 1.0, t / peak) if t < peak else (1.0, last, (t - peak) / (1 - peak))
    return end + (start - end) * (1 + math.cos(math.pi * s)) / 2


def wsd(t: float) -> float:
    """Stable, then 1 − √ of the way through the last fifth of the steps."""
    return 1 - math.sqrt(max(0.0, t - 0.8) / 0.2)


def step(t: float) -> float:
    """A tenth after half of the steps, and a hundredth after three quarters."""
    return 0.1 ** ((t >= 0.5) + (t >= 0.75))


SCHEDULES: dict[str, Callable[[float], float]] = {  # share of the steps done → factor of the learning rate
    "constant": lambda t: 1.0,
    "cosine": lambda t: (1 + math.cos(math.pi * t)) / 2,
    "linear": lambda t: 1 - t,
    "onecycle": onecycle,
    "wsd": wsd,
    "step": step,
}


@dataclass(frozen=True)
class Plateau:
    """A learning rate that falls when the monitored quantity has not improved for some epochs.

        Trainer(model, loss, schedule=Plateau(factor=0.1, patience=5))

    The factor is a function of the scores of all epochs so far, so that a resumed run needs nothing else.

    Parameters
    ----------
    factor : float, default=0.5
        What the learning rate is multiplied by each time.
    patience : int, default=2
        Epochs without improvement that are still let pass.
    min_delta : float, default=0.0
        What an improvement must exceed to count.

    Notes
    -----
    For runs of unknown length with something to monitor: ``Trainer(..., schedule=Plateau(0.1, patience=5))``. With a
    known length "cosine" needs no measurement.

    Examples
    --------
    >>> from isometry.deep import Plateau
    >>> Plateau(factor=0.5, patience=1).after([0.1, 0.3, 0.3, 0.2])  # two epochs without improvement
    0.5
    """

    factor: NotNegative = 0.5
    patience: Count = 2
    min_delta: NotNegative = 0.0

    def __post_init__(self) -> None:
        check_parameters(self)
        if not self.factor < 1:
            raise ValueError(f"factor={self.factor} must be below 1: the learning rate shall fall")

    def after(self, scores: Iterable[float]) -> float:
        """The factor after epochs with these scores, of which higher is better.

        Parameters
        ----------
        scores : iterable of float
            One score an epoch, of which higher is better.

        Returns
        -------
        float
            The factor of the learning rate.
        """
        best, waited, scale = -math.inf, 0, 1.0
        for score in scores:
            better = score > best + self.min_delta
            best, waited = (score, 0) if better else (best, waited + 1)
            if waited > self.patience:
                scale, waited = scale * self.factor, 0
        return scale
