"""Every learner that metric-learn or pyDML has as well: same rows, one thread, CPU seconds.

`python -m benchmarks.shared_learners` writes docs/results/shared_learners.md: cost, objective where both minimise the
same one, and the accuracy of rows held out; then what comes of data on which closed forms break down.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from benchmarks.contests import FIGURES, Side, draw_pairs, itml_bounds, peer
from benchmarks.contests import ours as side_of_ours
from benchmarks.environments import HOME, OURS, Job, Outcome, measure_series
from benchmarks.run import PACES
from isometry.registry import get

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results" / "shared_learners.md"
LIMIT = 5.0  # CPU seconds of a peer's fit, or more where ours needs a sixth of more
PATIENCE = 20.0  # the same where a peer minimises what we do: without its end there is nothing to compare
OUR_LIMIT = 300.0
SLOW = 1.0  # CPU seconds from which a peer's time counts
WANTED = 5.0  # times faster than such a peer
AS_GOOD = 1e-6  # of what the peer gains on Euclidean distance: less than that is rounding, also where the minimum is 0
CLOSER = {"tol": 1e-8, "max_iter": 5000}  # where a default stops short of a peer's objective, ours is fitted again
N_PAIRS, N_QUADRUPLETS = 400, 400
NOT_THERE = "–"
SETS: dict[str, Any] = {"wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}


@dataclass(frozen=True)
class Shared:
    """One of our learners, and what the peers have of the same name or problem."""

    mine: Side
    theirs: tuple[Side, ...]
    default: Side  # ours as it is without any setting
    figure: str = ""  # key of FIGURES that these minimise as we do; "" where objectives differ
    minimisers: tuple[str, ...] = ("metric-learn",)  # of the figure
    arrays: tuple[str, ...] = ()  # of "pairs" and "quadruplets", that all sides learn from


@dataclass(frozen=True)
class Data:
    """Rows to learn from, in a folder of their own, and rows held out, both standardised by the former."""

    name: str
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def split(cls, name: str, X: np.ndarray, y: np.ndarray) -> Data:
        """Two thirds to learn from; classes of one row are learned from alone."""
        y = np.unique(y, return_inverse=True)[1].astype(np.int64)
        several = np.flatnonzero(np.bincount(y)[y] > 1)
        single = np.setdiff1d(np.arange(len(y)), several)
        train, test = train_test_split(several, test_size=1 / 3, stratify=y[several], random_state=0)
        train = np.sort(np.concatenate([train, single]))
        scaler = StandardScaler().fit(X[train])
        Z, Z_test = scaler.transform(X[train]), scaler.transform(X[test])
        arrays = {"pairs": draw_pairs(y[train], N_PAIRS), "quadruplets": draw_quadruplets(y[train], N_QUADRUPLETS)}
        return cls(name, Z, y[train], Z_test, y[test], arrays)

    def folder(self) -> Path:
        folder = HOME / "data" / f"shared_{self.name.replace(' ', '_').replace(',', '').replace('<', 'below')}"
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / "X.npy", self.X)
        np.save(folder / "y.npy", self.y)
        return folder

    def accuracy(self, outcome: Outcome) -> float:
        """3-NN accuracy of the rows held out, by their neighbours among the rows that were learned from."""
        if outcome.failure or outcome.L is None:
            return np.nan
        if "embedded" in outcome.figures:  # the images of all rows, of a map that is no matrix
            Z, Z_test = np.split(np.real(outcome.L), [len(self.X)])
        else:
            L = np.real(outcome.L).astype(np.float64)
            Z, Z_test = self.X @ L.T, self.X_test @ L.T
        return float(KNeighborsClassifier(3).fit(Z, self.y).score(Z_test, self.y_test))


def draw_quadruplets(y: np.ndarray, m: int) -> np.ndarray:
    """(m, 4) a, b of one class, and c, d of two: a and b are the nearer pair."""
    pairs = draw_pairs(y, 2 * m)
    similar, dissimilar = pairs[pairs[:, 2] == 1, :2], pairs[pairs[:, 2] == 0, :2]
    n = min(len(similar), len(dissimilar))
    return np.hstack([similar[:n], dissimilar[:n]])


def learners(bounds: tuple[float, float], d: int) -> Iterator[Shared]:
    """All of them, with the published settings where ours are automatic by default; d is the number of features."""
    seed = {"random_state": 0}

    def listed(name: str, call: str, environment: str, **params: Any) -> Side:
        return Side(f"{environment} {name}", environment, call, {"name": name, **params})

    def ours(name: str, call: str = "isometry", label: str = "", **params: Any) -> Side:
        return side_of_ours(name, call, label=label, **{**get(name).published, **params})

    def beside(
        mine: Side, theirs: tuple[Side, ...], figure: str = "", minimisers: tuple[str, ...] = ("metric-learn",)
    ) -> Shared:
        kept = {name: value for name, value in mine.params.items() if name in ("name", "n_centroids", "power")}
        default = replace(mine, name=f"{mine.name} by default", params=kept)
        arrays = tuple(name for name in ("pairs", "quadruplets") if mine.call.endswith(name))
        return Shared(mine, theirs, default, figure, minimisers, arrays)

    yield beside(ours("Covariance", reg=0.0), (peer("metric-learn", "Covariance"), peer("pydml", "Covariance")))
    yield beside(ours("RCA", reg=1e-3), (peer("metric-learn", "RCA_Supervised", n_chunks=30, **seed),))
    yield beside(ours("LFDA", reg=1e-3), (peer("metric-learn", "LFDA"), peer("pydml", "LLDA")))
    yield beside(ours("FisherML", reg=1e-3), (peer("pydml", "LDA"),))
    yield beside(ours("Whitening", power=0.0), (peer("pydml", "PCA"),))
    yield beside(ours("ANMM"), (peer("pydml", "ANMM"),))
    yield beside(ours("DMLMJ", reg=1e-3), (peer("pydml", "DMLMJ"),))
    yield beside(ours("SDML"), (peer("metric-learn", "SDML_Supervised", **seed),))
    yield beside(ours("SCML"), (peer("metric-learn", "SCML_Supervised", **seed),))
    yield beside(
        ours("LSML", "isometry_quadruplets", label="isometry LSML, gamma=1", gamma=1.0, prior="eye"),
        (listed("LSML", "metric_learn_quadruplets", "metric-learn"),),
        "lsml",
    )
    yield beside(ours("MLKR", reg=0.0), (peer("metric-learn", "MLKR", init="pca", **seed),), "mlkr")
    yield beside(
        ours("ITML", "isometry_pairs", bounds=bounds, gamma=1.0),
        (
            listed("ITML", "metric_learn_pairs", "metric-learn", bounds=bounds, gamma=1.0, **seed),
            peer("pydml", "ITML"),
        ),
        "itml",
    )
    yield beside(
        ours("MMC", "isometry_pairs", reg=0.0),
        (listed("MMC", "metric_learn_pairs", "metric-learn", **seed), peer("pydml", "LSI", supervised=True)),
        "mmc",
    )
    yield beside(
        ours("LMNN", init="identity"),
        (
            peer("metric-learn", "LMNN", n_neighbors=3, regularization=0.5, init="identity", **seed),
            peer("pydml", "LMNN"),
        ),
        "lmnn",
    )
    yield beside(
        ours("NCA", init="eye"),
        (peer("metric-learn", "NCA", init="identity", **seed), peer("pydml", "NCA")),
        "nca",
        ("metric-learn", "pydml"),
    )
    yield beside(ours("NCM", n_centroids=1, label="isometry NCM, one centroid"), (peer("pydml", "NCMML"),))
    yield beside(ours("NCM"), (peer("pydml", "NCMC"),))
    yield beside(ours("DMLeig"), (peer("pydml", "DML_eig"),))
    yield beside(ours("MCML"), (peer("pydml", "MCML"),), "mcml", ("pydml",))
    yield beside(ours("LDML"), (peer("pydml", "LDML"),), "ldml", ("pydml",))
    for mine, there, params in (
        ("KernelFisherML", "KDA", {}),
        ("KernelLFDA", "KLLDA", {"n_components": d}),  # as many dimensions as these keep
        ("KernelANMM", "KANMM", {"n_components": d}),
        ("KernelDMLMJ", "KDMLMJ", {"n_components": d}),
        ("KernelLMNN", "KLMNN", {}),
    ):
        kernel = Side(f"pydml {there}", "pydml", "pydml_embedding", {"name": there, "kernel": "rbf"})
        yield beside(ours(mine, "isometry_embedding", **params), (kernel,))


# ---- data on which closed forms break down ----


def awkward() -> Iterator[Data]:
    """Singular, fewer rows than features, classes of one row."""
    X, y = load_wine(return_X_y=True)
    rng = np.random.default_rng(0)
    yield Data.split("singular", np.c_[X, X[:, :4] @ rng.normal(size=(4, 4)), np.full(len(X), 3.0)], y)
    yield Data.split("n < d", np.c_[X, rng.normal(size=(len(X), 120))][::3], y[::3])
    yield Data.split("classes of one", X, np.where(np.arange(len(X)) % 25 == 0, 10 + np.arange(len(X)), y))


# ---- tables ----


def job_of(side: Side, shared: Shared, data: Data) -> Job:
    arrays = {name: data.arrays[name] for name in shared.arrays if side.call.endswith(name)}
    if side.call.endswith("embedding"):
        arrays["others"] = data.X_test
    return Job(side.call, side.params, arrays)


@dataclass
class Row:
    """One learner beside one peer."""

    data: str
    shared: Shared
    side: Side
    mine: Outcome
    theirs: Outcome
    limit: float  # CPU seconds that the peer had
    values: tuple[float, float] = (np.nan, np.nan)  # of the figure
    euclidean: float = np.nan  # its value for Euclidean distance
    accuracies: tuple[float, float] = (np.nan, np.nan)
    default: Outcome = field(default_factory=Outcome)
    default_accuracy: float = np.nan

    @property
    def seconds(self) -> float:
        """Of the peer; its limit where it was ended there."""
        return self.limit if "CPU s" in self.theirs.failure else self.theirs.cpu

    @property
    def ratio(self) -> float:
        return self.seconds / self.mine.cpu

    @property
    def worse(self) -> bool:
        """Whether our objective is worse by more than rounding explains."""
        mine, theirs = self.values
        if not np.isfinite(self.values).all():  # nothing that both minimise
            return False
        sign = 1 if "↓" in FIGURES[self.shared.figure][0] else -1
        return bool(sign * (mine - theirs) > AS_GOOD * abs(self.euclidean - theirs))

    def line(self) -> str:
        more = "> " if "CPU s" in self.theirs.failure else ""
        told = f"{self.side.name}: **{self.theirs.failure}**" if self.theirs.failure else self.side.name
        mine = f"{self.shared.mine.name}: **{self.mine.failure}**" if self.mine.failure else self.shared.mine.name
        costs = [number(outcome.cpu) for outcome in (self.default, self.mine)]
        cells = [mine, told, *costs, more + number(self.seconds), more + number(self.ratio)]
        title = FIGURES[self.shared.figure][0] if self.shared.figure else ""
        both = " / ".join(number(v, 5) for v in self.values) if np.isfinite(self.values).any() else ""
        cells.append(f"{title} {both}" if both else "")
        cells.append(" / ".join(number(v) for v in (self.default_accuracy, *self.accuracies)))
        return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


def number(value: float, digits: int = 3) -> str:
    return f"{value:.{digits}g}" if np.isfinite(value) else NOT_THERE


def rows_of(data: Data, limit: float, only: list[str], patience: float = 0.0) -> Iterator[Row]:
    folder = data.folder()
    chosen = [
        shared
        for shared in learners(itml_bounds(data.X), data.X.shape[1])
        if not only or any(word.lower() in shared.mine.name.lower() for word in only)
    ]
    sides = [(shared, side) for shared in chosen for side in (shared.mine, shared.default, *shared.theirs)]
    found: dict[str, Outcome] = {}
    limits = {side.name: max(limit, patience if compared(shared, side) else 0) for shared, side in sides}
    for environment in (OURS, "metric-learn", "pydml"):
        here = [(shared, side) for shared, side in sides if side.environment == environment]
        jobs = [job_of(side, shared, data) for shared, side in here]
        outcomes = measure_series(
            environment, jobs, folder, limits=[OUR_LIMIT if environment == OURS else limits[s.name] for _, s in here]
        )
        found |= {side.name: outcome for (_, side), outcome in zip(here, outcomes, strict=True)}
        for shared, side in here if environment == OURS else ():  # as long as tells whether ours is fast enough
            enough = 1.2 * WANTED * np.nan_to_num(found[side.name].cpu)
            limits |= {their.name: max(limits[their.name], enough) for their in shared.theirs if side is shared.mine}
    for shared in chosen:
        for side in shared.theirs:
            mine, theirs = found[shared.mine.name], found[side.name]
            row = judged(data, shared, side, mine, theirs, limits[side.name])
            for settings in other_settings(row):  # stopping rules differ: what does it cost to be as far as the peer?
                told = ", ".join(f"{name}={value:g}" for name, value in settings.items())
                own = replace(shared.mine, name=f"{shared.mine.name}, {told}", params=shared.mine.params | settings)
                other = replace(shared, mine=own)
                (again,) = measure_series(OURS, [job_of(own, other, data)], folder, limits=[OUR_LIMIT])
                tried = judged(data, other, side, again, theirs, limits[side.name])
                if not tried.worse:
                    row = tried
                    break
            row.default, row.default_accuracy = found[shared.default.name], data.accuracy(found[shared.default.name])
            yield row


def compared(shared: Shared, side: Side) -> bool:
    """Whether a peer minimises what we do."""
    return bool(shared.figure) and side.environment in shared.minimisers


def other_settings(row: Row) -> Iterable[dict[str, Any]]:
    """A longer search where ours stops short of the peer's objective, shorter ones where it goes on for too long."""
    if row.worse:
        return [CLOSER]
    too_slow = row.seconds > SLOW and row.ratio < WANTED and np.isfinite(row.values).all()
    return [{"max_iter": n} for n in PACES] if too_slow else []


