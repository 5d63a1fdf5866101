"""Gradients are finite where angles, roots and exponentials have none, in all precisions a network is trained in."""

import copy

import pytest
import torch

from isometry.deep import ArcFace, InfoNCE, Poincare, Triplet
from isometry.deep.loss import LossModule
from isometry.registry import get
from tests.deep.test_every_loss import ALL

CURVED = {"poincare": "poincare", "strongly curved": Poincare(c=1.0, r=5.0)}
SIZES = {"num_classes": 4, "embedding_size": 4}
# Examples have settings for small problems: here all that a constructor needs, and for the rest what a user gets.
DEFAULTS = {
    **dict.fromkeys(("D27", "E06", "E11", "E12", "E38"), SIZES),
    **{key: {} for key in ("E20", "E20p", "E21", "E21r", "E23h")},
    "D39": {"loss": Triplet(), "embedding_size": 4},
    "D46": {"form": "logdet"},
    "E08": {"loss": ArcFace(**SIZES)},
    "E22": {"k": (1, 2)},
    "E47": {"loss": InfoNCE(), "class_counts": (3, 3, 3, 3)},
    "E47t": {"loss": InfoNCE(), "low": 0.1},
}
MAKE = {key: make for key, make in ALL.items() if key != "D46 logdet"}  # which all but lacks the ridge that it needs
MAKE |= {f"{key} default": lambda k=key: get(k).make(**copy.deepcopy(DEFAULTS[k])) for key in DEFAULTS}
MAKE |= {f"E42 {name}": lambda d=d: InfoNCE(distance=d, normalize=False) for name, d in CURVED.items()}
CASES = ["aligned", "opposite", "duplicates", "zero rows", "one class", "all singletons", "norms of 1e4", "tiny"]
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def on_the_axes(loss: LossModule) -> None:
    """Proxies that are unit vectors of one coordinate each: cosines with such embeddings are exactly 1, 0 and −1."""
    for name, p in [*loss.named_parameters(), *loss.named_buffers()]:
        if name.split(".")[-1] in ("proxies", "means", "centers", "table"):
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
@pytest.mark.parametrize("key", MAKE)
def test_value_and_gradients_are_finite(key, name, precision):
    """bfloat16 under autocast, as `Trainer` has it; float16 embeddings as they are."""
    torch.manual_seed(0)
    loss = MAKE[key]().train()
    z, y = case(name, loss)
    z = z.to(PRECISIONS[precision]).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bfloat16"):
        value = loss(z, y)
    value.backward()
    assert value.dtype == torch.float32 and value.isfinite()
    assert z.grad.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in loss.parameters())
