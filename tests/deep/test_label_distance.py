"""Losses of other kinds of labels, E39 to E41, beside their equations written with loops."""

import math
import warnings

import pytest
import torch
from scipy.stats import spearmanr
from torch.testing import assert_close

from isometry.deep import CrossBatchMemory, HierarchicalContrast, LogRatio, RankNContrast, SupCon
from isometry.deep.losses.hierarchy import levels_apart
from tests.deep.batches import A, batch, close, cosines, euc, gradient, same, sq

NUMBERS = torch.tensor([0, 1, 2, 4])


def test_toy_values():
    close(LogRatio()(A, NUMBERS), 0.981528)
    close(RankNContrast()(A, NUMBERS), 0.650513)


# -- Rank-N-Contrast ---------------------------------------------------------------------------------------------------


def slow_rank_n(z, g):
    terms = []
    for i in range(len(z)):
        others = [k for k in range(len(z)) if k != i and not math.isnan(g[i, k])]
        for j in others:
            farther = [k for k in others if g[i, k] >= g[i, j]]
            d = {k: euc(z, i, k) / 2 for k in farther}
            terms.append(d[j] + torch.logsumexp(torch.stack([-d[k] for k in farther]), 0))
    return torch.stack(terms).mean()


LABELS = {
    "numbers": torch.tensor([0.1, 2.0, 0.7, 5.0, 4.4, 0.3, 1.2, 3.3, 2.9, 8.0, 6.1, 7.2]),
    "ties": torch.arange(12) % 3,
    "one": torch.zeros(12),
}


@pytest.mark.parametrize("labels", LABELS)
def test_E40_is_its_loop(labels):
    z, y = batch(0)[0], LABELS[labels].double()
    same(RankNContrast(), lambda z, y: slow_rank_n(z, (y[:, None] - y).abs()), z, y)


def test_E40_unknown_distances_are_left_out():
    z, g = batch(0)[0], (LABELS["ties"][:, None] - LABELS["ties"]).abs().double()
    g[2, 5] = g[7] = torch.nan
    same(RankNContrast(), slow_rank_n, z, g)


def test_E40_of_equal_labels():
    z = batch(0)[0]
    D = torch.cdist(z, z)
    lse = [torch.logsumexp(-D[i, [k for k in range(12) if k != i]] / 2, 0) for i in range(12)]
    off = ~torch.eye(12).bool()
    expected = (torch.stack(lse)[:, None] + D / 2)[off].mean()
    assert_close(RankNContrast()(z, torch.ones(12)), expected, rtol=1e-10, atol=0)


def test_E40_far_apart_points_are_no_underflow():
    """Distances of 1e4 in float32: every term is a difference of logarithms."""
    z, y = 1e4 * batch(0)[0].float(), LABELS["numbers"]
    slow = slow_rank_n(z.double(), (y[:, None] - y).abs())
    assert_close(RankNContrast()(z, y), slow.float(), rtol=1e-5, atol=0)
    assert gradient(RankNContrast(), z, y).isfinite().all()


@pytest.mark.parametrize("kind", [RankNContrast, LogRatio])
def test_labels_of_several_numbers(kind):
    z, y = batch(0)[0], batch(1, p=3)[0]
    g = torch.cdist(y, y, p=1)
    assert_close(kind(labels="vectors")(z, y), kind()(z, g), rtol=1e-12, atol=0)
    refs = z[:5], y[:5]
    assert_close(kind(labels="vectors")(z, y, *refs), kind()(z, g[:, :5], refs[0]), rtol=1e-12, atol=0)
    with pytest.raises(ValueError, match=r"takes numbers \(B, q\)"):
        kind(labels="vectors")(z, y[:, 0])
    with pytest.raises(ValueError, match="labels must be numbers, some are NaN"):
        kind()(z, y[:, 0] * torch.nan)
    assert_close(kind()(z, y[:, 0] > 0), kind()(z, (y[:, 0] > 0).double()), rtol=1e-12, atol=0)
    with pytest.raises(ValueError, match="which are numbers, got booleans"):
        kind()(z, g > 1)
    with pytest.raises(TypeError, match="needs labels"):
        kind().views(z, z)


