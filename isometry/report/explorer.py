"""A page to look at a space with: points before and after, their neighbours under both metrics, and why they are near.

Unlike the reports, this page has a script. It asks no server for anything but, where `isometry explore` serves it, for
the shares of features in one distance of a curved metric.
"""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from isometry.core.distance import row_blocks
from isometry.eval import nearest
from isometry.explanation import feature_shares, is_linear, slopes_at_mean, spread
from isometry.io.atomic import atomic_write
from isometry.report import page, views

N_NEIGHBORS = 8
N_REASONS = 5  # features that are named for a pair
DIGITS = 4  # of a number in the page
MAX_TEXT = 300  # characters of a row's text


@dataclass(frozen=True)
class Space:
    """A metric in the page: its name and its map."""

    name: str
    embed: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Shown:
    """The rows that a page shows."""

    X: np.ndarray  # (n, d) features, as numbers
    names: list[str]  # of the features
    rows: np.ndarray  # (n,) their numbers in the table
    y: np.ndarray | None = None  # (n,) labels
    text: Sequence[str] | None = None
    images: tuple[np.ndarray, tuple[int, ...]] | None = None  # (n, pixels), and (c, h, w)
    notes: list[str] = field(default_factory=list)


def explorer_data(shown: Shown, spaces: Sequence[Space], title: str) -> dict[str, Any]:
    """What the page holds, as JSON: of each space the points in the plane, neighbours, distances and reasons."""
    if len(spaces) < 2:
        raise ValueError("a page compares a metric with another: give at least two spaces, the one before first")
    classes, codes = np.zeros(0, dtype=str), None
    if shown.y is not None:
        classes, codes = np.unique(shown.y.astype(str), return_inverse=True)
    return {
        "title": title,
        "rows": shown.rows.tolist(),
        "classes": classes.tolist(),
        "codes": None if codes is None else codes.tolist(),
        "features": shown.names,
        "text": None if shown.text is None else [str(t)[:MAX_TEXT] for t in shown.text],
        "sprite": None if shown.images is None else sprite(*shown.images),
        "palette": list(views.PALETTE),
        "notes": shown.notes,
        "spaces": [_space_data(space, shown, codes) for space in spaces],
    }


def _space_data(space: Space, shown: Shown, codes: np.ndarray | None) -> dict[str, Any]:
    Z = space.embed(shown.X)
    k = min(N_NEIGHBORS, len(Z) - 1)
    index, squared = nearest(Z, k)
    unit = float(np.sqrt(2 * Z.var(axis=0).sum())) or 1.0  # root mean square of distances
    found = {
        "name": space.name,
        "widest": _short(views.planar(Z)),
        "apart": None if codes is None or codes.max() == 0 else _short(views.discriminant_plane(Z, codes)),
        "near": index.tolist(),
        "distance": _short(np.sqrt(squared) / unit),
        "own": None if codes is None else round(float(np.mean(codes[index] == codes[:, None])), 4),
        "why": None,
    }
    if is_linear(space.embed, shown.X):
        found["why"] = reasons(slopes_at_mean(space.embed, shown.X)[0], shown.X, index)
    return found


def reasons(J: np.ndarray, X: np.ndarray, index: np.ndarray) -> list[list[list[float]]]:
    """Of every row and neighbour the leading shares of features in their squared distance, under slopes J (d, p)."""
    found: list[list[list[float]]] = []
    for rows in row_blocks(len(X), 8 * index.shape[1] * X.shape[1]):
        D = X[index[rows]] - X[rows, None]  # (b, k, d)
        found += leading_shares(D * ((D @ J) @ J.T)).tolist()
    return found


def shares_of_pair(space: Space, shown: Shown, i: int, j: int) -> list[float]:
    """The same for one pair of rows under a metric that may be curved, by slopes along the line between them."""
    shares = feature_shares(space.embed, shown.X[i][None], shown.X[j][None], spread(shown.X), False)
    return list(leading_shares(shares)[0].tolist())


def leading_shares(shares: np.ndarray) -> np.ndarray:
    """Shares (…, d) of features → (…, 2m): feature, share, feature, share … of the m with the largest ones.

    They are relative to the sum of all absolute shares, so that what adds and what takes back can both be read.
    """
    shares = shares / np.maximum(np.abs(shares).sum(axis=-1, keepdims=True), np.finfo(np.float64).tiny)
    top = np.argsort(-np.abs(shares), axis=-1, kind="stable")[..., :N_REASONS]
    value = np.take_along_axis(shares, top, axis=-1).round(3)
    return np.stack([top, value], axis=-1).reshape(*top.shape[:-1], -1)


def sprite(X: np.ndarray, shape: tuple[int, ...]) -> dict[str, Any]:
    """All images in one picture, a grid of tiles."""
    try:
        from matplotlib.image import imsave
    except ImportError as error:
        raise ImportError('pictures need matplotlib: pip install "isometry[cli]"', name="matplotlib") from error
    c, h, w = shape
    pixels = np.asarray(X, dtype=np.float64).reshape(len(X), c, h, w)
    low, high = pixels.min(), pixels.max()
    pixels = (pixels - low) / max(high - low, 1e-12)
    across = int(np.ceil(np.sqrt(len(X))))
    down = -(-len(X) // across)
    canvas = np.zeros((down * across, c, h, w))
    canvas[: len(X)] = pixels
    whole = canvas.reshape(down, across, c, h, w).transpose(0, 3, 1, 4, 2).reshape(down * h, across * w, c)
    buffer = io.BytesIO()
    grey: dict[str, Any] = {} if c in (3, 4) else {"cmap": "gray", "vmin": 0, "vmax": 1}
    imsave(buffer, whole if c in (3, 4) else whole.mean(axis=2), format="png", **grey)
    data = base64.b64encode(buffer.getvalue()).decode()
    return {"across": across, "down": down, "width": w, "height": h, "source": f"data:image/png;base64,{data}"}


def explorer_page(data: dict[str, Any], *, nonce: str = "", ask: str = "") -> str:
    """The page with its data inside. ``ask``: the address that tells reasons; ``nonce``: of its script."""
    text = json.dumps({**data, "ask": ask}, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    inside = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")  # nothing ends the element
    template = files("isometry.report").joinpath("explorer.html").read_text(encoding="utf-8")
    return Template(template).substitute(title=escape(data["title"]), data=inside, nonce=escape(nonce))


def write_explorer(data: dict[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write the page as one file that needs no server, and return where it is."""
    path = page.report_file(path)
    with atomic_write(path) as temporary:
        temporary.write_text(explorer_page(data), encoding="utf-8")
    return path


def _short(values: np.ndarray) -> list[Any]:
    """Numbers with a few digits, relative to the largest."""
    largest = float(np.abs(values).max(initial=0.0)) or 1.0
    decimals = max(0, DIGITS - 1 - int(np.floor(np.log10(largest))))
    return np.asarray(values, dtype=np.float64).round(decimals).tolist()
