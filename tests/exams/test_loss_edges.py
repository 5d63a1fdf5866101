"""Every loss on batches at the edge of what can be compared: a finite value and gradient, or an error of ours.

Losses of labels, losses of columns and regularisers: all that the table of methods has.
"""

from __future__ import annotations

import traceback
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import isometry
from isometry.registry import all_methods
from tests.deep.test_every_loss import ALL

pytestmark = pytest.mark.slow
torch.set_num_threads(1)

PACKAGE = str(Path(isometry.__file__).parent)
N, P, C = 12, 4, 4  # of a batch; the losses of the table are made for embeddings (B, 4) of four classes


def scattered(seed=0, n=N):
    return torch.randn(n, P, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def with_rows(z, rows, values):
    z = z.clone()
    z[rows] = values
    return z


CLASSES = torch.arange(N) % C
PAIRS = torch.arange(N) // 3  # three samples of each class, side by side
EMBEDDINGS = {
    "scattered": scattered,
    "all zero": lambda: torch.zeros(N, P),
    "a zero row": lambda: with_rows(scattered(), 3, 0.0),
    "two zero rows": lambda: with_rows(scattered(), [3, 4], 0.0),
    "negative zero": lambda: with_rows(scattered(), 3, -0.0),
    "one point": lambda: torch.full((N, P), 0.1),
    "one point, far": lambda: torch.full((N, P), 1e4),
    "a point for each class": lambda: torch.eye(C)[CLASSES],
    "duplicates in a class": lambda: with_rows(scattered(), 4, scattered()[0]),
    "duplicates across classes": lambda: with_rows(scattered(), 1, scattered()[0]),
    "all in two points": lambda: scattered()[CLASSES % 2],
    "nearly duplicates": lambda: 1 + 1e-7 * scattered(),
    "opposite": lambda: torch.cat([scattered(n=N // 2), -scattered(n=N // 2)]),
    "on a line": lambda: torch.arange(float(N))[:, None] * torch.ones(P),
    "one coordinate": lambda: scattered() * torch.tensor([1.0, 0, 0, 0]),
    **{f"times {s:g}": lambda s=s: s * scattered() for s in (1e-45, 1e-38, 1e-30, 1e-20, 1e-10, 1e-4)},
    **{f"times {s:g}": lambda s=s: s * scattered() for s in (1e4, 1e8, 1e15, 1e18, 3e18, 1e19, 1e30, 3e37, 1e38)},
    **{f"a row times {s:g}": lambda s=s: with_rows(scattered(), 5, s * scattered()[5]) for s in (1e10, 1e18, 1e30)},
    **{f"far by {s:g}": lambda s=s: s + scattered() for s in (1e4, 1e8, 1e18)},
    "NaN": lambda: with_rows(scattered(), 5, torch.nan),
    "infinite": lambda: with_rows(scattered(), 5, torch.inf),
    "one sample": lambda: scattered(n=1),
    "two samples": lambda: scattered(n=2),
    "empty": lambda: scattered(n=0),
}
LABELS = {
    "classes": CLASSES,
    "side by side": PAIRS,
    "one class": torch.zeros(N, dtype=torch.long),
    "all different": torch.arange(N),
    "one against all": (torch.arange(N) == 0).long(),
    "a single one": torch.tensor([0] * 6 + [1] * 5 + [2]),
    "negative": CLASSES - 1,
    "huge": CLASSES + 2**62,
    "out of range": CLASSES + 100,
}
KINDS = {
    **{str(t): lambda y, t=t: y.to(t) for t in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)},
    **{str(t): lambda y, t=t: y.to(t) for t in (torch.uint16, torch.uint32, torch.uint64)},
    "bool": lambda y: y % 2 == 0,
    "float": lambda y: y.double(),
    "half": lambda y: y.half(),
    "numpy": lambda y: y.numpy(),
    "numpy uint16": lambda y: y.numpy().astype(np.uint16),
    "list": lambda y: y.tolist(),
    "text": lambda y: np.array(list("abcd"))[y],
    "objects": lambda y: np.array(list("abcd"), dtype=object)[y],
    "complex": lambda y: y.to(torch.complex64),
    "column": lambda y: y[:, None],
    "similarity": lambda y: y[:, None] == y,
    "too few": lambda y: y[:-1],
    "none": lambda y: None,
}


COLUMNS, REGULARIZERS = (
    {m.key: m.example for m in all_methods(family="deep", kind=kind)} for kind in ("pair loss", "regularizer")
)
GRADES = {"E33", "E33a", "E33c"}  # losses whose target is a number for each pair
SCORES = {"E34", "E34k"}  # and those of a teacher's scores for each document
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def given_with(key, n):
    """What a loss of columns gets beside them."""
    if key in GRADES:
        return {"target": torch.linspace(0, 1, n)}
    if key in SCORES:
        return {"target": scattered(7, n)[:, :2]}
    if key == "E34e":
        return {"target": scattered(7, n)}
    return {"guide": [scattered(k, n) for k in (7, 8, 9)]} if key == "E32" else {}


def problem(key, z, y, dtype, training):
    """What is wrong with a loss of labels there."""
    return complaint(ALL[key], dtype, training, lambda loss, z: loss(z, y), [z])


def complaint(make, dtype, training, call, zs):
    """What is wrong with a loss; "" if its value and gradients are finite or it raised an error of ours."""
    torch.manual_seed(0)
    loss = make().train(training)
    loss = loss.double() if dtype == torch.float64 else loss
    zs = [z.detach().to(dtype, copy=True).requires_grad_() for z in zs]
    try:
        value = call(loss, *zs)
        value.backward() if value.requires_grad else None
    except (ValueError, OverflowError) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return "" if last.filename.startswith(PACKAGE) else f"{type(error).__name__} of {last.filename}: {error}"
    except Exception as error:  # no other may leave a loss
        return f"{type(error).__name__}: {error}"
    if value.ndim or not value.isfinite():
        return f"value {value}"
    if dtype == torch.float16:  # 65504 is its largest number, which a gradient of small embeddings may exceed
        return ""
    if not all(z.grad is None or z.grad.isfinite().all() for z in zs):
        return "gradient not finite"
    bad = [name for name, p in loss.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]
    return f"gradient of {', '.join(bad)} not finite" if bad else ""


def problems(key, cases, problem=problem):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a loss may say what it leaves out of such a batch
        found = {name: problem(key, *case) for name, case in cases}
    return {name: text for name, text in found.items() if text}


def test_every_loss_of_the_table_is_here():
    kinds = ("loss", "head", "pair loss", "regularizer")
    assert {m.key for m in all_methods(family="deep") if m.kind in kinds} <= {*ALL, *COLUMNS, *REGULARIZERS}


@pytest.mark.parametrize("key", ALL)
def test_embeddings_at_the_edge(key):
    cases = (
        ((edge, labels, dtype, training), (z, y[: len(z)], dtype, training))
        for edge, make in EMBEDDINGS.items()
        for z in [make()]
        for labels, y in LABELS.items()
        for dtype in DTYPES
        for training in (True, False)
        if dtype == torch.float32 or (training and labels in ("side by side", "one class", "all different"))
    )
    assert problems(key, cases) == {}


@pytest.mark.parametrize("key", ALL)
def test_labels_of_every_kind(key):
    cases = (
        ((kind, labels, training), (scattered(), change(LABELS[labels]), torch.float32, training))
        for kind, change in KINDS.items()
        for labels in ("classes", "side by side")
        for training in (True, False)
    )
    assert problems(key, cases) == {}


@pytest.mark.parametrize("key", COLUMNS)
def test_columns_at_the_edge(key):
    """Queries and documents that are equal, of other rows, opposite, or at the edge on one side alone."""
    n_columns = COLUMNS[key]().most_columns or 3

    def column_problem(key, zs, dtype, training):
        given = given_with(key, len(zs[0]))
        return complaint(COLUMNS[key], dtype, training, lambda loss, *zs: loss(*zs, **given), zs)

    sides = {
        "equal": lambda z: [z] * n_columns,
        "other rows": lambda z: [z.roll(k, 0) for k in range(n_columns)],
        "opposite": lambda z: [z * (-1) ** k for k in range(n_columns)],
        "one side": lambda z: [z, *(scattered(k, len(z)) for k in range(1, n_columns))],
    }
    cases = (
        ((edge, side, dtype, training), (arrange(z), dtype, training))
        for edge, make in EMBEDDINGS.items()
        for z in [make()]
        for side, arrange in sides.items()
        for dtype in DTYPES
        for training in (True, False)
    )
    assert problems(key, cases, column_problem) == {}


@pytest.mark.parametrize("key", REGULARIZERS)
def test_regularizers_at_the_edge(key):
    def penalty_problem(key, z, dtype):
        return complaint(REGULARIZERS[key], dtype, True, lambda penalty, z: penalty(z), [z])

    cases = (((edge, dtype), (make(), dtype)) for edge, make in EMBEDDINGS.items() for dtype in DTYPES)
    assert problems(key, cases, penalty_problem) == {}
