"""Every line of the pages for those who come from other libraries runs."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import isometry
from tests.conftest import make_blobs

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = ("coming_from_metric_learn.md", "coming_from_pydml.md", "coming_from_sklearn.md")
SENTENCES = "coming_from_sentence_transformers.md"
# what a page must not leave out
THEIRS = {
    "coming_from_metric_learn.md": (
        *("Covariance", "LMNN", "NCA", "LFDA", "MLKR", "RCA", "RCA_Supervised", "ITML", "ITML_Supervised", "MMC"),
        *(
            "MMC_Supervised",
            "SDML",
            "SDML_Supervised",
            "LSML",
            "LSML_Supervised",
            "SCML",
            "SCML_Supervised",
            "pair_distance",
            "pair_score",
        ),
        *("score_pairs", "get_metric", "get_mahalanobis_matrix", "predict", "decision_function", "set_threshold"),
        *("calibrate_threshold", "positive_negative_pairs", "generate_knntriplets", "chunks", "preprocessor"),
        "NeighborhoodComponentsAnalysis",
    ),
    "coming_from_pydml.md": (
        *("PCA", "LDA", "LLDA", "ANMM", "LMNN", "NCA", "NCMML", "NCMC", "ITML", "DMLMJ", "MCML", "LSI", "DML_eig"),
        *(
            "LDML",
            "GMML",
            "Covariance",
            "Euclidean",
            "Metric",
            "Transformer",
            "KDA",
            "KLLDA",
            "KANMM",
            "KDMLMJ",
            "KLMNN",
        ),
        *("metric()", "transformer()", "transform()", "metadata()", "kNN", "NCMC_Classifier", "MultiDML_kNN", "tune"),
        "dml_plot",
    ),
    "coming_from_sklearn.md": (
        *(
            "NeighborhoodComponentsAnalysis",
            "n_components",
            "init",
            "max_iter",
            "random_state",
            "verbose",
            "warm_start",
        ),
        *("callback", "components_", "n_iter_", "LinearDiscriminantAnalysis", "PCA", "CCA", "DistanceMetric", "joblib"),
    ),
    SENTENCES: (
        *(
            "MultipleNegativesRankingLoss",
            "MultipleNegativesSymmetricRankingLoss",
            "CachedMultipleNegativesRankingLoss",
        ),
        *("GISTEmbedLoss", "MegaBatchMarginLoss", "CosineSimilarityLoss", "CoSENTLoss", "AnglELoss", "ContrastiveLoss"),
        *("TripletLoss", "BatchAllTripletLoss", "BatchHardTripletLoss", "BatchSemiHardTripletLoss", "MarginMSELoss"),
        *("DistillKLDivLoss", "MSELoss", "MatryoshkaLoss", "SoftmaxLoss", "NO_DUPLICATES", "GROUP_BY_LABEL"),
    ),
}


def lines(page):
    """(left, code) of every row of the tables of a page."""
    found = []
    for line in (DOCS / page).read_text().splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 3 and cells[0] not in ("there", "---"):
            found.append((cells[0], re.search(r"`(.*)`", cells[1]).group(1).replace("\\|", "|")))
    return found


@pytest.fixture(scope="module")
def names():
    X, y = make_blobs()
    rng = np.random.RandomState(0)
    pairs = isometry.RandomPairs(60).draw(X, isometry.Labels(y), rng)
    triplets = isometry.RandomComparisons(60).draw(X, isometry.Labels(y), rng)
    quadruplets = isometry.RandomComparisons(60, anchored=False).draw(X, isometry.Labels(y), rng)
    T, signs = pairs.tuples(X)
    known = {name: getattr(isometry, name) for name in isometry.__all__}
    sklearn = {"make_pipeline": make_pipeline, "StandardScaler": StandardScaler, "GridSearchCV": GridSearchCV}
    return {
        **known,
        **sklearn,
        "KNeighborsClassifier": KNeighborsClassifier,
        "isometry": isometry,
        "np": np,
        "X": X,
        "y": y,
        "t": X[:, 0],
        "T": T,
        "signs": signs,
        "rows": np.stack([pairs.i, pairs.j], axis=1),
        "T3": triplets.tuples(X),
        "T4": quadruplets.tuples(X),
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("page", "theirs", "code"), [(page, *line) for page in PAGES for line in lines(page)], ids=lambda v: v[:60]
)
def test_the_line_runs(page, theirs, code, names):
    assert eval(code, dict(names)) is not None, (page, theirs)


@pytest.fixture(scope="module")
def sentence_names():
    torch = pytest.importorskip("torch")
    import isometry.deep as deep
    import isometry.eval as ev

    X, y = make_blobs(n=24)
    rng = np.random.RandomState(1)
    a, p, n = (torch.as_tensor(rng.randn(6, 4)) for _ in range(3))
    known = {name: getattr(deep, name) for name in deep.__all__}
    batch = {"a": a, "p": p, "n": n, "y": torch.tensor([0, 0, 1, 1, 2, 2]), "s": torch.rand(6).double()}
    batch |= {"i": torch.arange(6), "torch": torch}
    return {
        **known,
        **batch,
        "t": torch.rand(6, 2).double(),
        "E": X,
        "labels": y,
        "isometry": isometry,
        "ev": ev,
        "np": np,
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("theirs", "code"), lines(SENTENCES), ids=lambda v: v[:60])
def test_the_line_runs_on_sentences(theirs, code, sentence_names):
    assert eval(code, dict(sentence_names)) is not None, theirs


@pytest.mark.parametrize("page", [*PAGES, SENTENCES])
def test_no_name_is_left_out(page):
    left = " ".join(there for there, _ in lines(page))
    missing = [name for name in THEIRS[page] if not re.search(rf"\b{re.escape(name)}", left)]
    assert not missing


def test_every_name_of_pytorch_metric_learning_is_on_its_page():
    """Base classes are for those who write losses of their own, and left out."""
    theirs = pytest.importorskip("pytorch_metric_learning")
    page = (DOCS / "names.md").read_text("utf-8")
    for kind in ("losses", "miners", "regularizers", "reducers", "distances", "samplers"):
        module = importlib.import_module(f"{theirs.__name__}.{kind}")
        named = {n for n, v in vars(module).items() if inspect.isclass(v) and v.__module__.startswith(theirs.__name__)}
        bases = {n for n in named if n.startswith("Base") or n.endswith("Mixin")} | {
            "GenericPairLoss",
            "DivisorReducer",
        }
        missing = sorted(name for name in named - bases if not re.search(rf"\b{name}\b", page))
        assert not missing, (kind, missing)
