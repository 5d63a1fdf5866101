"""Which metrics take part in a comparison, under which names, and what may be tuned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from isometry.base import MetricLearner
from isometry.normalized import Normalized
from isometry.registry import FAMILIES, Method, all_methods, get
from isometry.spectral import Covariance, Euclidean
from isometry.supervision import Labels, Supervision, Targets, Views

Learners = str | Any | Iterable[Any] | Mapping[str, Any]
Grid = dict[str, list[Any]]  # values to try for each parameter
BASELINES = ("Euclidean", "Covariance")  # always take part
LANDMARKS = 300  # of kernel metrics, whose memory and time then grow with the samples as those of others do
# who takes part if nobody is named, with its settings, in this order where costs are alike: of every kind those that do
# best for their cost on real tables and embeddings (docs/results/accuracy.md), closed forms first
DEFAULT: dict[str, dict[str, Any]] = {
    **{name: {} for name in ("GMML", "RCA", "FisherML", "DCA", "TraceRatioML", "PLDA", "LFDA")},
    **{name: {"landmarks": LANDMARKS} for name in ("KDCA", "KernelFisherML")},
    "NCM": {},
    "LMNN": {"max_iter": 200},
    "NCA": {"max_iter": 50},
    "ITML": {},
    "PCCA": {},
}
REGRESSION: dict[str, dict[str, Any]] = {"SIR": {}, "MLKR": {"max_iter": 50}}  # beside them, for numbers to predict
BEFORE_HEADS = next(iter(DEFAULT))
BETWEEN_VIEWS = ("CCA", "Procrustes", "KernelCCA")  # metrics between two views, the quicker first
LINEAR_HEADS = ("ProxyNCAPlusPlus", "SoftTriple")  # losses, the quicker first
MOST_DIMENSIONS = 1024  # of a linear head
GROUPS = ("default", "all", "fast", *(f for f in FAMILIES if f != "deep"))
_KINDS = {"none", "labels", "pairs", "chunklets", "triplets", "quadruplets", "candidates", "targets"}


class Candidate(NamedTuple):
    """A metric in the comparison."""

    name: str  # unique
    estimator: Any  # unfitted
    uses_y: bool = True  # whether fit is given the supervision


def resolve(
    learners: Learners, side: Supervision, seed: int, protocol: str = "closed", n_features: int = MOST_DIMENSIONS
) -> list[Candidate]:
    """Candidates with unique names: Euclidean and Covariance first, then what ``learners`` asks for.

    Names are those of the method table; "all" stands for every method of it that can learn from ``side``, "default" for
    those that `AutoMetric` chooses among, "fast" for those that neither iterate nor use kernels, and a family
    ("spectral", "geometric", …) for its members. Rows of the table that make the same estimator take part once. In the
    open protocol linear maps learned by losses of networks stand beside the default candidates, where torch is
    installed.
    """
    if isinstance(side, Views):
        named = [("Euclidean", Euclidean()), *_between_views(learners, side)]
    else:
        named = [("Euclidean", Euclidean()), ("Covariance", Covariance()), *_expand(learners, side)]
    if protocol == "open" and is_default(learners) and isinstance(side, Labels):
        after = [name for name, _ in named].index(BEFORE_HEADS) + 1  # new classes gain by them more than by the others
        named[after:after] = _linear_heads(min(n_features, MOST_DIMENSIONS))
    distinct = {(name, repr(estimator)): estimator for name, estimator in named}
    chosen: dict[str, Any] = {}
    for (name, _), estimator in distinct.items():
        chosen[_free_name(name, chosen)] = _seeded(estimator, seed)
    if isinstance(side, Views):  # columns, which the estimators are told of; they learn from X alone
        return [Candidate(name, e, uses_y=False) for name, e in chosen.items()]
    return [Candidate(name, e, can_use(e, side) or _requires_y(e)) for name, e in chosen.items()]


def _between_views(learners: Learners, views: Views) -> Iterator[tuple[str, Any]]:
    """Metrics between two views, told which columns are which."""
    group = isinstance(learners, str) and learners.strip().lower() in GROUPS
    for name, learner in default_learners(views) if group else _expand(learners, views):
        if not maps_views(learner):
            raise ValueError(
                f"{name} is no metric between two views: choose among {', '.join(BETWEEN_VIEWS)}, or give an estimator "
                "with transform_view whose transform puts both mapped views side by side"
            )
        told = learner.get_params(deep=False)
        unset = "views" in told and told["views"] is None
        yield name, clone(learner).set_params(views=views.columns) if unset else learner


def maps_views(estimator: Any) -> bool:
    """Whether a learner maps two views into one space."""
    return hasattr(estimator, "transform_view")


def with_unit_length(candidates: list[Candidate], grids: dict[str, Grid]) -> tuple[list[Candidate], dict[str, Grid]]:
    """Euclidean distance as it is, and unit length after the map of every candidate, itself included."""
    out, renamed = [c for c in candidates if c.name == BASELINES[0]], {}
    for c in candidates:
        can = isinstance(c.estimator, MetricLearner)  # unit length is put after a metric, not after any pipeline
        name = f"{c.name}, unit length" if can else c.name
        out.append(Candidate(name, Normalized(c.estimator) if can else c.estimator, c.uses_y))
        if c.name in grids:
            renamed[name] = {f"learner__{k}" if can else k: v for k, v in grids[c.name].items()}
    return out, renamed


def is_default(learners: Learners) -> bool:
    return isinstance(learners, str) and learners.strip().lower() == "default"


def _linear_heads(n_components: int) -> list[tuple[str, Any]]:
    """Linear maps learned by losses of networks, two passes over the rows; none without torch.

    They keep all dimensions: of sentence embeddings, 128 of 384 lose four points of MAP@R of new classes.
    """
    if not (find_spec("torch") and find_spec("accelerate")):
        return []
    from isometry.deep import DeepMetric

    batches: dict[str, Any] = {"classes_per_batch": 32, "samples_per_class": 4, "max_epochs": 2, "min_steps": 100}
    return [
        (f"linear head, {loss}", DeepMetric("linear", loss, n_components=n_components, **batches))
        for loss in LINEAR_HEADS
    ]


def left_out_note(learners: Learners, side: Supervision) -> list[str]:
    """What to ask for to compare the other methods too, where the default was taken."""
    if not is_default(learners) or isinstance(side, Views):
        return []
    others = len(resolve("all", side, 0)) - len(resolve("default", side, 0))
    return [f"{others} more methods can learn from these {side.kind}; to try them: learners='all' (--methods all)"]


def _expand(learners: Learners, side: Supervision) -> Iterator[tuple[str, Any]]:
    if isinstance(learners, Mapping):
        yield from ((name, _checked(e)) for name, e in learners.items())
    elif isinstance(learners, str):
        yield from _by_name(learners, side)
    elif isinstance(learners, tuple) and len(learners) == 2 and isinstance(learners[0], str) and _learns(learners[1]):
        yield learners
    elif isinstance(learners, Iterable) and not _learns(learners):
        for item in learners:
            yield from _expand(item, side)
    else:
        yield _describe(_checked(learners)), learners


def default_learners(side: Supervision) -> list[tuple[str, Any]]:
    """Who takes part if nobody is named: names and learners that can use this kind of supervision."""
    if isinstance(side, Views):
        named = [(name, get(name).make()) for name in BETWEEN_VIEWS]
        return [(n, e.set_params(landmarks=LANDMARKS) if n == "KernelCCA" else e) for n, e in named]
    settings = DEFAULT | REGRESSION if isinstance(side, Targets) else DEFAULT
    named = [(name, get(name).make(**params)) for name, params in settings.items()]
    return [(name, learner) for name, learner in named if can_use(learner, side)]


def _by_name(name: str, side: Supervision) -> Iterator[tuple[str, Any]]:
    group = name.strip().lower()
    if group == "default":
        yield from default_learners(side)
        return
    if group in GROUPS:
        rows = [row for row in all_methods(kind="estimator") if _in_group(row, group)]
        made = {repr(e): (row.name, e) for row in reversed(rows) for e in [row.make()]}  # the first of equal ones
        yield from ((n, e) for n, e in reversed(made.values()) if can_use(e, side) or not _requires_y(e))
        return
    try:
        row = get(name)
    except KeyError as error:
        raise ValueError(f"{error.args[0]}; groups are {', '.join(GROUPS)}") from error
    if row.kind != "estimator":
        raise ValueError(f"{row.name} is a {row.kind}, not an estimator: it cannot be fitted to a table by itself")
    yield row.name, row.make()


def _in_group(row: Method, group: str) -> bool:
    from_table = row.family != "deep" and not {"matrix-samples", "histograms"} & set(row.traits)
    if not from_table or not _KINDS & set(row.sees.replace(",", " ").split()):
        return False
    if group == "fast":
        return row.family != "kernel" and "iterative" not in row.traits
    return group in ("all", row.family)


def _learns(thing: Any) -> bool:
    return hasattr(thing, "fit") and hasattr(thing, "transform") and not isinstance(thing, type)


def _checked(estimator: Any) -> Any:
    if not _learns(estimator):
        hint = f": write {estimator.__name__}()" if isinstance(estimator, type) else ""
        raise TypeError(
            f"a learner is a name, or an estimator with fit and transform, but {estimator!r} is neither{hint}"
        )
    return estimator


def can_use(estimator: Any, side: Supervision) -> bool:
    """Whether the learner can use this kind of supervision: tried on two samples, since only the kind matters."""
    if not isinstance(estimator, MetricLearner):
        return True
    try:
        estimator._supervise(side[np.arange(2)], 2)
    except TypeError:
        return False
    except ValueError:
        return True  # the right kind, of which two samples hold too little
    return True


def _requires_y(estimator: Any) -> bool:
    return getattr(estimator, "_requires_y", True)


def _seeded(estimator: Any, seed: int) -> Any:
    """A copy whose unset random states are set, so that a comparison can be repeated."""
    estimator = clone(estimator)
    params = estimator.get_params(deep=True)
    unset = {k: seed for k, v in params.items() if k.split("__")[-1] == "random_state" and v is None}
    return estimator.set_params(**unset)


def _describe(estimator: Any) -> str:
    """``NCA(n_components=2)``: the class with the parameters that differ from its defaults."""
    return " ".join(repr(estimator).split()).removesuffix("()")


def _free_name(name: str, taken: Mapping[str, Any]) -> str:
    if name not in taken:
        return name
    return next(n for n in (f"{name} #{i}" for i in range(2, len(taken) + 3)) if n not in taken)


def default_grid(estimator: Any, n_features: int) -> Grid:
    """A small grid: fewer dimensions where the learner can reduce them, and a tenth and ten times its ``reg``."""
    params = estimator.get_params(deep=False)
    grid: Grid = {}
    if params.get("n_components", 0) is None:
        grid["n_components"] = [None, *sorted({max(1, n_features // 2), max(1, n_features // 4)} - {n_features})]
    reg = params.get("reg")
    if isinstance(reg, (int, float)) and not isinstance(reg, bool):
        grid["reg"] = [reg / 10, reg, reg * 10] if reg > 0 else [reg, 1e-3, 1e-1]
    if "t" in params:
        grid["t"] = [0.25, 0.5, 0.75]
    return grid


def tuning_grids(tune: Any, candidates: list[Candidate], n_features: int) -> dict[str, Grid]:
    """Parameter grids by candidate name; candidates without one are not tuned."""
    if tune is None:
        return {}
    if tune == "default":
        grids = {c.name: default_grid(c.estimator, n_features) for c in candidates}
        return {name: grid for name, grid in grids.items() if grid}
    if not isinstance(tune, Mapping):
        raise ValueError(f"tune={tune!r} must be None, 'default', or a dict from a method's name to its parameter grid")
    known = {c.name: c.estimator for c in candidates}
    for name, grid in tune.items():
        if name not in known:
            raise ValueError(f"tune names {name!r}, which is not among the candidates: {', '.join(known)}")
        unknown = sorted(set(grid) - set(known[name].get_params()))
        if unknown:
            raise ValueError(f"{name} has no parameter {', '.join(map(repr, unknown))}: tune cannot search it")
    return {name: {k: list(v) for k, v in grid.items()} for name, grid in tune.items()}
