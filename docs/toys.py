"""Two small sets in the plane, and what every method does to them: the pictures of the method pages.

A map can be seen: the grid behind the samples is carried by it as they are. Rotation and size do not matter to who is
near whom, so that every picture is turned and scaled to lie on the samples as they were.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from isometry.registry import METHODS, Method

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "docs" / "_static" / "warps"
COLORS = ("#c2410c", "#0f766e", "#6d5bd0")
GRID, LINE_POINTS = 11, 60
SAMPLES_ARE = {
    "matrix-samples": "Its samples are matrices; these sets are points of the plane.",
    "histograms": "Its samples are histograms; these sets are points of the plane.",
}
NOT_DRAWN = {
    "B26": "It aligns two sets of columns, not the plane.",
    "B26p": "It aligns two sets of columns, not the plane.",
    "B26k": "It aligns two sets of columns, not the plane.",
    "M10": "It learns from several views of the same objects, not from the plane.",
    "P23": "It learns from features that are known in training alone.",
    "B24": "It learns several tasks at once, not one set.",
    "D00": "It trains a network by any of the losses, each of which has a picture of its own.",
    "D48": "Its embedding has a coordinate for every class.",
    "E39": "It is for continuous targets, not for classes.",
    "E40": "It is for continuous targets, not for classes.",
    "E41": "It is for classes of several levels.",
}
KINDS_NOT_DRAWN = {
    "objective": "It is a way of training, not a map of one set.",
    "network": "It is a part of a network, and learns nothing by itself.",
    "sampler": "It chooses what a batch holds; the map is that of the loss.",
    "regularizer": "It is added to a loss, and moves nothing by itself.",
    "pair loss": "It learns from pairs of two columns, not from one set.",
}


def stripes() -> tuple[np.ndarray, np.ndarray]:
    """Three classes side by side, each far wider along than across: Euclidean neighbours are often of another class."""
    rng = np.random.RandomState(3)
    t = np.deg2rad(28)
    y = np.repeat(np.arange(3), 34)
    along, across = rng.randn(len(y)) * 1.6, rng.randn(len(y)) * 0.2 + 0.85 * (y - 1)
    X = np.stack([along * np.cos(t) - across * np.sin(t), along * np.sin(t) + across * np.cos(t)], axis=1)
    return X - X.mean(axis=0), y


def moons() -> tuple[np.ndarray, np.ndarray]:
    """Two half moons, which no linear map can part."""
    from sklearn.datasets import make_moons

    X, y = make_moons(100, noise=0.09, random_state=1)
    X = X * 1.5
    return X - X.mean(axis=0), y


SETS: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {"stripes": stripes, "moons": moons}


def why_not(method: Method) -> str:
    """Why a method has no picture; "" if it has one."""
    trait = next((SAMPLES_ARE[t] for t in method.traits if t in SAMPLES_ARE), "")
    return trait or NOT_DRAWN.get(method.key, "") or KINDS_NOT_DRAWN.get(method.kind, "")


def grid(X: np.ndarray) -> np.ndarray:
    """(2·GRID, LINE_POINTS, 2): lines over the box around the samples."""
    low, high = X.min(axis=0) - 0.35, X.max(axis=0) + 0.35
    fine = [np.linspace(low[k], high[k], LINE_POINTS) for k in range(2)]
    coarse = [np.linspace(low[k], high[k], GRID) for k in range(2)]
    across = [np.stack([np.full(LINE_POINTS, c), fine[1]], axis=1) for c in coarse[0]]
    along = [np.stack([fine[0], np.full(LINE_POINTS, c)], axis=1) for c in coarse[1]]
    return np.stack(across + along)


def learned(method: Method, X: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The map that a method learns from a set, with the settings of its paper."""
    if method.family == "deep":
        return _trained(method, X, y)
    model = method.make(**method.published)
    if "random_state" in model.get_params():
        model.set_params(random_state=0)
    if "targets" in method.sees and "labels" not in method.sees:
        y = y.astype(float)
    model.fit(X, y)
    return model.transform


