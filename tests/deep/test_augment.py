"""Augmentations do to each sample what they say: in training only, and the same after a resume."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from isometry.deep import (
    MLP,
    Affine,
    Augment,
    Augmented,
    DeepMetric,
    Flip,
    GradientCache,
    LossObjective,
    Mix,
    NCALoss,
    Noise,
    ProxyNCA,
    Shift,
    Trainer,
    Triplet,
)
from isometry.deep.augment import partners

torch.set_num_threads(1)


def images(B=7, shape=(2, 5, 6), seed=0):
    return torch.rand(B, *shape, generator=torch.Generator().manual_seed(seed))


def seeded(seed=0):
    torch.manual_seed(seed)


def varies(transform, x, y=None):
    """Samples that were equal are not any more: every one has random numbers of its own."""
    same = x[:1].expand_as(x).contiguous()
    return len({out.numpy().tobytes() for out in transform(same, y)}) > len(x) // 2


# -- each transform against a slow one ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 5, 6), (5, 6)])
def test_shift_moves_by_whole_pixels_and_continues_the_border(shape):
    x = images(40, shape)
    seeded()
    out = Shift(2)(x)
    seeded()
    dy = torch.randint(-2, 3, (len(x), 1)).squeeze(1)
    dx = torch.randint(-2, 3, (len(x), 1)).squeeze(1)
    assert set(dy.tolist()) == set(dx.tolist()) == {-2, -1, 0, 1, 2}
    h, w = shape[-2:]
    for b in range(len(x)):
        for i in range(h):
            for j in range(w):
                source = min(max(i + int(dy[b]), 0), h - 1), min(max(j + int(dx[b]), 0), w - 1)
                assert torch.equal(out[b, ..., i, j], x[b, ..., source[0], source[1]])
    assert torch.equal(Shift(0)(x), x)


def test_flip_mirrors_about_half():
    x = images(200)
    seeded()
    out = Flip()(x)
    kept = [torch.equal(a, b) for a, b in zip(out, x)]
    mirrored = [torch.equal(a, b.flip(-1)) for a, b in zip(out, x)]
    assert all(k != m for k, m in zip(kept, mirrored)) and 70 < sum(mirrored) < 130
    assert torch.equal(Flip(0.0)(x), x) and torch.equal(Flip(1.0)(x), x.flip(-1))


def test_noise_has_the_standard_deviation_asked_for():
    x = images(50, (1, 20, 20))
    seeded()
    added = Noise(0.3)(x) - x
    assert abs(float(added.std()) - 0.3) < 0.01 and abs(float(added.mean())) < 0.01


def test_mix_stays_on_the_segment_to_one_of_the_class():
    """x + t (x_j − x), t in [0, most]: each output lies between its sample and another of its class."""
    y = torch.tensor([0, 1, 0, 2, 1, 0, 0, 1, 3])
    x = torch.randn(9, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    moved = 0
    for seed in range(5):
        seeded(seed)
        out = Mix(0.4)(x, y)
        assert all(_on_a_segment(x, y, out, i, 0.4) for i in range(len(x)))
        moved += sum(not torch.equal(a, b) for a, b in zip(out, x))
    assert moved >= 15  # of 35 that have another in their class
    assert torch.equal(out[3], x[3]) and torch.equal(out[8], x[8])  # alone in their class
    with pytest.raises(ValueError, match="needs labels"):
        Mix()(x)


def _on_a_segment(x, y, out, i, most):
    """Whether row i of the output is between x_i and, at most so far away, some x_j of its class."""
    for j in range(len(x)):
        towards, step = x[j] - x[i], out[i] - x[i]
        t = float(step @ towards / (towards @ towards)) if i != j else 0.0
        if y[i] == y[j] and -1e-9 <= t <= most and torch.allclose(step, t * towards, atol=1e-9):
            return True
    return False


def test_partners_are_a_random_permutation_inside_each_class():
    y = torch.tensor([1, 0, 1, 1, 0, 2, 1])
    seen = set()
    for seed in range(200):
        seeded(seed)
        p = partners(y)
        assert sorted(p.tolist()) == list(range(7)) and torch.equal(y[p], y)
        seen.add(int(p[0]))
    assert seen == {0, 2, 3, 6}


def test_affine_without_motion_is_the_identity():
    x = images()
    assert_close(Affine(0, 0, 0)(x), x, rtol=0, atol=1e-6)
    assert_close(Affine(0, 0, 0)(x[:, 0]), x[:, 0], rtol=0, atol=1e-6)


class Fixed(Affine):
    """An affine map with these parameters for every image."""

    def __init__(self, degrees=0.0, zoom=1.0, shift=(0.0, 0.0)):
        super().__init__(degrees, 0.0, 0.0)
        self.angle, self.zoom, self.move = np.deg2rad(degrees), zoom, shift

    def draw(self, x):
        h, w = x.shape[-2:]
        c, s = np.cos(self.angle) / self.zoom, np.sin(self.angle) / self.zoom
        theta = torch.tensor([[c, -s * h / w, 2 * self.move[0]], [s * w / h, c, 2 * self.move[1]]], dtype=x.dtype)
        return theta.expand(len(x), 2, 3)


def bilinear(image, u, v):
    """The image (h, w) at column u and row v, clamped to the border."""
    h, w = image.shape
    u, v = np.clip(u, 0, w - 1), np.clip(v, 0, h - 1)
    i, j = min(int(v), h - 2), min(int(u), w - 2)
    a, b = v - i, u - j
    top, bottom = ((1 - b) * image[r, j] + b * image[r, j + 1] for r in (i, i + 1))
    return (1 - a) * top + a * bottom


def test_affine_against_a_loop_over_pixels():
    """u' = R(α) u / s + t in pixels from the centre, on an image that is not square."""
    x = images(60, (1, 7, 10)).double()
    transform = Affine(30, 0.3, 0.1)
    seeded(5)
    out = transform(x)
    seeded(5)
    angle = np.deg2rad(30) * (2 * torch.rand(60, dtype=torch.float64) - 1).numpy()
    zoom = 1 + 0.3 * (2 * torch.rand(60, dtype=torch.float64) - 1).numpy()
    tx, ty = 0.1 * (2 * torch.rand(2, 60, dtype=torch.float64) - 1).numpy()
    for b in range(0, 60, 7):
        for i in range(7):
            for j in range(10):
                px, py = j - 4.5, i - 3.0
                u = (np.cos(angle[b]) * px - np.sin(angle[b]) * py) / zoom[b] + tx[b] * 10 + 4.5
                v = (np.sin(angle[b]) * px + np.cos(angle[b]) * py) / zoom[b] + ty[b] * 7 + 3.0
                assert float(out[b, 0, i, j]) == pytest.approx(bilinear(x[b, 0].numpy(), u, v), abs=1e-9)
    assert np.abs(angle).max() > np.deg2rad(25) and zoom.min() < 0.75 and zoom.max() > 1.25


