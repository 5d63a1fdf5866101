"""Losses of columns, as of text pairs and two towers: queries, their documents, hard negatives, scores of a teacher."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isometry.deep.functional import masked_logsumexp, paired, softplus, unit
from isometry.deep.pair_form import PairForm
from isometry.deep.slopes import with_slopes
from isometry.parameters import Positive, checked, one_of

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
    temperature : float
        T; 0.05 is a scale of 20.
    directions : tuple of str
        Of those above.
    partition : {"joint", "each"}
        One softmax over all directions, or the mean of one for each: of query_to_doc and doc_to_query the latter is the
        symmetric loss.
    hardness : float
        h: adds h s, held constant, to the logit of a negative, which gives hard ones more weight.
    hardness_on : {"all", "in_batch", "hard"}
        Which negatives: all, those of other rows, or those of the columns of hard negatives.

    References
    ----------
    M. Henderson, R. Al-Rfou, B. Strope, Y.-H. Sung, L. Lukács, R. Guo, S. Kumar, B. Miklos, R. Kurzweil, "Efficient
    natural language response suggestion for smart reply", arXiv 2017.
    Z. Li, X. Zhang, Y. Zhang, D. Long, P. Xie, M. Zhang, "Towards general text embeddings with multi-stage contrastive
    learning", arXiv 2023.
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
        self.temperature, self.hardness = checked("temperature", temperature, Positive), hardness
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
        """Which candidates get more weight for being hard."""
        n = len(s)
        hard = (torch.arange(s.shape[1], device=s.device) >= n).expand_as(s)  # columns after the first are negatives
        others = ~torch.eye(n, dtype=torch.bool, device=s.device).repeat(1, s.shape[1] // n) | hard
        return {"all": others, "in_batch": others & ~hard, "hard": hard}[self.hardness_on]

    @torch.no_grad()
    def candidates(self, *columns: Tensor, **given: Any) -> dict[str, Tensor]:
        """Which entries of each direction stand in the softmax."""
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
    temperature : float
        T.
    margin : float
        m: by how much a negative must be less similar than the positive.
    relative : bool
        m |g_ii| in place of m.

    References
    ----------
    A. V. Solatorio, "GISTEmbed: guided in-sample selection of training negatives for text embedding fine-tuning", arXiv
    2024.
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
        self.margin, self.relative = margin, relative

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
    pos_margin, neg_margin : float
        m⁺, m⁻.

    References
    ----------
    J. Wieting, K. Gimpel, "ParaNMT-50M: pushing the limits of paraphrastic sentence embeddings with millions of machine
    translations", ACL 2018.
    """

    normalize = True

    def __init__(self, pos_margin: float = 0.8, neg_margin: float = 0.3):
        super().__init__()
        self.pos_margin, self.neg_margin = pos_margin, neg_margin

    def compute(self, *columns: Tensor, **given: Any) -> Tensor:
        s = similarities(("query_to_doc",), [unit(z) for z in columns])["query_to_doc"]
        pull = (self.pos_margin - s.diagonal()).relu()
        others = torch.ones_like(s, dtype=torch.bool)
        others.diagonal().fill_(False)
        hardest = s.masked_fill(~others, -torch.inf).amax(1).clamp_min(-1)  # with one row there is none
        return (pull + (hardest - self.neg_margin).relu()).mean()


class ScoredPairs(PairForm):
    """Abstract: two columns and a score for each row."""

    normalize = True
    most_columns = 2
    target = "the score of each row (n,), larger for more similar pairs"

    def check_target(self, target: Tensor | None, z: Tensor) -> Tensor:
        target = super().check_target(target, z)
        if target.ndim != 1:
            raise ValueError(f"{type(self).__name__} needs one score for each row (n,), got {tuple(target.shape)}")
        return target


