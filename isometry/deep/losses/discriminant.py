"""Deep discriminant analysis: variance within classes against variance between them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from isometry.deep.functional import class_indicator, unit
from isometry.deep.loss import LabelLoss, check_labels
from isometry.parameters import Count, NotNegative, checked, one_of


def deviations(z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Rows whose Gram matrices are the biased scatters: within (B, p), and between (C_b, p) weighted by √π_l."""
    if y.ndim != 1:
        raise ValueError(f"class statistics need labels (B,), got shape {tuple(y.shape)}")
    _, members = class_indicator(y, z.dtype)  # (C_b, B)
    count = members.sum(1, keepdim=True)
    means = members @ z / count  # (C_b, p)
    within = (z - members.T @ means) / len(z) ** 0.5
    return within, (count / len(z)).sqrt() * (means - z.mean(0))


def largest(*tensors: Tensor) -> Tensor:
    """The largest absolute value, as a constant."""
    return torch.stack([x.detach().abs().amax() for x in tensors]).amax()


class ProbabilisticDA(LabelLoss):
    """Deep probabilistic discriminant analysis: variance within classes over variance between, over all coordinates.

        W / (T − W),     W = Σ_l π_l Σ_k var(z_k | l),     T = Σ_k var(z_k)

    The ratio is minimal for any single direction that separates two groups of classes: use it beside a
    ``CrossEntropy``. ``form="logdet"``, an addition of this library, keeps all directions and can stand alone:

        (1/p) ( log det(S_W + εtI) − log det(S_T + εtI) ),     t = tr(S_T)/p

    Parameters
    ----------
    form : {"ratio", "log_ratio", "logdet"}, default="ratio"
        Which of these, or the logarithm of the first.
    eps : float, default=1e-6
        What is added to the variance between, in units of the embedding.
    ridge : float, default=1e-2
        The constant ε, in units of the mean variance.

    Notes
    -----
    Beside a ``CrossEntropy``, for compact classes; "logdet" can stand alone and needs batches larger than the
    dimension. Costs O(B p), and O(B p² + p³) for "logdet".

    References
    ----------
    | L. Li, M. Doroslovački, M. H. Loew, "Discriminant analysis deep neural networks", CISS 2019.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import ProbabilisticDA
    >>> z, y = torch.tensor([[0.0], [1.0], [4.0], [5.0]]), torch.tensor([0, 0, 1, 1])
    >>> bool(ProbabilisticDA()(z, y) < ProbabilisticDA()(z, y[[0, 2, 1, 3]]))
    True
    """

    def __init__(self, form: str = "ratio", eps: float = 1e-6, ridge: float = 1e-2):
        super().__init__()
        self.form = one_of("form", form, ("ratio", "log_ratio", "logdet"))
        self.eps, self.ridge = checked("eps", eps, NotNegative), checked("ridge", ridge, NotNegative)

    def compute(self, z: Tensor, y: Tensor) -> Tensor:
        within, between = deviations(z, y)
        if len(between) < 2:
            return z.sum() * 0
        if self.form == "logdet":
            scale = largest(within, between)  # any scale gives the same value; this one keeps squares in range
            limits = torch.finfo(z.dtype)
            if scale <= max(len(z) * limits.eps * float(largest(z)), limits.tiny):
                return z.sum() * 0  # one point, up to the round-off of the mean; or its gradient, 1/scale, overflows
            within, between = within / scale, between / scale
            return self.wilks(within.T @ within, between.T @ between)
        scale = largest(within, between).clamp_min(1)  # the same value, and squares that do not overflow
        W, B = (within / scale).square().sum(), (between / scale).square().sum()
        ratio = W / (B + self.eps / scale / scale)
        return ratio if self.form == "ratio" else torch.log(ratio + self.eps)

    def wilks(self, S_W: Tensor, S_B: Tensor) -> Tensor:
        """The form "logdet" of scatters within and between the classes.

        Parameters
        ----------
        S_W : Tensor
            Scatter within the classes (p, p).
        S_B : Tensor
            Scatter between the classes (p, p).

        Returns
        -------
        Tensor
            The scalar.
        """
        p = len(S_W)
        S_T = S_W + S_B
        I = torch.eye(p, dtype=S_W.dtype, device=S_W.device) * self.ridge * S_T.detach().trace() / p
        return (torch.logdet(S_W + I) - torch.logdet(S_T + I)) / p


