"""Deep adversarial metric learning: a generator makes negatives that the metric finds hard."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from isometry.deep.distributed import gather
from isometry.deep.functional import full_precision, masks, paired, sqeuclidean, unit
from isometry.deep.loss import Loss, LossModule, TripletForm, own_parameters
from isometry.deep.losses.triplet import Triplet
from isometry.deep.miners import RandomTriplets, TripleMiner
from isometry.deep.models.mlp import MLP
from isometry.deep.objective import on_sphere
from isometry.deep.objectives.siamese import loss_of_triplets
from isometry.deep.slopes import Triples

PRETRAIN_STEPS = 100  # batches of pretraining if the length of the run is not known


class DAML(nn.Module):
    """Deep adversarial metric learning: a generator of hard negatives x̃ = G(x, x⁺, x⁻), and the metric f they train.

        L_gen = mean ‖x̃ − x‖² + λ₁ ‖x̃ − x⁻‖² + λ₂ [‖f(x̃) − f(x)‖² − ‖f(x⁺) − f(x)‖² − α]_+
        L     = L_gen + λ L_metric(f(x), f(x⁺), f(x̃))

    x are features, the input of the last part of the model, f. The generator is moved by L_gen alone, through an f that
    it cannot move; features and f are moved by L_metric alone, to which x̃ is a constant. Triplets come from labelled
    batches: of the loss's miner if it chooses triplets, else one at random for each anchor.

    Parameters
    ----------
    generator : int or nn.Module
        The generator G, from (T, 3d') to (T, d'); the number d' of features makes a perceptron with one hidden layer.
    loss : LossModule or None, default=None
        The loss L_metric; None: ``Triplet`` on squared distances with margin α. A loss that knows no triplets gets the
        batch and the synthetic negatives, which bear the label of x⁻.
    margin : float, default=1.0
        The margin α, in squared distances.
    lam1 : float, default=1.0
        The weight λ₁, which keeps x̃ near the real negative.
    lam2 : float, default=1.0
        The weight λ₂, which makes x̃ violate the margin.
    lam : float, default=1.0
        The weight λ of the metric loss.
    pretrain_steps : int or None, default=None
        Batches at the beginning in which the metric learns from real negatives; the generator already learns. None:
        half of the run, whose length a `Trainer` tells; 100 if nobody does.
    joint : bool, default=False
        Let both players descend the sum, after those batches: every part of it moves every weight.
    unit_features : bool, default=False
        Take the first two distances between features of unit length.

    Notes
    -----
    Over the same triplets without an adversary little is gained. MAP@R, mean of five runs of 400 steps (new classes of
    isolet and of ts_faceall, known ones of usps) on splits that chose nothing: 0.621, against 0.616 for real negatives
    alone. With λ₂ = 50, as in the paper, 100 batches of pretraining and a generator ten times slower: 0.502.

    A step costs O(T d'²) for the generator of T triplets, beside two passes of f.

    References
    ----------
    | Y. Duan, W. Zheng, X. Lin, J. Lu, J. Zhou, "Deep adversarial metric learning", CVPR 2018.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import DAML, MLP
    >>> model = torch.nn.Sequential(MLP(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> objective = DAML(8, pretrain_steps=0)
    >>> objective(model, (torch.eye(4), torch.tensor([0, 0, 1, 1]))).item() > 0
    True
    """

    steps: Tensor  # training batches seen, saved with the weights
    pretraining: Tensor  # batches of it, −1 as long as they are not known
    lr_mult = 1.0  # learning rate of the generator, in units of the model's

    def __init__(
        self,
        generator: int | nn.Module,
        loss: LossModule | None = None,
        *,
        margin: float = 1.0,
        lam1: float = 1.0,
        lam2: float = 1.0,
        lam: float = 1.0,
        pretrain_steps: int | None = None,
        joint: bool = False,
        unit_features: bool = False,
    ):
        super().__init__()
        plain = Triplet(margin, distance="sqeuclidean", normalize=False, reduction="mean")
        self.loss = plain if loss is None else loss
        if not isinstance(self.loss, LossModule):
            raise TypeError(f"loss must be a loss of this library, such as Triplet or NPair; got {type(loss).__name__}")
        self.one_each = RandomTriplets(random_state=0)
        self.generator = MLP(3 * generator, generator, (generator,)) if isinstance(generator, int) else generator
        self.margin, self.lam1, self.lam2, self.lam = margin, lam1, lam2, lam
        self.joint, self.unit_features = joint, unit_features
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.register_buffer("pretraining", torch.tensor(-1 if pretrain_steps is None else pretrain_steps))

    @property
    def pretrain_steps(self) -> int:
        """Batches in which the metric learns from real negatives."""
        return PRETRAIN_STEPS if self.pretraining < 0 else int(self.pretraining)

    def plan_steps(self, steps: int) -> None:
        """Take half of so many batches for pretraining, unless it has been given or taken before.

        Parameters
        ----------
        steps : int
            Batches of the whole run.
        """
        if self.pretraining < 0:
            self.pretraining.fill_(steps // 2)

    def forward(self, model: nn.Module, batch: Any) -> Tensor:
        """The sum of both players' losses on a batch.

        Parameters
        ----------
        model : nn.Sequential
            Features, then the metric f as the last part.
        batch : tuple
            Samples (B, …) and labels (B,).

        Returns
        -------
        Tensor
            The scalar.
        """
        x, y = batch
        features, head = features_and_head(model)
        h, y = gather(features(x), y)  # (B, d')
        z = full_precision(head(h))  # (B, p)
        a, p, n = triples = self.triples(z, y)
        pretraining = self.training and bool(self.steps < self.pretrain_steps)
        self.steps += self.training
        joint = self.joint and not pretraining
        u, v, f = (h, z, head) if joint else (h.detach(), z.detach(), Frozen(head))
        made = self.generator(torch.cat([u[a], u[p], u[n]], 1))  # (T, d')
        fooled = full_precision(f(made))  # (T, p), here the gradient reaches G through f
        value = self.generator_loss(made, u, fooled, v, triples)
        if pretraining:
            negatives = z[n]
        elif joint:
            negatives = fooled
        else:
            negatives = full_precision(head(made.detach()))
        return value + self.lam * self.metric_loss(z, y, triples, negatives, synthetic=not pretraining)

    @torch.no_grad()
    def triples(self, z: Tensor, y: Tensor) -> Triples:
        """Anchors, positives and negatives as rows of the batch.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        y : Tensor
            Labels (B,).
        """
        pos, neg = masks(y, self_index=torch.arange(len(y), device=y.device))
        with torch.autocast(z.device.type, enabled=False):
            miner = self.loss.miner if isinstance(self.loss, Loss) else None
            if isinstance(self.loss, Loss) and isinstance(miner, TripleMiner) and miner.gives_triples:
                return miner.triples(self.loss.as_mined(self.loss.distances(z, z)), pos, neg)
            return self.one_each.triples(sqeuclidean(z, z), pos, neg)

    def generator_loss(self, made: Tensor, features: Tensor, fooled: Tensor, z: Tensor, triples: Triples) -> Tensor:
        """The loss L_gen of synthetic features x̃ (T, d') with embeddings f(x̃) (T, p), among those of the batch.

        Parameters
        ----------
        made : Tensor
            Synthetic features (T, d').
        features : Tensor
            Features of the batch (B, d').
        fooled : Tensor
            Embeddings of the synthetic features (T, p).
        z : Tensor
            Embeddings (B, p).
        triples : tuple of Tensor
            Rows of anchors, positives and negatives, (T,) each.
        """
        a, p, n = triples
        made, features = full_precision(made), full_precision(features)
        fooled, z = self.on_sphere(fooled), self.on_sphere(z)
        if self.unit_features:
            made, features = unit(made), unit(features)
        sq = partial(paired, "sqeuclidean")
        hard, real = sq(made, features[a]), sq(made, features[n])  # (T,)
        adversarial = (sq(fooled, z[a]) - sq(z[p], z[a]) - self.margin).relu()
        return (hard + self.lam1 * real + self.lam2 * adversarial).sum() / max(len(made), 1)

    def metric_loss(self, z: Tensor, y: Tensor, triples: Triples, negatives: Tensor, synthetic: bool) -> Tensor:
        """The loss L_metric with ``negatives`` (T, p) in place of the real ones.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        y : Tensor
            Labels (B,).
        triples : tuple of Tensor
            Rows of anchors, positives and negatives, (T,) each.
        negatives : Tensor
            Embeddings of the negatives (T, p).
        synthetic : bool
            Whether they were made.
        """
        a, p, n = triples
        if isinstance(self.loss, TripletForm):
            return loss_of_triplets(self.loss, z[a], z[p], negatives)
        if synthetic:
            z, y = torch.cat([z, negatives]), torch.cat([y, y[n]])
        return self.loss(z, y) if z.isfinite().all() else z.sum()  # not finite: the trainer counts and reports it

    def on_sphere(self, z: Tensor) -> Tensor:
        """Embeddings as the loss compares them.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        """
        return unit(z) if on_sphere(self.loss) else z

    def param_groups(self, lr: float) -> list[dict[str, Any]]:
        """Optimiser groups: the generator, then the loss.

        Parameters
        ----------
        lr : float
            Learning rate of the backbone.
        """
        return own_parameters(self.generator, lr * self.lr_mult) + self.loss.param_groups(lr)


class Frozen:
    """A module whose gradient passes to its input but not to its weights, and whose buffers stay as they are."""

    def __init__(self, module: nn.Module):
        self.module = module
        self.state = {name: p.detach() for name, p in module.named_parameters()}
        self.state |= {name: b.clone() for name, b in module.named_buffers()}

    def __call__(self, x: Tensor) -> Tensor:
        return functional_call(self.module, self.state, (x,))


def features_and_head(model: nn.Module) -> tuple[Any, nn.Module]:
    """The two parts of a model: samples to features, and features to embeddings."""
    if isinstance(model, nn.Sequential) and len(model) > 1:
        return model[:-1], model[-1]
    features, head = getattr(model, "features", None), getattr(model, "head", None)
    if callable(features) and isinstance(head, nn.Module):
        return features, head
    raise TypeError(
        f"negatives are made among features, but {type(model).__name__} does not say which these are: give "
        "nn.Sequential(…, head), or a module with the parts `features` and `head`"
    )
