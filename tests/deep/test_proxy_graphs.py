"""Proof tests of ProxyGML and HIST, beside their equations written with loops."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from isometry.deep import HIST, NormalizedSoftmax, ProxyGML, ProxyNCAPlusPlus
from isometry.deep.functional import unit
from isometry.deep.losses.hypergraph import spread
from tests.deep.batches import batch, gradient


def seeded(make, *args, **options):
    torch.manual_seed(0)
    return make(*args, **options).double()


def slow_proxy_gml(loss, z, y, kept, weight=0.3):
    w = [[v / v.norm() for v in of_class] for of_class in loss.proxies]
    everything = [(l, n) for l in range(len(w)) for n in range(len(w[0]))]
    total = 0.0
    for i, own in enumerate(y.tolist()):
        s = {(l, n): z[i] @ w[l][n] / z[i].norm() for l, n in everything}
        order = sorted(everything, key=lambda k: (k[0] != own, -float(s[k].detach())))[:kept]
        scores = {l: sum(s[k] for k in order if k[0] == l) for l in {k[0] for k in order}}
        total = total - scores[own] + torch.stack(list(scores.values())).logsumexp(0)
    among = torch.stack([torch.stack([sum(w[l][n] @ v for v in w[k]) for k in range(len(w))]) for l, n in everything])
    return total / len(y) + weight * F.cross_entropy(among, torch.tensor([l for l, _ in everything]))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_E11_equals_the_loop(seed, share):
    loss, (z, y) = seeded(ProxyGML, 4, 4, 3, share), batch(seed)
    expected = slow_proxy_gml(loss, z, y, round(12 * share))
    assert_close(loss(z, y), expected, rtol=1e-10, atol=0)
    slopes = [torch.autograd.grad(value, loss.proxies)[0] for value in (loss(z, y), expected)]
    assert_close(*slopes, rtol=1e-8, atol=1e-10)
    slow = gradient(lambda u: slow_proxy_gml(loss, u, y, round(12 * share)), z)
    assert_close(gradient(loss, z, y), slow, rtol=1e-8, atol=1e-10)


def test_E11_of_all_single_proxies_is_a_softmax():
    loss, (z, y) = seeded(ProxyGML, 4, 4, 1, 1.0, weight=0.0), batch(0)
    plain = NormalizedSoftmax(4, 4, temperature=1.0).double()
    plain.proxies.data = loss.proxies.data[:, 0]
    assert_close(loss(z, y), plain(z, y), rtol=1e-12, atol=0)
    assert_close(loss(z, torch.eye(4)[y]), plain(z, y), rtol=1e-12, atol=0)


def test_E11_own_proxies_are_kept_where_they_are_the_farthest():
    """Three of six proxies: the two of the own class, at −1 and 0, and the most similar of the others."""
    loss = ProxyGML(3, 2, 2, share=0.5, weight=0.0).double()
    axes = torch.tensor([[[-1.0, 0], [0, 1.0]], [[1.0, 0], [0.6, 0.8]], [[0.8, 0.6], [0, -1.0]]]).double()
    loss.proxies.data = axes
    z, y = torch.tensor([[1.0, 0.0]]).double(), torch.tensor([0])
    expected = torch.tensor([-1.0, 1.0]).double()  # class 0: −1 + 0, class 1: 1, class 2 is not there
    assert_close(loss(z, y), -expected.log_softmax(0)[0], rtol=1e-12, atol=0)


def test_E11_share():
    assert ProxyGML(4, 4, 3).kept == 12 and ProxyGML(200, 4, 10).kept == 100 and ProxyGML(10, 4, 2).kept == 10
    with pytest.raises(ValueError, match=r"share=0.2 of the proxies of 4 classes is less than those of one class"):
        ProxyGML(4, 4, share=0.2)
    with pytest.raises(ValueError, match=r"share=20 must lie in \(0, 1\]"):
        ProxyGML(4, 4, share=20)


def hist(**options):
    return seeded(HIST, 4, 4, **{"hidden": 6, **options})


def test_E12_distances_equal_the_loop():
    loss, x = hist(), unit(batch(0)[0])
    loss.log_vars.data *= 5  # some below 0 and above 6
    mu, variance = unit(loss.means), loss.log_vars.clamp(0, 6).exp()
    slow = [[float(((u - m).square() / v).sum()) for m, v in zip(mu.detach(), variance.detach())] for u in x]
    assert_close(loss.mahalanobis(x), torch.tensor(slow, dtype=torch.float64), rtol=1e-10, atol=1e-12)


def test_E12_without_variances_or_graph_it_is_proxy_nca_plus_plus():
    loss, (z, y) = hist(weight=0.0), batch(0)
    loss.log_vars.data.fill_(-1.0)
    plain = ProxyNCAPlusPlus(4, 4, temperature=1 / 32).double()
    plain.proxies.data = loss.means.data
    assert_close(loss(z, y), plain(z, y), rtol=1e-10, atol=0)
    graph = hist()
    graph.log_vars.data.fill_(-1.0)
    assert_close(graph(z[:3], 0 * y[:3]), loss(z[:3], 0 * y[:3]), rtol=1e-12, atol=0)  # one class: no graph


def test_E12_equals_the_loop_with_the_graph_built():
    loss, (z, y) = hist(tau=2.0), batch(0)
    y[y == 2] = 1

    def slow(u, y):
        x, mu, precision = unit(u), unit(loss.means), (-loss.log_vars.clamp(0, 6)).exp()
        M = ((x[:, None] - mu).square() * precision).sum(2)
        classes = y.unique().tolist()
        H = torch.stack(
            [torch.stack([(-0.9 * m[l]).exp() if l != k else m.new_ones(()) for l in classes]) for m, k in zip(M, y)]
        )
        G = torch.diag(H.sum(1) ** -0.5) @ H @ torch.diag(1 / H.sum(0)) @ H.T @ torch.diag(H.sum(1) ** -0.5)
        assert_close(G, G.T, rtol=1e-12, atol=1e-14)
        hidden = G @ (2 * x @ loss.first.weight.T + loss.first.bias)
        hidden = (hidden - hidden.mean(0)) / (hidden.var(0, unbiased=False) + 1e-5).sqrt()
        hidden = torch.where(hidden > 0, hidden, 0.1 * hidden)
        out = G @ (hidden @ loss.last.weight.T + loss.last.bias)
        return F.cross_entropy(-2 * M, y) + F.cross_entropy(out, y)

    loss.train()
    assert_close(loss(z, y), slow(z, y), rtol=1e-9, atol=0)
    assert_close(gradient(loss, z, y), gradient(slow, z, y), rtol=1e-7, atol=1e-9)


def test_E12_permuting_the_batch_permutes_the_graph():
    H, X = batch(0)[0].exp(), batch(1)[0]
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    assert_close(spread(H[order], X[order]), spread(H, X)[order], rtol=1e-12, atol=1e-14)


def test_E12_float32_parameters_take_embeddings_of_any_precision():
    z, y = batch(0)
    torch.manual_seed(0)
    loss = HIST(4, 4, hidden=6).eval()
    assert loss(z, y).dtype == torch.float64
    assert_close(loss(z, y).float(), loss(z.float(), y), rtol=1e-4, atol=1e-5)
    rates = [group["lr"] for group in loss.param_groups(1e-4)]
    assert rates == pytest.approx([1e-2, 1e-3])
    with pytest.raises(ValueError, match="class labels must be integers"):
        loss(z, y.double())
    with pytest.raises(ValueError, match=r"12 embeddings need class labels \(12,\), got shape \(12, 4\)"):
        loss(z, torch.eye(4)[y])
