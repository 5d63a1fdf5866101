"""Proof tests of the losses of cosines between all pairs and of proxies as anchors, beside their equations in loops."""

import math

import pytest
import torch
from torch.testing import assert_close

from isometry.deep import (
    Circle,
    EasyPositiveNCA,
    HardNegativeContrastive,
    IntraPairVariance,
    MultiSimilarity,
    MultiSimilarityMiner,
    ProxyAnchor,
    RankedList,
    SelectiveTriplet,
    ThresholdConsistentMargin,
    TupletMargin,
)
from isometry.deep.functional import masks
from tests.deep.batches import C, Y, batch, circle, gradient


def cosine(z, i, j):
    return (z[i] @ z[j]) / (z[i].norm() * z[j].norm())


def of_anchors(z, y):
    """Cosines of the positives and of the negatives of each anchor that has both, by loops."""
    y = y.tolist()
    for i in range(len(y)):
        pos = [cosine(z, i, j) for j in range(len(y)) if j != i and y[j] == y[i]]
        neg = [cosine(z, i, j) for j in range(len(y)) if y[j] != y[i]]
        if pos and neg:
            yield torch.stack(pos), torch.stack(neg)


def of_pairs(z, y):
    """Cosines of all ordered positive pairs and of all negative ones."""
    n, y = range(len(y)), y.tolist()
    pos = [cosine(z, i, j) for i in n for j in n if i != j and y[i] == y[j]]
    neg = [cosine(z, i, j) for i in n for j in n if y[i] != y[j]]
    return torch.stack(pos), torch.stack(neg)


def mean(terms):
    return torch.stack(terms).mean()


def slow_multi_similarity(z, y, eps=None, a=2.0, b=50.0, base=0.5):
    total = 0.0
    for pos, neg in of_anchors(z, y):
        if eps is not None:
            pos, neg = pos[pos - eps < neg.max()], neg[neg + eps > pos.min()]
        if len(pos) and len(neg):
            total = total + (1 + (-a * (pos - base)).exp().sum()).log() / a
            total = total + (1 + (b * (neg - base)).exp().sum()).log() / b
    return total / len(y)


def slow_circle(z, y, m=0.4, gamma=5.0, frozen=None):
    """``frozen`` are the embeddings from which the weights are taken."""
    terms = []
    for (pos, neg), (p, n) in zip(of_anchors(z, y), of_anchors(z if frozen is None else frozen, y)):
        pull, push = (1 + m - p).relu().detach(), (n + m).relu().detach()
        far, near = (-gamma * pull * (pos - 1 + m)).exp().sum(), (gamma * push * (neg - m)).exp().sum()
        terms.append((1 + far * near).log())
    return mean(terms)


def slow_ranked_list(z, y, m=0.4, alpha=1.2, t_n=10.0, t_p=0.0, share=0.5, detach=True, frozen=None):
    terms = []
    for (pos, neg), (p, n) in zip(of_anchors(z, y), of_anchors(z if frozen is None else frozen, y)):
        value = 0.0
        sides = ((1 - share, t_p, lambda s: (2 - 2 * s).sqrt() - (alpha - m), pos, p),)
        sides += ((share, t_n, lambda s: alpha - (2 - 2 * s).sqrt(), neg, n),)
        for part, t, excess, s, of_weights in sides:
            x, v = excess(s), excess(of_weights)
            w = (t * v).exp()
            w, x = (w.detach() if detach else w)[v > 0], x[v > 0]
            value = value + part * ((w * x).sum() / w.sum() if len(x) else 0.0)
        terms.append(value if isinstance(value, torch.Tensor) else 0 * z.sum())
    return mean(terms)


def slow_tuplet(z, y, beta=0.1, s=4.0):
    terms = []
    for pos, neg in of_anchors(z, y):
        terms += [(1 + (s * (neg - torch.cos(p.acos() - beta))).exp().sum()).log() for p in pos]
    return mean(terms)


def slow_variance(z, y, eps=0.01):
    pos, neg = of_pairs(z, y)
    pull, push = ((1 - eps) * pos.mean() - pos).relu(), (neg - (1 + eps) * neg.mean()).relu()
    return pull.square().mean() + push.square().mean()


def slow_threshold(z, y, high=0.6, low=0.1):
    pos, neg = of_pairs(z, y)
    pos, neg = pos[pos <= high], neg[neg >= low]
    return (high - pos).mean() + (neg - low).mean()


