"""A trained network is an estimator like any other."""

from __future__ import annotations

import inspect
import math
import pickle
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import partial

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import isometry
from isometry.deep import (
    MLP,
    AdversarialReconstruction,
    Autoencoder,
    DeepMetric,
    Lifted,
    LossObjective,
    NCALoss,
    ProxyNCA,
    Reconstruction,
    Trainer,
    Triplet,
    VariationalAutoencoder,
    VariationalReconstruction,
    mlp_autoencoder,
)
from isometry.eval import retrieval
from isometry.io import load
from isometry.supervision import Pairs
from tests.conftest import make_blobs, make_planted

torch.set_num_threads(1)
QUICK = {"n_components": 4, "hidden": (8,), "max_epochs": 2, "min_steps": 4, "random_state": 0}


def quick(**params):
    return DeepMetric(**{**QUICK, **params})


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([quick(n_components=2), quick(n_components=2, loss="Reconstruction")])
def test_scikit_learn_check(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)


# 1-NN of raw pixels is already 0.985 and of an untrained network 0.95; their MAP@R is 0.54 and 0.38
@pytest.mark.parametrize(
    ("params", "map_at_r"), [({}, 0.85), ({"loss": "ProxyNCA"}, 0.9), ({"loss": "CrossEntropy"}, 0.7)], ids=str
)
def test_quality_on_digits(digits, params, map_at_r):
    X, X_test, y, y_test = digits
    learner = DeepMetric(max_epochs=15, random_state=0, **params).fit(X, y)
    assert learner.score(X_test, y_test) >= 0.95
    found = retrieval(learner.transform(X_test), y_test).mean()["map@r"]
    assert found > map_at_r, found


def test_images_by_the_default_network(digits):
    X, X_test, y, y_test = (a.reshape(-1, 8, 8) if a.ndim == 2 else a for a in digits)
    learner = DeepMetric(n_components=16, max_epochs=2, min_steps=40, random_state=0).fit(X, y)
    assert type(learner.network()).__name__ == "ConvNet" and learner.mean_.shape == ()
    assert retrieval(learner.transform(X_test), y_test).mean()["map@r"] > 0.7
    assert_allclose(
        learner.transform(X_test[:5]),
        DeepMetric(n_components=16, max_epochs=2, min_steps=40, random_state=0)
        .fit(X[:, None], y)
        .transform(X_test[:5, None]),
    )
    with pytest.raises(ValueError, match=r"samples of shape \(7, 8\), but was fitted to samples of \(8, 8\)|features"):
        learner.transform(X_test[:, 1:])


def test_transform_by_hand():
    """A linear network: (X − mean) / std · Lᵀ, on the sphere for a loss that compares there."""
    X, y = make_blobs()
    U = (X - X.mean(0)) / X.std(0)
    free = quick(model="linear", loss="NCALoss").fit(X, y)
    assert_allclose(free.transform(X), U @ free.weights_["weight"].T, rtol=1e-4, atol=1e-5)
    bound = quick(model="linear", loss="Triplet").fit(X, y)
    Z = U @ bound.weights_["weight"].T
    assert_allclose(bound.transform(X), Z / np.linalg.norm(Z, axis=1, keepdims=True), rtol=1e-4, atol=1e-5)
    raw = quick(model="linear", loss="NCALoss", standardize=False).fit(X, y)
    assert_allclose(raw.transform(X), X @ raw.weights_["weight"].T, rtol=1e-4, atol=1e-4)


def test_units_do_not_matter():
    """Neither scale, shift nor constant columns reach the network; a step away from float32's precision."""
    X, y = make_blobs()
    messy = X * np.array([1e-8, 1.0, 1e3, 10.0]) + np.array([0.0, 1e4, 0.0, -5.0])
    Z = quick().fit(X, y).transform(X)
    assert_allclose(quick().fit(messy, y).transform(messy), Z, atol=1e-3)
    constant = np.c_[X, np.full(len(X), 0.1)]
    assert np.isfinite(quick().fit(constant, y).transform(constant)).all()


def test_deterministic_and_independent_of_the_global_seed():
    X, y = make_blobs()
    torch.manual_seed(1)
    A = quick().fit(X, y)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    B = quick().fit(X, y)
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(A.transform(X), B.transform(X)) and A.history_ == B.history_
    assert not np.allclose(A.transform(X), quick(random_state=1).fit(X, y).transform(X))


