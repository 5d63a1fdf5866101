"""Threads of our own in place of those of BLAS."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from threadpoolctl import threadpool_limits

import isometry
from isometry.core import softmax, threads
from isometry.core.distance import pair_sqdist
from isometry.core.threads import in_slices, in_threads, n_threads, own_threads, product
from isometry.eval import nearest, neighbors
from isometry.spectral import impostors
from tests.conftest import make_planted


@pytest.fixture
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        if n_threads() != 2:
            pytest.skip("this BLAS has one thread")
        yield


def names_of(parts):
    """Names of the threads that do so many parts; each part waits until all of them have begun."""
    together = threading.Barrier(parts)

    def work(part, parts):
        together.wait(60)
        return threading.current_thread().name

    return in_threads(work, parts)


def test_parts_run_at_the_same_time_and_come_in_order(two_threads):
    assert len(set(names_of(2))) == 2
    assert in_threads(lambda part, parts: (part, parts), 2) == [(0, 2), (1, 2)]


def test_blas_gets_its_threads_back(two_threads):
    with own_threads():
        assert n_threads() == 2 and in_threads(lambda *_: n_threads(), 2) == [1, 1]
        with own_threads():
            assert n_threads() == 2
        assert in_threads(lambda *_: n_threads(), 2) == [1, 1]
    assert n_threads() == 2
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda part, parts: 1 // part, 2)
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda part, parts: 1 // (1 - part), 2)
    assert n_threads() == 2 and threads._one_blas_thread.n_asking == 0


def test_the_last_of_several_searches_gives_the_threads_back(two_threads):
    """Searches in threads of the user begin and end in any order."""
    entered, leave = threading.Event(), threading.Event()

    def search():
        with own_threads():
            entered.set()
            leave.wait(60)

    other = threading.Thread(target=search)
    with own_threads():
        other.start()
        entered.wait(60)
    assert n_threads() <= 2
    leave.set()
    other.join()
    assert n_threads() == 2


def test_what_is_divided_inside_a_part_does_not_wait_for_the_others(two_threads):
    A = np.random.default_rng(0).standard_normal((300, 300))

    def work(part, parts):
        with own_threads():
            return product(A, A), names_of(1)

    for found, _ in in_threads(work, 2):
        assert_allclose(found, A @ A, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("shape", [(700, 40, 3), (3, 40, 700), (257, 31, 257), (1, 5, 2)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_are_those_of_numpy(two_threads, monkeypatch, shape, dtype):
    monkeypatch.setattr(threads, "MIN_PRODUCT", 1)
    rng = np.random.default_rng(0)
    m, k, n = shape
    A, B = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    with own_threads():
        for left in (A, np.asfortranarray(A)):
            found = product(left, B)
            assert found.dtype == dtype
            assert_allclose(found, A @ B, rtol=0, atol=k * np.finfo(dtype).eps * 40)
        out = np.empty((m, n), dtype=dtype)
        assert product(A, B, out=out) is out
    assert_allclose(out, A @ B, rtol=0, atol=k * np.finfo(dtype).eps * 40)


@pytest.mark.parametrize("n", [0, 1, 5, 100])
def test_slices_cover_everything_once(two_threads, n):
    seen = np.zeros(n, dtype=int)

    def work(mine):
        seen[mine] += 1

    in_slices(work, n, 10)
    with own_threads():
        in_slices(work, n, 10)
    assert_array_equal(seen, 2)


def test_distances_and_neighbours_do_not_depend_on_threads(two_threads, monkeypatch):
    rng = np.random.default_rng(0)
    Z = np.vstack([rng.standard_normal((500, 7)), np.tile(rng.standard_normal((1, 7)), (60, 1))])  # 60 equal points
    i, j = rng.integers(0, len(Z), (2, 9000))
    monkeypatch.setattr(neighbors, "MIN_THREADED_DISTANCES", 1)
    with isometry_config(working_memory=0.05):  # several blocks
        found, near = pair_sqdist(Z, i, j), [nearest(Z, k) for k in (1, 5, 70)]
        with own_threads():
            assert_allclose(pair_sqdist(Z, i, j), found, rtol=1e-13)
        with threadpool_limits(1, user_api="blas"):
            assert_allclose(pair_sqdist(Z, i, j), found, rtol=1e-13)
            for k, (index, d) in zip((1, 5, 70), near, strict=True):
                alone = nearest(Z, k)
                assert_array_equal(alone[0], index)
                assert_allclose(alone[1], d, rtol=1e-13)


def isometry_config(**options):
    from sklearn import config_context

    return config_context(**options)


@pytest.mark.filterwarnings("ignore:.*did not converge")
@pytest.mark.parametrize("name", ["NCA", "MCML", "LMNN"])
def test_a_metric_does_not_depend_on_threads(two_threads, monkeypatch, name):
    """But for rounding: sums of parts are added in another order."""
    X, y = make_planted(n=300)
    monkeypatch.setattr(threads, "MIN_PRODUCT", 1)
    for module in (softmax, impostors):
        monkeypatch.setattr(module, "MIN_THREADED_POINTS", 1)
    learner = getattr(isometry, name)(max_iter=5, strength=1.0, random_state=0)
    two = learner.fit(X, y).transform(X)
    with threadpool_limits(1, user_api="blas"):
        one = learner.fit(X, y).transform(X)
    assert_allclose(two, one, rtol=0, atol=1e-7 * np.abs(one).max())
