"""What a fitted metric says of itself: method, parameters, data, versions, measured quality."""

from __future__ import annotations

import hashlib
import importlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["card", "fingerprint", "outline", "versions"]

PACKAGE = __name__.partition(".")[0]
MAX_TEXT = 80  # characters of a parameter that JSON cannot hold


def card(model: Any, X: Any = None, y: Any = None) -> dict[str, Any]:
    """What is known of a fitted metric, as JSON can hold it.

    Parameters
    ----------
    model : fitted metric or Pipeline
        A fitted metric or pipeline.
    X : array-like of shape (n, d) or None, default=None
        Rows of which a fingerprint is added: give rows that it was not learned from.
    y : array-like, Supervision or None, default=None
        With X, the quality of the metric on these rows is added as well.

    Returns
    -------
    dict
        Parameters, sizes and versions; with X a fingerprint, with y the quality.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import RCA
    >>> from isometry.io import card
    >>> X, y = load_iris(return_X_y=True)
    >>> isinstance(card(RCA().fit(X[::2], y[::2]), X[1::2], y[1::2]), dict)
    True
    """
    facts: dict[str, Any] = {"estimator": outline(model), **described(model), "versions": versions()}
    if X is None:
        return facts
    facts["dimensions"] = int(np.asarray(model.transform(X[:1])).shape[1])
    facts["data"] = {"rows": len(X), "features": int(np.shape(X)[1]), "fingerprint": fingerprint(X, y)}
    if y is not None:
        facts["quality"] = {**quality(model, X, y), "rows": len(X)}
    return facts


def described(model: Any) -> dict[str, Any]:
    """Parameters, sizes and how a search ended: what every saved file says, and what is the same for equal metrics."""
    last = getattr(model, "steps", [(None, model)])[-1][1]  # of a pipeline
    facts: dict[str, Any] = {"parameters": {k: _plain(v) for k, v in sorted(_parameters(last).items())}}
    if hasattr(model, "n_features_in_"):
        facts["features"] = int(model.n_features_in_)
    if getattr(last, "components_", None) is not None:
        facts["dimensions"] = int(np.shape(last.components_)[0])
    if hasattr(last, "ids_"):
        facts["rows"] = len(last.ids_)
    ended = {k: getattr(last, f"{k}_", None) for k in ("n_iter", "stop_reason", "converged", "verdict", "reg_reason")}
    return facts | {k: _plain(v) for k, v in ended.items() if v is not None}


def quality(model: Any, X: Any, y: Any) -> dict[str, float]:
    """The score of the embeddings by the scorer that suits y, under its name."""
    from isometry.eval import get_scorer
    from isometry.supervision import Labels, Targets, as_supervision

    side = as_supervision(y, len(X))
    if isinstance(side, Labels):
        names = ["knn"] if side.counts.max(initial=0) < 2 else ["knn", "map@r"]
    else:
        names = ["knn_r2" if isinstance(side, Targets) else "pair_auc"]
    return {name: float(get_scorer(name)(model, X, side)) for name in names}


def outline(model: Any) -> str:
    """``Pipeline(StandardScaler, GMML)``: the classes of a model."""
    if model is None or isinstance(model, str):
        return str(model)
    name = type(model).__name__
    if hasattr(model, "steps"):
        return f"{name}({', '.join(outline(part) for _, part in model.steps)})"
    inner = getattr(model, "learner", None)
    return name if inner is None or isinstance(inner, str) else f"{name}({outline(inner)})"


def versions() -> dict[str, str]:
    """Of this package and of those that the numbers of a metric come from."""
    import sklearn

    return {
        PACKAGE: importlib.import_module(PACKAGE).__version__,
        "scikit-learn": sklearn.__version__,
        "numpy": np.__version__,
    }


def fingerprint(X: Any, y: Any = None) -> str:
    """Text that names the samples and labels: the same data, the same text.

    Parameters
    ----------
    X : array-like of shape (n, d)
        Rows.
    y : array-like, Supervision or None, default=None
        Labels or other supervision.

    Returns
    -------
    str
        The fingerprint.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.io import fingerprint
    >>> X = np.eye(3)
    >>> fingerprint(X) == fingerprint(X.copy()), fingerprint(X) == fingerprint(2 * X)
    (True, False)
    """
    if hasattr(X, "to_csv") and any(kind.kind not in "fiub" for kind in X.dtypes):
        X = np.frombuffer(X.to_csv(index=False).encode(), dtype=np.uint8)
    digest = hashlib.sha256(np.ascontiguousarray(X).tobytes())
    for part in _arrays(y):
        digest.update("\n".join(map(str, np.asarray(part, dtype=object))).encode())
    return digest.hexdigest()[:16]


def _arrays(y: Any) -> Iterator[Any]:
    """Labels, or the arrays that a supervision object is made of."""
    if isinstance(y, (np.ndarray, list)) or hasattr(y, "to_numpy"):
        yield y
    elif isinstance(y, tuple) or hasattr(y, "__dict__"):
        for part in y if isinstance(y, tuple) else vars(y).values():
            yield from _arrays(part)


def _parameters(model: Any) -> dict[str, Any]:
    return dict(model.get_params(deep=False)) if hasattr(model, "get_params") else {}


def _plain(value: Any) -> Any:
    """A value that JSON can hold; a short text for what it cannot."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, np.ndarray):
        return f"array {value.shape}"
    if isinstance(value, (list, tuple)) and len(value) <= 8:
        return [_plain(v) for v in value]
    if hasattr(value, "get_params"):
        return outline(value)
    text = " ".join(str(value).split())
    return text if len(text) <= MAX_TEXT and " at 0x" not in text else type(value).__name__