def test_clone_pickle_save_load(tmp_path):
    X, y = make_blobs()
    for params in ({}, {"model": "linear", "loss_params": {"margin": 0.5}, "validation": 0.4}, {"loss": "ProxyNCA"}):
        learner = quick(**params)
        assert repr(clone(learner)) == repr(learner)
        Z = learner.fit(X, y).transform(X)
        assert np.array_equal(pickle.loads(pickle.dumps(learner)).transform(X), Z)
        path = tmp_path / "metric.safetensors"
        learner.save(path)
        again = isometry.load(path)
        assert type(again) is DeepMetric and repr(again) == repr(learner)
        assert np.array_equal(again.transform(X), Z) and again.stop_reason_ == learner.stop_reason_
        assert again.history_["loss"] == learner.history_["loss"]
    pipeline = make_pipeline(StandardScaler(), quick()).fit(X, y)
    isometry.save(pipeline, tmp_path / "pipeline.safetensors")
    assert np.array_equal(isometry.load(tmp_path / "pipeline.safetensors").transform(X), pipeline.transform(X))


def test_a_network_that_is_code_cannot_be_saved_but_pickled(tmp_path):
    X, y = make_blobs()
    learner = quick(model=nn.Linear(4, 3)).fit(X, y)
    with pytest.raises(ValueError, match=r"DeepMetric\.model cannot be stored"):
        learner.save(tmp_path / "metric.safetensors")
    assert np.array_equal(pickle.loads(pickle.dumps(learner)).transform(X), learner.transform(X))


def test_modules_and_factories_are_not_changed():
    X, y = make_blobs()
    net, loss = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)), ProxyNCA(3, 3)
    before = {k: v.clone() for k, v in (*net.state_dict().items(), *loss.state_dict().items())}
    learner = quick(model=net, loss=loss).fit(X, y)
    after = dict((*net.state_dict().items(), *loss.state_dict().items()))
    assert all(torch.equal(before[k], after[k]) for k in before)
    assert learner.embedding_size_ == 3 and learner.transform(X).shape == (len(X), 3)
    assert_allclose(np.linalg.norm(learner.transform(X), axis=1), 1, rtol=1e-5)
    made = quick(model=lambda shape, p: MLP(*shape, p, hidden=(5,)), loss=lambda num_classes: Triplet(1 / num_classes))
    assert made.fit(X, y).transform(X).shape == (len(X), 4)
    objective = LossObjective(NCALoss())
    assert quick(loss=objective).fit(X, y).transform(X).shape == (len(X), 4)


def test_grid_search_and_pipeline():
    X, y = make_planted(n=120, d=20)
    learner = quick(model="linear", loss="NCALoss", min_steps=60)
    search = GridSearchCV(learner, {"lr": [1e-9, 1e-2]}, cv=3).fit(X, y)
    untrained, trained = search.cv_results_["mean_test_score"]
    assert search.best_params_ == {"lr": 1e-2} and trained > untrained + 0.1
    knn = make_pipeline(search.best_estimator_, KNeighborsClassifier()).fit(X[:80], y[:80])
    assert knn.score(X[80:], y[80:]) > KNeighborsClassifier().fit(X[:80], y[:80]).score(X[80:], y[80:]) + 0.1
    grid = GridSearchCV(quick(), {"loss_params": [{"margin": 0.1}, {"margin": 0.5}]}, cv=2).fit(X, y)
    assert np.isfinite(grid.cv_results_["mean_test_score"]).all()


def test_early_stopping_keeps_the_best_epoch():
    X, y = make_planted(n=120, d=20)
    learner = quick(loss="NCALoss", validation=0.3, patience=3, max_epochs=60, lr=0.02).fit(X, y)
    scores = learner.history_["map@r"]
    assert learner.stop_reason_ == "map@r has not improved for 3 epochs"
    assert learner.n_iter_ == len(scores) < 60 and int(np.argmax(scores)) == len(scores) - 4