def judged(data: Data, shared: Shared, side: Side, mine: Outcome, theirs: Outcome, limit: float) -> Row:
    row = Row(data.name, shared, side, mine, theirs, limit)
    row.accuracies = (data.accuracy(mine), data.accuracy(theirs))
    if compared(shared, side) and not (mine.failure or theirs.failure):
        judge = FIGURES[shared.figure][1]
        maps = (np.real(mine.L), np.real(theirs.L), np.eye(data.X.shape[1]))
        *both, row.euclidean = (judge(L, data.X, data.y, data.arrays) for L in maps)
        row.values = (both[0], both[1])
    return row


HEAD = (
    "| ours | theirs | our CPU s by default | as published | their CPU s | ratio | objective, ours / theirs "
    "| held-out accuracy, by default / as published / theirs |"
)
INTRODUCTION = """# Learners shared with metric-learn and pyDML

Two thirds of the rows are learned from, standardised; one thread, all fits of a library one after another, all in one
run of `python -m benchmarks.shared_learners`. Seconds are CPU seconds of the fit alone, so that other work on the
machine counts little; a fit of less than 1.5 is repeated five times, or for so long, and counts with the mean of these.
A peer's fit is ended after {limit:g} of them, after {patience:g} where it minimises the same objective as ours, or
after six times ours if that is more. Accuracy is that of three neighbours for the rows held out. Where a library learns
from pairs or comparisons, both get the same list. Kernel maps that pyDML gives as many dimensions as there are features
have as many of ours as published, and all by default.

Our learners are fitted twice: as published (`reg` or `strength` is a number), which is what the peers do and what the
ratio and the objective are about, and by default, where most choose their strength by trials on rows held out, which
cost time of their own. An objective is shown where a peer states the same one, computed by our code for both maps (↓
smaller is better, ↑ larger). Ours counts as worse if it is so by more than {as_good:g} of what the peer gains on
Euclidean distance. A ratio of the two values would say nothing where the minimum is 0, which an ever larger map
approaches without end; a share of the gain has a meaning there as well, and this one is far below what any use of a
metric could notice. Where ours stops short of a peer's objective, or goes far beyond it for longer than a fifth of the
peer's time, it is fitted again with the settings that the row names.
"""


