"""LaplacianKernelML against the semidefinite programme it solves."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import aslinearoperator
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from isometry import AllPairs, Labels, LaplacianKernelML, Pairs, RandomPairs
from isometry.kernel.laplacian import neighbor_graph, similar_laplacian, smallest_eigenvalue
from tests.conftest import make_blobs

TIGHT = {"n_neighbors": 3, "tol": 1e-7, "random_state": 0}


def slow_graph(X, k):
    """(n, n) symmetric 0/1 matrix of the k nearest neighbours."""
    A = np.zeros((len(X), len(X)))
    for i in range(len(X)):
        order = np.argsort([np.sum((X[i] - X[j]) ** 2) if j != i else np.inf for j in range(len(X))])
        A[i, order[:k]] = A[order[:k], i] = 1
    return A


def slow_pull(X, S, k, lam):
    """Q = E_S + λL/n."""
    n = len(X)
    Q = np.zeros((n, n))
    for i, j in S:
        e = np.eye(n)[i] - np.eye(n)[j]
        Q += np.outer(e, e) / len(S)
    A = slow_graph(X, k)
    return Q + lam / n * (np.diag(A.sum(axis=1)) - A)


def problem(n=14, seed=0):
    """Points in one piece, some pairs."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    S, D = [(0, 1), (2, 3), (4, 5), (0, 6)], [(0, 2), (1, 7), (4, 8), (3, 9)]
    i, j = np.array(S + D).T
    return X, S, D, Pairs(i, j, np.repeat([True, False], [len(S), len(D)]), n=n)


def kernel(model):
    return model.embedding_ @ model.embedding_.T


def test_M19a_one_pair_has_the_distance_of_effective_resistance():
    X, S, D, _ = problem()
    a, b = D[1]
    pairs = Pairs(*np.array([*S, (a, b)]).T, [True] * 4 + [False], n=14)
    model = LaplacianKernelML(reg=0.7, margin=2.5, **TIGHT).fit(X, pairs)
    pinv, e = np.linalg.pinv(slow_pull(X, S, 3, 0.7)), np.eye(14)[a] - np.eye(14)[b]
    R = e @ pinv @ e
    assert_allclose(model.objective_, 2.5 / R, rtol=1e-6)
    K = 2.5 * np.outer(pinv @ e, pinv @ e) / R**2
    assert_allclose(kernel(model), K, atol=1e-4 * np.abs(K).max())
    assert model.embedding_.shape == (14, 1)
    assert_allclose(model.multipliers_, 1 / R, rtol=1e-5)


def test_M19b_constraints_hold_and_the_dual_value_meets_the_primal():
    X, S, D, pairs = problem()
    model = LaplacianKernelML(margin=1.7, **TIGHT).fit(X, pairs)
    K, mu, Q = kernel(model), model.multipliers_, slow_pull(X, S, 3, 1.0)
    gaps = np.array([K[i, i] + K[j, j] - 2 * K[i, j] for i, j in D])
    assert gaps.min() >= 1.7 * (1 - 1e-9)
    assert_allclose(K.sum(), 0, atol=1e-9)
    assert_allclose(np.trace(Q @ K), model.objective_, rtol=1e-6)
    assert_allclose(1.7 * mu.sum(), model.objective_, rtol=1e-5)
    assert_allclose(mu * (gaps - 1.7), 0, atol=1e-5)  # complementary slackness
    lap = sum(m * np.outer(np.eye(14)[i] - np.eye(14)[j], np.eye(14)[i] - np.eye(14)[j]) for m, (i, j) in zip(mu, D))
    slack = np.linalg.eigvalsh(Q - lap)[0]
    assert slack > -1e-6
    assert_allclose(model.certificate_, slack / np.mean(np.diag(Q)), atol=1e-8)


@pytest.mark.parametrize("seed", [0, 1])
def test_M19c_value_of_the_conic_solver(seed):
    cp = pytest.importorskip("cvxpy")
    X, S, D, pairs = problem(seed=seed)
    Q, K = slow_pull(X, S, 3, 1.0), cp.Variable((14, 14), PSD=True)
    far = [K[i, i] + K[j, j] - 2 * K[i, j] >= 1 for i, j in D]
    best = cp.Problem(cp.Minimize(cp.trace(Q @ K)), [*far, cp.sum(K) == 0]).solve(solver=cp.CLARABEL)
    for start in (0, 1):
        model = LaplacianKernelML(**{**TIGHT, "random_state": start}).fit(X, pairs)
        assert_allclose(model.objective_, best, rtol=1e-5)
        assert_allclose(kernel(model), K.value - K.value.mean(axis=0), atol=1e-3)


