"""Proof tests of the autoencoders, D01 to D06, and of the embedding below a classifier's head, D07."""

from __future__ import annotations

import copy
import math
import os
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.testing import assert_allclose
from scipy.linalg import subspace_angles
from sklearn.decomposition import PCA
from torch import nn
from torch.testing import assert_close

from isometry.deep import (
    MLP,
    MSE,
    AdversarialReconstruction,
    Autoencoder,
    CodePenalty,
    Contractive,
    ConvNet,
    CrossEntropy,
    DeepMetric,
    GaussianNoise,
    Huber,
    LinearAutoencoder,
    MaskingNoise,
    Reconstruction,
    SaltPepperNoise,
    SparseCode,
    Trainer,
    VariationalAutoencoder,
    VariationalReconstruction,
    WeightPenalty,
    mlp_autoencoder,
    mlp_variational,
)
from isometry.deep.objectives.reconstruction import PENALTIES, draw_rows, squared_products
from isometry.deep.objectives.variational import kl_to_standard_normal
from isometry.registry import get
from tests.deep.processes import results_of_two

torch.set_num_threads(1)


def samples(seed=0, n=12, d=5):
    return torch.tensor(np.random.default_rng(seed).standard_normal((n, d)))


def network(d=5, p=3, hidden=(6,), seed=0, **params):
    torch.manual_seed(seed)
    return mlp_autoencoder(d, p, hidden, **params).double()


def gradients(value, model):
    return torch.autograd.grad(value, list(model.parameters()), retain_graph=True)


def same(a, b):
    """Bit for bit."""
    return all(torch.equal(u, v) for u, v in zip(a, b, strict=True))


def minimise(objective, model, x, steps=300):
    """The minimum, by L-BFGS on all samples at once."""
    optimizer = torch.optim.LBFGS(
        model.parameters(),
        max_iter=steps,
        history_size=30,
        tolerance_grad=1e-11,
        tolerance_change=1e-16,
        line_search_fn="strong_wolfe",
    )

    def closure():
        optimizer.zero_grad()
        value = objective(model, x)
        value.backward()
        return value

    optimizer.step(closure)
    return objective(model, x).item()


# -- D01: reconstruction -----------------------------------------------------------------------------------------------


@torch.no_grad()
def slow_reconstruction(model, x, error):
    """The equation with loops."""
    total = 0.0
    for row in x:
        output = model.decode(model(row[None]))[0]
        total += sum(float(error(o, t)) for o, t in zip(output, row))
    return total / len(x)


SLOW = {
    "sq": lambda o, t: (o - t) ** 2,
    "l1": lambda o, t: abs(o - t),
    "bce": lambda o, t: -(t * F.logsigmoid(o) + (1 - t) * F.logsigmoid(-o)),
}


@pytest.mark.parametrize("fidelity", SLOW)
def test_D01_value_by_loops(fidelity):
    model, x = network(), samples().sigmoid()
    assert Reconstruction(fidelity)(model, x).item() == pytest.approx(
        slow_reconstruction(model, x, SLOW[fidelity]), rel=1e-12
    )


@pytest.mark.filterwarnings("ignore:a code of 5 numbers")
def test_D01_1_identity_costs_nothing():
    """D01 (1)."""
    model = network(5, 5, ())
    with torch.no_grad():
        for layer in (model.encoder[0], model.decoder[0]):
            layer.weight.copy_(torch.eye(5))
            layer.bias.zero_()
    value = Reconstruction()(model, samples())
    assert value.item() == 0
    assert all((g == 0).all() for g in gradients(value, model))


def test_D01_2_a_constant_code_leaves_the_total_variance():
    """D01 (2)."""
    x, model = samples(), network(hidden=())
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
        model.decoder[0].bias.copy_(x.mean(0))
    assert_close(Reconstruction()(model, x), x.var(0, correction=0).sum())


def test_D01_3_chunks_weighted_by_their_sizes_make_the_batch():
    """D01 (3)."""
    x, model, objective = samples(n=12), network(), Reconstruction()
    parts = 5 / 12 * objective(model, x[:5]) + 7 / 12 * objective(model, x[5:])
    assert_close(parts, objective(model, x))


