"""The two-step update of meta-learning: adapt to the support, judge by the query."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from isometry.deep.distributed import is_distributed
from isometry.deep.objectives.prototypes import Prototypes, tasks
from isometry.deep.samplers import Episode
from isometry.parameters import one_of

Parameters = Mapping[str, Tensor]


class TwoStep(nn.Module):
    """Two-step update of meta-learning: weights that few steps on a support turn into good ones for its queries.

        θ′ = θ − α ∇_θ L_support(θ),     min_θ mean over episodes of L_query(θ′(θ))

    The final update starts from θ, not from θ′. An objective: a batch is an episode or several of them.

    Parameters
    ----------
    loss : nn.Module, callable or None, default=None
        The loss L ``(z, y)``, taken of the embeddings of the support and then of the query; None: ``Prototypes()``,
        where the prototypes of the support classify the support itself, then the query. For a model that ends in a
        classifier of c ways: ``torch.nn.functional.cross_entropy``. Parameters of a loss are not adapted.
    mode : {"maml", "fomaml", "sequential"}, default="maml"
        ``"maml"`` differentiates through the inner steps; a loss or model with a gradient of its own that has no
        derivative is refused. ``"fomaml"`` leaves it out. ``"sequential"`` takes the inner steps for good and goes on
        from there, the supports of a batch as one.
    inner_lr : float, default=0.01
        The inner learning rate α.
    inner_steps : int, default=5
        Steps on the support.

    Notes
    -----
    When the network shall adapt to every task by a few steps; where prototypes of a fixed network are as good, they are
    much cheaper. Costs O(inner_steps) passes forward and back of the network an episode, and as many graphs in memory
    for "maml".

    References
    ----------
    | C. Finn, P. Abbeel, S. Levine, "Model-agnostic meta-learning for fast adaptation of deep networks", ICML 2017.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import MLP, Episode, TwoStep
    >>> y = torch.tensor([0, 1])
    >>> task = Episode(torch.eye(2), y, 0.9 * torch.eye(2), y, None)
    >>> model, objective = MLP(2, 2), TwoStep(inner_steps=2)
    >>> objective(model, task).item() > 0
    True
    >>> objective.adapt(model, task.xs, task.ys) is model
    False
    """

    def __init__(
        self,
        loss: Callable[[Tensor, Tensor], Tensor] | None = None,
        mode: str = "maml",
        *,
        inner_lr: float = 0.01,
        inner_steps: int = 5,
    ):
        super().__init__()
        if inner_steps < 1 or inner_lr < 0:
            raise ValueError(f"expected inner_steps ≥ 1 and inner_lr ≥ 0, got {inner_steps} and {inner_lr}")
        self.loss = Prototypes() if loss is None else loss
        self.mode = one_of("mode", mode, ("maml", "fomaml", "sequential"))
        self.inner_lr, self.inner_steps = inner_lr, inner_steps

    def forward(self, model: nn.Module, batch: Episode | Sequence[Episode]) -> Tensor:
        """The mean loss of the queries of one episode or several, after the inner steps.

        Parameters
        ----------
        model : nn.Module
            Samples to embeddings (B, p).
        batch : Episode or sequence of Episode
            The episodes.

        Returns
        -------
        Tensor
            The scalar.
        """
        refuse_running_statistics(model)
        episodes = tasks(batch)
        if self.mode == "sequential":
            self._move(model, episodes)
            return torch.stack([self._query_loss(model, e) for e in episodes]).mean()
        theta = trainable(model)
        losses = []
        for e in episodes:
            adapted = self._adapt(model, theta, e.xs, e.ys, create_graph=self.mode == "maml")
            losses.append(self._query_loss(partial(run, model, adapted), e))
        return torch.stack(losses).mean()

    def adapt(self, model: nn.Module, xs: Tensor, ys: Tensor) -> nn.Module:
        """A copy of the model adapted to a support set; the model itself stays as it is.

        Parameters
        ----------
        model : nn.Module
            The network.
        xs : Tensor
            Samples of the support (S, …).
        ys : Tensor
            Their classes (S,).

        Returns
        -------
        nn.Module
            The copy.
        """
        refuse_running_statistics(model)
        with torch.enable_grad():
            adapted = self._adapt(model, trainable(model), xs, ys, create_graph=False)
        twin = copy.deepcopy(model)
        twin.load_state_dict(adapted, strict=False)  # buffers and frozen parameters are those of the model
        return twin

    def score(self, model: nn.Module, xs: Tensor, ys: Tensor, xq: Tensor) -> Tensor:
        """Scores (Q, c) of queries by the prototypes of the adapted model.

        Parameters
        ----------
        model : nn.Module
            The network, before it is adapted.
        xs : Tensor
            Samples of the support (S, …).
        ys : Tensor
            Their classes (S,).
        xq : Tensor
            Queries (Q, …).

        Returns
        -------
        Tensor
            Scores (Q, c).
        """
        prototypes = self.loss if isinstance(self.loss, Prototypes) else Prototypes()
        return prototypes.score(self.adapt(model, xs, ys), xs, ys, xq)

    def _adapt(self, model: nn.Module, params: Parameters, xs: Tensor, ys: Tensor, create_graph: bool) -> Parameters:
        """θ′ as a function of θ; without a graph of the steps, as θ minus constants."""
        for k in range(self.inner_steps):
            loss = self._support_loss(run(model, params, xs), ys)
            if create_graph and k == 0:
                refuse_single_derivatives(loss)
            slopes = gradient(loss, params, create_graph)
            params = {name: p - self.inner_lr * g for (name, p), g in zip(params.items(), slopes)}
        return params

    def _move(self, model: nn.Module, episodes: Sequence[Episode]) -> None:
        """Take the inner steps in the model itself, on the mean loss of all supports, the same in all processes."""
        params = trainable(model)
        for _ in range(self.inner_steps):
            loss = torch.stack([self._support_loss(model(e.xs), e.ys) for e in episodes]).mean()
            slopes = [mean_over_processes(g) for g in gradient(loss, params, create_graph=False)]
            if not all(g.isfinite().all() for g in slopes):
                return  # weights stay as they are, as after any step that is not finite
            with torch.no_grad():
                for p, g in zip(params.values(), slopes):
                    p.sub_(g, alpha=self.inner_lr)
            torch.clear_autocast_cache()  # it holds casts of the old weights

    def _support_loss(self, z: Tensor, y: Tensor) -> Tensor:
        return self.loss.loss(z, y, z, y) if isinstance(self.loss, Prototypes) else self.loss(z, y)

    def _query_loss(self, embed: Callable[[Tensor], Tensor], e: Episode) -> Tensor:
        if isinstance(self.loss, Prototypes):
            return self.loss.loss(embed(e.xs), e.ys, embed(e.xq), e.yq)
        return self.loss(embed(e.xq), e.yq)


def trainable(model: nn.Module) -> dict[str, Tensor]:
    """The parameters that are trained, by name."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def run(model: nn.Module, params: Parameters, x: Tensor) -> Tensor:
    """The model with other parameters."""
    return functional_call(model, dict(params), (x,))