class VirtualSampleDA(LabelLoss):
    """Discriminant analysis with virtual samples: similar pairs with larger inner products than dissimilar ones.

        g = exp(−fᵀf'),     r = s + ε λ̄ u,   s = mean g,   u ∼ U(−1, 1)^q,   λ̄ = tr((S_W + ρI)⁻¹ S_B) / d
        (1/q) Σ_i [(g_pos(i) − g_neg(i)) mean|r| + m]_+ − κ tr(UᵀS_B U) / tr(UᵀS_W U)

    q similar and q dissimilar pairs are matched at random. The embedding is f, on which the hinge acts; the projection
    U, a parameter of the loss, is trained by the ratio alone. After the published description, whose constants are not
    known.

    Parameters
    ----------
    embedding_size : int
        Dimension p of the embeddings, the rows of U.
    output_size : int, default=32
        The columns of U.
    epsilon : float, default=1e-4
        The size ε of the perturbation.
    margin : float, default=0.1
        The margin m.
    kappa : float, default=1e-5
        The weight κ of the ratio.
    ridge : float, default=1e-3
        What is added to the diagonal of S_W, ρ.
    normalize : bool, default=True
        Put embeddings on the unit sphere first.
    random_state : int, default=0
        Seed of u and of the matching.

    Notes
    -----
    After a description without its constants: for comparison rather than for use. Costs O(B p² + p³).

    References
    ----------
    | D. H. Kim, B. C. Song, "Virtual sample-based deep metric learning using discriminant analysis", Pattern
      Recognition 2021.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import VirtualSampleDA
    >>> loss = VirtualSampleDA(embedding_size=4, output_size=2)
    >>> bool(loss(torch.eye(4), torch.tensor([0, 0, 1, 1])).isfinite())
    True
    """

    step: Tensor

    def __init__(
        self,
        embedding_size: int,
        output_size: int = 32,
        epsilon: float = 1e-4,
        margin: float = 0.1,
        kappa: float = 1e-5,
        ridge: float = 1e-3,
        normalize: bool = True,
        random_state: int = 0,
    ):
        super().__init__()
        self.normalize = normalize
        shape = checked("embedding_size", embedding_size, Count), checked("output_size", output_size, Count)
        self.projection = nn.Linear(*shape, bias=False)
        self.epsilon, self.margin = checked("epsilon", epsilon, NotNegative), checked("margin", margin, float)
        self.kappa, self.ridge = checked("kappa", kappa, NotNegative), checked("ridge", ridge, NotNegative)
        self.random_state = random_state
        self.register_buffer("step", torch.zeros((), dtype=torch.long))

    def compute(self, z: Tensor, y: Tensor) -> Tensor:
        if self.normalize:
            z = unit(z)
        draw = torch.Generator().manual_seed(self.random_state + int(self.step))
        if self.training:
            self.step += 1
        within, between = deviations(z, y)
        return self.hinge(z, y, within.detach(), between.detach(), draw) - self.kappa * self.fisher(within, between)

    def hinge(self, z: Tensor, y: Tensor, within: Tensor, between: Tensor, draw: torch.Generator) -> Tensor:
        """The hinge of matched similar and dissimilar pairs.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        y : Tensor
            Labels (B,).
        within : Tensor
            Scatter within the classes (p, p).
        between : Tensor
            Scatter between the classes (p, p).
        draw : torch.Generator
            Source of random numbers.

        Returns
        -------
        Tensor
            The scalar.
        """
        i, j = torch.triu_indices(len(z), len(z), 1, device=z.device)
        g, same = torch.exp(-(z @ z.T)[i, j]), y[i] == y[j]
        q = int(min(same.sum(), (~same).sum()))
        if not q:
            return z.sum() * 0
        g_pos, g_neg = (g[k][torch.randperm(int(k.sum()), generator=draw)[:q].to(z.device)] for k in (same, ~same))
        s = (g_pos.detach().mean() + g_neg.detach().mean()) / 2
        u = (2 * torch.rand(q, generator=draw) - 1).to(z)
        r = s + self.epsilon * self.mean_eigenvalue(within, between) * u
        return ((g_pos - g_neg) * r.abs().mean() + self.margin).relu().mean()

    def mean_eigenvalue(self, within: Tensor, between: Tensor) -> Tensor:
        """The mean eigenvalue λ̄ of (S_W + ρI)⁻¹ S_B, as a trace.

        Parameters
        ----------
        within : Tensor
            Scatter within the classes (p, p).
        between : Tensor
            Scatter between the classes (p, p).
        """
        d = within.shape[1]
        S_W = within.T @ within + self.ridge * torch.eye(d, dtype=within.dtype, device=within.device)
        return torch.linalg.solve(S_W, between.T @ between).trace() / d

    def fisher(self, within: Tensor, between: Tensor) -> Tensor:
        """The ratio tr(UᵀS_B U) / tr(UᵀS_W U); zero if nothing varies within the classes, beyond round-off.

        Parameters
        ----------
        within : Tensor
            Scatter within the classes (p, p).
        between : Tensor
            Scatter between the classes (p, p).
        """
        U = self.projection.weight.to(within.dtype).T  # (d, p)
        within, between = within @ U, between @ U
        scale = largest(within, between).clamp_min(torch.finfo(U.dtype).tiny)  # the ratio does not depend on it
        W, B = (within / scale).square().sum(), (between / scale).square().sum()
        varies = torch.finfo(U.dtype).eps ** 2 * B.detach() < W
        return torch.where(varies, B / torch.where(varies, W, 1), 0)


