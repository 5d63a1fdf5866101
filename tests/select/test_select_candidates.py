"""Which metrics take part, and under which names."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from isometry import GMML, NCA, RCA, Euclidean
from isometry.registry import get
from isometry.select.candidates import default_grid, resolve, tuning_grids
from isometry.supervision import Labels, Pairs

LABELS = Labels(np.arange(40) % 3)
PAIRS = Pairs([0, 1, 2], [3, 4, 5], [True, False, True], n=40)


def names(learners, side=LABELS):
    return [c.name for c in resolve(learners, side, seed=0)]


def test_the_baselines_always_come_first_and_only_once():
    assert names([]) == ["Euclidean", "Covariance"]
    assert names(["rca", Euclidean(), "covariance", RCA()]) == ["Euclidean", "Covariance", "RCA"]


def test_learners_may_be_names_estimators_pairs_and_dicts():
    mixed = ["GMML", NCA(n_components=2), ("mine", GMML(t=0.3)), PCA(3), ["RCA"]]
    expected = ["GMML", "NCA(n_components=2)", "mine", "PCA(n_components=3)", "RCA"]
    assert names(mixed)[2:] == expected
    assert names({"a": GMML(), "b": GMML(t=0.1)})[2:] == ["a", "b"]
    assert names(GMML(t=0.1))[2:] == ["GMML(t=0.1)"]
    assert names([("same", GMML()), ("same", RCA()), ("Euclidean", RCA())])[2:] == ["same", "same #2", "Euclidean #2"]


def test_all_takes_what_the_supervision_allows():
    from_labels, from_pairs = set(names("all")), set(names("all", PAIRS))
    assert {"LMNN", "NCA", "GMML", "RCA", "ITML"} <= from_labels
    assert {"GMML", "RCA", "ITML", "PCCA", "Euclidean", "Covariance"} <= from_pairs
    assert not {"NCA", "MCML", "LMNN"} & from_pairs
    assert not {"SPDGMML", "GrassmannGMML"} & from_labels  # their samples are matrices, not rows of a table


def test_groups_are_subsets_of_all():
    everything, fast, geometric = (names(g)[2:] for g in ("all", "fast", "geometric"))
    assert "GMML" in fast and "NCA" not in fast and "LMNN" not in fast
    assert set(fast) < set(everything) and set(geometric) < set(everything)
    assert all("iterative" not in get(n).traits and get(n).family != "kernel" for n in fast)
    assert all(get(n).family == "geometric" for n in geometric)
    assert names(["fast", "NCA"])[-1] == "NCA"


def test_a_learner_that_needs_no_supervision_is_not_given_one_it_cannot_read():
    uses = {c.name: c.uses_y for c in resolve(["GMML", "LMNN"], PAIRS, seed=0)}
    assert uses == {"Euclidean": True, "Covariance": False, "GMML": True, "LMNN": True}  # LMNN shall say so itself


def test_unset_seeds_are_set_on_a_copy():
    own, unset = NCA(random_state=7), NCA()
    chosen = resolve([own, unset], LABELS, seed=3)
    assert [c.estimator.random_state for c in chosen[2:]] == [7, 3]
    assert unset.random_state is None


@pytest.mark.parametrize(
    ("learners", "error", "message"),
    [
        ("LMNNN", ValueError, "no method called 'LMNNN'; did you mean .*LMNN"),
        ([GMML], TypeError, r"write GMML\(\)"),
        ([3], TypeError, "a learner is a name, or an estimator with fit and transform, but 3 is neither"),
    ],
)
def test_what_is_no_learner_is_refused(learners, error, message):
    with pytest.raises(error, match=message):
        resolve(learners, LABELS, seed=0)


def test_default_grids_hold_the_default_itself():
    grid = default_grid(GMML(reg=0.1), n_features=12)
    assert grid["reg"] == [0.01, 0.1, 1.0] and grid["t"] == [0.25, 0.5, 0.75]
    assert default_grid(NCA(), 12)["n_components"] == [None, 3, 6]
    assert default_grid(NCA(), 1)["n_components"] == [None]
    assert default_grid(Euclidean(), 12) == {}


def test_grids_are_checked_against_the_candidates():
    candidates = resolve(["GMML"], LABELS, seed=0)
    assert tuning_grids(None, candidates, 4) == {}
    assert tuning_grids({"GMML": {"t": (0.2, 0.4)}}, candidates, 4) == {"GMML": {"t": [0.2, 0.4]}}
    for tune, message in (
        ({"NCA": {"reg": [1]}}, "tune names 'NCA', which is not among the candidates: Euclidean, Covariance, GMML"),
        ({"GMML": {"tea": [1]}}, "GMML has no parameter 'tea'"),
        (3, "tune=3 must be None, 'default', or a dict"),
    ):
        with pytest.raises(ValueError, match=message):
            tuning_grids(tune, candidates, 4)


def test_linear_heads_stand_beside_the_default_candidates_of_the_open_protocol():
    pytest.importorskip("torch")
    heads = [c for c in resolve("default", LABELS, 0, "open") if c.name.startswith("linear head")]
    assert [c.name for c in heads] == ["linear head, ProxyNCAPlusPlus", "linear head, SoftTriple"]
    assert {c.estimator.n_components for c in resolve("default", LABELS, 0, "open", 40) if c in heads} <= {40}
    assert all(c.uses_y and c.estimator.random_state == 0 for c in heads)
    for learners, side, protocol in (
        ("default", LABELS, "closed"),
        ("all", LABELS, "open"),
        ("default", PAIRS, "open"),
    ):
        assert not [c for c in resolve(learners, side, 0, protocol) if c.name.startswith("linear head")]


def test_a_network_can_be_stopped():
    pytest.importorskip("torch")
    from isometry.core.progress import OutOfTime, time_limit
    from isometry.deep import DeepMetric

    steps = []

    def over():
        steps.append(1)
        return len(steps) == 3

    X = np.random.default_rng(0).normal(size=(40, 5))
    with time_limit(over), pytest.raises(OutOfTime):
        DeepMetric("linear", n_components=2).fit(X, np.arange(40) % 4)
    assert len(steps) == 3
