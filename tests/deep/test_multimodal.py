"""Multi-modal metric learning (D49): one code for several descriptions of a sample, some of which may be missing."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader

from isometry.deep import (
    DAML,
    MLP,
    DeepMetric,
    MultiModal,
    MultiModalNet,
    Siamese,
    Trainer,
    Triplet,
    TripletDataset,
    TripletSampler,
    pretrain_levels,
)
from isometry.deep.engine import make_accelerator
from isometry.deep.objectives.multimodal import DenoisingLevel
from isometry.deep.samplers import rank_and_size
from tests.deep.batches import A, Y, batch, mean, ordered_pairs, sq
from tests.deep.processes import results_of_two

torch.set_num_threads(1)
SIZES = (3, 2, 4)


def net(seed=0, **params):
    torch.manual_seed(seed)
    return MultiModalNet(SIZES, **{"n_components": 2, "hidden": (6,), **params}).double()


def samples(n=8, seed=0, missing=()):
    """Rows, with NaN where (row, modality) is missing."""
    x = torch.randn(n, sum(SIZES), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    for row, modality in missing:
        x[row, sum(SIZES[:modality]) : sum(SIZES[: modality + 1])] = torch.nan
    return x


LABELS = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2])
GAPS = ((0, 1), (3, 0), (3, 2), (7, 1))


def slow_code(model, row):
    """f of one sample: the encoders of what is there, zeros and flags, or a mean."""
    hidden, flags = [], []
    for k, part in enumerate(row.split(SIZES)):
        there = not part.isnan().any()
        h = part
        for block in model.encoders[k] if there else ():
            h = block(h)
        hidden.append(h if there else torch.zeros(6, dtype=torch.float64))
        flags.append(float(there))
    if model.fusion == "concat":
        fused = torch.cat([*hidden, torch.tensor(flags, dtype=torch.float64)])
    else:
        fused = sum(hidden) / sum(flags)
    return model.shared(fused)


def slow_objective(model, x, y, lam1, lam2, m1, m2):
    codes = torch.stack([slow_code(model, row) for row in x])
    error = 0.0
    for k in range(len(SIZES)):
        terms = []
        for row, code in zip(x, codes):
            part = row.split(SIZES)[k]
            if not part.isnan().any():
                h = model.unshared(code).split(6)[k]
                for block in reversed(model.decoders[k]):
                    h = block(h)
                terms.append((h - part).square().sum())
        error = error + sum(terms) / len(terms)
    near = [torch.relu(sq(codes, i, j) - m1) for i, j, same in ordered_pairs(y) if same]
    far = [torch.relu(m2 - sq(codes, i, j)) for i, j, same in ordered_pairs(y) if not same]
    return error + lam1 * sum(near) / len(near) + lam2 * sum(far) / len(far)


# -- the equation ------------------------------------------------------------------------------------------------------


def test_pair_terms_by_hand():
    """D49 (1): on A the sums over ordered pairs are 26 (similar, m₁ = ½) and 4 (dissimilar, m₂ = 5); here means."""
    assert float(MultiModal(1.0, 0.0, 0.5, 5.0).pair_terms(A, Y)) == pytest.approx(26 / 4, rel=1e-12)
    assert float(MultiModal(0.0, 1.0, 0.5, 5.0).pair_terms(A, Y)) == pytest.approx(4 / 8, rel=1e-12)
    assert float(MultiModal(2.0, 3.0, 0.5, 5.0).pair_terms(A, Y)) == pytest.approx(2 * 26 / 4 + 3 * 4 / 8, rel=1e-12)


@pytest.mark.parametrize("missing", [(), GAPS], ids=["complete", "gaps"])
@pytest.mark.parametrize("fusion", ["concat", "mean"])
@pytest.mark.parametrize("hidden", [(6,), (5, 6)])
def test_value_and_gradient_by_loops(fusion, missing, hidden):
    model, x = net(fusion=fusion, hidden=hidden), samples(missing=missing)
    value = MultiModal(0.7, 1.3, 0.05, 0.9)(model, (x, LABELS))
    expected = slow_objective(model, x, LABELS, 0.7, 1.3, 0.05, 0.9)
    assert_close(value, expected, rtol=1e-10, atol=0)
    for a, b in zip(
        torch.autograd.grad(value, list(model.parameters())),
        torch.autograd.grad(expected, list(model.parameters()), allow_unused=True),
        strict=True,
    ):
        assert a.isfinite().all()
        assert_close(a, torch.zeros_like(a) if b is None else b, rtol=1e-8, atol=1e-11)


def test_one_modality_without_pairs_is_an_autoencoder():
    """D49 (2): M = 1, λ = 0 → D01."""
    torch.manual_seed(0)
    model = MultiModalNet([4], 2, (6,)).double()
    x, y = batch(0)
    value = MultiModal(0.0, 0.0)(model, (x, y))
    (restored,) = model.decode(model(x))
    assert value.item() == pytest.approx(mean((u - v).square().sum().detach() for u, v in zip(x, restored)), rel=1e-12)


def test_a_missing_modality_leaves_the_other_decoders_alone():
    """D49 (3): their gradient is that of their own error; that of the missing one comes from the rows that have it."""
    model, x = net(), samples(missing=GAPS)
    value = MultiModal(0.0, 0.0)(model, (x, LABELS))
    code = model(x).detach()
    for k, (decoder, part) in enumerate(zip(model.decoders, x.split(SIZES, dim=1))):
        there = ~part.isnan().any(1)
        assert there.all() == all(modality != k for _, modality in GAPS)
        own = (model.decode(code)[k][there] - part[there]).square().sum(1).mean()
        params = list(decoder.parameters())
        for a, b in zip(
            torch.autograd.grad(value, params, retain_graph=True), torch.autograd.grad(own, params), strict=True
        ):
            assert_close(a, b, rtol=1e-10, atol=1e-13)


def test_a_modality_missing_everywhere_gets_no_gradient():
    model, x = net(), samples(missing=[(row, 1) for row in range(8)])
    MultiModal()(model, (x, LABELS)).backward()
    for stack in (model.encoders, model.decoders):
        assert all((p.grad == 0).all() for p in stack[1].parameters())
        assert any((p.grad != 0).any() for p in stack[0].parameters())


def test_nothing_left_to_do_is_zero():
    """D49 (4): margins met and perfect reconstruction."""
    model = MultiModalNet([1, 1], 2, (1,)).double()
    eye = torch.eye(2, dtype=torch.float64)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
        for stack in (model.encoders, model.decoders):
            for (block,) in stack:
                next(block.parameters()).fill_(1)
        model.shared, model.unshared = nn.Linear(4, 2).double(), nn.Sequential(nn.Linear(2, 2).double(), nn.ReLU())
        for layer in (model.shared, model.unshared[0]):
            layer.bias.zero_()
            layer.weight[:] = nn.functional.pad(eye, (0, layer.in_features - 2))  # the flags do not matter
    x = torch.tensor([[0.0, 0.0], [0.5, 0.1], [3.0, 4.0], [3.0, 4.2]], dtype=torch.float64)
    value = MultiModal(m1=0.5, m2=1.5)(model, (x, Y))
    value.backward()
    assert value == 0 and all((p.grad == 0).all() for p in model.parameters())
    assert_close(model(x), x)
    assert MultiModal(m1=0.2, m2=1.5)(model, (x, Y)) > 0


# -- what is missing ---------------------------------------------------------------------------------------------------


def test_missing_content_does_not_matter_and_is_guessed():
    model, x = net(), samples(missing=GAPS)
    other = samples(seed=9)
    for row, modality in GAPS:  # one NaN is enough to miss a modality
        columns = slice(sum(SIZES[:modality]), sum(SIZES[: modality + 1]))
        x[row, columns] = other[row, columns]
        x[row, columns.start] = torch.nan
    assert_close(model(x), model(samples(missing=GAPS)), rtol=1e-12, atol=0)
    assert [part.shape for part in model.decode(model(x))] == [(8, d) for d in SIZES]
    assert all(part.isfinite().all() for part in model.decode(model(x)))


def test_mean_fusion_of_equal_modalities_does_not_notice_one_missing():
    torch.manual_seed(0)
    model = MultiModalNet([3, 3], 2, (5,), fusion="mean").double()
    model.encoders[1].load_state_dict(model.encoders[0].state_dict())
    part = torch.randn(4, 3, dtype=torch.float64)
    whole, half = torch.cat([part, part], 1), torch.cat([part, part * torch.nan], 1)
    assert_close(model(whole), model(half), rtol=1e-12, atol=0)


def test_modality_dropout_hides_and_always_leaves_one():
    """Rates: with chance ½ and three modalities, 1/8 of the rows would lose all; they keep all."""
    rule = MultiModal(modality_dropout=0.5)
    parts, present = [torch.zeros(20000, 1)] * 3, torch.ones(20000, 3, dtype=torch.bool)
    torch.manual_seed(0)
    shown = rule.shown(parts, present)
    assert shown.any(1).all()
    assert_close(shown.float().mean(0), torch.full((3,), 0.5 + 0.125), atol=0.02, rtol=0)
    assert (shown.sum(1) == 3).float().mean() == pytest.approx(0.25, abs=0.02)
    gaps = present.clone()
    gaps[:, 1] = False
    assert not (rule.shown(parts, gaps) & ~gaps).any()
    assert torch.equal(rule.eval().shown(parts, present), present)


def test_hidden_modalities_must_still_be_restored():
    """The error counts every modality the sample has, also those hidden from the encoder."""
    model, x = net(), samples()
    rule = MultiModal(0.0, 0.0, modality_dropout=0.9)
    torch.manual_seed(1)
    value = rule(model, (x, LABELS))
    torch.manual_seed(1)
    parts, present = model.split(x)
    shown = rule.shown(parts, present)
    assert not shown.all()
    restored = model.decode(model.code(parts, shown))
    expected = sum((v - u).square().sum(1).mean() for v, u in zip(restored, parts))
    assert_close(value, expected, rtol=1e-12, atol=0)


# -- pretraining -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0, 1, 2])
def test_each_level_restores_its_own_input(level):
    """Without noise: by loops, and only the parameters of the level can be moved."""
    model, x = net(hidden=(5, 6)), samples(missing=GAPS)
    assert model.depth == 2
    value, expected = DenoisingLevel(level, 0.0)(model, x), 0.0
    for k in range(len(SIZES)):
        terms = []
        for row in x:
            parts = row.split(SIZES)
            if parts[k].isnan().any():
                continue
            u = parts[k]
            for block in model.encoders[k][:level]:
                u = block(u)
            if level == 2:
                restored = model.unshared(slow_code(model, row)).split(6)[k]
            else:
                restored = model.decoders[k][level](model.encoders[k][level](u))
            terms.append((restored - u).square().sum())
        expected = expected + sum(terms) / len(terms)
    assert value.item() == pytest.approx(expected.item(), rel=1e-10)
    value.backward()
    own = {p for module in model.level(level) for p in module.parameters()}
    assert {p for p in model.parameters() if p.grad is not None} == own


def test_noise_hides_entries_but_not_from_the_target():
    model, x = net(), samples(4000)
    torch.manual_seed(0)
    clean, noisy = (float(DenoisingLevel(0, noise)(model, x).detach()) for noise in (0.0, 0.3))
    block = [nn.Sequential(up[0], down[0]) for up, down in zip(model.encoders, model.decoders)]
    expected = 0.0
    for restore, part in zip(block, x.split(SIZES, dim=1)):
        masked = [part * (torch.rand(part.shape) >= 0.3) for _ in range(20)]
        expected += mean((restore(m) - part).square().sum(1).mean().detach() for m in masked)
    assert noisy == pytest.approx(expected, rel=0.02) and abs(noisy - clean) > 0.05 * clean


def test_pretraining_goes_up_level_by_level_and_helps_the_reconstruction():
    model = net(hidden=(8, 6), n_components=3).float()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(120, 2, generator=generator) @ torch.randn(2, sum(SIZES), generator=generator)
    fresh = [p.detach().clone() for p in model.parameters()]

    def error(model):
        with torch.no_grad():
            return float(MultiModal(0.0, 0.0)(model, (x, torch.zeros(120))))

    before = error(model)
    pretrain_levels(model, x, noise=0.1, max_epochs=20, lr=0.02, classes_per_batch=2)
    assert error(model) < 0.5 * before
    assert all((a != b).any() for a, b in zip(fresh, model.parameters()))
    assert all(p.requires_grad for p in model.parameters())


def test_only_one_level_moves_at_a_time():
    """Pretraining of one epoch on level 0 alone, as a trainer would do it by hand."""
    model, x = net(hidden=(5, 6)), samples(64)
    twin = net(hidden=(5, 6))
    model.shared.requires_grad_(False)  # what was frozen before stays frozen
    pretrain_levels(model, x, max_epochs=1)
    for p in [q for k in (1, 2) for module in twin.level(k) for q in module.parameters()]:
        p.requires_grad_(False)
    Trainer(twin, DenoisingLevel(0), max_epochs=1, monitor="loss").fit(x)
    for a, b in zip(model.level(0), twin.level(0), strict=True):
        assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
    assert not any(p.requires_grad for p in model.shared.parameters())
    assert all(torch.equal(p, q) for p, q in zip(model.shared.parameters(), net(hidden=(5, 6)).shared.parameters()))


# -- training ----------------------------------------------------------------------------------------------------------


def planted(n=240, seed=0):
    """Six classes; each modality tells some of them apart."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 6
    first, second = 2.5 * rng.standard_normal((2, 5))[y % 2], 2.5 * rng.standard_normal((3, 6))[y % 3]
    return np.hstack([first, second]) / 2 + 0.4 * rng.standard_normal((n, 11)), y


