"""save and load: bit for bit, without pickle, whole or not at all, and clear about files that are not ours."""

from __future__ import annotations

import json
import os
import pickle
import stat

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, QuantileTransformer, StandardScaler

from isometry.core.moments import StreamMoments
from isometry.geometric.gmml import GMML
from isometry.io import StoreError, load, save
from isometry.io import store as store_module
from isometry.kernelized import Kernelized
from isometry.probabilistic.itml import ITML
from isometry.probabilistic.nca import NCA
from isometry.registry import get
from isometry.sampling import RandomPairs
from isometry.spectral.covariance import Covariance
from isometry.spectral.lmnn import LMNN
from isometry.spectral.rca import RCA
from isometry.supervision import Labels, Pairs


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b", "c"], 12)
    return rng.normal(size=(36, 4)) + 2 * (y[:, None] == ["a", "b", "c", "d"]), y


ESTIMATORS = {
    "closed form": RCA(n_components=2, reg=1e-3),
    "array parameter": GMML(reg=0.1, prior=np.diag([1.0, 2.0, 3.0, 4.0])),
    "array of the other order": LMNN(init=np.asfortranarray(np.arange(8.0).reshape(2, 4)), n_components=2, max_iter=20),
    "iterative": NCA(n_components=2, max_iter=30, random_state=0),
    "sampler and tuple as parameters": ITML(pairs=RandomPairs(30), bounds=(1.0, 9.0), random_state=0),
    "random state object": NCA(n_components=2, max_iter=30, random_state=np.random.RandomState(3)),
    "kernel version": Kernelized(GMML(reg=0.1), kernel="rbf", gamma=0.2, landmarks=9, random_state=0),
    "not a number as parameter": ITML(gamma=float("inf"), solver="bregman", pairs=RandomPairs(10), random_state=0),
    "pipeline": make_pipeline(StandardScaler(), PCA(3), Normalizer(), GMML()),
    "quantiles": make_pipeline(QuantileTransformer(n_quantiles=9), RCA()),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_round_trip_is_bit_identical(name, dtype, data, tmp_path):
    X, y = data[0].astype(dtype), data[1]
    estimator = ESTIMATORS[name].fit(X, y)
    save(estimator, tmp_path / "m.safetensors")
    back = load(tmp_path / "m.safetensors")
    assert type(back) is type(estimator)
    Z = estimator.transform(X)
    assert back.transform(X).dtype == Z.dtype
    assert_array_equal(back.transform(X), Z)
    left = getattr(estimator, "_only_of_fit", tuple)()
    assert_same(vars(back), {k: v for k, v in vars(estimator).items() if k not in left})


def assert_same(a, b):
    """Equal in value, type, dtype and memory order, all the way down."""
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert list(a) == list(b)
        a, b = list(a.values()), list(b.values())
    if isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for u, v in zip(a, b, strict=True):
            assert_same(u, v)
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype and a.flags.f_contiguous == b.flags.f_contiguous
        assert_array_equal(a, b)
    elif isinstance(a, np.random.RandomState):
        assert_same(a.get_state(), b.get_state())
    elif hasattr(a, "__dict__"):
        assert_same(vars(a), vars(b))
    else:
        assert a == b or (a != a and b != b)


VALUES = {
    "numbers": [1, -(2**80), 0.1, float("nan"), float("-inf"), True, None, "σ \x00 \ud83d"[:2]],
    "nested": ({"a": (1, [2.5, ()]), 3: {"b": None}},),
    "numpy scalars": [np.float32(0.1), np.int8(-3), np.bool_(True), np.complex128(1 + 2j), np.str_("é")],
    "arrays": [np.arange(6, dtype=np.uint16).reshape(2, 3), np.zeros((0, 3)), np.float64([[1, np.nan]]), np.array(2.5)],
    "order": [np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.arange(6.0).reshape(2, 3)],
    "complex": [np.array([[1 + 2j, 3]]), np.array([1j], dtype=np.complex64)],
    "text": [np.array([["a", "bc"]]), np.array(["x", None, 3], dtype=object)],
    "indices": [slice(1, None), range(2, 9, 3)],
}


@pytest.mark.parametrize("name", VALUES)
def test_every_kind_of_value_comes_back(name, tmp_path):
    metric = Covariance().fit(np.random.default_rng(0).normal(size=(9, 2)))
    metric.extra_ = VALUES[name]
    save(metric, tmp_path / "m")
    assert_same(load(tmp_path / "m").extra_, VALUES[name])


def test_byte_order_and_strides_do_not_change_values(tmp_path):
    metric = Covariance().fit(np.random.default_rng(0).normal(size=(9, 2)))
    metric.extra_ = [np.arange(5.0).astype(">f8"), np.arange(24.0).reshape(4, 6)[::2, ::3]]
    save(metric, tmp_path / "m")
    for u, v in zip(load(tmp_path / "m").extra_, metric.extra_, strict=True):
        assert_array_equal(u, v)


def test_plain_objects_of_the_package_come_back(data, tmp_path):
    X, y = data
    metric = GMML().fit(X, y)
    metric.moments_ = StreamMoments(4).update(X, Labels(y).codes)
    metric.side_ = [Pairs([0, 1], [2, 3], [True, False], n=5), Labels(y)]
    metric.edges_ = metric.side_[0].similar
    save(metric, tmp_path / "m")
    back = load(tmp_path / "m")
    assert_same(vars(back.moments_), vars(metric.moments_))
    assert_same([vars(s) for s in back.side_], [vars(s) for s in metric.side_])
    assert_same(back.edges_, metric.edges_)
    assert_array_equal(back.moments_.update(X, Labels(y).codes).counts, [24, 24, 24])  # arrays are writable


def test_feature_names_and_output_format_are_kept(data, tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(data[0], columns=["w", "x", "y", "z"])
    metric = RCA().set_output(transform="pandas").fit(frame, data[1])
    save(metric, tmp_path / "m")
    back = load(tmp_path / "m")
    assert list(back.feature_names_in_) == ["w", "x", "y", "z"]
    pd.testing.assert_frame_equal(back.transform(frame), metric.transform(frame))


def test_a_learner_saves_itself(data, tmp_path):
    metric = RCA().fit(*data)
    metric.save(tmp_path / "m")
    assert_array_equal(load(tmp_path / "m").components_, metric.components_)


def test_unfitted_is_refused(tmp_path):
    with pytest.raises(NotFittedError):
        save(RCA(), tmp_path / "m")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "estimator, words",
    [
        (Kernelized(GMML(reg=1.0), kernel=lambda u, v: float(u @ v)), r"Kernelized\.kernel .*<lambda> is a function"),
        (make_pipeline(FunctionTransformer(np.abs), RCA()), r"steps\[0\]\[1\] .*FunctionTransformer is neither"),
        (make_pipeline(RCA(), LogisticRegression()), "LogisticRegression is neither a class of isometry nor"),
    ],
)
def test_what_cannot_be_stored_is_named(estimator, words, data, tmp_path):
    with pytest.raises(StoreError, match=words):
        save(estimator.fit(*data), tmp_path / "m")
    assert os.listdir(tmp_path) == []


def test_foreign_look_alike_class_is_refused(data, tmp_path):
    class PCA(RCA):
        """A class of a stranger with the name of a permitted one."""

    PCA.__module__ = "sklearn.mine"
    with pytest.raises(StoreError, match=r"sklearn\.mine"):
        save(PCA().fit(*data), tmp_path / "m")


# ---------------------------------------------------------------------------------------------------- damaged files


@pytest.fixture
def stored(data, tmp_path):
    path = tmp_path / "m.safetensors"
    save(make_pipeline(StandardScaler(), RCA()).fit(*data), path)
    return path


def test_every_cut_is_refused(stored):
    whole = stored.read_bytes()
    for length in [0, 1, 7, 8, 50, len(whole) // 2, len(whole) - 1]:
        stored.write_bytes(whole[:length])
        with pytest.raises(StoreError):
            load(stored)
    stored.write_bytes(whole + b"more")
    with pytest.raises(StoreError):
        load(stored)


def test_every_changed_byte_is_refused_or_without_effect(stored, data):
    whole = stored.read_bytes()
    Z, refused = load(stored).transform(data[0]), 0
    positions = np.linspace(0, len(whole) - 1, 150).astype(int)
    for at in positions:
        stored.write_bytes(whole[:at] + bytes([whole[at] ^ 0x11]) + whole[at + 1 :])
        try:
            assert_array_equal(load(stored).transform(data[0]), Z)  # e.g. inside the text that names the versions
        except StoreError:
            refused += 1
    assert refused > 0.8 * len(positions)


def rewrite(path, **changes):
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    metadata.update(changes)
    metadata["sha256"] = store_module._digest(metadata["estimator"], tensors)
    save_file(tensors, path, metadata={k: v for k, v in metadata.items() if v is not None})


def test_newer_format_is_refused(stored):
    rewrite(stored, format_version="3")
    with pytest.raises(StoreError, match=r"format '3', written by .*isometry.*upgrade"):
        load(stored)


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_file_of_another_program_is_refused(metadata, tmp_path):
    save_file({"weight": np.ones(3)}, tmp_path / "m", metadata=metadata)
    with pytest.raises(StoreError, match="another program"):
        load(tmp_path / "m")


def test_pickle_is_not_read(tmp_path):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "exploded"),)

    (tmp_path / "m").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(StoreError, match="no safetensors file"):
        load(tmp_path / "m")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    "tree",
    [
        {"$object": "os:system", "params": {}, "state": {}},
        {"$object": "isometry.io.store:os", "params": {}, "state": {}},
        {"$object": "isometry.io.store:PCA", "params": {}, "state": {}},
        {"$object": "isometry.io.store:BaseEstimator", "params": {}, "state": {}},
        {"$object": "sklearn.utils:Bunch", "params": {}, "state": {}},
        {"$plain": "isometry.spectral.rca:RCA", "state": {}},
        {"$named": "subprocess:Popen", "items": [["true"]]},
        {"$object": "isometry.spectral.rca:RCA", "params": {"no_such": 1}, "state": {}},
        {"$object": "isometry.spectral.rca:Gone", "params": {}, "state": {}},
        {"$array": "99"},
        {"$unheard_of": 1},
        {},
    ],
)
def test_tree_that_names_anything_else_is_refused(tree, stored):
    rewrite(stored, estimator=json.dumps(tree))
    with pytest.raises(StoreError):
        load(stored)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        load(tmp_path / "none")


