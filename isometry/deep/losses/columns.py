"""Losses of columns that rank: queries, the documents that belong to them, and hard negatives."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from isometry.deep.functional import masked_logsumexp, unit
from isometry.deep.pair_form import PairForm
from isometry.parameters import NotNegative, Positive, checked, one_of

DIRECTIONS = ("query_to_doc", "doc_to_query", "query_to_query", "doc_to_doc")


class Ranking(PairForm):
    """Multiple negatives ranking: the document of a query should win a softmax over the documents of the batch.

        −mean_i [ s(q_i, d_i)/T − log Σ e^{s/T} ],     s = cos

    The sum runs over the chosen directions: all documents and hard negatives (query_to_doc, always), all queries seen
    from d_i (doc_to_query), the other queries (query_to_query), the other rows' documents seen from d_i (doc_to_doc).

    A row whose query or document equals that of another, to the bit, is no negative of it: such entries are left out,
    with one warning.

    Parameters
    ----------
    temperature : float, default=0.05
        The temperature T: the smaller, the more the closest pairs count; 0.05 is a scale of 20.
    directions : tuple of str, default=("query_to_doc",)
        Which of those above, query_to_doc among them.
    partition : {"joint", "each"}, default="joint"
        One softmax over all directions, or the mean of one for each: of query_to_doc and doc_to_query the latter is the
        symmetric loss.
    hardness : float, default=0.0
        What a negative's similarity, held constant, is multiplied by and added to its logit, h: hard ones get more
        weight.
    hardness_on : {"all", "in_batch", "hard"}, default="all"
        Which negatives: all, those of other rows, or those of the columns of hard negatives.

    Notes
    -----
    For pairs of query and document, or question and answer, where no other labels exist. It wants many rows in a batch
    (``GradientCache``) and no two that mean the same (``NoDuplicates``, ``GuidedRanking``). Costs O(n² p) for each
    direction.

    References
    ----------
    | M. Henderson, R. Al-Rfou, B. Strope, Y.-H. Sung, L. Lukács, R. Guo, S. Kumar, B. Miklos, R. Kurzweil, "Efficient
      natural language response suggestion for smart reply", arXiv 2017.
    | Z. Li, X. Zhang, Y. Zhang, D. Long, P. Xie, M. Zhang, "Towards general text embeddings with multi-stage
      contrastive learning", arXiv 2023.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Ranking
    >>> queries = torch.tensor([[1.0, 0.1], [0.1, 1.0]])
    >>> loss = Ranking()
    >>> bool(loss(queries, queries) < loss(queries, queries.flip(0)))
    True
    """

    normalize = True
    warned = False  # of rows that occur twice

    def __init__(
        self,
        temperature: float = 0.05,
        directions: Sequence[str] = ("query_to_doc",),
        partition: str = "joint",
        hardness: float = 0.0,
        hardness_on: str = "all",
    ):
        super().__init__()
        self.temperature = checked("temperature", temperature, Positive)
        self.hardness = checked("hardness", hardness, NotNegative)
        self.directions = tuple(one_of("directions", d, DIRECTIONS) for d in directions)
        if "query_to_doc" not in self.directions:
            raise ValueError(f"directions must hold 'query_to_doc', where the positive is, got {self.directions}")
        self.partition = one_of("partition", partition, ("joint", "each"))
        self.hardness_on = one_of("hardness_on", hardness_on, ("all", "in_batch", "hard"))

    def compute(self, *columns: Tensor, **given: Any) -> Tensor:
        kept = self.candidates(*columns, **given)
        cosines = similarities(self.directions, [unit(z) for z in columns])
        log_z = []
        for name, s in cosines.items():
            x = s / self.temperature
            if self.hardness:
                x = x + self.hardness * s.detach() * self.negatives(name, s)
            log_z.append(masked_logsumexp(x, kept[name]))
        positive = cosines["query_to_doc"].diagonal() / self.temperature
        if self.partition == "joint":
            return (torch.stack(log_z).logsumexp(0) - positive).mean()
        some = torch.stack([k.any(1) for k in kept.values()])  # with one row nobody else is there
        each = torch.stack(log_z).masked_fill(~some, 0).sum(0) / some.sum(0)
        return (each - positive).mean()

    def negatives(self, name: str, s: Tensor) -> Tensor:
        """Which candidates get more weight for being hard.

        Parameters
        ----------
        name : str
            The direction.
        s : Tensor
            Similarities of the candidates, of which the shape is taken.
        """
        n = len(s)
        hard = (torch.arange(s.shape[1], device=s.device) >= n).expand_as(s)  # columns after the first are negatives
        others = ~torch.eye(n, dtype=torch.bool, device=s.device).repeat(1, s.shape[1] // n) | hard
        return {"all": others, "in_batch": others & ~hard, "hard": hard}[self.hardness_on]

    @torch.no_grad()
    def candidates(self, *columns: Tensor, **given: Any) -> dict[str, Tensor]:
        """Which entries of each direction stand in the softmax.

        Parameters
        ----------
        *columns : Tensor (n, p)
            The columns of embeddings.
        **given : dict
            What else the loss was given.
        """
        n, h = len(columns[0]), len(columns) - 1
        own = torch.eye(n, dtype=torch.bool, device=columns[0].device)
        query, docs = codes(columns[0]), codes(torch.cat(columns[1:]))
        same_query, same_doc = query[:, None] == query, docs[:n, None] == docs  # (n, n), (n, n h)
        if same_doc[:, :n].all():  # a network that maps all to one point has no duplicates, but a problem
            same_query, same_doc = own, own.repeat(1, h)
        rows = (same_query | same_doc[:, :n]) & ~own
        twice = torch.cat([rows, same_doc[:, n:] if h > 1 else rows[:, :0]], 1)
        if twice.any() and not self.warned:
            self.warned = True
            warnings.warn(
                f"{int(twice.any(1).sum())} of {n} rows of a batch have a query or document that others have too; they "
                "are not taken for negatives of one another. Batches without duplicates teach more",
                stacklevel=2,
            )
        kept = {
            "query_to_doc": ~twice,
            "doc_to_query": ~rows,
            "query_to_query": ~(rows | own),
            "doc_to_doc": ~(twice | own.repeat(1, h)),
        }
        return {name: kept[name] for name in self.directions}


def similarities(directions: Sequence[str], columns: Sequence[Tensor]) -> dict[str, Tensor]:
    """Inner products of each direction, (n, n) or (n, n h): queries or documents with queries or all documents."""
    query, doc, docs = columns[0], columns[1], torch.cat(list(columns[1:]))
    sides = dict(zip(DIRECTIONS, ((query, docs), (doc, query), (query, query), (doc, docs))))
    return {name: sides[name][0] @ sides[name][1].T for name in directions}


def codes(z: Tensor) -> Tensor:
    """Numbers (n,) that are equal for rows that are equal to the bit, by sums of integers, which know no round-off."""
    bits = z.detach().contiguous().view(torch.int32).long()  # (n, p) or (n, 2p)
    odd = 2 * torch.arange(1, bits.shape[1] + 1, device=z.device) ** 3 + 1
    return (bits * odd).sum(1)


class GuidedRanking(Ranking):
    """Guided ranking (GIST): as ``Ranking``, without the negatives that a guide finds too similar to be negative.

        −mean_i [ s(q_i, d_i)/T − log Σ_{g ≤ g_ii − m} e^{s/T} ],     over query_to_doc, query_to_query, doc_to_doc

    g are cosines of the guide's embeddings of the same samples, given as ``guide``: one (n, q) for each column, such as
    those of a trained encoder. The positive always stays.

    Parameters
    ----------
    temperature : float, default=0.01
        The temperature T: the smaller, the more the closest pairs count.
    margin : float, default=0.0
        The margin m: by how much a negative must be less similar than the positive.
    relative : bool, default=False
        Take m times the absolute value of g_ii in place of m.
    directions : sequence of str, default=("query_to_doc", "query_to_query", "doc_to_doc")
        Which sums stand in the softmax, see `Ranking`.

    Notes
    -----
    When rows of a batch may mean the same, as in logs of questions, and a trained encoder can tell. A weak guide
    removes the hard negatives that are worth most. Costs O(n² (p + q)) for each direction.

    References
    ----------
    | A. V. Solatorio, "GISTEmbed: guided in-sample selection of training negatives for text embedding fine-tuning",
      arXiv 2024.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import GuidedRanking
    >>> z = torch.eye(3)
    >>> GuidedRanking()(z, z, guide=[z, z]).item() >= 0
    True
    """

    needs_guide = True

    def __init__(
        self,
        temperature: float = 0.01,
        margin: float = 0.0,
        relative: bool = False,
        directions: Sequence[str] = ("query_to_doc", "query_to_query", "doc_to_doc"),
    ):
        super().__init__(temperature, directions)
        self.margin, self.relative = checked("margin", margin, float), relative

    @torch.no_grad()
    def candidates(self, *columns: Tensor, **given: Any) -> dict[str, Tensor]:
        guide = given.get("guide")
        if guide is None or len(guide) != len(columns) or {len(g) for g in guide} != {len(columns[0])}:
            got = "none" if guide is None else ", ".join(str(tuple(g.shape)) for g in guide)
            raise ValueError(
                f"{type(self).__name__} needs guide embeddings of all {len(columns)} columns, {len(columns[0])} rows "
                f"each, got {got}"
            )
        found = similarities(self.directions, [unit(g.to(columns[0].dtype)) for g in guide])
        positive = found["query_to_doc"].diagonal()[:, None]
        limit = positive - self.margin * (positive.abs() if self.relative else 1)
        kept = {name: mask & (found[name] <= limit) for name, mask in super().candidates(*columns).items()}
        kept["query_to_doc"].diagonal().fill_(True)
        return kept


class MegaBatchMargin(PairForm):
    """Mega-batch margin: the document near its query, and the most similar of the other documents far from it.

        mean_i ( [m⁺ − s(q_i, d_i)]_+ + [max_{j≠i} s(q_i, d_j) − m⁻]_+ ),     s = cos

    Hard negatives are further documents. It wants large batches: ``GradientCache(Columns(MegaBatchMargin()), 64)``.

    Parameters
    ----------
    pos_margin : float, default=0.8
        The similarity m⁺ that a pair should reach.
    neg_margin : float, default=0.3
        The similarity m⁻ that the hardest negative should stay below.

    Notes
    -----
    Only the hardest negative of a row counts, so that batches should hold hundreds of rows; one false negative among
    them is that hardest. Costs O(n² p).

    References
    ----------
    | J. Wieting, K. Gimpel, "ParaNMT-50M: pushing the limits of paraphrastic sentence embeddings with millions of
      machine translations", ACL 2018.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import MegaBatchMargin
    >>> MegaBatchMargin()(torch.eye(3), torch.eye(3)).item()
    0.0
    """

    normalize = True

    def __init__(self, pos_margin: float = 0.8, neg_margin: float = 0.3):
        super().__init__()
        self.pos_margin = checked("pos_margin", pos_margin, float)
        self.neg_margin = checked("neg_margin", neg_margin, float)

    def compute(self, *columns: Tensor, **given: Any) -> Tensor:
        s = similarities(("query_to_doc",), [unit(z) for z in columns])["query_to_doc"]
        pull = (self.pos_margin - s.diagonal()).relu()
        others = torch.ones_like(s, dtype=torch.bool)
        others.diagonal().fill_(False)
        hardest = s.masked_fill(~others, -torch.inf).amax(1).clamp_min(-1)  # with one row there is none
        return (pull + (hardest - self.neg_margin).relu()).mean()