class DeepFisherDA(LabelLoss):
    """Deep Fisher discriminant analysis: least squares onto targets that make a linear network Fisher's analysis.

        ½ mean_i ‖F_i − Y_{y_i}‖²,     Y_lj = (n − n_j)/(n √n_j) if l = j else −√n_j/n

    Network outputs F (B, c) are the embedding; classify by the nearest class mean.

    Parameters
    ----------
    class_counts : sequence of int or None, default=None
        Samples n_l of each class in the training set; None: they are not needed, with ``per_batch``.
    target_scale : {"sqrt_n"} or None, default="sqrt_n"
        Multiply the targets by √n, which makes them of order one and only rescales the solution.
    per_batch : bool, default=False
        Use the counts of each batch instead, as the survey prints it; the targets then change from batch to batch.

    Notes
    -----
    When a linear discriminant analysis of a network's output is wanted; it is a least-squares problem, so any batch
    will do. The output has one dimension for each class. Costs O(B c).

    References
    ----------
    | D. Díaz-Vico, A. Omari, A. Torres-Barrán, J. R. Dorronsoro, "Deep Fisher discriminant analysis", IWANN 2017.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import DeepFisherDA
    >>> loss = DeepFisherDA(class_counts=[2, 2])
    >>> y = torch.tensor([0, 0, 1, 1])
    >>> loss(loss.table[y], y).item()
    0.0
    """

    table: Tensor | None

    def __init__(
        self,
        class_counts: Sequence[int] | None = None,
        target_scale: str | None = "sqrt_n",
        per_batch: bool = False,
    ):
        super().__init__()
        if class_counts is None and not per_batch:
            raise ValueError("DeepFisherDA needs class_counts of the training set (or per_batch=True)")
        if target_scale not in ("sqrt_n", None):
            raise ValueError(f"target_scale must be 'sqrt_n' or None, got {target_scale!r}")
        self.target_scale, self.per_batch = target_scale, per_batch
        table = None if class_counts is None else self.targets(torch.as_tensor(class_counts, dtype=torch.float64))
        self.register_buffer("table", table if table is None else table.float())

    def targets(self, counts: Tensor) -> Tensor:
        """The table Y (c, c): a row for each class. Columns of absent classes are zero.

        Parameters
        ----------
        counts : Tensor
            Samples of each class (c,).

        Returns
        -------
        Tensor
            The table (c, c).
        """
        n, root = counts.sum(), counts.sqrt()
        present = counts > 0
        Y = torch.diag(torch.where(present, 1 / torch.where(present, root, 1), 0)) - root / n
        return Y * n.sqrt() if self.target_scale else Y

    def compute(self, z: Tensor, y: Tensor) -> Tensor:
        check_labels(y, z.shape[1])
        if self.per_batch or self.table is None:
            table = self.targets(torch.bincount(y, minlength=z.shape[1]).to(z.dtype))
        else:
            table = self.table.to(z.dtype)
        if z.shape[1] != len(table):
            raise ValueError(f"{len(table)} classes need network outputs (B, {len(table)}), got {tuple(z.shape)}")
        return (z - table[y]).square().sum(1).mean() / 2
