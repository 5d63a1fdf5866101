"""Supervised losses on a linear head: the features below it are the embedding, the head is dropped after training."""

from __future__ import annotations

from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isometry.deep.loss import LabelLoss, Loss, check_labels
from isometry.parameters import NotNegative, Positive, Share, checked, one_of


class Head(LabelLoss):
    """Classifier head: a linear layer on the embedding, and a loss of its outputs.

        f_o = W f(x) + b

    The loss of f_o and the label trains f, the embedding; W and b are dropped afterwards.

    Parameters
    ----------
    num_classes : int or None, default=None
        Outputs of the layer; None: there is no layer, and the loss takes the network's own outputs.
    embedding_size : int or None, default=None
        Inputs of the layer, p; None: there is no layer.

    Notes
    -----
    Base class of the losses that classify. They need no pairs and take any batch; what they learn is known classes, and
    unseen ones only as far as these share features. Costs O(B C p).

    References
    ----------
    | M. Sikaroudi, A. Safarpoor, B. Ghojogh, S. Shafiei, M. Crowley, H. Tizhoosh, "Supervision and source domain impact
      on representation learning: a histopathology case study", EMBC 2020.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import CrossEntropy, Head
    >>> loss = CrossEntropy(num_classes=3, embedding_size=4)
    >>> isinstance(loss, Head), loss.outputs(torch.eye(4)).shape
    (True, torch.Size([4, 3]))
    """

    def __init__(self, num_classes: int | None = None, embedding_size: int | None = None):
        super().__init__()
        if (num_classes is None) != (embedding_size is None):
            raise ValueError("a head needs both num_classes and embedding_size; give neither to pass outputs directly")
        self.layer = None if num_classes is None or embedding_size is None else nn.Linear(embedding_size, num_classes)

    def compute(self, z: Tensor, y: Tensor) -> Tensor:
        return self.loss(self.outputs(z), y)

    def outputs(self, z: Tensor) -> Tensor:
        """What the head says, (B, c).

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).

        Returns
        -------
        Tensor
            Outputs (B, c).
        """
        return z if self.layer is None else F.linear(z, self.layer.weight.to(z), self.layer.bias.to(z))

    @abstractmethod
    def loss(self, f: Tensor, y: Tensor) -> Tensor:
        """Outputs (B, c) and labels or targets to a scalar.

        Parameters
        ----------
        f : Tensor
            Outputs (B, c).
        y : Tensor
            Labels (B,), or targets (B, c).

        Returns
        -------
        Tensor
            The scalar.
        """


def targets(f: Tensor, y: Tensor) -> Tensor:
    """Targets like the outputs (B, c): real values as they are, integer labels as one-hot rows."""
    if y.is_floating_point():
        y = y.to(f.dtype)
        if y.numel() != f.numel():
            raise ValueError(f"outputs {tuple(f.shape)} need targets of the same shape, got {tuple(y.shape)}")
        return y.reshape(f.shape)
    check_labels(y, f.shape[1])
    return F.one_hot(y, f.shape[1]).to(f.dtype)


class MSE(Head):
    """Mean squared error on a head: a sum over outputs, a mean over the batch; t is one-hot for labels.

        mean_i ‖f_i − t_i‖²

    Parameters
    ----------
    num_classes : int or None, default=None
        Outputs of the layer; None: there is no layer, and the loss takes the network's own outputs.
    embedding_size : int or None, default=None
        Inputs of the layer, p; None: there is no layer.

    Notes
    -----
    For continuous targets (B, c). For labels ``CrossEntropy`` is the usual choice. Costs O(B c p).

    References
    ----------
    | C. F. Gauss, "Theoria motus corporum coelestium", 1809.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import MSE
    >>> loss = MSE(num_classes=3, embedding_size=4)
    >>> z, y = torch.eye(4), torch.tensor([0, 0, 1, 2])
    >>> loss(z, y).item() > 0
    True
    >>> loss.outputs(z).shape
    torch.Size([4, 3])
    >>> MSE()(torch.zeros(2, 3), torch.ones(2, 3)).item()  # targets in place of labels, no layer
    3.0
    """

    def loss(self, f: Tensor, y: Tensor) -> Tensor:
        return (f - targets(f, y)).square().sum(1).mean()


class MAE(Head):
    """Mean absolute error on a head: a sum over outputs, a mean over the batch; t is one-hot for labels.

        mean_i ‖f_i − t_i‖₁

    Parameters
    ----------
    num_classes : int or None, default=None
        Outputs of the layer; None: there is no layer, and the loss takes the network's own outputs.
    embedding_size : int or None, default=None
        Inputs of the layer, p; None: there is no layer.

    Notes
    -----
    For continuous targets (B, c) with outliers; its gradient does not shrink near the optimum, where ``Huber`` is
    smoother. Costs O(B c p).

    References
    ----------
    | P.-S. Laplace, "Mémoire sur la probabilité des causes par les évènements", 1774.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import MAE
    >>> loss = MAE(num_classes=3, embedding_size=4)
    >>> z, y = torch.eye(4), torch.tensor([0, 0, 1, 2])
    >>> loss(z, y).item() > 0
    True
    >>> loss.outputs(z).shape
    torch.Size([4, 3])
    >>> MAE()(torch.zeros(2, 3), torch.ones(2, 3)).item()
    3.0
    """

    def loss(self, f: Tensor, y: Tensor) -> Tensor:
        return (f - targets(f, y)).abs().sum(1).mean()