def slow_selective(z, y, weight=2.0, t=0.1, above=math.inf):
    terms = []
    for pos, neg in of_anchors(z, y):
        p, n = pos.max(), neg.max()
        terms.append(weight * n if n > p or n > above else (1 + ((n - p) / t).exp()).log())
    return mean(terms)


PROOFS = {
    "E13": (lambda: MultiSimilarity(eps=None), slow_multi_similarity),
    "E13 mined": (lambda: MultiSimilarity(), lambda z, y: slow_multi_similarity(z, y, eps=0.1)),
    "E14": (lambda: Circle(gamma=5.0), slow_circle),
    "E15": (lambda: TupletMargin(scale=4.0, variance_weight=0), slow_tuplet),
    "E15 both": (lambda: TupletMargin(scale=4.0), lambda z, y: slow_tuplet(z, y) + 0.5 * slow_variance(z, y)),
    "E15v": (lambda: IntraPairVariance(), slow_variance),
    "E17": (lambda: RankedList(), slow_ranked_list),
    "E17 through": (
        lambda: RankedList(pos_temperature=2.0, detach_weights=False),
        lambda z, y: slow_ranked_list(z, y, t_p=2.0, detach=False),
    ),
    "E18": (lambda: ThresholdConsistentMargin(0.6, 0.1), slow_threshold),
    "E19": (lambda: SelectiveTriplet(weight=2.0), slow_selective),
    "E19 above": (lambda: SelectiveTriplet(2.0, hard_above=0.3), lambda z, y: slow_selective(z, y, above=0.3)),
}


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("key", PROOFS)
def test_equals_the_loop(key, seed):
    """Value and gradient; two classes have one member, whose anchors have no positive."""
    (make, slow), (z, y) = PROOFS[key], batch(seed, n=14)
    y[:2] = torch.tensor([17, 18])
    assert_close(make()(z, y), slow(z, y), rtol=1e-10, atol=1e-12)
    expected = gradient(slow, z, y)
    assert expected.abs().max() > 1e-4
    assert_close(gradient(make(), z, y), expected, rtol=1e-8, atol=1e-10)


def test_toy_values():
    def close(loss, expected):
        assert float(loss(C, Y).detach()) == pytest.approx(expected, abs=1e-6)

    close(MultiSimilarity(eps=None), 0.684615)
    close(Circle(0.25, 4.0), 4.039065)
    close(RankedList(), 0.374144)
    close(ThresholdConsistentMargin(), 1.016025)
    close(TupletMargin(0.1, 4.0, variance_weight=0), 1.185922)
    close(IntraPairVariance(), 0.300257)
    close(SelectiveTriplet(), 0.436370)
    anchors = ProxyAnchor(2, 2).double()
    anchors.proxies.data = circle(30, 135)
    close(anchors, 15.341110)


# -- E13 ---------------------------------------------------------------------------------------------------------------


def test_E13_one_pair_each_is_two_soft_hinges():
    z, y = circle(0, 40, 75), torch.tensor([0, 0, 1])
    s, n = math.cos(math.radians(40)), (math.cos(math.radians(75)), math.cos(math.radians(35)))
    pull = 2 * math.log1p(math.exp(-2 * (s - 0.5))) / 2
    push = sum(math.log1p(math.exp(50 * (c - 0.5))) / 50 for c in n)
    assert float(MultiSimilarity(eps=None)(z, y)) == pytest.approx((pull + push) / 3, abs=1e-12)


@pytest.mark.parametrize("eps", [0.0, 0.1, 0.5])
def test_E13_every_mined_pair_satisfies_its_rule(eps):
    z, y = batch(3, n=20, p=3)
    D = torch.cdist(z, z)
    everything = masks(y, y, torch.arange(20))
    pos, neg = MultiSimilarityMiner(eps).select(D, *everything)
    for i in range(20):
        p, n = D[i][everything[0][i]], D[i][everything[1][i]]
        keep = len(p) and len(n) and (p + eps > n.min()).any() and (n - eps < p.max()).any()
        expected = everything[0][i] & (D[i] + eps > n.min()) if keep else torch.zeros(20, dtype=torch.bool)
        assert torch.equal(pos[i], expected)
        assert not keep or torch.equal(neg[i], everything[1][i] & (D[i] - eps < p.max()))