def test_M19d_the_margin_only_scales_the_kernel():
    X, _, _, pairs = problem()
    A, B = (LaplacianKernelML(margin=c, **TIGHT).fit(X, pairs) for c in (1.0, 6.0))
    assert_allclose(kernel(B), 6 * kernel(A), atol=1e-9)
    assert_allclose(B.multipliers_, A.multipliers_, rtol=1e-9)
    assert_allclose(B.objective_, 6 * A.objective_, rtol=1e-9)


def test_the_laplacian_of_all_similar_pairs_is_their_sum(data):
    _, y, _ = data
    hidden = np.where(np.arange(25) % 4 > 0, y, -1)
    side = Labels(hidden, unlabelled=-1)
    slow, S = np.zeros((25, 25)), [(i, j) for i in range(25) for j in range(i) if hidden[i] == hidden[j] >= 0]
    for i, j in S:
        e = np.eye(25)[i] - np.eye(25)[j]
        slow += np.outer(e, e) / len(S)
    assert_allclose(similar_laplacian(side) @ np.eye(25), slow, atol=1e-12)
    assert_allclose(similar_laplacian(side.to(Pairs)) @ np.eye(25), slow, atol=1e-12)


def test_all_pairs_of_labels_whatever_their_order(data):
    X, y, _ = data
    order = np.random.default_rng(1).permutation(25)
    settings = {"n_neighbors": 4, "tol": 1e-5, "random_state": 0}
    A = LaplacianKernelML(pairs=AllPairs(), **settings).fit(X, y)
    B = LaplacianKernelML(pairs=AllPairs(), **settings).fit(X[order], y[order])
    C = LaplacianKernelML(**settings).fit(X, Labels(y).to(Pairs))
    assert A.converged_ and A.certificate_ > -1e-4
    for other in (B.transform(X), C.transform(X)):
        assert_allclose(other @ other.T, kernel(A), atol=2e-3 * np.abs(kernel(A)).max())
    drawn = LaplacianKernelML(pairs=RandomPairs(10), **settings).fit(X, y)
    assert len(drawn.multipliers_) == 10 and len(LaplacianKernelML(**settings).fit(X, y).multipliers_) == 200


def test_new_samples_get_the_mean_of_their_neighbours_and_old_ones_their_own_place(data):
    X, y, new = data
    model = LaplacianKernelML(n_neighbors=4, random_state=0).fit(X, y)
    near = [np.argsort([np.sum((x - z) ** 2) for z in X])[:4] for x in new]
    assert_allclose(model.transform(new), [model.embedding_[j].mean(axis=0) for j in near], atol=1e-12)
    assert_allclose(model.transform(X), model.embedding_, atol=1e-12)
    assert_allclose(model.transform(X.astype(np.float32)), model.embedding_, atol=1e-6)
    twice = LaplacianKernelML(n_neighbors=4, random_state=0).fit(np.r_[X, X[:1]], np.r_[y, y[-1:]])
    place = twice.embedding_[[0, 25]]  # two samples of one position and two classes: their mean
    assert np.linalg.norm(place[0] - place[1]) > 1e-3
    assert_allclose(twice.transform(X[:1])[0], place.mean(axis=0), atol=1e-12)


def test_pieces_of_the_graph_are_joined_by_their_shortest_links():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((24, 2)) + np.array([[0, 0], [30, 0], [0, 50]])[np.arange(24) % 3]
    with pytest.warns(UserWarning, match="falls into 3 pieces"):
        graph = neighbor_graph(X, 3)
    assert connected_components(graph, directed=False)[0] == 1
    extra = graph.toarray() + graph.T.toarray() - slow_graph(X, 3)
    links = np.argwhere(np.triu(extra))
    assert len(links) == 2 and np.all(np.isin(extra, (0, 1)))
    for i, j in links:  # each is the shortest between its two pieces
        pairs = [(a, b) for a in range(24) for b in range(24) if (a % 3, b % 3) == (i % 3, j % 3)]
        assert min(np.sum((X[a] - X[b]) ** 2) for a, b in pairs) == np.sum((X[i] - X[j]) ** 2)
    assert {frozenset((int(i) % 3, int(j) % 3)) for i, j in links} == {frozenset((0, 1)), frozenset((0, 2))}