def test_a_memory_refuses_labels_that_it_cannot_store():
    z, memory = batch(0)[0], CrossBatchMemory(RankNContrast(), 4, 20).double()
    with pytest.raises(ValueError, match=r"stores class labels, which are whole numbers; got torch\.float32"):
        memory(z, LABELS["numbers"])
    assert memory(z, LABELS["ties"]).isfinite()


# -- log-ratio ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize("ties", ["skip", "eps"])
def test_E39_is_its_triple_loop(squared, ties):
    z, y = batch(0)[0], LABELS["ties" if ties == "eps" else "numbers"].double()
    eps, d = 1e-6, sq if squared else euc

    def slow(z, y):
        anchors = []
        for a in range(12):
            others = [k for k in range(12) if k != a]
            u = [(d(z, a, k) + eps).log() for k in others]
            v = [((y[a] - y[k]).abs() + (eps if ties == "eps" else 0)).log() for k in others]
            pairs = [(i, j) for i in range(11) for j in range(i)]
            anchors.append(torch.stack([(u[i] - u[j] - v[i] + v[j]) ** 2 for i, j in pairs]).mean())
        return torch.stack(anchors).mean()

    same(LogRatio(squared, ties), slow, z, y)


def test_E39_leaves_out_equal_labels():
    """With classes of four in twelve, an anchor has eight partners."""
    z, y = batch(0)[0], LABELS["ties"]
    g = (y[:, None] - y).abs().double()
    g[g == 0] = torch.nan
    assert_close(LogRatio()(z, y), LogRatio()(z, g), rtol=1e-12, atol=0)


def test_E39_proportional_distances_cost_nothing():
    y = torch.tensor([0.0, 1.0, 3.0, 7.0], dtype=torch.float64)
    z = y.sqrt()[:, None] * torch.eye(4, dtype=torch.float64)  # ‖z_i − z_0‖² = y_i
    g = torch.cdist(z, z).square()
    close(LogRatio(eps=1e-12)(z, g), 0.0)
    z = batch(0)[0]
    assert_close(LogRatio(eps=1e-12)(5 * z, NUMBERS.repeat(3)), LogRatio(eps=1e-12)(z, NUMBERS.repeat(3)))


@pytest.mark.parametrize("kind", [LogRatio, RankNContrast])
def test_distances_come_to_rank_like_those_of_labels(kind):
    """The label is one of eight features."""
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    y, W = x[:, 0], torch.eye(8, requires_grad=True)
    optimizer = torch.optim.Adam([W], 0.02)

    def correlation():
        i, j = torch.triu_indices(64, 64, 1)
        return spearmanr((y[i] - y[j]).abs(), torch.cdist(x @ W.T, x @ W.T).detach()[i, j]).statistic

    before = correlation()
    for _ in range(100):
        optimizer.zero_grad()
        kind()(x @ W.T, y).backward()
        optimizer.step()
    assert before < 0.5 and correlation() > 0.85


# -- hierarchy ---------------------------------------------------------------------------------------------------------

CODES = torch.tensor([[0, 0], [0, 0], [0, 1], [0, 1], [1, 0], [1, 0], [1, 1], [1, 2], [2, 0], [2, 0], [2, 0], [3, 0]])


def slow_levels(z, codes, constraint):
    S, total, finer_pairs, finer = cosines(z) / 0.3, 0.0, [], None
    n, L = codes.shape
    for level in range(1, L + 1):
        prefix, anchors, here = codes[:, : L + 1 - level].tolist(), [], []
        for i in range(n):
            cost = -(S[i] - torch.logsumexp(S[i, [k for k in range(n) if k != i]], 0))
            pos = [j for j in range(n) if j != i and prefix[j] == prefix[i]]
            here += [cost[j] for j in pos]
            floor = finer_pairs if constraint == "pairs" else []
            if pos:
                anchors.append(torch.stack([torch.stack([cost[j], *floor]).max() for j in pos]).mean())
        value = torch.stack(anchors).mean()
        if constraint == "level" and finer is not None:
            value = torch.maximum(value, finer)
        finer, finer_pairs = value, [torch.stack(here).max()]
        total = total + 2 ** (1 / level) / (L + 1) * value
    return total


