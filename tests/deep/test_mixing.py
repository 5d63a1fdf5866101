"""Points made of two others (E36), taught similarities (E37), flows about proxies (E38)."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from isometry.deep import (
    S2SD,
    Circle,
    EmbeddingExpansion,
    GeneralizedContrastive,
    Headed,
    LanguageGuidance,
    MixedPairs,
    MultiSimilarity,
    NonIsotropy,
    ProxyAnchor,
    SupCon,
    Trainer,
    Triplet,
)
from isometry.deep.functional import unit
from isometry.deep.losses.mixing import between, mixed
from isometry.deep.losses.non_isotropy import Flow
from tests.deep.batches import C, Y, batch, close, cosines, gradient, same

# -- embedding expansion -----------------------------------------------------------------------------------------------


def slow_expansion(z, y, n):
    """Hardest positives and negatives, the latter also among inner points, by loops; consecutive members are pairs."""
    z = z / z.norm(dim=1, keepdim=True)
    points, labels, waiting = list(z), y.tolist(), {}
    for k, label in enumerate(y.tolist()):
        if label not in waiting:
            waiting[label] = k
            continue
        i, j = waiting.pop(label), k
        for step in range(1, n + 1):
            v = (step * z[i] + (n + 1 - step) * z[j]) / (n + 1)
            points.append(v / v.norm())
            labels.append(label)
    hinges = []
    for a in range(len(z)):
        pos = [(z[a] - z[p]).norm() for p in range(len(z)) if p != a and labels[p] == labels[a]]
        neg = [(z[a] - points[k]).norm() for k in range(len(points)) if labels[k] != labels[a]]
        if pos:
            hinges.append((torch.stack(pos).max() - torch.stack(neg).min() + 0.2).relu())
    hinges = torch.stack(hinges)
    return hinges.sum() / (hinges > 0).sum()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_E36_is_its_loop(n):
    z, y = batch(0)
    same(EmbeddingExpansion(n=n), lambda z, y: slow_expansion(z, y, n), z, y)


def test_E36_toy_value():
    """C has pairs (0°, 60°) and (90°, 180°); one inner point each, at 30° and 135°."""

    def chord(a, b):
        return 2 * math.sin(math.radians(abs(a - b)) / 2)

    near = {0: chord(0, 90), 60: chord(60, 90), 90: chord(90, 60), 180: chord(180, 60)}
    far = {0: chord(0, 60), 60: chord(60, 0), 90: chord(90, 180), 180: chord(180, 90)}
    hinges = [max(far[t] - near[t] + 0.2, 0) for t in near]
    close(EmbeddingExpansion(n=1)(C, Y), sum(hinges) / sum(h > 0 for h in hinges))


@pytest.mark.parametrize("loss", [Triplet(), Circle(), MultiSimilarity()])
def test_E36_without_inner_points_is_the_loss(loss):
    z, y = batch(0)
    assert_close(EmbeddingExpansion(loss, n=0)(z, y), loss(z, y), rtol=0, atol=0)
    assert (EmbeddingExpansion(loss, n=2)(z, y) - loss(z, y)).abs() > 1e-6


def test_E36_inner_points():
    z = unit(batch(0)[0])
    inner = between(z, torch.tensor([0, 2]), torch.tensor([1, 3]), 2)
    assert_close(inner[0], (z[0] + 2 * z[1]) / 3)
    assert_close(inner[3], (2 * z[2] + z[3]) / 3)
    with pytest.raises(TypeError, match=r"a loss that compares pairs is expected, such as Triplet\(\), got Linear"):
        EmbeddingExpansion(nn.Linear(2, 2))


# -- mixed pairs -------------------------------------------------------------------------------------------------------


def test_E36_mixed_points_and_labels():
    z, y = batch(0)
    i, j = torch.tensor([0, 5]), torch.tensor([3, 1])
    v, S = mixed(z, y, i, j, torch.tensor([1.0, 0.3], dtype=torch.float64))
    assert_close(v[0], z[0], rtol=0, atol=0)
    assert_close(v[1], 0.3 * z[5] + 0.7 * z[1])
    for a in range(len(y)):
        expected = [float(y[a] == y[0]), 0.3 * float(y[a] == y[5]) + 0.7 * float(y[a] == y[1])]
        assert_close(S[a], torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("loss", [GeneralizedContrastive(normalize=True), SupCon(0.3)])
def test_E36_mixed_loss_is_the_sum_of_two(loss):
    """The draws of a copy of the generator give the same mixture; a weight of zero and eval mode leave the loss."""
    z, y = batch(0)
    assert_close(MixedPairs(loss, weight=0).train()(z, y), loss(z, y), rtol=0, atol=0)
    assert_close(MixedPairs(loss).eval()(z, y), loss(z, y), rtol=0, atol=0)
    ours, twin = (MixedPairs(loss, weight=0.4, random_state=3) for _ in range(2))
    luck = torch.rand(len(z), 3, generator=twin.generator(z.device))
    i, j = twin.partners(y[:, None] == y)
    v, S = mixed(z, y, i, j, luck.sort(1).values[:, 1].double())
    assert (y[i] == y).all() and (y[j] != y).all()
    assert_close(ours(z, y), loss(z, y) + 0.4 * loss(z, S, v), rtol=1e-12, atol=0)


def test_E36_draws():
    """λ of Beta(2, 2): mean ½, variance 1/20; the anchor itself half of the time, others of its class alike."""
    loss = MixedPairs(random_state=0)
    y = torch.arange(4000) % 500
    lam = torch.rand(20000, 3, generator=torch.Generator().manual_seed(0)).median(1).values
    assert abs(lam.mean() - 0.5) < 5 * math.sqrt(0.05 / 20000) and abs(lam.var() - 0.05) < 2e-3
    i, j = loss.partners(y[:, None] == y)
    itself = (i == torch.arange(4000)).double().mean()
    assert abs(itself - 0.5) < 5 * 0.5 / math.sqrt(4000)
    assert (y[i] == y).all() and (y[j] != y).all()


def test_E36_losses_without_soft_labels_are_refused():
    with pytest.raises(TypeError, match="Triplet does not take; GeneralizedContrastive and SupCon do"):
        MixedPairs(Triplet())


# -- similarities of a teacher -----------------------------------------------------------------------------------------

VECTORS = batch(5, n=4, p=3)[0]


def slow_kl(s, t, T):
    total = 0.0
    for i in range(len(s)):
        p, q = torch.softmax(t[i] / T, 0), torch.softmax(s[i] / T, 0)
        total = total + sum(p[j] * (p[j] / q[j]).log() for j in range(len(s)))
    return T**2 * total / len(s)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_E37_language_is_its_loop(direction):
    z, y = batch(0)
    loss = LanguageGuidance(VECTORS, Triplet(), weight=2.0, temperature=0.5, direction=direction)

    def slow(z, y):
        s, t = cosines(z), cosines(VECTORS[y])
        return Triplet()(z, y) + 2 * (slow_kl(s, t, 0.5) if direction == "forward" else slow_kl(t, s, 0.5))

    same(loss, slow, z, y)


def test_E37_a_student_like_its_teacher_costs_nothing():
    y = torch.tensor([0, 1, 2, 3, 1])
    ours, plain = LanguageGuidance(VECTORS, Triplet(0.3)), Triplet(0.3)
    assert_close(ours(VECTORS[y], y), plain(VECTORS[y], y), rtol=0, atol=1e-12)
    close(LanguageGuidance(torch.eye(2).double(), weight=0)(C, Y), float(MultiSimilarity()(C, Y)))
    # C against two orthogonal names: each row of t is (1, 1, 0, 0) or (0, 0, 1, 1)
    t = (Y[:, None] == Y).double()
    close(LanguageGuidance(torch.eye(2).double())(C, Y) - MultiSimilarity()(C, Y), float(slow_kl(cosines(C), t, 1.0)))


def test_E37_bad_input():
    z, y = batch(0)
    with pytest.raises(ValueError, match="labels must lie in 0 … 2 for num_classes=3, got 0 … 3"):
        LanguageGuidance(VECTORS[:3])(z, y)
    with pytest.raises(ValueError, match=r"one row for each class, \(C, q\), got shape \(3,\)"):
        LanguageGuidance(VECTORS[0])


def test_E37_self_distillation_is_its_sum():
    torch.manual_seed(0)
    model = Headed(nn.Linear(4, 6), nn.Linear(6, 3)).double()
    ours = S2SD(6, Triplet(0.6), widths=(5, 7), weight=2.0, temperature=0.5, delay=0).double()
    x, y = batch(0)
    f = model.features(x)
    z, wide = model.head(f), [head(f) for head in ours.heads]
    loss = Triplet(0.6)
    kl = [slow_kl(cosines(z), cosines(t.detach()), 0.5) for t in (*wide, f)]
    expected = (loss(z, y) + (loss(wide[0], y) + loss(wide[1], y)) / 2) / 2 + (kl[0] + kl[1]) + 2 * kl[2]
    value = ours(model, (x, y))
    assert_close(value, expected, rtol=1e-10, atol=1e-12)
    assert_close(S2SD(6, loss, widths=(), weight=0).double()(model, (x, y)), loss(z, y), rtol=0, atol=0)


def test_E37_the_teacher_gets_no_gradient_from_the_divergence():
    torch.manual_seed(0)
    model = Headed(nn.Linear(4, 6), nn.Linear(6, 3))
    x, y = batch(0)
    grads = []
    for weight in (0.0, 50.0):
        torch.manual_seed(1)
        ours = S2SD(6, Triplet(0.6), widths=(5,), weight=weight, delay=0)
        ours(model, (x.float(), y)).backward()
        grads.append(ours.heads[0][0].weight.grad.clone())
    assert_close(grads[0], grads[1], rtol=0, atol=0)


EDGES = {
    "aligned": lambda x, y: (torch.eye(6)[y], y),
    "duplicates": lambda x, y: (x[:4][torch.arange(12) // 3], y),
    "zero rows": lambda x, y: (x * (torch.arange(12) % 5 > 0)[:, None], y),
    "one class": lambda x, y: (x, 0 * y),
    "all singletons": lambda x, y: (x, torch.arange(12)),
    "norms of 1e4": lambda x, y: (1e4 * nn.functional.normalize(x), y),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("edge", EDGES)
def test_E37_self_distillation_is_finite_at_the_edges(edge, dtype):
    x, y = EDGES[edge](batch(3, p=6)[0].float(), torch.arange(12) % 4)
    x = x.to(dtype, copy=True).requires_grad_()
    torch.manual_seed(0)
    ours = S2SD(6, Triplet(0.6), widths=(5, 7), delay=0)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        value = ours(Headed(nn.Identity(), nn.Identity()), (x, y))
    value.backward()
    assert value.dtype == torch.float32 and value.isfinite() and x.grad.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in ours.parameters())


def test_E37_features_teach_after_the_delay():
    torch.manual_seed(0)
    model = Headed(nn.Linear(4, 6), nn.Linear(6, 3))
    ours, (x, y) = S2SD(6, Triplet(0.6), widths=(), weight=1.0, delay=2), batch(0)
    values = [float(ours(model, (x.float(), y)).detach()) for _ in range(4)]
    assert values[0] == values[1] < values[2] == values[3]


def test_E37_self_distillation_trains_and_names_what_is_missing():
    torch.manual_seed(0)
    x, y = batch(0, n=48)
    model = Headed(nn.Linear(4, 6), nn.Linear(6, 3))
    objective = S2SD(6, lambda p: ProxyAnchor(4, p), widths=(8,), delay=2, embedding_size=3)
    trainer = Trainer(model, objective)
    trainer.fit(x.float(), y)
    assert trainer.embed(x.float()).shape == (48, 3)
    with pytest.raises(TypeError, match=r"shows its features, and Linear has no.*Headed\(backbone, head\)"):
        objective(nn.Linear(4, 3), (x.float(), y))
    with pytest.raises(ValueError, match=r"ProxyAnchor has parameters of its own.*lambda p: ProxyAnchor\(C, p\)"):
        S2SD(6, ProxyAnchor(4, 3))
    with pytest.raises(ValueError, match="needs embedding_size"):
        S2SD(6, lambda p: ProxyAnchor(4, p))


# -- flows -------------------------------------------------------------------------------------------------------------


def moved_flow(p=4, q=3):
    torch.manual_seed(0)
    flow = Flow(p, q, blocks=3, width=8, depth=3).double()
    for w in flow.parameters():
        w.data += 0.3 * torch.randn_like(w)
    return flow


def test_E38_the_flow_is_invertible_and_knows_its_determinant():
    flow, z, given = moved_flow(), batch(0)[0], batch(1, p=3)[0]
    u, log_det = flow(z, given)
    assert (u - z).abs().max() > 0.1
    assert_close(flow.inverse(u, given), z, rtol=0, atol=1e-10)
    for i in range(3):
        J = torch.autograd.functional.jacobian(lambda v, i=i: flow(v[None], given[i : i + 1])[0][0], z[i])
        assert_close(log_det[i], torch.linalg.slogdet(J).logabsdet, rtol=1e-10, atol=1e-12)


def test_E38_at_the_start_it_is_half_the_squared_length():
    z, y = batch(0)
    loss = NonIsotropy(4, 4, weight=1.0, proxy_weight=0).double()
    close(loss(z, y), 0.5)  # of unit vectors
    close(NonIsotropy(4, 4, weight=1.0, proxy_weight=0, exponential=True).double()(z, y), math.exp(0.5))
    torch.manual_seed(0)
    loss = NonIsotropy(4, 4, weight=0, proxy_weight=1.0).double()
    assert_close(loss(z, y), loss.loss(z, y), rtol=0, atol=0)


@pytest.mark.parametrize("exponential", [False, True])
def test_E38_is_its_loop(exponential):
    torch.manual_seed(0)
    loss, (z, y) = NonIsotropy(4, 4, exponential=exponential, blocks=2, width=5, depth=2).double(), batch(0)
    for w in loss.flow.parameters():
        w.data += 0.3 * torch.randn_like(w)

    def slow(z, y):
        terms = []
        for i in range(len(z)):
            pi = loss.loss.proxies[y[i]] / loss.loss.proxies[y[i]].norm()
            v, J = z[i] / z[i].norm(), 0.0
            for c in loss.flow.couplings:
                v = v[c.order]
                a, b = v[:2], v[2:]
                s, t = c.nets[0](torch.cat([b, pi])).split(2)
                s = 4 / math.pi * torch.atan(s / 2)
                a = a * s.exp() + t
                r, u = c.nets[1](torch.cat([a, pi])).split(2)
                r = 4 / math.pi * torch.atan(r / 2)
                v, J = torch.cat([a, b * r.exp() + u]), J + s.sum() + r.sum()
            term = 0.5 * (v * v).sum() - J
            terms.append(term.exp() if exponential else term)
        return 0.01 * torch.stack(terms).mean() + loss.loss(z, y)

    same(loss, slow, z, y)


def test_E38_without_the_flow_it_is_proxy_anchor():
    z, y = batch(0)
    torch.manual_seed(0)
    plain = ProxyAnchor(4, 4).double()
    torch.manual_seed(0)
    ours = NonIsotropy(4, 4, weight=0, proxy_weight=1.0).double()
    same(ours, plain, z, y)


def test_E38_odd_dimensions_are_named_and_rates_are_its_own():
    with pytest.raises(ValueError, match="two halves: the dimension must be even, got 3"):
        NonIsotropy(4, 3)
    rates = [g["lr"] for g in NonIsotropy(4, 4).param_groups(1e-5)]
    assert rates == pytest.approx([5e-4, 1e-2])


def test_E38_spreads_a_class_that_fell_onto_its_proxy():
    """The likelihood of members at one point has no maximum: with a flow the loss falls without bound."""
    torch.manual_seed(0)
    loss = NonIsotropy(2, 4, weight=1.0, proxy_weight=0, blocks=2, width=16, depth=2).double()
    z, y = unit(batch(0, n=8, c=2)[0]), torch.arange(8) % 2
    optimizer = torch.optim.Adam(loss.parameters(), 1e-2)
    first = float(loss(z, y))
    for _ in range(100):
        optimizer.zero_grad()
        loss(z, y).backward()
        optimizer.step()
    assert float(loss(z, y)) < first - 1
    assert gradient(loss, z, y).isfinite().all()
