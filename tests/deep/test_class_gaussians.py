"""Class Gaussians learned batch by batch, and the two losses that draw from them (D44)."""

import copy

import numpy as np
import pytest
import torch
from scipy.stats import invwishart
from torch.testing import assert_close

from isometry.deep import BUNCA, BUT, ClassGaussians
from tests.deep.batches import batch

KINDS = ["full", "diag", "shared"]


def gaussians(covariance="full", C=4, p=3, **options):
    return ClassGaussians(C, p, covariance=covariance, **options).double()


def data(seed=0, n=60, p=3, c=4):
    """Correlated points of c classes with different means."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(c), rng.integers(0, c, n - c)])
    z = rng.standard_normal((n, p)) @ rng.standard_normal((p, p)) + 5 * rng.standard_normal((c, p))[y]
    return torch.tensor(z), torch.tensor(y)


def slow_scatter(z, y, c):
    """Σ (z − μ)(z − μ)ᵀ of one class, by a loop."""
    rows = [z[i] for i in range(len(z)) if y[i] == c]
    mean = sum(rows) / len(rows)
    return sum((torch.outer(r - mean, r - mean) for r in rows), torch.zeros(z.shape[1], z.shape[1], dtype=z.dtype))


# -- the statistics ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cuts", [[], [30], [1, 2, 7, 40], list(range(1, 60))])
def test_batches_in_any_partition_equal_one_update(kind, cuts):
    """D44 (1)."""
    z, y = data()
    found = gaussians(kind)
    for part, labels in zip(z.tensor_split(cuts), y.tensor_split(cuts)):
        found.update(part, labels)
    scatter = torch.stack([slow_scatter(z, y, c) for c in range(4)])
    expected = {"full": scatter, "diag": scatter.diagonal(dim1=1, dim2=2), "shared": scatter.sum(0, keepdim=True)}
    assert_close(found.count, torch.bincount(y).double(), rtol=0, atol=0)
    assert_close(found.mean, torch.stack([z[y == c].mean(0) for c in range(4)]), rtol=1e-12, atol=1e-12)
    assert_close(found.scatter, expected[kind], rtol=1e-12, atol=1e-11)


def test_statistics_in_single_precision_far_from_the_origin():
    z, y = data()
    found = ClassGaussians(4, 3)
    for part, labels in zip((z + 1000).float().split(7), y.split(7)):
        found.update(part, labels)
    expected = torch.stack([slow_scatter(z, y, c) for c in range(4)])
    assert found.scatter.dtype == torch.float32
    assert_close(found.scatter.double(), expected, rtol=0, atol=2e-4 * float(expected.abs().max()))


@pytest.mark.parametrize("n", [30, 8])
def test_covariance_is_the_mean_of_the_inverse_wishart_posterior(n):
    """D44 (2); p = 3, so the posterior is used from n = 8 on."""
    z, _ = data(1, n)
    found = gaussians(C=1)
    found.update(z, torch.zeros(n, dtype=torch.long))
    scale = slow_scatter(z, torch.zeros(n), 0).numpy()
    draws = invwishart(df=n, scale=scale).rvs(40_000, random_state=0)
    error = draws.std(0) / np.sqrt(len(draws))
    assert (np.abs(found.covariance()[0].numpy() - draws.mean(0)) < 5 * error).all()
    assert_close(found.covariance()[0].numpy(), scale / (n - 4), rtol=1e-12, atol=1e-12)


def test_few_samples_are_shrunk():
    z, _ = data(1, 7)
    y = torch.zeros(7, dtype=torch.long)
    scatter = slow_scatter(z, y, 0)
    expected = 0.5 * scatter / 7 + 0.5 * scatter.trace() / (7 * 3) * torch.eye(3, dtype=torch.float64)
    found = gaussians(C=1)
    found.update(z, y)
    assert_close(found.covariance()[0], expected, rtol=1e-12, atol=1e-12)
    diagonal = gaussians("diag", C=1)
    diagonal.update(z, y)
    assert_close(diagonal.covariance()[0], expected.diagonal(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_covariance_tends_to_that_of_the_sample(kind):
    """D44 (3)."""
    z, _ = data(2, 20_000, c=1)
    found = gaussians(kind, C=1)
    found.update(z, torch.zeros(len(z), dtype=torch.long))
    expected = torch.cov(z.T)
    assert_close(found.covariance()[0], expected.diagonal() if kind == "diag" else expected, rtol=1e-3, atol=1e-3)


def test_sequential_updates_do_not_inflate_the_covariance():
    rng = np.random.default_rng(0)
    found = gaussians(C=1, p=8)
    for _ in range(100):
        found.update(torch.tensor(rng.standard_normal((20, 8))), torch.zeros(20, dtype=torch.long))
    assert abs(float(found.covariance()[0].diagonal().mean()) - 1) < 0.03


@pytest.mark.parametrize("kind", KINDS)
def test_samples_have_the_moments_of_their_class(kind):
    """D44 (4)."""
    z, y = data(3)
    found = gaussians(kind)
    found.update(z, y)
    m = 40_000
    classes = torch.tensor([2, 0]).repeat(m)  # interleaved: each point must come from its own class
    s = found.sample(classes, torch.Generator().manual_seed(0))
    for c in (0, 2):
        S = found.covariance()[c]
        S = torch.diag(S) if kind == "diag" else S
        part = s[classes == c]
        assert ((part.mean(0) - found.mean[c]).abs() < 5 * (S.diagonal() / m).sqrt()).all()
        error = ((S.square() + torch.outer(S.diagonal(), S.diagonal())) / m).sqrt()
        assert ((torch.cov(part.T) - S).abs() < 5 * error).all()


def test_a_singular_covariance_can_be_sampled():
    z, y = data(4, 100, c=1)
    z[:, 2] = z[:, 0]
    found = gaussians(C=1)
    found.update(z, y)
    s = found.sample(torch.zeros(50, dtype=torch.long), torch.Generator().manual_seed(0))
    assert_close(s[:, 2], s[:, 0], rtol=0, atol=0.05)
    assert s.std(0).min() > 0.1


@pytest.mark.parametrize("kind", ["full", "shared"])
def test_old_embeddings_are_forgotten(kind):
    rng = np.random.default_rng(0)
    found, plain = gaussians(kind, C=2, forget=0.5), gaussians(kind, C=2)
    z, y = torch.tensor(rng.standard_normal((10, 3))), torch.arange(10) % 2
    for g in (found, plain):
        g.update(z, y)
        first = {name: value.clone() for name, value in g.named_buffers()}
        g.update(z[:4] + 3, y[:1].expand(4))  # class 0 only
    old = 0.5 * 5
    assert found.count[0] == old + 4 and plain.count[0] == 9
    assert_close(found.mean[0], (old * first["mean"][0] + 4 * (z[:4] + 3).mean(0)) / (old + 4))
    step = first["mean"][0] - (z[:4] + 3).mean(0)
    new = slow_scatter(z[:4], y * 0, 0) + old * 4 / (old + 4) * torch.outer(step, step)
    assert_close(found.scatter[0], 0.5 * first["scatter"][0] + new)
    assert found.count[1] == (5 if kind == "full" else 2.5)  # a shared scatter fades for all
    assert_close(found.mean[1], first["mean"][1])


# -- the losses --------------------------------------------------------------------------------------------------------


def still(loss, means):
    """A loss whose classes have these means, many samples, and no spread."""
    loss.gaussians.mean.copy_(means)
    loss.gaussians.count.fill_(100)
    return loss.double().eval()


def test_without_spread_the_triplet_form_compares_with_class_means():
    """D44 (5)."""
    z, y = batch(0, n=9, p=3)
    means = batch(1, n=4, p=3)[0]
    loss = still(BUT(4, 3, margin=2.0).double(), means)
    terms = [
        max(0.0, float((z[i] - means[y[i]]).square().sum() - (z[i] - means[c]).square().sum()) + 2.0)
        for i in range(9)
        for c in range(4)
        if c != y[i]
    ]
    assert 0 < sum(t > 0 for t in terms) < len(terms)
    assert_close(float(loss(z, y)), sum(terms) / 27, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("denominator", ["all", "negatives"])
def test_without_spread_the_nca_form_is_a_softmax_over_class_means(denominator):
    z, y = batch(0, n=9, p=3)
    means = batch(1, n=4, p=3)[0]
    loss = still(BUNCA(4, 3, denominator).double(), means)
    total = 0.0
    for i in range(9):
        e = torch.exp(-(z[i] - means).square().sum(1))
        below = e.sum() if denominator == "all" else e.sum() - e[y[i]]
        total -= float(torch.log(e[y[i]] / below)) / 9
    assert_close(float(loss(z, y)), total, rtol=1e-10, atol=1e-12)


def slow_loss(form, z, y, gaussians, seed):
    """The loss from the same stream of normal numbers, positives first, point by point."""
    n, J, p = len(z), len(gaussians.count) - 1, z.shape[1]
    generator = torch.Generator().manual_seed(seed)
    noise = [torch.randn(n * J, p, generator=generator, dtype=torch.float64).view(n, J, p) for _ in range(2)]
    S = gaussians.covariance()
    ridge = [1e-6 * s.trace() / p * torch.eye(p, dtype=torch.float64) for s in S]
    L = [torch.linalg.cholesky(s + r) for s, r in zip(S, ridge)]
    total = 0.0
    for i in range(n):
        others = [c for c in range(J + 1) if c != y[i]]
        d_pos = [(z[i] - gaussians.mean[y[i]] - L[y[i]] @ noise[0][i, j]).square().sum() for j in range(J)]
        d_neg = [(z[i] - gaussians.mean[c] - L[c] @ noise[1][i, j]).square().sum() for j, c in enumerate(others)]
        if form is BUT:
            total += sum(max(0.0, float(d_pos[j] - d_neg[j]) + 1.0) for j in range(J)) / (n * J)
        else:
            e = sum(torch.exp(-d) for d in d_neg)
            total += sum(float(-torch.log(torch.exp(-d) / (torch.exp(-d) + e))) for d in d_pos) / (n * J)
    return total


def trained(form, seed=0, **options):
    """A loss that has seen a batch with moderate spread, in eval mode."""
    z, y = data(5, 40)
    loss = form(4, 3, random_state=seed, **options).double()
    loss(0.3 * z, y)
    loss.set_extra_state(torch.empty(0, dtype=torch.uint8))  # begin the stream of numbers again
    return loss.eval()


@pytest.mark.parametrize(("form", "options"), [(BUT, {"margin": 1.0}), (BUNCA, {})])
def test_losses_equal_the_loop(form, options):
    loss, (z, y) = trained(form, 7, **options), batch(3, n=6, p=3)
    assert_close(float(loss(z, y)), slow_loss(form, z, y, loss.gaussians, 7), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("form", "options"), [(BUT, {"margin": 30.0}), (BUNCA, {}), (BUNCA, {"denominator": "negatives"})]
)
def test_gradcheck(form, options):
    """P3: the same points are drawn at each call, so the loss is a function of z."""
    loss, (z, y) = trained(form, **options), batch(3, n=6, p=3)

    def fixed(u):
        loss.set_extra_state(torch.empty(0, dtype=torch.uint8))
        return loss(u, y)

    z.requires_grad_()
    assert torch.autograd.gradcheck(fixed, (z,), eps=1e-6, atol=1e-6)
    (g,) = torch.autograd.grad(fixed(z), z)
    assert g.abs().sum() > 1e-2


def test_the_gradient_goes_through_the_anchors_only():
    """The statistics of the batch are constants, though the batch has just changed them."""
    z, y = data(6, 20)
    z = (0.2 * z).requires_grad_()
    loss = BUNCA(4, 3, random_state=0).double()
    loss(z, y).backward()
    twin = BUNCA(4, 3, random_state=0).double().eval()
    twin.gaussians.update(z.detach(), y)
    constant = z.detach().clone().requires_grad_()
    twin(constant, y).backward()
    assert_close(z.grad, constant.grad, rtol=1e-12, atol=1e-12)


def test_training_updates_the_classes_and_evaluation_does_not():
    z, y = data(6, 20)
    loss = BUT(4, 3, random_state=0)
    loss(z.float(), y)
    assert_close(loss.gaussians.count, torch.bincount(y).float())
    loss.eval()(z.float(), y)
    assert loss.gaussians.count.sum() == 20


def test_classes_not_yet_seen_are_left_out():
    z, y = batch(0, n=12, p=3)
    loss = BUT(9, 3, margin=50.0, random_state=0).double()  # labels 0 … 3 only
    others = loss.other_classes(torch.tensor([1, 3]), torch.tensor([0, 1, 3]))
    assert others.tolist() == [[0, 3], [0, 1]]
    loss(z, y)
    unseen = torch.full((12,), 8)
    value = loss.eval()(z.requires_grad_(), torch.where(y == 0, unseen, y))
    value.backward()
    assert (z.grad[y == 0] == 0).all() and (z.grad[y != 0] != 0).any(1).all()


def test_fewer_samples_meet_different_other_classes():
    loss = BUT(6, 3, n_samples=2, random_state=0)
    y = torch.arange(6).repeat(50)
    others = loss.other_classes(y, torch.arange(6))
    assert others.shape == (300, 2)
    assert (others != y[:, None]).all() and (others[:, 0] != others[:, 1]).all()
    count = torch.stack([(others == c).any(1).float().mean() for c in range(6)])
    assert ((count - 1 / 3).abs() < 0.1).all()


@pytest.mark.parametrize("form", [BUT, BUNCA])
@pytest.mark.parametrize("labels", ["one class", "all different", "single", "empty"])
def test_batches_without_pairs_are_defined(form, labels):
    """P5, P6."""
    z, y = batch(7, n=4, p=3)
    z, y = {"one class": (z, y * 0), "all different": (z, y), "single": (z[:1], y[:1]), "empty": (z[:0], y[:0])}[labels]
    z = z.clone().requires_grad_()
    value = form(4, 3, random_state=0).double()(z, y)
    value.backward()
    assert value.isfinite() and z.grad.isfinite().all()
    if labels != "all different":  # no other class to draw from
        assert value == 0 and (z.grad == 0).all()


@pytest.mark.parametrize("form", [BUT, BUNCA])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_the_float32_loss_of_the_same_numbers(form, dtype):
    """P7."""
    z, y = batch(7, p=3)
    z = z.to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = form(4, 3, random_state=0)(z, y)
    assert_close(value, form(4, 3, random_state=0)(z.float(), y), rtol=0, atol=0)


@pytest.mark.parametrize("form", [BUT, BUNCA])
def test_a_seed_a_copy_and_a_state_give_the_same_draws(form):
    z, y = batch(7, p=3)
    loss, same, other = (form(4, 3, random_state=s).double() for s in (1, 1, 2))
    value = loss(z, y)
    assert value == same(z, y)
    assert value != other(z, y)
    fresh = form(4, 3, random_state=1).double()
    fresh.load_state_dict(loss.state_dict())
    twin = copy.deepcopy(loss)
    second = loss(z, y)
    assert second != value
    assert fresh(z, y) == second == twin(z, y)


def test_bad_input_is_named():
    z, y = batch(7, p=3)
    with pytest.raises(ValueError, match="labels must lie in 0 … 2 for num_classes=3, got 0 … 3"):
        BUT(3, 3)(z, y)
    with pytest.raises(ValueError, match="12 embeddings need labels"):
        BUT(4, 3)(z, y[:-1])
    with pytest.raises(ValueError, match="embedding_size is 5, got embeddings of 3"):
        BUT(4, 5)(z, y)
    z[3, 1] = torch.nan
    with pytest.raises(ValueError, match="z has NaN or infinite values in 1 of 12 rows, first in row 3"):
        BUNCA(4, 3)(z, y)
    with pytest.raises(ValueError, match="forget must lie in"):
        BUT(4, 3, forget=0)
    with pytest.raises(ValueError, match="jitter must be above 0"):
        BUT(4, 3, jitter=0)
    with pytest.raises(ValueError, match="n_samples must be at least 1"):
        BUT(4, 3, n_samples=0)
