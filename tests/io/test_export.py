"""Every exported form gives the neighbours of transform, run by the program it is for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_selection import VarianceThreshold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    PowerTransformer,
    RobustScaler,
    StandardScaler,
)

from isometry import GBLMNN, GMML, KDCA, LMNN, RCA, FixedMetric, Kernelized, Normalized, Shrunk, export
from isometry.eval import nearest
from isometry.io import ExportError, exportable_forms
from isometry.io.forms import FORMS

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = np.arange(240) % 4
    X = (rng.normal(size=(240, 6)) + 2 * np.eye(6)[y]) * [1, 5, 0.2, 1, 30, 1] + [0, 10, -3, 1, 500, 0]
    return X, y


LINEAR = {
    "linear": GMML(),
    "fewer dimensions": RCA(n_components=2),
    "shrunk": Shrunk(GMML(), strength=0.5),
    "standard": make_pipeline(StandardScaler(), GMML()),
    "min, max": make_pipeline(MinMaxScaler((-1, 2)), GMML()),
    "robust, PCA": make_pipeline(RobustScaler(), PCA(4, whiten=True), LMNN(max_iter=20)),
    "largest, SVD": make_pipeline(MaxAbsScaler(), TruncatedSVD(3), GMML()),
    "selection": make_pipeline(VarianceThreshold(0.5), "passthrough", GMML()),
}
OF_UNIT_LENGTH = {
    "unit": Normalized(GMML()),
    "unit, pipeline": make_pipeline(StandardScaler(), Normalized(RCA())),
    "unit before": make_pipeline(StandardScaler(), Normalizer(), GMML()),
    "unit before and after": make_pipeline(Normalizer(), Normalized(RCA(n_components=3))),
    "unit between": make_pipeline(StandardScaler(), Normalizer(), Normalized(GMML(), center=False)),
}
BENT = {
    **{
        f"kernel {k}": make_pipeline(StandardScaler(), Kernelized(GMML(), k, landmarks=40, random_state=0))
        for k in ("rbf", "laplacian", "linear", "poly", "cosine")
    },
    "centred kernel": make_pipeline(StandardScaler(), KDCA()),
    "kernel, then not linear": make_pipeline(
        StandardScaler(), Kernelized(Normalized(GMML()), landmarks=30, random_state=0)
    ),
}
FITTED: dict = {}


@pytest.fixture
def model(request, data):
    if request.param not in FITTED:
        FITTED[request.param] = (LINEAR | OF_UNIT_LENGTH | BENT)[request.param].fit(*data)
    return FITTED[request.param]


linear = pytest.mark.parametrize("model", LINEAR, indirect=True)
layered = pytest.mark.parametrize("model", LINEAR | OF_UNIT_LENGTH, indirect=True)
every = pytest.mark.parametrize("model", LINEAR | OF_UNIT_LENGTH | BENT, indirect=True)


def assert_same_neighbours(Z, model, X):
    expected = nearest(np.asarray(model.transform(X), dtype=np.float64), 10)[0]
    found = nearest(np.asarray(Z, dtype=np.float64), 10)[0]
    assert all(set(a) == set(b) for a, b in zip(found.tolist(), expected.tolist()))


@linear
def test_matrices(model, data, tmp_path):
    X, _ = data
    W = np.load(export(model, tmp_path / "m.npy"))
    assert_same_neighbours((X - X.mean(axis=0)) @ W.T, model, X)
    from safetensors.numpy import load_file

    tensors = load_file(export(model, tmp_path / "m.safetensors"))
    Z = X @ tensors["weight"].T + tensors["bias"]
    assert_allclose(Z, model.transform(X), atol=1e-6 * np.abs(Z).max())


@every
def test_onnx_run_by_onnxruntime(model, data, tmp_path):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    X, _ = data
    session = runtime.InferenceSession(export(model, tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    for rows in (X, X[:1]):
        Z = session.run(["Z"], {"X": rows.astype(np.float32)})[0]
        expected = model.transform(rows)
        assert Z.shape == expected.shape
        assert_allclose(Z, expected, atol=3e-4 * np.abs(model.transform(X)).max())
    Z = session.run(["Z"], {"X": X.astype(np.float32)})[0]
    assert_same_neighbours(Z, model, X)


@every
def test_the_python_file_needs_numpy_alone(model, data, tmp_path):
    """Run by a Python that sees no package but NumPy, in a process that cannot import isometry."""
    X, _ = data
    export(model, tmp_path / "map.py")
    np.save(tmp_path / "rows.npy", X)
    numpy_home = str(tmp_path / "site")
    (tmp_path / "site").mkdir()
    for name in ("numpy", "numpy.libs"):
        source = Path(np.__file__).parents[1] / name
        if source.exists():
            (tmp_path / "site" / name).symlink_to(source)
    code = (
        f"import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p] + [{numpy_home!r}]\n"
        "import importlib.util as u\n"
        "assert u.find_spec('isometry') is None and u.find_spec('sklearn') is None\n"
        "import runpy; sys.argv = ['map.py', 'rows.npy', 'mapped.npy']; runpy.run_path('map.py', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    Z = np.load(tmp_path / "mapped.npy")
    expected = model.transform(X)
    assert_allclose(Z, expected, atol=1e-6 * np.abs(expected).max())
    assert_same_neighbours(Z, model, X)


def test_the_python_file_checks_its_rows(data, tmp_path):
    export(GMML().fit(*data), tmp_path / "map.py")
    names: dict = {"__name__": "map"}
    exec((tmp_path / "map.py").read_text(), names)
    X = data[0].copy()
    assert_allclose(
        names["distance"](X[:5], X[5:10]), GMML().fit(*data).pair_distance(X, [[i, 5 + i] for i in range(5)])
    )
    X[7, 2] = np.nan
    with pytest.raises(ValueError, match="1 rows hold NaN or infinity, the first is row 7"):
        names["transform"](X)
    with pytest.raises(ValueError, match="expected rows of 6 features"):
        names["transform"](X[:, :3])
    assert names["transform"](X[:0]).shape == (0, 6)


@layered
def test_sql_in_duckdb(model, data, tmp_path):
    duckdb = pytest.importorskip("duckdb")
    X, _ = data
    with duckdb.connect() as db:
        db.execute(export(model, tmp_path / "m.duckdb.sql").read_text())
        db.execute("CREATE TABLE items (id INTEGER, x DOUBLE[6])")
        db.executemany("INSERT INTO items VALUES (?, ?)", [(i, x) for i, x in enumerate(X.tolist())])
        Z = np.array([z for (z,) in db.execute("SELECT isometry_embed(x) FROM items ORDER BY id").fetchall()])
        expected = nearest(np.asarray(model.transform(X[:5]), dtype=np.float64), 10, model.transform(X))[0]
        for q in range(5):
            found = db.execute("SELECT id FROM items ORDER BY isometry_distance(x, ?) LIMIT 10", [X[q].tolist()])
            assert {i for (i,) in found.fetchall()} == set(expected[q].tolist())
    assert_allclose(Z, model.transform(X), atol=1e-6 * np.abs(Z).max())
    assert_same_neighbours(Z, model, X)


def test_in_sql_a_row_at_the_centre_has_no_direction(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    X = np.array([[3.0, 4.0], [0.0, 0.0], [-3.0, -4.0]])
    metric = make_pipeline(Normalizer(), Normalized(FixedMetric([[2.0, 0.0], [0.0, 1.0]]))).fit(X)
    with duckdb.connect() as db:
        db.execute(export(metric, tmp_path / "m.duckdb.sql").read_text())
        found = [db.execute("SELECT isometry_embed(?)", [x]).fetchone()[0] for x in X.tolist()]
    assert found[1] == [0, 0]
    assert_allclose(found, metric.transform(X), atol=1e-12)


@layered
def test_the_folder_of_modules_maps_as_the_metric(model, data, tmp_path):
    """Carried out as sentence-transformers does; tests/exams/test_search.py loads it with the library itself."""
    from safetensors.numpy import load_file

    X, _ = data
    folder = export(model, tmp_path / "modules")
    Z = X
    if (folder / "modules.json").is_file():
        modules = json.loads((folder / "modules.json").read_text())
        assert [m["idx"] for m in modules] == list(range(len(modules)))
    else:
        modules = [{"type": "sentence_transformers.models.Dense", "path": "."}]
    for module in modules:
        kind = module["type"].rpartition(".")[2]
        config = json.loads((folder / module["path"] / "config.json").read_text())
        if kind == "Normalize":
            assert config == {}
            Z = Z / np.linalg.norm(Z, axis=1, keepdims=True)
            continue
        assert kind == "Dense" and config["activation_function"] == "torch.nn.modules.linear.Identity"
        tensors = load_file(folder / module["path"] / "model.safetensors")
        assert tensors["linear.weight"].shape == (config["out_features"], config["in_features"])
        Z = Z @ tensors["linear.weight"].T.astype(np.float64) + tensors["linear.bias"]
    expected = model.transform(X)
    # weights of 32 bits, of rows whose mean is many times their spread
    assert_allclose(Z, expected, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize("model", OF_UNIT_LENGTH, indirect=True)
def test_a_matrix_alone_cannot_say_unit_length(model, tmp_path):
    for name in ("m.npy", "m.safetensors"):
        with pytest.raises(
            ExportError,
            match=r"brought to unit length, which a matrix alone cannot say\. Forms it can: onnx, numpy, duckdb, "
            r"pgvector, sentence-transformers$",
        ):
            export(model, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_the_dense_folder_holds_what_the_library_reads(data, tmp_path):
    from safetensors.numpy import load_file

    X, _ = data
    metric = make_pipeline(StandardScaler(), RCA(n_components=3)).fit(*data)
    folder = export(metric, tmp_path / "dense")
    config = json.loads((folder / "config.json").read_text())
    assert config["in_features"] == 6 and config["out_features"] == 3 and config["bias"] is True
    tensors = load_file(folder / "model.safetensors")
    Z = X @ tensors["linear.weight"].T + tensors["linear.bias"]
    assert_allclose(Z, metric.transform(X), atol=1e-4 * np.abs(Z).max())
    with pytest.raises(FileExistsError, match="is there already"):
        export(metric, folder)


@pytest.fixture(scope="module")
def deep():
    pytest.importorskip("torch")
    from isometry.deep import DeepMetric

    return DeepMetric


@pytest.mark.parametrize(
    "params", [{}, {"model": "linear"}, {"loss": "CosFace"}, {"hidden": (8, 8), "standardize": False}]
)
def test_plain_networks(deep, params, data, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    X = (data[0] - data[0].mean(axis=0)) / data[0].std(axis=0)
    metric = deep(max_epochs=1, min_steps=5, n_components=4, random_state=0, **params).fit(X, data[1])
    session = runtime.InferenceSession(metric.export(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    expected = metric.transform(X)
    assert_allclose(session.run(["Z"], {"X": X.astype(np.float32)})[0], expected, atol=1e-5 * np.abs(expected).max())
    names: dict = {"__name__": "map"}
    exec(metric.export(tmp_path / "map.py").read_text(), names)
    assert_allclose(names["transform"](X), expected, atol=1e-5 * np.abs(expected).max())
    assert ("sentence-transformers" in exportable_forms(metric)) == (params.get("model") == "linear")


def test_other_networks_are_written_by_torch(deep, tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 8, 8)).astype(np.float32), np.arange(60) % 3
    metric = deep("conv", max_epochs=1, min_steps=3, n_components=4, random_state=0).fit(X, y)
    session = runtime.InferenceSession(metric.export(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    Z = session.run(["Z"], {"X": X})[0]
    assert_allclose(Z, metric.transform(X), atol=1e-4)
    assert_same_neighbours(Z, metric, X)
    assert exportable_forms(metric) == ["onnx"]
    with pytest.raises(ExportError, match=r"as numpy: its network is not made of .* Forms it can: onnx"):
        metric.export(tmp_path / "m.py")


def test_what_cannot_be_exported_says_what_can(data, tmp_path):
    X, y = data
    kernel = Kernelized(GMML(), landmarks=20, random_state=0).fit(X, y)
    with pytest.raises(
        ExportError, match=r"Kernelized cannot be exported as npy: it is not a linear map\. Forms it can: onnx, numpy$"
    ):
        kernel.export(tmp_path / "m.npy")
    assert not (tmp_path / "m.npy").exists()
    trees = GBLMNN().fit(X, y)
    assert exportable_forms(trees) == []
    with pytest.raises(ExportError, match=r"GBLMNN cannot be exported in any form: .* `save` writes it whole"):
        trees.export(tmp_path / "m.onnx")
    with pytest.raises(ExportError, match="PowerTransformer is not made of"):
        export(make_pipeline(PowerTransformer(), GMML()).fit(X, y), tmp_path / "m.onnx")
    with pytest.raises(ExportError, match=r"the ending says no form; expected \.npy"):
        kernel.export(tmp_path / "m.txt")
    with pytest.raises(ExportError, match="form='tflite' is unknown"):
        kernel.export(tmp_path / "m.txt", form="tflite")
    with pytest.raises(FileNotFoundError, match="create it first"):
        kernel.export(tmp_path / "nowhere" / "m.onnx")
    wide = FixedMetric(np.ones((1, 16_001))).fit(np.eye(2, 16_001), [0, 1])
    with pytest.raises(ExportError, match="at most 16000 dimensions"):
        wide.export(tmp_path / "m.pgvector.sql")


def test_without_onnx_the_extra_is_named(tmp_path):
    code = (
        "import sys; sys.modules['onnx'] = None; import numpy as np, isometry\n"
        "m = isometry.Euclidean().fit(np.eye(3))\n"
        "try: m.export('m.onnx')\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert 'pip install "isometry[export]"' in done.stdout
    assert not list(tmp_path.iterdir())


def test_every_method_is_exported_rightly_or_refused(data):
    """The steps of each classical learner are its map: `steps_of` compares them, and a wrong one would be refused."""
    from isometry.io.forms.steps import run, steps_of
    from isometry.registry import all_methods

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(36, 4)) + 2 * np.eye(4)[np.arange(36) % 3], np.arange(36) % 3
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    done, refused = [], []
    for row in all_methods(kind="estimator"):
        if row.family == "deep" or {"matrix-samples", "histograms"} & set(row.traits) or "labels" not in row.sees:
            continue
        learner = row.example()
        if "random_state" in learner.get_params():
            learner.set_params(random_state=0)
        fitted = learner.fit(X, y)
        try:
            steps = steps_of(fitted)
        except ExportError:
            refused.append(row.name)
            continue
        expected = fitted.transform(X)
        assert_allclose(run(steps, X), expected, atol=1e-6 * np.abs(expected).max(), err_msg=row.name)
        done.append(row.name)
    assert len(done) > 50
    assert {"GBLMNN", "LLMA"} <= {name.partition("[")[0] for name in refused}
    assert len(refused) < 15, refused


def test_forms_are_listed_in_the_docstring():
    for form in FORMS.values():
        assert form.ending in export.__doc__