def one_nn(Z, y, train):
    D = ((Z[train:, None] - Z[None, :train]) ** 2).sum(2)
    return (y[:train][D.argmin(1)] == y[train:]).mean()


def test_dropout_prepares_for_a_missing_modality():
    """Two modalities that say the same; with one gone at test time the code must still tell."""
    rng = np.random.default_rng(0)
    y = np.arange(300) % 5
    centres = 2 * rng.standard_normal((5, 4))
    X = np.hstack([centres[y], centres[y] @ rng.standard_normal((4, 4))]) / 2 + 0.4 * rng.standard_normal((300, 8))
    X = (X - X.mean(0)) / X.std(0) / 2
    broken = X.copy()
    broken[200:, :4] = np.nan
    scores = {}
    for chance in (0.0, 0.5):
        torch.manual_seed(0)
        rule = MultiModal(5.0, 5.0, modality_dropout=chance)
        trainer = Trainer(MultiModalNet([4, 4], 4, (32,)), rule, lr=0.02, max_epochs=5, batches_per_epoch=20)
        trainer.fit(X[:200], y[:200])
        scores[chance] = one_nn(trainer.embed(broken).numpy(), y, 200)
    assert scores[0.5] > 0.75 and scores[0.5] > scores[0.0] + 0.1


def test_both_modalities_together_tell_what_neither_does():
    X, y = planted()
    torch.manual_seed(0)
    model = MultiModalNet([5, 6], 4, (16,))
    trainer = Trainer(model, MultiModal(5.0, 5.0), lr=0.02, max_epochs=3, batches_per_epoch=20)
    trainer.fit(X[:160], y[:160], validation=(X[160:], y[160:]))
    assert one_nn(trainer.embed(X).numpy(), y, 160) > 0.9
    assert one_nn(X[:, :5], y, 160) < 0.6 and one_nn(X[:, 5:], y, 160) < 0.75


