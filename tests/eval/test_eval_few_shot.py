"""Few-shot accuracy against the definition, written with loops; what an episode is made of."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context

from isometry.eval import few_shot, mean_interval
from isometry.eval.episodes import _distinct, draw_episodes
from isometry.supervision import Labels


def blobs(seed=0, n_classes=9, per_class=11, d=3, spread=1.5):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n_classes * per_class) % n_classes)
    return spread * rng.standard_normal((n_classes, d))[y] + rng.standard_normal((len(y), d)), y


def slow_accuracy(Z, episodes):
    values = []
    for support, query in zip(*episodes):
        prototypes = [np.mean([Z[s] for s in rows], axis=0) for rows in support]
        hits = [
            np.argmin([np.sum((Z[q] - mu) ** 2) for mu in prototypes]) == label
            for label, rows in enumerate(query)
            for q in rows
        ]
        values.append(np.mean(hits))
    return np.array(values)


@pytest.mark.parametrize("n_way, k_shot, n_query", [(5, 1, 6), (3, 5, 2), (9, 2, 9), (1, 1, 1)])
def test_nearest_prototype_against_loops(n_way, k_shot, n_query):
    Z, y = blobs()
    Z += 50.0  # a common offset must not cost digits
    result = few_shot(Z, y, n_way, k_shot, n_query, episodes=12, random_state=3)
    drawn = draw_episodes(y, n_way, k_shot, n_query, 12, 3)
    assert_allclose(result.accuracy, slow_accuracy(Z, drawn), rtol=1e-12)
    assert result.interval() == mean_interval(result.accuracy)
    assert result.mean == pytest.approx(result.accuracy.mean())


def test_the_case_above_is_neither_perfect_nor_chance():
    Z, y = blobs()
    assert 0.4 < few_shot(Z, y, 5, 1, 6, 50).mean < 0.9


def test_an_episode_has_different_classes_and_samples_of_each():
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(6), [3, 4, 5, 6, 9, 30]))
    with pytest.warns(UserWarning, match="2 classes have fewer than k_shot \\+ n_query = 5"):
        support, query = draw_episodes(y, 3, 2, 3, 200, 0)
    assert support.shape == (200, 3, 2) and query.shape == (200, 3, 3)
    rows = np.concatenate([support, query], axis=2)  # (E, n_way, 5)
    codes = y[rows]
    assert (codes == codes[..., :1]).all()
    assert all(len(set(episode[:, 0])) == 3 for episode in codes)
    assert all(len(set(episode.ravel())) == 15 for episode in rows)
    assert set(codes.ravel()) == {2, 3, 4, 5}


def test_every_set_and_every_order_is_equally_likely():
    """Each ordered pair of 4 different numbers comes in a twelfth of the draws."""
    pairs = _distinct(np.random.default_rng(0), np.full(12_000, 4), 2)
    assert (pairs[:, 0] != pairs[:, 1]).all()
    counts = np.bincount(pairs @ [4, 1], minlength=16).reshape(4, 4)
    assert_array_equal(np.diag(counts), 0)
    off = counts[~np.eye(4, dtype=bool)]
    assert ((off - 1000) ** 2 / 1000).sum() < 31.3  # χ² with 11 degrees of freedom, 0.1 %


def test_all_of_a_class_can_be_drawn():
    assert_array_equal(
        np.sort(_distinct(np.random.default_rng(1), np.full(50, 6), 6), axis=1), np.tile(np.arange(6), (50, 1))
    )


def test_episodes_are_those_of_the_seed_whatever_the_embedding():
    Z, y = blobs()
    a, b = few_shot(Z, y, random_state=1, n_query=5, episodes=20), few_shot(Z @ Z.T, y, n_query=5, episodes=20)
    again, other = few_shot(Z, y, random_state=1, n_query=5, episodes=20), few_shot(Z, y, n_query=5, episodes=20)
    assert_array_equal(a.accuracy, again.accuracy)
    assert not np.array_equal(a.accuracy, other.accuracy)
    assert not np.array_equal(b.accuracy, other.accuracy)


def test_a_score_sees_the_same_episodes():
    Z, y = blobs()
    seen = []

    def nearest(support, classes, query):
        seen.append((len(support), len(query)))
        mu = np.stack([support[classes == c].mean(axis=0) for c in range(4)])
        return -((query[:, None] - mu) ** 2).sum(axis=2)

    sizes = {"n_way": 4, "k_shot": 3, "n_query": 5, "episodes": 15}
    assert_array_equal(few_shot(Z, y, **sizes, score=nearest).accuracy, few_shot(Z, y, **sizes).accuracy)
    assert seen == [(12, 20)] * 15
    images = Z.reshape(-1, 3, 1)
    flat = few_shot(images, y, **sizes, score=lambda s, c, q: nearest(s[..., 0], c, q[..., 0]))
    assert_array_equal(flat.accuracy, few_shot(Z, y, **sizes).accuracy)


def test_collapsed_embeddings_are_at_chance():
    _, y = blobs()
    assert_array_equal(few_shot(np.ones((len(y), 2)), y, n_query=5, episodes=7).accuracy, 0.2)


def test_blocks_do_not_matter():
    Z, y = blobs(d=2000, spread=0.1)
    whole = few_shot(Z, y, n_query=5, episodes=30)
    with config_context(working_memory=1):
        assert_array_equal(few_shot(Z, y, n_query=5, episodes=30).accuracy, whole.accuracy)


def test_label_names_and_unlabelled_rows():
    Z, y = blobs()
    names = np.array(list("abcdefghi"))[y]
    assert_array_equal(few_shot(Z, names, n_query=5).accuracy, few_shot(Z, y, n_query=5).accuracy)
    hidden = np.where(y == 8, -1, y)
    kept = y < 8
    with_gaps = few_shot(Z, Labels(hidden, unlabelled=-1), n_query=5)
    assert_array_equal(with_gaps.accuracy, few_shot(Z[kept], y[kept], n_query=5).accuracy)


def test_float32_and_integers():
    Z, y = blobs()
    rounded = np.round(20 * Z)
    expected = few_shot(rounded, y, n_query=5, episodes=40).accuracy
    assert_array_equal(few_shot(rounded.astype(np.int32), y, n_query=5, episodes=40).accuracy, expected)
    assert_allclose(few_shot(rounded.astype(np.float32), y, n_query=5, episodes=40).mean, expected.mean(), atol=0.005)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"n_way": 10}, "only 9 classes have k_shot \\+ n_query = 6"),
        ({"n_query": 11}, "only 0 classes"),
        ({"episodes": 0}, "episodes must be at least 1"),
        ({"k_shot": 0}, "k_shot must be at least 1"),
        ({"score": lambda s, c, q: np.zeros((len(q), 2))}, "expected \\(queries, n_way\\) = \\(25, 5\\)"),
        ({"score": lambda s, c, q: np.full((len(q), 5), np.nan)}, "NaN in episode 0"),
    ],
)
def test_errors(change, message):
    Z, y = blobs()
    with pytest.raises(ValueError, match=message):
        few_shot(Z, y, **{"n_query": 5, "episodes": 3, **change})


def test_bad_embeddings():
    Z, y = blobs()
    with pytest.raises(ValueError, match="matrix"):
        few_shot(Z[..., None], y, n_query=5)
    Z[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        few_shot(Z, y, n_query=5)