def _trained(method: Method, X: np.ndarray, y: np.ndarray, steps: int = 250) -> Callable[[np.ndarray], np.ndarray]:
    """A network 2 → 48 → 48 → 2, trained by a loss, or by the triplet loss of a miner."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    cls, C = method.load(), int(y.max()) + 1
    known = {
        "num_classes": C,
        "embedding_size": 2,
        "class_counts": tuple(np.bincount(y)),
        "class_vectors": tuple(map(tuple, np.eye(C))),
        "sizes": (1, 2),
        "output_size": 2,
    }
    taken = inspect.signature(cls).parameters
    loss: Any = method.example(**{k: v for k, v in known.items() if k in taken})
    if method.kind == "miner":
        from isometry.deep import Triplet

        loss = Triplet(0.2, miner=loss)
    activation = torch.nn.SiLU
    net = torch.nn.Sequential(
        torch.nn.Linear(2, 48), activation(), torch.nn.Linear(48, 48), activation(), torch.nn.Linear(48, 2)
    )
    A, t = torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y)
    groups = [{"params": net.parameters(), "lr": 5e-3}, *loss.param_groups(5e-3)]
    optimizer = torch.optim.Adam(groups, lr=5e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(net(A), t).backward()
        optimizer.step()
    unit = bool(getattr(loss, "normalize", False)) or hasattr(loss, "W")

    def to(Z: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            out = net(torch.as_tensor(Z, dtype=torch.float32))
            return (torch.nn.functional.normalize(out) if unit else out).double().numpy()

    return to


def laid_on(Z: np.ndarray, lines: np.ndarray, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Samples and lines in the plane: their two leading directions, turned and scaled to lie on the samples."""
    mean = Z.mean(axis=0)
    V = np.linalg.svd(Z - mean, full_matrices=False)[2][:2]
    Z, lines = (Z - mean) @ V.T, (lines - mean) @ V.T
    if Z.shape[1] == 1:
        Z, lines = (np.concatenate([A, np.zeros_like(A)], axis=-1) for A in (Z, lines))
    U, _, Vt = np.linalg.svd(Z.T @ X)
    scale = np.sqrt((X**2).sum() / max((Z**2).sum(), 1e-300))
    return Z @ U @ Vt * scale, lines @ U @ Vt * scale


def warped(method: Method, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Samples (n, 2) and grid lines (m, k, 2) of a set after the map of a method."""
    X, y = SETS[name]()
    lines = grid(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        to = learned(method, X, y)
        Z, L = to(X), to(lines.reshape(-1, 2))
    return laid_on(np.asarray(Z, dtype=float), np.asarray(L, dtype=float).reshape(*lines.shape[:2], -1), X)


def panel(ax: Any, Z: np.ndarray, lines: np.ndarray, y: np.ndarray) -> None:
    """Samples on their grid, without axes."""
    for line in lines:
        ax.plot(*line.T, color="#94a3b8", linewidth=0.5, alpha=0.6, zorder=1)
    for c in np.unique(y):
        ax.scatter(*Z[y == c].T, s=11, color=COLORS[c], linewidth=0.35, edgecolor="white", zorder=2)
    away = np.abs(Z - Z.mean(axis=0))
    radius = 1.1 * min(away.max(), 1.7 * np.quantile(away, 0.98)) + 0.15  # all samples, but for one that flew off
    center = Z.mean(axis=0)
    ax.set(xlim=(center[0] - radius, center[0] + radius), ylim=(center[1] - radius, center[1] + radius), aspect="equal")
    ax.axis("off")


def draw(drawn: list[tuple[np.ndarray, np.ndarray, np.ndarray]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(drawn), figsize=(2.15 * len(drawn), 2.15))
    for ax, (Z, lines, y) in zip(np.atleast_1d(axes), drawn, strict=True):
        panel(ax, Z, lines, y)
    figure.subplots_adjust(left=0, right=1, bottom=0, top=1, wspace=0.04)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, transparent=True, metadata={"Software": None})
    plt.close(figure)


def slug(method: Method) -> str:
    """The name of a method in addresses: NCA, NCA-log."""
    return method.name.replace("[", "-").replace("]", "")


def stamp(method: Method) -> str:
    """Changes when the method or the way of drawing does."""
    module = importlib.import_module(method.target.split(":")[0])
    text = inspect.getsource(module) + Path(__file__).read_text("utf-8") + repr((method.params, method.published))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def draw_method(method: Method, path: Path) -> None:
    draw([(*warped(method, name), make()[1]) for name, make in SETS.items()], path)


def draw_all(jobs: int = 2) -> int:
    """Draws what is missing or old, and says how many that were."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    FOLDER.mkdir(parents=True, exist_ok=True)
    note = FOLDER.parent.parent / "stamps.json"
    stamps = json.loads(note.read_text("utf-8")) if note.exists() else {}
    draw([(X, grid(X), y) for X, y in (make() for make in SETS.values())], FOLDER / "as-they-are.png")
    paths = {m.key: FOLDER / f"{slug(m)}.png" for m in METHODS if not why_not(m)}
    now = {m.key: stamp(m) for m in METHODS if m.key in paths}
    old = [m for m in METHODS if m.key in paths and (not paths[m.key].exists() or stamps.get(m.key) != now[m.key])]
    with ProcessPoolExecutor(min(jobs, max(len(old), 1)), get_context("spawn")) as pool:
        list(pool.map(draw_method, old, [paths[m.key] for m in old]))  # a list, so that errors are raised
    note.write_text(json.dumps(now, indent=0, sort_keys=True), "utf-8")
    return len(old)


if __name__ == "__main__":
    print(f"{draw_all()} pictures drawn in {FOLDER.relative_to(ROOT)}")
