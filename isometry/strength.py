"""How far a learned metric may go from Euclidean distance: chosen by what it does for samples held out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.linalg import eigh
from sklearn.base import clone

from isometry.base import LinearMetric, check_components, check_side
from isometry.core.linalg import SingularMatrixWarning, svd
from isometry.core.solve import Solution
from isometry.core.start import mean_sqdist
from isometry.parameters import NotNegative
from isometry.trial import Outside, Split, Trial, as_new, distance_from_mean, scarcity, thin, trial_of

FOLDS_UP_TO = ((200, 5), (500, 3), (np.inf, 1))  # features, and folds: what a fit costs grows with d³
REGS = (10.0, 1.0, 0.1, 0.01)  # from the strongest pull to the weakest
MOST_ROWS = 25_000  # that a strength is chosen by
MEASURED = 1_000  # rows whose mean squared distance is the unit of a metric on trial
MEASURED_LAST = 2_000  # rows whose mean squared distance is the unit of the metric that was chosen, if that is all
SHARES = (0.25, 0.5, 0.75, 1.0)  # of the learned metric in a mixture with the Euclidean one
ERRORS_TO_LEAVE = 2.5  # standard errors by which the best of many must beat Euclidean distance for that to be left
ERRORS_OF_BEST = 1.0  # standard errors within which a weaker metric is as good as the best

Reg = NotNegative | Literal["auto"]
Map = Callable[[np.ndarray], np.ndarray]  # samples → their images


@dataclass(frozen=True)
class Choice:
    """Which metric of a path was chosen, and why."""

    share: float  # of the learned metric: 0 is Euclidean distance, 1 the learned one alone
    reg: float  # what it is learned with
    path: dict[str, np.ndarray]  # share, reg, score, gain and its standard error of every metric that was tried
    reason: str

    def noting(self, remark: str) -> Choice:
        """The same, with a remark on what it rests on."""
        return replace(self, reason=f"{self.reason} ({remark})") if remark else self


class HoldsOut(LinearMetric):
    """Abstract: a metric that is tried on rows held out before it is learned from all of them."""

    _outside: Outside | None = None  # given for one fit by what made the features of the samples, see `as_new`
    _beyond: int = 0  # so many of the last features count for Euclidean distance, but the metric does not see them

    def _is_mixed(self) -> bool:
        """Whether what is learned is, or may be, mixed with Euclidean distance."""
        raise NotImplementedError

    def _seen(self, X: np.ndarray) -> np.ndarray:
        """The features that the metric is learned from."""
        return X[:, : X.shape[1] - self._beyond]

    def _in_all_features(self, L: np.ndarray) -> np.ndarray:
        """A map of the features that the metric sees, or points in them, with a column for every feature: 0."""
        return np.pad(L, ((0, 0), (0, self._beyond))) if self._beyond else L

    def _as_map(self, learner: LinearMetric) -> Map:
        """What a learner makes of rows, of whose features it sees the first ones."""
        return lambda X: learner._transform(self._seen(X))

    def _copy(self, **settings: Any) -> Any:
        """A learner for the features that the metric sees."""
        learner = clone(self).set_params(**settings)
        learner.n_features_in_ = self.n_features_in_ - self._beyond
        return learner

    def _take(self, learner: LinearMetric) -> None:
        """Have what another one has learned."""
        for name in [name for name in vars(learner) if name.endswith("_") and name != "n_features_in_"]:
            setattr(self, name, getattr(learner, name))


class AutomaticStrength(HoldsOut):
    """Abstract: a closed form whose ``reg`` may be "auto": the data choose how far it goes from Euclidean distance.

    The way there has two parts: the ridge ``reg`` of the method itself, and the share of the learned metric in the
    mixture W = (1 − share) c I + share W_reg, where c makes both equally large on the samples. Every metric of the way
    is learned from some rows and tried on others. Of those that are better than Euclidean distance by two and a half
    standard errors, the one nearest to it is chosen that does as well as the best, within one; Euclidean distance
    itself, if the best is not so much better. Where fewer dimensions than features are asked for, every mixture is
    brought to the directions in which the samples vary most under it, so that the way begins at their principal
    components.

    It leaves ``reg_`` and ``share_``, what was chosen; ``reg_path_``, how each metric of the way did; and
    ``reg_reason_``, why this one was chosen.
    """

    regs: ClassVar[tuple[float, ...]] = REGS  # ridges of the way, the one nearest to Euclidean distance first
    reg_has_unit: ClassVar[bool] = False  # whether ``reg`` has the unit of squared features; else it has none
    reg: float | str = 0.0  # for methods that have no such parameter
    reg_: float
    share_: float
    reg_path_: dict[str, np.ndarray]
    reg_reason_: str

    def _is_mixed(self) -> bool:
        return isinstance(self.reg, str)

    def _learn(self, X: np.ndarray, side: Any, **more: Any) -> Solution | None:
        if self.reg != "auto":
            return self._fit(X, side, **more)
        rows, part, few = some_rows(X, side, more)
        key = distance_from_mean(self._seen(rows))
        unit = float(np.sqrt(key.mean() / self._seen(X).shape[1])) or 1.0
        choice = self._choose(rows / np.asarray(unit, dtype=X.dtype), part, key, unit, **few)
        if len(rows) > MEASURED_LAST and fewer_dimensions(self, X.shape[1]) is None:  # else they give directions, too
            rows = rows[thin(np.argsort(key, kind="stable"), MEASURED_LAST)]
        return self._keep(choice, lambda learner: learner._fit(self._seen(X), side, **more), rows, unit)

    def _choose(self, X: np.ndarray, side: Any, key: np.ndarray, unit: float, **more: Any) -> Choice:
        folds = next(k for most, k in FOLDS_UP_TO if X.shape[1] <= most)
        trial = trial_of(X, side, folds=folds, key=key)
        if trial is None:
            return self._analytic_choice(X, "too little can be held out to try it")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of parts of the data; what holds for all of it is said by the last fit
            try:
                maps = self._path(self._seen(X), side, trial, **more)
                tables = (as_new(X, split, self._outside, unit) for split in trial.splits)
                choice = choose(trial, tables, maps, regs=self.regs, p=fewer_dimensions(self, X.shape[1]))
                return choice.noting(scarcity(trial, folds))
            except np.linalg.LinAlgError:
                raise  # not a matter of too few rows
            except ValueError as error:
                return self._analytic_choice(X, f"a part of the data is not enough to learn from ({error})")

    def _keep(
        self, choice: Choice, fit: Callable[[Any], Solution | None], X: np.ndarray | None, unit: float
    ) -> Solution | None:
        """Learn from all samples with the chosen strength; ``X`` are some of them, of this ``unit``."""
        learner = self._with((choice.reg if choice.share else self.regs[0]) * (unit**2 if self.reg_has_unit else 1.0))
        with warnings.catch_warnings():
            if choice.share == 0:
                warnings.simplefilter("ignore")  # of a metric that is not used
            warnings.simplefilter("ignore", SingularMatrixWarning)  # the ridge was chosen, nothing needs to be said
            solution = fit(learner)
        self._take(learner)
        L, dtype = self._in_all_features(learner.components_.astype(np.float64)), learner.components_.dtype
        p = None if fewer_dimensions(self, L.shape[1]) is None else len(L)  # samples may span even fewer
        if choice.share == 0:
            L = np.eye(L.shape[1])
        if choice.share < 1 and X is not None:
            L = mixed_map(L, choice.share, X, p)
        self._store(L, dtype)
        self.reg_, self.share_ = float(learner.reg) if choice.share else np.inf, choice.share
        self.reg_path_, self.reg_reason_ = choice.path, choice.reason
        return solution

    def _with(self, reg: float) -> Any:
        return self._copy(reg=reg)

    def _path(self, X: np.ndarray, side: Any, trial: Trial, **more: Any) -> Iterator[Iterator[Map]]:
        """For each split of a trial the maps that are learned from its rows, one for each of ``regs``."""
        for split in trial.splits:
            part = None if side is None else side[split.learn]
            if part is not None:
                check_side(part, self._needs, type(self).__name__)
            rest = {name: value[split.learn] for name, value in more.items()}
            yield (self._as_map(learner) for learner in self._fit_each(X[split.learn], part, **rest))

    def _fit_each(self, X: np.ndarray, side: Any, **more: Any) -> Iterator[Any]:
        for reg in self.regs:
            learner = self._with(reg)
            learner._fit(X, side, **more)
            yield learner

    def _analytic_choice(self, X: np.ndarray, why: str) -> Choice:
        """Where nothing can be tried: oracle approximating shrinkage of the covariance."""
        return analytic_choice(covariance(X), len(X), why)


class ScatterMetric(AutomaticStrength):
    """Abstract: a closed form of scatters that do not depend on ``reg``, so that all ridges share them.

    A method supplies ``scatters``, and ``_fit(X, side, scatters=None)``, which makes the map of them, or of those it is
    given.
    """

    def scatters(self, X: np.ndarray, side: Any) -> Any:
        """The scatters that the metric follows from, for any ``reg``.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            Samples.
        side : Supervision
            What is known of them.

        Returns
        -------
        tuple
            The frame of the samples, and the scatters in it.
        """
        raise NotImplementedError

    def _fit_each(self, X: np.ndarray, side: Any, **more: Any) -> Iterator[Any]:
        scatters = self.scatters(X, side)
        for reg in self.regs:
            learner = self._with(reg)
            learner._fit(X, side, scatters)
            yield learner


def some_rows(X: np.ndarray, side: Any, more: dict[str, Any]) -> tuple[np.ndarray, Any, dict[str, Any]]:
    """At most ``MOST_ROWS`` rows with what is known of them: more would cost time and tell little."""
    if len(X) <= MOST_ROWS or not (side is None or hasattr(side, "codes")):
        return X, side, more
    some = np.linspace(0, len(X) - 1, MOST_ROWS).round().astype(np.intp)
    return np.asarray(X[some]), None if side is None else side[some], {k: value[some] for k, value in more.items()}


def analytic_choice(C: np.ndarray, n: int, why: str) -> Choice:
    """The ridge that oracle approximating shrinkage gives a covariance C of n samples (Chen et al. 2010).

    Shrinking C by s towards tr(C)/d · I is, up to scale, a ridge of s / (1 − s).
    """
    d, mu, square = len(C), float(np.trace(C)) / len(C), float(np.mean(np.square(C)))
    shrinkage = 1.0 if square <= mu**2 / d else min((square + mu**2) / ((n + 1) * (square - mu**2 / d)), 1.0)
    reg = min(shrinkage / max(1 - shrinkage, 1e-12), REGS[0])
    return Choice(1.0, reg, {}, f"{why}: the ridge {reg:.3g} follows from the moments alone (OAS)")


def choose(
    trial: Trial,
    tables: Iterable[np.ndarray],
    maps: Iterable[Iterable[Map]],
    shares: Sequence[float] = SHARES,
    *,
    regs: Sequence[float] = REGS,
    p: int | None = None,
) -> Choice:
    """The weakest metric that does as well as the best, of mixtures of Euclidean distance and of learned ``maps``.

    ``tables`` holds the samples for each split of the trial, see `as_new`; ``maps`` the maps learned from its rows, one
    for each of ``regs``, the weakest first. Squared distances of a mixture are mixtures of squared distances, each in
    units of its mean over the rows.
    With ``p``, mixtures are brought to so many dimensions.
    """
    values: dict[tuple[float, float], list[np.ndarray]] = {(0.0, np.inf): []}
    values |= {(share, reg): [] for share in shares for reg in regs}  # from the weakest metric to the strongest
    for split, X, learned in zip(trial.splits, tables, maps, strict=True):
        mixtures = Mixtures(trial, X, split, p)
        values[0.0, np.inf].append(mixtures.euclidean())
        for reg, embed in zip(regs, learned, strict=True):
            for share, found in mixtures.with_map(embed, shares):
                values[share, reg].append(found)
    return weakest_of_the_best(list(values), np.stack([np.concatenate(v) for v in values.values()]), name_of_plain(p))


class Mixtures:
    """What mixtures of Euclidean distance and a learned one are worth on one split of a trial.

    With ``p`` these are the mixtures of a linear map, each brought to p dimensions.
    """

    def __init__(self, trial: Trial, X: np.ndarray, split: Split, p: int | None = None):
        self.trial, self.X, self.split, self.p = trial, X, split, p
        self.known = X[split.learn[:: 1 + len(split.learn) // MEASURED]]  # tells how large distances are
        self.C = None if p is None else covariance(self.known)
        self.plain = self._distances(None if self.C is None else leading(np.eye(X.shape[1]), self.C, p))

    def euclidean(self) -> np.ndarray:
        """(m,) the value of each item held out."""
        return self.trial.values(self.plain, self.split)

    def with_map(self, embed: Map, shares: Sequence[float]) -> Iterator[tuple[float, np.ndarray]]:
        """Each share of the learned metric, with the values (m,) of that mixture."""
        if self.C is not None:
            L = embed(np.eye(self.X.shape[1], dtype=self.X.dtype)).T.astype(np.float64)
            for share in shares:
                D = self._distances(leading(mixed_map(L, share, self.known), self.C, self.p))
                yield share, self.trial.values(D, self.split)
            return
        D = self.trial.distances(lambda rows: embed(self.X[rows]), self.split) / (mean_sqdist(embed(self.known)) or 1.0)
        for share in shares:
            mixed = D if share == 1 else self.plain + share * (D - self.plain)
            yield share, self.trial.values(mixed, self.split)

    def _distances(self, L: np.ndarray | None) -> np.ndarray:
        """Squared distances under a linear map, None for the identity, in units of their mean."""
        X = self.X
        if L is None:
            return self.trial.distances(X.__getitem__, self.split) / mean_sqdist(self.known)
        A = L.T.astype(X.dtype)
        return self.trial.distances(lambda rows: X[rows] @ A, self.split) / (mean_sqdist(self.known @ A) or 1.0)


def name_of_plain(p: int | None) -> str:
    """What the way to a learned metric begins with, in words."""
    return "Euclidean distance" if p is None else f"Euclidean distance in the first {p} principal components"


def fewer_dimensions(learner: LinearMetric, d: int) -> int | None:
    """How many dimensions a learner was asked for, if these are fewer than d."""
    p = learner.get_params(deep=False).get("n_components")
    if isinstance(p, Sequence) and not isinstance(p, str):  # some for each of several views
        return None
    p = check_components(p, d)
    return None if p == d else p


def weakest_of_the_best(
    steps: Sequence[tuple[float, float]], V: np.ndarray, plain: str = "Euclidean distance"
) -> Choice:
    """Choose among metrics with values V (k, m), from the weakest to the strongest, by paired standard errors."""
    score = V.mean(axis=1)
    best = int(score.argmax())  # the weakest of equals
    gain, error = np.array([paired(v, V[0]) for v in V]).T
    share, reg = np.array(steps).T
    path = {"share": share.copy(), "reg": reg.copy(), "score": score, "gain": gain.copy(), "error": error.copy()}
    if best == 0:
        return Choice(*steps[0], path, f"{plain}: nothing did better on what was held out")
    if gain[best] <= ERRORS_TO_LEAVE * error[best]:
        little = f"the best gained {gain[best]:.3f} on what was held out, with a standard error of {error[best]:.3f}"
        return Choice(*steps[0], path, f"{plain}: {little}, which is not enough to rely on")
    reliable = gain > ERRORS_TO_LEAVE * error  # by itself: beside the best, what varies more is soon as good
    for k in np.flatnonzero(reliable[: best + 1]).tolist():
        lack, spread = paired(V[best], V[k])
        if lack <= ERRORS_OF_BEST * spread:
            break
    gained = f"gained {gain[k]:.3f} on what was held out (standard error {error[k]:.3f})"
    return Choice(*steps[k], path, f"{gained}; the best gained {gain[best]:.3f}")


def paired(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Mean of a − b, and its standard error."""
    d = a - b
    return float(d.mean()), float(d.std(ddof=1) / np.sqrt(len(d))) if len(d) > 1 else np.inf