def gradient(loss: Tensor, params: Parameters, create_graph: bool) -> tuple[Tensor, ...]:
    """∂loss/∂params; zero for those it does not depend on."""
    return torch.autograd.grad(loss, tuple(params.values()), create_graph=create_graph, materialize_grads=True)


def refuse_single_derivatives(loss: Tensor) -> None:
    """An error if a part of the loss has no second derivative: torch may take its gradient for a constant, silently."""
    seen, todo = set(), [loss.grad_fn]
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        todo += [before for before, _ in node.next_functions]
        function = getattr(node, "_forward_cls", object)  # of functions written in Python
        if hasattr(getattr(function, "backward", None), "__wrapped__"):  # by once_differentiable, or our own
            raise ValueError(
                f"the loss of the support is built on {function.__name__}, which can be differentiated only once; take "
                "mode='fomaml', or a loss and a model that can be differentiated twice, as all losses of this library"
            )


def mean_over_processes(g: Tensor) -> Tensor:
    """The mean of a tensor over the processes, if there are several."""
    if is_distributed():
        dist.all_reduce(g)
        g /= dist.get_world_size()
    return g


def refuse_running_statistics(model: nn.Module) -> None:
    """An error if inner steps would change buffers: running means of a batch norm belong to no task."""
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and module.track_running_stats:
            raise ValueError(
                f"{name or 'the model'} is a batch norm that keeps running statistics, which adaptation would spoil; "
                "build it with track_running_stats=False to use those of each batch, or take a GroupNorm"
            )
