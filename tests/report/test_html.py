"""The report page: complete, self-contained, safe with hostile names, written whole or not at all."""

from __future__ import annotations

import ast
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
from isometry.report import write_report
from isometry.select.heldout import refit_best
from isometry.select.result import Comparison, MethodResult
from isometry.spectral import Covariance, Euclidean
from isometry.spectral.rca import RCA
from isometry.supervision import Pairs

EVIL = "</script><img src=x onerror=alert(1)>&\"'<!--"


class Page(HTMLParser):
    """The page as a browser sees it: tags, text, images by their labels, and what it would ask for."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words, self.urls, self.links, self.labels, self.attributes = [], [], [], [], [], []
        self.feed(text)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append(tag)
        self.attributes += attrs
        self.urls += [v for k, v in attrs.items() if k == "src" or (k == "href" and tag != "a")]
        self.links += [attrs["href"]] if tag == "a" else []
        self.labels += [attrs["aria-label"]] if tag == "svg" else []

    def handle_data(self, data):
        self.words.append(data)


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
        "best_name": "RCA",
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
        "RCA better +0.0500 [+0.0100, +0.0900] +0.0500 [+0.0100, +0.0900] 0.9700 [0.9500, 0.9900] 10 ms",
        "worse −0.0100 [−∞, +∞]",
        "NCA unclear ‡",
        "the mark allows for the 3 that were tried",
        "The metric to use is RCA: reliably better than Euclidean.",
        'isometry.load("metric.safetensors")',
        "Relevant component analysis",
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
        *("Difference to Euclidean", "What next", "The space, before and after", "What the metric looks at"),
        *("Class by class", "What is near what", "Same or different?", "Convergence", "The methods"),
        "How it was measured",
    ]
    assert [page.text.index(h) for h in heads] == sorted(page.text.index(h) for h in heads)


def test_page_asks_for_nothing_outside_itself(tmp_path):
    X, y = make_data()
    page = read(write_report(make_comparison(X, y), tmp_path / "r.html", X, y))
    assert page.urls == ["data:,"]
    assert not {"iframe", "img", "object", "embed", "form", "script", "use", "image"} & set(page.tags)
    assert page.links and all(link.startswith("https://scholar.google.com/scholar?q=") for link in page.links)
    assert page.tags.count("html") == page.tags.count("h1") == 1


def test_figures_are_there_and_small(tmp_path):
    X, y = make_data()
    comparison = make_comparison(X, y)
    path = write_report(comparison, tmp_path / "r.html", X, y, command="isometry compare toy.csv -y kind")
    page = read(path)
    assert path.stat().st_size < 150_000
    strips = [label for label in page.labels if label.startswith(("+", "−"))]
    assert strips == ["+0.0500 [+0.0100, +0.0900]"] * 2 + ["−0.0100 [−∞, +∞]"]
    spaces = [label for label in page.labels if label.startswith("Held-out points")]
    views_ = ("widest view", "discriminant view")
    names = ["Euclidean", "RCA", "NCA", "Covariance"]
    assert spaces == [f"Held-out points under {name}, {view}" for name in names for view in views_]
    rest = [label for label in page.labels if label not in strips + spaces]
    assert rest == [
        "Matrix of RCA",
        *(f"Distances of same and different pairs under {name}" for name in names),
        "ROC curves of the pictured metrics",
        "Precision and recall of RCA",
        "Convergence of iterative metrics",
    ]
    assert "isometry compare toy.csv -y kind --save metric.safetensors" in page.text


@pytest.mark.parametrize("option", ["--save 'my best.safetensors'", "--save='my best.safetensors'"])
def test_what_was_saved_already_is_used_under_its_name(option, tmp_path):
    X, y = make_data()
    command = f"isometry compare toy.csv -y kind {option}"
    page = Page(write_report(make_comparison(X, y), tmp_path, command=command).read_text(encoding="utf-8"))
    assert page.text.count(command) == 1  # it need not be typed again
    assert "isometry transform 'my best.safetensors' new.csv" in page.text
    assert 'isometry.load("my best.safetensors")' in page.text and "metric.safetensors" not in page.text


def test_importance_bars_are_the_weights(tmp_path):
    X, y = make_data()
    comparison = make_comparison(X, y)
    comparison.data["feature_names"] = list("abcdef")
    text = write_report(comparison, tmp_path / "r.html", X, y).read_text()
    W = refit_best(comparison, X, y, 2000).best[1].model[-1].mahalanobis_
    weights = np.diag(W) / np.diag(W).mean()
    found = re.findall(r'<th>([a-f])</th><td class="bars"><i style="width:([\d.]+)%"></i></td><td>([\d.]+)</td>', text)
    order = np.argsort(-weights)
    assert [name for name, _, _ in found] == ["abcdef"[k] for k in order]
    assert_allclose([float(width) for _, width, _ in found], 100 * weights[order] / weights.max(), atol=0.06)
    assert_allclose([float(shown) for _, _, shown in found], weights[order], atol=0.006)
    assert "Columns: a, b, c, d, e, f." in text


def test_class_by_class_is_the_mean_over_the_class(tmp_path):
    X, y = make_data()
    comparison = make_comparison(X, y)
    text = write_report(comparison, tmp_path / "r.html", X, np.array(["u", "v", "w"])[y]).read_text()
    for c, name in enumerate("uvw"):
        before, after = (comparison[m].values[y == c].mean() for m in ("Euclidean", "RCA"))
        assert f"<th>{name}</th><td>30</td><td>{before:.3f}</td><td>{after:.3f}</td>" in text


def test_neighbours_are_those_of_the_maps(tmp_path):
    X, y = make_data()
    comparison = make_comparison(X, y)
    text = write_report(comparison, tmp_path / "r.html", X, y).read_text()
    refits = refit_best(comparison, X, y, 2000)
    rows = re.findall(
        r"<tr><th>row (\d+): (\d)</th><td class=\"text\">(.*?)</td><td class=\"text\">(.*?)</td></tr>", text
    )
    assert len(rows) == 6
    for number, label, *cells in rows:
        q = int(np.flatnonzero(refits.rows == int(number))[0])
        assert int(label) == y[int(number)]
        for found, cell in zip(refits.best[:2], cells, strict=True):
            order = np.argsort(np.linalg.norm(found.Z - found.Z[q], axis=1), kind="stable")
            nearest = [r for r in order if r != q][:4]
            assert [int(n) for n in re.findall(r"\((\d+)\)", cell)] == [refits.rows[r] for r in nearest]
            kinds = re.findall(r'class="(right|wrong)"', cell)
            assert kinds == ["right" if refits.codes[r] == refits.codes[q] else "wrong" for r in nearest]


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
    assert "RCA = NCA" in page.text
    assert page.labels[-1] == "Convergence of iterative metrics"  # it is still drawn


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
    assert "40 of 90 held-out rows" in page.text


@pytest.mark.parametrize("given", ["nothing", "pairs"])
def test_without_labels_the_fitted_metric_is_drawn(given, tmp_path):
    X, y = make_data()
    side = {} if given == "nothing" else {"X": X, "y": Pairs([0, 1], [2, 3], [True, False], n=90)}
    page = read(write_report(make_comparison(X, y), tmp_path / "r.html", **side))
    assert [label for label in page.labels if not label.startswith(("+", "−"))] == ["Matrix of RCA"]
    assert "in the distance of RCA" in page.text and "before and after" not in page.text


def test_nothing_but_failures(tmp_path):
    X, y = make_data()
    comparison = make_comparison(X, y, best=None, best_estimator=None)
    comparison.results = comparison.results[-1:]
    page = read(write_report(comparison, tmp_path / "r.html", X, y))
    assert page.labels == [] and "No metric could be compared with Euclidean" in page.text


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
    harmless = make_comparison(X, y)
    harmless.data["feature_names"] = list("abcdef")
    harmless.results[1].name = "NCA of mine"
    plain = read(write_report(harmless, tmp_path / "s.html", X, y))
    assert page.tags == plain.tags  # not one element more
    assert len(page.labels) == len(plain.labels) and set(page.attributes) == set(plain.attributes)
    assert page.text.count(EVIL) >= 9
    assert "onerror" not in path.read_text().replace("&lt;img src=x onerror", "")


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


def test_estimators_of_the_comparison_stay_unfitted():
    X, y = make_data()
    comparison = make_comparison(X, y)
    refit_best(comparison, X, y, max_rows=2000)
    for r in comparison.results:
        assert vars(r.estimator).keys() == vars(clone(r.estimator)).keys()
