"""Proof tests of the losses of ranks, E20 to E24, each beside its equation written with loops."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score
from torch.testing import assert_close

from isometry.deep import PNP, ROADMAP, BlackboxAP, FastAP, HistogramLoss, RecallAtK, SmoothAP, SupAP
from isometry.deep.losses.histograms import soft_histogram
from isometry.deep.slopes import slopes_of_rows, with_slopes
from tests.deep.batches import C, Y, batch, close, cosines, gradient, of_anchor, same


def test_toy_values():
    close(SmoothAP()(C, Y), 0.275)  # anchor 2 has a tie
    close(SmoothAP(count_self=True)(C, Y), 0.095238)
    close(SupAP()(C, Y), 0.489713)
    close(RecallAtK((1, 2))(C, Y), 0.526122)
    close(FastAP()(C, Y), 0.3125)
    close(HistogramLoss()(C, Y), 0.375)


def soft_ranks(S, j, among, tau):
    return sum(torch.sigmoid((S[k] - S[j]) / tau) for k in among if k != j)


def anchors(y, count_self=False):
    """(anchor, positives, negatives) of those that have both."""
    for i in range(len(y)):
        pos, neg = of_anchor(y, i)
        pos = [*pos, i] if count_self else pos
        if pos and neg:
            yield i, pos, neg


PNP_TERMS = {
    "Dq": lambda N: 1 - (1 + N) ** -4.0,
    "Ds": lambda N: (1 + N).log(),
    "Iu": lambda N: (1 + N) * (1 + N).log(),
    "Ib": lambda N: (2 * N - (1 + 2 * N).log()) / 4,
    "O": lambda N: N,
}


@pytest.mark.parametrize("count_self", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
def test_E20_is_its_loop(seed, count_self):
    z, y = batch(seed)

    def smooth_ap(z, y):
        S, terms = cosines(z), []
        for i, pos, neg in anchors(y, count_self):
            P = [1 + soft_ranks(S[i], j, pos, 0.1) for j in pos]
            R = [1 + soft_ranks(S[i], j, pos + neg, 0.1) for j in pos]
            terms.append(1 - sum(p / r for p, r in zip(P, R)) / len(pos))
        return torch.stack(terms).mean()

    same(SmoothAP(0.1, count_self), smooth_ap, z, y)


@pytest.mark.parametrize("variant", PNP_TERMS)
def test_E20_pnp_is_its_loop(variant):
    z, y = batch(0)

    def pnp(z, y):
        S, terms = cosines(z), []
        for i, pos, neg in anchors(y):
            terms.append(sum(PNP_TERMS[variant](soft_ranks(S[i], j, neg, 0.1)) for j in pos) / len(pos))
        return torch.stack(terms).mean()

    same(PNP(variant, temperature=0.1), pnp, z, y)


def exact_ap(z, y):
    S = cosines(z).numpy()
    found = []
    for i, pos, neg in anchors(y):
        found.append(average_precision_score([1] * len(pos) + [0] * len(neg), S[i, pos + neg]))
    return 1 - np.mean(found)


@pytest.mark.parametrize("seed", range(4))
def test_the_limit_is_average_precision_itself(seed):
    z, y = batch(seed)
    assert float(SmoothAP(1e-6)(z, y)) == pytest.approx(exact_ap(z, y), abs=1e-6)
    assert float(BlackboxAP(margin=0)(z, y)) == pytest.approx(exact_ap(z, y), abs=1e-12)


def test_E20_of_one_positive():
    z, y = batch(0)[0], torch.arange(12) // 2
    S = cosines(z)
    N = [soft_ranks(S[i], i ^ 1, of_anchor(y, i)[1], 0.1) for i in range(12)]
    assert_close(SmoothAP(0.1)(z, y), torch.stack([1 - 1 / (1 + n) for n in N]).mean(), rtol=1e-10, atol=0)


@pytest.mark.parametrize("seed", [0, 1])
def test_E21_is_its_loop_and_an_upper_bound(seed):
    z, y = batch(seed)

    def step(t):
        if t <= 0:
            return torch.sigmoid(t / 0.01)
        delta = torch.tensor(0.05, dtype=torch.float64)
        if t <= delta:
            return torch.sigmoid(t / 0.01) + 0.5
        return 100 * (t - delta) + torch.sigmoid(delta / 0.01) + 0.5

    def sup_ap(z, y):
        S, terms = cosines(z), []
        for i, pos, neg in anchors(y):
            P = [sum(1 for k in pos if S[i, k] >= S[i, j]) for j in pos]
            N = [sum(step(S[i, k] - S[i, j]) for k in neg) for j in pos]
            terms.append(1 - sum(p / (p + n) for p, n in zip(P, N)) / len(pos))
        return torch.stack(terms).mean()

    same(SupAP(), sup_ap, z, y)
    assert SupAP()(z, y) >= exact_ap(z, y)


@pytest.mark.parametrize("seed", range(30))
def test_E21_is_never_below_average_precision(seed):
    z, y = batch(seed, n=16)
    assert SupAP()(z, y) >= exact_ap(z, y)


def test_E21_a_negative_far_ahead_keeps_its_slope():
    """0.5 above the positive, where the sigmoid of SmoothAP is flat."""
    s = torch.tensor([[0.2, 0.7]], dtype=torch.float64)
    pos, neg = torch.tensor([[True, False]]), torch.tensor([[False, True]])
    slopes = [gradient(lambda D, loss=loss: loss.loss(D, pos, neg), -s)[0, 1] for loss in (SupAP(), SmoothAP())]
    assert slopes[0] < -0.01 and abs(slopes[1]) < 1e-12


def test_E21_calibration():
    z, y = batch(0)
    S = cosines(z)
    pairs = [(i, j) for i in range(12) for j in range(12) if i != j]
    pull = [0.9 - S[i, j] for i, j in pairs if y[i] == y[j] and S[i, j] <= 0.9]
    push = [S[i, j] - 0.6 for i, j in pairs if y[i] != y[j] and S[i, j] >= 0.6]
    calibration = torch.stack(pull).mean() + torch.stack(push).mean()
    assert_close(ROADMAP(1.0)(z, y), calibration, rtol=1e-12, atol=0)
    assert_close(ROADMAP(0.0)(z, y), SupAP()(z, y), rtol=1e-12, atol=0)
    assert_close(ROADMAP()(z, y), (SupAP()(z, y) + calibration) / 2, rtol=1e-12, atol=0)


@pytest.mark.parametrize("count_self", [False, True])
@pytest.mark.parametrize("normalizer", ["min", "positives"])
def test_E22_is_its_loop(normalizer, count_self):
    """With count_self the query takes rank 1 before every positive, as in the authors' code."""
    z, y = batch(0)

    def recall(z, y):
        S, terms = cosines(z), []
        for i, pos, neg in anchors(y):
            for k in (1, 2, 4):
                among = pos + neg + [i] * count_self
                found = sum(torch.sigmoid(k - 1 - soft_ranks(S[i], j, among, 0.1)) for j in pos)
                terms.append(1 - found / (min(k, len(pos)) if normalizer == "min" else len(pos)))
        return torch.stack(terms).mean()

    same(RecallAtK((1, 2, 4), 1.0, 0.1, normalizer, count_self), recall, z, y)


