"""Losses and miners by name, with values in brackets that are read as data; miners called on a batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from isometry.deep import (
    BatchAll,
    BatchHard,
    BatchSemiHard,
    CrossBatchMemory,
    DeepMetric,
    DistanceWeighted,
    EasyPositive,
    Lifted,
    MarginLoss,
    Triplet,
)
from isometry.deep.loss import LossModule
from isometry.deep.miners import Miner
from isometry.deep.named import make_named, parse_call
from isometry.io import load
from isometry.registry import all_methods, get
from tests.deep.batches import batch

SIZES = {"num_classes": 4, "embedding_size": 4, "class_counts": [3, 3, 3, 3]}


@pytest.mark.parametrize(
    ("text", "name", "params"),
    [
        ("Triplet", "Triplet", {}),
        (" Triplet ( margin = 0.3 ) ", "Triplet", {"margin": 0.3}),
        ("Triplet(margin=soft, swap=True)", "Triplet", {"margin": "soft", "swap": True}),
        (
            "X(a=-1, b='x y', c=None, d=(1, 2), e=[1e-3])",
            "X",
            {"a": -1, "b": "x y", "c": None, "d": (1, 2), "e": [1e-3]},
        ),
        ("Lifted[max](margin=2)", "Lifted[max]", {"margin": 2}),
        ("Triplet(miner=Extreme(strategy='HPHN'))", "Triplet", {"miner": "Extreme(strategy='HPHN')"}),
    ],
)
def test_names_with_values(text, name, params):
    assert parse_call(text) == (name, params)


@pytest.mark.parametrize(
    "text",
    [
        *("Triplet(", "Triplet)", "Triplet(0.3)", "Triplet(**{})", "Triplet(margin=)", "Triplet(margin=0.3) + 1"),
        *("Triplet(margin=[x for x in y])", "Triplet(margin=9**9**9)", "Triplet(a=1)(b=2)", "f(a=1).b", "("),
        *("Triplet(margin=lambda: 3)", "Triplet(margin=a.b)", "Triplet(margin=0.1, margin=0.2)", "X(a=" + "(" * 500),
    ],
)
def test_what_is_no_name_with_values_is_refused(text):
    with pytest.raises(ValueError, match=r"cannot be read|is no value|no loss called|has no parameter|no method"):
        make_named("loss", text, (LossModule,), SIZES)


def test_nothing_in_a_text_is_run(tmp_path):
    file = tmp_path / "seen"
    for text in (f"Triplet(margin=open({str(file)!r}, 'w'))", f"Triplet(miner=__import__('os').mkdir({str(file)!r}))"):
        with pytest.raises(ValueError, match=r"cannot be read|is unknown"):
            make_named("loss", text, (LossModule,), SIZES)
    assert not file.exists()


@pytest.mark.parametrize(
    "row", [m for m in all_methods(family="deep") if m.kind in ("loss", "head")], ids=lambda m: m.key
)
def test_every_loss_of_the_table_is_made_by_its_name(row):
    z, y = batch(7)
    given = {k: v for k, v in row.test_params.items() if k == "class_vectors"}  # data that no default can stand for
    loss = make_named("loss", row.name, (LossModule,), SIZES | given).double().eval()
    assert loss(z, y).isfinite()


@pytest.mark.parametrize("row", all_methods(family="deep", kind="miner"), ids=lambda m: m.key)
def test_every_miner_of_the_table_is_made_by_its_name(row):
    z, y = batch(7)
    loss = make_named("loss", "Triplet", (LossModule,), SIZES, {"miner": row.name})
    assert isinstance(loss.miner, row.load()) and loss(z, y).isfinite()


def test_values_reach_what_they_name():
    z, y = batch(7)
    named = make_named("loss", "Triplet(margin=0.7, miner=BatchSemiHard(fallback=easiest))", (LossModule,), SIZES)
    assert_close(named(z, y), Triplet(0.7, miner=BatchSemiHard("easiest"))(z, y), rtol=0, atol=0)
    assert make_named("loss", "Lifted[max](margin=2.0)", (LossModule,)).form == Lifted(form="max").form
    memory = make_named("loss", "CrossBatchMemory(loss=Triplet(margin=0.5), memory_size=9)", (LossModule,), SIZES)
    assert memory.memory.shape == (9, 4) and type(memory.loss) is Triplet and memory.loss.margin == 0.5
    assert type(CrossBatchMemory("MarginLoss", 4).loss) is MarginLoss


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Tripplet", "no loss called 'Tripplet'; did you mean Triplet"),
        ("LMNN", "LMNN is an estimator; a loss is expected"),
        ("BatchHard", "BatchHard is a miner; a loss is expected"),
        ("Head", r"Head is what MSE, .*CrossEntropy.* have in common"),
        ("Triplet(margins=1)", "Triplet has no parameter 'margins'; it has margin, swap"),
        ("Huber(delta=wide)", r"Huber\(delta='wide'\): delta must be a number"),
        ("Triplet(swap=3)", "swap must be True or False"),
        ("CrossEntropy(miner=BatchHard)", "CrossEntropy has no parameter 'miner'"),
        ("Triplet(miner=BatchSemiHar)", "no miner called 'BatchSemiHar'; did you mean BatchSemiHard"),
        ("Triplet(miner=MarginLoss)", "MarginLoss is a loss; a miner is expected"),
        ("CrossBatchMemory(loss=CrossEntropy)", "CrossEntropy is a head; a loss is expected"),
    ],
)
def test_what_is_wrong_is_named(text, words):
    with pytest.raises(ValueError, match=words):
        make_named("loss", text, (LossModule,), SIZES)


def test_a_missing_size_is_named():
    with pytest.raises(ValueError, match=r"DistanceWeighted needs embedding_size: write 'DistanceWeighted\(embedding_"):
        Triplet(miner="DistanceWeighted")
    with pytest.raises(ValueError, match="a memory needs embedding_size"):
        CrossBatchMemory()


@pytest.mark.parametrize("name", ["ArcFaec", "Tripplett", "ProxyNC", "zzzzzz"])
def test_a_misspelt_loss_suggests_losses_only(name):
    with pytest.raises(KeyError) as caught:
        get(name, ("loss", "head", "objective"))
    said = caught.value.args[0]
    assert said.startswith(f"no loss called {name!r}") and "isometry list --family deep" in said
    if "did you mean " in said:
        close = said.partition("did you mean ")[2].partition("?")[0].split(", ")
        assert {get(c).kind for c in close} <= {"loss", "head", "objective"}


def test_an_estimator_takes_values_and_keeps_them_in_its_file(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(40) % 4
    X = rng.normal(size=(4, 5))[y] + 0.3 * rng.normal(size=(40, 5))
    quick = {"max_epochs": 1, "min_steps": 3, "n_components": 3, "random_state": 0}
    named = DeepMetric(loss="Triplet(margin=0.9, miner=DistanceWeighted(cutoff=0.4, random_state=0))", **quick).fit(
        X, y
    )
    miner = DistanceWeighted(3, cutoff=0.4, random_state=0)
    made = DeepMetric(loss=Triplet(0.9, miner=miner), **quick).fit(X, y)
    assert named.history_["loss"] == made.history_["loss"]
    named.save(tmp_path / "m")
    assert load(tmp_path / "m").loss == named.loss
    assert np.array_equal(load(tmp_path / "m").transform(X), made.transform(X))
    given = DeepMetric(loss="Triplet(margin=0.1)", loss_params={"margin": 0.9, "miner": miner}, **quick).fit(X, y)
    assert given.n_iter_ == 1


# -- miners on a batch -------------------------------------------------------------------------------------------------


def by_loops(z, y, keep):
    D = torch.cdist(z, z)
    n = range(len(y))
    return {
        (a, p, q) for a in n for p in n for q in n if y[a] == y[p] != y[q] and a != p and keep(D[a], a, p, q)
    }  # fmt: skip


def test_a_miner_called_on_a_batch_gives_triplets():
    z, y = batch(7)
    n = range(len(y))
    expected = {
        BatchAll(): by_loops(z, y, lambda d, a, p, q: True),
        BatchHard(): by_loops(
            z, y, lambda d, a, p, q: d[p] == max(d[i] for i in n if y[i] == y[a] and i != a)
            and d[q] == min(d[i] for i in n if y[i] != y[a])
        ),
        BatchSemiHard(): by_loops(
            z, y, lambda d, a, p, q: d[q] > d[p] and d[q] == min(d[i] for i in n if y[i] != y[a] and d[i] > d[p])
        ),
        EasyPositive(): by_loops(z, y, lambda d, a, p, q: d[p] == min(d[i] for i in n if y[i] == y[a] and i != a)),
    }  # fmt: skip
    for miner, triplets in expected.items():
        found = miner(z, y)
        assert set(zip(*(part.tolist() for part in found))) == triplets and len(found[0]) == len(triplets)
        assert not found[0].requires_grad
    loss = Triplet(0.6, distance="euclidean", normalize=False)
    mined = Triplet(0.6, distance="euclidean", normalize=False, miner=BatchHard())
    assert_close(loss.triplets(z, BatchHard()(z, y)), mined(z, y))


def test_a_miner_that_needs_unit_vectors_makes_them_and_roots_squares():
    z, y = batch(7, n=60)
    near = DistanceWeighted(4, random_state=0)(100 * z, y)
    unit = torch.nn.functional.normalize(z, dim=1)
    assert all(map(torch.equal, near, DistanceWeighted(4, random_state=0)(unit, y)))
    losses = [Triplet(miner=DistanceWeighted(4, random_state=0), distance=d) for d in ("euclidean", "sqeuclidean")]
    chosen = []
    for loss in losses:
        D = loss.distances(z, z)
        chosen.append(loss.miner.triples(loss.as_mined(D), *loss.masks(y, None, torch.arange(60), D.dtype)))
    assert all(map(torch.equal, *chosen)) and all(map(torch.equal, chosen[0], near))
    losses = [Triplet(miner=DistanceWeighted(4, random_state=0), distance=d) for d in ("euclidean", "sqeuclidean")]
    a, p, n = near
    for loss in losses:
        assert_close(loss(z, y), loss.triplets(z, (a, p, n)))


def test_bad_input_of_a_miner_is_named():
    z, y = batch(7)
    for args in ((z, y[:3]), (z[0], y), (z, y[:, None])):
        with pytest.raises(ValueError, match=r"embeddings \(B, p\) and labels \(B,\)"):
            BatchHard()(*args)
    with pytest.raises(ValueError, match=r"has distance='cosine'.*take another miner"):
        Triplet(distance="cosine", miner=DistanceWeighted(4))
    assert isinstance(Triplet(miner="BatchSemiHard").miner, Miner)