def test_beside_the_classical_methods():
    X, y = make_planted(n=120, d=20)
    found = isometry.compare(
        X,
        y,
        ["RCA", ("deep", quick(min_steps=100, lr=0.01, model="linear", loss="NCALoss"))],
        n_splits=3,
        n_neighbors=1,
    )
    assert {r.name for r in found.results} == {"Euclidean", "Covariance", "RCA", "deep"}
    assert not found["deep"].failures and found["deep"].n_fits == 3
    assert found["deep"].score.mean > found["Euclidean"].score.mean + 0.1
    assert isinstance(isometry.registry.get("deepmetric").make(), DeepMetric)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"model": "resnet"}, "'linear', 'mlp', 'conv'"),
        ({"model": "conv"}, r"images \(n, h, w\)"),
        ({"model": nn.Flatten(0)}, r"embeddings \(n, p\)"),
        ({"loss": "Tripplet"}, "did you mean Triplet"),
        ({"loss": "PKBatchSampler"}, "is a sampler; a loss is expected"),
        ({"loss": "LMNN"}, "is an estimator; a loss is expected"),
        ({"loss": "DAML"}, "is an objective; a loss is expected"),
        ({"trainer_params": {"folder": "run"}}, "keeps no checkpoints"),
        ({"validation": 2.0}, "between 0 and 1"),
    ],
)
def test_bad_settings_are_named(params, message):
    with pytest.raises(ValueError, match=message):
        quick(**params).fit(*make_blobs())


def test_bad_labels_are_named():
    X, _ = make_blobs()
    with pytest.raises(ValueError, match="at least 2 classes"):
        quick().fit(X, np.zeros(len(X)))
    with pytest.raises(ValueError, match="at least 2 samples"):
        quick().fit(X, np.arange(len(X)))
    with pytest.raises(TypeError, match="learns from labels; it cannot use pairs"):
        quick().fit(X, Pairs([0, 1], [2, 3], [True, False], n=len(X)))


# -- without labels ----------------------------------------------------------------------------------------------------

UNLABELLED = (
    "Reconstruction",
    "Reconstruction[penalty]",
    "Reconstruction[noise]",
    "VariationalReconstruction",
    "AdversarialReconstruction",
)


@pytest.mark.parametrize("loss", UNLABELLED)
@pytest.mark.parametrize("model", [None, "linear"])
def test_fit_without_labels(loss, model, tmp_path):
    """Every reconstruction of the method table: fit(X), the same with labels, clone, pickle, save and load."""
    X, y = make_blobs()
    learner = quick(model=model, loss=loss, n_components=3)
    Z = learner.fit(X).transform(X)
    assert Z.shape == (len(X), 3) and learner.classes_ is None and learner.history_["loss"][-1] > 0
    assert np.array_equal(clone(learner).fit(X, y).transform(X), Z)  # labels change nothing, not even the batches
    assert np.array_equal(pickle.loads(pickle.dumps(learner)).transform(X), Z)
    learner.save(tmp_path / "metric.safetensors")
    again = isometry.load(tmp_path / "metric.safetensors")
    assert repr(again) == repr(learner) and np.array_equal(again.transform(X), Z)
    network, variational = again.network(), loss == "VariationalReconstruction"
    assert type(network) is (VariationalAutoencoder if variational else Autoencoder)
    assert network.decode(torch.zeros(2, 3)).shape == (2, 4)


def test_reconstruction_is_that_of_the_trainer():
    """The estimator adds units and a seed, and nothing else."""
    X, _ = make_blobs()
    U = ((X - X.mean(0)) / X.std(0)).astype(np.float32)
    net, settings = mlp_autoencoder(4, 3, (8,)), {"classes_per_batch": 8, "samples_per_class": 2, "max_epochs": 3}
    learner = quick(model=net, loss=Reconstruction(noise="masking"), min_steps=1, **settings).fit(X)
    seed = int(np.random.RandomState(0).randint(np.iinfo(np.int32).max))
    trainer = Trainer(net, Reconstruction(noise="masking"), monitor="loss", random_state=seed, **settings).fit(U)
    assert_allclose(learner.transform(X), trainer.embed(U).numpy(), rtol=1e-4, atol=1e-5)
    assert_allclose(learner.history_["loss"], trainer.history["loss"], rtol=1e-5)


