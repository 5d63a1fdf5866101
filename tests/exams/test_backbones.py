"""Networks of timm and torchvision, as they are: by name, with weights from a local file, from the command line.

These libraries need a torchvision that fits torch. Of its compiled parts, image networks use none: where these cannot
be loaded, because the wheel was built for a machine with CUDA, the two operators that it asks torch about when it is
imported are declared here, without an implementation, and the networks run as anywhere else.
"""

from __future__ import annotations

import importlib.util
import json
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch")

DECLARE = """
import torch
if not hasattr(torch.ops.torchvision, "nms"):
    declared = torch.library.Library("torchvision", "DEF")
    declared.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    declared.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


def need(library):
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed: its wheels fit no torch without CUDA, so `make test` does without")
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name in [m for m in sys.modules if m.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        exec(DECLARE, globals())  # the library object must live as long as the declaration


@pytest.fixture
def images(tmp_path):
    from tests.deep.test_images_and_texts import draw

    rng = np.random.default_rng(0)
    for k, name in enumerate(("ant", "bee", "cow", "dog")):
        (tmp_path / "images" / name).mkdir(parents=True)
        for j in range(6):
            draw(tmp_path / "images" / name / f"{j}.png", 20 + 50 * k, (40, 36), rng)
    return tmp_path / "images"


TINY = {"img_size": 32, "patch_size": 8, "depth": 2, "embed_dim": 24, "num_heads": 2}


def run(*args, code=0):
    from tests.cli.test_train import run

    return run(*args, code=code)


def test_a_vision_transformer_of_timm_trains_from_the_command_line(images, tmp_path):
    need("timm")
    import timm
    from safetensors.torch import load_file, save_file

    torch.manual_seed(3)
    whole = timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=7, **TINY)  # with a classifier
    file = tmp_path / "vit.safetensors"
    save_file(whole.state_dict(), file)
    options = [part for name, value in TINY.items() for part in ("--backbone-option", f"{name}={value}")]
    command = [images, "--backbone", "timm:vit_tiny_patch16_224", "--weights", file, *options, "--epochs", 2]
    command += ["--batch", "2x3", "--embedding", 4, "--validation", 0.5, "--loss", "ArcFace(scale=8)"]
    command += ["--set", "lr_groups={'backbone': 0.1}", "--set", "layer_decay=0.8", "--set", "ema=0.9"]
    said = run(*command, "-o", tmp_path / "run")
    assert "12 samples of 2 classes, 12 of 2 held out" in said and "epoch 2 of 2" in said
    assert json.loads((tmp_path / "run" / "network.json").read_text())["embedding_size"] == 4
    trained = load_file(tmp_path / "run" / "network.safetensors")
    name = next(k for k in trained if k.endswith("blocks.0.attn.qkv.weight"))
    began = whole.state_dict()["blocks.0.attn.qkv.weight"]
    assert 0 < float((trained[name] - began).abs().max()) < 0.05  # it began from the file, and moved
    wrong = [*command[:3], "--weights", file, "--backbone-option", "img_size=32", "-o", tmp_path / "o"]
    said = run(*wrong, code=2)
    assert "another architecture than timm:vit_tiny_patch16_224" in said and "there and" in said
    assert "did you mean" in run(
        images, "--backbone", "timm:vit_tiny_patch16_22", "--weights", "random", "-o", tmp_path / "o", code=2
    )


def test_the_network_of_timm_is_that_of_timm(tmp_path):
    need("timm")
    import timm
    from safetensors.torch import save_file

    from isometry.deep import backbone

    theirs = timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=0, **TINY).eval()
    save_file(theirs.state_dict(), tmp_path / "w.safetensors")
    ours = backbone("timm:vit_tiny_patch16_224", tmp_path / "w.safetensors", **TINY).eval()
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(ours(x), theirs(x))
    assert ours.num_features == 24 and ours.transform.size == 32
    assert ours.transform.mean == tuple(theirs.pretrained_cfg["mean"])


@pytest.mark.parametrize("name, width", [("resnet18", 512), ("mobilenet_v3_small", 1024), ("vit_b_32", 768)])
def test_a_network_of_torchvision_without_its_last_layer(name, width, tmp_path):
    need("torchvision")
    from safetensors.torch import save_file
    from torchvision.models import get_model

    from isometry.deep import backbone

    theirs = get_model(name, weights=None, num_classes=5).eval()
    save_file(theirs.state_dict(), tmp_path / "w.safetensors")
    ours = backbone(f"torchvision:{name}", tmp_path / "w.safetensors").eval()
    side = 224 if name.startswith("vit") else 64
    x = torch.randn(1, 3, side, side)
    seen = []
    last = [m for m in theirs.modules() if isinstance(m, torch.nn.Linear)][-1]
    last.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        theirs(x)
        assert torch.equal(ours(x), seen[0])
    assert ours.num_features == width == ours(x).shape[1]
