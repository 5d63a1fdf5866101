"""Deep losses beside pytorch-metric-learning: forward and backward, one thread, one process a measurement.

`python -m benchmarks.deep_losses [--quick]` writes docs/results/deep_speed.md. The claim is the ratio, not the
milliseconds: those belong to the machine. Run as a script in either environment, this file is the measured process.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import textwrap
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results" / "deep_speed.md"
DIMENSION, PER_CLASS, MEMORY, PROXIES = 128, 4, 4096, 256
SIZES, QUICK = (64, 128, 256, 512, 1024, 2048, 4096), (64, 256)
TIMEOUT, MEMORY_LIMIT = 120, 10 << 30  # seconds and bytes for one measurement
PEER = "pytorch-metric-learning"

# The same quantity on both sides, except where the last entry says what differs.
CONTESTS = {
    "normalise, cdist, mean (floor)": ("floor", "floor", ""),
    "Contrastive": (
        "Contrastive(squared_hinge=False, balanced=True, normalize=True)",
        "losses.ContrastiveLoss()",
        "theirs averages over non-zero terms",
    ),
    "Triplet, all": ("Triplet(0.05, distance='euclidean')", "losses.TripletMarginLoss()", ""),
    "Triplet, batch-hard": (
        "Triplet(0.05, distance='euclidean', miner=BatchHard())",
        "mined(losses.TripletMarginLoss(), miners.BatchHardMiner())",
        "",
    ),
    "Triplet, semi-hard": (
        "Triplet(0.2, distance='euclidean', miner=BatchSemiHard())",
        "mined(losses.TripletMarginLoss(0.2), miners.TripletMarginMiner(0.2, type_of_triplets='semihard'))",
        "ours: the nearest semi-hard negative of each positive pair; theirs: all within the margin",
    ),
    "Triplet, easy positive, hard negative": (
        "Triplet(0.05, distance='euclidean', miner=EasyPositive('hard'))",
        "mined(losses.TripletMarginLoss(), miners.BatchEasyHardMiner('easy', 'hard'))",
        "",
    ),
    "Triplet, distance-weighted": (
        f"Triplet(0.05, distance='euclidean', miner=DistanceWeighted({DIMENSION}, random_state=0))",
        "mined(losses.TripletMarginLoss(), miners.DistanceWeightedMiner())",
        "theirs loses anchors to underflow",
    ),
    "Lifted structure": ("Lifted(normalize=True)", "losses.LiftedStructureLoss(pos_margin=0)", ""),
    "Lifted, generalised": (
        "Lifted(form='generalized', normalize=True)",
        "losses.GeneralizedLiftedStructureLoss()",
        "",
    ),
    "NCA": ("NCALoss(normalize=True)", "losses.NCALoss()", ""),
    "Proxy-NCA++": (f"ProxyNCAPlusPlus(C, {DIMENSION})", f"losses.ProxyNCALoss(C, {DIMENSION}, softmax_scale=9)", ""),
    "SoftTriple": (f"SoftTriple(C, {DIMENSION})", f"losses.SoftTripleLoss(C, {DIMENSION})", "ours regularises centres"),
    "Angular": ("Angular(alpha=40)", "losses.AngularLoss()", ""),
    "N-pair": ("NPair(pairs='one', l2_reg=0, normalize=True)", "losses.NPairsLoss()", ""),
    "Margin": ("MarginLoss()", "losses.MarginLoss()", "ours: all pairs; theirs: all triplets"),
    f"Memory of {MEMORY}, contrastive": (
        f"CrossBatchMemory(Contrastive(squared_hinge=False, balanced=True, normalize=True), {DIMENSION}, {MEMORY})",
        f"losses.CrossBatchMemory(losses.ContrastiveLoss(), {DIMENSION}, {MEMORY})",
        "ours adds the loss of the batch itself; terms as above",
    ),
    f"Memory of {MEMORY}, semi-hard triplets": (
        f"CrossBatchMemory(Triplet(0.2, distance='euclidean', miner=BatchSemiHard()), {DIMENSION}, {MEMORY})",
        f"losses.CrossBatchMemory(losses.TripletMarginLoss(0.2), {DIMENSION}, {MEMORY}, "
        "miner=miners.TripletMarginMiner(0.2, type_of_triplets='semihard'))",
        "ours adds the loss of the batch itself; triplets as above",
    ),
}


# -- the measured process ----------------------------------------------------------------------------------------------


def measure(job: dict) -> dict:
    """CPU milliseconds of forward and backward, and the growth of the process, of one loss at one batch size."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    B = job["size"]
    loss = build(job["loss"], job["ours"], max(PROXIES, B // PER_CLASS))
    y = torch.arange(B) // PER_CLASS
    z = torch.randn(B, DIMENSION) + 0.5 * torch.randn(B // PER_CLASS, DIMENSION)[y]
    fill_memory(loss, z.detach(), y)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_LIMIT, MEMORY_LIMIT))
    times: list[float] = []
    while len(times) < 3 or (sum(times) < job["seconds"] and len(times) < 50):
        leaf = z.clone().requires_grad_()
        start = time.process_time()
        loss(leaf, y).backward()
        times.append(time.process_time() - start)
        if sum(times) > 20:
            break  # one run says enough
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"ms": 1000 * statistics.median(times[1:] or times), "mib": growth / 1024}


