"""Losses that are one mean over terms of anchors: their sums, with weights of the anchors or without.

A term adds ``value`` to the sum and ``count`` to the number it is divided by: 1, or its similarity where labels are
soft. Terms are (B,), one for each anchor, or (B, R), one for each pair; both are 0 where there is none.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

Terms = tuple[Tensor, Tensor]  # values and counts


def where(values: Tensor, counted: Tensor) -> Terms:
    """Terms that count 1 each where ``counted`` holds, and there are none elsewhere."""
    return values.masked_fill(~counted, 0), counted


def mean_of_terms(values: Tensor, counts: Tensor, weight: Tensor | None = None) -> Tensor:
    """Σ w v / Σ w c, where w is the weight of the term's anchor; 0, still part of the graph, if nothing counts."""
    if weight is None and counts.dtype == torch.bool:
        return values.sum() / counts.count_nonzero().clamp_min(1)
    if weight is not None:
        w = weight.view(-1, *(1,) * (values.ndim - 1))
        values, counts = values * w, counts * w
    total = counts.sum()
    return values.sum() / torch.where(total > 0, total, 1)


def means_of_anchors(values: Tensor, counts: Tensor) -> Tensor:
    """The mean over the terms of each anchor (B,); 0 for an anchor that has none."""
    values, counts = values.flatten(1).sum(1) if values.ndim > 1 else values, per_row(counts)
    return values / torch.where(counts > 0, counts, 1)


def per_row(counts: Tensor) -> Tensor:
    """What the terms of each anchor count together, (B,)."""
    return counts.flatten(1).sum(1) if counts.ndim > 1 else counts.long() if counts.dtype == torch.bool else counts


def as_weight(weight: Any, z: Tensor) -> Tensor:
    """Weights of the rows of z (B, p): finite, not negative, one for each, in the precision of z; or an error."""
    weight = torch.as_tensor(weight, device=z.device).to(z.dtype)
    if weight.shape != z.shape[:1]:
        raise ValueError(f"{len(z)} embeddings need weights ({len(z)},), got shape {tuple(weight.shape)}")
    bad = (~(weight.isfinite() & (weight >= 0))).nonzero().squeeze(1).tolist()
    if bad:
        raise ValueError(
            f"weights must be finite and not negative, got {float(weight[bad[0]])} for row {bad[0]} "
            f"({len(bad)} of {len(z)} rows); 0 leaves an anchor out"
        )
    return weight