def summary(rows: list[Row]) -> list[str]:
    """Whether ours is fast and good enough, with every exception by name."""
    slow = [r for r in rows if r.seconds > SLOW]
    behind = [r for r in slow if not r.ratio >= WANTED]
    late = [r for r in slow if not r.seconds / r.default.cpu >= WANTED]
    compared = [r for r in rows if np.isfinite(r.values).all()]
    worse = [r for r in compared if r.worse]
    outcomes = [(r.mine, r.default, r.theirs) for r in rows]
    name = "{0.data}: {0.shared.mine.name} beside {0.side.name}".format
    lines = [
        f"- {len(slow)} fits took a peer more than {SLOW:g} s; ours was at least {WANTED:g} times faster in "
        f"{len(slow) - len(behind)} of them, {number(min((r.ratio for r in slow), default=np.nan))} times at least.",
        *(f"  - {name(r)}, {number(r.ratio)} times" for r in behind),
        f"- By default, which chooses the strength as well, it was so in {len(slow) - len(late)} of them.",
        *(f"  - {name(r)}, {number(r.seconds / r.default.cpu)} times" for r in late),
        f"- {len(compared)} objectives are shared; ours is no worse in {len(compared) - len(worse)} of them "
        f"(by more than {AS_GOOD:g} of what the peer gains on Euclidean distance).",
        *(f"  - {name(r)}: {number(r.values[0], 6)} against {number(r.values[1], 6)}" for r in worse),
        "- {} of our fits as published, {} by default and {} of theirs failed or were ended.".format(
            *(sum(bool(one.failure) for one in several) for several in zip(*outcomes, strict=True))
        ),
    ]
    return lines


