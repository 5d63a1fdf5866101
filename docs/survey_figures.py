"""The survey's own figures, drawn by the library: metrics learned, and gradients computed, not sketched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from docs.toys import COLORS, stripes

GREY = "#64748b"


def euclidean_mahalanobis(plt: Any) -> Any:
    """The points at distance 1 and 2 under I and under Σ⁻¹ of a sample."""
    from isometry import Covariance

    X, _ = stripes()
    L = Covariance(reg=0.0).fit(X).components_
    angle = np.linspace(0, 2 * np.pi, 200)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    ellipse = circle @ np.linalg.inv(L).T
    unit = np.sqrt(np.abs(np.linalg.det(np.linalg.inv(L))))  # a circle of the same area
    V = np.linalg.svd(L)[2]
    figure, axes = plt.subplots(1, 2, figsize=(7.4, 3.1), sharex=True, sharey=True)
    for ax, ball, title in ((axes[0], unit * circle, "Euclidean"), (axes[1], ellipse, "Mahalanobis, W = Σ⁻¹")):
        ax.scatter(*X.T, s=8, color="#cbd5e1")
        for k, style in ((1, "-"), (2, "--")):
            ax.plot(*(k * ball).T, color=COLORS[1], linewidth=1.6, linestyle=style)
        ax.scatter(0, 0, s=30, color=COLORS[0], zorder=3)
        for v in 1.6 * V:
            ax.plot([0, v[0]], [0, v[1]], color=GREY, linewidth=1, linestyle=":")
            ax.scatter(*v, s=46, facecolor="white", edgecolor=COLORS[0], linewidth=1.6, zorder=3)
        ax.set_title(title, fontsize=11, color="#334155")
        _bare(ax)
    return figure


def contours(plt: Any) -> Any:
    """Distances from one sample, before and after."""
    from isometry import GMML

    X, y = stripes()
    metric = GMML(reg=0.0).fit(X, y)
    anchor = X[y == 1][np.argmin(np.abs(X[y == 1]).sum(axis=1))]
    span = np.abs(X).max() + 0.3
    axis = np.linspace(-span, span, 160)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1)
    figure, axes = plt.subplots(1, 2, figsize=(7.4, 3.3), sharex=True, sharey=True)
    for ax, to, title in ((axes[0], lambda A: A, "before: Euclidean"), (axes[1], metric.transform, "after: GMML")):
        far = np.linalg.norm(to(grid.reshape(-1, 2)) - to(anchor[None]), axis=1).reshape(grid.shape[:2])
        near = np.quantile(np.linalg.norm(to(X) - to(anchor[None]), axis=1), [0.1, 0.3, 0.5, 0.7, 0.9])
        ax.contour(axis, axis, far, levels=near, colors=GREY, linewidths=0.9)
        for c in range(3):
            ax.scatter(*X[y == c].T, s=12, color=COLORS[c], edgecolor="white", linewidth=0.4, zorder=2)
        ax.scatter(*anchor, s=70, facecolor="none", edgecolor="#0f172a", linewidth=1.8, zorder=3)
        ax.set(xlim=(-span, span), ylim=(-0.72 * span, 0.72 * span), title=title)
        ax.title.set(fontsize=11, color="#334155")
        _bare(ax)
    return figure


def contrastive_triplet(plt: Any) -> Any:
    """Minus the gradients of both losses at a few points of two classes."""
    import torch

    from isometry.deep import Contrastive, Triplet

    rng = np.random.RandomState(5)
    Z = np.concatenate([rng.randn(9, 2) * 0.75 + [-0.75, 0.1], rng.randn(9, 2) * 0.75 + [0.75, -0.1]])
    y = np.repeat([0, 1], 9)
    figure, axes = plt.subplots(1, 2, figsize=(7.4, 3.3), sharex=True, sharey=True)
    for ax, loss, title in (
        (axes[0], Contrastive(margin=1.5), "contrastive: pairs"),
        (axes[1], Triplet(0.4), "triplet: an anchor, a friend, an enemy"),
    ):
        z = torch.tensor(Z, requires_grad=True)
        loss(z, torch.as_tensor(y)).backward()
        step = -z.grad.numpy()
        step *= 0.55 / np.abs(step).max()
        ax.quiver(*Z.T, *step.T, angles="xy", scale_units="xy", scale=1, width=0.006, color=[COLORS[c] for c in y])
        for c in range(2):
            ax.scatter(*Z[y == c].T, s=26, color=COLORS[c], edgecolor="white", linewidth=0.5, zorder=3)
        ax.set_title(title, fontsize=11, color="#334155")
        ax.margins(0.15)
        _bare(ax)
    return figure


def siamese(plt: Any) -> Any:
    """Two networks of the same weights, and a loss."""
    from matplotlib.patches import FancyBboxPatch

    figure, ax = plt.subplots(figsize=(7.4, 2.7))

    def box(x: float, y: float, w: float, h: float, text: str, color: str, fill: str) -> None:
        shape = FancyBboxPatch(
            (x, y), w, h, boxstyle="round,pad=0.02,rounding_size=0.12", facecolor=fill, edgecolor=color
        )
        ax.add_patch(shape)
        ax.text(x + w / 2, y + h / 2, text, ha="center", va="center", fontsize=11, color="#0f172a")

    def arrow(x0: float, y0: float, x1: float, y1: float) -> None:
        ax.annotate("", (x1, y1), (x0, y0), arrowprops={"arrowstyle": "-|>", "color": GREY, "linewidth": 1.4})

    for row, number in ((2.0, "₁"), (0.2, "₂")):
        box(0.0, row, 0.8, 0.8, f"x{number}", COLORS[0], "#fff7ed")
        for k in range(3):
            box(1.6 + 0.55 * k, row + 0.08 * k, 0.4, 0.8 - 0.16 * k, "", COLORS[1], "#f0fdfa")
        box(3.8, row, 0.9, 0.8, f"z{number}", COLORS[2], "#f5f3ff")
        arrow(0.85, row + 0.4, 1.55, row + 0.4)
        arrow(3.17, row + 0.4, 3.75, row + 0.4)
        arrow(4.75, row + 0.4, 5.55, 1.75 if row > 1 else 1.25)
        ax.text(2.35, row + (0.95 if row > 1 else -0.16), r"$f_\theta$", ha="center", va="center", fontsize=13)
    ax.plot([2.35, 2.35], [1.1, 1.9], color=COLORS[1], linestyle=":", linewidth=1.6)
    ax.text(2.45, 1.5, "the same weights θ", va="center", fontsize=10, color=COLORS[1])
    box(5.6, 1.05, 2.3, 0.9, r"$L(\,d(z_1, z_2),\; t\,)$", "#0f172a", "#f8fafc")
    ax.set(xlim=(-0.2, 8.1), ylim=(-0.25, 3.2))
    ax.axis("off")
    return figure


def _bare(ax: Any) -> None:
    ax.set_aspect("equal", adjustable="box")
    ax.set(xticks=[], yticks=[])
    for side in ax.spines.values():
        side.set_color("#cbd5e1")


def draw_all(folder: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    for make in (euclidean_mahalanobis, contours, contrastive_triplet, siamese):
        figure = make(plt)
        figure.tight_layout()
        figure.savefig(folder / f"{make.__name__}.png", dpi=140, facecolor="white")
        plt.close(figure)
