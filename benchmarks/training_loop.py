"""What the trainer costs beside a loop written by hand: seconds a step, the two in turns in one process.

    python -m benchmarks.training_loop

Both take the same batches from the same sampler, the same network, loss, optimiser and learning rates; the loop by hand
reads the loss at every step, as one does for a log, and looks at nothing else. A second loop takes the optimiser in its
fused form, as the trainer does on a CPU. The first steps of all are left out.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Iterator
from functools import partial

import numpy as np
import torch

from isometry.deep import MLP, ConvNet, NCALoss, PKBatchSampler, ProxyNCA, Trainer, Triplet

CASES = {  # name → network, shape of a sample, loss
    "MLP 784-512-64, Triplet": (lambda: MLP(784, 64, (512,)), (784,), Triplet),
    "MLP 784-512-64, ProxyNCA": (lambda: MLP(784, 64, (512,)), (784,), lambda: ProxyNCA(50, 64)),
    "ConvNet 28x28, NCALoss": (lambda: ConvNet((1, 28, 28), 64), (1, 28, 28), NCALoss),
}


def samples(shape: tuple[int, ...], n: int = 2000, classes: int = 50) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.arange(n) % classes
    return (rng.standard_normal((classes, *shape))[y] + rng.standard_normal((n, *shape))).astype(np.float32), y


def by_hand(net, loss, X, y, P: int, K: int, steps: int, fused: bool | None = None) -> list[float]:
    """Times at which each step was done."""
    X, y = torch.as_tensor(X), torch.as_tensor(y)
    groups = [{"params": list(net.parameters()), "lr": 1e-3, "weight_decay": 1e-4}, *loss.param_groups(1e-3)]
    optimizer = torch.optim.AdamW(groups, fused=fused)
    rates = [g["lr"] for g in optimizer.param_groups]
    sampler = PKBatchSampler(y.numpy(), P, K, n_batches=steps)
    net.train()
    times = []
    for step, rows in enumerate(sampler):
        for group, rate in zip(optimizer.param_groups, rates):
            group["lr"] = rate * (1 + math.cos(math.pi * step / steps)) / 2
        optimizer.zero_grad()
        value = loss(net(X[rows]), y[rows])
        value.backward()
        optimizer.step()
        value.item()
        times.append(time.thread_time())
    return times


def by_trainer(net, loss, X, y, P: int, K: int, steps: int) -> list[float]:
    times: list[float] = []
    trainer = Trainer(net, loss, classes_per_batch=P, samples_per_class=K, batches_per_epoch=steps, max_epochs=1)
    # the loop asks for the next group of batches when a step is done
    from isometry.deep import engine

    groups = engine.Engine.groups

    def watched(self, *args):
        for number, group in enumerate(groups(self, *args)):
            if number:
                times.append(time.thread_time())
            yield group
        times.append(time.thread_time())

    engine.Engine.groups = watched
    try:
        trainer.fit(X, y)
    finally:
        engine.Engine.groups = groups
    return times


def seconds_per_step(times: list[float], skip: int) -> float:
    return statistics.median(np.diff(times[skip:]))


def table(steps: int, rounds: int, batch: str = "16x4,32x4") -> Iterator[str]:
    """The lines of the table."""
    torch.set_num_threads(1)
    ways = {"hand": by_hand, "fused": partial(by_hand, fused=True), "trainer": by_trainer}
    yield "| network, loss | batch | by hand, ms | by hand, fused | Trainer | more than by hand | than fused |"
    yield "|---|---|--:|--:|--:|--:|--:|"
    for name, (make, shape, loss) in CASES.items():
        X, y = samples(shape)
        few = steps if len(shape) == 1 else max(steps // 5, 40)  # a step of a convolution takes twenty times as long
        for text in batch.split(","):
            P, K = map(int, text.split("x"))
            found: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(rounds):
                for way, loop in ways.items():
                    torch.manual_seed(0)
                    found[way].append(seconds_per_step(loop(make(), loss(), X, y, P, K, few), few // 5))
            hand, fused, trainer = (min(found[way]) for way in ways)  # what the machine's other work adds is left out
            shown = [f"{1e3 * seconds:.3f}" for seconds in (hand, fused, trainer)]
            shown += [f"{100 * (trainer / seconds - 1):+.1f} %" for seconds in (hand, fused)]
            yield f"| {name} | {text} | " + " | ".join(shown) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", default="16x4,32x4", help="classes x samples of each, several with commas")
    options = parser.parse_args()
    for text in table(options.steps, options.rounds, options.batch):
        print(text, flush=True)


if __name__ == "__main__":
    main()
