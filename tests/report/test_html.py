"""The report page: complete, self-contained, safe with hostile names, written whole or not at all."""

from __future__ import annotations

import ast
import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import isometry.report
from isometry.eval import Interval
from isometry.probabilistic.nca import NCA
from isometry.report import views, write_report
from isometry.report.page import finite, plot
from isometry.select.heldout import refit_best
from isometry.select.result import Comparison, MethodResult
from isometry.spectral import Covariance, Euclidean
from isometry.spectral.rca import RCA
from isometry.supervision import Pairs

pytest.importorskip("plotly")

EVIL = "</script><img src=x onerror=alert(1)>&\"'<!--"


class Page(HTMLParser):
    """The page as a browser sees it: tags, text outside scripts, figures."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words, self.figures, self.urls, self._script = [], [], [], [], None
        self.feed(text)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append(tag)
        self.urls += [v for k, v in attrs.items() if k in ("src", "href")]
        if tag == "script":
            self._script = attrs.get("type", "js")

    def handle_endtag(self, tag):
        self._script = None if tag == "script" else self._script

    def handle_data(self, data):
        if self._script is None:
            self.words.append(data)
        elif self._script == "application/json":
            self.figures.append(json.loads(data))


def make_data(n_classes=3, d=6, n=90):
    rng = np.random.default_rng(0)
    codes = np.arange(n) % n_classes
    return rng.normal(size=(n_classes, d))[codes] + rng.normal(size=(n, d)), codes


def make_comparison(X, y, **changes):
    gap = Interval(0.05, 0.01, 0.09)
    rng = np.random.default_rng(1)

    def row(name, estimator, score, **more):
        values = rng.random(len(X))
        return MethodResult(
            name,
            estimator,
            Interval(score, score - 0.02, score + 0.02),
            fit_seconds=0.01,
            values=values,
            n_fits=3,
            **more,
        )

    results = [
        row("RCA", RCA(), 0.97, difference=gap, reliable="better"),
        row(
            "NCA",
            NCA(n_components=2, max_iter=9, random_state=0),
            0.95,
            difference=gap,
            reliable="unclear",
            unconverged=2,
        ),
        row("Euclidean", Euclidean(), 0.92, difference=None, reliable=""),
        row("Covariance", Covariance(), 0.91, difference=Interval(-0.01, -np.inf, np.inf), reliable="worse"),
        MethodResult(
            "Broken", RCA(), None, None, "", np.nan, np.full(len(X), np.nan), failures=["ValueError: no"], n_fits=3
        ),
    ]
    options = {
        "results": results,
        "scoring": "knn",
        "protocol": "closed",
        "n_splits": 3,
        "n_repeats": 2,
        "level": 0.95,
        "verdict": "RCA is reliably better.",
        "data": {"name": "toy", "n_samples": len(X), "n_features": X.shape[1], "n_classes": 3, "feature_names": None},
        "settings": {
            "scaler": "standard",
            "n_neighbors": 3,
            "random_state": 0,
            "seconds": 1.5,
            "versions": {"numpy": "2"},
        },
        "best": "RCA",
        "best_estimator": Pipeline([("scaler", StandardScaler()), ("learner", RCA())]).fit(X, y),
        "notes": ["folds were few"],
    }
    return Comparison(**{**options, **changes})


def read(path):
    return Page(path.read_text(encoding="utf-8"))


def test_pages_learn_nothing():
    """Reports draw what others have fitted: no module of theirs fits, copies or splits anything."""
    for path in Path(isometry.report.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = getattr(node, "attr", getattr(node, "id", None))
            assert name not in ("fit", "fit_transform", "partial_fit", "clone", "train_test_split"), (path.name, name)


def test_page_says_what_was_found(tmp_path):
    X, y = make_data()
    path = write_report(make_comparison(X, y), tmp_path / "new" / "folder", X, y)
    assert path == tmp_path / "new" / "folder" / "index.html" and os.listdir(path.parent) == ["index.html"]
    page = read(path)
    for words in [
        "RCA is reliably better.",
        "90 samples · 6 features · 3 classes · 5 metrics",
        "0.9700 [0.9500, 0.9900] +0.0500 [+0.0100, +0.0900] better 10 ms",
        "−0.0100 [−∞, +∞] worse",
        "Broken failed: ValueError: no",
        "2 of 3 fits did not converge",
        "The pictures show 27 held-out rows. For them the metrics were fitted once more, on the other 63 rows",
        "the vote of their 3 nearest neighbours",
        "3-fold cross-validation, repeated 2 times",
        "through the scaler “standard”, fitted on the training part only",
        "folds were few",
        "Computed in 1.5 s with seed 0; isometry",
    ]:
        assert words in page.text, words
    heads = [
        *("Difference to Euclidean", "The space, before and after", "What the metric looks at"),
        *("Same or different?", "Convergence", "How it was measured"),
    ]
    assert [page.text.index(h) for h in heads] == sorted(page.text.index(h) for h in heads)


def test_page_asks_for_nothing_outside_itself(tmp_path):
    X, y = make_data()
    page = read(write_report(make_comparison(X, y), tmp_path / "r.html", X, y))
    assert page.urls == ["data:,"]
    assert not {"iframe", "img", "object", "embed", "form"} & set(page.tags)
    assert page.tags.count("html") == page.tags.count("h1") == 1


def test_figures_show_the_numbers(tmp_path):
    X, y = make_data()
    comparison = make_comparison(X, y)
    figures = read(write_report(comparison, tmp_path / "r.html", X, y)).figures
    forest, *rest = figures
    assert [t["y"][0] for t in forest["data"]] == ["RCA", "NCA", "Covariance"]
    assert [t["x"][0] for t in forest["data"]] == [0.05, 0.05, -0.01]
    assert_allclose([forest["data"][0]["error_x"][k][0] for k in ("array", "arrayminus")], 0.04)
    assert forest["data"][2]["error_x"]["array"] == [None]  # an infinite interval has no bar
    assert [t["marker"]["color"] for t in forest["data"]] == [views.BETTER, views.UNCLEAR, views.WORSE]
    spaces = rest[:4]
    assert [len(f["data"][0]["x"]) for f in spaces] == [27] * 4
    heat = rest[4]["data"][0]
    assert np.shape(heat["z"]) == (6, 6) and heat["zmin"] == -heat["zmax"]
    assert_allclose(np.trace(heat["z"]), 6, rtol=1e-3)  # mean weight 1
    curves = rest[9]["data"][1:]
    assert [c["name"].split(",")[0] for c in curves] == ["Euclidean", "RCA", "NCA", "Covariance"]
    assert [t["name"] for t in rest[10]["data"]] == ["NCA"]
    assert len(rest) == 11


def test_pictures_show_rows_the_metric_was_not_fitted_on():
    X, y = make_data()
    refits = refit_best(make_comparison(X, y), X, y, max_rows=2000)
    assert [m.name for m in refits.best] == ["Euclidean", "RCA", "NCA", "Covariance"]
    from sklearn.model_selection import train_test_split

    train, test = train_test_split(np.arange(90), test_size=0.3, random_state=0, stratify=y)
    model = Pipeline([("s", StandardScaler()), ("m", RCA())]).fit(X[train], y[train])
    assert_allclose(refits.best[1].Z, model.transform(X[test]))
    assert_array_equal(refits.codes, y[test])
    assert_allclose(refits.best[1].model[-1].mahalanobis_, model[-1].mahalanobis_)


def test_open_protocol_shows_classes_never_seen(tmp_path):
    X, y = make_data(n_classes=10)
    comparison = make_comparison(X, y, protocol="open")
    refits = refit_best(comparison, X, y, max_rows=2000)
    assert len(refits.classes) == 3 and len(refits.codes) == 27 and refits.codes.max() == 2 and refits.new_classes
    page = read(write_report(comparison, tmp_path / "r.html", X, y))
    assert "27 held-out rows, of classes that the metrics never saw" in page.text


def test_scaler_and_tuned_parameters_are_those_of_the_comparison():
    X, y = make_data()
    comparison = make_comparison(X, y)
    comparison.best_estimator = Pipeline([("scaler", PCA(3)), ("learner", RCA())]).fit(X, y)
    comparison.results[0].best_params = [{"n_components": 1}, {"n_components": 2}, {"n_components": 2}]
    W = refit_best(comparison, X, y, max_rows=2000).best[1].model[-1].mahalanobis_
    assert W.shape == (3, 3) and np.linalg.matrix_rank(W) == 2


def test_metrics_that_agree_on_every_point_are_drawn_once(tmp_path):
    X, y = make_data()
    comparison = make_comparison(X, y)
    comparison.results[1].values = comparison.results[0].values.copy()
    refits = refit_best(comparison, X, y, max_rows=2000)
    assert [m.name for m in refits.best] == ["Euclidean", "RCA", "Covariance"]
    assert [m.name for m in refits.iterative] == ["NCA"]
    page = read(write_report(comparison, tmp_path / "r.html", X, y))
    assert [t["name"] for t in page.figures[-1]["data"]] == ["NCA"]  # its convergence is still drawn


def test_metric_that_fails_on_the_split_is_a_note(tmp_path):
    X, y = make_data()
    comparison = make_comparison(X, y)
    comparison.results[0].estimator = RCA(n_components=99)
    page = read(write_report(comparison, tmp_path / "r.html", X, y))
    assert "RCA could not be fitted for the pictures: ValueError: n_components=99" in page.text


@pytest.mark.parametrize("n_classes", [2, 30, 100])
def test_any_number_of_classes(n_classes, tmp_path):
    X, y = make_data(n_classes, n=300)
    comparison = make_comparison(X, y)
    page = read(write_report(comparison, tmp_path / "r.html", X, y, max_points=40))
    points = page.figures[1]["data"][0]
    assert len(points["x"]) == 40 and len(set(points["marker"]["color"])) == min(n_classes, len(views.PALETTE))
    assert "40 of 90 held-out rows" in page.text


@pytest.mark.parametrize("given", ["nothing", "pairs"])
def test_without_labels_the_fitted_metric_is_drawn(given, tmp_path):
    X, y = make_data()
    side = {} if given == "nothing" else {"X": X, "y": Pairs([0, 1], [2, 3], [True, False], n=90)}
    page = read(write_report(make_comparison(X, y), tmp_path / "r.html", **side))
    assert len(page.figures) == 2 and np.shape(page.figures[1]["data"][0]["z"]) == (6, 6)
    assert "The matrix W of RCA" in page.text and "before and after" not in page.text


def test_nothing_but_failures(tmp_path):
    X, y = make_data()
    comparison = make_comparison(X, y, best=None, best_estimator=None)
    comparison.results = comparison.results[-1:]
    page = read(write_report(comparison, tmp_path / "r.html", X, y))
    assert page.figures == [] and "No metric could be compared with Euclidean" in page.text


def test_hostile_names_stay_text(tmp_path):
    X, y = make_data()
    comparison = make_comparison(X, y)
    comparison.data |= {"name": EVIL, "feature_names": [f"{k}{EVIL}" for k in range(6)]}
    comparison.verdict, comparison.notes = f"verdict {EVIL}", [EVIL]
    comparison.results[1].name = f"NCA {EVIL}"
    comparison.results[1].warnings = [EVIL]
    comparison.results[4].failures = [EVIL]
    labels = np.array([f"{c}{EVIL}" for c in "abc"])[y]
    path = write_report(comparison, tmp_path / "r.html", X, labels)
    page = read(path)
    plain = read(write_report(make_comparison(X, y), tmp_path / "s.html", X, y))
    assert page.tags == plain.tags  # not one element more
    assert len(page.figures) == len(plain.figures)
    assert page.text.count(EVIL) >= 9
    assert "onerror" not in re.sub(
        r"&lt;img src=x onerror", "", re.sub(r"<script>.*?</script>", "", path.read_text(), flags=re.S)
    )


def test_figure_text_cannot_end_its_script():
    page = Page(plot([{"name": EVIL}], {}, 9, EVIL))
    assert page.tags == ["div", "script"] and page.figures[0]["data"] == [{"name": EVIL}]


def test_failure_leaves_the_old_page(tmp_path, monkeypatch):
    X, y = make_data()
    path = tmp_path / "r.html"
    path.write_text("old")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk on fire")))
    with pytest.raises(OSError, match="disk on fire"):
        write_report(make_comparison(X, y), path)
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["r.html"]


def test_folder_that_cannot_be_made_is_named(tmp_path):
    X, y = make_data()
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match=r"cannot make a folder for the report .*file"):
        write_report(make_comparison(X, y), tmp_path / "file" / "report")
    with pytest.raises(ValueError, match="y has 3 labels but X has 90 rows"):
        write_report(make_comparison(X, y), tmp_path / "r.html", X, [0, 1, 2])


def test_numbers_in_figures_are_finite_and_short():
    raw = {"a": np.array([1 / 3, np.inf]), "b": [np.int64(3), np.float32(np.nan), "x", None], "c": (True, 1e-9)}
    assert finite(raw) == {"a": [0.33333, None], "b": [3, None, "x", None], "c": [True, 1e-9]}


def test_estimators_of_the_comparison_stay_unfitted():
    X, y = make_data()
    comparison = make_comparison(X, y)
    refit_best(comparison, X, y, max_rows=2000)
    for r in comparison.results:
        assert vars(r.estimator).keys() == vars(clone(r.estimator)).keys()
