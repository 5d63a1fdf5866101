"""Exact search beside scikit-learn's brute force and FAISS, and the approximate engines: CPU seconds, memory, recall.

`python -m benchmarks.search [--quick]` writes docs/results/search.md. Every measurement has a process of its own, and
one thread. Needs faiss-cpu, one of the test requirements.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results" / "search.md"
K = 10
SIZES = {"100,000 × 128": (100_000, 128, 1_000), "10,000 × 384": (10_000, 384, 1_000)}
QUICK = {"5,000 × 32": (5_000, 32, 500)}
EXACT = ("Index, exact", "scikit-learn, brute force", "FAISS, flat")
OTHERS = ("Index, faiss-ivf", "Index, faiss-hnsw", "Index, float16", "Index, int8", "Index, binary")


def make_rows(n: int, d: int, m: int) -> tuple[Any, Any]:
    """Clustered rows, as embeddings are, and queries of the same kind."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(n // 100, d)).astype(np.float32)
    X = centres[rng.integers(len(centres), size=n + m)] + 0.7 * rng.normal(size=(n + m, d)).astype(np.float32)
    return X[:n], X[n:]


def build(side: str, X: Any) -> Any:
    """A function of queries and k that gives row numbers."""
    if side.startswith("scikit-learn"):
        from sklearn.neighbors import NearestNeighbors

        brute = NearestNeighbors(algorithm="brute").fit(X)
        return lambda Q, k: brute.kneighbors(Q, k, return_distance=False)
    if side == "FAISS, flat":
        import faiss

        flat = faiss.IndexFlatL2(X.shape[1])
        flat.add(X)
        return lambda Q, k: flat.search(Q, k)[1]
    from isometry import Index

    kind = side.partition(", ")[2]
    options = {"engine": kind} if kind == "exact" or kind.startswith("faiss") else {"quantizer": kind}
    index = Index(**options).fit(X)
    return lambda Q, k: index.search(Q, k).ids


def peak_memory() -> float:
    """MiB at most so far, of this program; getrusage would count that of the process it was started by, too."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def measure(side: str, folder: str) -> dict[str, Any]:
    """In a process of its own: CPU seconds to build, search many and search one; growth of memory in MiB; answers."""
    X, Q = (np.load(Path(folder) / f"{name}.npy") for name in "XQ")
    build(side, X[:200])(Q[:1], 1)  # imports and first calls
    before = peak_memory()
    start = time.process_time()
    search = build(side, X)
    search(Q[:1], K)  # an engine may be made at the first search
    built = time.process_time()
    found = search(Q, K)
    many = time.process_time()
    for q in range(20):
        search(Q[q : q + 1], K)
    one = time.process_time()
    memory = peak_memory() - before
    seconds = {"build": built - start, "many": many - built, "one": (one - many) / 20}
    return {**seconds, "memory": memory, "found": found[:200].tolist()}


def in_process(side: str, folder: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.search", "--measure", side, folder]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def page(quick: bool) -> str:
    lines = [
        *("# Search: speed, memory and recall", "", "<!-- written by benchmarks/search.py -->", ""),
        f"The {K} nearest of clustered random rows in float32, one thread, each side in a process of its own: CPU",
        "seconds to build the index and answer one query, to answer all queries, milliseconds for one further query,",
        f"growth of memory in MiB, and the share of the {K} nearest that is found. `Index` stays within scikit-learn's",
        "`working_memory`, of which a block takes a sixteenth; what it finds does not depend on rounding in products.",
    ]
    for title, sizes in (QUICK if quick else SIZES).items():
        lines += [
            *("", f"## {title}, {sizes[2]:,} queries", ""),
            "| | build s | all queries s | one query ms | MiB | found |",
            "|---|--:|--:|--:|--:|--:|",
        ]
        truth: list[set[int]] = []
        folder = tempfile.mkdtemp()
        for name, rows in zip("XQ", make_rows(*sizes), strict=True):
            np.save(Path(folder) / f"{name}.npy", rows)
        for side in (*EXACT, *OTHERS):
            got = in_process(side, folder)
            answers = [set(row) for row in got["found"]]
            truth = truth or answers
            found = sum(len(a & b) for a, b in zip(answers, truth, strict=True)) / (K * len(truth))
            cells = f"{got['build']:.2f} | {got['many']:.2f} | {1000 * got['one']:.1f} | {got['memory']:.0f}"
            lines.append(f"| {side} | {cells} | {found:.3f} |")
            print(lines[-1], flush=True)
        shutil.rmtree(folder)
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, printed and not written")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(*arguments.measure)))
        return
    text = page(arguments.quick)
    if not arguments.quick:
        RESULTS.write_text(text, "utf-8")
        print(RESULTS)


if __name__ == "__main__":
    main()
