"""Losses of columns, E31 to E35, beside their equations written with loops, and the objective that feeds them."""

import copy
import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

from isometry.deep import (
    AnglE,
    Columns,
    CoSENT,
    CosineRegression,
    DeepMetric,
    EmbeddingDistillation,
    GradientCache,
    GuidedRanking,
    InfoNCE,
    LinearMap,
    MarginMSE,
    Matryoshka,
    MegaBatchMargin,
    NCALoss,
    ProxyNCA,
    Ranking,
    ScoreKL,
    SigLIP,
    SupCon,
    Trainer,
    VICReg,
)
from isometry.deep.functional import unit
from isometry.deep.losses.columns import DIRECTIONS, codes
from isometry.deep.losses.scored_pairs import order_slopes
from isometry.deep.objective import on_sphere
from tests.deep.batches import C, batch, close, gradient, mean


def texts(number, n=6):
    return [batch(k, n=n)[0] for k in range(number)]


def cos(u, v):
    return F.cosine_similarity(u, v, 0)


# -- ranking -----------------------------------------------------------------------------------------------------------


def test_E31_toy_values():
    q, d = C[[0, 2]], C[[1, 3]]
    close(Ranking()(q, d), 8.660254)
    close(Ranking(directions=("query_to_doc", "doc_to_query"), partition="each")(q, d), 6.160419)


def test_E31_default_is_a_cross_entropy():
    q, d, h = texts(3)
    scores = 20 * unit(q) @ torch.cat([unit(d), unit(h)]).T
    assert_close(Ranking()(q, d, h), F.cross_entropy(scores, torch.arange(6)), rtol=1e-12, atol=0)
    both = (F.cross_entropy(scores[:, :6], torch.arange(6)) + F.cross_entropy(scores[:, :6].T, torch.arange(6))) / 2
    symmetric = Ranking(directions=("query_to_doc", "doc_to_query"), partition="each")
    assert_close(symmetric(q, d), both, rtol=1e-12, atol=0)


@pytest.mark.parametrize("hardness_on", [None, "all", "in_batch", "hard"])
@pytest.mark.parametrize("partition", ["joint", "each"])
@pytest.mark.parametrize("directions", [DIRECTIONS[:1], DIRECTIONS[:2], (DIRECTIONS[0], DIRECTIONS[2]), DIRECTIONS])
def test_E31_is_its_loop(directions, partition, hardness_on):
    columns, T = texts(3), 0.3

    def slow(q, d, h):
        docs, terms = [*d, *h], []
        for i in range(6):
            logits = {name: [] for name in directions}
            for name in directions:
                anchor = q[i] if name.startswith("query") else d[i]
                others = list(q) if name.endswith("query") else docs
                for j, x in enumerate(others):
                    own = j % 6 == i
                    if own and name in ("query_to_query", "doc_to_doc"):
                        continue
                    s = cos(anchor, x)
                    negative = {"all": not own or j >= 6, "in_batch": not own and j < 6, "hard": j >= 6}
                    more = 5 * s.detach() if hardness_on and negative[hardness_on] else 0
                    logits[name].append(s / T + more)
            each = [torch.stack(v).logsumexp(0) for v in logits.values()]
            log_z = torch.stack(each).logsumexp(0) if partition == "joint" else torch.stack(each).mean()
            terms.append(log_z - cos(q[i], d[i]) / T)
        return torch.stack(terms).mean()

    ours = Ranking(T, directions, partition, 5.0 if hardness_on else 0.0, hardness_on or "all")
    assert_close(ours(*columns), slow(*columns), rtol=1e-10, atol=1e-12)
    for k in range(3):
        assert_close(moved(ours, columns, k), moved(slow, columns, k), rtol=1e-9, atol=1e-11)


def moved(loss, columns, k):
    """The gradient in column k."""
    return gradient(lambda z: loss(*columns[:k], z, *columns[k + 1 :]), columns[k])


