"""Objectives around another objective."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from isometry.deep.objective import TrainingObjective, as_objective, parameter_groups


def innermost(objective: Any) -> Any:
    """The objective inside all wrappers."""
    while isinstance(objective, ObjectiveWrapper):
        objective = objective.objective
    return objective


class ObjectiveWrapper(nn.Module):
    """Abstract: changes what an objective sees; what a trainer asks of it, the objective inside answers.

    Parameters
    ----------
    objective : LossModule or callable
        A loss, or an objective ``(model, batch) → scalar``.
    """

    def __init__(self, objective: nn.Module | TrainingObjective):
        super().__init__()
        self.objective = as_objective(objective)

    @property
    def active(self) -> Tensor | None:
        """Share of the samples that the loss still moves, if the objective counts them."""
        return getattr(self.objective, "active", None)

    def geometry(self) -> dict[str, float]:
        """What the last batch was like, if the objective looks at it."""
        return getattr(self.objective, "geometry", dict)()

    def param_groups(self, lr: float) -> list[dict[str, Any]]:
        """Optimiser groups for the parameters of the objective.

        Parameters
        ----------
        lr : float
            Learning rate of the backbone.
        """
        return parameter_groups(self.objective, lr)