class CoSENT(ScoredPairs):
    """CoSENT: pairs with a higher score should have a higher cosine.

        log( 1 + Σ_{y_i < y_j} e^{λ (s_i − s_j)} ),     s_i = cos(a_i, b_i)

    Only the order of the scores matters. By sorting, in O(n log n).

    Parameters
    ----------
    scale : float
        λ.

    References
    ----------
    X. Huang, H. Peng, D. Zou, Z. Liu, J. Li, K. Liu, J. Wu, J. Su, P. S. Yu, "CoSENT: consistent sentence embedding via
    similarity ranking", IEEE/ACM TASLP 2024.
    """

    def __init__(self, scale: float = 20.0):
        super().__init__()
        self.scale = checked("scale", scale, Positive)

    def similarity(self, a: Tensor, b: Tensor) -> Tensor:
        """s (n,) of each row."""
        return (unit(a) * unit(b)).sum(1)

    def compute(self, *columns: Tensor, **given: Any) -> Tensor:
        target = given["target"]
        order = target.argsort()
        y = target[order].contiguous()
        return with_slopes(self.scale * self.similarity(*columns)[order], lambda x: order_slopes(x, y))


def order_slopes(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """log(1 + Σ_{y_i < y_j} e^{x_i − x_j}) of x (n,) with ascending y, and its slopes in x."""
    lowest = torch.finfo(x.dtype).min / 4  # log 0, but finite: differences of two are no NaN
    below, upto = torch.searchsorted(y, y), torch.searchsorted(y, y, right=True)  # how many are smaller, not larger
    prefix = x.logcumsumexp(0)
    lower = torch.where(below > 0, prefix[(below - 1).clamp_min(0)], lowest)  # log Σ of the smaller
    terms = torch.where(below > 0, lower - x, lowest)
    total = terms.logsumexp(0)
    share = torch.where(below > 0, terms - total, lowest)  # log of the share of j in the sum
    suffix = torch.where(below > 0, share - lower, lowest).flip(0).logcumsumexp(0).flip(0)
    held = torch.where(upto < len(x), suffix[upto.clamp_max(len(x) - 1)], lowest)
    return softplus(total), total.sigmoid() * ((held + x).exp() - share.exp())


class AnglE(CoSENT):
    """AnglE: as CoSENT, with the sum of the real and imaginary part of a complex quotient as similarity.

        log( 1 + Σ_{y_i < y_j} e^{λ (s_i − s_j)} ),     s = |x̂ᵀ(ŷ + Jŷ)| = √2 |cos(x, R₄₅ y)|

    J turns the halves (u, v) of a vector into (−v, u). s is 1 for y = x and for y = −x, and largest at a turn of 45°:
    ``CoSENT`` has no such choices.

    References
    ----------
    X. Li, J. Li, "AoE: angle-optimized embeddings for semantic textual similarity", ACL 2024.
    """

    def similarity(self, a: Tensor, b: Tensor) -> Tensor:
        x, y = (F.pad(unit(z), (0, z.shape[1] % 2)) for z in (a, b))  # an odd dimension gets a zero
        u, v = y.chunk(2, 1)
        return (x * (y + torch.cat([-v, u], 1))).sum(1).abs()


class CosineRegression(ScoredPairs):
    """Cosine regression: the cosine of a pair is its score.

        mean_i (cos(a_i, b_i) − y_i)²

    Parameters
    ----------
    score_range : tuple (low, high)
        Scores are mapped from here to [0, 1]: (0, 5) for scores up to five.

    References
    ----------
    N. Reimers, I. Gurevych, "Sentence-BERT: sentence embeddings using Siamese BERT-networks", EMNLP 2019.
    """

    def __init__(self, score_range: tuple[float, float] = (0.0, 1.0)):
        super().__init__()
        self.score_range = score_range
        if not score_range[0] < score_range[1]:
            raise ValueError(f"score_range must be (low, high) with low < high, got {score_range}")

    def compute(self, *columns: Tensor, **given: Any) -> Tensor:
        target, (low, high) = given["target"], self.score_range
        y = (target - low) / (high - low)
        if y.abs().max() > 1:
            warnings.warn(
                f"scores up to {float(target.abs().max()):g} are no cosines; give score_range=(low, high)", stacklevel=2
            )
        a, b = columns
        return ((unit(a) * unit(b)).sum(1) - y).square().mean()


class TaughtRanking(PairForm):
    """Abstract: queries, a positive and negatives, and a teacher's scores of them."""

    fewest_columns = 3
    target = "the teacher's scores (n, k + 1) of the positive and k negatives"

    def __init__(self, similarity: str):
        super().__init__()
        self.similarity = one_of("similarity", similarity, ("inner", "cosine"))
        self.normalize = similarity == "cosine"

    def scores(self, columns: Sequence[Tensor]) -> Tensor:
        """s (n, k + 1) of each query with its positive and negatives."""
        query, *docs = (unit(z) for z in columns) if self.similarity == "cosine" else columns
        return torch.stack([-paired("inner", query, d) for d in docs], 1)


class MarginMSE(TaughtRanking):
    """Margin distillation: positives ahead of negatives by as much as a teacher has them.

        mean_{i,k} ( (s_i⁺ − s_ik⁻) − (t_i⁺ − t_ik⁻) )²

    The target is the teacher's scores (n, k + 1), or the margins (n, k) themselves.

    Parameters
    ----------
    similarity : {"inner", "cosine"}
        s.

    References
    ----------
    S. Hofstätter, S. Althammer, M. Schröder, M. Sertkan, A. Hanbury, "Improving efficient neural ranking models with
    cross-architecture knowledge distillation", arXiv 2020.
    """

    def __init__(self, similarity: str = "inner"):
        super().__init__(similarity)

    def compute(self, *columns: Tensor, **given: Any) -> Tensor:
        s, target = self.scores(columns), given["target"]
        t = target[:, None] if target.ndim == 1 else target
        if t.shape == s.shape:
            t = t[:, :1] - t[:, 1:]
        if t.shape != s[:, 1:].shape:
            n, k = s[:, 1:].shape
            raise ValueError(f"the target must be scores {(n, k + 1)} or margins {(n, k)}, got {tuple(target.shape)}")
        return (s[:, :1] - s[:, 1:] - t.detach()).square().mean()


class ScoreKL(TaughtRanking):
    """Distillation of scores: the student's softmax over the candidates of a query is the teacher's.

        T² mean_i KL( softmax(t_i/T_t) ‖ softmax(s_i/T) )

    Parameters
    ----------
    temperature, teacher_temperature : float
        T, T_t.
    similarity : {"inner", "cosine"}
        s.

    References
    ----------
    J. Chen, S. Xiao, P. Zhang, K. Luo, D. Lian, Z. Liu, "M3-Embedding: multi-linguality, multi-functionality,
    multi-granularity text embeddings through self-knowledge distillation", ACL Findings 2024.
    """

    def __init__(self, temperature: float = 1.0, teacher_temperature: float = 1.0, similarity: str = "inner"):
        super().__init__(similarity)
        self.temperature = checked("temperature", temperature, Positive)
        self.teacher_temperature = checked("teacher_temperature", teacher_temperature, Positive)

    def compute(self, *columns: Tensor, **given: Any) -> Tensor:
        s, target = self.scores(columns), given["target"]
        if target.shape != s.shape:
            raise ValueError(f"the target must be the teacher's scores {tuple(s.shape)}, got {tuple(target.shape)}")
        log_p, log_t = (
            (s / self.temperature).log_softmax(1),
            (target.detach() / self.teacher_temperature).log_softmax(1),
        )
        return self.temperature**2 * (log_t.exp() * (log_t - log_p)).sum(1).mean()


class EmbeddingDistillation(PairForm):
    """Distillation of embeddings: those of a teacher, after a linear map if dimensions differ.

        mean_i (1 − cos(P z_i, t_i))     or     mean (P z − t)²

    Parameters
    ----------
    loss : {"cosine", "mse"}
    projection : tuple (p, q), optional
        Learn P (q, p), from dimension p of the student to q of the teacher.

    References
    ----------
    N. Reimers, I. Gurevych, "Making monolingual sentence embeddings multilingual using knowledge distillation", EMNLP
    2020.
    """

    fewest_columns = most_columns = 1
    target = "the teacher's embeddings (n, q)"

    def __init__(self, loss: str = "cosine", projection: tuple[int, int] | None = None):
        super().__init__()
        self.loss = one_of("loss", loss, ("cosine", "mse"))
        self.normalize = loss == "cosine"
        self.map = nn.Identity() if projection is None else nn.Linear(*projection, bias=False)

    def compute(self, *columns: Tensor, **given: Any) -> Tensor:
        z, target = self.map(columns[0]), given["target"]
        if target.shape != z.shape:
            raise ValueError(
                f"the teacher's embeddings must be {tuple(z.shape)}, got {tuple(target.shape)}; for other dimensions "
                f"give projection=({columns[0].shape[1]}, {target.shape[-1]})"
            )
        if self.loss == "mse":
            return (z - target.detach()).square().mean()
        return (1 - (unit(z) * unit(target.detach())).sum(1)).mean()
