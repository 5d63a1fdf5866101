"""Pictures of the page: coordinates that mean what they should."""

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose

from isometry.eval import Interval
from isometry.report import svg, views
from isometry.report.page import interval_axis

RNG = np.random.default_rng(0)


def points_of(text):
    """(x, y) of the dots, class by class."""
    return [
        np.array(re.findall(r"M([\d.]+) ([\d.]+)h0", d), dtype=float) for d in re.findall(r'<path d="([^"]*)"', text)
    ]


def test_points_keep_their_proportions():
    at, codes = RNG.normal(size=(50, 2)), np.arange(50) % 3
    drawn = np.concatenate(points_of(svg.scatter(at, codes, ["a", "b", "c"], "points")))
    order = np.argsort(codes, kind="stable")
    inside = (drawn.min(axis=1) > 7) & (drawn[:, 0] < svg.WIDTH - 7) & (drawn[:, 1] < 313)
    a, b = at[order][inside], drawn[inside]
    scale = np.ptp(b[:, 0]) / np.ptp(a[:, 0])
    assert inside.sum() > 40
    assert_allclose(b - b[0], (a - a[0]) * [scale, -scale], atol=0.3)  # a tenth of a unit is the rounding


def test_one_outlier_does_not_press_the_others_together():
    at = np.vstack([RNG.normal(size=(200, 2)), [[1e6, 0.0]]])
    low, high = svg.robust_range(at)
    assert (high - low).max() < 10
    drawn = np.concatenate(points_of(svg.scatter(at, np.zeros(201, dtype=int), ["a"], "points")))
    assert np.ptp(drawn[:200, 1]) > 150 and drawn[200, 0] == svg.WIDTH - 6


@pytest.mark.parametrize("at", [np.zeros((5, 2)), np.array([[0.0, 0.0], [1.0, 0.0]])])
def test_points_on_a_line_or_in_one_place(at):
    drawn = np.concatenate(points_of(svg.scatter(at, np.zeros(len(at), dtype=int), ["a"], "points")))
    assert len(drawn) == len(at) and np.isfinite(drawn).all()


def test_classes_differ_in_colour_or_shape():
    text = svg.scatter(RNG.normal(size=(64, 2)), np.arange(64) % 32, [f"c{k}" for k in range(32)], "points")
    kinds = re.findall(r'stroke="(.*?)" stroke-width="(.*?)" stroke-linecap="(.*?)"', text)
    assert len(set(kinds)) == 32 and re.findall(r"<title>(.*?)</title>", text) == [f"c{k}" for k in range(32)]


def test_intervals_lie_on_one_axis():
    values = [Interval(0.05, 0.01, 0.09), Interval(-0.01, -np.inf, np.inf)]
    axis = interval_axis(values, zero=True)
    assert axis == (-0.01, 0.09)
    text = svg.strip(*values[0], "red", axis, "text")
    zero, start, end = (float(re.search(p, text)[1]) for p in (r'd="M([\d.]+) 0V', r'd="M([\d.]+) 9H', r"9H([\d.]+)"))
    assert_allclose([zero, start, end], [4 + 192 * 0.1, 4 + 192 * 0.2, 196], atol=0.06)
    wild = svg.strip(*values[1], "red", axis, "text")
    assert 'd="M4 9H196"' in wild
    assert interval_axis([], zero=True) == (-1.0, 1.0)


def test_curves_and_ticks():
    line = svg.Line("x < y", np.array([0.0, 0.5, 1.0, np.nan]), np.array([0.0, 1.0, 0.5, 3.0]), "red")
    text = svg.lines([line], "label", x="x", y="y", x_range=(0, 1), y_range=(0, 1))
    points = np.array(re.search(r'points="(.*?)"', text)[1].replace(",", " ").split(), dtype=float).reshape(-1, 2)
    assert_allclose(points, [[46, 240], [248, 10], [450, 125]], atol=0.06)
    assert "x &lt; y" in text and "x < y" not in text
    assert re.findall(r'text-anchor="end">(.*?)<', text) == ["0", "0.2", "0.4", "0.6", "0.8", "1"]
    assert svg.lines([line._replace(x=np.full(4, np.nan))], "label", x="x", y="y") == ""
    logs = svg.lines([svg.Line("", np.array([1.0, 10, 100]), np.ones(3), "red")], "l", x="x", y="y", log_x=True)
    assert re.findall(r'text-anchor="middle">(\d+)<', logs) == ["1", "10", "100"]


def test_densities_have_the_right_area():
    edges, same, different = views.densities(np.array([1.0, 1.0, 2.0, 3.0]), np.array([True, True, False, False]))
    text = svg.histogram(edges, same, different, "label")
    areas = []
    for shape in re.findall(r'points="(.*?)"', text):
        x, y = np.array([p.split(",") for p in shape.split()], dtype=float).T
        areas.append(abs(np.sum(x * np.roll(y, -1) - np.roll(x, -1) * y)) / 2)
    assert_allclose(areas[0], areas[1], rtol=0.02)


def test_the_discriminant_plane_sets_classes_apart():
    codes = np.arange(300) % 3
    Z = np.hstack([np.eye(3)[codes] * 3 + RNG.normal(size=(300, 3)), 50 * RNG.normal(size=(300, 4))])

    def ratio(P):
        means = np.stack([P[codes == c].mean(axis=0) for c in range(3)])
        return np.trace(np.cov(means.T)) / np.trace(np.cov((P - means[codes]).T))

    assert ratio(views.discriminant_plane(Z, codes)) > 50 * ratio(views.planar(Z))
    assert views.discriminant_plane(Z[:, :1], codes).shape == (300, 2)
    noise = np.random.default_rng(1).normal(size=(300, 400))  # classes that mean nothing stay mixed in many directions
    assert ratio(views.discriminant_plane(noise, codes)) < 1
    assert np.isfinite(views.discriminant_plane(np.zeros((6, 3)), np.arange(6) % 2)).all()
    assert np.isfinite(views.discriminant_plane(Z[:4], codes[:4])).all()
