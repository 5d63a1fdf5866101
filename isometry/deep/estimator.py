"""Deep metric learning under the scikit-learn contract."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from isometry.base import MetricLearner
from isometry.deep.checkpoint import isolated_rng
from isometry.deep.functional import unit
from isometry.deep.loss import LossModule
from isometry.deep.models import MLP, ConvNet, LinearMap
from isometry.deep.objective import on_sphere
from isometry.deep.trainer import Trainer
from isometry.registry import get
from isometry.supervision import Labels

BLOCK = 4096  # samples that pass the network at a time


class DeepMetric(MetricLearner):
    """A network trained by a metric-learning loss: d(u, v) = ‖f(u) − f(v)‖.

    The network is kept as arrays (``weights_``), so that the estimator can be copied, pickled and saved like any other;
    ``network()`` builds it.

    Parameters
    ----------
    model : None, "linear", "mlp", "conv", module, or factory
        f. None is "mlp" for a table and "conv" for images (n, h, w) or (n, c, h, w). A module is copied, not changed; a
        factory is called with the shape of a sample and ``n_components``.
    loss : str, module, or factory
        A name of the method table, such as "Triplet", "ProxyNCA" or "CrossEntropy"; a loss, or an objective
        ``(model, batch) → scalar``, which is copied; or a class or function that gives one, called with those of
        ``num_classes``, ``embedding_size``, ``class_counts`` that it takes.
    loss_params : dict, optional
        Further arguments of the loss.
    n_components : int
        Dimension p of the embeddings of the named networks.
    hidden : sequence of int
        Layers of "mlp".
    lr, weight_decay, classes_per_batch, samples_per_class : float, float, int, int
        See `Trainer`.
    max_epochs, min_steps : int
        An epoch has room for all samples; on small tables it is longer, so that there are ``min_steps`` updates in all.
    validation : float, optional
        Share of each class to hold out: the epoch of best MAP@R on it is kept.
    patience : int, optional
        Epochs without improvement before training stops.
    standardize : bool
        Bring each feature to mean 0 and variance 1 first; images as a whole.
    trainer_params : dict, optional
        Further arguments of `Trainer`, but no ``folder``: for checkpoints use `Trainer` itself.
    random_state : int, RandomState or None
        Seed of weights and batches.
    verbose : bool
        Show a progress bar.

    Attributes
    ----------
    weights_ : dict of arrays
        State of the network.
    history_ : dict of lists
        Loss and other quantities by epoch.
    n_iter_, stop_reason_ : int, str
        Epochs done, and why they were the last.
    """

    _sees = (Labels,)
    _needs = ("similar", "dissimilar")

    def __init__(
        self,
        model: str | nn.Module | Callable[..., nn.Module] | None = None,
        loss: str | nn.Module | Callable[..., Any] = "Triplet",
        *,
        loss_params: Mapping[str, Any] | None = None,
        n_components: int = 32,
        hidden: Sequence[int] = (128,),
        lr: float = 1e-3,
        weight_decay: float = 1e-4,
        classes_per_batch: int = 8,
        samples_per_class: int = 8,
        max_epochs: int = 20,
        min_steps: int = 300,
        validation: float | None = None,
        patience: int | None = None,
        standardize: bool = True,
        trainer_params: Mapping[str, Any] | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ):
        self.model = model
        self.loss = loss
        self.loss_params = loss_params
        self.n_components = n_components
        self.hidden = hidden
        self.lr = lr
        self.weight_decay = weight_decay
        self.classes_per_batch = classes_per_batch
        self.samples_per_class = samples_per_class
        self.max_epochs = max_epochs
        self.min_steps = min_steps
        self.validation = validation
        self.patience = patience
        self.standardize = standardize
        self.trainer_params = trainer_params
        self.random_state = random_state
        self.verbose = verbose

    def _validate_samples(self, X, *, reset):
        dtypes = (np.float64, np.float32)
        X = validate_data(self, X, dtype=dtypes, allow_nd=True, ensure_min_samples=2 if reset else 1, reset=reset)
        if not reset and X.shape[1:] != self.sample_shape_:
            raise ValueError(
                f"X holds samples of shape {X.shape[1:]}, but was fitted to samples of {self.sample_shape_}"
            )
        return X

    def _fit(self, X, side):
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        if "folder" in (self.trainer_params or {}):
            raise ValueError(
                "DeepMetric keeps no checkpoints; use isometry.deep.Trainer(…, folder=…) to train with them"
            )
        mean, scale = self._units(X)
        n_batches = -(-len(X) // (self.classes_per_batch * self.samples_per_class))
        with isolated_rng(seed):
            network = self._build(X.shape[1:])
            size = embedding_size(network, X[:2])
            trainer = Trainer(
                network,
                self._make_loss(side, size),
                lr=self.lr,
                weight_decay=self.weight_decay,
                classes_per_batch=self.classes_per_batch,
                samples_per_class=self.samples_per_class,
                max_epochs=self.max_epochs,
                batches_per_epoch=max(n_batches, -(-self.min_steps // self.max_epochs)),
                patience=self.patience,
                random_state=seed,
                verbose=self.verbose,
                **(self.trainer_params or {}),
            )
            trainer.fit((X - mean) / scale, side.codes, validation=self.validation, protocol="closed")
        self.mean_, self.scale_, self.sample_shape_ = mean, scale, X.shape[1:]
        self.weights_ = {k: v.numpy(force=True).copy() for k, v in network.state_dict().items()}
        self.normalized_ = on_sphere(trainer.objective) if trainer.normalize is None else trainer.normalize
        self.embedding_size_, self.classes_ = size, side.classes
        self.history_, self.n_iter_, self.stop_reason_ = trainer.history, trainer.run.epoch, trainer.stop_reason

    def _units(self, X: np.ndarray) -> tuple[Any, Any]:
        """What is subtracted from the samples, and what they are divided by."""
        if not self.standardize:
            return 0.0, 1.0
        axes = 0 if X.ndim == 2 else None
        mean, scale = X.mean(axis=axes, dtype=np.float64), X.std(axis=axes, dtype=np.float64)
        return mean, np.where(scale > 1e-12 * np.abs(mean), scale, 1.0)  # a constant has only round-off to vary

    def _build(self, shape: tuple[int, ...]) -> nn.Module:
        """An untrained network for samples of this shape."""
        model = ("mlp" if len(shape) == 1 else "conv") if self.model is None else self.model
        if isinstance(model, nn.Module):
            return copy.deepcopy(model)
        if callable(model):
            return model(shape, self.n_components)
        if model == "conv":
            if len(shape) not in (2, 3):
                raise ValueError(f"model='conv' takes images (n, h, w) or (n, c, h, w), got samples of shape {shape}")
            return ConvNet((1, *shape)[-3:], self.n_components)
        if model not in ("linear", "mlp"):
            raise ValueError(f"model={model!r} is unknown: 'linear', 'mlp', 'conv', a module or a factory is expected")
        if len(shape) != 1:
            raise ValueError(
                f"model={model!r} takes a table (n, d), got samples of shape {shape}; use 'conv' for images"
            )
        return (
            LinearMap(shape[0], self.n_components)
            if model == "linear"
            else MLP(shape[0], self.n_components, self.hidden)
        )

    def _make_loss(self, side: Labels, size: int) -> Any:
        params = dict(self.loss_params or {})
        if isinstance(self.loss, nn.Module):
            return copy.deepcopy(self.loss)
        make = self.loss
        if isinstance(make, str):
            try:
                row = get(make)
            except KeyError as error:
                raise ValueError(f"loss={make!r}: {error.args[0]}") from error
            make = row.load()
            if not (isinstance(make, type) and issubclass(make, LossModule)):
                raise ValueError(f"{row.name} is a {row.kind}; a loss is expected, such as 'Triplet' or 'ProxyNCA'")
        known = {"num_classes": len(side.classes), "embedding_size": size, "class_counts": side.counts.tolist()}
        taken = inspect.signature(make).parameters
        return make(**{k: v for k, v in known.items() if k in taken} | params)

    def network(self) -> nn.Module:
        """The trained network, in eval mode, for samples in standard units: (X − mean_) / scale_."""
        check_is_fitted(self)
        with isolated_rng(0):  # its first weights are drawn, and at once replaced
            network = self._build(self.sample_shape_)
        network.load_state_dict({k: torch.as_tensor(v) for k, v in self.weights_.items()})
        return network.eval()

    @torch.no_grad()
    def _transform(self, X):
        network = self.network()
        dtype = network_dtype(network)
        Z = np.empty((len(X), self.embedding_size_), dtype=X.dtype)
        for start in range(0, len(X), BLOCK):
            block = slice(start, start + BLOCK)
            z = network(torch.as_tensor((X[block] - self.mean_) / self.scale_).to(dtype))
            Z[block] = (unit(z) if self.normalized_ else z).numpy()
        return Z

    @property
    def _n_features_out(self) -> int:
        return self.embedding_size_


def network_dtype(network: nn.Module) -> torch.dtype:
    """What the network computes in."""
    return next((p.dtype for p in network.parameters() if p.is_floating_point()), torch.float32)


@torch.no_grad()
def embedding_size(network: nn.Module, X: np.ndarray) -> int:
    """p, by passing some samples."""
    z = network.eval()(torch.as_tensor(X).to(network_dtype(network)))
    if not isinstance(z, torch.Tensor) or z.ndim != 2:
        got = tuple(z.shape) if isinstance(z, torch.Tensor) else type(z).__name__
        raise ValueError(f"the model must turn n samples into embeddings (n, p); {len(X)} samples gave {got}")
    return z.shape[1]