# -- E14, E17: weights are constants -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "slow"),
    [
        (Circle(gamma=5.0), slow_circle),
        (RankedList(pos_temperature=2.0), lambda *a, **o: slow_ranked_list(*a, t_p=2.0, **o)),
    ],
    ids=["E14", "E17"],
)
def test_slope_with_the_weights_held_fixed(loss, slow):
    """By finite differences of the loss whose weights are those of the point itself."""
    (z, y), step = batch(0), batch(1)[0]
    ends = [slow(z + e * step, y, frozen=z) for e in (1e-6, -1e-6)]
    assert float((gradient(loss, z, y) * step).sum()) == pytest.approx(float(ends[0] - ends[1]) / 2e-6, rel=1e-6)


def test_E14_a_pair_beyond_its_optimum_has_no_slope():
    """s_n ≤ −m: an opposite negative. Here positives never reach s_p ≥ 1 + m."""
    loss, D = Circle(0.4, 5.0), -torch.tensor([[0.9, -0.5, 0.3]], dtype=torch.float64)
    pos, neg = torch.tensor([[True, False, False]]), torch.tensor([[False, True, True]])
    slopes = loss.slopes(D, pos, neg, torch.tensor(1))[1]
    assert slopes[0, 1] == 0 and slopes[0, 0] > 0 > slopes[0, 2]


def test_E17_without_temperature_it_is_the_mean_of_the_hinges_of_violators():
    z, y = batch(0)
    terms = []
    for pos, neg in of_anchors(z, y):
        x, v = (2 - 2 * pos).sqrt() - 0.8, 1.2 - (2 - 2 * neg).sqrt()
        hinges = [h[h > 0] for h in (x, v)]
        terms.append(0.5 * sum(h.mean() if len(h) else 0.0 for h in hinges))
    expected = sum(terms) / len(terms)
    assert_close(RankedList(neg_temperature=0.0)(z, y), expected, rtol=1e-10, atol=0)


def test_E17_is_zero_if_and_only_if_nothing_violates():
    z, y = circle(0, 10, 180, 190), torch.tensor([0, 0, 1, 1])
    assert RankedList()(z, y) == 0
    assert RankedList(alpha=2.0, margin=0.1)(z, y) > 0  # now the negatives, at 2 sin 85°, are within α
    assert RankedList(alpha=0.5, margin=0.45)(z, y) > 0  # and now the positives beyond α − m


def test_E17_no_temperature_overflows():
    z, y = batch(0)[0].float(), batch(0)[1]
    hot = RankedList(neg_temperature=1e4, pos_temperature=1e4)
    nearest = [max(0, 1.2 - float((2 - 2 * neg.max()).sqrt())) for _, neg in of_anchors(z.double(), y)]
    farthest = [max(0, float((2 - 2 * pos.min()).sqrt()) - 0.8) for pos, _ in of_anchors(z.double(), y)]
    expected = sum(n + p for n, p in zip(nearest, farthest)) / 2 / len(nearest)
    assert float(hot(z, y)) == pytest.approx(expected, rel=1e-3)
    assert gradient(hot, z, y).isfinite().all()


# -- E15 ---------------------------------------------------------------------------------------------------------------


def test_E15_without_margin_it_is_the_softmax_of_each_positive_against_the_negatives():
    z, y = batch(0)
    plain = HardNegativeContrastive(temperature=1 / 8, tau_plus=0, beta=0)
    assert_close(TupletMargin(0.0, 8.0, variance_weight=0)(z, y), plain(z, y), rtol=1e-9, atol=0)


# -- E10 ---------------------------------------------------------------------------------------------------------------


def slow_proxy_anchor(loss, z, y, margin=0.1, alpha=32.0):
    pull, push, y = [], [], y.tolist()
    for l, w in enumerate(loss.proxies):
        s = [(u @ w) / (u.norm() * w.norm()) for u in z]
        own = [(-alpha * (c - margin)).exp() for c, k in zip(s, y) if k == l]
        others = [(alpha * (c + margin)).exp() for c, k in zip(s, y) if k != l]
        pull += [(1 + sum(own)).log()] if own else []
        push.append((1 + sum(others)).log() if others else 0 * w.sum())
    return mean(pull) + mean(push)


