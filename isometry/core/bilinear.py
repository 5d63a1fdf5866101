"""A map of queries alone: documents stay where they are, and score = ⟨Aq, d⟩."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import scipy.linalg as sla


class BilinearMoments(NamedTuple):
    """Second moments of queries q, of documents d about their mean, and of queries with what is relevant to them."""

    queries: np.ndarray  # (d, d) C = E qqᵀ
    documents: np.ndarray  # (d, d) D = E (d − d̄)(d − d̄)ᵀ
    relevant: np.ndarray  # (d, d) M = E p(q) qᵀ, with p(q) the mean of what is relevant to q, about d̄


def query_maps(moments: BilinearMoments, ridges: Sequence[float]) -> Iterator[np.ndarray]:
    """A (d, d) for each ridge λ: least squares over all queries and documents, drawn to the identity.

        min_A E (⟨Aq, d − d̄⟩ − τ t(q, d))² + λ c |A − I|²

    t(q, d) is the number of documents for those relevant to q, divided by how many these are, and 0 for all others. A
    shift of all scores of a query changes no order, so that documents may be taken about their mean d̄. With
    τ = tr(DC) / tr(M) the identity is neither to be lengthened nor shortened, and c = tr(D) tr(C) / d² is the mean
    product of their eigenvalues, so that λ has no unit. In the eigenvectors U of D and V of C::

        (UᵀAV)_ij = (τ UᵀMV + λ c UᵀV)_ij / (δ_i γ_j + λ c)
    """
    C, D, M = moments
    if np.trace(M) <= 0:
        raise ValueError("relevant documents are no nearer to their queries than others: a map of queries cannot help")
    d = len(C)
    unit = float(np.trace(D) * np.trace(C)) / d**2
    tau = float(np.vdot(D, C) / np.trace(M))
    (delta, U), (gamma, V) = sla.eigh(D), sla.eigh(C)
    target, plain = tau * U.T @ M @ V, U.T @ V
    eigenvalues = np.maximum(np.outer(delta, gamma), 0)
    for ridge in ridges:
        yield U @ ((target + ridge * unit * plain) / (eigenvalues + ridge * unit)) @ V.T