def test_E22_tends_to_the_recall():
    z, y = batch(0)[0], torch.arange(12) // 2  # one positive each
    S = cosines(z)
    hits = [S[i].scatter(0, torch.tensor(i), -2).argmax() == (i ^ 1) for i in range(12)]
    assert float(RecallAtK((1,), 1e-3, 1e-6, "positives")(z, y)) == pytest.approx(
        1 - 0.5 * np.mean(hits), abs=1e-6
    )  # σ(0) = ½ at the rank k itself
    loss = RecallAtK((1, 2), temperature=1e-7)
    perfect = torch.eye(4, dtype=torch.float64)[torch.arange(12) % 4] + 0.01 * batch(0)[0]
    assert float(loss(perfect, torch.arange(12) % 4)) == pytest.approx(loss.floor(2), abs=1e-6)
    assert RecallAtK((1,)).floor(1) == pytest.approx(0.5)


def test_E22_leaves_out_k_that_all_reach():
    z, y = batch(0)
    with pytest.warns(UserWarning, match="RecallAtK left out k = 16, 32: there are 11 references"):
        value = RecallAtK((1, 16, 32))(z, y)
    assert_close(value, RecallAtK((1,))(z, y), rtol=0, atol=0)


def slow_histogram(values, low, high, bins):
    nodes = torch.linspace(low, high, bins + 1, dtype=torch.float64)
    width = (high - low) / bins
    return sum((1 - (v - nodes).abs() / width).relu() for v in values)