def test_linear_reconstruction_finds_the_principal_plane():
    X = np.random.default_rng(0).normal(size=(200, 6)) * [3.0, 2.0, 0.3, 0.2, 0.2, 0.1]
    X = (X - X.mean(0)) @ np.linalg.qr(np.random.default_rng(1).normal(size=(6, 6)))[0]
    learner = DeepMetric("linear", "Reconstruction", n_components=2, standardize=False, lr=0.03, random_state=0).fit(X)
    _, s, axes = np.linalg.svd(X, full_matrices=False)
    found = np.linalg.qr(learner.weights_["decoder.layers.0.weight"])[0]  # (6, 2)
    assert np.linalg.svd(axes[:2] @ found)[1].min() > 0.999  # cosines of the angles between the planes
    assert_allclose(learner.history_["loss"][-1], (s[2:] ** 2).sum() / len(X), rtol=0.1)  # the variance left out


def test_images_without_labels(digits):
    X = digits[0][:200].reshape(-1, 8, 8)
    learner = DeepMetric(loss="Reconstruction", n_components=16, max_epochs=2, min_steps=1, random_state=0).fit(X)
    assert type(learner.network().encoder).__name__ == "ConvNet"
    assert learner.transform(X).shape == (200, 16) and learner.n_iter_ == 2


def test_denoising_codes_of_digits_beat_those_of_an_untrained_network(digits):
    X, X_test, _, y_test = digits
    codes = {"loss": "Reconstruction[noise]", "loss_params": {"noise": "masking"}, "n_components": 16, "max_epochs": 10}
    untrained, trained = (
        retrieval(DeepMetric(lr=lr, random_state=0, **codes).fit(X).transform(X_test), y_test).mean()["map@r"]
        for lr in (1e-9, 3e-3)
    )
    assert trained > untrained + 0.05, (untrained, trained)


def test_steps_and_watching_without_labels():
    X, y = make_blobs()
    batch = {"classes_per_batch": 1, "samples_per_class": len(X) // 3}
    assert quick(loss="Reconstruction[noise]", min_steps=10, **batch).fit(X).n_iter_ == 4  # of three batches each
    patient = quick(loss="Reconstruction[noise]", patience=1, lr=0.0, max_epochs=9).fit(X)
    assert patient.stop_reason_ == "loss has not improved for 1 epochs" and patient.n_iter_ < 9
    watched = quick(loss="Reconstruction[noise]").fit(X, held_out=(X[::2], y[::2]))
    Z = watched.transform(X[::2])
    assert_allclose(retrieval(Z, y[::2]).mean()["map@r"], max(watched.history_["map@r"]), rtol=1e-6)


def test_an_objective_of_ones_own_says_that_it_needs_no_labels():
    class Spread(nn.Module):
        needs_labels = False

        def forward(self, model, batch):
            assert isinstance(batch, torch.Tensor)  # samples alone
            return -model(batch).var(0).sum()

    X, y = make_blobs()
    before, after = (quick(model="linear", loss=Spread(), lr=lr, min_steps=50).fit(X, y) for lr in (1e-9, 0.05))
    assert after.transform(X).var(0).sum() > 2 * before.transform(X).var(0).sum()
    Spread.needs_labels = True
    with pytest.raises(ValueError, match="requires y to be passed"):
        quick(loss=Spread()).fit(X)


NO_LABELS = [partial(Reconstruction, noise="masking"), VariationalReconstruction, partial(AdversarialReconstruction, 4)]


@pytest.mark.parametrize("kind", NO_LABELS)
def test_objectives_that_need_no_labels_say_so_in_one_way(kind):
    """The attribute alone decides, also for those of the library: set to True, labels are asked for and come along."""
    X, y = make_blobs()
    objective = kind()
    assert not objective.needs_labels and quick(loss=objective).fit(X).classes_ is None
    objective.needs_labels = True
    with pytest.raises(ValueError, match="requires y to be passed"):
        quick(loss=objective).fit(X)
    assert len(quick(loss=objective, n_components=4).fit(X, y).classes_) == len(np.unique(y))


def test_parameters_are_declared_as_those_of_every_learner():
    """By annotated names, which make the arguments: two by position, all others by keyword only."""
    declared = [f.name for f in fields(DeepMetric)]
    taken = inspect.signature(DeepMetric).parameters
    assert declared == list(taken) == [*vars(DeepMetric())] and len(declared) == 20
    assert [n for n, p in taken.items() if p.kind is p.POSITIONAL_OR_KEYWORD] == ["model", "loss"]
    assert sorted(DeepMetric().get_params()) == sorted(declared)


def test_losses_that_need_labels_still_say_so():
    X, _ = make_blobs()
    for loss in ("Triplet", "ProxyNCA", NCALoss(), Triplet):
        with pytest.raises(ValueError, match="requires y to be passed"):
            quick(loss=loss).fit(X)
    assert quick().__sklearn_tags__().target_tags.required
    assert not quick(loss="D03").__sklearn_tags__().target_tags.required
    assert quick(loss="no such loss").__sklearn_tags__().target_tags.required  # fit will say it


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"validation": 0.2}, r"fit\(X, held_out=\(X, y\)\)"),
        ({"chunk_size": 4}, "make batches smaller"),
        ({"model": "conv"}, r"images \(n, h, w\)"),
        ({"loss_params": {"fidelity": "bce"}}, r"samples in \[0, 1\]"),
    ],
)
def test_bad_settings_without_labels_are_named(params, message):
    with pytest.raises(ValueError, match=message):
        quick(loss="Reconstruction", n_components=2, **params).fit(make_blobs()[0])


