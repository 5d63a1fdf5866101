"""Two views of the same samples, each in a file of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isometry.cli.inputs import read_file
from isometry.cli.outputs import UsageError, usage_errors

if TYPE_CHECKING:
    import numpy as np

    from isometry.io import Table
    from isometry.supervision import Views

NAMES = ("first", "second")
AGAIN = " (second view)"  # after a name that the first view has, too


def join_view(table: Table, file: Path, key: str | None, delimiter: str | None, decimal: str | None) -> tuple[Any, Any]:
    """(Table, Views): the columns of a second file beside those of ``table``; row i of both is the same sample."""
    from isometry.supervision import Views

    other = read_file(file, None, None, key, delimiter, decimal, float32=table.X.dtype == "float32")
    with usage_errors(ValueError):
        X, views = Views.join(table.X, other.X)
    names = [name + AGAIN if name in table.feature_names else name for name in other.feature_names]
    return replace(table, X=X, feature_names=table.feature_names + names, name=f"{table.name} | {other.name}"), views


def tell_views(learner: Any, views: Views, name: str) -> Any:
    """The learner, told which columns are which view."""
    if "views" not in learner.get_params():
        raise UsageError(f"{name} knows no views: --view goes with auto, CCA, Procrustes, KernelCCA or FishMML")
    return learner.set_params(views=views.columns)


def transform_one_view(model: Any, model_file: Path, file: Path, view: str, **reading: Any) -> tuple[Table, np.ndarray]:
    """(Table, images): a file that holds one view alone, mapped to the space that both views share."""
    import numpy as np
    from sklearn.pipeline import Pipeline

    if view not in NAMES:
        raise UsageError(f"--view {view} is unknown: expected first or second")
    which, last = NAMES.index(view), model[-1] if isinstance(model, Pipeline) else model
    widths, columns = getattr(model, "view_widths_", None), getattr(last, "views_", None)
    if widths is not None:
        columns = [np.arange(widths[0]), widths[0] + np.arange(widths[1])]
    if columns is None or not hasattr(last, "transform_view"):
        raise UsageError(f"{model_file} holds no metric between two views: leave out --view")
    here = np.asarray(columns[which], dtype=int)
    known = getattr(model, "feature_names_in_", None)
    features = None if known is None else [str(name).removesuffix(AGAIN) for name in known[here]]
    table = read_file(file, features=features, **reading)
    if table.X.shape[1] != len(here):
        raise UsageError(f"the {view} view of {model_file} has {len(here)} columns; {file} has {table.X.shape[1]}")
    whole = np.zeros((len(table.X), model.n_features_in_), dtype=table.X.dtype)  # neither map looks at the other view
    whole[:, here] = table.X
    if known is not None:
        import pandas

        whole = pandas.DataFrame(whole, columns=known)
    return table, np.hsplit(np.asarray(model.transform(whole)), 2)[which]