def test_samples_without_pairs_count_in_the_graph(data):
    X, y, _ = data
    hidden = np.where(np.arange(25) % 3 > 0, y, -1)
    model = LaplacianKernelML(pairs=AllPairs(), n_neighbors=4, tol=1e-6, random_state=0).fit(X, hidden)
    S = [(i, j) for i in range(25) for j in range(i) if hidden[i] == hidden[j] >= 0]
    assert_allclose(np.trace(slow_pull(X, S, 4, 1.0) @ kernel(model)), model.objective_, rtol=1e-6)


@pytest.mark.parametrize("n", [30, 700])
def test_smallest_eigenvalue(n):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((n, n))
    A = A + A.T
    found = smallest_eigenvalue(aslinearoperator(A), np.random.RandomState(0))
    assert_allclose(found, np.linalg.eigvalsh(A)[0], rtol=1e-4)


@pytest.mark.filterwarnings("ignore:the graph of")
@pytest.mark.parametrize("tol", [1e-4, 1e-5])
@pytest.mark.parametrize("name", ["blobs", "iris"])
def test_converged_means_within_tol(name, tol):
    """The positions that leave meet the constraints, their value is that of the dual, and the multipliers allowed."""
    X, y = load_iris(return_X_y=True) if name == "iris" else make_blobs(n=90, seed=4)
    X, drawn = StandardScaler().fit_transform(X), RandomPairs(200).draw(X, Labels(y), np.random.RandomState(0))
    model = LaplacianKernelML(tol=tol, max_iter=300, random_state=0).fit(X, drawn)
    assert model.converged_
    Y, far = model.embedding_, drawn.dissimilar
    assert np.sum((Y[far.i] - Y[far.j]) ** 2, axis=1).min() >= 1 - tol
    assert abs(model.objective_ - model.multipliers_.sum()) <= tol * model.objective_
    assert model.certificate_ >= -tol


def test_principal_axes_and_what_went_wrong(data):
    X, y, _ = data
    whole = LaplacianKernelML(n_neighbors=4, random_state=0).fit(X, y)
    G = whole.embedding_.T @ whole.embedding_
    assert_allclose(G, np.diag(np.diag(G)), atol=1e-9)
    assert len(G) > 1 and np.all(np.diff(np.diag(G)) <= 0)
    first = LaplacianKernelML(1, n_neighbors=4, random_state=0).fit(X, y)
    assert_allclose(first.embedding_, whole.embedding_[:, :1])
    with pytest.warns(ConvergenceWarning, match="max_iter=1 reached"):
        LaplacianKernelML(max_iter=1, random_state=0).fit(X, y)


@pytest.mark.parametrize(
    "params, error, message",
    [
        ({"reg": 0.0}, ValueError, "reg=0.0 must be positive"),
        ({"margin": -1.0}, ValueError, "margin=-1.0 must be positive"),
        ({"n_neighbors": 0}, ValueError, "n_neighbors=0 must be at least 1"),
        ({"n_components": 0}, ValueError, "n_components=0"),
        ({"pairs": 500}, ValueError, "pairs=500 is unknown; expected a name or a Sampler"),
    ],
)
def test_wrong_parameters_are_named(data, params, error, message):
    with pytest.raises(error, match=message):
        LaplacianKernelML(**params).fit(data[0], data[1])


@pytest.mark.filterwarnings("ignore:.*were drawn at random:UserWarning")
def test_M19_positions_of_low_rank_on_which_a_singular_value_decomposition_fails():
    """The positions have fewer dimensions than columns; LAPACK's dgesdd gave up on those of this start."""
    r = np.random.default_rng(0)
    X = 2 * r.normal(size=(6, 4))[np.repeat(np.arange(6), 10)] + r.normal(size=(60, 4))
    i = np.arange(0, 60, 2)
    side = Pairs(i, i + 1, np.ones(30), n=60)
    model, other = (LaplacianKernelML(tol=1e-3, random_state=seed).fit(X, side) for seed in (3348, 0))
    assert model.certificate_ >= -1e-3 and model.embedding_.shape[1] < 30
    assert_allclose(model.objective_, other.objective_, rtol=2e-3)  # each is within tol of the minimum
