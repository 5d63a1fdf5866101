"""What must hold for every loss of columns: gradients, order of rows, bad input, half precision, edges."""

import copy
import pickle

import pytest
import torch
from torch.testing import assert_close

from isometry.registry import all_methods
from tests.deep.batches import batch

LOSSES = {m.name: m.example for m in all_methods(family="deep", kind="pair loss")}
NUMBERS = batch(9, n=6)[0]
TARGETS = {  # a target for six rows, for losses that have one
    "CoSENT": torch.tensor([0.0, 1.0, 0.5, 0.5, 0.2, 0.9], dtype=torch.float64),
    "AnglE": torch.tensor([0.0, 1.0, 0.5, 0.5, 0.2, 0.9], dtype=torch.float64),
    "CosineRegression": torch.tensor([0.0, 1.0, 0.5, 0.5, 0.2, 0.9], dtype=torch.float64),
    "MarginMSE": NUMBERS[:, :2],
    "ScoreKL": NUMBERS[:, :2],
    "EmbeddingDistillation": NUMBERS,
}


def columns(name):
    zs = [batch(k, n=6)[0] for k in range(LOSSES[name]().most_columns or 3)]
    given = {"target": TARGETS[name]} if name in TARGETS else {}
    if name == "GuidedRanking":
        given["guide"] = torch.stack([batch(k + 5, n=6)[0] for k in range(3)], 1)  # (n, columns, q)
    return zs, given


def at(given, rows):
    """What is given, for some rows; a guide as one table for each column."""
    return {k: v[rows].unbind(1) if k == "guide" else v[rows] for k, v in given.items()}


def make(name):
    torch.manual_seed(0)
    return LOSSES[name]().double().eval()


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_of_both_orders(name):
    loss, (zs, given) = make(name), columns(name)
    given = at(given, slice(None))
    params = [p for p in loss.parameters() if p.requires_grad]
    inputs = (*(z.requires_grad_() for z in zs), *params)

    def value(*inputs):
        return loss(*inputs[: len(zs)], **given)

    assert torch.autograd.gradcheck(value, inputs, atol=1e-6)
    assert torch.autograd.gradgradcheck(value, inputs, atol=1e-6)
    assert torch.autograd.grad(value(*inputs), zs[0])[0].abs().sum() > 1e-6


@pytest.mark.parametrize("name", LOSSES)
def test_order_of_the_rows_does_not_matter(name):
    loss, (zs, given) = make(name), columns(name)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    moved = loss(*(z[order] for z in zs), **at(given, order))
    assert_close(moved, loss(*zs, **at(given, slice(None))), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", LOSSES)
def test_half_precision_is_the_float32_loss_of_the_same_numbers(name, dtype):
    loss, (zs, given) = LOSSES[name](), columns(name)
    given = at(given, slice(None))
    half = [z.to(dtype).requires_grad_() for z in zs]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(*half, **given)
    assert value.dtype == torch.float32
    assert_close(value, loss(*(z.detach().float() for z in half), **given), rtol=1e-6, atol=1e-7)
    value.backward()
    assert all(z.grad.isfinite().all() for z in half)


NOT_NORMALISED = {"VICReg", "MarginMSE"}  # gradients grow as ‖z‖³, at norms of 1e4 more than float16 can hold
LARGEST = torch.finfo(torch.float16).max
EDGES = {
    "duplicates": lambda z: z[:1].expand_as(z),
    "zero rows": lambda z: z * (torch.arange(len(z)) % 2)[:, None],
    "zero": torch.zeros_like,
    "aligned": lambda z: torch.eye(4).double()[torch.arange(len(z)) % 4],  # all columns alike, some rows too
    "opposite": lambda z: z.sign() * batch(0, n=len(z))[0].abs(),
    "1e4": lambda z: 1e4 * z,
    "single": lambda z: z[:1],
    "empty": lambda z: z[:0],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.filterwarnings("ignore:.*rows of a batch have a query or document")
@pytest.mark.parametrize("name", LOSSES)
def test_edges_are_finite(name, edge, dtype):
    torch.manual_seed(0)
    loss, (zs, given) = LOSSES[name](), columns(name)
    zs = [EDGES[edge](z).to(dtype).requires_grad_() for z in zs]
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        value = loss(*zs, **at(given, slice(len(zs[0]))))
    value.backward()
    assert value.ndim == 0 and value.isfinite()
    if name in NOT_NORMALISED and edge == "1e4" and dtype == torch.float16:
        full = [z.detach().float().requires_grad_() for z in zs]
        loss(*full, **at(given, slice(len(zs[0])))).backward()
        assert all((z.grad.isfinite() | (f.grad.abs() > LARGEST)).all() for z, f in zip(zs, full))
    else:
        assert all(z.grad.isfinite().all() for z in zs)


@pytest.mark.parametrize("name", LOSSES)
def test_bad_input_is_named(name):
    loss, (zs, given) = make(name), columns(name)
    given = at(given, slice(None))
    if len(zs) > 1:
        with pytest.raises(ValueError, match=r"columns must agree in length and dimension.*got.*\(5, 4\)"):
            loss(*zs[:-1], zs[-1][:5], **given)
        with pytest.raises(ValueError, match=f"{name} takes .* columns, got 1"):
            loss(zs[0], **given)
    broken = zs[-1].clone()
    broken[3, 1] = torch.nan
    with pytest.raises(
        ValueError, match=f"column {len(zs) - 1} has NaN or infinite values in 1 of 6 rows, first in row 3"
    ):
        loss(*zs[:-1], broken, **given)
    with pytest.raises(TypeError, match=f"give Columns\\({name}\\(\\)\\)"):
        loss(torch.nn.Identity(), zs)
    if name in TARGETS:
        with pytest.raises(ValueError, match=f"{name} needs a target: "):
            loss(*zs)
        with pytest.raises(ValueError, match="6 rows need as many targets, got 5"):
            loss(*zs, target=given["target"][:5])
        with pytest.raises(ValueError, match="targets have NaN"):
            loss(*zs, target=given["target"] * torch.nan)
    else:
        with pytest.raises(ValueError, match="takes no target"):
            loss(*zs, target=torch.ones(6), **given)
    if loss.most_columns is not None:
        with pytest.raises(ValueError, match=f"takes {loss.most_columns} columns, got {len(zs) + 1}"):
            loss(*zs, zs[0], **given)


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_can_be_copied_pickled_and_restored(name):
    loss, (zs, given) = make(name), columns(name)
    given = at(given, slice(None))
    for twin in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert_close(twin(*zs, **given), loss(*zs, **given), rtol=0, atol=0)
    fresh = LOSSES[name]().double().eval()
    fresh.load_state_dict(loss.state_dict())
    assert_close(fresh(*zs, **given), loss(*zs, **given), rtol=0, atol=0)
    groups = loss.param_groups(1e-3)
    assert {id(p) for g in groups for p in g["params"]} == {id(p) for p in loss.parameters()}
