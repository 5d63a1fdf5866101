"""Angular loss: the angle at the negative of a triangle anchor, positive, negative."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from isometry.deep.functional import any_of_row, exp_, softplus
from isometry.deep.losses.triplet import SumOfTriplets
from isometry.deep.miners import Miner
from isometry.deep.slopes import apart, gradients, sparse
from isometry.parameters import one_of


class Angular(SumOfTriplets):
    """Angular loss: bounds the angle under which anchor and positive are seen from a negative by α.

        triplet:  [‖a − p‖² − 4 tan²α ‖n − (a + p)/2‖²]_+
        batch:    mean over (a, p) of log(1 + Σ_n e^{f_apn}),   f_apn = 4 tan²α (a + p)ᵀn − 2 (1 + tan²α) aᵀp

    All three on the unit sphere. In the batch form the sum over n factors into e^{4 tan²α aᵀn} e^{4 tan²α pᵀn}: an
    inner product for each positive pair. The authors train it beside the N-pair loss:
    ``WeightedSum(NPair(), Angular())``.

    Parameters
    ----------
    alpha : float or None, default=None
        Degrees; by default 45 for the batch form and 20 for the triplet form, where wider angles are never violated.
    form : {"batch", "triplet"}, default="batch"
        The triplet form is averaged over the triplets that violate the bound.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.
    normalize : bool, default=True
        Put embeddings and references on the unit sphere first.
    reduction : {"mean_nonzero", "mean", "sum"}, default="mean_nonzero"
        Of the triplet form: over the triplets that violate the bound, over all, or their sum.

    Notes
    -----
    Asks for a shape, not for a distance: the angle does not change with the scale of the embedding. Meant beside
    ``NPair``. The batch form costs O(B² K) time for K positives an anchor.

    References
    ----------
    | J. Wang, F. Zhou, S. Wen, X. Liu, Y. Lin, "Deep metric learning with angular loss", ICCV 2017.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Angular
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = Angular()
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    """

    uses_pn = True

    def __init__(
        self,
        alpha: float | None = None,
        form: str = "batch",
        *,
        miner: Miner | str | None = None,
        normalize: bool = True,
        reduction: str = "mean_nonzero",
    ):
        form = one_of("form", form, ("batch", "triplet"))
        super().__init__("inner" if form == "batch" else "sqeuclidean", miner, normalize, reduction)
        alpha = {"batch": 45.0, "triplet": 20.0}[form] if alpha is None else alpha
        if not 0 < alpha < 90:
            raise ValueError(f"alpha is an angle in degrees between 0 and 90, got {alpha}")
        self.alpha, self.form = alpha, form
        if form == "batch":
            self.reduction = "mean"

    def term(self, d_ap: Tensor, d_an: Tensor, d_pn: Any = None) -> Tensor:
        """The term x = (1 + t) d_ap − 2t (d_an + d_pn), t = tan²α; the triplet form is its positive part, f_apn is 2x.

        ‖n − (a + p)/2‖² = ½ d_an + ½ d_pn − ¼ d_ap in squared distances; in the batch form d is minus an inner product.

        Parameters
        ----------
        d_ap : Tensor
            Distances of anchors to positives.
        d_an : Tensor
            Distances of anchors to negatives.
        d_pn : Tensor or None, default=None
            Distances of positives to negatives.
        """
        t = math.tan(math.radians(self.alpha)) ** 2
        x = (1 + t) * d_ap - 2 * t * (d_an + d_pn)
        return softplus(2 * x) if self.form == "batch" else x.relu()

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor, D_refs: Tensor | None = None) -> Tensor:
        D_refs = D if D_refs is None else D_refs
        if self.form == "triplet":
            return super().loss(D, pos, neg, D_refs)
        t = math.tan(math.radians(self.alpha)) ** 2
        a, p = (pos & any_of_row(neg)[:, None]).nonzero(as_tuple=True)  # (P,)
        log_sum = _LogPairSums.apply(-D, -D_refs, neg, a, p, 4 * t)
        return softplus(log_sum + 2 * (1 + t) * D[a, p]).sum() / max(len(a), 1)


class _LogPairSums(torch.autograd.Function):
    """log Σ_{n ∈ neg(a)} exp(c S_an + c S_pn) for listed pairs (a, p).

    With E = exp(c S), each less its row's largest, the sums are inner products of rows, and the backward a product with
    the matrix of the pairs' weights: sparse while the pairs are few, dense when they are not. For large c the two
    largest may lie far from the largest of the sums S_an + S_pn, and the product underflows: such pairs are summed one
    by one.
    """

    DENSE = 1 / 16  # share of pairs from which a dense product is faster
    CHUNK = 1 << 18  # numbers gathered at a time

    @staticmethod
    def forward(ctx: Any, S: Tensor, S_refs: Tensor, neg: Tensor, a: Tensor, p: Tensor, c: float) -> Tensor:
        value, *kept = _LogPairSums.values(S, S_refs, neg, a, p, c)
        ctx.c, ctx.neg = c, neg
        ctx.save_for_backward(S, S_refs, a, p, value, *kept)
        return value

    @staticmethod
    def values(S: Tensor, S_refs: Tensor, neg: Tensor, a: Tensor, p: Tensor, c: float) -> tuple[Tensor, ...]:
        """The logarithms (P,), E (B, R) and (R, R), the products (P,), and which of the pairs they fail (F,)."""
        E, top = _LogPairSums.exponentials(S.masked_fill(~neg, -torch.inf), c)
        E_refs, top_refs = _LogPairSums.exponentials(S_refs.clone(), c)
        if _LogPairSums.dense(a, neg):
            sums = (E @ E_refs.T)[a, p]
        else:
            rows = _LogPairSums.rows(S)
            sums = torch.cat([torch.linalg.vecdot(E[i], E_refs[j]) for i, j in zip(a.split(rows), p.split(rows))])
        numbers = torch.finfo(S.dtype)
        least = S.shape[1] * numbers.tiny / numbers.eps  # above it the terms that underflow are less than round-off
        if torch.is_grad_enabled():
            least = max(least, numbers.tiny**0.25)  # higher derivatives divide by powers of the sums
        far = (sums < least).nonzero().squeeze(1)  # (F,)
        sums = sums.clamp_min(least)
        value = sums.log() + top[a] + top_refs[p]
        if len(far):
            one_by_one = [x.logsumexp(1) for _, x in _LogPairSums.terms(S, S_refs, neg, a, p, c, far)]
            value = value.index_copy(0, far, torch.cat(one_by_one))
        return value, E, E_refs, sums, far

    @staticmethod
    def exponentials(S: Tensor, c: float) -> tuple[Tensor, Tensor]:
        top = S.detach().amax(1).mul_(c).nan_to_num_(neginf=0.0)  # (B,)
        return exp_(S.mul_(c).sub_(top[:, None])), top

    @staticmethod
    def terms(
        S: Tensor, S_refs: Tensor, neg: Tensor, a: Tensor, p: Tensor, c: float, far: Tensor
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Some of the far pairs at a time, and c S_an + c S_pn for all their negatives, −inf elsewhere."""
        for k in far.split(_LogPairSums.rows(S)):
            yield k, (S[a[k]] + S_refs[p[k]]).mul_(c).masked_fill_(~neg[a[k]], -torch.inf)

    @staticmethod
    def dense(a: Tensor, neg: Tensor) -> bool:
        return len(a) > _LogPairSums.DENSE * neg.numel()

    @staticmethod
    def rows(S: Tensor) -> int:
        return max(1, _LogPairSums.CHUNK // S.shape[1])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        S, S_refs, a, p, value, E, E_refs, sums, far = ctx.saved_tensors
        if torch.is_grad_enabled():  # these gradients will be differentiated again
            S, S_refs = apart(S, S_refs)
            value, *_ = _LogPairSums.values(S, S_refs, ctx.neg, a, p, ctx.c)
            return *gradients(value, (S, S_refs), g, ctx.needs_input_grad[:2]), None, None, None, None
        W = sparse(a, p, (g / sums * ctx.c).index_fill_(0, far, 0), len(E), len(E_refs))
        W = W.to_dense() if _LogPairSums.dense(a, ctx.neg) else W
        dS, dS_refs = (W @ E_refs).mul_(E), (W.t() @ E).mul_(E_refs)
        for k, x in _LogPairSums.terms(S, S_refs, ctx.neg, a, p, ctx.c, far):
            x = x.sub_(value[k, None]).exp_().mul_(ctx.c * g[k, None])  # each pair has a softmax of its own
            dS.index_add_(0, a[k], x)
            dS_refs.index_add_(0, p[k], x)
        return dS, dS_refs, None, None, None, None
