"""Every classical method with its defaults on real data: does it help a nearest-neighbour classifier? `make accuracy`.

Writes docs/results/accuracy.md. Finished cells are kept in .bench/accuracy.json, so that a run can be interrupted.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.datasets import load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from isometry.eval import knn_hits
from isometry.registry import Method, all_methods, get

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("ISOMETRY_DATA", ROOT.parent / "shared" / "data"))
RESULTS = ROOT / "docs" / "results" / "accuracy.md"
CACHE = ROOT / ".bench" / "accuracy.json"
EMBEDDED = {"iris": load_iris, "wine": load_wine}
SMALL = [
    *("balance", "breast_cancer_w", "bupa", "cleveland", "dermatology", "ecoli", "glass", "ionosphere", "iris"),
    *("newthyroid", "olive", "pima", "soybean", "vehicle", "wine", "zoo"),
]
N_FOLDS, N_NEIGHBORS, MARGIN = 5, 3, 0.02  # MARGIN: a method this far below Euclidean must say why
MIN_MEMBERS = 10  # rows of a class, if a set has so many classes that some are left out

Fold = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # X, y to learn from; X, y to test
Cell = dict[str, Any]  # accuracy, seconds and not_converged, one entry for each fold; failure


@dataclass(frozen=True)
class Protocol:
    """What is the same for every cell of the table."""

    rows: int
    dims: int
    limit: float  # seconds a fit may take


def contestants() -> list[Method]:
    """Classical methods on vectors, one row for each distinct estimator."""
    rows = [
        m
        for m in all_methods(kind="estimator")
        if m.family != "deep" and not {"matrix-samples", "histograms"} & set(m.traits)
    ]
    distinct: dict[tuple[str, str], Method] = {}
    for m in rows:
        distinct.setdefault((m.target, repr(sorted(m.make().get_params().items()))), m)
    return list(distinct.values())


def table(name: str) -> tuple[np.ndarray, np.ndarray]:
    if name in EMBEDDED:
        return EMBEDDED[name](return_X_y=True)
    with np.load(DATA / f"{name}.npz", allow_pickle=False) as arrays:
        return arrays["X"].astype(np.float64), arrays["y"]


def subsample(X: np.ndarray, y: np.ndarray, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """At most ``rows`` rows with the same class shares; of very many classes only as many as leave each some rows."""
    classes, most = np.unique(y), max(2, rows // MIN_MEMBERS)
    if len(classes) > most:
        keep = np.isin(y, np.random.default_rng(0).choice(classes, most, replace=False))
        X, y = X[keep], y[keep]
    if len(X) <= rows:
        return X, y
    X, _, y, _ = train_test_split(X, y, train_size=rows, stratify=y, random_state=0)
    return X, y


def folds(name: str, protocol: Protocol) -> list[Fold]:
    """The five splits of a set; scaler and projection see the training rows only."""
    X, y = subsample(*table(name), protocol.rows)
    splits = []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class")  # rare classes miss some folds
        for train, test in StratifiedKFold(N_FOLDS, shuffle=True, random_state=0).split(X, y):
            p = min(protocol.dims, len(train) - 1)
            steps = [StandardScaler()] + ([PCA(p, random_state=0)] if X.shape[1] > protocol.dims else [])
            prepare = make_pipeline(*steps).fit(X[train])
            splits.append((prepare.transform(X[train]), y[train], prepare.transform(X[test]), y[test]))
    return splits


def seeded(method: Method) -> Any:
    learner = method.make(**method.published)
    return learner.set_params(**{name: 0 for name in learner.get_params() if name.endswith("random_state")})


def work(key: str, splits: list[Fold], sink: Connection) -> None:
    """In a process of its own: send the outcome of each fold as soon as it is there."""
    for X, y, X_test, y_test in splits:
        outcome: Cell = {"accuracy": None, "not_converged": 0, "failure": ""}
        start = time.process_time()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                learner = seeded(get(key)).fit(X, y)
                outcome["seconds"] = time.process_time() - start
                outcome["accuracy"] = float(
                    knn_hits(learner.transform(X), y, learner.transform(X_test), y_test, N_NEIGHBORS).mean()
                )
            except Exception as error:  # whatever it is, it is reported and the table goes on
                outcome["failure"] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        outcome["not_converged"] = int(any(issubclass(w.category, ConvergenceWarning) for w in caught))
        sink.send(outcome)


def measure(method: Method, splits: list[Fold], limit: float) -> Cell:
    """One cell: all folds of a method on a set, ended at the first that fails or takes longer than the limit."""
    context = multiprocessing.get_context("forkserver")
    source, sink = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(method.key, splits, sink), daemon=True)
    process.start()
    sink.close()
    cell: Cell = {"accuracy": [], "seconds": [], "not_converged": 0, "failure": ""}
    for k in range(len(splits)):
        try:
            outcome = source.recv() if source.poll(limit) else {"failure": f"more than {limit:g} s"}
        except EOFError:
            outcome = {"failure": "the process died"}
        cell["not_converged"] += outcome.get("not_converged", 0)
        if outcome["failure"]:
            cell["failure"] = f"fold {k + 1}: {outcome['failure']}"
            break
        cell["accuracy"].append(outcome["accuracy"])
        cell["seconds"].append(outcome["seconds"])
    process.kill()
    process.join()
    return cell


@cache
def version(method: Method) -> str:
    """Changes with the parameters of a row and the module of its method, so that a stale cell is not found."""
    source = Path(inspect.getfile(method.load())).read_bytes() + repr(sorted(method.params.items())).encode()
    return hashlib.sha256(source).hexdigest()[:12]


def cell_name(method: Method, data: str, protocol: Protocol) -> str:
    return f"{data} {method.key} {protocol.rows} {protocol.dims} {protocol.limit:g} {version(method)}"


def fill(
    methods: list[Method], names: list[str], protocol: Protocol, jobs: int, cells: dict[str, Cell]
) -> Iterator[str]:
    """Measure what ``cells`` lacks, and yield each set as it is complete."""
    for name in names:
        missing = [m for m in methods if cell_name(m, name, protocol) not in cells]
        if missing:
            splits = folds(name, protocol)
            # threads only wait: each measures in a process that can be killed
            runs = Parallel(n_jobs=jobs, backend="threading", return_as="generator")(
                delayed(measure)(m, splits, protocol.limit) for m in missing
            )
            for m, cell in zip(missing, runs, strict=True):
                cells[cell_name(m, name, protocol)] = cell
                CACHE.parent.mkdir(exist_ok=True)
                CACHE.write_text(json.dumps(cells))
                if cell["failure"]:
                    print(f"{name}, {m.name}: {cell['failure']}", flush=True)
        yield name


def page(methods: list[Method], names: list[str], protocol: Protocol, cells: dict[str, Cell]) -> str:
    grid = {m.key: [cells[cell_name(m, name, protocol)] for name in names] for m in methods}
    scores = {
        key: np.array([np.nan if c["failure"] else np.mean(c["accuracy"]) for c in row]) for key, row in grid.items()
    }
    plain = scores["EUC"]
    change = {key: float(np.nanmean(s - plain)) if np.isfinite(s).any() else np.nan for key, s in scores.items()}
    ordered = sorted(methods, key=lambda m: -np.nan_to_num(change[m.key], nan=-np.inf))
    lines = [
        "# Accuracy",
        "",
        f"{N_NEIGHBORS}-nearest-neighbour accuracy in percent, mean of {N_FOLDS} stratified folds (shuffled, seed 0), "
        "features standardised on the training folds, every method with the settings of its paper and "
        '`random_state=0`: not with `reg="auto"`, the default of closed forms. '
        f"Sets with more than {protocol.rows} rows are subsampled to that number, class by class; sets with more than "
        f"{protocol.dims} features are projected on that many principal components. Nothing was tuned, so this is not "
        "what a method can reach: it is what the published method gives one who only names it. `make accuracy` writes "
        "this page.",
        "",
        "*Change* is the mean difference to Euclidean over the sets, in points. "
        f"A bold cell is best of its set; – : a fit failed or took more than {protocol.limit:g} s.",
        "",
        "| method | change | " + " | ".join(names) + " |",
        "|---|---:|" + "---:|" * len(names),
    ]
    best = np.nanmax(np.array([scores[m.key] for m in methods]), axis=0)
    for m in ordered:
        flag = " ▼" if change[m.key] < -MARGIN else ""
        figures = [
            "–" if np.isnan(s) else f"**{100 * s:.1f}**" if s >= b - 1e-12 else f"{100 * s:.1f}"
            for s, b in zip(scores[m.key], best, strict=True)
        ]
        lines.append(f"| {m.name}{flag} | {100 * change[m.key]:+.1f} | " + " | ".join(figures) + " |")
    lines += ["", *below(ordered, change), *falls(ordered, change, names, scores), *troubles(methods, names, grid)]
    lines += [
        "",
        "## Left out",
        "",
        "SPDGMML and GrassmannGMML learn from matrices, not vectors (see `examples/matrices.py`); deep methods need a "
        "network. Rows of the method table with the same estimator and parameters are measured once: "
        "`BayesianML[active]` and `ITML[online]` differ in what is called after `fit`.",
        "",
    ]
    return "\n".join(lines)


def below(methods: list[Method], change: dict[str, float]) -> list[str]:
    """The methods under Euclidean, with the reason the method table gives."""
    low = [m for m in methods if change[m.key] < -MARGIN]
    lines = [f"## ▼ More than {100 * MARGIN:g} points below Euclidean", ""]
    if not low:
        return [*lines, "None."]
    for m in low:
        reason = m.below_euclidean or "**The method table gives no reason.**"
        lines.append(f"- {m.name} ({100 * change[m.key]:+.1f}): {reason}")
    return lines


def falls(
    methods: list[Method], change: dict[str, float], names: list[str], scores: dict[str, np.ndarray]
) -> list[str]:
    """Of the other methods for which the table gives a reason, the sets where they fall most."""
    lines = []
    for m in methods:
        loss = scores["EUC"] - scores[m.key]
        worst = [k for k in np.argsort(-np.nan_to_num(loss), kind="stable")[:3] if loss[k] > MARGIN]
        if change[m.key] >= -MARGIN and m.below_euclidean and worst:
            where = ", ".join(f"{names[k]} {-100 * loss[k]:+.1f}" for k in worst)
            lines.append(f"- {m.name} ({where}): {m.below_euclidean}")
    title = f"## Not so on average, but by more than {100 * MARGIN:g} points on single sets"
    return ["", title, "", *lines] if lines else []


def troubles(methods: list[Method], names: list[str], grid: dict[str, list[Cell]]) -> list[str]:
    """Failures one by one, and how many fits ended with a ConvergenceWarning."""
    lines = ["", "## Failures", ""]
    failed = [(m, n, c) for m in methods for n, c in zip(names, grid[m.key], strict=True) if c["failure"]]
    lines += [f"- {m.name} on {n}, {c['failure']}" for m, n, c in failed] or ["None."]
    lines += ["", "## Fits that did not converge", ""]
    counts = {m.name: sum(c["not_converged"] for c in grid[m.key]) for m in methods}
    total = len(names) * N_FOLDS
    text = ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), key=lambda kv: -kv[1]) if count)
    return [*lines, f"Of {total} fits each, those that ended with a `ConvergenceWarning`: {text or 'none'}."]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=["all"], help="names, 'small' or 'all' (default)")
    parser.add_argument("--rows", type=int, default=400, help="larger sets are subsampled (default 400)")
    parser.add_argument("--dims", type=int, default=50, help="wider sets are projected by PCA (default 50)")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds a fit may take (default 60)")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time (default 1)")
    parser.add_argument("--fresh", action="store_true", help="forget finished cells: use it after a change in core")
    args = parser.parse_args()
    if not DATA.is_dir():
        print(
            "Nothing measured: no data sets were found. Set ISOMETRY_DATA to a folder of .npz files with arrays X and "
            "y, or put them in shared/data beside the checkout."
        )
        return 0
    everything = sorted({*EMBEDDED, *(path.stem for path in DATA.glob("*.npz"))})
    names = list(dict.fromkeys(n for word in args.sets for n in {"all": everything, "small": SMALL}.get(word, [word])))
    unknown = [n for n in names if n not in everything]
    if unknown:
        parser.error(f"no set is called {', '.join(unknown)}; there are {', '.join(everything)}, 'small' and 'all'")
    protocol, methods = Protocol(args.rows, args.dims, args.limit), contestants()
    shared = {"isometry.eval", "sklearn.datasets", "sklearn.pipeline", *(m.target.split(":")[0] for m in methods)}
    multiprocessing.get_context("forkserver").set_forkserver_preload(sorted(shared))  # imported once, not in every cell
    cells = json.loads(CACHE.read_text()) if CACHE.is_file() and not args.fresh else {}
    done: list[str] = []
    for name in fill(methods, names, protocol, args.jobs, cells):
        done.append(name)
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(page(methods, done, protocol, cells))
        print(f"{name} is complete ({len(done)} of {len(names)})", flush=True)
    print(f"written: {RESULTS.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
