"""What an adapted map is asked on rows held out: who is found by whom, and which pairs are near."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from isometry.core.distance import sqdist
from isometry.eval import listed_retrieval, ranking, retrieval
from isometry.eval.retrieval_scores import map_at_r
from isometry.select.scoring import FoldScorer
from isometry.supervision import Labels, Pairs, Triplets
from isometry.trial import thin

KS = (1, 10)
MANY_ROWS = 500  # queries, and items of a gallery, all of whose pairs are measured
CONTRASTS = 20  # documents drawn for each query as examples of those that are not relevant to it
TITLES = {
    "map@r": "MAP@R",
    "recall@1": "recall@1",
    "recall@10": "recall@10",
    "ndcg@10": "nDCG@10",
    "pair_auc": "pair AUC",
    "ordering": "triplet accuracy",
}


class Values(NamedTuple):
    """One value for each item, the higher the better, NaN where there is none; items of a group depend on another."""

    v: np.ndarray  # (m,)
    groups: np.ndarray | None = None  # (m,)


class Questions(Protocol):
    """What is asked of the images of some rows; ``gallery`` is None where they are asked about one another."""

    main: ClassVar[str]  # the score that a map is chosen by

    @property
    def X(self) -> np.ndarray:
        """(m, d) queries."""
        ...

    @property
    def gallery(self) -> np.ndarray | None:
        """(g, d) documents."""
        ...

    def first(self, Zq: np.ndarray, Zd: np.ndarray) -> Values:
        """Values of the main score, quickly."""
        ...

    def all(self, Zq: np.ndarray, Zd: np.ndarray) -> dict[str, Values]:
        """Values of every score by its name."""
        ...


@dataclass(frozen=True)
class ClassQuestions:
    """Rows of one class should find one another, or those of a gallery."""

    main: ClassVar[str] = "map@r"
    X: np.ndarray
    codes: np.ndarray  # (m,)
    gallery: np.ndarray | None = None
    gallery_codes: np.ndarray | None = None  # (g,)

    def first(self, Zq: np.ndarray, Zd: np.ndarray) -> Values:
        within = self.gallery_codes is None
        codes = self.codes if self.gallery_codes is None else self.gallery_codes
        R = np.sum(self.codes[:, None] == codes, axis=1) - within  # (m,)
        centre = Zd.mean(axis=0)  # distances from a product in single precision lose digits far from 0
        D = sqdist((Zq - centre).astype(np.float32), (Zd - centre).astype(np.float32))
        if within:
            np.fill_diagonal(D, np.inf)
        most = max(1, int(R.max()))
        nearest = np.argpartition(D, most - 1, axis=1)[:, :most]
        nearest = np.take_along_axis(nearest, np.take_along_axis(D, nearest, axis=1).argsort(axis=1), axis=1)
        found = map_at_r(codes[nearest] == self.codes[:, None], R)
        return Values(np.where(R > 0, found, np.nan), self.codes)

    def all(self, Zq: np.ndarray, Zd: np.ndarray) -> dict[str, Values]:
        gallery: dict[str, Any] = {} if self.gallery is None else {"gallery": Zd, "gallery_y": self.gallery_codes}
        found, ranked = retrieval(Zq, self.codes, ks=KS, **gallery), ranking(Zq, self.codes, ks=KS[1:], **gallery)
        columns = {"map@r": (found.queries, found.map_at_r)}
        columns |= {f"recall@{k}": (found.queries, found.recall_at[k]) for k in KS}
        columns["ndcg@10"] = ranked.queries, ranked.ndcg_at[10]
        out = {}
        for name, (rows, values) in columns.items():
            v = np.full(len(Zq), np.nan)
            v[rows] = values
            out[name] = Values(v, self.codes)
        if self.gallery_codes is None:
            return out | {"pair_auc": Values(_scored("pair_auc", Zq, Labels.from_codes(self.codes)), self.codes)}
        i, j = (x.ravel() for x in np.meshgrid(*map(_some, (self.codes, self.gallery_codes)), indexing="ij"))
        pairs = Pairs(i, len(Zq) + j, self.codes[i] == self.gallery_codes[j], n=len(Zq) + len(Zd))
        codes = np.concatenate([self.codes, self.gallery_codes])
        return out | {"pair_auc": Values(_scored("pair_auc", np.vstack([Zq, Zd]), pairs), codes)}


@dataclass(frozen=True)
class PairQuestions:
    """Similar pairs should be nearer than dissimilar ones, and be found among all rows."""

    main: ClassVar[str] = "pair_auc"
    X: np.ndarray
    side: Pairs
    grouped: bool  # whether what is joined by pairs was held out whole
    gallery: np.ndarray | None = None

    def first(self, Zq: np.ndarray, Zd: np.ndarray) -> Values:
        return _of_tuples("pair_auc", Zq, Zd, self.side, self.grouped)

    def all(self, Zq: np.ndarray, Zd: np.ndarray) -> dict[str, Values]:
        out = {"pair_auc": self.first(Zq, Zd)}
        S = self.side.similar
        if len(S.i) == 0:
            return out
        i, j = np.concatenate([S.i, S.j]), np.concatenate([S.j, S.i])
        groups = self.side.components() if self.grouped else None
        if Zq is Zd:
            found = listed_retrieval(Zq, None, i, j, ks=KS)
        else:  # a row is the nearest document of itself unless it is left out: half of the rows are asked for the rest
            asked = np.arange(len(Zq)) % 2 == 0
            kept = asked[i] & ~asked[j]
            if not kept.any():
                return out
            number = np.cumsum(~asked) - 1
            found = listed_retrieval(Zq, Zd[~asked], i[kept], number[j[kept]], ks=KS)
        return out | {name: Values(v, groups) for name, v in found.items() if name in TITLES}


@dataclass(frozen=True)
class TripletQuestions:
    """The second of a triplet should be nearer to the first than the third is."""

    main: ClassVar[str] = "ordering"
    X: np.ndarray
    side: Triplets
    grouped: bool
    gallery: np.ndarray | None = None

    def first(self, Zq: np.ndarray, Zd: np.ndarray) -> Values:
        return _of_tuples("ordering", Zq, Zd, self.side, self.grouped)

    def all(self, Zq: np.ndarray, Zd: np.ndarray) -> dict[str, Values]:
        return {name: _of_tuples(name, Zq, Zd, self.side, self.grouped) for name in ("ordering", "pair_auc")}


@dataclass(frozen=True)
class DocumentQuestions:
    """Queries should find the documents that are relevant to them."""

    main: ClassVar[str] = "ndcg@10"
    X: np.ndarray
    gallery: np.ndarray
    i: np.ndarray  # (r,) queries
    j: np.ndarray  # (r,) documents
    grade: np.ndarray  # (r,)

    def first(self, Zq: np.ndarray, Zd: np.ndarray) -> Values:
        return Values(listed_retrieval(Zq, Zd, self.i, self.j, self.grade, KS)["ndcg@10"])

    def all(self, Zq: np.ndarray, Zd: np.ndarray) -> dict[str, Values]:
        found = listed_retrieval(Zq, Zd, self.i, self.j, self.grade, KS)
        out = {name: Values(v) for name, v in found.items() if name in TITLES}
        m, n = len(Zq), len(Zd)
        rng = np.random.default_rng(0)
        asked = np.unique(self.i)
        a, b = np.repeat(asked, CONTRASTS), rng.integers(n, size=len(asked) * CONTRASTS)
        relevant = np.unique(self.i * n + self.j)
        other = ~np.isin(a * n + b, relevant)
        i, j = np.concatenate([self.i, a[other]]), np.concatenate([self.j, b[other]])
        if other.any():
            pairs = Pairs(i, m + j, np.arange(len(i)) < len(self.i), n=m + n)
            out["pair_auc"] = Values(_scored("pair_auc", np.vstack([Zq, Zd]), pairs))
        return {name: out[name] for name in TITLES if name in out}


def _some(codes: np.ndarray) -> np.ndarray:
    """Numbers of at most `MANY_ROWS` rows, evenly spread."""
    return thin(np.arange(len(codes)), MANY_ROWS)


def _of_tuples(name: str, Zq: np.ndarray, Zd: np.ndarray, side: Any, grouped: bool) -> Values:
    """A score of pairs or triplets; where queries and documents have different images, the first of each is a query."""
    groups = side.components() if grouped else None
    if Zq is Zd:
        return Values(_scored(name, Zq, side, grouped), groups)
    m = len(Zq)
    if isinstance(side, Triplets):
        both: Any = Triplets(side.a, m + side.p, m + side.n, n_samples=2 * m, weight=side.weight)
    else:
        both = Pairs(side.i, m + side.j, side.similarity, n=2 * m, weight=side.weight)
    twice = None if groups is None else np.tile(groups, 2)
    return Values(_scored(name, np.vstack([Zq, Zd]), both, grouped), twice)


def _scored(name: str, Z: np.ndarray, side: Any, grouped: bool = False) -> np.ndarray:
    return FoldScorer(name, grouped=grouped).values(Z, side, Z, side)