@pytest.mark.parametrize("seed", [0, 1])
def test_E10_equals_the_loop(seed):
    """One class is absent: its proxy counts in the second sum only."""
    torch.manual_seed(seed)
    loss, (z, y) = ProxyAnchor(4, 4).double(), batch(seed)
    y[y == 2] = 1
    expected = slow_proxy_anchor(loss, z, y)
    assert_close(loss(z, y), expected, rtol=1e-10, atol=0)
    (slope,) = torch.autograd.grad(expected, loss.proxies)
    assert_close(torch.autograd.grad(loss(z, y), loss.proxies)[0], slope, rtol=1e-8, atol=1e-10)
    assert_close(gradient(loss, z, y), gradient(lambda u: slow_proxy_anchor(loss, u, y), z), rtol=1e-8, atol=1e-10)
    assert_close(loss(3 * z, y), loss(z, y), rtol=1e-10, atol=0)
    assert_close(loss(z, torch.eye(4)[y]), loss(z, y), rtol=1e-12, atol=0)


# -- E18 ---------------------------------------------------------------------------------------------------------------


def test_E18_slopes_are_shares_of_the_hard_pairs():
    loss = ThresholdConsistentMargin(0.9, 0.5, 2.0, 3.0)
    D = -torch.tensor([[0.95, 0.5, 0.8, 0.7, 0.2]], dtype=torch.float64)
    pos, neg = (torch.tensor([m]).bool() for m in ([1, 1, 1, 0, 0], [0, 0, 0, 1, 1]))
    value, slopes = loss.slopes(D, pos, neg, None)
    assert_close(slopes, torch.tensor([[0.0, 1.0, 1.0, -3.0, 0.0]], dtype=torch.float64))
    assert float(value) == pytest.approx(2 * (0.4 + 0.1) / 2 + 3 * 0.2)
    assert loss(circle(0, 1, 180, 181), Y) == 0
    with pytest.warns(UserWarning, match=r"neg_margin=0.9 is not below pos_margin=0.5"):
        ThresholdConsistentMargin(0.5, 0.9)


# -- E19 ---------------------------------------------------------------------------------------------------------------


def test_E19_without_a_hard_anchor_it_is_easy_positive_nca_and_otherwise_the_mean_of_hard_negatives():
    z, y = circle(0, 10, 90, 100, 180, 190), torch.tensor([0, 0, 1, 1, 2, 2])
    assert_close(SelectiveTriplet()(z, y), EasyPositiveNCA(0.1, negatives="hard")(z, y), rtol=1e-9, atol=0)
    mixed = torch.tensor([0, 1, 2, 0, 1, 2])  # every nearest point is of another class
    hard = [neg.max() for _, neg in of_anchors(z, mixed)]
    assert_close(SelectiveTriplet(weight=3.0)(z, mixed), 3 * mean(hard), rtol=1e-10, atol=0)


def test_E19_copies_are_passed_over():
    z, y = circle(0, 0, 30, 100), torch.tensor([0, 0, 0, 1])
    near, far = math.cos(math.radians(30)), [math.cos(math.radians(a)) for a in (100, 100, 70)]
    expected = sum(math.log1p(math.exp((f - near) / 0.1)) for f in far) / 3
    assert float(SelectiveTriplet(min_distance=1e-4)(z, y)) == pytest.approx(expected, abs=1e-12)


BAD = [
    (lambda: Circle(margin=1.0), r"margin=1.0 must lie in \(0, 1\)"),
    (lambda: Circle(gamma=-1.0), r"gamma=-1.0 must be positive"),
    (lambda: MultiSimilarity(alpha=0), "alpha=0 must be positive"),
    (lambda: TupletMargin(margin=5.73), r"margin=5.73 must lie in \[0, 1\]: it is an angle in radians"),
    (lambda: RankedList(margin=0.5, alpha=0.4), r"alpha=0.4 must lie in \(margin, 2\]"),
    (lambda: RankedList(alpha=2.5), r"alpha=2.5 must lie in \(margin, 2\]"),
    (lambda: RankedList(neg_temperature=-1), "neg_temperature=-1 must not be negative"),
    (lambda: SelectiveTriplet(temperature=0), "temperature=0 must be positive"),
    (lambda: ProxyAnchor(4, 4, alpha=0), "alpha=0 must be positive"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_bad_parameters_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
