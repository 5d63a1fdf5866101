"""Losses whose references are proxies: points that stand for classes and are learned, averaged or clustered."""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isometry.deep.functional import (
    class_indicator,
    log1mexp,
    masked_logsumexp,
    masks,
    own_index,
    unit,
)
from isometry.deep.loss import Loss, as_embeddings, as_labels, check_batch, check_labels
from isometry.deep.losses.nca import log_probability, of_found
from isometry.deep.terms import Terms, mean_of_terms, where
from isometry.parameters import Count, Positive, Share, checked, one_of

TURN = 0.024  # largest angle of a proxy's first step under Adam


class ProxyForm(Loss):
    """A loss that compares a batch with references of its own, of ``num_classes`` classes.

    Only the direction of a proxy counts. A step of Adam changes each of its p numbers by about the learning rate, and
    so turns a proxy of unit length by rate · √p: the rate is capped at ``TURN`` / √p, which turns it by the same angle
    in all dimensions. A cap of 0.01, or a start at N(0, 1) with rate 0.01 as elsewhere (an angle of 0.01), did worse.
    MAP@R on unseen classes, p = 64, 600 steps, for angles 0.08, 0.024 and 0.01: omniglot with quarter turns as classes
    (320), small convolutional network, one seed, `ProxyNCA` .198, .245, .239 and `ProxyNCAPlusPlus` .247, .257, .240;
    sentences of clinc150 (100 classes), perceptron, mean of two seeds, .654, .658, .650 and .617, .613, .608. Not
    everywhere: a perceptron on that omniglot, two seeds, prefers the largest, .157, .142, .130 and .146, .140, .124.
    """

    lr_mult = 100.0
    one_class_each = True  # False: the proxies belong to no class, and labels need not number them

    def __init__(self, num_classes: int, embedding_size: int):
        super().__init__("sqeuclidean", None, normalize=True)
        self.num_classes = checked("num_classes", num_classes, Count)
        self.lr_cap = min(1e-2, TURN / math.sqrt(checked("embedding_size", embedding_size, Count)))

    @property
    @abstractmethod
    def references(self) -> Tensor:
        """The proxies, their last axis the embedding's."""

    def inputs(
        self, z: Tensor, y: Tensor, refs: Tensor | None, ref_y: Tensor | None, self_index: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
        """Embeddings (B, p) with labels 0 … C − 1, or with similarities (B, C) to the classes, and the proxies.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        y : Tensor
            Labels (B,), or a matrix of similarities (B, C).
        refs : Tensor or None
            None: the proxies are the references, and others raise a ``ValueError``.
        ref_y : Tensor or None
            Not used: the label of a proxy is its class.
        self_index : Tensor or None
            Not used: no proxy is an anchor.
        """
        if refs is not None:
            raise ValueError(f"{type(self).__name__} compares with its own proxies and takes no refs")
        z = as_embeddings(z, "z", squared=True)
        y = as_labels(y, z.device)
        proxies, classes = self.references.to(z.dtype), own_index(self.num_classes, z.device)
        check_batch(z, y, proxies.new_empty(()).expand(self.num_classes, proxies.shape[-1]), classes)
        if y.ndim == 1 and self.one_class_each:
            check_labels(y, self.num_classes)
        return z, y, proxies, classes, None


def random_proxies(*shape: int) -> nn.Parameter:
    """Random directions of unit length."""
    return nn.Parameter(unit(torch.randn(*shape)))


class ProxyNCA(ProxyForm):
    """Proxy neighbourhood component analysis: proxies are the neighbours; the anchor's own is not in the sum.

        mean_i  d(i, π_i) + log Σ_{π ≠ π_i} e^{−d(i, π)},     d = scale · ‖ẑ − π̂‖²

    Not a probability: the loss may be negative.

    Parameters
    ----------
    num_classes : int
        Number of classes C, and of proxies; k-means centroids may be more or fewer than the classes.
    embedding_size : int
        Dimension p of the embeddings.
    proxies : {"learned", "class_mean", "kmeans"}, default="learned"
        Parameters trained with the network; running class means (after each training step, see ``momentum``); or
        centroids, set by ``fit_proxies``.
    assignment : {"class", "nearest"}, default="class"
        π_i is the proxy of the anchor's class, or the one nearest to a positive of the anchor (one term for each
        positive), for proxies that belong to no class. ``"kmeans"`` needs ``"nearest"``.
    scale : float, default=1.0
        The squared length to which both vectors are stretched.
    momentum : float or None, default=None
        Class means forget: new = momentum · old + (1 − momentum) · batch. By default the mean of all seen.

    Notes
    -----
    Compares samples with one point a class, so that any batch will do, without sampler or miner. Similarities among
    samples are not seen; where they matter, ``ProxyAnchor`` or pair losses see them. Costs O(B C p).

    References
    ----------
    | Y. Movshovitz-Attias, A. Toshev, T. Leung, S. Ioffe, S. Singh, "No fuss distance metric learning using proxies",
      ICCV 2017.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import ProxyNCA
    >>> loss = ProxyNCA(num_classes=3, embedding_size=4)
    >>> z, y = torch.eye(4), torch.tensor([0, 0, 1, 2])
    >>> value = loss(z, y)
    >>> value.shape, bool(value.isfinite())
    (torch.Size([]), True)
    >>> loss.proxies.shape
    torch.Size([3, 4])
    """

    proxies: Tensor
    count: Tensor  # samples behind each proxy; 0: not yet known, left out

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        proxies: str = "learned",
        assignment: str = "class",
        scale: float = 1.0,
        momentum: float | None = None,
    ):
        super().__init__(num_classes, embedding_size)
        self.source = one_of("proxies", proxies, ("learned", "class_mean", "kmeans"))
        self.assignment = one_of("assignment", assignment, ("class", "nearest"))
        if proxies == "kmeans" and assignment == "class":
            raise ValueError("a k-means centroid belongs to no class; use assignment='nearest' with proxies='kmeans'")
        self.one_class_each = assignment == "class" or proxies == "class_mean"
        self.scale, self.momentum = checked("scale", scale, Positive), momentum
        if proxies == "learned":
            self.proxies = random_proxies(num_classes, embedding_size)
        else:
            self.register_buffer("proxies", torch.zeros(num_classes, embedding_size))
        self.register_buffer("count", torch.full((num_classes,), float(proxies == "learned")))

    @property
    def references(self) -> Tensor:
        return self.proxies

    def compute(self, z: Tensor, y: Tensor, refs: Tensor, ref_y: Tensor | None, self_index: Tensor | None) -> Tensor:
        if self.assignment == "class":
            return mean_of_terms(*self.terms(z, y, refs, ref_y, self_index))
        value = self.nearest(self.scale * self.distances(z, refs), y, self.count > 0)
        self.after(z, y)
        return value

    def terms(self, z: Tensor, y: Tensor, refs: Tensor, ref_y: Tensor | None, self_index: Tensor | None) -> Terms:
        if self.assignment == "nearest":  # a mean over pairs of the batch, not of samples and proxies
            raise self.no_terms()
        D = self.scale * self.distances(z, refs)  # (B, C)
        known = self.count > 0
        pos, neg = masks(y, ref_y)
        terms = self.split(D, pos & known, neg & known)
        self.after(z, y)
        return terms

    def not_split(self) -> str:
        return "(assignment='nearest')"

    def split(self, D: Tensor, pos: Tensor, neg: Tensor) -> Terms:
        return where(D + masked_logsumexp(-D, neg)[:, None], pos & neg.any(1, keepdim=True))

    def after(self, z: Tensor, y: Tensor) -> None:
        """Class means take in the batch in training.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        y : Tensor
            Labels (B,).
        """
        if self.source == "class_mean" and self.training:
            self.update(z.detach(), y)

    def nearest(self, D: Tensor, y: Tensor, known: Tensor) -> Tensor:
        """One term for each positive pair (i, j): the proxy nearest to j is positive for i, all others negative.

        Parameters
        ----------
        D : Tensor
            Distances to the proxies (B, C).
        y : Tensor
            Labels (B,).
        known : Tensor
            Which samples take part (B,).
        """
        if y.ndim != 1:
            raise ValueError("assignment='nearest' needs labels (B,), which say what is a positive of what")
        if known.sum() < 2:
            return D.sum() * 0
        D = D[:, known]
        pos, _ = masks(y, y, torch.arange(len(y), device=y.device))  # (B, B)
        near = F.one_hot(D.detach().argmin(1), D.shape[1]).to(D.dtype)  # (B, C), proxy of each sample
        weight = pos.to(D.dtype) @ near  # (B, C), positives of i assigned to each proxy
        return (weight * (D + logsumexp_of_others(-D))).sum() / pos.sum().clamp_min(1)

    @torch.no_grad()
    def update(self, z: Tensor, y: Tensor) -> None:
        """Take a batch into the class means.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        y : Tensor
            Labels (B,).
        """
        classes, members = class_indicator(y, z.dtype)
        n, total = members.sum(1), members @ z  # (C_b,), (C_b, p)
        old, old_n = self.proxies[classes].to(z.dtype), self.count[classes].to(z.dtype)
        if self.momentum is None:
            mean = (old_n[:, None] * old + total) / (old_n + n)[:, None]
        else:
            keep = torch.where(old_n > 0, self.momentum, 0.0)[:, None]
            mean = keep * old + (1 - keep) * total / n[:, None]
        self.proxies[classes] = mean.to(self.proxies.dtype)
        self.count[classes] += n.to(self.count.dtype)

    @torch.no_grad()
    def fit_proxies(self, z: Tensor, random_state: int = 0) -> None:
        """Set the proxies to the k-means centroids of unit-length embeddings; call it anew as the network learns.

        Parameters
        ----------
        z : Tensor
            Embeddings (n, p).
        random_state : int, default=0
            Seed of the k-means.
        """
        from sklearn.cluster import KMeans

        clusters = KMeans(self.num_classes, n_init=1, random_state=random_state).fit(unit(z.float()).cpu().numpy())
        self.proxies.copy_(torch.as_tensor(clusters.cluster_centers_))
        self.count.fill_(1)


