"""Linear maps with unit length before, between or after them: what databases and stacks of modules can hold."""

from __future__ import annotations

from dataclasses import dataclass

from isometry.io.forms.steps import Affine, ExportError, Step, Unit


@dataclass(frozen=True)
class Layer:
    """Wx + b, of x/|x| where ``unit_first``, and itself brought to unit length where ``unit_last``."""

    affine: Affine
    unit_first: bool = False
    unit_last: bool = False

    @property
    def d(self) -> int:
        """Numbers of a row before the map."""
        return int(self.affine.matrix.shape[1])

    @property
    def p(self) -> int:
        """Numbers of a row after it."""
        return int(self.affine.matrix.shape[0])


def linear_layers(steps: list[Step]) -> list[Layer]:
    """The steps as linear maps, each with the unit length before it; that after the last belongs to the last."""
    layers: list[Layer] = []
    unit = False
    for step in steps:
        if isinstance(step, Affine):
            layers.append(Layer(step, unit_first=unit))
        elif not isinstance(step, Unit):
            raise ExportError("it is not made of linear maps and unit length")
        unit = isinstance(step, Unit)
    if unit and layers:
        layers[-1] = Layer(layers[-1].affine, layers[-1].unit_first, unit_last=True)
    if not layers:
        raise ExportError("it holds no linear map")
    return layers