@pytest.mark.parametrize("seed", [0, 1])
def test_E23_is_its_loop(seed):
    z, y = batch(seed)

    def fast_ap(z, y):
        D, terms = 2 - 2 * cosines(z), []
        for i, pos, neg in anchors(y):
            h, other = (slow_histogram(D[i, which], 0, 4, 10) for which in (pos, neg))
            H, total = h.cumsum(0), (h + other).cumsum(0)
            terms.append(1 - sum(a * b / c for a, b, c in zip(h, H, total) if c > 0) / len(pos))
        return torch.stack(terms).mean()

    def histogram(z, y):
        S = cosines(z)
        pairs = [(i, j) for i in range(12) for j in range(i)]
        p = [slow_histogram([S[i, j] for i, j in pairs if (y[i] == y[j]) is alike], -1, 1, 20) for alike in BOOLS]
        return (p[1] / p[1].sum() * (p[0] / p[0].sum()).cumsum(0)).sum()

    same(FastAP(), fast_ap, z, y)
    same(HistogramLoss(20), lambda z, y: histogram(z, y.tolist()), z, y)


BOOLS = (True, False)


def test_E23_a_histogram_keeps_all_weight():
    x = torch.tensor([[0.0, 1.0, 0.5, 1.0 + 1e-9, -1e-9]], dtype=torch.float64)
    h = soft_histogram(x, torch.ones_like(x), 4)
    assert_close(h, torch.tensor([[2.0, 0, 1, 0, 2]], dtype=torch.float64))


def test_E23_separated_classes_cost_nothing():
    z = torch.eye(4, dtype=torch.float64)[torch.arange(12) % 4]  # with duplicates
    y = torch.arange(12) % 4
    for loss in (FastAP(), HistogramLoss(), SmoothAP(), SupAP(), PNP(), BlackboxAP()):
        close(loss(z, y), 0.0)
        assert gradient(loss, z, y).isfinite().all()


@pytest.mark.parametrize("seed", [0, 1])
def test_E24_gradient_is_the_difference_of_two_rankings(seed):
    z, y = batch(seed)
    loss, S = BlackboxAP(lam=0.7, margin=0.1), cosines(z)
    expected, (pos, neg) = torch.zeros_like(S), (y[:, None] == y, y[:, None] != y)
    pos.fill_diagonal_(False)
    total = len(list(anchors(y)))
    for i, p, n in anchors(y):
        s = {j: float(S[i, j]) + (0.05 if j in n else -0.05) for j in p + n}

        def rank(s):
            return {j: (1 + sum(s[k] > s[j] for k in s)) / 11 for j in s}

        before = rank(s)
        g = dict.fromkeys(s, 0.0)
        for j in p:
            among = sum(before[k] <= before[j] for k in p) / 11
            g[j] = among / before[j] ** 2 / len(p) / total  # ∂L/∂rank
        after = rank({j: s[j] + 0.7 * g[j] for j in s})
        for j in s:
            expected[i, j] = -(before[j] - after[j]) / 0.7
    found = gradient(lambda D: loss.loss(D, pos, neg), -S)
    assert expected.abs().sum() > 0.1
    assert_close(-found, expected, rtol=1e-10, atol=1e-12)


