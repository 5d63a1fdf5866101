"""Which differences count, and what is said about them."""

from itertools import product
from math import comb

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from isometry.eval import Interval
from isometry.select.result import Comparison, MethodResult
from isometry.select.verdict import holm, p_value, write_verdict


def test_with_many_differing_points_p_is_that_of_the_t_test():
    gain = np.random.default_rng(0).normal(0.1, 1, size=300)
    assert_allclose(p_value(gain), stats.ttest_1samp(gain, 0).pvalue, rtol=1e-9)


@pytest.mark.parametrize(("won", "lost"), [(5, 0), (6, 1), (0, 4), (7, 2), (10, 2)])
def test_with_few_changed_hits_p_is_that_of_mcnemar(won, lost):
    """In 150 points only a few differ: the exact binomial test of the discordant ones, which t would understate."""
    gain = np.r_[np.ones(won), -np.ones(lost), np.zeros(150 - won - lost)]
    m, extreme = won + lost, max(won, lost)
    exact = min(1.0, 2 * sum(comb(m, k) for k in range(extreme, m + 1)) / 2**m)
    assert stats.ttest_1samp(gain, 0).pvalue < exact
    assert_allclose(p_value(gain), exact, rtol=1e-9)


def test_groups_are_flipped_as_a_whole():
    r = np.random.default_rng(1)
    groups = np.repeat(np.arange(8), 5)
    gain = r.normal(0.6, 0.3, size=40) + np.repeat(r.normal(size=8), 5)
    sums = [gain[groups == g].sum() for g in range(8)]
    flips = [abs(np.dot(signs, sums)) >= abs(sum(sums)) - 1e-9 for signs in product([-1, 1], repeat=8)]
    assert_allclose(p_value(gain, groups), max(np.mean(flips), stats.ttest_1samp(sums, 0).pvalue), rtol=1e-9)


def test_sampled_flips_agree_with_the_exact_share():
    gain = np.r_[np.ones(13), -np.ones(4), np.zeros(30)]
    exact = 2 * sum(comb(17, k) for k in range(13, 18)) / 2**17
    assert_allclose(p_value(gain), exact, atol=0.006)


@pytest.mark.parametrize(("gain", "groups"), [(np.zeros(20), None), (np.ones(1), None), (np.ones(9), np.zeros(9))])
def test_no_difference_or_no_second_group_is_no_evidence(gain, groups):
    assert p_value(gain, groups) == 1


def test_gains_that_are_all_equal_are_judged_by_their_number():
    assert_allclose(p_value(np.full(6, 0.5)), 2 / 2**6)


def test_holm_steps_down():
    assert holm([0.01, 0.04, 0.03, 0.005], 0.05).tolist() == [True, False, False, True]
    assert holm([0.02, 0.024], 0.05).tolist() == [True, True]  # Bonferroni too rejects both
    assert holm([0.02, 0.049], 0.05).tolist() == [True, True]  # Bonferroni keeps the second
    assert holm([0.03, 0.04], 0.05).tolist() == [False, False]
    assert holm([], 0.05).tolist() == []


def test_false_alarms_among_many_null_metrics_stay_at_the_level():
    r = np.random.default_rng(2)
    alarms = [holm([p_value(g) for g in r.normal(size=(5, 40))], 0.05).any() for _ in range(60)]
    assert np.mean(alarms) <= 0.12  # without the correction it is one in five


def result(name, score, difference=None, reliable="", n=150, failures=()):
    interval = None if score is None else Interval(score, score - 0.02, score + 0.02)
    return MethodResult(
        name, None, interval, difference, reliable, 0.1, np.ones(n), list(failures), n_fits=5, n_planned=5
    )


def test_verdict_names_the_winner_its_gain_and_the_points():
    results = [
        result("NCA", 0.98, Interval(0.05, -0.01, 0.11), "unclear"),
        result("LMNN", 0.97, Interval(0.04, 0.021, 0.059), "better"),
        result("GMML", 0.96, Interval(0.03, 0.01, 0.05), "better"),
        result("Euclidean", 0.93),
        result("MCML", None, failures=["ValueError: no"]),
    ]
    assert write_verdict(results, "LMNN", "accuracy", 0.95) == (
        "LMNN is reliably better than Euclidean: +4.0 points of accuracy (95 % interval +2.1 to +5.9), 0.9700 against "
        "0.9300 over 150 held-out points. So is GMML, with no higher score. NCA scored higher still, but not reliably "
        "better than Euclidean. MCML failed."
    )


def test_verdict_when_nothing_is_reliably_better():
    euclidean = result("Euclidean", 0.93)
    chance = [result("NCA", 0.94, Interval(0.01, -0.01, 0.03), "unclear"), euclidean]
    assert write_verdict(chance, None, "MAP@R", 0.9) == (
        "No metric is reliably better than Euclidean here: the highest score, of NCA, is +1.0 points of MAP@R (90 % "
        "interval −1.0 to +3.0) against Euclidean over 150 held-out points, within chance."
    )
    many = [result(f"M{i}", 0.95, Interval(0.02, 0.001, 0.039), "unclear") for i in range(9)]
    assert "not enough for the best of 9 that were tried" in write_verdict([*many, euclidean], None, "AUC", 0.95)
    below = [euclidean, result("NCA", 0.9, Interval(-0.03, -0.05, -0.01), "worse")]
    assert "none scores higher on the same points. The next, NCA, is −3.0 points" in write_verdict(
        below, None, "AUC", 0.95
    )
    kept = [euclidean, *(result(name, 0.93, Interval(0.0, 0.0, 0.0), "unclear") for name in ("RCA", "GMML"))]
    assert "the same 150 held-out points. RCA and GMML agree with it on every one: a metric whose" in write_verdict(
        kept, None, "accuracy", 0.95
    )
    assert write_verdict([euclidean], None, "AUC", 0.95).endswith("no other metric could be scored.")


def test_verdict_says_when_the_unsupervised_baseline_wins():
    results = [result("Covariance", 0.97, Interval(0.04, 0.02, 0.06), "better"), result("Euclidean", 0.93)]
    text = write_verdict(results, "Covariance", "accuracy", 0.95)
    assert text.startswith("Covariance is reliably better")
    assert "The supervision sets its strength alone" in text


def test_a_mark_that_seems_to_contradict_its_interval_is_explained():
    alone = result("NCA", 0.95, Interval(-0.0029, -0.0053, -0.0005), "unclear")
    clear = result("RCA", 0.95, Interval(0.0, -0.01, 0.01), "unclear")
    assert alone.only_alone and not clear.only_alone
    assert not result("LMNN", 0.97, Interval(0.04, 0.02, 0.06), "better").only_alone
    found = Comparison([result("Euclidean", 0.95), clear, alone], "knn", "closed", 5, 1, 0.95, "", {}, {})
    lines = str(found).splitlines()
    assert [line.endswith("‡") for line in lines if line.startswith(("NCA", "RCA"))] == [False, True]
    assert "the mark allows for the 2 that were tried" in str(found)
    found.results.pop()
    assert "‡" not in str(found)
