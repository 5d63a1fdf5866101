"""Autoencoders on handwritten digits: what each kind is for. No labels are used in training.

A linear one finds the subspace of PCA. With layers before and after the code, more of an image is kept than by PCA. A
denoising one restores images that a stain covers: its codes and images find neighbours among clean images which pixels,
other codes and a linear denoiser do not find. Where the noise of pixels is independent and as often too bright as too
dark it is no gain: Euclidean distances of pixels average it out. Nor does any code help much with clean images.
Variational and adversarial codes look like a normal distribution, from which images can be drawn.

Run with: python -m examples.autoencoders
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from scipy.linalg import subspace_angles
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge
from torch import nn

from examples.contest import GREY, ORANGE, Scores, Split, draw, report, save, splits
from examples.data import load
from isometry import Euclidean
from isometry.deep import (
    AdversarialReconstruction,
    CodePenalty,
    Contractive,
    LinearAutoencoder,
    Reconstruction,
    SaltPepperNoise,
    Trainer,
    VariationalReconstruction,
    mlp_autoencoder,
    mlp_variational,
)
from isometry.eval import knn_hits

PIXELS = 256
SIZES = [2, 4, 8, 16, 32]


class Code:
    """An autoencoder as a learner: ``fit`` trains it without labels, ``transform`` gives codes."""

    def __init__(self, make: Callable[[], nn.Module], objective: Callable[[], nn.Module], **options: Any):
        self.make, self.objective, self.options = make, objective, options

    def fit(self, X: np.ndarray, y: np.ndarray | None = None) -> Code:
        torch.manual_seed(0)
        self.model, objective = self.make(), self.objective()
        options = {"lr": 2e-3, "weight_decay": 0.0, "max_epochs": 40, "classes_per_batch": 16} | self.options
        self.trainer = Trainer(self.model, objective, **options).fit(X)
        return self

    def transform(self, X: np.ndarray) -> np.ndarray:
        return self.trainer.embed(X).numpy()

    @torch.no_grad()
    def decode(self, Z: np.ndarray) -> np.ndarray:
        return self.model.decode(torch.as_tensor(Z, dtype=torch.float32)).numpy()

    def restore(self, X: np.ndarray) -> np.ndarray:
        return self.decode(self.transform(X))

    def error(self, X: np.ndarray) -> float:
        """Squared error of an image, on average."""
        return float(np.square(self.restore(X) - X).sum(1).mean())


LEARNERS = {
    "pixels": Euclidean,
    "PCA 32": lambda: PCA(32, random_state=0),
    "plain 32": lambda: Code(lambda: mlp_autoencoder(PIXELS, 32, (256,)), Reconstruction),
    "contractive 32": lambda: Code(
        lambda: mlp_autoencoder(PIXELS, 32, (256,)), lambda: Reconstruction(penalty=Contractive(0.01, probes=1))
    ),
    "sparse 512": lambda: Code(
        lambda: mlp_autoencoder(PIXELS, 512, (), code="relu"), lambda: Reconstruction(penalty=CodePenalty("l1", 0.1))
    ),
}
CODE, IMAGE, LINEAR = "denoising 32", "denoising 32, its image", "linear denoiser, its image"


def stain(x: torch.Tensor, width: int = 7, side: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise of one's own: a black square somewhere."""
    corner = torch.randint(side - width + 1, (len(x), 2, 1))
    pixel = torch.arange(side)
    inside = (pixel >= corner) & (pixel < corner + width)  # (B, 2, side): rows, columns
    hidden = (inside[:, 0, :, None] & inside[:, 1, None, :]).flatten(1)
    return x.masked_fill(hidden, 1.0), hidden


NOISES = {"a stain": stain, "40 % of the pixels black or white": SaltPepperNoise(0.4)}


def denoiser(noise: Callable) -> Code:
    return Code(lambda: mlp_autoencoder(PIXELS, 32, (256,)), lambda: Reconstruction(noise=noise), max_epochs=80)


def linear_denoiser(X: np.ndarray, noise: Callable) -> Ridge:
    """The linear map from corrupted images to clean ones, from ten corrupted copies of each."""
    torch.manual_seed(1)
    copies = torch.as_tensor(np.tile(X, (10, 1)))
    return Ridge(10.0).fit(noise(copies)[0].numpy(), copies.numpy())


