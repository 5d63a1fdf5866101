"""Deep losses beside pytorch-metric-learning: forward and backward, one thread, both sides in turn.

`python -m benchmarks.deep_losses [--quick]` writes docs/results/deep_speed.md, loss by loss; `--add` keeps what the
page has, `--threads` measures ours with two threads and keeps the rest of the page. The claim is the ratio, not the
milliseconds: those belong to the machine. Needs pytorch-metric-learning 2.9.0, one of the test requirements.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results" / "deep_speed.md"
DIMENSION, PER_CLASS, MEMORY, PROXIES = 128, 4, 4096, 256
SIZES, QUICK = (64, 128, 256, 512, 1024, 4096), (64, 256)
THREADED = (1024, 4096)  # the sizes that are measured with two threads too
TIMEOUT, MEMORY_LIMIT = 90, 4 << 30  # seconds and bytes for one measurement

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
    "SoftTriple": (f"SoftTriple(C, {DIMENSION}, tau=0)", f"losses.SoftTripleLoss(C, {DIMENSION})", ""),
    "SoftTriple, centres regularised": (
        f"SoftTriple(C, {DIMENSION})",
        f"losses.SoftTripleLoss(C, {DIMENSION}, weight_reg_weight=0.2, "
        "weight_regularizer=regularizers.SparseCentersRegularizer(C, 10))",
        "",
    ),
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
    "CosFace": (f"CosFace(C, {DIMENSION})", f"losses.CosFaceLoss(C, {DIMENSION})", ""),
    "Normalised softmax": (f"NormalizedSoftmax(C, {DIMENSION})", f"losses.NormalizedSoftmaxLoss(C, {DIMENSION})", ""),
    "ArcFace": (f"ArcFace(C, {DIMENSION})", f"losses.ArcFaceLoss(C, {DIMENSION})", ""),
    "SphereFace": (f"SphereFace(C, {DIMENSION})", f"losses.SphereFaceLoss(C, {DIMENSION})", ""),
    "Large-margin softmax": (
        f"LargeMarginSoftmax(C, {DIMENSION})",
        f"losses.LargeMarginSoftmaxLoss(C, {DIMENSION})",
        "",
    ),
    "Sub-centre ArcFace": (
        f"SubCenterArcFace(C, {DIMENSION})",
        f"losses.SubCenterArcFaceLoss(num_classes=C, embedding_size={DIMENSION})",
        "",
    ),
    "P2SGrad": (f"P2SGrad(C, {DIMENSION})", f"losses.P2SGradLoss({DIMENSION}, C)", "theirs is 2/C of ours"),
    "Proxy anchor": (f"ProxyAnchor(C, {DIMENSION})", f"losses.ProxyAnchorLoss(C, {DIMENSION})", ""),
    "Multi-similarity": ("MultiSimilarity(eps=None)", "losses.MultiSimilarityLoss()", ""),
    "Multi-similarity, mined": (
        "MultiSimilarity()",
        "mined(losses.MultiSimilarityLoss(), miners.MultiSimilarityMiner())",
        "anchors that keep one kind of pairs add nothing to ours",
    ),
    "Circle": ("Circle()", "losses.CircleLoss()", ""),
    "Tuplet margin": ("TupletMargin(variance_weight=0)", "losses.TupletMarginLoss()", ""),
    "Intra-pair variance": ("IntraPairVariance()", "losses.IntraPairVarianceLoss()", ""),
    "Noise to signal, contrastive": (
        "Contrastive(squared_hinge=False, balanced=True, distance='snr', normalize=True)",
        "losses.SignalToNoiseRatioContrastiveLoss()",
        "theirs averages over non-zero terms",
    ),
    "Ranked list": (
        "RankedList(detach_weights=False)",
        "losses.RankedListLoss(margin=0.4, Tn=10, alpha=1.2)",
        "theirs adds 1e-5 to each weight",
    ),
    "Threshold-consistent margin": ("ThresholdConsistentMargin()", "losses.ThresholdConsistentMarginLoss()", ""),
    "InfoNCE": ("InfoNCE(0.07)", "losses.NTXentLoss(0.07)", ""),
    "Supervised contrast": ("SupCon(0.1)", "losses.SupConLoss(0.1)", ""),
    "Smooth AP": (
        "SmoothAP(0.01, count_self=True)",
        "losses.SmoothAPLoss(0.01)",
        "theirs mixes up groups unless there are as many classes as samples of each",
    ),
    "PNP": ("PNP('O', count_self=True)", "losses.PNPLoss()", ""),
    "FastAP": ("FastAP(10)", "losses.FastAPLoss(10)", ""),
    "Histogram": ("HistogramLoss(100)", "losses.HistogramLoss(100)", ""),
    "Rank-N-contrast": (
        "RankNContrast(2.0)",
        "DirectRankNContrast(2.0)",
        "theirs: a loop over the references, as the authors' code has, written here",
    ),
}


# -- the measured processes --------------------------------------------------------------------------------------------


def seconds_of(job: dict) -> dict:
    """The least CPU seconds of forward and backward of both sides, taken in turn; the peer alone can be left out.

    The least is what neither the caches of other processes nor the first call have lengthened.
    """
    sides = ("ours", "theirs") if job["theirs"] else ("ours",)
    losses, z, y = {side: prepared(job, side) for side in sides}, *batch(job["size"])
    times: dict[str, list[float]] = {side: [] for side in sides}
    while not enough(times, job["seconds"]):
        for side, loss in losses.items():
            times[side].append(once(loss, z, y))
    return {side: min(t) for side, t in times.items()}


def enough(times: dict[str, list[float]], seconds: float) -> bool:
    """Three rounds and the time given; fewer rounds only of what takes longer than four seconds."""
    rounds, spent = len(times["ours"]), max(map(sum, times.values()))
    return rounds > 0 and (spent > 4 or (rounds >= 3 and spent > seconds) or rounds >= 300)


def growth_of(job: dict) -> dict:
    """By how many MiB the process grows while a loss is computed twice."""
    loss, (z, y) = prepared(job, job["side"]), batch(job["size"])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(2):
        if once(loss, z, y) > 2:
            break
    return {"mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024}


def threads_of(job: dict) -> dict:
    """The least seconds of the clock of ours with one thread and with two, taken in turn."""
    import torch

    loss, (z, y) = prepared(job, "ours"), batch(job["size"])
    times: dict[str, list[float]] = {"1": [], "2": []}
    while len(times["1"]) < 5 or (sum(times["1"]) < job["seconds"] and len(times["1"]) < 300):
        for threads, found in times.items():
            torch.set_num_threads(int(threads))
            found.append(once(loss, z, y, time.perf_counter))
    return {threads: min(found) for threads, found in times.items()}


def once(loss, z, y, clock: Callable[[], float] = time.process_time) -> float:
    """Seconds of one forward and backward, those of the CPU unless another clock is given."""
    leaf = z.clone().requires_grad_()
    start = clock()
    loss(leaf, y).backward()
    return clock() - start


def batch(B: int) -> tuple:
    import torch

    rng = torch.Generator().manual_seed(0)
    y = torch.arange(B) // PER_CLASS
    return torch.randn(B, DIMENSION, generator=rng) + 0.5 * torch.randn(B // PER_CLASS, DIMENSION, generator=rng)[y], y


def prepared(job: dict, side: str):
    """The loss of one side, its memory full if it has one."""
    import torch

    torch.manual_seed(0)
    loss = build(job[side], side == "ours", max(PROXIES, job["size"] // PER_CLASS))
    fill_memory(loss, *batch(job["size"]))
    return loss


def build(expression: str, ours: bool, n_classes: int):
    """The loss that an expression of CONTESTS describes."""
    import torch

    if expression == "floor":
        return lambda z, y: torch.cdist(*[torch.nn.functional.normalize(z)] * 2).mean()
    if ours:
        import isometry.deep

        names = {name: getattr(isometry.deep, name) for name in isometry.deep.__all__}
        return eval(expression, {**names, "C": n_classes})
    from pytorch_metric_learning import losses, miners, regularizers

    def mined(loss, miner):
        return lambda z, y: loss(z, y, miner(z, y))

    names = {"losses": losses, "miners": miners, "regularizers": regularizers, "mined": mined, "C": n_classes}
    names["DirectRankNContrast"] = DirectRankNContrast
    return eval(expression, names)


class DirectRankNContrast:
    """Rank-N-contrast by a loop over the references, O(B³)."""

    def __init__(self, temperature):
        self.temperature = temperature

    def __call__(self, z, y):
        import torch

        n = len(z)
        off = ~torch.eye(n, dtype=torch.bool)
        s = -(z[:, None] - z).norm(dim=2)[off].view(n, n - 1) / self.temperature
        g = (y[:, None] - y).abs()[off].view(n, n - 1)
        s = s - s.max(1, keepdim=True).values.detach()
        total = 0.0
        for k in range(n - 1):
            farther = (g >= g[:, k : k + 1]).float()
            total = total - (s[:, k] - (farther * s.exp()).sum(1).log()).sum()
        return total / (n * (n - 1))


def fill_memory(loss, z, y) -> None:
    """Let a memory see batches until it is full."""
    import torch

    append = getattr(loss, "enqueue", None) or getattr(loss, "add_to_memory", None)
    if append is not None:
        for _ in range(-(-MEMORY // len(z))):
            batch = z + 0.1 * torch.randn_like(z), y
            append(*batch) if hasattr(loss, "enqueue") else append(*batch, len(z))


# -- the comparison ----------------------------------------------------------------------------------------------------


def in_child(measure: Callable[[dict], dict], job: dict) -> dict:
    """The result of a measurement in a forked process with a limit of memory and time, or why there is none."""
    context = multiprocessing.get_context("fork")  # all is imported already: a child costs nothing
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=report, args=(measure, job, send))
    child.start()
    send.close()
    try:
        done = receive.recv() if receive.poll(TIMEOUT) else {"failure": f"> {TIMEOUT} s"}
    except EOFError:  # killed
        done = {"failure": f"> {MEMORY_LIMIT >> 30} GiB"}
    child.terminate()
    child.join()
    return done


def report(measure: Callable[[dict], dict], job: dict, send) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_LIMIT, MEMORY_LIMIT))
    try:
        send.send(measure(job))
    except (RuntimeError, MemoryError) as error:
        memory = isinstance(error, MemoryError) or "memory" in str(error) or "alloc" in str(error)
        send.send({"failure": f"> {MEMORY_LIMIT >> 30} GiB" if memory else str(error)[:80]})


Result = dict[tuple[str, int], dict]  # (loss, B) ↦ {"ours": {"ms", "mib"}, "theirs": the same or {"failure"}}


def compare(title: str, sizes: tuple[int, ...], seconds: float) -> Result:
    """Time and memory of one loss at growing batch sizes, until the peer fails, from there ours alone."""
    ours, theirs, _ = CONTESTS[title]
    found: Result = {}
    failed = None
    for size in sizes:
        job = {"ours": ours, "theirs": theirs, "size": size, "seconds": seconds}
        growth = {
            side: in_child(growth_of, job | {"side": side})
            for side in ("ours", "theirs")
            if side == "ours" or not failed
        }
        failed = failed or growth["theirs"].get("failure")
        times = in_child(seconds_of, job | {"theirs": None if failed else theirs})
        if "failure" in times and not failed:
            failed = times["failure"]
            times = in_child(seconds_of, job | {"theirs": None})
        found[title, size] = {
            side: {"ms": 1000 * times[side], "mib": growth[side]["mib"]} for side in times if side in growth
        }
        if failed:
            found[title, size]["theirs"] = {"failure": failed}
        print(row(title, size, found[title, size]), flush=True)
    return found


def ratio(results: Result, title: str, size: int) -> float | None:
    """How many times faster ours is; None if the peer failed or was not asked."""
    both = results.get((title, size), {})
    return both["theirs"]["ms"] / both["ours"]["ms"] if "ms" in both.get("theirs", {}) else None


def row(title: str, size: int, both: dict) -> str:
    ours, theirs = both["ours"], both["theirs"]
    cells = [o.get("failure") or f"{o['ms']:.3g}" for o in (ours, theirs)]
    faster = f"**{theirs['ms'] / ours['ms']:.1f} ×**" if "ms" in theirs else ""
    memory = " / ".join(o.get("failure") or f"{o['mib']:.0f}" for o in (ours, theirs))
    return "| " + " | ".join([title, str(size), *cells, faster, memory]) + " |"


def read_page(text: str) -> Result:
    """The measurements of a page; a row is what ``row`` writes."""
    results: Result = {}
    for line in text[text.index("## All measurements") :].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 6 or not cells[1].isdigit():
            continue
        title, size, *times, _, memory = cells
        results[title, int(size)] = {
            side: {"failure": ms} if ms.startswith(">") or not mib.isdigit() else {"ms": float(ms), "mib": int(mib)}
            for side, ms, mib in zip(("ours", "theirs"), times, memory.split(" / "))
        }
    return results


# -- the targets -------------------------------------------------------------------------------------------------------

FASTER = {  # loss, B: how many times faster than the peer
    ("Triplet, all", 1024): 40,
    ("Triplet, all", 512): 20,
    ("Lifted structure", 512): 500,
    (f"Memory of {MEMORY}, semi-hard triplets", 64): 50,
    ("SoftTriple", 256): 3,
    ("SoftTriple", 1024): 3,
    ("SoftTriple, centres regularised", 256): 3,
    ("Triplet, distance-weighted", 1024): 10,
    ("Smooth AP", 256): 100,
    ("Rank-N-contrast", 512): 10,
}


def targets(results: Result) -> list[str]:
    """A line for each target: what was asked, what was found, hit or miss."""
    lines = []
    for (title, size), wanted in FASTER.items():
        found = ratio(results, title, size)
        both = results.get((title, size), {})
        if found is not None:
            lines.append(target(f"{title}, B = {size}", f"{wanted} × faster", f"{found:.1f} ×", found >= wanted))
        elif "failure" in both.get("theirs", {}):
            text = f"theirs {both['theirs']['failure']}, ours {both['ours']['ms']:.3g} ms"
            lines.append(target(f"{title}, B = {size}", f"{wanted} × faster", text, True))
    cube = results.get(("Triplet, all", 1024), {})
    if "mib" in cube.get("theirs", {}):
        share = cube["ours"]["mib"] / cube["theirs"]["mib"]
        lines.append(target("Triplet, all, B = 1024", "1/10 of the memory", f"1/{1 / share:.0f}", share <= 0.1))
    largest = results.get(("Triplet, all", 4096))
    if largest:
        mib = largest["ours"]["mib"]
        lines.append(target("Triplet, all, B = 4096", "under 2 GiB", f"{mib:.0f} MiB", mib < 2048))
    for title in CONTESTS:
        if title.startswith("normalise"):
            continue
        found = {B: ratio(results, title, B) for (t, B) in results if t == title}
        known = {B: r for B, r in found.items() if r is not None}
        if known:
            worst = min(known, key=lambda B: known[B])
            text = f"{known[worst]:.1f} × (B = {worst})"
            lines.append(target(f"{title}, all B", "at least as fast", text, known[worst] >= 1))
    return lines


def target(what: str, wanted: str, found: str, hit: bool) -> str:
    return f"| {what} | {wanted} | {found} | {'hit' if hit else '**miss**'} |"


def page(results: Result) -> str:
    setting = (
        f"Forward and backward of one batch of B embeddings in {DIMENSION} dimensions, {PER_CLASS} of each class, "
        "float32, one thread: the least CPU milliseconds of rounds in which ours and those of pytorch-metric-learning "
        "2.9.0 take turns in one process, and the growth in MiB of a process of its own. Losses with proxies have "
        f"{PROXIES} classes, or those of the batch if more. Each measurement has at most {TIMEOUT} s and "
        f"{MEMORY_LIMIT >> 30} GiB. The ratio is theirs to ours. Both sides compute the same quantity, except:"
    )
    return "\n".join(
        [
            "# Deep losses: speed and memory, side by side",
            "",
            "<!-- written by benchmarks/deep_losses.py -->",
            "",
            "`python -m benchmarks.deep_losses` writes this page.",
            "",
            *textwrap.wrap(setting, 120),
            "",
            *(f"- {title}: {note}." for title, (_, _, note) in CONTESTS.items() if note),
            "",
            "## Targets",
            "",
            "| | target | found | |",
            "|---|---|---|---|",
            *targets(results),
            "",
            "## All measurements",
            "",
            "| loss | B | ours, ms | theirs, ms | ratio | MiB ours / theirs |",
            "|---|---|---|---|---|---|",
            *(row(title, size, both) for (title, size), both in results.items()),
            "",
        ]
    )


# -- two threads -------------------------------------------------------------------------------------------------------

SECTION = "## Two threads"


def threaded(chosen: list[str], seconds: float) -> str:
    """The section of the page on ours with one thread and with two."""
    sizes = " and ".join(str(size) for size in THREADED)
    setting = (
        f"Ours at B = {sizes}: the least milliseconds of the clock, of rounds with one thread and with two, which take "
        "turns in one process, in a run of their own. Torch divides products and elementwise passes among threads by "
        "itself."
    )
    lines = [
        SECTION,
        "",
        *textwrap.wrap(setting, 120),
        "",
        "| loss | B | 1 thread | 2 threads | |",
        "|---|---|---|---|---|",
    ]
    for title in chosen:
        for size in THREADED:
            found = in_child(threads_of, {"ours": CONTESTS[title][0], "size": size, "seconds": seconds})
            one, two = (1000 * found[threads] for threads in "12")
            lines.append(f"| {title} | {size} | {one:.3g} | {two:.3g} | **{one / two:.1f} ×** |")
            print(lines[-1], flush=True)
    return "\n".join([*lines, ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"B = {QUICK} only; prints, does not write the page")
    parser.add_argument("--sizes", type=int, nargs="*", help="other batch sizes")
    parser.add_argument("--add", action="store_true", help="measure the losses that the page lacks, keep what it has")
    parser.add_argument("--threads", action="store_true", help="measure two threads alone, keep the rest of the page")
    parser.add_argument("--only", nargs="*", default=[], help="losses whose title contains one of these words")
    parser.add_argument("--seconds", type=float, default=0.4, help="CPU seconds of timing for each side")
    arguments = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    for ours, theirs, _ in CONTESTS.values():  # all that is imported when it is first asked for
        build(ours, True, PER_CLASS), build(theirs, False, PER_CLASS)
    sizes = tuple(arguments.sizes or (QUICK if arguments.quick else SIZES))
    chosen = [t for t in CONTESTS if not arguments.only or any(w.lower() in t.lower() for w in arguments.only)]
    text = RESULTS.read_text()
    known, _, section = text.partition(SECTION)
    if arguments.threads:
        RESULTS.write_text(known.rstrip() + "\n\n" + threaded(chosen, arguments.seconds))
        return 0
    section = "\n" + SECTION + section if section else ""
    results: Result = {}
    if arguments.add:
        results |= read_page(known)
    for title in chosen:
        if any(measured == title for measured, _ in results):
            continue
        more = tuple(size for measured, size in FASTER if measured == title)
        results |= compare(title, sizes if arguments.quick else tuple(sorted({*sizes, *more})), arguments.seconds)
        if not arguments.quick and not arguments.only:
            RESULTS.write_text(page(results) + section)
    print("\n".join(targets(results)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