class Huber(Head):
    """Huber loss on a head: squares of small residuals, absolute values of large ones.

        mean_i Σ_l h(f_il − t_il),     h(r) = ½r² if |r| ≤ δ else δ(|r| − ½δ)

    Parameters
    ----------
    num_classes : int or None, default=None
        Outputs of the layer; None: there is no layer, and the loss takes the network's own outputs.
    embedding_size : int or None, default=None
        Inputs of the layer, p; None: there is no layer.
    delta : float, default=1.0
        The residual δ up to which it is a square.

    Notes
    -----
    For continuous targets (B, c) with some outliers: between ``MSE`` and ``MAE``. Costs O(B c p).

    References
    ----------
    | P. J. Huber, "Robust estimation of a location parameter", Ann. Math. Statist. 1964.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Huber
    >>> loss = Huber(num_classes=3, embedding_size=4)
    >>> z, y = torch.eye(4), torch.tensor([0, 0, 1, 2])
    >>> loss(z, y).item() > 0
    True
    >>> loss.outputs(z).shape
    torch.Size([4, 3])
    """

    def __init__(self, num_classes: int | None = None, embedding_size: int | None = None, delta: float = 1.0):
        super().__init__(num_classes, embedding_size)
        self.delta = checked("delta", delta, Positive)

    def loss(self, f: Tensor, y: Tensor) -> Tensor:
        return F.huber_loss(f, targets(f, y), delta=self.delta, reduction="sum") / len(f)


class KL(Head):
    """Kullback–Leibler divergence on a head: t is a distribution (B, c), or one-hot for labels.

        mean_i KL(t_i ‖ p_i) = mean_i Σ_l t_il log(t_il / p_il),     p = softmax(f/T)

    Parameters
    ----------
    num_classes : int or None, default=None
        Outputs of the layer; None: there is no layer, and the loss takes the network's own outputs.
    embedding_size : int or None, default=None
        Inputs of the layer, p; None: there is no layer.
    reverse : bool, default=False
        KL(softmax ‖ t) instead; t must then be positive, so smoothing of at least 1e-3 is needed.
    label_smoothing : float, default=0.0
        Share of t spread evenly over the classes.
    temperature : float, default=1.0
        The temperature T of the softmax.

    Notes
    -----
    For targets that are distributions: several annotators, or a teacher. For labels it is ``CrossEntropy``. Costs
    O(B c p).

    References
    ----------
    | S. Kullback, R. A. Leibler, "On information and sufficiency", Ann. Math. Statist. 1951.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import KL
    >>> loss = KL(num_classes=3, embedding_size=4)
    >>> z, y = torch.eye(4), torch.tensor([0, 0, 1, 2])
    >>> loss(z, y).item() > 0
    True
    >>> loss.outputs(z).shape
    torch.Size([4, 3])
    >>> teacher = torch.tensor([[0.7, 0.2, 0.1]]).expand(4, 3)
    >>> loss(z, teacher).item() >= 0
    True
    """

    def __init__(
        self,
        num_classes: int | None = None,
        embedding_size: int | None = None,
        reverse: bool = False,
        label_smoothing: float = 0.0,
        temperature: float = 1.0,
    ):
        super().__init__(num_classes, embedding_size)
        self.reverse, self.label_smoothing = reverse, checked("label_smoothing", label_smoothing, Share)
        if reverse and label_smoothing < 1e-3:
            raise ValueError("reverse=True is infinite for one-hot targets; set label_smoothing to 1e-3 or more")
        self.temperature = checked("temperature", temperature, Positive)

    def loss(self, f: Tensor, y: Tensor) -> Tensor:
        log_p = (f / self.temperature).log_softmax(1)
        t = (1 - self.label_smoothing) * targets(f, y) + self.label_smoothing / f.shape[1]
        if self.reverse:
            return F.kl_div(t.log(), log_p, reduction="batchmean", log_target=True)
        return F.kl_div(log_p, t, reduction="batchmean")


