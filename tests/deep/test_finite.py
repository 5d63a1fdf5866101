"""Gradients are finite where angles, roots and exponentials have none, in all precisions a network is trained in."""

import pytest
import torch

from isometry.deep.loss import LossModule
from isometry.registry import all_methods

KEYS = {m.key: m for m in all_methods(kind="loss")}
CASES = ["aligned", "opposite", "duplicates", "zero rows", "one class", "all singletons", "norms of 1e4", "tiny"]
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def on_the_axes(loss: LossModule) -> None:
    """Proxies that are unit vectors of one coordinate each: cosines with such embeddings are exactly 1, 0 and −1."""
    for name, p in loss.named_parameters():
        if name.split(".")[-1] in ("proxies", "means"):
            p.data.copy_(torch.eye(4).reshape(4, *[1] * (p.ndim - 2), 4).expand_as(p))


def case(name, loss):
    z, y = torch.randn(12, 4, generator=torch.Generator().manual_seed(1)), torch.arange(12) % 4
    if name in ("aligned", "opposite"):
        on_the_axes(loss)
        z = torch.eye(4)[y] * (1 if name == "aligned" else -1)
    elif name == "duplicates":
        z = z[:4][torch.arange(12) // 3]  # within classes and across
    elif name == "zero rows":
        z[::5] = 0
    elif name == "one class":
        y = y * 0
    elif name == "all singletons":
        z, y = z[:4], torch.arange(4)
    elif name == "norms of 1e4":
        z = 1e4 * torch.nn.functional.normalize(z)
    elif name == "tiny":
        z = 0.02 * z  # a gradient that grows with 1/‖z‖ shall still fit into float16
    return z, y


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("key", KEYS)
def test_value_and_gradients_are_finite(key, name, precision):
    """bfloat16 under autocast, as `Trainer` has it; float16 embeddings as they are."""
    torch.manual_seed(0)
    loss = KEYS[key].example().train()
    z, y = case(name, loss)
    z = z.to(PRECISIONS[precision]).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bfloat16"):
        value = loss(z, y)
    value.backward()
    assert value.dtype == torch.float32 and value.isfinite()
    assert z.grad.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in loss.parameters())