def test_a_quarter_turn_is_rot90():
    x = images(3, (2, 6, 6))
    assert_close(Fixed(90)(x), x.rot90(1, (-2, -1)), rtol=0, atol=1e-5)


@pytest.mark.parametrize("transform", [Shift(2), Flip(), Noise(), Affine()], ids=lambda t: type(t).__name__)
def test_every_sample_has_random_numbers_of_its_own(transform):
    seeded()
    x = images(16, (1, 9, 9))
    if isinstance(transform, Flip):
        assert len({o.numpy().tobytes() for o in transform(x[:1].expand_as(x))}) == 2
    else:
        assert varies(transform, x)
    assert transform(x).shape == x.shape and transform(x).dtype == x.dtype


def test_bad_settings():
    with pytest.raises(ValueError, match="scale=1"):
        Affine(scale=1.0)


# -- several, and where they sit ---------------------------------------------------------------------------------------


def test_augment_goes_in_order_and_keeps_the_shape():
    class Add(nn.Module):
        def forward(self, x, y):
            assert x.shape[1:] == (2, 5, 6)
            return x + 1

    class Double(nn.Module):
        def forward(self, x, y):
            return 2 * x

    x = images()
    out = Augment(Add(), Double(), image_shape=(2, 5, 6))(x.flatten(1))
    assert torch.equal(out, (2 * (x + 1)).flatten(1))
    assert torch.equal(Augment(Double())(x), 2 * x)
    seeded()
    flat = Augment.standard((2, 5, 6))(x.flatten(1))
    seeded()
    assert torch.equal(flat, Affine()(x).flatten(1))