@pytest.mark.parametrize("hidden", [(), (6,), (7, 6)])
def test_D01_4_the_gradient_of_tied_weights_is_the_sum_of_the_untied(hidden):
    """D01 (4)."""
    x = samples()
    tied, free = network(hidden=hidden, tied=True, activation="tanh"), network(hidden=hidden, activation="tanh")
    encoder = [m for m in free.encoder if isinstance(m, nn.Linear)]
    decoder = [m for m in free.decoder if isinstance(m, nn.Linear)]
    free.encoder.load_state_dict(tied.encoder.state_dict())
    with torch.no_grad():
        for bias in tied.decoder.biases:
            bias.normal_(generator=torch.Generator().manual_seed(1))
        for own, layer, bias in zip(decoder, reversed(encoder), tied.decoder.biases, strict=True):
            own.weight.copy_(layer.weight.T)
            own.bias.copy_(bias)
    values = [Reconstruction()(model, x) for model in (tied, free)]
    assert_close(*values)
    values[0].backward()
    values[1].backward()
    shared = [m for m in tied.encoder if isinstance(m, nn.Linear)]
    for mine, down, up in zip(shared, encoder, reversed(decoder), strict=True):
        assert down.weight.grad.abs().max() > 1e-3 and up.weight.grad.abs().max() > 1e-3
        assert_close(mine.weight.grad, down.weight.grad + up.weight.grad.T)
        assert_close(mine.bias.grad, down.bias.grad)
    for bias, up in zip(tied.decoder.biases, decoder, strict=True):
        assert_close(bias.grad, up.bias.grad)


def test_tied_weights_are_one_parameter_and_survive_copy_and_training():
    tied = network(tied=True)
    assert sum(p.numel() for p in tied.parameters()) == 5 * 6 + 6 * 3 + (6 + 3) + (6 + 5)
    other, code = copy.deepcopy(tied), samples(1, d=3)
    Trainer(other, Reconstruction(), max_epochs=1, classes_per_batch=1).fit(samples(n=16))
    assert not torch.equal(other.decode(code), tied.decode(code))
    with torch.no_grad():
        for p, q in zip(other.parameters(), tied.parameters(), strict=True):
            p.copy_(q)
    assert torch.equal(other.decode(code), tied.decode(code))


def test_a_code_that_can_copy_is_warned_of_once():
    for p in (5, 7):
        objective, model = Reconstruction(), network(5, p)
        with pytest.warns(UserWarning, match=f"a code of {p} numbers can copy samples of 5 features"):
            objective(model, samples())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            objective(model, samples())
            Reconstruction(penalty="weights_l2")(model, samples())
            Reconstruction(noise="gaussian")(model, samples())
            Reconstruction()(network(5, 4), samples())


def test_images_and_labels():
    torch.manual_seed(0)
    model, x = Autoencoder(ConvNet((1, 6, 6), 4, width=8), MLP(4, 36)), torch.randn(3, 1, 6, 6)
    value = Reconstruction()(model, x)
    assert_close(value, (model.decode(model(x)) - x.flatten(1)).square().sum(1).mean())
    assert torch.equal(Reconstruction()(model, (x, torch.tensor([0, 1, 1]))), value)


def test_errors_say_what_is_wrong():
    x = samples()
    with pytest.raises(TypeError, match=r"model with decode\(z\), and MLP has none; build it as Autoencoder"):
        Reconstruction()(MLP(5, 3).double(), x)
    with pytest.raises(ValueError, match="the decoder gave 4 features for 12 samples; 12 samples of 5 were"):
        Reconstruction()(Autoencoder(nn.Linear(5, 2).double(), nn.Linear(2, 4).double()), x)
    with pytest.raises(ValueError, match=r"samples in \[0, 1\]"):
        Reconstruction("bce")(network(), x)
    with pytest.raises(ValueError, match="fidelity"):
        Reconstruction("mse")
    with pytest.raises(ValueError, match="penalty"):
        Reconstruction(penalty="l2")
    with pytest.raises(ValueError, match="norm"):
        WeightPenalty("frobenius")
    with pytest.raises(ValueError, match="activation"):
        mlp_autoencoder(5, 3, activation="swish")
    with pytest.raises(ValueError, match="code"):
        mlp_autoencoder(5, 3, code="softmax")