GENERATIVE = {
    "plain": lambda: Code(lambda: mlp_autoencoder(PIXELS, 2, (256, 128)), Reconstruction),
    "variational": lambda: Code(
        lambda: mlp_variational(PIXELS, 2, (256, 128)), lambda: VariationalReconstruction(scale=0.3)
    ),
    "adversarial": lambda: Code(
        lambda: mlp_autoencoder(PIXELS, 2, (256, 128)), lambda: AdversarialReconstruction(2, (128, 128))
    ),
}


def corrupt(X: np.ndarray, noise: Callable) -> np.ndarray:
    """The same noise at every call."""
    torch.manual_seed(7)
    return noise(torch.as_tensor(X))[0].numpy()


def linear_is_pca(X: np.ndarray, p: int = 8) -> None:
    """Print how near the subspaces are."""
    learner = Code(lambda: LinearAutoencoder(PIXELS, p), Reconstruction, lr=1e-2, max_epochs=150).fit(X)
    pca = PCA(p, random_state=0).fit(X)
    angles = np.degrees(subspace_angles(learner.model.decoder.weight.detach().numpy(), pca.components_.T))
    residual = np.square(X - pca.inverse_transform(pca.transform(X))).sum(1).mean()
    print(
        f"linear code of {p}, on the images it was trained on: squared error {learner.error(X):.4f}, PCA {residual:.4f}"
    )
    print(f"  angles between their subspaces, in degrees: {np.array2string(angles[::-1], precision=2)}")
    learner.model.canonicalise(X)
    same = [abs(np.corrcoef(a, b)[0, 1]) for a, b in zip(learner.transform(X).T, pca.transform(X).T, strict=True)]
    shown = np.array2string(np.array(same), precision=4)
    print(f"  after canonicalise(), correlation of each code with its component: {shown}")


def errors_by_size(X: np.ndarray, X_test: np.ndarray) -> dict[str, list[float]]:
    """Squared error of images not trained on."""
    curves: dict[str, list[float]] = {"PCA": [], "autoencoder": []}
    for p in SIZES:
        pca = PCA(p, random_state=0).fit(X)
        curves["PCA"].append(float(np.square(pca.inverse_transform(pca.transform(X_test)) - X_test).sum(1).mean()))
        curves["autoencoder"].append(
            Code(lambda p=p: mlp_autoencoder(PIXELS, p, (256,)), Reconstruction).fit(X).error(X_test)
        )
    print(f"\nsquared error of {len(X_test)} held-out images, by size of the code")
    for name, values in {"size": SIZES, **curves}.items():
        print(f"  {name:12s}" + "".join(f"{v:8.4g}" for v in values))
    return curves


def accuracies(X: np.ndarray, y: np.ndarray, plan: list[Split]) -> tuple[dict[str, Scores], dict[str, Any]]:
    """5-NN of clean and of corrupted images among clean ones, and the learners of the last split.

    Denoisers see their kind of noise in training, the others see clean images; none knows which pixels are bad.
    """
    tables: dict[str, Scores] = {"clean": {name: [] for name in (*LEARNERS, CODE)}}
    tables |= {kind: {name: [] for name in (*LEARNERS, LINEAR, CODE, IMAGE)} for kind in NOISES}
    for train, test in plan:

        def accuracy(Z: np.ndarray, Z_test: np.ndarray, train=train, test=test) -> float:
            return float(knn_hits(Z, y[train], Z_test, y[test], 5).mean())

        learners = {name: make().fit(X[train]) for name, make in LEARNERS.items()}
        denoisers = {kind: denoiser(noise).fit(X[train]) for kind, noise in NOISES.items()}
        for kind, scores in tables.items():
            images = corrupt(X[test], NOISES[kind]) if kind in NOISES else X[test]
            learners[CODE] = denoisers.get(kind, denoisers["a stain"])
            for name, learner in learners.items():
                scores[name].append(accuracy(learner.transform(X[train]), learner.transform(images)))
            if kind in NOISES:
                scores[LINEAR].append(accuracy(X[train], linear_denoiser(X[train], NOISES[kind]).predict(images)))
                scores[IMAGE].append(accuracy(X[train], learners[CODE].restore(images)))
        learners[CODE] = denoisers["a stain"]
    return tables, learners