def failures(limit: float, only: list[str]) -> Iterator[str]:
    """What comes of awkward data: for each learner, accuracy or what went wrong; and how many failed."""
    lost = {"as published": 0, "by default": 0, "theirs": 0}
    for data in awkward():
        yield from ("", f"### {data.name} ({len(data.X)} × {data.X.shape[1]})", "")
        yield from ("| ours | by default | as published | theirs | |", "|---|---|---|---|---|")
        for row in rows_of(data, limit, only):
            outcomes = {"by default": row.default, "as published": row.mine, "theirs": row.theirs}
            told = {}
            values = (row.default_accuracy, *row.accuracies)
            for (which, outcome), value in zip(outcomes.items(), values, strict=True):
                lost[which] += bool(outcome.failure)
                told[which] = f"**{outcome.failure}**" if outcome.failure else number(value)
            cells = [row.shared.mine.name, told["by default"], told["as published"], row.side.name, told["theirs"]]
            yield "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"
    yield from (
        "",
        f"{lost['as published']} of our fits as published, {lost['by default']} by default and "
        f"{lost['theirs']} of theirs failed or were ended.",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=float, default=LIMIT, help=f"CPU seconds of a peer's fit (default {LIMIT:g})")
    parser.add_argument(
        "--patience",
        type=float,
        default=PATIENCE,
        help=f"the same where its objective is compared with ours (default {PATIENCE:g})",
    )
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS), help="data (default all)")
    parser.add_argument("--only", nargs="+", default=[], help="learners whose name contains one of these words")
    args = parser.parse_args()
    lines = [INTRODUCTION.format(limit=args.limit, patience=args.patience, as_good=AS_GOOD)]
    rows: list[Row] = []
    for name in args.sets:
        data = Data.split(name, *SETS[name](return_X_y=True))
        head = ["", f"## {name} ({len(data.X):,} × {data.X.shape[1]})", "", HEAD, "|---|---|--:|--:|--:|--:|---|---|"]
        print("\n".join(head), flush=True)
        lines += head
        for row in rows_of(data, args.limit, args.only, args.patience):
            rows.append(row)
            lines.append(row.line())
            print(lines[-1], flush=True)
    told = ["", "## In sum", "", *summary(rows)]
    lines += told
    print("\n".join(told), flush=True)
    lines += ["", "## Where closed forms break down", "", "Accuracy of the rows held out, or what went wrong."]
    for line in failures(args.limit, args.only):
        print(line, flush=True)
        lines.append(line)
    if args.only or args.sets != list(SETS):
        print("nothing was written: only a complete run is a result")
        return 0
    RESULTS.write_text("\n".join([*lines, ""]))
    print(f"written: {RESULTS.relative_to(RESULTS.parents[2])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