# ---------------------------------------------------------------------------------------------------- atomic writes


def test_failure_leaves_the_old_file_and_no_litter(stored, data, monkeypatch):
    before = stored.read_bytes()

    def fail(source, target):
        raise OSError("disk on fire")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk on fire"):
        save(RCA().fit(*data), stored)
    assert stored.read_bytes() == before
    assert os.listdir(stored.parent) == [stored.name]


def test_missing_folder_is_named(data, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere; create it"):
        save(RCA().fit(*data), tmp_path / "nowhere" / "m")


def test_permissions_and_links_are_respected(stored, data, tmp_path):
    mask = os.umask(0o027)
    try:
        save(RCA().fit(*data), tmp_path / "new")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    stored.chmod(0o600)
    (tmp_path / "link").symlink_to(stored)
    save(GMML().fit(*data), tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and isinstance(load(stored), GMML)
    assert stat.S_IMODE(stored.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["KDCA", "KernelMCML", "KernelLLE", "KernelSpectrum", "LaplacianKernelML"])
def test_a_kernel_metric_is_stored_without_what_only_its_fit_needed(name, data, tmp_path):
    X, y = data
    metric = get(name).example().fit(X, y)
    save(metric, tmp_path / "m")
    again = load(tmp_path / "m")
    assert_array_equal(again.transform(X[::2]), metric.transform(X[::2]))
    assert len(again.get_feature_names_out()) == len(metric.get_feature_names_out())
    if getattr(metric, "dual_coef_", None) is not None:
        needed = metric.dual_coef_.nbytes + X.nbytes + 8 * len(X)
        assert (tmp_path / "m").stat().st_size < needed + 5000
    save(again, tmp_path / "n")
    assert (tmp_path / "n").read_bytes() == (tmp_path / "m").read_bytes()