def logsumexp_of_others(s: Tensor) -> Tensor:
    """log Σ_{l ≠ c} e^{s_il} for every i and c (B, C), in O(B C); C ≥ 2.

    The total less one term is accurate unless that term dominates, so the largest of each row is left out explicitly.
    """
    top = F.one_hot(s.argmax(1), s.shape[1]).bool()  # (B, C)
    without_top = masked_logsumexp(s, ~top)[:, None]
    lse = s.logsumexp(1, keepdim=True)
    return torch.where(top, without_top, lse + log1mexp((s - lse).masked_fill(top, -1.0)))


class ProxyNCAPlusPlus(ProxyForm):
    """Proxy-NCA++: softmax over all learned proxies, the anchor's own included, with a temperature.

        −mean_i log softmax_l(−‖ẑ_i − π̂_l‖² / T)[y_i]

    The published recipe adds global max pooling, layer normalisation before the embedding, class-balanced batches and a
    much faster learning rate for the proxies (``lr_mult``).

    Parameters
    ----------
    num_classes : int
        Number of classes C.
    embedding_size : int
        Dimension p of the embeddings.
    temperature : float, default=0.1111111111111111
        The temperature T: the smaller, the more the nearest proxies count.
    label_smoothing : float, default=0.0
        Share of the target spread evenly over all proxies.

    Notes
    -----
    As ``ProxyNCA``, as a true softmax. The proxies want a larger learning rate than the network, which ``param_groups``
    gives. Costs O(B C p).

    References
    ----------
    | E. W. Teh, T. DeVries, G. W. Taylor, "ProxyNCA++: revisiting and revitalizing proxy neighborhood component
      analysis", ECCV 2020.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import ProxyNCAPlusPlus
    >>> loss = ProxyNCAPlusPlus(num_classes=3, embedding_size=4)
    >>> z, y = torch.eye(4), torch.tensor([0, 0, 1, 2])
    >>> value = loss(z, y)
    >>> value.shape, bool(value.isfinite())
    (torch.Size([]), True)
    """

    def __init__(self, num_classes: int, embedding_size: int, temperature: float = 1 / 9, label_smoothing: float = 0.0):
        super().__init__(num_classes, embedding_size)
        self.proxies = random_proxies(num_classes, embedding_size)
        self.temperature = checked("temperature", temperature, Positive)
        self.label_smoothing = checked("label_smoothing", label_smoothing, Share)

    @property
    def references(self) -> Tensor:
        return self.proxies

    def compute(self, z: Tensor, y: Tensor, refs: Tensor, ref_y: Tensor | None, self_index: Tensor | None) -> Tensor:
        if y.ndim == 2:
            return super().compute(z, y, refs, ref_y, self_index)
        return F.cross_entropy(self.logits(z, refs), y, label_smoothing=self.label_smoothing)

    def terms(self, z: Tensor, y: Tensor, refs: Tensor, ref_y: Tensor | None, self_index: Tensor | None) -> Terms:
        if y.ndim == 2:
            return super().terms(z, y, refs, ref_y, self_index)
        smoothing = self.label_smoothing
        values = F.cross_entropy(self.logits(z, refs), y, label_smoothing=smoothing, reduction="none")
        return values, torch.ones_like(values)

    def logits(self, z: Tensor, refs: Tensor) -> Tensor:
        """−‖ẑ − π̂‖² / T = (2 ẑᵀπ̂ − 2) / T (B, C), without the constant, which cancels.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        refs : Tensor
            Proxies (C, p).
        """
        return 2 / self.temperature * unit(z) @ unit(refs).T

    def split(self, D: Tensor, pos: Tensor, neg: Tensor) -> Terms:
        s = D / -self.temperature
        log_p = log_probability(s, pos, neg)
        spread = -s.log_softmax(1).mean(1)
        return of_found((1 - self.label_smoothing) * -log_p + self.label_smoothing * spread, log_p)