def test_half_precision_is_raised():
    torch.manual_seed(0)
    x = torch.randn(8, 5)
    objectives = {
        Reconstruction(penalty=Contractive(1.0)): mlp_autoencoder(5, 3, (6,)),
        VariationalReconstruction().eval(): mlp_variational(5, 3, (6,)),
        AdversarialReconstruction(3, (4,), prior=torch.zeros): mlp_autoencoder(5, 3, (6,)),
    }
    for objective, model in objectives.items():
        full = objective(model, x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            half = objective(model, x)
        assert half.dtype == torch.float32
        assert_close(half, full, rtol=0.03, atol=0)
        half.backward()
        assert all(p.grad.isfinite().all() for p in model.parameters())


# -- D02: penalties ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PENALTIES)
def test_D02_1_no_weight_no_penalty(name):
    """D02 (1): bit for bit, and the gradient too."""
    x, model = samples(), network(code="sigmoid")
    penalty = type(PENALTIES[name])(**{**vars(PENALTIES[name]), "weight": 0.0})
    plain, with_zero = Reconstruction()(model, x), Reconstruction(penalty=penalty)(model, x)
    assert torch.equal(plain, with_zero)
    assert same(gradients(plain, model), gradients(with_zero, model))


@torch.no_grad()
def slow_penalty(name, model, x):
    """Each Ω of the model with loops."""
    z = model(x)
    if name.startswith("weights"):
        entries = [float(w) for m in model.modules() if isinstance(m, nn.Linear) for w in m.weight.flatten()]
        return sum(abs(w) if name == "weights_l1" else w * w / 2 for w in entries)
    if name == "code_kl":
        rates = [sum(float(z[i, j]) for i in range(len(z))) / len(z) for j in range(z.shape[1])]
        return sum(0.05 * math.log(0.05 / r) + 0.95 * math.log(0.95 / (1 - r)) for r in rates)
    if name == "contractive":
        jacobians = [torch.autograd.functional.jacobian(lambda u: model(u[None])[0], row) for row in x]
        return sum(float((J**2).sum()) for J in jacobians) / len(x)
    return sum(abs(float(h)) if name == "code_l1" else float(h) ** 2 for h in z.flatten()) / len(z)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("name", PENALTIES)
def test_D02_penalties_by_loops(name, activation):
    x, model = samples(), network(code="sigmoid", activation=activation)
    penalty = PENALTIES[name]
    added = Reconstruction(penalty=name)(model, x) - Reconstruction()(model, x)
    assert added.item() == pytest.approx(penalty.weight * slow_penalty(name, model, x), rel=1e-7)
    expected = {"weights_l2": 1e-4, "weights_l1": 1e-4, "contractive": 1e-4}
    assert penalty.weight == expected.get(name, 1e-3)


@pytest.mark.parametrize("name", PENALTIES)
def test_D02_gradients_are_those_of_the_value(name):
    """Finite differences along a random direction of all parameters; those of the Jacobian are second derivatives."""
    x, model = samples(), network(code="sigmoid", activation="tanh")
    penalty = type(PENALTIES[name])(**{**vars(PENALTIES[name]), "weight": 1.0})

    def value():
        return penalty(model, x.requires_grad_(), model(x))

    torch.manual_seed(1)
    step = [1e-5 * torch.randn_like(p) for p in model.parameters()]
    used = torch.autograd.grad(value(), list(model.parameters()), allow_unused=True)
    slope = sum(float((g * s).sum()) for g, s in zip(used, step, strict=True) if g is not None)
    ends = []
    for sign in (1, -2):
        with torch.no_grad():
            for p, s in zip(model.parameters(), step, strict=True):
                p += sign * s
        ends.append(value().item())
    assert abs(slope) > 1e-9
    assert slope == pytest.approx((ends[0] - ends[1]) / 2, rel=1e-5)


@pytest.mark.parametrize("hidden", [(), (6,)])
def test_D02_2_contraction_in_closed_form_equals_the_jacobian(hidden):
    """D02 (2): one sigmoid layer goes by the formula, more go by products; both are jacrev's value."""
    x, model = samples(), network(hidden=hidden, code="sigmoid")
    J = torch.func.vmap(torch.func.jacrev(lambda u: model(u)))(x)  # (B, p, d)
    x.requires_grad_()
    assert_close(Contractive(2.0)(model, x, model(x)), 2 * J.square().sum((1, 2)).mean())
    if not hidden:
        W, h = model.encoder[0].weight, model(x)
        formula = ((h * (1 - h)) ** 2 * W.square().sum(1)).sum(1).mean()
        assert_close(Contractive(1.0)(model, x.detach(), h), formula)  # no derivative is asked for


def test_D02_3_hutchinson(monkeypatch):
    """D02 (3): basis vectors as probes give the exact value; random ones give it on average."""
    x, model = samples().requires_grad_(), network()
    exact = Contractive(1.0)(model, x, model(x)).detach()
    basis = torch.eye(3, dtype=torch.float64)[:, None].expand(3, 12, 3)
    assert_close(squared_products(x, model(x), basis).sum(0).mean().detach(), exact)
    monkeypatch.setattr(torch, "randn", lambda shape, **_: math.sqrt(3) * basis.transpose(0, 1))
    assert_close(Contractive(1.0, probes=3)(model, x, model(x)).detach(), exact)
    monkeypatch.undo()
    torch.manual_seed(0)
    draws = torch.tensor([Contractive(1.0, probes=2)(model, x, model(x)).item() for _ in range(400)])
    assert draws.std() > 0.01 * exact
    assert abs(draws.mean() - exact) < 3 * draws.std() / math.sqrt(len(draws))


def test_D02_4_sparse_code_is_zero_at_its_rate_only():
    """D02 (4)."""
    penalty, torch_seed = SparseCode(0.2, weight=1.0), torch.Generator().manual_seed(0)
    z = torch.rand(10, 3, generator=torch_seed, dtype=torch.float64)
    at_rate = z * 0.2 / z.mean(0)
    assert abs(float(penalty(None, None, at_rate))) < 1e-12
    for factor in (0.9, 1.1):
        off = at_rate.clone()
        off[:, 1] *= factor
        r = 0.2 * factor
        kl = 0.2 * math.log(0.2 / r) + 0.8 * math.log(0.8 / (1 - r))
        assert float(penalty(None, None, off)) == pytest.approx(kl) and kl > 1e-3
    assert float(penalty(None, None, torch.zeros(4, 3))) < 3 * 0.2 * math.log(0.2 / 1e-6)  # finite
    with pytest.raises(ValueError, match=r"codes in \(0, 1\); build the encoder with code='sigmoid'"):
        penalty(None, None, z - 0.5)


def test_sparse_codes_become_sparse():
    """With ReLU codes, a stronger penalty leaves fewer units on."""
    x = samples(n=64, d=8).float()
    on = []
    for weight in (0.0, 0.5):
        torch.manual_seed(0)
        model = mlp_autoencoder(8, 16, (), code="relu")
        objective = Reconstruction(penalty=CodePenalty("l1", weight))
        trainer = Trainer(model, objective, lr=0.01, max_epochs=60, classes_per_batch=4).fit(x)
        on.append(float((trainer.embed(x) > 0).float().mean()))
    assert on[0] > 0.3 and on[1] < 0.6 * on[0]


# -- D03: denoising ----------------------------------------------------------------------------------------------------


def test_D03_1_no_noise_is_the_plain_objective():
    """D03 (1)."""
    x, model = samples(), network()
    for noise in (GaussianNoise(0.0), MaskingNoise(0.0), SaltPepperNoise(0.0)):
        assert torch.equal(Reconstruction(noise=noise)(model, x), Reconstruction()(model, x))


def test_D03_2_the_optimal_linear_map_shrinks():
    """D03 (2): Σ(Σ + σ²I)⁻¹ for Gaussian data, here with as many draws of noise as a least-squares fit needs."""
    torch.manual_seed(0)
    n, variances, sigma = 40000, torch.tensor([4.0, 1.0, 0.25], dtype=torch.float64), 0.7
    x = torch.randn(n, 3, dtype=torch.float64)
    x = (x - x.mean(0)) @ torch.linalg.inv(torch.linalg.cholesky(torch.cov(x.T, correction=0)).T) * variances.sqrt()
    noisy, corrupted = GaussianNoise(sigma)(x)
    assert corrupted.all()
    model = LinearAutoencoder(3, 3, bias=False).double()
    cost = minimise(Reconstruction(noise=lambda _: (noisy, corrupted)), model, x, steps=60)
    product = (model.decoder.weight @ model.encoder.weight).detach()
    shrinkage = variances / (variances + sigma**2)
    assert_close(shrinkage, torch.tensor([0.891, 0.671, 0.338], dtype=torch.float64), rtol=0, atol=1e-3)
    assert_close(product, torch.diag(shrinkage), rtol=0, atol=0.02)
    assert cost == pytest.approx(float((variances * sigma**2 / (variances + sigma**2)).sum()), rel=0.02)


def test_D03_3_no_noise_in_eval_mode():
    """D03 (3)."""
    x, model, objective = samples(), network(), Reconstruction(noise="gaussian")
    torch.manual_seed(0)
    first, second = objective(model, x), objective(model, x)
    assert not torch.equal(first, second)
    torch.manual_seed(0)
    assert torch.equal(objective(model, x), first)
    objective.eval()
    assert torch.equal(objective(model, x), Reconstruction()(model, x))


@pytest.mark.parametrize("nu", [0.1, 0.25, 0.6])
def test_D03_4_rates_of_corruption(nu):
    """D03 (4): within three standard errors; which value a corrupted feature takes, too."""
    torch.manual_seed(0)
    x = samples(n=200, d=50) + 10
    error = 3 * math.sqrt(nu * (1 - nu) / x.numel())
    masked, corrupted = MaskingNoise(nu)(x)
    assert abs(corrupted.double().mean() - nu) < error
    assert (masked[corrupted] == 0).all() and torch.equal(masked[~corrupted], x[~corrupted])
    speckled, corrupted = SaltPepperNoise(nu, low=-1, high=2)(x)
    assert torch.equal(speckled[~corrupted], x[~corrupted]) and abs(corrupted.double().mean() - nu) < error
    low = (speckled == -1).double().mean()
    assert ((speckled == -1) | (speckled == 2))[corrupted].all() and abs(low - nu / 2) < error
    noise = (GaussianNoise(0.3)(x)[0] - x).flatten()
    assert abs(noise.mean()) < 3 * 0.3 / 100 and abs(noise.std() - 0.3) < 3 * 0.3 / math.sqrt(2e4)


def test_D03_the_target_is_clean_and_emphasis_weighs_features():
    x, model = samples(), network()
    noise = SaltPepperNoise(0.4)
    torch.manual_seed(3)
    noisy, corrupted = noise(x)
    output = model.decode(model(noisy)).detach()
    plain = emphasised = 0.0
    for i in range(12):
        for k in range(5):
            e = float((output[i, k] - x[i, k]) ** 2) / 12
            plain += e
            emphasised += e * (2.0 if corrupted[i, k] else 0.5)
    torch.manual_seed(3)
    assert Reconstruction(noise=noise)(model, x).item() == pytest.approx(plain)
    torch.manual_seed(3)
    assert Reconstruction(noise=noise, emphasis=(2.0, 0.5))(model, x).item() == pytest.approx(emphasised)
    for wrong in (None, "gaussian"):
        with pytest.raises(ValueError, match="emphasis tells corrupted features from spared ones"):
            Reconstruction(noise=wrong, emphasis=(2.0, 0.5))


# -- D04: the linear autoencoder ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def linear():
    """Uncentred, correlated samples, and a linear autoencoder trained on them to the optimum."""
    rng = np.random.default_rng(0)
    rotation = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    X = rng.standard_normal((60, 6)) @ np.diag([3, 2, 1, 0.7, 0.5, 0.4]) @ rotation + 1
    torch.manual_seed(0)
    model = LinearAutoencoder(6, 2).double()
    cost = minimise(Reconstruction(), model, torch.tensor(X))
    return X, model, cost


def residual(X, p):
    """Σ_{k>p} λ_k of the biased covariance."""
    return np.linalg.eigvalsh(np.cov(X.T, bias=True))[:-p].sum()


def test_D04_1_the_loss_is_the_residual_of_pca(linear):
    """D04 (1)."""
    X, _, cost = linear
    assert cost == pytest.approx(residual(X, 2), rel=1e-6)


def test_D04_2_the_subspace_is_that_of_pca(linear):
    """D04 (2); but the directions are neither orthonormal nor those of PCA."""
    X, model, _ = linear
    components = PCA(2).fit(X).components_
    decoder = model.decoder.weight.detach().numpy()
    assert subspace_angles(decoder, components.T).max() < 1e-4
    assert np.abs(decoder.T @ decoder - np.eye(2)).max() > 1e-2


def test_D04_3_canonical_codes_are_pca_scores(linear):
    """D04 (3), with the sign fixed: the largest entry of each direction is positive."""
    X, model, cost = linear
    model = copy.deepcopy(model).canonicalise(X)
    codes, scores = model(torch.tensor(X)).detach().numpy(), PCA(2).fit_transform(X)
    assert_allclose(np.abs(codes), np.abs(scores), atol=1e-4)
    W = model.encoder.weight.detach().numpy()
    assert_allclose(W @ W.T, np.eye(2), atol=1e-12)
    assert (W[[0, 1], np.abs(W).argmax(1)] > 0).all()
    assert Reconstruction()(model, torch.tensor(X)).item() == pytest.approx(cost, rel=1e-9)
    assert_allclose(model.decoder.bias.detach(), X.mean(0))


def test_D04_4_without_bias_uncentred_data_cost_more(linear):
    """D04 (4); the best subspace through the origin leaves the smaller eigenvalues of the second moments."""
    X, _, cost = linear
    torch.manual_seed(0)
    model = LinearAutoencoder(6, 2, bias=False).double()
    through_origin = minimise(Reconstruction(), model, torch.tensor(X))
    assert through_origin == pytest.approx(np.linalg.eigvalsh(X.T @ X / len(X))[:-2].sum(), rel=1e-6)
    assert through_origin > 1.05 * cost


@pytest.mark.parametrize("bias", [True, False])
def test_D04_svd_is_the_optimum(linear, bias):
    X = linear[0] if bias else linear[0] - linear[0].mean(0)
    model = LinearAutoencoder(6, 2, bias=bias, init="svd", samples=X)
    assert model.encoder.weight.dtype == torch.float32
    assert Reconstruction()(model.double(), torch.tensor(X)).item() == pytest.approx(residual(X, 2), rel=1e-6)
    before = model.encoder.weight.detach().clone()
    assert_close(model.canonicalise(X).encoder.weight.detach(), before, rtol=0, atol=1e-6)
    with pytest.raises(ValueError, match="give samples=X"):
        LinearAutoencoder(6, 2, init="svd")
    with pytest.raises(ValueError, match="5 samples of 6 features have no 6 principal components"):
        LinearAutoencoder(6, 6, init="svd", samples=X[:5])


# -- D05: the variational bound ----------------------------------------------------------------------------------------


def test_D05_1_values_of_the_divergence():
    """D05 (1)."""
    zero = torch.zeros(1, 1, dtype=torch.float64)
    assert kl_to_standard_normal(zero, zero).item() == 0
    assert kl_to_standard_normal(zero + 1, zero + math.log(4)).item() == pytest.approx(1.306853, abs=1e-6)


def test_D05_2_divergence_equals_torch():
    """D05 (2)."""
    mean, logvar = samples(0), samples(1)
    q, p = torch.distributions.Normal(mean, (logvar / 2).exp()), torch.distributions.Normal(0.0, 1.0)
    assert_close(kl_to_standard_normal(mean, logvar), torch.distributions.kl_divergence(q, p).sum(1))


def variational(d=5, p=2):
    torch.manual_seed(0)
    return mlp_variational(d, p, (6,)).double()


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli"])
def test_D05_the_bound_by_loops(likelihood):
    x, model, S, scale, beta = samples().sigmoid(), variational(), 3, 0.7, 0.5
    objective = VariationalReconstruction(likelihood, beta=beta, n_samples=S, scale=scale)
    torch.manual_seed(5)
    eps = torch.randn(12, S, 2, dtype=torch.float64)
    out, total = model.encoder(x).detach(), 0.0
    for i in range(12):
        mean, logvar = out[i, :2], out[i, 2:]
        for s in range(S):
            D = model.decode(mean + (logvar / 2).exp() * eps[i, s])
            p = torch.distributions.Normal(D, scale) if likelihood == "gaussian" else None
            p = p or torch.distributions.Bernoulli(logits=D, validate_args=False)
            total -= p.log_prob(x[i]).sum().item() / S / 12
        total += beta * float((mean**2 + logvar.exp() - 1 - logvar).sum()) / 2 / 12
    torch.manual_seed(5)
    assert objective(model, x).item() == pytest.approx(total, rel=1e-10)


def test_D05_3_the_embedding_is_the_mean():
    """D05 (3): no noise in the embedding, nor in the objective in eval mode."""
    x, model, objective = samples(), variational(), VariationalReconstruction()
    trainer = Trainer(model, objective, max_epochs=1, classes_per_batch=1).fit(x)
    z = trainer.embed(x)
    assert torch.equal(z, trainer.embed(x)) and z.shape == (12, 2)
    assert_close(z, model.encoder(x)[:, :2].detach())
    objective.train()
    assert not torch.equal(objective(model, x), objective(model, x))
    objective.eval()
    assert torch.equal(objective(model, x), objective(model, x))
    assert_close(
        objective(model, x),
        ((model.decode(z) - x).square().sum(1) / 2).mean()
        + 2.5 * math.log(2 * math.pi)
        + kl_to_standard_normal(*model.posterior(x)).mean(),
    )


def test_D05_the_bound_is_below_the_evidence():
    """For a linear decoder log p(x) is known: N(x; b, WWᵀ + s²I). The optimal bound reaches it where q can be exact."""
    x = samples(n=200, d=3) @ torch.diag(torch.tensor([2.0, 1.0, 0.5], dtype=torch.float64))
    torch.manual_seed(0)
    model = VariationalAutoencoder(nn.Linear(3, 2), nn.Linear(1, 3)).double()
    objective = VariationalReconstruction(n_samples=500)

    def evidence():
        W, b = model.decoder.weight, model.decoder.bias
        p = torch.distributions.MultivariateNormal(b, W @ W.T + torch.eye(3, dtype=torch.float64))
        return p.log_prob(x).mean().item()

    assert -objective(model, x).item() < evidence() - 0.01
    W, b = model.decoder.weight.detach()[:, 0], model.decoder.bias.detach()
    variance = 1 / (1 + W @ W)  # of the posterior, whose mean is variance · Wᵀ(x − b)
    with torch.no_grad():
        model.encoder.weight.copy_(torch.stack([variance * W, 0 * W]))
        model.encoder.bias.copy_(torch.stack([-variance * (W @ b), variance.log()]))
    assert -objective(model, x).item() == pytest.approx(evidence(), abs=0.01)


def test_D05_log_variances_are_bounded_and_errors_clear():
    model = VariationalAutoencoder(nn.Linear(2, 4), nn.Linear(2, 2))
    with torch.no_grad():
        model.encoder.bias.copy_(torch.tensor([0, 0, 1e4, -1e4]))
        model.encoder.weight.zero_()
    assert_close(model.posterior(torch.ones(1, 2))[1], torch.tensor([[15.0, -15.0]]))
    with pytest.raises(ValueError, match=r"\(B, 2p\); it gave 3 columns"):
        VariationalAutoencoder(nn.Linear(2, 3), nn.Linear(1, 2))(torch.ones(1, 2))
    with pytest.raises(TypeError, match=r"posterior\(x\), and Autoencoder has none"):
        VariationalReconstruction()(network(), samples())


# -- D06: the adversarial autoencoder ----------------------------------------------------------------------------------


def adversarial(weight=0.7, **params):
    torch.manual_seed(0)
    return AdversarialReconstruction(3, (6,), weight=weight, **params).double()


def test_D06_1_the_discriminator_leaves_the_encoder_alone_and_the_generator_the_discriminator():
    """D06 (1)."""
    x, model, objective = samples(), network(), adversarial()
    z = model(x)
    encoder, T = list(model.parameters()), list(objective.discriminator.parameters())

    def parts(value):
        found = torch.autograd.grad(value.sum(), encoder + T, allow_unused=True, retain_graph=True)
        return found[: len(encoder)], found[len(encoder) :]

    to_model, to_T = parts(objective.discriminator_loss(z))
    assert all(g is None for g in to_model) and all(g is not None for g in to_T)
    to_model, to_T = parts(objective.generator_loss(z))
    assert all(g is None for g in to_T) and any(g is not None and g.abs().max() > 0 for g in to_model)


def test_D06_one_scalar_has_the_gradients_of_three_players():
    """The three losses written out, each differentiated for its own players."""
    x, model, objective = samples(), network(), adversarial(0.7)
    torch.manual_seed(1)
    h = torch.randn(12, 3, dtype=torch.float64)
    T, z = objective.discriminator, model(x)
    reconstruction = (model.decode(z) - x).square().sum(1).mean()
    generator = -F.logsigmoid(T(z)).mean()
    critic = -F.logsigmoid(T(h)).mean() - (1 - T(z.detach()).sigmoid()).log().mean()
    torch.manual_seed(1)
    value = objective(model, x)
    assert_close(value, reconstruction + 0.7 * generator + critic)
    for found, expected in zip(
        gradients(value, model), gradients(reconstruction + 0.7 * generator, model), strict=True
    ):
        assert_close(found, expected)
    for found, expected in zip(gradients(value, T), gradients(critic, T), strict=True):
        assert_close(found, expected)
    assert max(g.abs().max() for g in gradients(generator, model.encoder)) > 1e-3


def test_D06_2_an_undecided_discriminator_costs_two_log_two():
    """D06 (2)."""
    objective = adversarial()
    for p in objective.discriminator.parameters():
        p.data.zero_()
    assert_close(objective.discriminator_loss(samples(d=3)), torch.full((12,), 2 * math.log(2), dtype=torch.float64))
    assert_close(objective.generator_loss(samples(d=3)), torch.full((12,), math.log(2), dtype=torch.float64))


def test_D06_3_codes_come_to_look_like_the_prior():
    """D06 (3): mean 0 and covariance I, which the codes of the untrained net are far from."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1024, 2)) @ np.array([[2, 0.5], [0, 0.7]]) + [1, -1]
    torch.manual_seed(0)
    model = mlp_autoencoder(2, 2, (32,), activation="tanh")
    objective = AdversarialReconstruction(2, (32, 32), lr_mult=3.0)
    trainer = Trainer(model, objective, lr=5e-3, weight_decay=0, max_epochs=38, classes_per_batch=16)

    def distance_to_prior():
        z = trainer.embed(X)
        return max(float(z.mean(0).abs().max()), float((torch.cov(z.T) - torch.eye(2)).abs().max()))

    assert distance_to_prior() > 0.5
    trainer.fit(X)
    assert distance_to_prior() < 0.3
    assert objective.param_groups(0.1)[0]["lr"] == pytest.approx(0.3)
    x = torch.tensor(X, dtype=torch.float32)
    assert Reconstruction(penalty=lambda *_: 0)(model, x).item() < 0.1 * X.var(0).sum()


def test_D06_prior_and_fidelity():
    x, model = samples().sigmoid(), network()
    objective = adversarial(0.0, prior="uniform", fidelity="bce")
    for p in objective.discriminator.parameters():
        p.data.zero_()
    assert_close(objective(model, x), Reconstruction("bce")(model, x) + 2 * math.log(2))
    seen = []
    objective.discriminator.register_forward_pre_hook(lambda _, args: seen.append(args[0][:12]))
    objective.discriminator_loss(model(x))
    assert seen[0].min() > 0 and seen[0].max() < 1 and seen[0].std() > 0.2
    with pytest.raises(ValueError, match="prior"):
        AdversarialReconstruction(3, prior="gamma")


# -- D07: the embedding below a head -----------------------------------------------------------------------------------


def labelled(n=48, c=4):
    rng = np.random.default_rng(0)
    y = np.arange(n) % c
    return 2 * rng.standard_normal((c, 5))[y] + rng.standard_normal((n, 5)), y


def test_D07_1_the_head_is_no_part_of_the_embedding():
    """D07 (1)."""
    X, y = labelled()
    head = CrossEntropy(4, 3)
    trainer = Trainer(MLP(5, 3, (6,)), head, max_epochs=2, classes_per_batch=4, samples_per_class=3)
    start = head.layer.weight.detach().clone()
    trainer.fit(X, y)
    assert (head.layer.weight - start).abs().max() > 1e-4  # it was trained
    before = trainer.embed(X)
    with torch.no_grad():
        head.layer.weight.normal_(0, 10)
        head.layer.bias.normal_(0, 10)
    assert torch.equal(trainer.embed(X), before) and before.shape == (48, 3)


@pytest.mark.parametrize("make", [CrossEntropy, MSE, Huber])
def test_D07_2_the_gradient_of_the_embedding(make):
    """D07 (2): Wᵀ ∂L/∂f_o, for a net with one hidden layer."""
    x, y = samples(), torch.arange(12) % 4
    torch.manual_seed(0)
    net, head = MLP(5, 3, (6,)).double(), make(4, 3).double()
    z = net(x)
    outputs = (z @ head.layer.weight.T + head.layer.bias).detach().requires_grad_()
    (slope,) = torch.autograd.grad(make()(outputs, y), outputs)  # (B, c)
    (found,) = torch.autograd.grad(head(z, y), z)
    assert_close(found, slope @ head.layer.weight.detach())


def test_D07_row_points_at_the_heads():
    row = get("D07")
    assert issubclass(CrossEntropy, row.load()) and row.name == "Head"


# -- with the trainer --------------------------------------------------------------------------------------------------

RUNS = {
    "denoising, sparse": (
        lambda: mlp_autoencoder(5, 3, (6,), code="sigmoid"),
        lambda: Reconstruction(noise="masking", penalty=SparseCode(weight=0.1)),
    ),
    "gaussian, contractive": (
        lambda: mlp_autoencoder(5, 3, (6,), tied=True),
        lambda: Reconstruction(noise=GaussianNoise(0.3), penalty=Contractive(0.1, probes=2)),
    ),
    "variational": (lambda: mlp_variational(5, 2, (6,)), lambda: VariationalReconstruction(n_samples=2)),
    "adversarial": (lambda: mlp_autoencoder(5, 3, (6,)), lambda: AdversarialReconstruction(3, (8,), lr_mult=2.0)),
}


def trained(key, folder=None, epochs=4, resume=False):
    """History and weights; batches of 15 cannot be cut evenly for two processes."""
    torch.manual_seed(0)
    model, objective = (make() for make in RUNS[key])
    trainer = Trainer(
        model,
        objective,
        lr=0.01,
        schedule="constant",
        max_epochs=epochs,
        classes_per_batch=3,
        samples_per_class=5,
        folder=folder,
    )
    trainer.fit(samples(n=45).float(), resume=resume)
    return trainer.history, [*model.state_dict().values(), *objective.state_dict().values()]


@pytest.mark.parametrize("key", RUNS)
def test_a_resumed_run_is_bit_identical(key, tmp_path):
    history, weights = trained(key)
    trained(key, tmp_path, epochs=2)
    again, resumed = trained(key, tmp_path, resume=True)
    assert len(set(history["loss"])) == 4 and again["loss"] == history["loss"]
    assert same(resumed, weights)


def distributed_main(folder):
    """What each of the processes runs."""
    torch.save({key: trained(key, epochs=2) for key in RUNS}, f"{folder}/rank{os.environ['RANK']}.pt")


def test_two_processes_equal_one(tmp_path):
    """The same noise, the same statistics of the code, and the same weights, though the batch is cut unevenly."""
    ranks = results_of_two("tests.deep.test_autoencoders", tmp_path)
    for key in RUNS:
        history, weights = trained(key, epochs=2)
        for found, parts in (rank[key] for rank in ranks):
            assert_allclose(found["loss"], history["loss"], rtol=1e-5, err_msg=key)
            for a, b in zip(parts, weights, strict=True):
                assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_noise_is_drawn_row_by_row_of_the_batch():
    torch.manual_seed(0)
    drawn = draw_rows(torch.randn, samples(n=4), 2, 3)
    torch.manual_seed(0)
    assert torch.equal(drawn, torch.randn(4, 2, 3, dtype=torch.float64))


def test_held_out_retrieval_of_codes_and_the_estimator():
    """Labels are of use to watch the code, and `DeepMetric` takes an autoencoder as its model."""
    X, y = labelled()
    torch.manual_seed(0)
    trainer = Trainer(mlp_autoencoder(5, 3, (6,)), Reconstruction(), max_epochs=3, classes_per_batch=2)
    trainer.fit(X, validation=(X, y))
    assert np.isfinite(trainer.history["map@r"]).all() and trainer.run.best_epoch > 0
    metric = DeepMetric(
        lambda shape, p: mlp_autoencoder(shape[0], p, (6,)),
        Reconstruction,
        n_components=3,
        max_epochs=2,
        min_steps=8,
        random_state=0,
    )
    assert metric.fit(X, y).transform(X).shape == (48, 3)
    assert set(metric.weights_) == set(mlp_autoencoder(5, 3, (6,)).state_dict())