def test_E31_rows_that_occur_twice_are_no_negatives():
    q, d = texts(2)
    q, d = torch.cat([q, q[:1], batch(9, n=4)[0][:1]]), torch.cat([d, d[1:2], d[2:3]])  # rows 6 and 7
    loss = Ranking(0.3)
    with pytest.warns(UserWarning, match="5 of 8 rows of a batch have a query or document that others have too"):
        value = loss(q, d)
    S = unit(q) @ unit(d).T / 0.3
    for i, j in [(0, 6), (1, 6), (2, 7)]:
        S[i, j] = S[j, i] = -torch.inf
    assert_close(value, F.cross_entropy(S, torch.arange(8)), rtol=1e-12, atol=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(q, d)  # told once
        close(Ranking()(torch.ones(4, 3), torch.ones(4, 3)), math.log(4))  # all one point is a collapse


def test_equal_rows_have_equal_codes():
    z = torch.randn(50, 7, generator=torch.Generator().manual_seed(0))
    z[10], z[30] = z[3], z[3]
    for x in (z, z.double()):
        same = codes(x)[:, None] == codes(x)
        assert_close(same, (x[:, None] == x).all(2))


def test_E31_hardest_negative():
    q, d, h = texts(3)
    S = unit(q) @ torch.cat([unit(d), unit(h)]).T
    terms = [
        max(0.8 - float(S[i, i]), 0) + max(max(float(S[i, j]) for j in range(12) if j != i) - 0.3, 0) for i in range(6)
    ]
    close(MegaBatchMargin()(q, d, h), mean(terms), 1e-10)


# -- guided ------------------------------------------------------------------------------------------------------------

BLOCKS = ("query_to_doc", "query_to_query", "doc_to_doc")


def test_E32_a_guide_that_trusts_everything_changes_nothing():
    columns = texts(3)
    guide = [torch.eye(6), torch.eye(6), -torch.eye(6)]  # only the positive is similar
    assert_close(GuidedRanking(0.3)(*columns, guide=guide), Ranking(0.3, BLOCKS)(*columns), rtol=1e-12, atol=0)


@pytest.mark.parametrize("relative", [False, True])
def test_E32_leaves_out_what_the_guide_finds_similar(relative):
    columns, guide = texts(3), [batch(k + 5, n=6)[0] for k in range(3)]
    found = GuidedRanking(0.3, 0.1, relative)(*columns, guide=guide)
    (q, d, h), (gq, gd, gh), terms, dropped = columns, guide, [], 0
    for i in range(6):
        g = cos(gq[i], gd[i])
        limit = g - 0.1 * (g.abs() if relative else 1)
        pairs = [(cos(q[i], d[j]), cos(gq[i], gd[j]), j == i) for j in range(6)]
        pairs += [(cos(q[i], h[j]), cos(gq[i], gh[j]), False) for j in range(6)]
        pairs += [(cos(q[i], q[j]), cos(gq[i], gq[j]), False) for j in range(6) if j != i]
        pairs += [
            (cos(d[i], x[j]), cos(gd[i], gx[j]), False) for x, gx in ((d, gd), (h, gh)) for j in range(6) if j != i
        ]
        kept = [s for s, guided, own in pairs if own or guided <= limit]
        dropped += len(pairs) - len(kept)
        terms.append(torch.stack(kept).div(0.3).logsumexp(0) - cos(q[i], d[i]) / 0.3)
    assert dropped > 10
    assert_close(found, torch.stack(terms).mean(), rtol=1e-10, atol=1e-12)


def test_E32_a_guide_of_labels_is_the_loss_with_these_labels():
    """Rows 0 and 3, 1 and 4, 2 and 5 are of a kind: the guide keeps them from being negatives of each other."""
    q, d = texts(2)
    y = torch.arange(6) % 3
    guide = [torch.eye(3)[y] * 1.0, torch.eye(3)[y] * 1.0]
    only = GuidedRanking(0.3, margin=0.5, directions=("query_to_doc",))(q, d, guide=guide)
    known = torch.where(y[:, None] == y, torch.nan, 0.0)
    known.fill_diagonal_(1.0)
    assert_close(only, InfoNCE(0.3)(q, known, d), rtol=1e-10, atol=0)
    with pytest.raises(ValueError, match=r"needs guide embeddings of all 2 columns, 6 rows each, got none"):
        GuidedRanking()(q, d)
    with pytest.raises(ValueError, match=r"6 rows each, got \(5, 3\), \(6, 3\)"):
        GuidedRanking()(q, d, guide=[guide[0][:5], guide[1]])


# -- pairs with a score ------------------------------------------------------------------------------------------------


def matrix_form(s, y):
    pairs = [s[i] - s[j] for i in range(len(y)) for j in range(len(y)) if y[i] < y[j]]
    return torch.stack([s.new_zeros(()), *pairs]).logsumexp(0) if pairs else 0 * s.sum()


def test_E33_toy_value():
    s, y = torch.tensor([0.9, 0.1, 0.5, 0.3]).double(), torch.tensor([0.0, 1, 0.5, 0.5]).double()
    order = y.argsort()
    close(order_slopes(20 * s[order], y[order])[0], 16.018815)


@pytest.mark.parametrize(
    "scores", [[0, 1, 0.5, 0.5, 0.2, 0.9], [1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 0], [5, 4, 3, 2, 1, 0]]
)
@pytest.mark.parametrize("kind", [CoSENT, AnglE])
def test_E33_is_its_matrix_form(kind, scores):
    (a, b), y = texts(2), torch.tensor(scores).double()

    def slow(a, b):
        if kind is CoSENT:
            return matrix_form(20 * F.cosine_similarity(a, b), y)
        x, (u, v) = unit(a), unit(b).chunk(2, 1)
        return matrix_form(20 * (x * (unit(b) + torch.cat([-v, u], 1))).sum(1).abs(), y)

    loss = kind()
    assert_close(loss(a, b, target=y), slow(a, b), rtol=1e-10, atol=1e-12)
    for k in range(2):
        found = moved(lambda a, b: loss(a, b, target=y), (a, b), k)
        assert_close(found, moved(slow, (a, b), k), rtol=1e-9, atol=1e-11)


def test_E33_special_cases():
    a = C.repeat(2, 1)
    ordered = torch.stack([torch.cos(torch.arange(8) / 9), torch.sin(torch.arange(8) / 9)], 1).double()
    first = torch.tensor([[1.0, 0.0]]).double().expand(8, 2)
    close(CoSENT(1e4)(first, ordered, target=-torch.arange(8)), 0.0)
    assert float(CoSENT(1e4)(first, ordered, target=torch.arange(8))) > 100
    turned = torch.stack([a[:, 0] - a[:, 1], a[:, 0] + a[:, 1]], 1) / 2**0.5
    s = AnglE().similarity
    assert_close(s(a, a), torch.ones(8).double())
    assert_close(s(a, -a), torch.ones(8).double())
    assert_close(torch.maximum(s(a, turned), s(turned, a)), torch.full((8,), 2**0.5).double())
    odd, even = texts(2)[0][:, :3], F.pad(texts(2)[0][:, :3], (0, 1))
    assert_close(s(odd, odd.flip(0)), s(even, even.flip(0)))


def test_E33_many_pairs_need_no_matrix():
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(200_000, generator=draw).double().requires_grad_(), torch.rand(200_000, generator=draw).double()
    value, slope = order_slopes(x.detach(), y.sort().values)
    assert value.isfinite() and slope.isfinite().all() and abs(float(slope.sum())) < 1e-8


def test_E33_regression():
    (a, b), y = texts(2), torch.tensor([0, 5, 2, 1, 3, 4.0])
    expected = (F.cosine_similarity(a, b) - y.double() / 5).square().mean()
    assert_close(CosineRegression((0, 5))(a, b, target=y), expected, rtol=1e-10, atol=0)
    with pytest.warns(UserWarning, match="scores up to 5 are no cosines; give score_range"):
        CosineRegression()(a, b, target=y)
    with pytest.raises(ValueError, match="one score for each row"):
        CoSENT()(a, b, target=y[:, None])


# -- teachers ----------------------------------------------------------------------------------------------------------


def test_E34_margins():
    q, d, h, k = texts(4)
    scores = torch.stack([(q * x).sum(1) for x in (d, h, k)], 1)
    teacher = batch(8, n=6)[0][:, :3]
    loss = MarginMSE()
    expected = [
        float((scores[i, 0] - scores[i, j] - teacher[i, 0] + teacher[i, j]) ** 2) for i in range(6) for j in (1, 2)
    ]
    close(loss(q, d, h, k, target=teacher), mean(expected), 1e-10)
    close(loss(q, d, h, k, target=teacher + 7), mean(expected), 1e-10)
    close(loss(q, d, h, k, target=teacher[:, :1] - teacher[:, 1:]), mean(expected), 1e-10)
    close(loss(q, d, h, k, target=scores), 0.0)
    one = loss(q, d, h, target=teacher[:, 0] - teacher[:, 1])
    assert_close(one, loss(q, d, h, target=teacher[:, :2]), rtol=1e-12, atol=0)
    with pytest.raises(ValueError, match=r"must be scores \(6, 3\) or margins \(6, 2\), got \(6, 4\)"):
        loss(q, d, h, k, target=batch(8, n=6)[0])


def test_E34_distributions():
    q, d, h, k = texts(4)
    s = torch.stack([F.cosine_similarity(q, x) for x in (d, h, k)], 1)
    t = batch(8, n=6)[0][:, :3]
    loss = ScoreKL(0.5, 2.0, "cosine")
    p, log_s = (t / 2).softmax(1), (s / 0.5).log_softmax(1)
    crossed, entropy = -(p * log_s).sum(1).mean(), -(p * p.log()).sum(1).mean()
    assert_close(loss(q, d, h, k, target=t), 0.25 * (crossed - entropy), rtol=1e-10, atol=0)
    close(ScoreKL(similarity="cosine")(q, d, h, k, target=s), 0.0)
    with pytest.raises(ValueError, match="ScoreKL takes 3 or more columns, got 2"):
        loss(q, d, target=t[:, :1])
    with pytest.raises(ValueError, match=r"teacher's scores \(6, 3\), got \(6, 2\)"):
        loss(q, d, h, k, target=t[:, :2])


def test_E34_embeddings():
    z, t = texts(2)
    close(EmbeddingDistillation()(z, target=3 * z), 0.0)
    assert_close(EmbeddingDistillation()(z, target=t), 1 - F.cosine_similarity(z, t).mean(), rtol=1e-10, atol=0)
    assert_close(EmbeddingDistillation("mse")(z, target=t), F.mse_loss(z, t), rtol=1e-12, atol=0)
    loss = EmbeddingDistillation(projection=(4, 2)).double()
    assert len(loss.param_groups(1e-3)) == 1
    expected = 1 - F.cosine_similarity(z @ loss.map.weight.T, t[:, :2]).mean()
    assert_close(loss(z, target=t[:, :2]), expected, rtol=1e-10, atol=0)
    with pytest.raises(ValueError, match=r"must be \(6, 4\), got \(6, 2\); .*projection=\(4, 2\)"):
        EmbeddingDistillation()(z, target=t[:, :2])


# -- the objective -----------------------------------------------------------------------------------------------------


def network(p=5):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, p)).double()


