"""Matplotlib figures. Each draws into ``ax``, or into a new figure, and returns the axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from isometry.report import views

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from isometry.select.result import Comparison

MARKERS = "os^Dv"


def forest(comparison: Comparison, ax: Axes | None = None) -> Axes:
    """The paired difference of each metric to Euclidean, with its interval; best at the top.

    Parameters
    ----------
    comparison : Comparison
        What `isometry.compare` returned.
    ax : matplotlib Axes or None, default=None
        Where to draw; None: new axes.

    Returns
    -------
    matplotlib Axes
        What was drawn on.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import compare
    >>> from isometry.report import forest
    >>> X, y = load_iris(return_X_y=True)
    >>> ax = forest(compare(X, y, ["RCA"], n_splits=3))
    >>> "RCA" in [label.get_text() for label in ax.get_yticklabels()]
    True
    """
    rows = [(r, r.difference) for r in comparison.results if r.difference is not None][::-1]
    if not rows:
        raise ValueError("no metric was compared with Euclidean: there is no difference to draw")
    ax = _axes(ax, height=1.0 + 0.3 * len(rows))
    for k, (r, gap) in enumerate(rows):
        colour = views.VERDICTS.get(r.reliable, views.UNCLEAR)
        ax.plot(np.clip([gap.low, gap.high], -1, 1), [k, k], color=colour, lw=2)
        ax.plot(gap.mean, k, "o", color=colour)
    ax.axvline(0, color="0.4", lw=1, ls="--")
    ax.set_yticks(range(len(rows)), [r.name for r, _ in rows])
    ax.set_xlabel(f"{comparison.scoring} − Euclidean, {100 * comparison.level:g} % interval")
    return ax


def embedding(Z: np.ndarray, y: Any = None, ax: Axes | None = None) -> Axes:
    """Rows of Z (n, p) as points, coloured by class; more than two dimensions are cut to their two widest.

    Parameters
    ----------
    Z : ndarray of shape (n, p)
        Mapped samples.
    y : array-like of shape (n,) or None, default=None
        Labels, which give the colours.
    ax : matplotlib Axes or None, default=None
        Where to draw; None: new axes.

    Returns
    -------
    matplotlib Axes
        What was drawn on.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import FisherML
    >>> from isometry.report import embedding
    >>> X, y = load_iris(return_X_y=True)
    >>> ax = embedding(FisherML().fit_transform(X, y), y)
    >>> len(ax.lines)
    3
    """
    ax = _axes(ax)
    P = views.planar(Z)  # (n, 2)
    if y is None:
        ax.plot(P[:, 0], P[:, 1], "o", ms=4, color=views.PALETTE[0])
    else:
        classes, codes = np.unique(np.asarray(y), return_inverse=True)
        if len(codes) != len(P):
            raise ValueError(f"Z has {len(P)} rows but y has {len(codes)} labels")
        for c, name in enumerate(classes):
            turn, colour = divmod(c, len(views.PALETTE))
            marker, points = MARKERS[turn % len(MARKERS)], P[codes == c]
            ax.plot(points[:, 0], points[:, 1], marker, ms=4, label=str(name), color=views.PALETTE[colour])
        if len(classes) <= 12:
            ax.legend(fontsize="small")
    ax.set_aspect("equal", adjustable="datalim")
    ax.set_xticks([])
    ax.set_yticks([])
    return ax


def metric_heatmap(
    metric: Any, feature_names: Sequence[str] | None = None, ax: Axes | None = None, *, max_features: int = 20
) -> Axes:
    """W over the features of largest weight, heaviest first, scaled to mean weight 1.

    Parameters
    ----------
    metric : fitted metric or Pipeline
        A fitted linear metric, or a pipeline that ends with one.
    feature_names : sequence of str or None, default=None
        Names of the features; None: those that the metric saw, or numbers.
    ax : matplotlib Axes or None, default=None
        Where to draw; None: new axes.
    max_features : int, default=20
        Number of features that are shown, at most.

    Returns
    -------
    matplotlib Axes
        What was drawn on.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import RCA
    >>> from isometry.report import metric_heatmap
    >>> iris = load_iris()
    >>> ax = metric_heatmap(RCA().fit(iris.data, iris.target), iris.feature_names)
    >>> len(ax.images)
    1
    """
    names = feature_names if feature_names is not None else getattr(metric, "feature_names_in_", None)
    W, names = views.leading_features(views.weight_matrix(metric), names, max_features)
    ax = _axes(ax, height=5.0)
    top = np.abs(W).max()
    image = ax.imshow(W, cmap="PuOr", vmin=-top, vmax=top)
    ax.figure.colorbar(image, ax=ax, label="weight, relative to the mean")
    ax.set_xticks(range(len(names)), names, rotation=90)
    ax.set_yticks(range(len(names)), names)
    return ax


def distance_histogram(distances: np.ndarray, similar: np.ndarray, ax: Axes | None = None) -> Axes:
    """Densities of the distances of similar and of dissimilar pairs.

    Parameters
    ----------
    distances : ndarray of shape (m,)
        Distances of pairs.
    similar : ndarray of shape (m,)
        Which of the pairs are similar.
    ax : matplotlib Axes or None, default=None
        Where to draw; None: new axes.

    Returns
    -------
    matplotlib Axes
        What was drawn on.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.report import distance_histogram
    >>> distances = np.array([0.1, 0.2, 0.3, 0.9, 1.0, 1.2])
    >>> ax = distance_histogram(distances, distances < 0.5)
    >>> ax.get_xlabel() != ""
    True
    """
    edges, same, different = views.densities(distances, similar)
    ax = _axes(ax)
    ax.stairs(same, edges, fill=True, alpha=0.6, color=views.SAME, label="same class")
    ax.stairs(different, edges, fill=True, alpha=0.6, color=views.DIFFERENT, label="different class")
    ax.set_xlabel("distance")
    ax.set_ylabel("density")
    ax.legend()
    return ax


def roc_curve(distances: np.ndarray, similar: np.ndarray, ax: Axes | None = None, *, label: str = "") -> Axes:
    """Similar pairs accepted against dissimilar pairs accepted, over all thresholds on the distance.

    Parameters
    ----------
    distances : ndarray of shape (m,)
        Distances of pairs.
    similar : ndarray of shape (m,)
        Which of the pairs are similar.
    ax : matplotlib Axes or None, default=None
        Where to draw; None: new axes.
    label : str, default=""
        Name in the legend.

    Returns
    -------
    matplotlib Axes
        What was drawn on.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.report import roc_curve
    >>> ax = roc_curve(np.array([0.1, 0.4, 0.3, 0.9]), np.array([True, True, False, False]))
    >>> len(ax.lines) > 0
    True
    """
    from isometry.eval import roc

    curve = roc(distances, similar)
    ax = _axes(ax)
    ax.plot(curve.fpr, curve.tpr, label=f"{label} AUC {curve.auc:.3f}".strip())
    ax.plot([0, 1], [0, 1], color="0.6", lw=1, ls="--")
    ax.set_xlabel("dissimilar pairs accepted")
    ax.set_ylabel("similar pairs accepted")
    ax.legend()
    return ax


def convergence(metric: Any, ax: Axes | None = None, *, label: str | None = None) -> Axes:
    """The objective over the iterations of a fitted metric, or of the last step of a pipeline.

    Parameters
    ----------
    metric : fitted metric or Pipeline
        A fitted metric that searched, or a pipeline that ends with one.
    ax : matplotlib Axes or None, default=None
        Where to draw; None: new axes.
    label : str or None, default=None
        Name in the legend.

    Returns
    -------
    matplotlib Axes
        What was drawn on.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import NCA
    >>> from isometry.report import convergence
    >>> X, y = load_iris(return_X_y=True)
    >>> ax = convergence(NCA(2, strength=1, max_iter=5, random_state=0).fit(X, y))
    >>> len(ax.lines)
    1
    """
    learner = metric[-1] if hasattr(metric, "steps") else metric
    history = getattr(learner, "history_", None)
    if history is None or len(history) == 0:
        raise TypeError(f"{type(learner).__name__} keeps no history_: it has a closed form or is not fitted")
    ax = _axes(ax)
    ax.plot(np.arange(len(history)), history, label=label or type(learner).__name__)
    ax.set_xlabel("iteration")
    ax.set_ylabel("objective")
    ax.legend()
    return ax


def _axes(ax: Axes | None, height: float = 4.0) -> Axes:
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError('figures need matplotlib: pip install "isometry[cli]"', name="matplotlib") from error
    return plt.subplots(figsize=(6.0, height), layout="constrained")[1]
