"""Draws the picture of the README: the comparison of `make demo`, as a forest plot."""

from __future__ import annotations

from pathlib import Path

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from isometry import compare
from isometry.report import forest

HERE = Path(__file__).resolve().parent
METHODS = [
    "RCA",
    "DCA",
    "FisherML",
    "TraceRatioML",
    "GMML",
    "DRML",
    "IGML",
    "LMNN",
    "ITML",
    "MCML",
    "NCA",
    "FastNCA",
    "PCCA",
    "LDML",
]


def main() -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    X, y = load_digits(return_X_y=True)
    X, _, y, _ = train_test_split(X, y, train_size=600, stratify=y, random_state=0)
    result = compare(X, y, METHODS, scoring="map@r", n_splits=3, n_jobs=2, name="digits, 600 of 1797 rows")
    figure, ax = plt.subplots(figsize=(8, 4.5))
    forest(result, ax)
    ax.set_title("Retrieval on digits: paired difference to Euclidean in MAP@R, 95 % intervals", fontsize=10)
    figure.tight_layout()
    (HERE / "images").mkdir(exist_ok=True)
    figure.savefig(HERE / "images" / "demo.png", dpi=110)


if __name__ == "__main__":
    main()
