"""An exam on real data: trained on some alphabets, episodes of another are solved far better than from raw pixels."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from isometry.deep import (
    ConvNet,
    FeaturePyramid,
    MultiScale,
    Prototypes,
    Trainer,
    TwoStep,
    episode_loader,
    episode_scorer,
)
from isometry.eval import few_shot, paired_interval

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("ISOMETRY_DATA", ROOT.parent / "shared" / "data")) / "omniglot_small.npz"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_file(), reason=f"{DATA.name} is absent; set ISOMETRY_DATA"),
]
METHODS = {
    "prototypes": (lambda: ConvNet((1, 28, 28), 32, width=8, blocks=3), Prototypes, 0.3),
    "maml": (lambda: ConvNet((1, 28, 28), 32, width=8, blocks=3), lambda: TwoStep(inner_steps=1, inner_lr=0.02), 0.2),
    "multi-scale": (lambda: FeaturePyramid((1, 28, 28), 16), lambda: MultiScale(16), 0.1),
}


@pytest.fixture(scope="module")
def alphabets():
    with np.load(DATA, allow_pickle=False) as arrays:
        images = arrays["X"].reshape(-1, 1, 28, 28).astype(np.float32) / 255
        held = arrays["alphabet"] == "Latin"
        return images[~held], arrays["y"][~held], images[held], arrays["y"][held]


@pytest.mark.parametrize("name", METHODS)
def test_unseen_characters_from_one_drawing_each(alphabets, name):
    x, y, new_x, new_y = alphabets
    make_model, make_objective, gain = METHODS[name]
    torch.manual_seed(0)
    model, objective = make_model(), make_objective()
    Trainer(model, objective, lr=3e-3, max_epochs=1).fit(episode_loader(x, y, 10, 1, 3, episodes=150))
    raw = few_shot(new_x.reshape(len(new_x), -1), new_y, episodes=100)
    learned = few_shot(new_x, new_y, episodes=100, score=episode_scorer(objective, model))
    change = paired_interval(learned.accuracy, raw.accuracy)
    print(name, "raw", raw.interval(), "learned", learned.interval(), "change", change)
    assert change.low > gain
