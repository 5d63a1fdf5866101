"""What the speed page says of how soon ours is as far as a peer."""

from __future__ import annotations

import pytest

from benchmarks.contests import Side
from benchmarks.environments import Outcome
from benchmarks.run import PACES, TIGHTER, catch_up

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