def mixture(L: np.ndarray, share: float, unit: float) -> np.ndarray:
    """The symmetric root (d, d) of (1 − share) I / unit + share LᵀL."""
    least = np.sqrt((1 - share) / unit)
    if share == 0:
        return np.asarray(least * np.eye(L.shape[1]))
    _, s, Vt = svd(L)
    return least * np.eye(L.shape[1]) + (Vt.T * (np.sqrt(least**2 + share * s**2) - least)) @ Vt


def mixed_map(L: np.ndarray, share: float, X: np.ndarray, p: int | None = None) -> np.ndarray:
    """A map of the mixture of Euclidean distance and a share of that of L, both equally large on the rows X.

    It has the size of L. With ``p`` it is the part of the mixture with the most variance on X, in p dimensions.
    """
    if share < 1:
        size = mean_sqdist(X @ L.T.astype(X.dtype)) / mean_sqdist(X)
        L = mixture(L, share, 1 / size) if size else np.eye(X.shape[1])
    return L if p is None else leading(L, covariance(X), p)


def covariance(X: np.ndarray) -> np.ndarray:
    """(d, d) of the rows X."""
    return np.cov(X, rowvar=False, ddof=0).reshape(X.shape[1], -1)


def leading(L: np.ndarray, C: np.ndarray, p: int | None) -> np.ndarray:
    """(p, d) the part of the map L (q, d) with the most variance on rows of covariance C, by rotating its images."""
    q = len(L)
    if p is None or p >= q:
        return L
    V = eigh(L @ C @ L.T, subset_by_index=[q - p, q - 1])[1][:, ::-1]  # (q, p)
    return np.asarray(V.T @ L)
