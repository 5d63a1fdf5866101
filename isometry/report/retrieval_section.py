"""Held-out images with their nearest neighbours, before and after training."""

from __future__ import annotations

import base64
import io
from html import escape

import numpy as np
from sklearn.utils import check_random_state

from isometry.eval import nearest
from isometry.report import page, views
from isometry.select.network import NetworkComparison

N_QUERIES = 12
N_NEIGHBORS = 8


def retrieval_section(found: NetworkComparison, seed: int) -> str:
    """Empty if the samples are no images."""
    if found.image_shape is None:
        return ""
    queries = draw_queries(found.y, seed)
    neighbors = {"before": neighbors_of(queries, found.before), "after": neighbors_of(queries, found.after)}
    hits = {name: np.mean(found.y[rows] == found.y[queries][:, None]) for name, rows in neighbors.items()}
    intro = (
        f"{len(queries)} held-out images, drawn at random, and their nearest neighbours among the others. "
        f"Of these neighbours, {hits['before']:.0%} are of the right class before and {hits['after']:.0%} after."
    )
    images = _Images(found.X, found.image_shape)
    panels = []
    for k, query in enumerate(queries):
        lines = [_line(images, found.y, query, name, rows[k]) for name, rows in neighbors.items()]
        panels.append(page.figure(str(found.y[query]), "", "".join(lines)))
    return page.section(
        "What is found",
        page.paragraph(intro),
        page.colour_key(
            (views.BETTER, "▬", "right class (solid frame)"), (views.WORSE, "┅", "wrong class (dashed frame)")
        ),
        page.grid(panels, "queries"),
    )


def draw_queries(y: np.ndarray, seed: int, count: int = N_QUERIES) -> np.ndarray:
    """Rows drawn at random, one of each class before a second of any."""
    codes = np.unique(y, return_inverse=True)[1]
    order = check_random_state(seed).permutation(len(y))
    by_class = order[np.argsort(codes[order], kind="stable")]
    sizes = np.bincount(codes)
    rank = np.empty(len(y), dtype=int)  # how often the class has come before in this order
    rank[by_class] = np.arange(len(y)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.asarray(order[np.argsort(rank[order], kind="stable")][:count])


def neighbors_of(queries: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """(q, k) rows of Z nearest to each query among all others."""
    k = min(N_NEIGHBORS, len(Z) - 1)
    found = nearest(Z[queries], min(k + 1, len(Z)), Z)[0]  # (q, k + 1), itself among them, or a duplicate of it
    return np.stack([row[row != q][:k] for row, q in zip(found, queries)])


def _line(images: _Images, y: np.ndarray, query: int, name: str, neighbors: np.ndarray) -> str:
    cells = [f"<span>{name}</span>", images.tag(query, "", "the query")]
    for row in neighbors:
        kind = "right" if y[row] == y[query] else "wrong"
        cells.append(images.tag(row, kind, f"{kind}: {y[row]}"))
    return f'<div class="hits">{"".join(cells)}</div>'


class _Images:
    """Rows as PNG images inside the page."""

    def __init__(self, X: np.ndarray, shape: tuple[int, ...]):
        self.X, self.shape = X, shape
        self.low, self.high = float(X.min()), float(X.max())

    def tag(self, row: int, kind: str, text: str) -> str:
        try:
            from matplotlib.image import imsave
        except ImportError as error:
            raise ImportError('pictures need matplotlib: pip install "isometry[cli]"', name="matplotlib") from error
        pixels = self.X[row].reshape(self.shape).transpose(1, 2, 0)  # (h, w, c)
        pixels = (pixels - self.low) / max(self.high - self.low, 1e-12)
        buffer = io.BytesIO()
        if pixels.shape[2] in (3, 4):
            imsave(buffer, pixels, format="png")
        else:
            imsave(buffer, pixels.mean(axis=2), format="png", cmap="gray", vmin=0, vmax=1)
        data = base64.b64encode(buffer.getvalue()).decode()
        return f'<img class="{kind}" alt="{escape(text)}" title="{escape(text)}" src="data:image/png;base64,{data}">'
