"""Evaluations that are looked up instead of computed."""

import numpy as np

from isometry.core import memory
from isometry.core.memory import once, remembering
from isometry.core.solve import lbfgs


class Counted:
    """A quartic bowl about a centre that counts its evaluations."""

    def __init__(self, centre):
        self.centre, self.calls = centre, 0

    def __call__(self, x):
        self.calls += 1
        r = x - self.centre
        return float(np.sum(r**4) + np.sum(r**2)), 4 * r**3 + 2 * r


def search(fun, max_iter):
    return lbfgs(fun, np.linspace(1, 4, 6).reshape(2, 3), max_iter=max_iter, tol=1e-9)


def test_a_longer_search_computes_only_what_is_new():
    fun, plain = Counted(0.3), Counted(0.3)
    with remembering():
        short = search(fun, 4)
        first = fun.calls
        long = search(fun, 8)
        second = fun.calls - first
    expected_short, n_short = search(plain, 4), plain.calls
    expected_long, n_long = search(plain, 8), plain.calls - n_short
    assert first == n_short
    assert second == 1 + n_long - n_short  # the start is always evaluated: it tells the functions apart
    assert np.array_equal(short.x, expected_short.x) and np.array_equal(long.x, expected_long.x)
    assert short.history == expected_short.history and long.history == expected_long.history


def test_another_function_is_computed():
    one, other = Counted(0.3), Counted(0.31)
    with remembering():
        search(one, 5)
        found = search(other, 5)
    assert np.array_equal(found.x, search(Counted(0.31), 5).x)


def test_nothing_is_kept_outside_or_beyond_the_limit(monkeypatch):
    fun = Counted(0.3)
    search(fun, 4)
    n = fun.calls
    search(fun, 4)
    assert fun.calls == 2 * n
    monkeypatch.setattr(memory, "MOST_BYTES", 2 * 6 * 8)  # two gradients
    with remembering():
        search(fun, 4)
        search(fun, 4)
    assert fun.calls == 2 * n + n + (n - 2)


def test_a_search_that_shows_another_number_is_not_shortened():
    fun = Counted(0.3)
    shown = []

    def show():
        shown.append(fun.calls)
        return 0.0

    with remembering():
        for _ in range(2):
            lbfgs(fun, np.ones((2, 3)), max_iter=3, shown=show)
    assert shown[len(shown) // 2] > shown[len(shown) // 2 - 1]
    assert fun.calls == 2 * shown[len(shown) // 2 - 1]


def test_what_depends_on_its_arguments_alone_is_computed_once_inside():
    calls = []

    @once
    def total(X, k, scale=1.0):
        calls.append(k)
        return X.sum(axis=0) * k * scale

    X = np.arange(6.0).reshape(2, 3)
    assert np.array_equal(total(X, 2), total(X, 2)) and len(calls) == 2
    with remembering():
        first = total(X, 2)
        first[:] = -1  # what is kept does not change with it
        assert np.array_equal(total(X.copy(), 2), X.sum(axis=0) * 2) and len(calls) == 3
        assert np.array_equal(total(np.asfortranarray(X), 2), X.sum(axis=0) * 2) and len(calls) == 3
        others = [(X, 3), (X.T, 2), (X.reshape(1, 6), 2), (X.astype(np.float32), 2), (X + np.spacing(X), 2)]
        for other in others:
            assert np.array_equal(total(*other), other[0].sum(axis=0) * other[1])
        assert np.array_equal(total(X, 2, scale=3.0), X.sum(axis=0) * 6)
        assert len(calls) == 3 + len(others) + 1
    total(X, 2)
    assert len(calls) == 3 + len(others) + 2