def test_a_variant_of_the_table_is_that_variant():
    X, y = make_blobs()
    named, given, other = (quick(loss=loss).fit(X, y) for loss in ("Lifted[max]", Lifted(form="max"), "Lifted"))
    assert named.history_["loss"] == given.history_["loss"] != other.history_["loss"]


def test_unlabelled_learners_in_a_comparison():
    """Beside others, from labels or from pairs, at which they do not look."""
    X, y = make_planted(n=60, d=6)
    codes = ("codes", quick(loss="Reconstruction", n_components=3))
    found = isometry.compare(X, y, ["RCA", codes], n_splits=3, n_neighbors=1)
    assert not found["codes"].failures and found["codes"].n_fits == 3
    i, j = np.triu_indices(60, 1)
    found = isometry.compare(X, Pairs(i[::7], j[::7], (y[i] == y[j])[::7], n=60), [codes], n_splits=2)
    assert not found["codes"].failures and np.isfinite(found["codes"].score.mean)


def test_fits_in_threads_are_those_of_one_thread_and_leave_the_generators_alone():
    X, y = make_blobs()

    network = MLP(4, 3, hidden=(8,), dropout=0.5)

    def fitted(seed):
        model = DeepMetric(network, random_state=seed, max_epochs=2, min_steps=4)
        return model.fit(X, y).transform(X)

    def state():
        return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002

    expected = [fitted(seed) for seed in range(4)]
    before = state()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(fitted, [*range(4)] * 2))
    assert state() == before
    for Z, same in zip(found, expected * 2):
        assert np.array_equal(Z, same)


def test_transform_waits_for_no_fit_in_another_thread():
    """A fit holds the global generators; named networks are rebuilt without them."""
    X, y = make_blobs()
    fitted = quick(model="mlp").fit(X, y)
    inside, done = threading.Event(), threading.Event()

    def wait(_):
        inside.set()
        assert done.wait(60)

    fit = threading.Thread(target=quick(max_epochs=1).fit, args=(X, y), kwargs={"callbacks": [wait]})
    fit.start()
    assert inside.wait(60)
    state = torch.get_rng_state()
    Z = fitted.transform(X)
    assert torch.equal(torch.get_rng_state(), state)
    done.set()
    fit.join()
    assert np.array_equal(Z, fitted.transform(X))


def test_a_factory_sees_images_and_its_code_is_not_taken_from_a_file(digits, tmp_path):
    X, y = digits[0].reshape(len(digits[0]), -1)[:200], digits[2][:200]
    shapes = []

    def factory(shape, p):
        shapes.append(shape)
        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), p))

    side = math.isqrt(X.shape[1])
    model = quick(model=factory, image_shape=(1, side, side)).fit(X, y)
    assert set(shapes) == {(1, side, side)} and model.transform(X[:5]).shape[1] == model.n_components
    Z = model.transform(X[:5])
    model.set_params(model="nets:factory").save(tmp_path / "m")
    again = load(tmp_path / "m")
    with pytest.raises(ValueError, match=r"'nets:factory' names code, which is not imported because a file says so"):
        again.transform(X[:5])
    assert np.array_equal(again.set_params(model=factory).transform(X[:5]), Z)
    with pytest.raises(ValueError, match="must give a torch module, it gave 3"):
        quick(model=lambda shape, p: 3).fit(X, y)
