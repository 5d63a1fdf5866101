"""Gradients of the losses of contrast, ranks and other labels where embeddings are at their worst."""

import pytest
import torch

from isometry.registry import all_methods
from tests.deep.batches import batch

LOSSES = {m.name: m.make for m in all_methods(family="deep", kind="loss") if "E20" <= m.key < "F"}
SIZES = {"num_classes": 12, "embedding_size": 4}
PARAMS = {"RecallAtK": {"k": (1, 2)}, "OrthoHash": SIZES, "NonIsotropy": SIZES}  # otherwise as a user gets them
PARAMS |= {"LanguageGuidance": {"class_vectors": batch(5, p=3)[0]}}
PARAMS |= {"ClassWeighted": {"class_counts": range(1, 13)}}
Y = torch.arange(12) % 4
CASES = {
    "duplicates within and across classes": (lambda z: z[torch.tensor([0, 1, 2, 3, 0, 0, 2, 1, 8, 9, 8, 11])], Y),
    "one point": (lambda z: z[:1].expand(12, 4), Y),
    "a point for each class": (lambda z: torch.eye(4).double()[Y], Y),
    "zero rows": (lambda z: z * (torch.arange(12) % 3 > 0)[:, None], Y),
    "zero": (lambda z: 0 * z, Y),
    "one class": (lambda z: z, 0 * Y),
    "singletons": (lambda z: z, torch.arange(12)),
    "norms of 1e4": (lambda z: 1e4 * z / z.norm(dim=1, keepdim=True), Y),
    "nearly equal": (lambda z: z[:1] + 1e-3 * z, Y),
    "opposite": (lambda z: torch.where((torch.arange(12) % 2 == 0)[:, None], z[:1], -z[:1]), Y),
}


@pytest.mark.parametrize("precision", ["float32", "bf16 autocast", "float16"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_finite(name, case, precision):
    place, y = CASES[case]
    loss = LOSSES[name](**PARAMS.get(name, {}))
    z = place(batch(7)[0]).to(torch.float16 if precision == "float16" else torch.float32).contiguous().requires_grad_()
    weight = torch.eye(4, requires_grad=True)  # the layer before the loss
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16 autocast"):
        value = loss(z if precision == "float16" else z @ weight, y)
    value.backward()
    assert value.dtype == torch.float32 and value.isfinite()
    assert z.grad.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in (weight, *loss.parameters()))