def generate(X: np.ndarray, X_test: np.ndarray) -> dict[str, Code]:
    """Codes of two numbers, and how far from the prior they are."""
    learners = {name: make().fit(X) for name, make in GENERATIVE.items()}
    print("\ncodes of two numbers: held-out squared error; moments of the codes, which for N(0, I) are 0 0, 1 1 and 0")
    for name, learner in learners.items():
        Z = learner.transform(X_test)
        C = np.cov(Z.T)
        print(
            f"  {name:12s} {learner.error(X_test):6.2f}   mean {Z[:, 0].mean():+.2f} {Z[:, 1].mean():+.2f}"
            f"   variances {C[0, 0]:.2f} {C[1, 1]:.2f}   covariance {C[0, 1]:+.2f}"
        )
    return learners


def show_images(ax: Axes, rows: Mapping[Any, np.ndarray], title: str) -> None:
    """Rows of images with their names."""
    tiles = [np.hstack([np.pad(image.reshape(16, 16), 1, constant_values=0.5) for image in r]) for r in rows.values()]
    ax.imshow(np.vstack(tiles), cmap="gray_r", vmin=0, vmax=1, aspect="equal")
    ax.set_yticks(9 + 18 * np.arange(len(rows)), rows)
    ax.set_xticks([])
    ax.set_title(title, fontsize=10)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)


def restored(learners: dict[str, Any], X: np.ndarray) -> dict[str, np.ndarray]:
    """Images, stained, and as different codes see them."""
    noisy, pca = corrupt(X, stain), learners["PCA 32"]
    return {
        "image": X,
        "corrupted": noisy,
        "PCA 32": pca.inverse_transform(pca.transform(noisy)),
        "plain 32": learners["plain 32"].restore(noisy),
        CODE: learners[CODE].restore(noisy),
    }


def show_curves(ax: Axes, curves: dict[str, list[float]]) -> None:
    for (name, values), colour in zip(curves.items(), (GREY, ORANGE), strict=True):
        ax.plot(range(len(SIZES)), values, "o-", color=colour, label=name)
    ax.set_xticks(range(len(SIZES)), SIZES)
    ax.set(xlabel="size of the code", ylabel="squared error of held-out images", ylim=(0, None))
    ax.set_title("how much of an image a code keeps", fontsize=10)
    ax.legend(fontsize=8, frameon=False)
    ax.spines[["top", "right"]].set_visible(False)


def show_codes(ax: Axes, learner: Code, X: np.ndarray, y: np.ndarray, title: str) -> None:
    Z = learner.transform(X)
    ax.scatter(Z[:, 0], Z[:, 1], c=y, cmap="tab10", s=4, alpha=0.6)
    angle = np.linspace(0, 2 * np.pi, 100)
    ax.plot(2 * np.cos(angle), 2 * np.sin(angle), color="black", linewidth=0.8, linestyle=":")
    ax.set_title(title, fontsize=10)
    ax.set_aspect("equal", adjustable="datalim")
    ax.spines[["top", "right"]].set_visible(False)


def main() -> None:
    X, y = load("usps")
    X = (X + 1) / 2  # pixels in [0, 1]
    plan = splits(y, 3, 2500, 2000)
    train, test = plan[-1]
    linear_is_pca(X[train])
    curves = errors_by_size(X[train], X[test])
    tables, learners = accuracies(X, y, plan)
    for kind, scores in tables.items():
        report(f"{kind}: accuracy of 5-NN among clean images", scores, {CODE, IMAGE} & scores.keys())
    two = generate(X[train], X[test])

    figure = plt.figure(figsize=(15.6, 16))
    grid = figure.add_gridspec(4, 6, height_ratios=[1, 1, 1.2, 0.55])
    rows = restored(learners, X[test][:12])
    show_images(figure.add_subplot(grid[0, :4]), rows, "held-out images, stained, and what codes make of them")
    show_curves(figure.add_subplot(grid[0, 4:]), curves)
    for k, (kind, scores) in enumerate(tables.items()):
        ax = figure.add_subplot(grid[1, 2 * k : 2 * k + 2])
        draw(ax, scores, {CODE, IMAGE}, kind, "accuracy of 5-NN among clean images")
    prior = np.random.default_rng(0).standard_normal((24, 2))
    for k, (name, learner) in enumerate(two.items()):
        place = slice(2 * k, 2 * k + 2)
        show_codes(
            figure.add_subplot(grid[2, place]), learner, X[test], y[test], f"{name}: codes, and N(0, I) at two σ"
        )
        images = learner.decode(prior).reshape(3, 8, PIXELS)
        ax = figure.add_subplot(grid[3, place])
        show_images(ax, dict(enumerate(images)), f"{name}: decoded draws of N(0, I)")
        ax.set_yticks([])
    save(figure, "autoencoders")


if __name__ == "__main__":
    main()