@pytest.mark.parametrize("constraint", ["pairs", "level", "none"])
@pytest.mark.parametrize("seed", [0, 1])
def test_E41_is_its_loop(seed, constraint):
    z = batch(seed)[0]
    same(HierarchicalContrast(0.3, constraint), lambda z, y: slow_levels(z, y, constraint), z, CODES)


def test_E41_special_cases():
    z, y = batch(0)
    for constraint in ("pairs", "level", "none"):
        assert_close(HierarchicalContrast(0.3, constraint)(z, y), SupCon(0.3)(z, y), rtol=1e-12, atol=0)
        assert_close(HierarchicalContrast(0.3, constraint)(z, y[:, None]), SupCon(0.3)(z, y), rtol=1e-12, atol=0)
    loss = HierarchicalContrast(0.3)
    renamed = torch.stack([7 - CODES[:, 0], 10 * CODES[:, 0] + CODES[:, 1]], 1)  # fine codes unique
    assert_close(loss(z, renamed), loss(z, CODES), rtol=1e-12, atol=0)
    free = HierarchicalContrast(0.3, "none")(z, CODES)
    assert loss(z, CODES) >= free and HierarchicalContrast(0.3, "level")(z, CODES) >= free
    against = loss(z, CODES, z.clone(), CODES, torch.arange(12))
    assert_close(against, loss(z, CODES), rtol=1e-12, atol=0)
    with pytest.raises(ValueError, match=r"ref_y \(R, 2\) of as many levels"):
        loss(z, CODES, z, y)


def test_E41_a_code_under_two_parents_is_told_of_once():
    z, unique = batch(0)[0], torch.stack([CODES[:, 0], 10 * CODES[:, 0] + CODES[:, 1]], 1)
    shared = torch.stack([torch.arange(12) % 3, torch.arange(12) % 2], 1)
    loss = HierarchicalContrast()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(z, unique)
    with pytest.warns(UserWarning, match="code 0 of level 2 comes under 3 parents: these are taken for different"):
        loss(z, shared)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(z, shared)


@pytest.mark.filterwarnings("ignore:code .* comes under")
def test_E41_siblings_are_numbered_within_their_parents_or_have_numbers_of_their_own():
    """Both are the same tree; the same code under two parents is two classes."""
    z, loss = batch(0)[0], HierarchicalContrast(0.3)
    within = torch.stack([torch.arange(12) // 6, torch.arange(12) // 3 % 2, torch.arange(12) % 3 // 2], 1)
    own = torch.stack([within[:, 0], torch.arange(12) // 3, 2 * (torch.arange(12) // 3) + within[:, 2]], 1)
    assert_close(loss(z, within), loss(z, own), rtol=1e-12, atol=0)
    same(loss, lambda z, y: slow_levels(z, y, "pairs"), z, within)
    one = torch.stack([0 * within[:, 0], *within.T[1:]], 1)  # without the parents they would be one class
    assert abs(loss(z, within) - loss(z, one)) > 1e-3


def test_E41_gradient_and_edges():
    z = batch(0)[0].requires_grad_()
    for constraint in ("pairs", "level", "none"):
        assert torch.autograd.gradcheck(lambda z, c=constraint: HierarchicalContrast(0.3, c)(z, CODES), z)
    for codes in (CODES * 0, torch.stack([torch.arange(12)] * 2, 1)):
        assert gradient(HierarchicalContrast(), z.detach(), codes).isfinite().all()


def test_levels_apart():
    refs = torch.tensor([[0, 0, 0], [0, 0, 5], [0, 1, 0], [1, 0, 0]])
    found = levels_apart(torch.tensor([[0, 0, 0], [0, 1, 0]]), refs)
    assert found.tolist() == [[0, 1, 2, 3], [2, 2, 0, 3]]
