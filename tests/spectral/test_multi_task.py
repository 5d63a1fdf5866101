"""MultiTaskLMNN: its objective in loops, its minimum by a conic solver, and its limits."""

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from isometry import MultiTaskLMNN
from isometry.core.frame import Frame
from isometry.core.graph import target_neighbors
from isometry.core.solvers import Certified
from isometry.spectral.multi_task import TaskProblem
from tests.conftest import make_blobs
from tests.differences import central_differences


def two_tasks(seed=0, n=24, d=3):
    X, y = make_blobs(n=n, d=d, seed=seed)
    t = np.array(["left", "right"])[np.arange(n) % 2]
    return X, y, t


def scaled(X):
    return np.sqrt(2) * Frame.of(X, scaled=True).X


def triplets(X, y, k=3):
    """(i, j, l): targets and all others of the task, and the target pairs."""
    targets = target_neighbors(X, np.unique(y, return_inverse=True)[1], k)
    pairs = [(i, j) for i in range(len(X)) for j in targets[i] if j >= 0]
    return pairs, [(i, j, l) for i, j in pairs for l in range(len(X)) if y[l] != y[i]]


def slow_lmnn(W, X, y, mu, width):
    pairs, hinges = triplets(X, y)
    sq = lambda i, j: (X[i] - X[j]) @ W @ (X[i] - X[j])  # noqa: E731
    total = (1 - mu) * sum(sq(i, j) for i, j in pairs)
    for i, j, l in hinges:
        h = max(0.0, 1 + sq(i, j) - sq(i, l))
        total += mu * (h * h / (2 * width) if h < width else h - width / 2)
    return total / len(X)


def problem_of(X, y, t, **params):
    model = MultiTaskLMNN(**params, strength=1.0)
    parts = tuple(model._part(scaled(X)[t == name], y[t == name]) for name in np.unique(t))
    return TaskProblem(parts, model.gamma0, model.gamma, model.mu, 0.1)


def test_B24_value_and_gradients(rng):
    X, y, t = two_tasks()
    f = problem_of(X, y, t, gamma0=0.3, gamma=0.2)
    x = [rng.standard_normal((3, 3)) / 2 for _ in range(3)]
    value, gradients = f(x)
    W0, A, B = (L.T @ L for L in x)
    expected = 0.15 * np.sum((W0 - np.eye(3)) ** 2) + 0.1 * (np.sum(A**2) + np.sum(B**2))
    for name, own in (("left", A), ("right", B)):
        expected += slow_lmnn(W0 + own, scaled(X)[t == name], y[t == name], 0.5, 0.1)
    assert_allclose(value, expected, rtol=1e-9)
    for k in range(3):
        numeric = central_differences(lambda L, k=k: f([*x[:k], L, *x[k + 1 :]])[0], x[k])
        assert_allclose(gradients[k], numeric, rtol=1e-5, atol=1e-6)
        assert_allclose(2 * x[k] @ f.metric_gradient(x)[k], gradients[k], rtol=1e-7, atol=1e-8)


def test_B24_equals_the_conic_solver():
    X, y, t = two_tasks(1, n=16, d=2)
    model = MultiTaskLMNN(tol=1e-8, max_iter=3000, strength=1.0).fit(X, y, tasks=t)
    W0, parts, value = cp.Variable((2, 2), PSD=True), [cp.Variable((2, 2), PSD=True) for _ in range(2)], 0
    for name, V in zip(("left", "right"), parts, strict=True):
        Z = scaled(X)[t == name]
        pairs, hinges = triplets(Z, y[t == name])
        outer = lambda i, j, Z=Z: np.outer(Z[i] - Z[j], Z[i] - Z[j])  # noqa: E731
        A = sum(outer(i, j) for i, j in pairs)
        C = np.array([(outer(i, j) - outer(i, l)).ravel() for i, j, l in hinges])
        rounded = cp.huber(cp.pos(1 + C @ cp.vec(W0 + V, order="C")), 0.01) / 0.02
        value += (0.5 * cp.trace(A @ (W0 + V)) + 0.5 * cp.sum(rounded)) / len(Z) + 0.05 * cp.sum_squares(V)
    programme = cp.Problem(cp.Minimize(value + 0.05 * cp.sum_squares(W0 - np.eye(2))))
    programme.solve(solver="CLARABEL", use_quad_obj=False)  # old versions hand over a wrong quadratic term
    assert_allclose(model.objective_, programme.value, rtol=1e-5)


def test_B24a_tasks_that_cost_too_much_share_one_metric():
    X, y, t = two_tasks(2)
    model = MultiTaskLMNN(gamma=1e6, tol=1e-8, max_iter=2000, strength=1.0).fit(X, y, tasks=t)
    f = problem_of(X, y, t, gamma=0.0)

    class Shared:
        """All tasks with W_t = 0."""

        def __call__(self, L, width=0.01):
            value, gradients = TaskProblem(f.parts, 0.1, 0.0, 0.5, width)([L, *[np.zeros((1, 3))] * 2])
            return value, gradients[0]

        def metric_gradient(self, L):
            return TaskProblem(f.parts, 0.1, 0.0, 0.5, 0.01).metric_gradient([L, *[np.zeros((1, 3))] * 2])[0]

    one = Certified(2000, 1e-8).minimize(Shared(), np.eye(3))
    assert_allclose(model.objective_, one.value, rtol=1e-4)
    W = model.components_.T @ model.components_
    for L in model.task_components_:
        assert_allclose(L.T @ L, W, atol=1e-3 * np.abs(W).max())


@pytest.mark.filterwarnings("ignore:MultiTaskLMNN did not converge")
def test_B24b_a_shared_metric_that_is_fixed_leaves_the_tasks_alone():
    X, y, t = two_tasks(3)
    both = MultiTaskLMNN(gamma0=1e4, tol=1e-7, max_iter=500, strength=1.0).fit(X, y, tasks=t)
    f = problem_of(X, y, t)
    total = 0.0
    for part in f.parts:
        alone = TaskProblem((part,), 1e4, 0.1, 0.5, 0.01)
        total += Certified(500, 1e-7).minimize(alone, [np.eye(3), 0.1 * np.eye(3)]).value
    assert_allclose(both.objective_, total, rtol=1e-3)
    W = both.components_.T @ both.components_
    assert_allclose(W / W[0, 0], np.eye(3), atol=1e-3)


def test_B24c_equal_tasks_have_equal_metrics():
    X, y = make_blobs(n=20, d=3)
    model = MultiTaskLMNN(tol=1e-7, max_iter=1000, strength=1.0).fit(
        np.r_[X, X], np.r_[y, y], tasks=np.repeat([3, 7], 20)
    )
    A, B = (L.T @ L for L in model.task_components_)
    assert_allclose(A, B, atol=1e-3 * np.abs(A).max())


def test_tasks_by_name():
    X, y, t = two_tasks()
    model = MultiTaskLMNN(strength=1.0).fit(X, y, tasks=t)
    assert list(model.tasks_) == ["left", "right"]
    assert_allclose(model.task_transform(X, "right"), X @ model.task_components_[1].T)
    with pytest.raises(ValueError, match="task='up' is unknown; the tasks of the fit are left, right"):
        model.task_transform(X, "up")
    with pytest.raises(ValueError, match="X has 24 samples but tasks has 23"):
        MultiTaskLMNN(strength=1.0).fit(X, y, tasks=t[1:])
    plain = MultiTaskLMNN(strength=1.0).fit(X, y)
    assert_allclose(plain.transform(X), plain.task_transform(X, 0), rtol=1e-12)
