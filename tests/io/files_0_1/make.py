"""Writes the model files of this folder: every estimator of the method table, and some pipelines, fitted on 24 rows.

The files that are kept here were written by version 0.1.0 and are what later versions are tested to read. This script
is kept to show how they were made. To check a later format in the same way, run it with the version that writes that
format, into a folder of its own:

    python -m tests.io.files_0_1.make tests/io/files_0_2

Beside the models it writes ``data.npz``, the inputs and what each model made of them, and ``contents.json``, the
fingerprint of every value inside each model, as `contents` below takes it.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent


def contents(value: Any, where: str = "") -> dict[str, str]:
    """Path → fingerprint of every value inside an estimator: type, shape and bytes of arrays, ``repr`` of the rest."""
    if isinstance(value, np.random.RandomState):
        value = value.get_state()
    if isinstance(value, (np.ndarray, np.generic)):
        a = np.asarray(value)
        data = repr(a.tolist()).encode() if a.dtype == object else a.tobytes()
        return {where: f"{a.dtype.str} {a.shape} {hashlib.sha256(data).hexdigest()[:16]}"}
    if isinstance(value, dict):
        parts = {repr(k): v for k, v in value.items()}
    elif isinstance(value, (list, tuple)):
        parts = {str(k): v for k, v in enumerate(value)}
    elif hasattr(value, "__dict__"):
        parts = {k: v for k, v in vars(value).items() if k != "_metadata_request"}
    else:
        return {where: repr(value)}
    found = {where: type(value).__name__}
    for k in sorted(parts):
        found |= contents(parts[k], f"{where}.{k}")
    return found


def samples() -> dict[str, np.ndarray]:
    """Small problems in quarters, which every computer reads and adds alike."""
    rng = np.random.default_rng(0)
    y = np.arange(24) % 3
    X = rng.integers(-8, 9, size=(24, 3)) / 4 + 2 * (y[:, None] == np.arange(3))
    G = X[:, :, None] * X[:, None, :] / 4 + np.eye(3)  # symmetric positive definite
    Q, _ = np.linalg.qr(rng.integers(-8, 9, size=(24, 3, 2)) + 4.0 * np.eye(3, 2))
    signals, images = rng.integers(-8, 9, size=(24, 3, 8)) / 4, rng.integers(0, 9, size=(24, 6, 6)) / 4
    return {"X": X, "y": y, "spd": G, "subspaces": Q, "signals": signals, "images": images}


def fitted() -> dict[str, tuple[Any, str]]:
    """Name of a file → the fitted estimator, and which of the samples it is for."""
    import pandas as pd
    from sklearn.decomposition import PCA
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Normalizer, QuantileTransformer, StandardScaler

    import isometry
    from isometry.deep import DeepMetric
    from isometry.geometric.descriptors import CovarianceDescriptor, SubspaceDescriptor
    from isometry.registry import all_methods

    data = samples()
    X, y = data["X"], data["y"]
    models: dict[str, tuple[Any, str]] = {}
    for row in all_methods(kind="estimator"):
        learner = row.example()
        if "random_state" in learner.get_params():
            learner.set_params(random_state=0)
        kind = {"SPDGMML": "spd", "GrassmannGMML": "subspaces"}.get(row.name, "X")
        name = re.sub(r"\W+", "_", row.name).strip("_")
        models[name] = learner.fit(data[kind], y), kind
    names = np.array(["red", "green", "blue"])
    frame = pd.DataFrame(X, columns=["length", "width", "Höhe"])
    models["pipeline"] = make_pipeline(StandardScaler(), PCA(2), isometry.RCA()).fit(frame, names[y]), "X"
    quantiles = make_pipeline(QuantileTransformer(n_quantiles=9), Normalizer(), isometry.GMML())
    models["pipeline_quantiles"] = quantiles.fit(X, y), "X"
    signals = make_pipeline(CovarianceDescriptor(), isometry.SPDGMML())
    models["pipeline_covariances"] = signals.fit(data["signals"], y), "signals"
    signals = make_pipeline(SubspaceDescriptor(), isometry.GrassmannGMML())
    models["pipeline_subspaces"] = signals.fit(data["signals"], y), "signals"
    models["chunks"] = isometry.GMML().partial_fit(X[:12], names[y[:12]]).partial_fit(X[12:], names[y[12:]]), "X"
    models["random_state"] = isometry.NCA(2, random_state=np.random.RandomState(3), max_iter=5).fit(X, y), "X"
    models["sampler"] = isometry.ITML(pairs=isometry.RandomPairs(20), bounds=(1.0, 9.0), random_state=0).fit(X, y), "X"
    start = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    models["array_parameter"] = isometry.LMNN(2, init=start, max_iter=5).fit(X.astype(np.float32), y), "X"
    quick = {"n_components": 2, "max_epochs": 1, "min_steps": 3, "random_state": 0}
    models["network_images"] = DeepMetric("conv", **quick).fit(data["images"], names[y]), "images"
    models["network_linear"] = DeepMetric("linear", loss="ProxyNCA", **quick).fit(X, y), "X"
    models["network_unlabelled"] = DeepMetric(loss="Reconstruction", hidden=(4,), **quick).fit(X), "X"
    return models


def main(folder: Path) -> None:
    warnings.simplefilter("ignore")  # a few steps do not converge
    import isometry

    folder.mkdir(exist_ok=True)
    outputs, inside, inputs = samples(), {}, {}
    for name, (model, kind) in fitted().items():
        isometry.save(model, folder / f"{name}.safetensors")
        outputs[f"{name} of {kind}"] = np.asarray(model.transform(outputs[kind]))
        inside[name], inputs[name] = contents(model), kind
    np.savez_compressed(folder / "data.npz", **outputs)
    text = json.dumps({"samples": inputs, "contents": inside}, indent=0, sort_keys=True, ensure_ascii=False)
    (folder / "contents.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
