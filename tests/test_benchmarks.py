"""What the pages of measurements say: how soon ours is as far as a peer, and where it is slower or worse."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.contests import Side, lsml_loss
from benchmarks.environments import Job, Outcome, measure_series
from benchmarks.large import EVALUATED, THREADED, bound, with_sections
from benchmarks.peers import CALLS
from benchmarks.run import PACES, TIGHTER, catch_up, with_tables
from benchmarks.shared_learners import Data, Row, Shared, draw_quadruplets, learners, summary
from isometry import LSML, Quadruplets

OURS, PEER = Side("ours", "isometry", "LMNN", {"n_neighbors": 3}), Side("peer", "peer", "LMNN")


def lines(figure, reached, theirs, value_of):
    """What is said, and the parameters that were tried, if ``value_of`` them is what a fit reaches."""
    tried = []

    def run(side):
        tried.append(side.params)
        return Outcome(cpu=0.5, figures={figure: value_of(side.params)})

    rivals = [(OURS, Outcome(cpu=2.0), reached), (PEER, Outcome(cpu=10.0), theirs)]
    return list(catch_up(rivals, figure, run, lambda outcome: outcome.figures)), tried


@pytest.mark.parametrize("figure, sign", [("loss ↓", 1), ("share ↑", -1)])
def test_the_first_pace_that_is_no_worse_is_told(figure, sign):
    told, tried = lines(figure, 0.0, sign * 0.1, lambda params: sign / params["max_iter"])  # 1/12 is the first
    assert [p["max_iter"] for p in tried] == [3, 5, 8, 12] and all(p["n_neighbors"] == 3 for p in tried)
    assert told == [
        f"ours with max_iter=12: {figure.split()[0]} {sign / 12:.6g} in 0.5 s, peer {sign * 0.1:.6g}; "
        "ratio of time **20 ×**"
    ]


def test_a_better_peer_is_met_by_a_tighter_tolerance():
    told, tried = lines("loss ↓", 1.0, 0.2, lambda params: 0.1 if params["tol"] <= 1e-5 else 0.3)
    assert [p["tol"] for p in tried] == [1e-4, 1e-5]
    assert "tol=1e-05" in told[0] and told[0].endswith("**20 ×**")


def test_what_is_never_reached_is_said():
    told, tried = lines("loss ↓", 1.0, 0.2, lambda params: 0.3)
    assert len(tried) == len(TIGHTER)
    assert told[0].startswith("ours with defaults: loss 1 in 2 s") and told[0].endswith("**5 ×**, **not as far**")


def test_a_late_arrival_counts_with_its_defaults():
    told, tried = lines("loss ↓", 0.1, 0.2, lambda params: 1.0)
    assert len(tried) == len(PACES)
    assert told[0].startswith("ours with defaults: loss 0.1 in 2 s") and told[0].endswith("**5 ×**")


# ------------------------------------------------------------------------------------------------ parts of the page


def test_tables_measured_again_take_the_place_of_the_old_ones():
    page = "# Page\n\n### A: x\n\nold\n\n### B: y\n\nkept\n\n## Next\n\ntext\n"
    new = with_tables(page, ["", "### A: x", "", "new"])
    assert new == page.replace("old", "new")
    assert with_tables(new, ["### A: x", "", "old"]) == page
    for there, n in ((page, 0), (page + "\n### C: z\n\na\n\n### C: z\n\nb\n", 2)):
        with pytest.raises(ValueError, match=f"{n} tables '### C: z'"):
            with_tables(there, ["### C: z", "", "new"])


def test_a_section_is_replaced_with_its_command_and_a_new_one_goes_to_the_end():
    page = "# Page\n\n## A\n\nold\n\n### inside\n\nold\n\n## B\n\nkept\n"
    new = with_sections(page, ["## A", "", "new", "", "## C", "", "more"], "By `x`.")
    assert new == "# Page\n\n## A\n\nBy `x`.\n\nnew\n\n## B\n\nkept\n\n## C\n\nBy `x`.\n\nmore\n"


def test_what_bounds_a_time_are_products_and_traffic_at_the_speed_of_the_machine():
    told = bound("M", 2.0, 100.0, 4.0, {"gflops": 100.0, "gbs": 8.0})
    assert told == "| M | 2.000 | 100 | 50 | 50% | 4.0 | 1.500 | 75% |"


@pytest.mark.parametrize("name", EVALUATED)
def test_an_evaluation_of_every_bounded_method_runs(name):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 15)
    X = (rng.standard_normal((60, 45)) + y[:, None]).astype(np.float32)
    assert np.isfinite(CALLS["isometry_steps"](X, y, name=name, times=2)()["value"])


# ------------------------------------------------------------------------------------------------ shared learners


def beside(seconds, their_seconds, values=(1.0, 1.0), failure="", figure="lsml"):
    shared = Shared(OURS, (PEER,), OURS, figure)
    row = Row("wine", shared, PEER, Outcome(cpu=seconds), Outcome(cpu=their_seconds, failure=failure), limit=5.0)
    row.values, row.euclidean, row.default = values, 2.0, Outcome(cpu=2 * seconds)
    return row


def test_what_is_too_slow_or_worse_is_named():
    told = "\n".join(
        summary(
            [
                beside(0.1, 2.0),
                beside(1.0, 2.0),  # twice as fast
                beside(0.9, 0.1),  # below a second: nobody waits for it
                beside(0.5, float("nan"), (float("nan"),) * 2, "more than 5 CPU s"),
                beside(0.1, 2.0, (1.5, 1.0)),
                beside(0.1, 2.0, (1.0000009, 1.0)),
            ]
        )
    )
    assert "5 fits took a peer more than 1 s; ours was at least 5 times faster in 4 of them, 2 times at least." in told
    assert "  - wine: ours beside peer, 2 times" in told
    assert "By default, which chooses the strength as well, it was so in 4 of them." in told
    assert "5 objectives are shared; ours is no worse in 4 of them" in told
    assert "  - wine: ours beside peer: 1.5 against 1\n" in told and "0 by default and 1 of theirs failed" in told


def test_quadruplets_and_what_lsml_minimises():
    y = np.repeat([0, 1, 2], 20)
    a, b, c, d = draw_quadruplets(y, 50).T
    assert len(a) == 50 and (y[a] == y[b]).all() and (y[c] != y[d]).all() and (a != b).all()
    X = np.random.default_rng(0).standard_normal((60, 3))
    learner, prior = LSML(gamma=1.0, prior=np.eye(3), tol=1e-8, strength=1.0), np.eye(3)
    found = learner.fit(X, Quadruplets(a, b, c, d, n_samples=60)).components_
    arrays = {"quadruplets": np.stack([a, b, c, d], axis=1)}
    best = lsml_loss(found, X, y, arrays)
    for k in range(5):  # a minimum of the figure by which maps are judged
        step = 0.01 * np.random.default_rng(k).standard_normal((3, 3))
        assert best < min(lsml_loss(found + step, X, y, arrays), lsml_loss(prior, X, y, arrays))


def test_rows_held_out_and_classes_of_one():
    X, y = np.random.default_rng(0).standard_normal((63, 2)), np.append(np.repeat([5, 7], 30), [8, 9, 10])
    data = Data.split("t", X, y)
    assert len(data.X) + len(data.X_test) == 63 and set(data.y_test) == {0, 1} and {2, 3, 4} <= set(data.y)
    np.testing.assert_allclose(data.X.mean(axis=0), 0, atol=1e-12)
    assert data.accuracy(Outcome(L=np.eye(2))) == data.accuracy(Outcome(L=3 * np.eye(2)))


def test_every_learner_of_the_peers_takes_part():
    """Of metric-learn 0.7.0 and pyDML 0.1.0; what draws constraints from labels is the learner of these constraints."""
    metric_learn = "Covariance ITML LFDA LMNN LSML MLKR MMC NCA RCA SCML SDML"
    pydml = (
        "ANMM Covariance DMLMJ DML_eig ITML KANMM KDA KDMLMJ KLLDA KLMNN LDA LDML LLDA LMNN LSI MCML NCA NCMC NCMML PCA"
    )
    sides = [side for one in learners((1.0, 2.0), 5) for side in one.theirs]
    for environment, names in (("metric-learn", metric_learn), ("pydml", pydml)):
        there = {s.params["name"].removesuffix("_Supervised") for s in sides if s.environment == environment}
        assert there == set(names.split())


def test_ours_stands_there_as_published_and_by_default():
    for one in learners((1.0, 2.0), 5):
        assert one.default.params["name"] == one.mine.params["name"] and one.default.call == one.mine.call
        assert not {"reg", "strength", "tol", "max_iter", "init"} & set(one.default.params)


def test_every_call_is_known():
    shared = [side for one in learners((1.0, 2.0), 5) for side in (one.mine, one.default, *one.theirs)]
    assert {side.call for side in shared} | {call for call, _, _ in THREADED.values()} <= set(CALLS)


def test_a_series_goes_on_after_an_error(tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "X.npy", rng.standard_normal((30, 2)))
    np.save(tmp_path / "y.npy", np.repeat([0, 1, 2], 10))
    jobs = [Job("isometry", {"name": name, "reg": 0.1}) for name in ("RCA", "Nothing", "Covariance")]
    first, failed, last = measure_series("isometry", jobs, tmp_path, limits=[60, 60, 60])
    assert first.L.shape == last.L.shape == (2, 2) and not first.failure and not last.failure
    assert failed.failure.startswith("AttributeError") and failed.L is None