def test_augmented_only_in_training_and_the_objective_answers_for_it():
    loss = ProxyNCA(4, 3)
    objective = Augmented(loss, Augment(Noise(0.5)))
    net, x, y = MLP(5, 3), torch.randn(8, 5), torch.arange(8) % 4
    plain = LossObjective(loss)(net, (x, y))
    seeded()
    noisy = objective(net, (x, y))
    seeded()
    assert_close(noisy, LossObjective(loss)(net, (Noise(0.5)(x), y)), rtol=0, atol=0)
    assert float(noisy.detach()) != float(plain.detach())
    assert torch.equal(objective.eval()(net, (x, y)), plain)
    groups, expected = objective.param_groups(1e-3), loss.param_groups(1e-3)
    assert groups == expected and groups[0]["params"][0] is loss.proxies
    noisy.backward()
    assert objective.active == 1.0


def test_augmented_around_any_objective():
    def square(model, x):
        return model(x).square().mean()

    net, x = MLP(5, 3), torch.randn(8, 5)
    objective = Augmented(square, Noise(0.5))
    seeded()
    value = objective(net, x)
    seeded()
    assert torch.equal(value, square(net, Noise(0.5)(x)))
    assert objective.param_groups(0.1) == [] and objective.active is None


class Scaled(nn.Module):
    """An objective with a parameter of its own and no word on its learning rate."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, model, x):
        return self.weight * model(x).square().mean()


def test_parameters_of_an_objective_are_found():
    (group,) = Augmented(Scaled(), Noise()).param_groups(0.1)
    assert len(group["params"]) == 1 and group["lr"] == 0.1


def test_resume_is_bit_identical_with_augmentation(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 5
    X = rng.standard_normal((5, 16))[y] + rng.standard_normal((60, 16))

    def fit(folder, epochs, net_seed=0):
        torch.manual_seed(net_seed)
        objective = Augmented(Triplet(), Augment(Affine(), Noise(0.1), Mix(), image_shape=(1, 4, 4)))
        settings = {"classes_per_batch": 4, "samples_per_class": 3, "schedule": "constant", "monitor": "last"}
        return Trainer(MLP(16, 3), objective, max_epochs=epochs, folder=folder, **settings).fit(X, y, resume=True)

    whole = fit(tmp_path / "a", 4)
    fit(tmp_path / "b", 2)
    parts = fit(tmp_path / "b", 4)
    assert whole.history["loss"] == parts.history["loss"] and whole.run.best_epoch == 4
    for a, b in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_collapse_is_seen_through_wrappers():
    """Without held-out samples a part of the training samples is looked at, since the network gives embeddings."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 6)), np.arange(60) % 5
    trainer = Trainer(MLP(6, 3), GradientCache(Augmented(NCALoss(), Noise()), 16), max_epochs=1).fit(X, y)
    assert 1 < trainer.history["rank"][0] <= 3


def test_the_last_epoch_is_kept_if_asked():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 5
    X = rng.standard_normal((5, 6))[y] + rng.standard_normal((60, 6))
    torch.manual_seed(0)
    net, seen = MLP(6, 3), []
    record = lambda trainer: seen.append([p.detach().clone() for p in trainer.model.parameters()])  # noqa: E731
    Trainer(net, NCALoss(), max_epochs=6, lr=0.05, monitor="last", callbacks=[record]).fit(X, y, validation=0.4)
    assert len(seen) == 6 and all(torch.equal(a, b) for a, b in zip(seen[-1], net.parameters(), strict=True))


# -- the estimator -----------------------------------------------------------------------------------------------------