class Hinge(Head):
    """Hinge loss on a head: of one output for y = ±1; for labels of c classes one-versus-rest or Crammer–Singer.

        y = ±1:          mean_i [m − y_i f_i]_+
        one_vs_rest:     mean_i Σ_l [m − t_il f_il]_+,  t = ±1
        crammer_singer:  mean_i [m + max_{l≠y} f_l − f_y]_+

    Parameters
    ----------
    num_classes : int or None, default=None
        Outputs of the layer; None: there is no layer, and the loss takes the network's own outputs.
    embedding_size : int or None, default=None
        Inputs of the layer, p; None: there is no layer.
    margin : float, default=1.0
        The margin m.
    squared : bool, default=False
        Square each hinge.
    multiclass : {"one_vs_rest", "crammer_singer"}, default="one_vs_rest"
        Form for more than one output.

    Notes
    -----
    The loss of support vector machines: samples beyond the margin have no gradient. It gives no probabilities. Costs
    O(B c p).

    References
    ----------
    | K. Crammer, Y. Singer, "On the algorithmic implementation of multiclass kernel-based vector machines", JMLR 2001.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Hinge
    >>> Hinge(multiclass="crammer_singer")(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0])).item()
    0.0
    >>> Hinge(num_classes=3, embedding_size=4)(torch.eye(4), torch.tensor([0, 0, 1, 2])).shape
    torch.Size([])
    """

    def __init__(
        self,
        num_classes: int | None = None,
        embedding_size: int | None = None,
        margin: float = 1.0,
        squared: bool = False,
        multiclass: str = "one_vs_rest",
    ):
        super().__init__(num_classes, embedding_size)
        self.margin, self.squared = checked("margin", margin, float), squared
        self.multiclass = one_of("multiclass", multiclass, ("one_vs_rest", "crammer_singer"))

    def loss(self, f: Tensor, y: Tensor) -> Tensor:
        terms = (self.margin - self.advantage(f, y)).relu()
        return (terms.square() if self.squared else terms).sum(1).mean()

    def advantage(self, f: Tensor, y: Tensor) -> Tensor:
        """By how much the right answer wins, (B, 1) or (B, c).

        Parameters
        ----------
        f : Tensor
            Outputs (B, c).
        y : Tensor
            Labels (B,).
        """
        if f.shape[1] == 1:
            if not ((y == 1) | (y == -1)).all():
                raise ValueError("one output needs labels −1 and +1; give num_classes outputs for labels 0 … c − 1")
            return y.to(f.dtype)[:, None] * f
        own = targets(f, y)
        if self.multiclass == "one_vs_rest":
            return (2 * own - 1) * f
        rival = f.masked_fill(own.bool(), -torch.inf).amax(1)
        return (f.gather(1, y[:, None]).squeeze(1) - rival)[:, None]


class CrossEntropy(Head):
    """Cross-entropy on a head: if wanted, with a metric-learning loss L on the embedding beside it.

        mean_i log Σ_l e^{f_il} − f_{i,y_i}  (+ λ L(z, y))

    Parameters
    ----------
    num_classes : int or None, default=None
        Outputs of the layer; None: there is no layer, and the loss takes the network's own outputs.
    embedding_size : int or None, default=None
        Inputs of the layer, p; None: there is no layer.
    label_smoothing : float, default=0.0
        Share of the target spread evenly over the classes.
    class_weight : Tensor or None, default=None
        Weights of the classes (c,); None: all count alike.
    multilabel : bool, default=False
        Sigmoid outputs: binary cross-entropy of each class, the terms (1 − y) log(1 − σ) included; y is (B, c).
    regularizer : Loss or None, default=None
        The loss L, such as ``Triplet()``; None: there is none.
    weight : float, default=1.0
        The weight λ of the regulariser.

    Notes
    -----
    The baseline for labelled classes with many samples, and the partner of losses that cannot stand alone. For
    retrieval by cosine ``NormalizedSoftmax`` or ``CosFace`` train what will be compared. Costs O(B c p), and what the
    regulariser costs.

    References
    ----------
    | M. Boudiaf et al., "A unifying mutual information view of metric learning: cross-entropy vs. pairwise losses",
      ECCV 2020.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import CrossEntropy
    >>> loss = CrossEntropy(num_classes=3, embedding_size=4)
    >>> z, y = torch.eye(4), torch.tensor([0, 0, 1, 2])
    >>> loss(z, y).item() > 0
    True
    >>> loss.outputs(z).shape
    torch.Size([4, 3])
    """

    class_weight: Tensor | None

    def __init__(
        self,
        num_classes: int | None = None,
        embedding_size: int | None = None,
        label_smoothing: float = 0.0,
        class_weight: Tensor | None = None,
        multilabel: bool = False,
        regularizer: Loss | None = None,
        weight: float = 1.0,
    ):
        super().__init__(num_classes, embedding_size)
        self.label_smoothing, self.multilabel = checked("label_smoothing", label_smoothing, Share), multilabel
        self.register_buffer("class_weight", class_weight)
        self.regularizer, self.weight = regularizer, checked("weight", weight, NotNegative)

    def compute(self, z: Tensor, y: Tensor) -> Tensor:
        value = self.loss(self.outputs(z), y)
        return value if self.regularizer is None else value + self.weight * self.regularizer(z, y)

    def loss(self, f: Tensor, y: Tensor) -> Tensor:
        class_weight = None if self.class_weight is None else self.class_weight.to(f.dtype)
        if self.multilabel:
            y = y.to(f.dtype).reshape(f.shape)
            return F.binary_cross_entropy_with_logits(f, y, class_weight, reduction="sum") / len(f)
        if not y.is_floating_point():
            check_labels(y, f.shape[1])
        else:
            y = targets(f, y)
        return F.cross_entropy(f, y, class_weight, label_smoothing=self.label_smoothing)
