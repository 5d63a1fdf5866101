"""Deep metric learning under the scikit-learn contract."""

from __future__ import annotations

import copy
import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from isometry.base import MetricLearner
from isometry.deep.augment import Augment, Augmented
from isometry.deep.checkpoint import isolated_rng
from isometry.deep.functional import unit
from isometry.deep.gradient_cache import GradientCache
from isometry.deep.loss import LossModule
from isometry.deep.miners import Miner
from isometry.deep.models import MLP, Autoencoder, ConvNet, LinearMap, VariationalAutoencoder
from isometry.deep.named import make_named, parse_call
from isometry.deep.objective import on_sphere
from isometry.deep.objectives.reconstruction import AutoencoderObjective
from isometry.deep.samplers import ceil_div
from isometry.deep.trainer import Trainer, network_dtype
from isometry.parameters import KW_ONLY, Seed, parameters
from isometry.registry import get
from isometry.supervision import Labels

BLOCK_SIZE = 4096  # samples that pass the network at a time


@parameters
class DeepMetric(MetricLearner):
    """A network trained by a metric-learning loss, or without labels as an autoencoder.

        min_θ L(f_θ(X), y),     d(u, v) = ‖f_θ(u) − f_θ(v)‖

    The network is kept as arrays (``weights_``), so that the estimator can be copied, pickled and saved like any other;
    ``network()`` builds it. ``fit`` takes X (n, d), or samples (n, …), class labels y unless the loss needs none, and

    - ``held_out``: (X, y) to look at after each epoch, of known or new classes, in place of a share ``validation``;
    - ``folder``: for checkpoints; training goes on from the one that is there, bit for bit as if it had not stopped;
    - ``callbacks``: see `Trainer`.

    Parameters
    ----------
    model : str, nn.Module, callable or None, default=None
        The network f: "linear", "mlp", "conv", a module, or a factory; None is "mlp" for a table and "conv" for images
        (n, h, w) or (n, c, h, w). A module is copied, not changed; a factory is called with the shape of a sample, (c,
        h, w) if ``image_shape`` says so, and ``n_components``; a file does not hold its code, so `load` needs
        ``set_params(model=factory)`` before ``transform``. For a reconstruction the named networks are the encoder, and
        get a decoder of linear layers.
    loss : str, nn.Module or callable, default="Triplet"
        A name of the method table, such as "Triplet", "ProxyNCA" or "CrossEntropy", with values if wanted,
        "Triplet(margin=0.3)"; a loss ``(embeddings, labels) → scalar``, also one of another library, or an objective
        ``(model, batch) → scalar``, which is copied; or a class or function that gives one, called with those of
        ``num_classes``, ``embedding_size``, ``class_counts`` that it takes. "Reconstruction",
        "VariationalReconstruction" and "AdversarialReconstruction" need no labels and use none, nor does an objective
        of your own with the attribute ``needs_labels = False``.
    loss_params : dict or None, default=None
        Further arguments of the loss; a miner may be given by its name. None: there are none.
    n_components : int, default=32
        Dimension p of the embeddings of the named networks.
    hidden : sequence of int, default=(128,)
        Layers of "mlp".
    lr : float, default=0.001
        Learning rate of the network; a loss sets that of its own parameters.
    weight_decay : float, default=0.0001
        Weight decay of the network; the parameters of a loss have none.
    classes_per_batch : int, default=8
        Classes of a batch, P.
    samples_per_class : int, default=8
        Samples of each class in a batch, K; without labels a batch has P · K samples.
    max_epochs : int, default=20
        Most epochs. An epoch has batches enough for all samples; without labels an epoch is all samples.
    min_steps : int, default=300
        Updates at least: on small tables epochs are longer, so that there are as many in all; without labels there are
        more epochs instead.
    validation : float or None, default=None
        Share of each class to hold out: the epoch of best MAP@R on it is kept. None: nothing is held out.
    patience : int or None, default=None
        Epochs without improvement before training stops; None: no limit.
    standardize : bool, default=True
        Bring each feature to mean 0 and variance 1 first; images as a whole.
    image_shape : tuple (c, h, w) or None, default=None
        The rows of a table (n, c·h·w) are images of this shape; None: they are no images.
    augment : bool or nn.Module, default=False
        Vary the samples in training: by ``Augment.standard``, or by a module ``(samples, labels) → samples``; they are
        in standard units then.
    chunk_size : int or None, default=None
        Samples that pass the network at a time in training; the gradient is that of the whole batch (`GradientCache`).
        None: all at once.
    trainer_params : dict or None, default=None
        Further arguments of `Trainer`; None: there are none.
    random_state : int, RandomState or None, default=None
        Seed of weights and batches; None: another one each time.
    verbose : bool, default=False
        Show a progress bar.

    Attributes
    ----------
    weights_ : dict of array
        State of the network.
    history_ : dict of list
        Loss and other quantities by epoch.
    n_iter_ : int
        Epochs done.
    stop_reason_ : str
        Why they were the last.
    converged_ : bool
        Whether that was no failure.

    Notes
    -----
    For tables and images in memory that no linear method separates, and for scikit-learn's pipelines and searches. On a
    few hundred rows the linear methods of this package are faster and often as good; compare. An epoch costs a pass
    over the samples forward and back and, for losses of pairs, O((P K)²) a batch.

    References
    ----------
    | B. Ghojogh, A. Ghodsi, F. Karray, M. Crowley, "Spectral, probabilistic, and deep metric learning: tutorial and
      survey", arXiv 2022.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry.deep import DeepMetric
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = DeepMetric("linear", "ProxyNCA", n_components=2, max_epochs=1, min_steps=5, random_state=0)
    >>> metric.fit(X, y).transform(X).shape
    (150, 2)
    """

    _sees = (Labels,)

    model: str | nn.Module | Callable[..., nn.Module] | None = None
    loss: str | nn.Module | Callable[..., Any] = "Triplet"
    _: KW_ONLY
    loss_params: Mapping[str, Any] | None = None
    n_components: int = 32
    hidden: Sequence[int] = (128,)
    lr: float = 1e-3
    weight_decay: float = 1e-4
    classes_per_batch: int = 8
    samples_per_class: int = 8
    max_epochs: int = 20
    min_steps: int = 300
    validation: float | None = None
    patience: int | None = None
    standardize: bool = True
    image_shape: tuple[int, int, int] | None = None
    augment: bool | nn.Module = False
    chunk_size: int | None = None
    trainer_params: Mapping[str, Any] | None = None
    random_state: Seed = None
    verbose: bool = False

    def _validate_samples(self, X: Any, *, reset: bool) -> np.ndarray:
        dtypes = (np.float64, np.float32)
        X = validate_data(self, X, dtype=dtypes, allow_nd=True, ensure_min_samples=2 if reset else 1, reset=reset)
        if reset:
            self.sample_shape_ = X.shape[1:]
        elif X.shape[1:] != self.sample_shape_:
            raise ValueError(
                f"X holds samples of shape {X.shape[1:]}, but was fitted to samples of {self.sample_shape_}"
            )
        return X

    def _fit(
        self,
        X: np.ndarray,
        side: Labels | None,
        held_out: tuple[Any, Any] | None = None,
        folder: str | os.PathLike[str] | None = None,
        callbacks: Sequence[Callable[[Trainer], str | None]] = (),
    ) -> None:
        if held_out is not None:
            held_out = self._validate_samples(held_out[0], reset=False), np.asarray(held_out[1])
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        params = dict(self.trainer_params or {})
        if "folder" in params:
            raise ValueError("trainer_params keeps no checkpoints: their place is fit(X, y, folder=…)")
        if side is None and held_out is None:
            if self.validation is not None:
                raise ValueError(
                    "validation holds out a share of each class, but this loss uses no labels: to watch retrieval give "
                    "fit(X, held_out=(X, y)), otherwise leave validation unset"
                )
            params = {"monitor": "loss"} | params
        mean, scale = self._units(X)
        epochs, batches = self._length(len(X), labelled=side is not None)
        with isolated_rng(seed):
            network = self._build(X.shape[1:])
            size = embedding_size(network, X[:2])
            trainer = Trainer(
                network,
                self._make_objective(side, size),
                lr=self.lr,
                weight_decay=self.weight_decay,
                classes_per_batch=self.classes_per_batch,
                samples_per_class=self.samples_per_class,
                max_epochs=epochs,
                batches_per_epoch=batches,
                patience=self.patience,
                random_state=seed,
                verbose=self.verbose,
                folder=folder,
                callbacks=[*params.pop("callbacks", ()), *callbacks],
                **params,
            )
            validation = self.validation if held_out is None else ((held_out[0] - mean) / scale, held_out[1])
            codes = None if side is None else side.codes
            trainer.fit((X - mean) / scale, codes, validation=validation, protocol="closed", resume=True)
        self.mean_, self.scale_ = mean, scale
        self.weights_ = {k: v.numpy(force=True).copy() for k, v in network.state_dict().items()}
        self.normalized_ = on_sphere(trainer.objective) if trainer.normalize is None else trainer.normalize
        self.embedding_size_, self.classes_ = size, None if side is None else side.classes
        history: Any = trainer.history  # a table here, where other methods have a list
        self.history_, self.n_iter_, self.stop_reason_ = history, trainer.run.epoch, str(trainer.stop_reason)
        self.converged_ = not trainer.run.failed

    def _units(self, X: np.ndarray) -> tuple[Any, Any]:
        """What is subtracted from the samples, and what they are divided by."""
        if not self.standardize:
            return 0.0, 1.0
        axes = 0 if X.ndim == 2 and self.image_shape is None else None
        mean, scale = X.mean(axis=axes, dtype=np.float64), X.std(axis=axes, dtype=np.float64)
        return mean, np.where(scale > 1e-12 * np.abs(mean), scale, 1.0)  # a constant has only round-off to vary

    def _length(self, n: int, labelled: bool) -> tuple[int, int | None]:
        """Epochs, and batches in each where that can be chosen, so that there are enough updates."""
        size = self.classes_per_batch * self.samples_per_class
        if labelled:
            return self.max_epochs, max(ceil_div(n, size), ceil_div(self.min_steps, self.max_epochs))
        return max(self.max_epochs, ceil_div(self.min_steps, max(n // size, 1))), None

    def _validate_more(self, name: str, value: Any, n: int) -> Any:
        return value

    @property
    def _requires_y(self) -> bool:
        return bool(getattr(self._known_loss(), "needs_labels", True))

    def _known_loss(self) -> Any:
        """The loss as it was given, for a name its class; None for a name that is refused where the loss is made."""
        if not isinstance(self.loss, str):
            return self.loss
        try:
            return get(parse_call(self.loss)[0]).load()
        except (KeyError, ValueError):
            return None

    def _autoencoder(self) -> type[Autoencoder] | None:
        """The kind of autoencoder that the loss trains, if it trains one."""
        loss = self._known_loss()
        kind = loss if isinstance(loss, type) else type(loss)
        return kind.network if issubclass(kind, AutoencoderObjective) else None

    def _supervise(self, y: Any, n: int, *, part: bool = False) -> Any:
        return super()._supervise(y, n, part=part) if self._requires_y else None

    def _build(self, shape: tuple[int, ...]) -> nn.Module:
        """An untrained network for samples of this shape: an autoencoder if it shall reconstruct them."""
        images = shape if self.image_shape is None else tuple(self.image_shape)
        if math.prod(images) != math.prod(shape):
            raise ValueError(f"image_shape={images} has {math.prod(images)} pixels, samples have {math.prod(shape)}")
        if isinstance(self.model, nn.Module):
            return copy.deepcopy(self.model)
        if callable(self.model):
            return self._from_factory(self.model, shape, images)
        if isinstance(self.model, str) and ":" in self.model:
            raise ValueError(
                f"model={self.model!r} names code, which is not imported because a file says so: import it and give "
                f"set_params(model={self.model.rpartition(':')[2]}), or --backbone {self.model} on the command line"
            )
        autoencoder = self._autoencoder()
        if autoencoder is None:
            return self._encoder(shape, images, self.n_components)
        size = 2 * self.n_components if autoencoder is VariationalAutoencoder else self.n_components
        decoder = MLP(self.n_components, math.prod(shape), () if self.model == "linear" else tuple(self.hidden)[::-1])
        return autoencoder(self._encoder(shape, images, size), decoder)

    def _from_factory(self, factory: Callable[..., Any], shape: tuple[int, ...], images: tuple[int, ...]) -> nn.Module:
        network = factory(images, self.n_components)
        if not isinstance(network, nn.Module):
            raise ValueError(f"the factory of the model must give a torch module, it gave {network!r:.80}")
        return network if images == shape else nn.Sequential(nn.Unflatten(1, images), network)

    def _encoder(self, shape: tuple[int, ...], images: tuple[int, ...], size: int) -> nn.Module:
        """One of the named networks, from samples of this shape, maybe seen as images, to ``size`` numbers."""
        model = ("mlp" if len(images) == 1 else "conv") if self.model is None else self.model
        if model == "conv":
            if len(images) not in (2, 3):
                raise ValueError(
                    f"model='conv' takes images (n, h, w) or (n, c, h, w), got samples of shape {shape}; for a table "
                    "of images give image_shape"
                )
            return ConvNet((1, *images)[-3:], size)
        if model not in ("linear", "mlp"):
            raise ValueError(f"model={model!r} is unknown: 'linear', 'mlp', 'conv', a module or a factory is expected")
        if len(shape) != 1:
            raise ValueError(
                f"model={model!r} takes a table (n, d), got samples of shape {shape}; use 'conv' for images"
            )
        return LinearMap(shape[0], size) if model == "linear" else MLP(shape[0], size, self.hidden)

    def _make_objective(self, side: Labels | None, size: int) -> Any:
        """The loss, in chunks and on augmented samples if wanted."""
        objective = self._make_loss(side, size)
        if self.chunk_size is not None:
            if self._autoencoder() is not None:
                raise ValueError(
                    "chunk_size is for losses that compare the samples of a batch; a reconstruction takes them one by "
                    "one: make batches smaller, by samples_per_class, and leave chunk_size unset"
                )
            objective = GradientCache(objective, self.chunk_size)
        if self.augment is False:
            return objective
        shape = self.sample_shape_ if self.image_shape is None else tuple(self.image_shape)
        standard = Augment.standard(None if len(shape) == 1 else (1, *shape)[-3:])
        return Augmented(objective, standard if self.augment is True else copy.deepcopy(self.augment))

    def _make_loss(self, side: Labels | None, size: int) -> Any:
        if isinstance(self.loss, nn.Module):
            return copy.deepcopy(self.loss)
        known: dict[str, Any] = {"embedding_size": size}
        if side is not None:
            known |= {"num_classes": len(side.classes), "class_counts": side.counts.tolist()}
        params = dict(self.loss_params or {})
        if isinstance(self.loss, str):
            return make_named("loss", self.loss, (LossModule, AutoencoderObjective), known, params)
        if isinstance(params.get("miner"), str):
            params["miner"] = make_named("miner", params["miner"], (Miner,), known)
        return call(self.loss, known, **params)

    def network(self) -> nn.Module:
        """The trained network, in eval mode, for samples in standard units: less ``mean_``, divided by ``scale_``.

        Returns
        -------
        nn.Module
            The network, with the weights of ``weights_``.
        """
        check_is_fitted(self)
        weights = {k: torch.as_tensor(v) for k, v in self.weights_.items()}
        if self.model is None or isinstance(self.model, str):
            with torch.device("meta"):  # draws no first weights, and so needs no generator, which others may be using
                network = self._build(self.sample_shape_)
            network.load_state_dict({k: v.clone() for k, v in weights.items()}, assign=True)
        else:
            with isolated_rng(0):  # first weights are drawn, and at once replaced
                network = self._build(self.sample_shape_)
            network.load_state_dict(weights)
        return network.eval()

    @torch.no_grad()
    def _transform(self, X: np.ndarray) -> np.ndarray:
        network = self.network()
        dtype = network_dtype(network)
        Z = np.empty((len(X), self.embedding_size_), dtype=X.dtype)
        for start in range(0, len(X), BLOCK_SIZE):
            block = slice(start, start + BLOCK_SIZE)
            z = network(torch.as_tensor((X[block] - self.mean_) / self.scale_).to(dtype))
            Z[block] = (unit(z) if self.normalized_ else z).numpy()
        return Z

    @property
    def _n_features_out(self) -> int:
        return self.embedding_size_


def call(make: Callable[..., Any], known: Mapping[str, Any], **params: Any) -> Any:
    """``make`` with those of the known arguments that it takes, and with all of ``params``."""
    taken = inspect.signature(make).parameters
    return make(**{k: v for k, v in known.items() if k in taken} | params)


@torch.no_grad()
def embedding_size(network: nn.Module, X: np.ndarray) -> int:
    """p, by passing some samples."""
    z = network.eval()(torch.tensor(X, dtype=network_dtype(network)))
    if not isinstance(z, torch.Tensor) or z.ndim != 2:
        got = tuple(z.shape) if isinstance(z, torch.Tensor) else type(z).__name__
        raise ValueError(f"the model must turn n samples into embeddings (n, p); {len(X)} samples gave {got}")
    return z.shape[1]