def test_E24_a_clear_order_is_left_alone():
    z, y = torch.eye(4, dtype=torch.float64)[torch.arange(12) % 4] + 0.01 * batch(0)[0], torch.arange(12) % 4
    assert (gradient(BlackboxAP(), z, y) == 0).all()


def test_E24_noise_is_drawn_in_training_only_and_by_its_seed():
    z, y = batch(0)
    twins = [BlackboxAP(margin=2.0, noise=True, random_state=3) for _ in range(2)]
    drawn = [float(twins[0](z, y)) for _ in range(3)]
    assert drawn == [float(twins[1](z, y)) for _ in range(3)] and len(set(drawn)) > 1
    assert_close(twins[0].eval()(z, y), BlackboxAP(margin=2.0)(z, y), rtol=0, atol=0)
    with pytest.raises(RuntimeError, match="differentiated only once"):
        torch.autograd.grad(BlackboxAP()(z.requires_grad_(), y), z, create_graph=True)


@pytest.mark.parametrize("numbers", [1, 30, 10**9])
def test_slopes_of_rows_do_not_depend_on_the_blocks(numbers):
    D = batch(0)[0].requires_grad_()

    def f(rows, part):
        return (torch.arange(12)[rows, None] * part**3).sum()

    value = with_slopes(D, lambda D: slopes_of_rows(D, f, numbers))
    assert_close(value, f(slice(0, 12), D), rtol=1e-12, atol=0)
    assert torch.autograd.gradgradcheck(lambda D: with_slopes(D, lambda D: slopes_of_rows(D, f, numbers)), D)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SmoothAP(0), "temperature=0 must be positive"),
        (lambda: SupAP(delta=0), "delta=0 must be positive"),
        (lambda: ROADMAP(1.5), r"weight=1.5 must lie in \[0, 1\]"),
        (lambda: RecallAtK((0, 1)), r"k must be one or more numbers from 1 on, got \(0, 1\)"),
        (lambda: FastAP(1), "bins=1 must be at least 2"),
        (lambda: HistogramLoss(0), "bins=0 must be at least 2"),
        (lambda: BlackboxAP(lam=0), "lam=0 must be positive"),
        (lambda: PNP("X"), "variant"),
    ],
)
def test_bad_parameters_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# -- against pytorch-metric-learning -----------------------------------------------------------------------------------


PEERS = {
    "SmoothAP": (lambda m: m.SmoothAPLoss(0.1), lambda: SmoothAP(0.1, count_self=True)),
    "FastAP": (lambda m: m.FastAPLoss(10), lambda: FastAP(10)),
    "Histogram": (lambda m: m.HistogramLoss(100), lambda: HistogramLoss(100)),
    **{
        f"PNP {v}": (
            lambda m, v=v: m.PNPLoss(b=2, alpha=4, anneal=0.1, variant=v),
            lambda v=v: PNP(v, 4, 2, 0.1, count_self=True),
        )
        for v in PNP_TERMS
    },
}


@pytest.mark.parametrize("name", PEERS)
def test_same_as_the_peer(name):
    """Theirs puts K groups of C in place of C of K, so that C = K here."""
    losses = pytest.importorskip("pytorch_metric_learning.losses", reason="the oracle is not installed")
    theirs, ours = PEERS[name][0](losses), PEERS[name][1]()
    z, y = batch(0, n=16)[0], torch.arange(16) // 4
    rtol = {"SmoothAP": 1e-6, "Histogram": 1e-8}.get(name, 1e-10)  # parts of theirs are float32
    assert_close(ours(z, y), theirs(z, y), rtol=rtol, atol=1e-12, check_dtype=False)
    assert_close(gradient(ours, z, y), gradient(theirs, z, y), rtol=1e-5, atol=1e-7)
