"""A fitted metric as a few plain steps, which every form can write in its own language.

A map is read from the estimator once, as a list of `Affine`, `Kernel`, `Relu` and `Unit` steps; what a form cannot
write, it refuses. `run` carries the steps out in NumPy, and `steps_of` compares that with ``transform``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

__all__ = ["Affine", "ExportError", "Kernel", "Network", "Relu", "Step", "Unit", "fused", "run", "steps_of"]

PROBES = 16  # rows on which the steps are compared with transform
KERNELS = ("rbf", "laplacian", "linear", "poly", "polynomial", "sigmoid", "cosine")


class ExportError(ValueError):
    """A metric that cannot be written in a form.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry import GrassmannGMML, export
    >>> from isometry.io import ExportError
    >>> metric = GrassmannGMML().fit(np.random.default_rng(0).normal(size=(6, 3, 1)), [0, 0, 0, 1, 1, 1])
    >>> try:
    ...     export(metric, "metric.npy")
    ... except ExportError:
    ...     print("not in this form")
    not in this form
    """


@dataclass(frozen=True)
class Affine:
    """(x − shift) Wᵀ + bias; a vector W is a diagonal matrix."""

    shift: np.ndarray  # (d,)
    weight: np.ndarray  # (p, d), or (d,)
    bias: np.ndarray  # (p,)

    def then(self, after: Affine) -> Affine:
        """Both in one: ``after`` of this."""
        W, V = self.weight, after.weight
        if V.ndim == 1:
            both = V * W if W.ndim == 1 else V[:, None] * W
        else:
            both = V * W if W.ndim == 1 else V @ W
        return Affine(self.shift, both, _apply(V, self.bias - after.shift) + after.bias)

    @property
    def matrix(self) -> np.ndarray:
        """W (p, d) of Wx + b."""
        return np.diag(self.weight) if self.weight.ndim == 1 else self.weight

    @property
    def offset(self) -> np.ndarray:
        """(p,) b of Wx + b."""
        return np.asarray(self.bias - _apply(self.weight, self.shift))


@dataclass(frozen=True)
class Kernel:
    """k(x, l) for landmarks l (m, d)."""

    kind: str
    landmarks: np.ndarray
    gamma: float
    degree: float
    coef0: float


@dataclass(frozen=True)
class Relu:
    """The larger of x and 0, entry by entry."""


@dataclass(frozen=True)
class Unit:
    """x / |x|; 0 stays 0."""


@dataclass(frozen=True)
class Network:
    """A deep metric whose network is none of the plain ones: ONNX alone can hold it."""

    metric: Any


Step = Affine | Kernel | Relu | Unit | Network


def steps_of(model: Any) -> list[Step]:
    """The steps of a fitted metric or pipeline; `ExportError` if it is not made of such steps."""
    steps = fused(_read(model))
    if not any(isinstance(step, Network) for step in steps):
        _check(model, steps)
    return steps


def _read(model: Any) -> list[Step]:
    from isometry.base import LinearMetric
    from isometry.io.prepare import needs_cells
    from isometry.kernelized import KernelMetric
    from isometry.normalized import Normalized
    from isometry.select import AutoMetric
    from isometry.shrunk import Shrunk

    if isinstance(model, str) or model is None:  # "passthrough" in a pipeline
        return []
    if isinstance(model, Pipeline):
        return [step for _, part in model.steps for step in _read(part)]
    if isinstance(model, AutoMetric):
        return _read(model.pipeline_)
    if isinstance(model, Normalized):
        centre = model.center_
        return [*_read(model.learner_), Affine(centre, np.ones(len(centre)), np.zeros(len(centre))), Unit()]
    if isinstance(model, Shrunk) and model.components_ is not None:
        return [_linear(model.components_)]
    if isinstance(model, LinearMetric) and type(model)._transform is LinearMetric._transform:
        return [_linear(model.components_)]
    if isinstance(model, KernelMetric):
        return _kernel_steps(model)
    if hasattr(model, "weights_") and type(model).__module__.startswith("isometry.deep."):
        return _network_steps(model)
    if type(model).__module__.startswith("sklearn.") and type(model).__name__ in SCALERS:
        return SCALERS[type(model).__name__](model)
    if needs_cells(model):
        raise ExportError(
            f"{type(model).__name__} fills gaps or codes categories, which other places cannot do. Fit on columns of "
            "numbers without gaps, leaving out the others with --drop, or fill and code them before"
        )
    raise ExportError(f"{type(model).__name__} is not made of linear maps, kernels, layers and unit length")


def _linear(L: np.ndarray) -> Affine:
    return _affine(np.zeros(L.shape[1]), L)


def _affine(shift: Any, weight: Any, bias: Any = None) -> Affine:
    W = np.asarray(weight, dtype=np.float64)
    shift = np.zeros(W.shape[-1]) if shift is None else np.asarray(shift, dtype=np.float64)
    return Affine(shift, W, np.zeros(W.shape[0]) if bias is None else np.asarray(bias, dtype=np.float64))


def _kernel_steps(model: Any) -> list[Step]:
    if not isinstance(model.kernel, str) or model.kernel not in KERNELS:
        raise ExportError(f"its kernel {model.kernel!r} is none of {', '.join(KERNELS)}")
    params, marks = model.kernel_params_, np.asarray(model.landmarks_, dtype=np.float64)
    steps: list[Step] = []
    if model.origin_ is not None:
        marks = marks - model.origin_
        steps.append(_affine(model.origin_, np.ones(marks.shape[1])))
    gamma, degree = params.get("gamma"), params.get("degree", 3)
    gamma = 1 / marks.shape[1] if gamma is None else gamma
    steps.append(Kernel(model.kernel, marks, float(gamma), float(degree), float(params.get("coef0", 1.0))))
    if model.dual_coef_ is not None:
        return [*steps, _affine(_or_zeros(model.kernel_means_, len(marks)), model.dual_coef_)]
    return [*steps, _affine(_or_zeros(model.kernel_means_, len(marks)), model.basis_.T), *_read(model.learner_)]


def _or_zeros(shift: np.ndarray | None, n: int) -> np.ndarray:
    return np.zeros(n) if shift is None else shift


def _network_steps(model: Any) -> list[Step]:
    from isometry.deep.export import plain_layers

    layers = plain_layers(model)
    if layers is None:
        return [Network(model)]
    d = layers[0][0].shape[1]
    scale = np.broadcast_to(1 / np.asarray(model.scale_, dtype=np.float64), (d,))
    steps: list[Step] = [_affine(np.broadcast_to(model.mean_, (d,)), scale)]
    for k, (weight, bias) in enumerate(layers):
        steps += [*([Relu()] if k else []), _affine(None, weight, bias)]
    return [*steps, Unit()] if model.normalized_ else steps


def _min_max(scaler: Any) -> list[Step]:
    if scaler.clip:
        raise ExportError("MinMaxScaler(clip=True) is not linear")
    return [_affine(-scaler.min_ / scaler.scale_, scaler.scale_)]


def _normalizer(scaler: Any) -> list[Step]:
    if scaler.norm != "l2":
        raise ExportError(f"Normalizer(norm={scaler.norm!r}) is not unit length")
    return [Unit()]


def _pca(pca: Any) -> list[Step]:
    W = pca.components_
    return [_affine(pca.mean_, W / np.sqrt(pca.explained_variance_)[:, None] if pca.whiten else W)]


SCALERS: dict[str, Any] = {
    "StandardScaler": lambda s: [
        _affine(s.mean_ if s.with_mean else None, 1 / s.scale_ if s.with_std else np.ones(s.n_features_in_))
    ],
    "MaxAbsScaler": lambda s: [_affine(None, 1 / s.scale_)],
    "RobustScaler": lambda s: [
        _affine(s.center_ if s.with_centering else None, 1 / s.scale_ if s.with_scaling else np.ones(s.n_features_in_))
    ],
    "MinMaxScaler": _min_max,
    "Normalizer": _normalizer,
    "PCA": _pca,
    "TruncatedSVD": lambda s: [_affine(None, s.components_)],
    "FastICA": lambda s: [_affine(s.mean_ if s.whiten else None, s.components_)],
    "GaussianRandomProjection": lambda s: [_affine(None, s.components_)],
    "VarianceThreshold": lambda s: [_affine(None, np.eye(s.n_features_in_)[s.get_support()])],
}


def fused(steps: list[Step]) -> list[Step]:
    """The same with neighbouring affine steps in one, and unit length said once."""
    out: list[Step] = []
    for step in steps:
        last = out[-1] if out else None
        if isinstance(step, Affine) and isinstance(last, Affine):
            out[-1] = last.then(step)
        elif not (isinstance(step, Unit) and isinstance(last, Unit)):
            out.append(step)
    return out


def _apply(weight: np.ndarray, x: np.ndarray) -> np.ndarray:
    return x * weight if weight.ndim == 1 else x @ weight.T


def run(steps: list[Step], X: np.ndarray) -> np.ndarray:
    """The steps on rows (n, d), in float64."""
    Z = np.asarray(X, dtype=np.float64)
    for step in steps:
        if isinstance(step, Affine):
            Z = _apply(step.weight, Z - step.shift) + step.bias
        elif isinstance(step, Relu):
            Z = np.maximum(Z, 0)
        elif isinstance(step, Unit):
            length = np.linalg.norm(Z, axis=1, keepdims=True)
            Z = Z / np.where(length > 0, length, 1)
        elif isinstance(step, Kernel):
            from isometry.core.kernels import kernel_matrix

            Z = kernel_matrix(
                Z, step.landmarks, step.kind, {"gamma": step.gamma, "degree": step.degree, "coef0": step.coef0}
            )
    return Z


def _check(model: Any, steps: list[Step]) -> None:
    """Refuse steps that are not the map: a class may have changed its own."""
    first = steps[0] if steps else None
    d = int(model.n_features_in_)
    X = np.random.default_rng(0).normal(size=(PROBES, d))
    if isinstance(first, Affine):
        X = X / np.maximum(np.abs(first.weight).max(axis=0), 1e-12) if first.weight.ndim == 2 else X / first.weight
        X = X + first.shift
    expected = np.asarray(_plain_transform(model, X), dtype=np.float64)
    found = run(steps, X)
    if found.shape != expected.shape or np.abs(found - expected).max() > 1e-3 * np.abs(expected).max():
        raise ExportError(f"{type(model).__name__} maps rows in a way that no form knows")


def _plain_transform(model: Any, X: np.ndarray) -> Any:
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        return model.transform(X)