OBJECTIVES = {
    "Ranking": (Ranking, 3, {}),
    "VICReg": (VICReg, 2, {}),
    "CoSENT": (CoSENT, 2, {"score": torch.arange(6).double()}),
    "ScoreKL": (ScoreKL, 3, {"labels": batch(8, n=6)[0][:, :2]}),
    "EmbeddingDistillation": (EmbeddingDistillation, 1, {"target": batch(8, n=6, p=5)[0]}),
    "GuidedRanking": (GuidedRanking, 2, {"guide": [batch(8, n=6)[0], batch(9, n=6)[0]]}),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_columns_are_encoded_and_compared(name):
    kind, number, more = OBJECTIVES[name]
    net, xs = network(), texts(number)
    given = {"guide" if k == "guide" else "target": v for k, v in more.items()}
    expected = kind()(*(net(x) for x in xs), **given)
    named = {f"column {k}": x for k, x in enumerate(xs)} | more
    for objective in (Columns(kind()), Columns(kind(), separate_forward=True), GradientCache(Columns(kind()), 4)):
        for data in ((*xs, *more.values()), named):
            net.zero_grad()
            value = objective(net, data)
            assert_close(value, expected, rtol=1e-10, atol=1e-12)
            value.backward()
            found = [p.grad.clone() for p in net.parameters()]
            net.zero_grad()
            kind()(*(net(x) for x in xs), **given).backward()
            assert_close(found, [p.grad for p in net.parameters()], rtol=1e-9, atol=1e-11)


class Tokens(nn.Module):
    """A network of dictionaries, as of a tokeniser: the mean of embeddings under a mask."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 4)

    def forward(self, batch):
        mask = batch["attention_mask"][:, :, None]
        return (self.table(batch["input_ids"]) * mask).sum(1) / mask.sum(1)


@pytest.mark.parametrize("lengths", [(7, 7), (7, 5)])
def test_columns_of_dictionaries(lengths):
    torch.manual_seed(0)
    net = Tokens()
    columns = [
        {"input_ids": torch.randint(20, (6, n)), "attention_mask": (torch.rand(6, n) > 0.2).float().clamp_min(0.1)}
        for n in lengths
    ]
    expected = Ranking()(*(net(x) for x in columns))
    expected.backward()
    slope = net.table.weight.grad.clone()
    for objective in (Columns(), GradientCache(Columns(), 4)):
        net.zero_grad()
        value = objective(net, {"query": columns[0], "doc": columns[1]})
        value.backward()
        assert_close((value, net.table.weight.grad), (expected, slope), rtol=1e-5, atol=1e-6)


def test_losses_of_labels_take_columns():
    net, (q, d, h) = network(), texts(3)
    zq, zd, zh = net(q), net(d), net(h)
    scores = unit(zq) @ torch.cat([unit(zd), unit(zh)]).T / 0.07
    assert_close(Columns(InfoNCE())(net, (q, d, h)), F.cross_entropy(scores, torch.arange(6)), rtol=1e-10, atol=0)
    loss = SigLIP(bias=-10.0).double()
    x = 10 * unit(zq) @ unit(zd).T - 10
    expected = F.softplus(-x * (2 * torch.eye(6) - 1)).sum() / 6
    assert_close(Columns(loss)(net, (q, d)), expected, rtol=1e-6, atol=0)
    assert {id(p) for g in Columns(loss).param_groups(1e-3) for p in g["params"]} == {id(p) for p in loss.parameters()}
    with pytest.raises(TypeError, match="Linear has no form for columns"):
        Columns(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="a batch must have one column of label, labels"):
        Columns(CoSENT())(net, {"a": q, "b": d})
    with pytest.raises(ValueError, match="a tuple or a dictionary of columns, got one tensor"):
        Columns()(net, q)


def test_a_network_learns_which_rows_belong_together():
    """Documents are rotated queries: half the network's work is to rotate back, which Ranking finds."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(256, 8, generator=draw)
    side = torch.cat([x, torch.zeros(256, 8)], 1), torch.cat([torch.zeros(256, 8), x[:, torch.randperm(8)]], 1)
    loader = DataLoader(TensorDataset(*side), 64, shuffle=True, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    model = LinearMap(16, 8)
    trainer = Trainer(model, Columns(Ranking()), lr=1e-2, max_epochs=15, random_state=0, monitor="loss")
    trainer.fit(loader)
    with torch.no_grad():
        q, d = (unit(model(s)) for s in side)
    assert ((q @ d.T).argmax(1) == torch.arange(256)).float().mean() > 0.9
    assert trainer.history["active"][-1] > 0


def test_a_loss_of_columns_is_refused_where_labels_are_given():
    with pytest.raises(ValueError, match="Ranking is a pair loss; a loss is expected"):
        DeepMetric(loss="Ranking").fit(batch(0)[0].numpy(), [0, 1] * 6)


def test_a_trainer_knows_whether_only_directions_count():
    angles = (
        Ranking(),
        GuidedRanking(),
        MegaBatchMargin(),
        CoSENT(),
        AnglE(),
        CosineRegression(),
        EmbeddingDistillation(),
    )
    assert all(on_sphere(Columns(loss)) for loss in (*angles, ScoreKL(similarity="cosine"), Matryoshka(Ranking())))
    assert not any(on_sphere(Columns(loss)) for loss in (VICReg(), MarginMSE(), EmbeddingDistillation("mse")))


# -- Matryoshka --------------------------------------------------------------------------------------------------------


def test_E35_is_the_mean_over_prefixes():
    z, y = batch(0)
    loss = Matryoshka(SupCon(), (2, 4))
    assert_close(loss(z, y), (SupCon()(z, y) + SupCon()(z[:, :2], y)) / 2, rtol=1e-12, atol=0)
    assert_close(Matryoshka(SupCon(), (4,))(z, y), SupCon()(z, y), rtol=1e-12, atol=0)
    halves = [SupCon()(z[:, :m], y) for m in (4, 2, 1, 1)]
    assert_close(Matryoshka()(z, y), sum(halves) / 4, rtol=1e-12, atol=0)
    weighted = Matryoshka(NCALoss(), (1, 4), (0.5, 2.0), "sum")
    assert_close(weighted(z, y), 0.5 * NCALoss()(z[:, :1], y) + 2 * NCALoss()(z, y), rtol=1e-12, atol=0)
    refs = z[:5], y[:5]
    assert_close(loss(z, y, *refs), (SupCon()(z, y, *refs) + SupCon()(z[:, :2], y, refs[0][:, :2], y[:5])) / 2)
    assert_close(loss(z, y, refs=refs[0], ref_y=refs[1]), loss(z, y, *refs), rtol=1e-12, atol=0)


def test_E35_proxies_are_cut_too():
    z, y = batch(0)
    torch.manual_seed(0)
    inner = ProxyNCA(4, 4).double()
    loss, cut = Matryoshka(inner, (2, 4)), ProxyNCA(4, 2).double()
    cut.proxies.data = inner.proxies.data[:, :2].clone()
    assert_close(loss(z, y), (inner(z, y) + cut(z[:, :2], y)) / 2, rtol=1e-10, atol=0)
    loss(z, y).backward()
    assert (inner.proxies.grad[:, 2:] != 0).any() and len(loss.param_groups(1e-3)) == 1


def test_E35_of_columns():
    columns, net = texts(3), network(4)
    loss = Matryoshka(Ranking(), (2, 4))
    cut = [z[:, :2] for z in columns]
    assert_close(loss(*columns), (Ranking()(*columns) + Ranking()(*cut)) / 2, rtol=1e-12, atol=0)
    for inner in (Ranking(), InfoNCE()):
        wrapped = Columns(Matryoshka(inner, (2, 4)))(net, columns)
        plain = [Columns(inner)(part, columns) for part in (net, First(net, 2))]
        assert_close(wrapped, (plain[0] + plain[1]) / 2, rtol=1e-10, atol=0)
    y = torch.arange(6).double()
    assert Columns(Matryoshka(CoSENT(), (2, 4)))(net, (*columns[:2], y)).isfinite()


class First(nn.Module):
    """The first coordinates of what a network gives."""

    def __init__(self, net, m):
        super().__init__()
        self.net, self.m = net, m

    def forward(self, x):
        return self.net(x)[:, : self.m]


def test_E35_some_widths_at_a_step():
    z, y = batch(0)
    loss = Matryoshka(SupCon(), (1, 2, 4), sizes_per_step=1, random_state=0)
    each = {round(float(SupCon()(z[:, :m], y)), 9): m for m in (1, 2, 4)}
    drawn = [each[round(float(loss(z, y)), 9)] for _ in range(30)]
    assert set(drawn) == {1, 2, 4}
    twin = copy.deepcopy(loss)
    twin.load_state_dict(loss.state_dict())
    assert [float(loss(z, y)) for _ in range(5)] == [float(twin(z, y)) for _ in range(5)]
    everything = Matryoshka(SupCon(), (1, 2, 4))(z, y)
    assert_close(loss.eval()(z, y), everything, rtol=1e-12, atol=0)


def test_E35_bad_sizes_are_named():
    z, y = batch(0)
    with pytest.raises(ValueError, match=r"sizes \(2, 8\) go beyond the embeddings, which have 4 dimensions"):
        Matryoshka(SupCon(), (2, 8))(z, y)
    with pytest.raises(ValueError, match="sizes must be one or more numbers from 1 on"):
        Matryoshka(SupCon(), (0, 4))
    with pytest.raises(ValueError, match="2 sizes need as many weights, got 1"):
        Matryoshka(SupCon(), (2, 4), (1.0,))
    with pytest.raises(ValueError, match="sizes_per_step must lie in 1 … 2, got 3"):
        Matryoshka(SupCon(), (2, 4), sizes_per_step=3)
    loss = Matryoshka(SupCon(), (2, 3))
    with pytest.warns(UserWarning, match=r"sizes \(2, 3\) do not hold the full width 4"):
        loss(z, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(z, y)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Ranking(0), "temperature=0 must be positive"),
        (lambda: Ranking(directions=("query_to_query",)), "directions must hold 'query_to_doc', where the positive is"),
        (lambda: Ranking(directions=("query_to_doc", "x")), "directions"),
        (lambda: CoSENT(-1), "scale=-1 must be positive"),
        (lambda: ScoreKL(0), "temperature=0 must be positive"),
        (lambda: CosineRegression((1, 1)), r"score_range must be \(low, high\)"),
    ],
)
def test_bad_parameters_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
