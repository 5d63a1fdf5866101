"""Embeddings of 10,000 rows, tables of 100,000, and two threads: what a fit costs, now, before, and in the peer.

    python -m benchmarks.large                        all tables, as `make bench` prints and stores them
    python -m benchmarks.large --only threads         one of them; the sections are listed in SECTIONS
    python -m benchmarks.large --methods NCA PCCA     some methods alone
    python -m benchmarks.large --sides now            without the version before, the published methods and the peer
    python -m benchmarks.large --features 384         one size of embeddings
    python -m benchmarks.large --write                put the tables in the place of those in docs/results/speed.md

Seconds are CPU seconds of one thread but where threads are compared, and of `compare`: there they are those of the
clock, so that the machine must be idle.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.contests import clouds
from benchmarks.environments import BEFORE, BEFORE_COMMIT, HOME, OURS, Outcome, measure
from benchmarks.tables import DATA
from isometry.core.distance import sqdist
from isometry.eval.retrieval_scores import map_at_r

SECTIONS = ("embeddings", "rows", "threads", "moments", "compare", "trainer", "batches", "bounds")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "speed.md"
METHODS = ("NCA", "FastNCA", "LMNN", "ITML", "PCCA", "MCML", "LDML")
SIDES = ("now", "published", "before", "peer")
MANY_ROWS = ("NCA", "FastNCA", "LMNN")
THREADED = {  # name → call, parameters, shape of the data
    "NCA, 5 iterations": ("isometry", {"name": "NCA", "strength": 1.0, "max_iter": 5}, (8_000, 128)),
    "LMNN, 5 iterations": ("isometry", {"name": "LMNN", "strength": 1.0, "max_iter": 5}, (8_000, 128)),
    "MCML, 5 iterations": ("isometry", {"name": "MCML", "strength": 1.0, "max_iter": 5}, (8_000, 128)),
    "retrieval metrics": ("isometry_retrieval", {}, (20_000, 128)),
    "NCALoss, 200 batches of 1,024": ("isometry_batch_loss", {"name": "NCALoss", "times": 200}, (1_024, 128)),
}
SMALL = ("Contrastive", "NCA", "N-pair", "Triplet, all", "Multi-similarity", "InfoNCE", "Proxy-NCA++", "ArcFace")
EVALUATED = {  # name → p, products of all pairs (times n² p), bytes kept of a pair of rows, rows gathered for each row
    "NCA": (0, 3, 4, 0),
    "MCML": (0, 3, 4, 0),
    "LMNN": (0, 1, 0, 0),
    "FastNCA": (0, 0, 0, 20),
    "ITML": (0, 0, 0, 20),
    "LDML": (0, 0, 0, 20),
    "PCCA": (40, 0, 0, 20),
}
FITTED = 10_000  # rows of the embeddings that are fitted; the others are held out
HELD = 3_000
EXPLANATION = """
Sentence embeddings (banking77, MiniLM, 384 features, float32, 77 classes): {fitted:,} rows are fitted, the other 3,083
are held out. The table of 768 features has the same rows and as many rectified random projections, rotated.
"now" is `fit` with defaults, "strength=1" the published method, "before" the defaults of commit {commit}; these and
the peer, of which 50 iterations are asked, are measured at the first size alone. Accuracy is that of three neighbours
among the fitted rows, MAP@R that of held-out rows among one another.
"""
ROWS_EXPLANATION = """
Synthetic embeddings of 128 features: 100 classes of three modes each, in a third of the directions, and noise with a
falling spectrum in all of them. Accuracy is that of three neighbours of 3,000 rows held out, among the same 10,000 rows
in every line of the table, so that only the metric differs. None of these were fitted: a metric learned from few rows
draws these very rows together, and would be flattered by a search among them.
"""
MOMENTS_EXPLANATION = """
Closed forms of 1,000,000 × 128 float32 rows, 100 classes, beside one product XᵀX of the same rows on one core. The rows
are in a mapped file; Dask has a thread for each of two cores, BLAS one thread. The ratio is that of CPU seconds to
those of the product. The best of three runs each.
"""
COMPARE_EXPLANATION = """
`isometry compare banking.npz` with default flags, 10,000 × 384 float32 sentence embeddings of 77 classes, all cores of
the machine free. Each line it wrote with the seconds of the clock when it came; what it said was left beside what was
left.
"""
TRAINER_EXPLANATION = """
CPU milliseconds of a step of one thread beside a loop written by hand, the median of a run and the least of the rounds,
which take turns in one process. Both have the same batches, network, loss and learning rates. The first loop takes
`torch.optim.AdamW` as it comes, the second with `fused=True`, as the trainer does on a CPU.
"""
BATCHES_EXPLANATION = """
Forward and backward of small batches of 128 dimensions, four samples of a class, one thread: CPU milliseconds, the
least of rounds in which ours and those of pytorch-metric-learning take turns. [All losses](deep_speed.md).
"""
BOUNDS_EXPLANATION = """
One evaluation of value and gradient at the start, on one thread, 10,000 × 384 float32 embeddings, 200,000 pairs where
pairs are listed, beside what the machine does: products of float32 matrices of 2,048 × 2,048, and copies of 256 MiB.
What an evaluation needs at least is counted: products of maps and gradients, 4 n p d, and of all pairs of rows, 3 n² p
for neighbour probabilities and n² p for a search for impostors; and bytes that do not fit in the cache: exponentials
that are kept and read again, 4 n², and rows of neighbours and pairs that are gathered, 16 p a pair. The last column is
the time that both together would take at the speed of the machine, as a share of the time that was taken: the rest are
exponentials, sums and masks of numbers in the cache, and calls.
"""


def banking(d: int) -> tuple[np.ndarray, np.ndarray]:
    """Sentence embeddings of 384 features, or 768 with random ones, in a random order."""
    with np.load(DATA / "banking77_minilm.npz", allow_pickle=False) as arrays:
        X, y = arrays["X"].astype(np.float32), arrays["y"]
    rng = np.random.RandomState(0)
    if d > X.shape[1]:
        H = np.maximum(X @ rng.standard_normal((X.shape[1], d - X.shape[1])).astype(np.float32), 0)
        X = np.hstack([X, H / np.linalg.norm(H, axis=1, keepdims=True)])
        X = X @ np.linalg.qr(rng.standard_normal((d, d)))[0].astype(np.float32)
    order = rng.permutation(len(X))
    return X[order], y[order]


def embeddings(n: int, d: int = 128, classes: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """Rows like those of a network: classes of three modes in a third of the directions, noise in all of them."""
    rng = np.random.default_rng(0)
    signal = d // 3
    falling = np.linspace(1.0, 0.4, signal)
    centres = np.repeat(rng.standard_normal((classes, signal)), 3, axis=0) + rng.standard_normal((3 * classes, signal))
    noise = 2.3 / np.sqrt(1 + np.arange(d))
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    y = rng.integers(0, classes, n)
    X = (rng.standard_normal((n, d), dtype=np.float32) * noise.astype(np.float32)) @ turn.astype(np.float32)
    X += 0.6 * rng.standard_normal((n, d), dtype=np.float32)
    X[:, :signal] += (0.8 * falling * centres)[3 * y + rng.integers(0, 3, n)].astype(np.float32)
    return X, y


def folder_of(name: str, X: np.ndarray, y: np.ndarray) -> Path:
    """The folder with X.npy and y.npy that a worker reads."""
    folder = HOME / "data" / name
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "X.npy", np.ascontiguousarray(X))
    np.save(folder / "y.npy", y.astype(np.int64))
    return folder


def accuracy(L: np.ndarray, X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> float:
    """Of a vote of three neighbours."""
    L = L.astype(X.dtype)
    return float(KNeighborsClassifier(3, algorithm="brute").fit(X @ L.T, y).score(X_test @ L.T, y_test))


def mean_map_at_r(L: np.ndarray, X: np.ndarray, y: np.ndarray) -> float:
    """Of the rows among one another."""
    Z = X @ L.T.astype(X.dtype)
    D = sqdist(Z - Z.mean(axis=0))
    np.fill_diagonal(D, np.inf)
    R = np.bincount(y)[y] - 1
    near = np.argsort(D, axis=1)[:, : R.max()]
    return float(np.mean(map_at_r(y[near] == y[:, None], R)))


def cells(outcome: Outcome, first: Outcome) -> list[str]:
    """Seconds, ratio, MiB, or what failed."""
    if outcome.failure:
        return [f"**{outcome.failure}**", "", ""]
    ratio = "" if outcome is first or not np.isfinite(first.cpu) else f"{outcome.cpu / first.cpu:.2g} ×"
    return [f"{outcome.cpu:.1f}", ratio, f"{outcome.mib:,.0f}"]


def line(*values: str) -> str:
    return "| " + " | ".join(values) + " |"


def embedding_tables(
    methods: list[str], sides_shown: Sequence[str], limit: float, sizes: Sequence[int] = (384, 768)
) -> Iterator[str]:
    yield from ("", "## Embeddings in a minute", "")
    yield from EXPLANATION.strip().format(fitted=FITTED, commit=BEFORE_COMMIT).splitlines()
    for d in sizes:
        X, y = banking(d)
        (X, X_test), (y, y_test) = (np.split(array, [FITTED]) for array in (X, y))
        folder, eye = folder_of(f"banking_{d}", X, y), np.eye(d)
        yield from ("", f"### {FITTED:,} × {d}", "", line("", "s", "to now", "MiB", "3-NN ↑", "MAP@R ↑"))
        yield "|---|--:|--:|--:|--:|--:|"
        plain = accuracy(eye, X, y, X_test, y_test), mean_map_at_r(eye, X_test, y_test)
        yield line("Euclidean distance", "", "", "", *(f"{value:.4f}" for value in plain))
        for name in methods:
            seed: dict[str, Any] = {"name": name, "random_state": 0}
            sides = {
                "now": (f"{name}, now", OURS, "isometry", seed),
                "published": (f"{name}, strength=1", OURS, "isometry", {**seed, "strength": 1.0}),
                "before": (f"{name}, before", BEFORE, "isometry", seed),
            }
            if name == "NCA":
                sides["peer"] = "scikit-learn NCA", OURS, "scikit_learn_nca", {"random_state": 0, "max_iter": 50}
            first: Outcome | None = None
            shown = sides_shown if d == sizes[0] else ("now",)  # the others take minutes, and one size tells enough
            for label, environment, call, params in (side for key, side in sides.items() if key in shown):
                outcome = measure(environment, call, params, folder, limit=limit)
                first = first or outcome
                found = ["–", "–"]
                if outcome.L is not None and not outcome.failure:
                    L = outcome.L
                    found = [f"{accuracy(L, X, y, X_test, y_test):.4f}", f"{mean_map_at_r(L, X_test, y_test):.4f}"]
                yield line(label, *cells(outcome, first), *found)


def row_tables(methods: list[str], limit: float, threads: int) -> Iterator[str]:
    yield from ("", "## Many rows", "", *ROWS_EXPLANATION.strip().splitlines(), "")
    X, y = embeddings(100_000 + FITTED + HELD)
    (X, X_few, X_test), (y, y_few, y_test) = (np.split(array, [100_000, 100_000 + FITTED]) for array in (X, y))
    yield line("", "rows", "s", "clock", "MiB", "3-NN ↑")
    yield "|---|--:|--:|--:|--:|--:|"
    few = X_few, y_few
    yield line("Euclidean distance", "", "", "", "", f"{accuracy(np.eye(128), *few, X_test, y_test):.4f}")
    for name in methods:
        for n in (FITTED, 100_000):
            folder = folder_of(f"rows_{n}", X[:n], y[:n])
            outcome = measure(OURS, "isometry", {"name": name, "random_state": 0}, folder, limit=limit, threads=threads)
            found = "–" if outcome.L is None or outcome.failure else f"{accuracy(outcome.L, *few, X_test, y_test):.4f}"
            seconds = [outcome.failure, "", ""]
            if not outcome.failure:
                seconds = [f"{outcome.cpu:.0f}", f"{outcome.wall:.0f}", f"{outcome.mib:,.0f}"]
            yield line(name, f"{n:,}", *seconds, found)


def thread_table(limit: float) -> Iterator[str]:
    yield from (
        "",
        "## Two threads",
        "",
        "Seconds of the clock with one and with two threads in turn, the best of three runs each.",
        "",
    )
    yield line("", "one", "two", "ratio")
    yield "|---|--:|--:|--:|"
    for name, (call, params, (n, d)) in THREADED.items():
        folder = folder_of(f"threads_{n}x{d}", *embeddings(n, d, 50))
        found = [
            [measure(OURS, call, params, folder, limit=limit, threads=threads).wall for threads in (1, 2)]
            for _ in range(3)
        ]
        clock = np.min(found, axis=0)
        yield line(name, *(f"{seconds:.2f}" for seconds in clock), f"{clock[0] / clock[1]:.2f} ×")


def moment_tables(limit: float) -> Iterator[str]:
    yield from ("", "## Moments on Dask", "", *MOMENTS_EXPLANATION.strip().splitlines(), "")
    yield line("", "CPU s", "to one product", "clock", "MiB")
    yield "|---|--:|--:|--:|--:|"
    folder = folder_of("clouds_1000000x128", *clouds(1_000_000, 128, 100))

    def best(call: str, **params: Any) -> Outcome:
        found = [measure(OURS, call, params, folder, mapped=True, limit=limit) for _ in range(3)]
        return min(found, key=lambda outcome: outcome.cpu)

    first = best("product")
    yield line("one product XᵀX", f"{first.cpu:.2f}", "", f"{first.wall:.2f}", f"{first.mib:,.0f}")
    for name in ("GMML", "RCA"):
        for label, found in (
            (f"{name}, mapped file", best("isometry", name=name)),
            *(
                (f"{name}, Dask, chunks of {rows:,} rows", best("isometry_chunks", name=name, rows=rows))
                for rows in (50_000, 125_000)
            ),
        ):
            cells = [f"{found.cpu:.2f}", f"{found.cpu / first.cpu:.2f} ×", f"{found.wall:.2f}", f"{found.mib:,.0f}"]
            yield line(label, *cells)


def compare_table(limit: float) -> Iterator[str]:
    """What the command line says while it compares, and when it says so."""
    yield from ("", "## A comparison of embeddings", "", *COMPARE_EXPLANATION.strip().splitlines(), "")
    X, y = banking(384)
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "banking.npz", X=X[:FITTED], y=y[:FITTED])
        command = [sys.executable, "-u", "-m", "isometry.cli", "compare", "banking.npz"]
        began = time.monotonic()
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(HOME.parent), "PYTHONUNBUFFERED": "1"},
        )
        assert process.stderr is not None
        said = [(time.monotonic() - began, text.strip()) for text in process.stderr]
        code = process.wait(limit)
    total = time.monotonic() - began
    yield line("s", "said", "left, s")
    yield "|--:|---|--:|"
    for seconds, text in said:
        if text and ("fold" in text or "metrics on" in text or "slow" in text):
            yield line(f"{seconds:.1f}", text, f"{total - seconds:.1f}")
    yield line(f"{total:.1f}", "end" if code == 0 else f"ended with code {code}", "")


def trainer_table() -> Iterator[str]:
    from benchmarks.training_loop import table

    yield from ("", "## The trainer beside a loop written by hand", "", *TRAINER_EXPLANATION.strip().splitlines(), "")
    yield from table(steps=200, rounds=4)


def batch_table() -> Iterator[str]:
    import torch

    from benchmarks.deep_losses import CONTESTS, compare, row

    yield from ("", "## Small batches", "", *BATCHES_EXPLANATION.strip().splitlines(), "")
    yield line("loss", "B", "ours, ms", "theirs, ms", "theirs to ours", "MiB ours / theirs")
    yield "|---|--:|--:|--:|--:|--:|"
    torch.set_num_threads(1)
    for title in SMALL:
        assert title in CONTESTS
        for (name, size), both in compare(title, (64, 128), 0.4).items():
            yield row(name, size, both)


def bounds_table(limit: float) -> Iterator[str]:
    yield from ("", "## What bounds it", "", *BOUNDS_EXPLANATION.strip().splitlines(), "")
    X, y = banking(384)
    n, d = FITTED, X.shape[1]
    folder = folder_of("banking_384", X[:n], y[:n])
    speed = {}
    yield line("machine", "products, GFLOP/s", "copies, GB/s")
    yield "|---|--:|--:|"
    for threads in (1, 2):
        speed[threads] = measure(OURS, "machine", {}, folder, limit=limit, threads=threads).figures
        cells = [f"{speed[threads][key]:.1f}" for key in ("gflops", "gbs")]
        yield line(f"{threads} thread{'s' * (threads > 1)}", *cells)
    peak = speed[1]
    yield from ("", line("", "s", "GFLOP", "GFLOP/s", "to the peak", "GB", "least, s", "share of the time"))
    yield "|---|--:|--:|--:|--:|--:|--:|--:|"
    for name, (p, all_pairs, kept, gathered) in EVALUATED.items():
        p = p or d
        cpu = min(
            measure(OURS, "isometry_steps", {"name": name, "times": 3}, folder, limit=limit).cpu for _ in range(2)
        )
        gflop, gb = (4 * n * p * d + all_pairs * n**2 * p) / 1e9, (kept * n**2 + 16 * p * gathered * n) / 1e9
        yield bound(name, cpu / 3, gflop, gb, peak)
    X, y = embeddings(20_000, 128, 50)
    found = measure(OURS, "isometry_retrieval", {}, folder_of("threads_20000x128", X, y), limit=limit)
    yield bound("retrieval metrics, 20,000 × 128", found.cpu, 2 * 20_000**2 * 128 / 1e9, 0.0, peak)


def bound(name: str, seconds: float, gflop: float, gb: float, peak: dict[str, float]) -> str:
    """A line: what was taken, beside what the products and the memory traffic take at the speed of the machine."""
    least = gflop / peak["gflops"] + gb / peak["gbs"]
    rate = gflop / seconds
    cells = [f"{seconds:.3f}", f"{gflop:.0f}", f"{rate:.0f}", f"{rate / peak['gflops']:.0%}", f"{gb:.1f}"]
    return line(name, *cells, f"{least:.3f}", f"{least / seconds:.0%}")


def large(
    only: Sequence[str],
    methods: list[str],
    limit: float,
    sides: Sequence[str] = SIDES,
    sizes: Sequence[int] = (384, 768),
) -> Iterator[str]:
    """The lines of all tables."""
    if "embeddings" in only:
        yield from embedding_tables([name for name in METHODS if name in methods], sides, limit, sizes)
    if "rows" in only:
        yield from row_tables([name for name in MANY_ROWS if name in methods], limit, threads=2)
    if "threads" in only:
        yield from thread_table(limit)
    if "moments" in only:
        yield from moment_tables(limit)
    if "compare" in only:
        yield from compare_table(limit)
    if "trainer" in only:
        yield from trainer_table()
    if "batches" in only:
        yield from batch_table()
    if "bounds" in only:
        yield from bounds_table(limit)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(SECTIONS), choices=SECTIONS)
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--limit", type=float, default=600, help="seconds of the clock a fit may take")
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=SIDES)
    parser.add_argument("--features", type=int, nargs="+", default=[384, 768], help="of the embeddings")
    parser.add_argument("--write", action="store_true", help="into docs/results/speed.md")
    args = parser.parse_args()
    lines = []
    for text in large(args.only, args.methods, args.limit, args.sides, args.features):
        print(text, flush=True)
        lines.append(text)
    if args.write:
        given = " ".join(word for word in sys.argv[1:] if word != "--write")
        PAGE.write_text(
            with_sections(
                PAGE.read_text(), lines, f"Measured by `python -m benchmarks.large {given}`.".replace(" `.", "`.")
            )
        )
    return 0


def with_sections(page: str, lines: list[str], remark: str) -> str:
    """The page with these sections in place of those of the same title, or at its end, each with a remark first."""
    for section in re.split(r"\n(?=## )", "\n".join(lines).strip()):
        title, _, rest = section.partition("\n")
        text = f"{title}\n\n{remark}\n{rest.rstrip()}\n\n"
        old = re.compile(rf"^{re.escape(title)}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
        page = old.sub(lambda _, text=text: text, page) if old.search(page) else f"{page.rstrip()}\n\n{text}"
    return page.rstrip() + "\n"


if __name__ == "__main__":
    sys.exit(main())
