"""Losses with margins, proxies and pairs by their names: in ``DeepMetric``, and from the command line."""

import numpy as np
import pytest
from typer.testing import CliRunner

from isometry.cli import app
from isometry.deep import DeepMetric
from isometry.eval import retrieval
from isometry.io import load
from isometry.registry import all_methods

NAMES = [m.name for m in all_methods(family="deep", kind="loss") if "E01" <= m.key < "E20"]
ALONE = ("CenterLoss", "IntraPairVariance")  # regularisers: they do not tell classes apart
PARAMS = {"MagFace": {"length_bounds": (0.1, 10.0)}, "SampledSoftmax": {"sample_rate": 0.9}}


def planted():
    """Four classes apart in two of eight features, which the others drown out; one is rare."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), [20, 30, 12, 20])
    X = rng.standard_normal((82, 8))
    X[:, :2] = 0.2 * X[:, :2] + 0.6 * np.array([[-1, -1], [-1, 1], [1, 1], [1, -1]])[y]
    return X, y


def learner(name):
    settings = {"n_components": 4, "lr": 0.1, "max_epochs": 2, "min_steps": 100, "random_state": 0}
    return DeepMetric("linear", name, loss_params=PARAMS.get(name), standardize=False, **settings)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", [n for n in NAMES if n not in ALONE])
def test_a_loss_by_name_finds_what_tells_classes_apart(name):
    X, y = planted()
    fitted = learner(name).fit(X, y)
    before, after = (retrieval(Z, y).mean()["map@r"] for Z in (X, fitted.transform(X)))
    assert fitted.converged_
    assert after > before + 0.15, f"MAP@R {before:.3f} → {after:.3f}"


def test_a_loss_that_collapses_alone_says_so():
    with pytest.warns(UserWarning, match="CenterLoss alone draws all to one point"):
        assert learner("CenterLoss").fit(*planted()).history_["loss"][-1] < 0.1


@pytest.mark.parametrize("name", ["ArcFace", "dynamicarcface", "MultiSimilarity", "Contrastive[snr]"])
def test_the_command_line_takes_them(tmp_path, name):
    X, y = planted()
    np.savetxt(tmp_path / "t.csv", np.column_stack([X, y]), delimiter=",", header=",".join("abcdefghy"), comments="")
    more = ("--target", "y", "--batch", "2x8", "--epochs", "1", "--embedding", "4", "--validation", "0.5")
    done = CliRunner().invoke(
        app, ["train", str(tmp_path / "t.csv"), "-o", str(tmp_path / "run"), "--loss", name, *more]
    )
    assert done.exit_code == 0, done.output
    model = load(tmp_path / "run" / "model.safetensors")
    assert model.loss.lower() == name.lower() and model.transform(X).shape == (82, 4)
