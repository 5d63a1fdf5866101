"""Proof tests of the Siamese losses, D16 to D29, each beside its equation written with loops."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from isometry.deep import (
    Angular,
    BatchHard,
    Contrastive,
    FisherContrastive,
    FisherTriplet,
    GeneralizedContrastive,
    NCALoss,
    NPair,
    ProxyNCA,
    ProxyNCAPlusPlus,
    SoftmaxTriplet,
    SoftTriple,
    Triplet,
    TripletGlobal,
    Tuplet,
    cosine_dissimilarity,
)
from isometry.deep.functional import masks
from isometry.deep.losses import angular
from isometry.deep.losses.npair import disjoint_pairs
from tests.deep.batches import PLAIN, A, C, Y, batch, circle, euc, gradient, mean, ordered_pairs, sq, triples

SEEDS = pytest.mark.parametrize(("seed", "ties"), [(0, False), (1, False), (2, True)])


def close(value, expected, tolerance=1e-6):
    assert float(value.detach()) == pytest.approx(expected, abs=tolerance)


# -- contrastive -------------------------------------------------------------------------------------------------------


def test_D16a_toy_values():
    close(Contrastive(margin=3)(A, Y), 1.381966)
    close(Contrastive(margin=3, squared_hinge=False, distance="sqeuclidean")(A, Y), 2.333333)


@SEEDS
def test_D16_equals_the_loop(seed, ties):
    z, y = batch(seed, ties=ties)
    terms = [
        0.5 * max(0, euc(z, i, j) - 0.3) ** 2 if same else 0.5 * max(0, 2 - euc(z, i, j)) ** 2
        for i, j, same in ordered_pairs(y)
    ]
    close(Contrastive(margin=2, pos_margin=0.3)(z, y), mean(terms), 1e-12)
    sides = [[t for t, (_, _, same) in zip(terms, ordered_pairs(y)) if same == side] for side in (True, False)]
    close(Contrastive(margin=2, pos_margin=0.3, balanced=True)(z, y), mean(sides[0]) + mean(sides[1]), 1e-12)


def test_D16b_zero_when_classes_are_points_far_apart():
    z = torch.tensor([[0.0, 0], [0, 0], [5, 0], [5, 0]])
    assert Contrastive(margin=5)(z, Y) == 0
    assert Contrastive(margin=5.1)(z, Y) > 0


def test_D16c_D17b_hard_similarities_are_the_contrastive_loss():
    z, y = batch(0)
    S = (y[:, None] == y).double()
    close(GeneralizedContrastive(margin=2)(z, S), Contrastive(margin=2)(z, y).item(), 1e-12)


def test_D16_jitter_parts_dissimilar_points_that_coincide():
    """In training only; embeddings and references of one batch get the same noise, so that no pair meets a copy."""
    z, y = torch.zeros(4, 3, dtype=torch.float64), Y
    assert (gradient(Contrastive(), z, y) == 0).all()  # stuck
    loss = Contrastive(jitter=1e-3, random_state=0)
    noise = 1e-3 * torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    G = gradient(loss, z, y)
    assert_close(G, gradient(Contrastive(), z + noise, y), rtol=1e-12, atol=0)
    moved = z - 0.5 * G
    assert min(euc(moved, i, j) for i in (0, 1) for j in (2, 3)) > 0.1
    assert (gradient(loss.eval(), z, y) == 0).all()
    assert (gradient(loss.train(), z, y) != G).any()  # noise anew


def test_D16d_ordered_and_unordered_pairs_have_the_same_mean():
    z, y = batch(0)
    half = torch.where(torch.ones(12, 12).triu(1).bool(), (y[:, None] == y).double(), torch.nan)
    close(Contrastive(margin=2)(z, half), Contrastive(margin=2)(z, y).item(), 1e-12)


def test_D17a_toy_value():
    z, unknown = torch.tensor([[0.0, 0], [2, 0]]), torch.nan
    S = torch.tensor([[unknown, 0.75], [unknown, unknown]])
    close(GeneralizedContrastive(margin=3)(z, S), 1.625)


def test_D17c_linear_in_the_similarity():
    z, S, T = batch(0)[0], torch.rand(12, 12), torch.rand(12, 12)
    loss = GeneralizedContrastive(margin=3)
    close(loss(z, (S + T) / 2), ((loss(z, S) + loss(z, T)) / 2).item(), 1e-6)


def test_D17d_scores_from_the_cosine_of_inputs():
    x = torch.tensor([[1.0, 0], [0, 2], [-3, 0], [5, 0]], requires_grad=True)
    psi = cosine_dissimilarity(x)
    assert_close(psi[0], torch.tensor([0.0, 0.5, 1.0, 0.0]))
    assert not psi.requires_grad


# -- triplets ----------------------------------------------------------------------------------------------------------

ONE = tuple(torch.tensor([i]) for i in (2, 3, 0))


def test_D18a_toy_values():
    close(Triplet(normalize=False).triplets(A, ONE), 9.2)
    close(Triplet(**PLAIN).triplets(A, ONE), 1.805551)


def test_D18b_on_the_sphere_it_compares_inner_products():
    z, y = batch(0)
    u = F.normalize(z)
    slow = [max(0, 2 * float(u[a] @ u[n] - u[a] @ u[p]) + 0.2) for a, p, n in triples(y)]
    close(Triplet(reduction="mean")(z, y), mean(slow), 1e-12)


def test_D18c_collapsed_embeddings_cost_the_margin():
    z, y = torch.ones(12, 4), batch(0)[1]
    close(Triplet(margin=0.37, **PLAIN)(z, y), 0.37)
    close(Triplet(margin="soft", **PLAIN)(z, y), math.log(2))


def test_D18d_an_inactive_triplet_has_no_gradient():
    z = torch.tensor([[0.0, 0], [0.1, 0], [9, 0]])
    assert (
        gradient(lambda u: Triplet(**PLAIN).triplets(u, (torch.tensor([0]), torch.tensor([1]), torch.tensor([2]))), z)
        == 0
    ).all()


def slow_swap(z, y, margin):
    """All triplets, the negative against the nearer of anchor and positive."""
    return sum((sq(z, a, p) - min(sq(z, a, n), sq(z, p, n)) + margin).relu() for a, p, n in triples(y))


@SEEDS
def test_D18_swap_equals_the_loop(seed, ties):
    z, y = batch(seed)
    raw = {"distance": "sqeuclidean", "normalize": False, "reduction": "sum", "swap": True}
    assert_close(Triplet(0.5, **raw)(z, y), slow_swap(z, y, 0.5), rtol=1e-10, atol=0)
    assert_close(gradient(Triplet(0.5, **raw), z, y), gradient(lambda u: slow_swap(u, y, 0.5), z), rtol=1e-9, atol=1e-9)
    soft = sum(F.softplus(sq(z, a, p) - min(sq(z, a, n), sq(z, p, n))) for a, p, n in triples(y))
    assert_close(Triplet("soft", **raw)(z, y), soft, rtol=1e-9, atol=0)
    given = tuple(torch.tensor(t) for t in zip(*triples(y)))
    assert_close(Triplet(0.5, **raw).triplets(z, given), slow_swap(z, y, 0.5), rtol=1e-10, atol=0)


def test_D18_swap_with_a_miner_equals_torch():
    z, y = batch(2)
    loss = Triplet(0.5, swap=True, miner=BatchHard(), distance="euclidean", normalize=False, reduction="mean")
    a, p, n = BatchHard().triples(loss.distances(z, z), *masks(y, y, torch.arange(len(y))))

    def theirs(u):
        return F.triplet_margin_loss(u[a], u[p], u[n], margin=0.5, swap=True, eps=0)

    assert_close(loss(z, y), theirs(z), rtol=1e-9, atol=0)
    assert_close(gradient(loss, z, y), gradient(theirs, z), rtol=1e-8, atol=1e-9)
    assert loss(z, y) > Triplet(0.5, miner=BatchHard(), distance="euclidean", normalize=False, reduction="mean")(z, y)


def test_D18e_equals_torch():
    a, p, n = (batch(s)[0] for s in (0, 1, 2))
    index = torch.arange(12)
    ours = Triplet(margin=1.0, reduction="mean", **PLAIN).triplets(a, (index, index, 12 + index), torch.cat([p, n]))
    close(ours, F.triplet_margin_loss(a, p, n, margin=1.0).item(), 1e-5)


def test_D19a_toy_value():
    loss = Tuplet(margin=1.0, reduction="sum", **PLAIN)
    close(loss.tuples(A[2:3], A[3:4], A[None, :2]), 4.975035)


def test_D19b_D19c_D19d_tuples_are_lists_of_triplets():
    a, p = batch(0)[0], batch(1)[0]
    n = torch.stack([batch(2)[0], batch(3)[0], batch(4)[0]], 1)  # (12, 3, p)
    loss = Tuplet(margin=1.0, **PLAIN)
    i = torch.arange(12)
    alone = Triplet(margin=1.0, reduction="mean", **PLAIN).triplets(a, (i, i, 12 + i), torch.cat([p, n[:, 0]]))
    close(loss.tuples(a, p, n[:, :1]), alone.item(), 1e-12)
    expanded = [max(0, float((a[t] - p[t]).norm() - (a[t] - n[t, j]).norm()) + 1) for t in range(12) for j in range(3)]
    close(loss.tuples(a, p, n), mean(expanded), 1e-12)
    close(loss.tuples(a, p, n[:, [2, 0, 1]]), mean(expanded), 1e-12)
    present = torch.ones(12, 3).bool()
    present[0, 1:] = False
    close(loss.tuples(a, p, n, present), mean(expanded[:1] + expanded[3:]), 1e-12)


# -- N-pair ------------------------------------------------------------------------------------------------------------


def test_D20a_toy_value():
    close(NPair(l2_reg=0)(C, Y), 0.709266)


@pytest.mark.parametrize("variant", ["mc", "ovo"])
def test_D20_equals_the_loop_and_the_cross_entropy(variant):
    z, y = batch(0, n=13)
    a, p = disjoint_pairs(y)
    slow = []
    for i in range(len(a)):
        s = [float(z[a[i]] @ z[q]) for q in p]
        others = [s[j] - s[i] for j in range(len(a)) if y[p[j]] != y[a[i]]]
        slow.append(
            math.log1p(sum(map(math.exp, others))) if variant == "mc" else sum(math.log1p(math.exp(t)) for t in others)
        )
    norms = [float(z[i] @ z[i]) + float(z[j] @ z[j]) for i, j in zip(a, p)]
    close(NPair(variant=variant)(z, y), mean(slow) + 0.002 / 4 * mean(norms), 1e-12)


def test_D20_two_views_are_a_cross_entropy():
    f, g = batch(0)[0], batch(1)[0]
    index = torch.arange(12)
    ours = NPair(l2_reg=0)(f, index, g, index)
    close(ours, F.cross_entropy(f @ g.T, index).item(), 1e-12)
    scaled = NPair(l2_reg=0, normalize=True, scale=20)(f, index, g, index)
    close(scaled, F.cross_entropy(20 * F.normalize(f) @ F.normalize(g).T, index).item(), 1e-12)


def test_D20b_two_pairs_mc_equals_ovo():
    z, y = batch(0)[0][:4], Y
    close(NPair(variant="mc")(z, y), NPair(variant="ovo")(z, y).item(), 1e-12)


def test_D20c_equal_inner_products_cost_log_n():
    z, y = torch.ones(8, 3), torch.arange(8) // 2
    close(NPair(l2_reg=0)(z, y), math.log(4))


def test_D20d_a_shift_orthogonal_to_all_anchors_changes_nothing():
    z, y = batch(0, p=4)
    z[:, 3] = 0
    _, p = disjoint_pairs(y)
    moved = z.clone()
    moved[p, 3] += 5.0
    close(NPair(l2_reg=0)(moved, y), NPair(l2_reg=0)(z, y).item(), 1e-12)


def test_D20_pairs_of_a_batch():
    y = torch.tensor([2, 0, 2, 1, 0, 2, 2, 0])
    pairs = {tuple(t) for t in torch.stack(disjoint_pairs(y)).T.tolist()}
    assert pairs == {(1, 4), (0, 2), (5, 6)}
    assert {tuple(t) for t in torch.stack(disjoint_pairs(y, one=True)).T.tolist()} == {(1, 4), (0, 2)}
    z, y = batch(0)
    all_pairs = []
    for i, j, same in ordered_pairs(y):
        if same:
            all_pairs.append(math.log1p(sum(math.exp(float(z[i] @ (z[k] - z[j]))) for k in range(12) if y[k] != y[i])))
    close(NPair(pairs="all", l2_reg=0)(z, y), mean(all_pairs), 1e-12)


# -- neighbourhood components and proxies ------------------------------------------------------------------------------


def test_D21a_toy_values():
    close(NCALoss()(A, Y), 4.608745)
    close(NCALoss(form="exp")(A, Y), 0.527819)
    close(NCALoss(denominator="negatives")(A, Y), 3.159989)


@SEEDS
def test_D21c_equals_the_loop_with_probabilities_that_sum_to_one(seed, ties):
    z, y = batch(seed, ties=ties)
    logs = []
    for i in range(12):
        e = {k: math.exp(-float(sq(z, i, k)) / 2) for k in range(12) if k != i}
        P = {k: v / sum(e.values()) for k, v in e.items()}
        assert sum(P.values()) == pytest.approx(1)
        right = sum(v for k, v in P.items() if y[k] == y[i])
        logs += [math.log(right)] if right else []
    close(NCALoss(temperature=2)(z, y), -mean(logs), 1e-12)
    close(NCALoss(temperature=2, form="exp")(z, y), 1 - mean(map(math.exp, logs)), 1e-12)


def test_D21b_separated_classes_cost_nothing():
    z = torch.tensor([[0.0, 0], [0.1, 0], [50, 0], [50.1, 0]])
    assert NCALoss()(z, Y) < 1e-6


def test_D21d_huge_distances_stay_finite():
    z, y = batch(0)
    z = (1e6 * z).float()
    assert NCALoss()(z, y).isfinite() and gradient(NCALoss(), z, y).isfinite().all()


PROXIES = circle(30, 135)


def with_proxies(loss, proxies):
    loss = loss.double()
    loss.proxies.data = proxies.clone()
    return loss


def test_D22a_toy_value():
    close(with_proxies(ProxyNCA(2, 2), PROXIES)(C, Y), -1.980289)


def test_D22b_softplus_gives_the_plus_plus_form():
    for z, y in zip(C.split(1), Y.split(1)):
        value = with_proxies(ProxyNCA(2, 2), PROXIES)(z, y)
        close(F.softplus(value), with_proxies(ProxyNCAPlusPlus(2, 2, 1.0), PROXIES)(z, y).item(), 1e-12)


def slow_proxy_nca(z, own, proxies, scale=1.0):
    z, proxies = F.normalize(z), F.normalize(proxies)
    terms = []
    for u, c in zip(z, own):
        d = [scale * float((u - w).square().sum()) for w in proxies]
        terms.append(d[c] + math.log(sum(math.exp(-d[k]) for k in range(len(d)) if k != c)))
    return mean(terms)


def test_D22_equals_the_loop():
    (z, y), proxies = batch(0), batch(1, n=4)[0]
    loss = with_proxies(ProxyNCA(4, 4, scale=9.0), proxies)
    close(loss(z, y), slow_proxy_nca(z, y.tolist(), proxies, 9.0), 1e-12)


def test_D22_nearest_proxy_of_a_positive():
    (z, y), proxies = batch(0), batch(1, n=4)[0]
    loss = with_proxies(ProxyNCA(4, 4, assignment="nearest", scale=9.0), proxies)
    near = [int((F.normalize(proxies) - u).square().sum(1).argmin()) for u in F.normalize(z)]
    pairs = [(i, j) for i, j, same in ordered_pairs(y) if same]
    slow = mean(slow_proxy_nca(z[i : i + 1], [near[j]], proxies, 9.0) for i, j in pairs)
    close(loss(z, y), slow, 1e-12)
    close(loss(z, 7 * y), slow, 1e-12)  # such proxies have no class, so labels may be any
    with pytest.raises(ValueError, match="needs labels"):
        loss(z, torch.ones(12, 4))


def test_D22_kmeans_centroids_are_proxies():
    z = torch.cat([circle(*range(k, k + 10, 2)) for k in (0, 90, 180, 270)])
    y = torch.arange(20) // 5
    loss = ProxyNCA(4, 2, proxies="kmeans", assignment="nearest").double()
    assert loss(z, y) == 0, "before the first fit there is nothing to compare with"
    loss.fit_proxies(z)
    assert_close(
        loss.proxies.sort(0).values, torch.stack([v.mean(0) for v in z.split(5)]).sort(0).values, atol=1e-6, rtol=0
    )
    close(loss(z, y), slow_proxy_nca(z, near_of(z, loss.proxies), loss.proxies), 1e-9)
    with pytest.raises(ValueError, match="use assignment='nearest'"):
        ProxyNCA(4, 2, proxies="kmeans")


def near_of(z, proxies):
    return [int((F.normalize(proxies) - u).square().sum(1).argmin()) for u in F.normalize(z)]


def test_D22c_class_means_after_an_epoch_are_exact():
    z, y = batch(0, n=20)
    loss = ProxyNCA(4, 4, proxies="class_mean").double()
    for zb, yb in zip(z.split(6), y.split(6)):
        loss(zb, yb)
    assert_close(loss.proxies, torch.stack([z[y == k].mean(0) for k in range(4)]))
    frozen = loss.proxies.clone()
    loss.eval()(z, y)
    assert_close(loss.proxies, frozen, rtol=0, atol=0)
    close(loss(z, y), slow_proxy_nca(z, y.tolist(), frozen), 1e-12)
    fading = ProxyNCA(4, 4, proxies="class_mean", momentum=0.5).double()
    for value in (1.0, 3.0):
        fading(torch.full((1, 4), value), torch.tensor([2]))
    assert fading.proxies[2].tolist() == [2.0] * 4


def test_D22d_scale_of_the_embedding_does_not_matter():
    loss, (z, y) = with_proxies(ProxyNCA(4, 4), batch(1, n=4)[0]), batch(0)
    close(loss(7 * z, y), loss(z, y).item(), 1e-12)


def test_D22e_bound_on_the_negatives_only_loss():
    """L_NCA ≤ L_proxy + 4√ε + log max n_l for unit vectors, ε the worst squared distance to the own proxy."""
    for seed in range(20):
        rng = torch.Generator().manual_seed(seed)
        proxies = F.normalize(torch.randn(4, 3, generator=rng, dtype=torch.float64))
        y = torch.arange(16) % 4
        z = F.normalize(proxies[y] + 0.3 * torch.randn(16, 3, generator=rng, dtype=torch.float64))
        bound = with_proxies(ProxyNCA(4, 3), proxies)(z, y).item()
        eps = (z - proxies[y]).square().sum(1).max().item()
        nca = NCALoss(denominator="negatives", normalize=True)(z, y).item()
        assert nca <= bound + 4 * math.sqrt(eps) + math.log(4)


def test_D23a_toy_values():
    close(with_proxies(ProxyNCAPlusPlus(2, 2, 1.0), PROXIES)(C, Y), 0.212882)
    close(with_proxies(ProxyNCAPlusPlus(2, 2), PROXIES)(C, Y), 0.005944)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_D23b_normalised_softmax_of_scale_two_over_t(smoothing):
    (z, y), proxies = batch(0), batch(1, n=4)[0]
    loss = with_proxies(ProxyNCAPlusPlus(4, 4, 0.3, smoothing), proxies)
    logits = 2 / 0.3 * F.normalize(z) @ F.normalize(proxies).T
    expected = F.cross_entropy(logits, y, label_smoothing=smoothing).item()
    close(loss(z, y), expected, 1e-12)
    close(loss(z, F.one_hot(y, 4).double()), expected, 1e-12)


def test_D23c_never_negative():
    assert with_proxies(ProxyNCAPlusPlus(2, 2, 1e-3), circle(0, 180))(circle(0, 180), torch.tensor([0, 1])) >= 0


def test_D23d_identical_proxies_cost_log_c():
    close(with_proxies(ProxyNCAPlusPlus(4, 2), torch.ones(4, 2).double())(C, Y), math.log(4))


# -- softmax triplet, global, angular, SoftTriple ----------------------------------------------------------------------


def test_D24a_toy_values():
    close(SoftmaxTriplet(temperature=1.0)(C, Y), 1.700710)
    close(SoftmaxTriplet()(C, Y), 6.006612)
    close(SoftmaxTriplet(temperature=1.0, distance="sqeuclidean", normalize=False)(A, Y), 6.292637)


def slow_softmax_triplet(z, y, tau, log_sum=False):
    u, total, anchors = F.normalize(z), 0.0, 0
    for i in range(len(z)):
        e = {k: math.exp(float(u[i] @ u[k]) / tau) for k in range(len(z)) if k != i}
        P = {k: v / sum(e.values()) for k, v in e.items()}
        right = [P[k] for k in P if y[k] == y[i]]
        if right:
            anchors += 1
            total -= math.log(sum(right)) if log_sum else sum(map(math.log, right))
            total -= sum(math.log(1 - P[k]) for k in P if y[k] != y[i])
    return total / anchors


@SEEDS
@pytest.mark.parametrize("log_sum", [False, True])
def test_D24d_equals_the_loop(seed, ties, log_sum):
    z, y = batch(seed, ties=ties)
    z = z + 0.5
    loss = SoftmaxTriplet(temperature=0.5, multi_positive="log_sum" if log_sum else "sum_log")
    close(loss(z, y), slow_softmax_triplet(z, y, 0.5, log_sum), 1e-10)
    close(SoftmaxTriplet(0.5, distance="sqeuclidean")(z, y), slow_softmax_triplet(z, y, 0.25), 1e-10)


def test_D24b_without_negatives_it_is_infonce():
    z1, z2 = batch(0)[0], batch(1)[0]
    u = F.normalize(torch.cat([z1, z2]))
    logits = (u @ u.T / 0.1).masked_fill(torch.eye(24).bool(), -torch.inf)
    ntxent = F.cross_entropy(logits, (torch.arange(24) + 12) % 24)
    close(SoftmaxTriplet(neg_weight=0).views(z1, z2), ntxent.item(), 1e-12)


def test_D24c_gradient_where_a_probability_tends_to_one():
    z = torch.tensor([[1, 1e-3], [1, 0], [-1, 0], [-1, 1e-2]], dtype=torch.float64, requires_grad=True)
    loss = SoftmaxTriplet(temperature=0.2)
    assert torch.autograd.gradcheck(lambda u: loss(u, Y), (z,))
    assert gradient(SoftmaxTriplet(temperature=0.01), z.detach().float(), 1 - Y).isfinite().all()


def test_D24_the_reference_may_be_held_constant():
    z, y = batch(0)
    u = z.clone().requires_grad_()
    SoftmaxTriplet(detach_reference=True)(u, y).backward()
    anchors_only = gradient(lambda v: SoftmaxTriplet()(v, y, z, y, torch.arange(12)), z)
    assert_close(u.grad, anchors_only)


def test_D25a_toy_value():
    close(TripletGlobal()(C, Y), 0.290947)


@SEEDS
def test_D25d_equals_the_loop_over_triplets_and_over_the_doubled_list(seed, ties):
    z, y = batch(seed, ties=ties)
    z = z + 0.5
    u, T = F.normalize(z), triples(y)
    d_pos, d_neg = ([float(sq(u, a, t[k])) / 4 for t in T for a in t[:1]] for k in (1, 2))
    var = [mean((v - mean(d)) ** 2 for v in d) for d in (d_pos, d_neg)]
    expected = sum(var) + 0.8 * max(0, mean(d_pos) - mean(d_neg) + 0.4)
    close(TripletGlobal()(z, y), expected, 1e-12)
    index = tuple(torch.tensor(T).T)
    close(TripletGlobal().triplets(z, index), expected, 1e-12)
    close(TripletGlobal().triplets(z, tuple(torch.cat([i, i]) for i in index)), expected, 1e-12)


def test_D25b_one_triplet_is_a_hinge():
    d_pos, d_neg = (float(sq(C, 0, k)) / 4 for k in (1, 2))
    one = tuple(torch.tensor([k]) for k in (0, 1, 2))
    close(TripletGlobal().triplets(C, one), 0.8 * max(0, d_pos - d_neg + 0.4), 1e-12)


def test_D25c_zero_iff_spread_is_none_and_the_margin_met():
    z = torch.tensor([[1.0, 0], [1, 0], [-1, 0], [-1, 0]])
    assert TripletGlobal(margin=1.0)(z, Y) == 0
    assert TripletGlobal(margin=1.1)(z, Y) > 0
    assert TripletGlobal()(circle(0, 1, 180, 181), Y) > 0


def test_D26a_toy_values():
    one = [C[k : k + 1] for k in (2, 3, 1)]
    assert Angular(alpha=45, form="triplet").triplets(*one) == 0
    close(Angular(alpha=30, form="triplet").triplets(*one), 0.488034)
    close(Angular()(C, Y), 1.673909)
    close(Angular(alpha=40)(C, Y), 1.239526)


@pytest.mark.parametrize("chunk", [1 << 4, 1 << 18])
def test_D26_few_pairs_and_many_pairs_take_different_products_and_agree(chunk, monkeypatch):
    """Listed inner products and a sparse matrix, or two dense products."""
    (z, y), (refs, ref_y) = batch(0), batch(1, n=15)
    found = []
    for dense in (1.0, -1.0):
        monkeypatch.setattr(angular._LogPairSums, "DENSE", dense)
        monkeypatch.setattr(angular._LogPairSums, "CHUNK", chunk)
        found.append((Angular()(z, y, refs, ref_y), gradient(Angular(), z, y), gradient(Angular(), z, y, refs, ref_y)))
    assert_close(found[0], found[1], rtol=1e-10, atol=1e-12)


@SEEDS
@pytest.mark.parametrize("alpha", [36.0, 50.0, 75.0])
def test_D26c_equals_the_loop(seed, ties, alpha):
    z, y = batch(seed, ties=ties)
    z = z + 0.3
    u, t = F.normalize(z), math.tan(math.radians(alpha)) ** 2
    terms, hinges = [], []
    for a, p, same in ordered_pairs(y):
        if same:
            negs = [n for n in range(12) if y[n] != y[a]]
            f = [float(4 * t * (u[a] + u[p]) @ u[n] - 2 * (1 + t) * u[a] @ u[p]) for n in negs]
            terms.append(math.log1p(sum(map(math.exp, f))))
            hinges += [max(0, float(sq(u, a, p) - 4 * t * (u[n] - (u[a] + u[p]) / 2).square().sum())) for n in negs]
    close(Angular(alpha=alpha)(z, y), mean(terms), 1e-10)
    close(Angular(alpha=alpha, form="triplet", reduction="sum")(z, y), sum(hinges), 1e-10)
    active = [h for h in hinges if h > 1e-12]
    close(Angular(alpha=alpha, form="triplet")(z, y), mean(active) if active else 0.0, 1e-10)


def plain_angular(z, y, alpha):
    """The batch form as a log-sum-exp over a cube of terms, in float64."""
    u, t = F.normalize(z), math.tan(math.radians(alpha)) ** 2
    S = u @ u.T
    f = 4 * t * (S[:, None] + S[None]) - 2 * (1 + t) * S[:, :, None]  # (a, p, n)
    same = y[:, None] == y
    f = torch.cat([f.masked_fill(same[:, None], -torch.inf), torch.zeros_like(S)[:, :, None]], 2)
    return f.logsumexp(2)[same & ~torch.eye(len(y), dtype=torch.bool)].mean()


KINDS = {
    "random": lambda z: z,
    "duplicates": lambda z: z[[0, 0, 2, 3, 4, 0, 6, 7, 7, 9, 10, 10]],
    "one point": lambda z: torch.ones_like(z),
    "almost one point": lambda z: 1 + 1e-4 * z,
    "opposite": lambda z: torch.cat([z[:6], -z[:6]]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_D26_angles_up_to_89_degrees(kind, dtype):
    """Exponents are sums of inner products times up to 10 tan²α + 2: their round-off is that of values, and that of
    softmax weights relative to one."""
    z, y = batch(0)
    z = KINDS[kind](z).to(dtype)
    for alpha in range(1, 90):
        steep = 10 * math.tan(math.radians(alpha)) ** 2 + 2
        round_off = steep * 8 * torch.finfo(dtype).eps
        wide = z.double().clone().requires_grad_()
        expected = plain_angular(wide, y, alpha)
        expected.backward()
        value, slope = Angular(alpha)(z, y).double(), gradient(Angular(alpha), z, y).double()
        assert_close(value, expected.detach(), rtol=1e-15, atol=round_off)
        assert_close(slope, wide.grad, rtol=0, atol=4 * round_off * steep / float(z.norm(dim=1).min()))
        angles = Angular(alpha, "triplet")
        assert angles(z, y).isfinite() and gradient(angles, z, y).isfinite().all()


@pytest.mark.parametrize("dense", [1.0, -1.0])
def test_D26_second_derivatives_where_products_underflow(dense, monkeypatch):
    """At 86° some pairs take the product and some are summed one by one, a chunk at a time."""
    monkeypatch.setattr(angular._LogPairSums, "DENSE", dense)
    monkeypatch.setattr(angular._LogPairSums, "CHUNK", 30)
    z, y = batch(0)
    S = F.normalize(z) @ F.normalize(z).T
    same = y[:, None] == y
    a, p = (same & ~torch.eye(12, dtype=torch.bool)).nonzero(as_tuple=True)
    t = math.tan(math.radians(86)) ** 2
    far = angular._LogPairSums.values(S, S, ~same, a, p, 4 * t)[-1]
    assert 0 < len(far) < len(a)
    z, v = z.requires_grad_(), batch(1)[0]
    forms = []
    for loss in (Angular(86), lambda u, y: plain_angular(u, y, 86)):
        (g,) = torch.autograd.grad(loss(z, y), z, create_graph=True)
        forms.append(torch.autograd.grad((g * v).sum(), z)[0])
    assert_close(forms[0], forms[1], rtol=1e-7, atol=1e-7 * float(forms[1].abs().max()))


def test_D26_one_negative_to_each_pair():
    """Listed triplets: of a batch of one pair and one negative the batch form is the mean over both anchors."""
    z = batch(0)[0][:3]
    a, p, n = z.split(1)
    one = torch.tensor([0, 0, 1])
    close(Angular().triplets(a, p, n), float(Angular()(z, one)), 1e-12)
    assert Angular().triplets(a[:0], p[:0], n[:0]) == 0


def test_D26_the_two_forms_differ_by_the_dropped_constant():
    u, t = F.normalize(batch(0)[0]), math.tan(math.radians(40)) ** 2
    a, p, n = u[0], u[1], u[2]
    f = 4 * t * (a + p) @ n - 2 * (1 + t) * a @ p
    gap = (a - p).square().sum() - 4 * t * (n - (a + p) / 2).square().sum()
    close(gap - f, 2 - 6 * t, 1e-12)


def test_D26b_scale_does_not_matter():
    z, y = batch(0)
    close(Angular()(5 * z, y), Angular()(z, y).item(), 1e-12)


def test_D26d_zero_iff_the_angle_is_kept():
    a, p = circle(-20), circle(20)
    n = circle(180)
    angle = math.degrees(math.atan(float((a - p).norm() / (2 * (n - (a + p) / 2).norm()))))
    assert Angular(alpha=angle + 0.01, form="triplet").triplets(a, p, n) == 0
    assert Angular(alpha=angle - 0.01, form="triplet").triplets(a, p, n) > 0
    with pytest.raises(ValueError, match="between 0 and 90"):
        Angular(alpha=90)


def with_centers(loss, centers):
    loss = loss.double()
    loss.centers.data = centers.clone()
    return loss


def test_D27a_toy_values():
    centers = C.reshape(2, 2, 2)
    close(with_centers(SoftTriple(2, 2, 2, tau=0.0), centers)(C, Y), 0.041523)
    close(with_centers(SoftTriple(2, 2, 2), centers)(C, Y), 0.162234)
    regulariser = with_centers(SoftTriple(2, 2, 2, tau=1.0), centers)(C, Y) - 0.041523
    close(regulariser, 0.603556, 2e-6)


@pytest.mark.parametrize("gamma", [0.01, 0.1, 10.0])
def test_D27_equals_the_loop(gamma):
    (z, y), centers = batch(0), batch(1, n=12)[0].reshape(4, 3, 4)
    u, w = F.normalize(z), F.normalize(centers, dim=2)
    total = 0.0
    for i in range(12):
        S = []
        for k in range(4):
            s = [float(u[i] @ c) for c in w[k]]
            e = [math.exp((v - max(s)) / gamma) for v in s]
            S.append(sum(v * q for v, q in zip(s, e)) / sum(e))
        logits = [20 * (v - 0.01 * (k == int(y[i]))) for k, v in enumerate(S)]
        total += math.log(sum(map(math.exp, logits))) - logits[int(y[i])]
    spread = sum(
        math.sqrt(2 + 1e-5 - 2 * float(w[k, s] @ w[k, t])) for k in range(4) for s in range(3) for t in range(s)
    )
    expected = total / 12 + 0.2 * spread / (4 * 3 * 2)
    loss = with_centers(SoftTriple(4, 4, 3, gamma=gamma), centers)
    close(loss(z, y), expected, 1e-10)
    close(loss(z, F.one_hot(y, 4).double()), expected, 1e-10)
    assert_close(gradient(loss, z, F.one_hot(y, 4).double()), gradient(loss, z, y), rtol=1e-9, atol=1e-12)


def test_D27b_one_centre_is_a_cosine_softmax_with_margin():
    (z, y), centers = batch(0), batch(1, n=4)[0].reshape(4, 1, 4)
    logits = 20 * (F.normalize(z) @ F.normalize(centers[:, 0]).T - 0.01 * F.one_hot(y, 4).double())
    for gamma in (0.1, 3.0):
        close(with_centers(SoftTriple(4, 4, 1, gamma=gamma), centers)(z, y), F.cross_entropy(logits, y).item(), 1e-12)


def test_D27c_limits_of_gamma():
    (z, y), centers = batch(0), batch(1, n=12)[0].reshape(4, 3, 4)
    s = torch.einsum("bp,ckp->bck", F.normalize(z), F.normalize(centers, dim=2))
    for gamma, S in ((1e-5, s.amax(2)), (1e7, s.mean(2))):
        expected = F.cross_entropy(20 * (S - 0.01 * F.one_hot(y, 4).double()), y).item()
        close(with_centers(SoftTriple(4, 4, 3, gamma=gamma, tau=0), centers)(z, y), expected, 1e-5)


def test_D27d_identical_centres_have_a_finite_gradient():
    loss = with_centers(SoftTriple(4, 4, 3, tau=1.0), torch.ones(4, 3, 4).double())
    (z, y) = batch(0)
    plain = with_centers(SoftTriple(4, 4, 3, tau=0.0), torch.ones(4, 3, 4).double())
    assert 0 <= loss(z, y) - plain(z, y) < 2e-3
    loss(z, y).backward()
    assert loss.centers.grad.isfinite().all()


# -- Fisher ------------------------------------------------------------------------------------------------------------


def test_D28a_toy_value():
    close(FisherTriplet(lam=0.5, margin=0.25, normalize=False)(A, Y), 8.0)


def test_D28b_traces_are_mean_squared_distances_of_the_outputs():
    (o, y), layer = batch(0), torch.nn.Linear(4, 3).double()
    U, T = layer.weight.detach().T, triples(batch(0)[1])
    S_W, S_B = (sum(torch.outer(o[t[0]] - o[t[k]], o[t[0]] - o[t[k]]) for t in T) / len(T) for k in (1, 2))
    I = torch.eye(4, dtype=torch.float64)
    within, between = (torch.trace(U.T @ (S + 1e-2 * I) @ U) for S in (S_W, S_B))
    loss = FisherTriplet(lam=0.7, margin=5.0, layer=layer, mu_w=1e-2, mu_b=1e-2, normalize=False)
    close(loss(layer(o), y), (1.3 * within - 0.7 * between + 5.0).item(), 1e-10)
    assert not list(loss.parameters())
    pairs = FisherContrastive(lam=0.7, margin=5.0, layer=layer, mu_w=1e-2, mu_b=1e-2)
    P = ordered_pairs(y)
    kinds = [[torch.outer(o[i] - o[j], o[i] - o[j]) for i, j, same in P if same == k] for k in (True, False)]
    within, between = (torch.trace(U.T @ (sum(S) / len(S) + 1e-2 * I) @ U) for S in kinds)
    close(pairs(layer(o), y), (1.3 * within + (5.0 - 0.7 * between).relu()).item(), 1e-10)


def test_D28c_lambda_one_and_one_triplet_is_the_triplet_loss():
    loss = FisherTriplet(lam=1.0, margin=0.2, normalize=False)
    close(loss.triplets(A, ONE), Triplet(normalize=False).triplets(A, ONE).item(), 1e-12)


def test_D28d_no_gradient_when_the_hinge_is_inactive():
    z = torch.tensor([[1.0, 0], [1, 0.01], [-1, 0], [-1, 0.01]])
    assert (gradient(FisherTriplet(), z, Y) == 0).all()
    assert gradient(FisherTriplet(margin=9), z, Y).abs().sum() > 0


def test_D28_sums_as_in_the_authors_code():
    mean_form, sum_form = (FisherTriplet(lam=0.5, margin=0, normalize=False, reduction=r) for r in ("mean", "sum"))
    close(sum_form(A, Y), 8 * mean_form(A, Y).item(), 1e-12)


def test_D29a_toy_values():
    close(FisherContrastive(lam=0.5, margin=0.25)(A, Y), 10.5)
    close(FisherContrastive(lam=0.5, margin=5)(A, Y), 12.75)


def test_D29b_lambda_one_is_the_linear_contrastive_loss():
    z, nan = A[:3], torch.nan
    y = torch.tensor([[nan, 1, 0], [nan, nan, nan], [nan, nan, nan]])
    linear = Contrastive(margin=9, squared_hinge=False, balanced=True, distance="sqeuclidean")
    close(FisherContrastive(lam=1.0, margin=9)(z, y), linear(z, y).item(), 1e-12)


def test_D29c_no_dissimilar_pair_leaves_the_margin():
    z, y = A[:2], Y[:2]
    close(FisherContrastive(lam=0.5, margin=0.25)(z, y), 1.5 * 1.0 + 0.25, 1e-12)