def build(expression: str, ours: bool, n_classes: int):
    """The loss that an expression of CONTESTS describes."""
    import torch

    if expression == "floor":
        return lambda z, y: torch.cdist(*[torch.nn.functional.normalize(z)] * 2).mean()
    if ours:
        import isometry.deep

        return eval(expression, {**vars(isometry.deep), "C": n_classes})
    from pytorch_metric_learning import losses, miners

    def mined(loss, miner):
        return lambda z, y: loss(z, y, miner(z, y))

    return eval(expression, {"losses": losses, "miners": miners, "mined": mined, "C": n_classes})


def fill_memory(loss, z, y) -> None:
    """Let a memory see batches until it is full."""
    import torch

    append = getattr(loss, "enqueue", None) or getattr(loss, "add_to_memory", None)
    if append is not None:
        for _ in range(-(-MEMORY // len(z))):
            batch = z + 0.1 * torch.randn_like(z), y
            append(*batch) if hasattr(loss, "enqueue") else append(*batch, len(z))


# -- the comparison ----------------------------------------------------------------------------------------------------


def run(executable: str, loss: str, ours: bool, size: int, seconds: float) -> dict:
    """One measurement in a process of its own, or why there is none."""
    job = json.dumps({"loss": loss, "ours": ours, "size": size, "seconds": seconds})
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT) if ours else ""}
    command = [executable, str(Path(__file__)), "--measure", job]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, env=environment, check=False)
    except subprocess.TimeoutExpired:
        return {"failure": f"> {TIMEOUT} s"}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["killed"])[-1]
        memory = "memory" in last.lower() or "alloc" in last.lower() or done.returncode < 0
        return {"failure": f"> {MEMORY_LIMIT >> 30} GiB" if memory else last[:80]}
    return json.loads(done.stdout)


def row(title: str, size: int, ours: dict, theirs: dict) -> str:
    def cells(key: str, form: str) -> list[str]:
        return [o.get("failure") or format(o[key], form) for o in (ours, theirs)]

    ratio = f"**{theirs['ms'] / ours['ms']:.1f} ×**" if "ms" in ours and "ms" in theirs else ""
    return "| " + " | ".join([title, str(size), *cells("ms", ".3g"), ratio, " / ".join(cells("mib", ".0f"))]) + " |"


def page(rows: list[str]) -> str:
    setting = (
        f"Forward and backward of one batch of B embeddings in {DIMENSION} dimensions, {PER_CLASS} of each class, "
        "float32, one thread: median CPU milliseconds, and growth of the process in MiB, ours and those of "
        f"pytorch-metric-learning 2.9.0. Losses with proxies have {PROXIES} classes, or those of the batch if more. "
        f"Each measurement has a process of its own and at most {TIMEOUT} s and "
        f"{MEMORY_LIMIT >> 30} GiB. The ratio is theirs to ours. Both sides compute the same quantity, except:"
    )
    return "\n".join(
        [
            "# Deep losses: speed and memory, side by side",
            "",
            "<!-- written by benchmarks/deep_losses.py -->",
            "",
            *textwrap.wrap(setting, 120),
            "",
            *(f"- {title}: {note}." for title, (_, _, note) in CONTESTS.items() if note),
            "",
            "| loss | B | ours, ms | theirs, ms | ratio | MiB ours / theirs |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"B = {QUICK} only; prints, does not write the page")
    parser.add_argument("--sizes", type=int, nargs="*", help="other batch sizes")
    parser.add_argument("--only", nargs="*", default=[], help="losses whose title contains one of these words")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(json.loads(arguments.measure))))
        return 0
    from benchmarks.environments import python

    peer, rows = str(python(PEER)), []
    for title, (ours, theirs, _) in CONTESTS.items():
        if arguments.only and not any(word.lower() in title.lower() for word in arguments.only):
            continue
        hopeless = None  # once the peer has failed at a size, larger ones would fail too
        for size in arguments.sizes or (QUICK if arguments.quick else SIZES):
            seconds = 0.3 if arguments.quick else 1.0
            mine = run(sys.executable, ours, True, size, seconds)
            other = hopeless or run(peer, theirs, False, size, seconds)
            hopeless = other if "failure" in other else None
            rows.append(row(title, size, mine, other))
            print(rows[-1], flush=True)
    if not arguments.quick and not arguments.only:
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(page(rows))
        print(f"written: {RESULTS.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