def quick(**params):
    settings = {"n_components": 4, "max_epochs": 2, "min_steps": 6, "random_state": 0}
    return DeepMetric(**{**settings, **params})


def squares(n=60, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    return (rng.standard_normal((3, 36))[y] + 0.5 * rng.standard_normal((n, 36))).astype(np.float32), y


def test_a_table_of_images_is_the_array_of_images():
    X, y = squares()
    flat = quick(image_shape=(1, 6, 6)).fit(X, y)
    cube = quick().fit(X.reshape(-1, 6, 6), y)
    assert type(flat.network()).__name__ == "ConvNet" and flat.n_features_in_ == 36 and flat.mean_.shape == ()
    assert np.array_equal(flat.transform(X), cube.transform(X.reshape(-1, 6, 6)))
    with pytest.raises(ValueError, match="image_shape=\\(1, 5, 6\\) has 30 pixels, samples have 36"):
        quick(image_shape=(1, 5, 6)).fit(X, y)
    assert quick(image_shape=(1, 6, 6), model="mlp").fit(X, y).transform(X).shape == (60, 4)


def test_the_estimator_augments_images_tables_and_as_it_is_told(tmp_path):
    X, y = squares()
    plain = quick(image_shape=(1, 6, 6)).fit(X, y)
    moved = quick(image_shape=(1, 6, 6), augment=True).fit(X, y)
    assert not np.array_equal(plain.transform(X), moved.transform(X))
    told = quick(image_shape=(1, 6, 6), augment=Augment.standard((1, 6, 6))).fit(X, y)
    assert np.array_equal(told.transform(X), moved.transform(X))
    assert np.isfinite(quick(augment=True).fit(X, y).transform(X)).all()
    moved.save(tmp_path / "m.safetensors")
    import isometry

    assert np.array_equal(isometry.load(tmp_path / "m.safetensors").transform(X), moved.transform(X))


def test_the_estimator_resumes_and_looks_at_what_is_held_out(tmp_path):
    X, y = squares(90)
    part, rest = slice(0, 60), slice(60, 90)

    def stop(trainer):
        return "enough" if trainer.run.epoch == 1 else None

    def learner():
        return quick(max_epochs=3, augment=True, trainer_params={"monitor": "last"})

    held = X[rest], y[rest]
    whole = learner().fit(X[part], y[part], held_out=held, folder=tmp_path / "a")
    with pytest.raises(KeyboardInterrupt):
        learner().fit(X[part], y[part], held_out=held, folder=tmp_path / "b", callbacks=[_interrupt])
    again = learner().fit(X[part], y[part], held_out=held, folder=tmp_path / "b")
    assert again.history_ == whole.history_ and np.isfinite(whole.history_["map@r"]).all()
    assert np.array_equal(whole.transform(X), again.transform(X))
    early = learner().fit(X[part], y[part], callbacks=[stop])
    assert early.stop_reason_ == "enough" and early.n_iter_ == 1 and early.converged_
    both = quick(max_epochs=3, trainer_params={"callbacks": [stop]}).fit(X[part], y[part], callbacks=[_interrupt])
    assert both.stop_reason_ == "enough"
    with pytest.raises(ValueError, match=r"X has 35 features|expecting 36 features"):
        learner().fit(X[part], y[part], held_out=(X[rest, :-1], y[rest]))


def _interrupt(trainer):
    if trainer.run.epoch == 2:
        raise KeyboardInterrupt


def test_miners_by_name():
    X, y = squares()
    by_name = quick(loss_params={"miner": "BatchHard"}).fit(X, y)
    from isometry.deep import BatchHard

    by_hand = quick(loss=Triplet(miner=BatchHard())).fit(X, y)
    assert np.array_equal(by_name.transform(X), by_hand.transform(X))
    assert quick(loss="MarginLoss", loss_params={"miner": "DistanceWeighted"}).fit(X, y).n_iter_ == 2
    with pytest.raises(ValueError, match="Triplet is a loss; a miner is expected"):
        quick(loss_params={"miner": "Triplet"}).fit(X, y)