def test_under_the_scikit_learn_contract():
    X, y = planted(90)
    metric = DeepMetric(MultiModalNet([5, 6], 3), MultiModal(), max_epochs=2, min_steps=6, random_state=0).fit(X, y)
    assert metric.transform(X).shape == (90, 3) and np.isfinite(metric.transform(X)).all()


# -- errors and edges --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MultiModal(m1=2.0, m2=1.0), "0 <= m1 < m2, got m1=2.0, m2=1.0"),
        (lambda: MultiModal(modality_dropout=1.0), r"chance in \[0, 1\), got 1.0"),
        (lambda: DenoisingLevel(0, 1.0), r"in \[0, 1\), got 1.0"),
        (lambda: MultiModalNet([3], 2, fusion="sum"), "fusion='sum' is unknown; expected 'concat' or 'mean'"),
        (lambda: MultiModalNet([3, 0], 2), "every size must be at least 1"),
        (lambda: net()(samples()[:, :5]), r"rows of Σ sizes = 9 columns, got \(8, 5\)"),
        (lambda: net()(samples(missing=[(2, 0), (2, 1), (2, 2)])), "row 2 has no modality"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_another_model_is_refused():
    with pytest.raises(TypeError, match="trains a MultiModalNet, got MLP"):
        MultiModal()(MLP(9, 2), (samples(), LABELS))


def test_bad_numbers_are_left_to_the_trainer():
    x = samples()
    x[1, 0] = math.inf
    assert not MultiModal()(net(), (x, LABELS)).isfinite()


def test_bfloat16_model():
    model, x = net().float(), samples(missing=GAPS).float()
    plain = MultiModal()(model, (x, LABELS))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = MultiModal()(model, (x, LABELS))
    assert value.dtype == torch.float32 and value != plain
    assert_close(value, plain, rtol=0.02, atol=0)


# -- several processes -------------------------------------------------------------------------------------------------


def trained(key):
    """History of the losses and all weights after a few steps of an objective that is more than a loss."""
    X, y = planted(48)
    torch.manual_seed(0)
    if key == "multimodal":
        X = np.where((np.arange(48) % 3 == 0)[:, None] & (np.arange(11) < 5), np.nan, X)  # unequal counts by process
        model, rule = MultiModalNet([5, 6], 3, (8,)), MultiModal(modality_dropout=0.3)
    else:
        # no bias: distances do not see it, its gradient is round-off, which Adam makes large
        model = nn.Sequential(nn.Linear(11, 8), nn.ReLU(), nn.Linear(8, 3, bias=False))
        rule = DAML(8, pretrain_steps=3) if key == "daml" else Siamese(Triplet(normalize=False))
    settings = {"max_epochs": 2, "monitor": "last", "classes_per_batch": 6, "samples_per_class": 2}
    trainer = Trainer(model, rule, batches_per_epoch=4, **settings)
    if key == "siamese":
        x, world = torch.tensor(X, dtype=torch.float32), rank_and_size()[1]
        trainer.fit(DataLoader(TripletDataset(x), 12 // world, sampler=TripletSampler(y)))
    else:
        trainer.fit(X, y)
    return trainer.history["loss"], [*model.state_dict().values(), *rule.state_dict().values()]


def distributed_main(folder):
    """What each of the processes runs."""
    make_accelerator("no", "cpu")  # forms the group
    torch.save({key: trained(key) for key in KEYS}, f"{folder}/rank{os.environ['RANK']}.pt")


KEYS = ("multimodal", "daml", "siamese")


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path):
    ranks = results_of_two("tests.deep.test_multimodal", tmp_path)
    for key in KEYS:
        losses, weights = trained(key)
        assert losses[0] != losses[1]
        for found, parts in (rank[key] for rank in ranks):
            np.testing.assert_allclose(found, losses, rtol=1e-4, err_msg=key)
            for a, b in zip(parts, weights, strict=True):
                assert_close(a, b, rtol=1e-3, atol=1e-5)
