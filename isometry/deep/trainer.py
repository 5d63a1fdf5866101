"""The training loop: any network, any objective ``(model, batch) → scalar``, one process or several."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn
from tqdm.auto import tqdm

from isometry.deep.batches import Probe, as_dataset, training_data
from isometry.deep.checkpoint import Checkpoints, CtrlC, isolated_rng, rng_state, set_rng_state
from isometry.deep.engine import OPTIMIZERS, Engine, make_accelerator
from isometry.deep.functional import unit
from isometry.deep.objective import LossObjective, Objective, as_objective, effective_rank, on_sphere
from isometry.deep.offline import embed
from isometry.deep.run import NOT_FINITE, SCHEDULES, Run
from isometry.deep.wrapper import innermost
from isometry.eval import retrieval
from isometry.parameters import one_of

DONE = "all epochs done"
HINT = "lower lr, or take another margin, miner or loss"


@dataclass(eq=False, repr=False)
class Trainer:
    """Trains a network, watches it on held-out classes, and can be killed and resumed at any time.

        trainer = Trainer(ConvNet((1, 28, 28), 64), Triplet(miner=BatchSemiHard()), folder="run")
        trainer.fit(images, labels, validation=0.2, resume=True)
        z = trainer.embed(other_images)

    Under ``torchrun`` the batch is cut for the processes, and the result is that of one process; only augmentation,
    dropout and miners without a seed draw other numbers, as each process has a random stream of its own. ``history``
    has one column a quantity and one entry an epoch: ``pandas.DataFrame(trainer.history).plot(subplots=True)`` draws
    it. ``stop_reason`` says why training ended.

    Parameters
    ----------
    model : samples to embeddings (B, p); trained in place
    objective : a loss, or ``(model, batch) → scalar``; a foreign module ``(z, y) → scalar`` goes in ``LossObjective``.
        Parameters of a loss, such as proxies, are trained with the model; a part with a method ``plan_steps`` is told
        how many batches there will be
    lr, weight_decay : of the model; a loss sets the learning rate of its own parameters and has no weight decay
    optimizer : "adamw", "sgd", or ``groups → Optimizer``
    schedule : "cosine", "linear", "constant", or factor of the learning rate by the share of the steps done
    warmup : share of the steps in which the learning rate rises from zero
    max_epochs, batches_per_epoch : length of training; by default, and always without labels, an epoch is all samples
    classes_per_batch, samples_per_class : P, K; without labels a batch has P · K samples
    clip_norm : largest norm of the gradient
    accumulate : batches whose mean loss makes one update. Pairs are compared within a batch only; to compare more,
        take more processes or a ``CrossBatchMemory``
    precision : "no", "bf16" or "fp16", of the model; losses are computed in float32
    compile : compile the model
    monitor : what chooses the epoch whose weights are put back in the end: "map@r", "recall@1", "loss", or "last"
    patience : epochs without improvement before training stops; None: no limit
    min_rank, min_active : stop when the effective rank of the embeddings falls below (0: one point, 1: a line), or when
        no larger share of the samples gets a gradient
    min_contrast : stop when embeddings come so close together that the loss stays at that of one point, such as the
        margin of a triplet loss: when twice their differences would change it by a smaller share; 0: never
    max_bad_steps : stop after so many steps in a row with a loss or gradient that is not finite; they change no weight
    normalize : put embeddings on the unit sphere; None: if the loss does
    folder : for checkpoints: ``last.safetensors`` after each epoch, ``best.safetensors`` with the best weights
    workers : processes that load data
    device : None for an accelerator if there is one, or "cpu"
    callbacks : called with the trainer after each epoch; a string returned is the reason to stop
    random_state : seed of batches, split, dropout and miners; the global generators are left as they were
    verbose : show a progress bar
    """

    model: nn.Module
    objective: nn.Module | Objective
    _: KW_ONLY
    lr: float = 1e-3
    weight_decay: float = 1e-4
    optimizer: str | Callable[[list[dict]], torch.optim.Optimizer] = "adamw"
    schedule: str | Callable[[float], float] = "cosine"
    warmup: float = 0.0
    max_epochs: int = 20
    batches_per_epoch: int | None = None
    classes_per_batch: int = 8
    samples_per_class: int = 8
    clip_norm: float | None = None
    accumulate: int = 1
    precision: str = "no"
    compile: bool = False
    monitor: str = "map@r"
    patience: int | None = None
    min_rank: float = 1.0
    min_active: float = 0.0
    min_contrast: float = 0.05
    max_bad_steps: int = 3
    normalize: bool | None = None
    folder: str | Path | None = None
    workers: int = 0
    device: str | None = None
    callbacks: Sequence[Callable[[Trainer], str | None]] = ()
    random_state: int = 0
    verbose: bool = False

    def __post_init__(self) -> None:
        one_of("precision", self.precision, ("no", "bf16", "fp16"))
        one_of("monitor", self.monitor, ("map@r", "recall@1", "loss", "last"))
        for name, known in (("optimizer", OPTIMIZERS), ("schedule", SCHEDULES)):
            if isinstance(getattr(self, name), str):
                one_of(name, getattr(self, name), tuple(known))
        self.objective, self.run = as_objective(self.objective), Run()

    @property
    def history(self) -> dict[str, list[float]]:
        return self.run.history

    @property
    def stop_reason(self) -> str | None:
        return self.run.stop_reason

    def fit(
        self,
        samples: Any,
        labels: Any = None,
        *,
        validation: float | tuple[Any, Any] | None = None,
        protocol: str = "open",
        resume: bool = False,
    ) -> Trainer:
        """Train.

        Parameters
        ----------
        samples : array or tensor (n, …), a data set, or a ``DataLoader``, whose batches go to the objective
        labels : (n,), of any type; a data set gives its own integer labels as second part of its items
        validation : share to hold out, or (samples, labels) to validate on
        protocol : "open" holds out whole classes, "closed" a share of each class
        resume : continue from the checkpoint in ``folder``, if there is one; with the same settings, and on a CPU, the
            end is bit for bit that of a run without a stop
        """
        with isolated_rng(self.random_state), CtrlC() as ctrl_c:
            engine, probe = self._prepare(samples, labels, validation, protocol)
            files, best = self._begin(engine, resume)
            run, total = self.run, self.max_epochs * -(-len(engine.loader) // self.accumulate)
            with tqdm(total=total, initial=run.step, disable=not (self.verbose and engine.is_main)) as bar:
                while run.stop_reason is None:
                    for group in engine.groups(run.epoch, run.batch, self.accumulate):
                        engine.set_lr(self._lr_factor(run.step / total))
                        loss, active = engine.backward(group)
                        run.record(len(group), loss, active, engine.update(loss, self.clip_norm))
                        bar.set_postfix_str(run.status(), refresh=False)
                        bar.update()
                        if run.bad_steps >= self.max_bad_steps:
                            run.fail(NOT_FINITE.format(run.bad_steps, run.step, run.epoch + 1))
                            break
                        if engine.any(ctrl_c.pressed):
                            if engine.plan is not None:  # else only the end of an epoch can be resumed, and is saved
                                run.geometry = self._geometry()
                                self._save(files, engine, best)
                            raise KeyboardInterrupt(f"stopped after step {run.step}; to continue, fit with resume=True")
                    else:
                        run.close_epoch(self._measure(engine, probe))
                        if run.improved(self.monitor):
                            best = engine.weights()
                        self._judge()
                        self._save(files, engine, best)
        if best is not None:
            engine.module.load_state_dict(best)
        if run.failed:
            kept = "the last weights" if best is None else f"the weights of epoch {run.best_epoch}"
            warnings.warn(f"training stopped: {run.stop_reason}. It keeps {kept}", ConvergenceWarning, stacklevel=2)
        if ctrl_c.pressed:
            raise KeyboardInterrupt("training had just ended")
        return self

    def embed(self, samples: Any) -> Tensor:
        """Embeddings (n, p) of an array or a data set."""
        z = embed(self.model, as_dataset(samples, None, self._dtype))
        normalize = on_sphere(self.objective) if self.normalize is None else self.normalize
        return unit(z) if normalize else z

    def _prepare(self, samples: Any, labels: Any, validation: Any, protocol: str) -> tuple[Engine, Probe | None]:
        accelerator = make_accelerator(self.precision, self.device)  # first: samplers ask it for their rank
        if self.compile:
            self.model.compile()
        batch, seed = (self.classes_per_batch, self.samples_per_class, self.batches_per_epoch), self.random_state
        loader, probe = training_data(samples, labels, validation, protocol, batch, self.workers, self._dtype, seed)
        if probe is not None and probe.labels is None and not isinstance(innermost(self.objective), LossObjective):
            probe = None  # what the model gives need not be an embedding
        if self.patience is not None and self.monitor != "loss" and (probe is None or probe.labels is None):
            raise ValueError(f"patience waits for {self.monitor}: give validation to measure it, or set monitor='loss'")
        parts = (self.model, self.objective, loader, self.optimizer)
        return Engine(accelerator, *parts, lr=self.lr, weight_decay=self.weight_decay, random_state=seed), probe

    def _begin(self, engine: Engine, resume: bool) -> tuple[Checkpoints, dict[str, Tensor] | None]:
        """Start anew, or where the checkpoint says; gives the best weights so far."""
        settings = {"random_state": self.random_state, "batches_per_epoch": len(engine.loader)}
        files, self.run = Checkpoints(self.folder, settings), Run()
        for part in engine.module.modules():
            plan = getattr(part, "plan_steps", None)  # of what begins after a share of the run
            if callable(plan):
                plan(self.max_epochs * len(engine.loader))
        state = files.load(resume)
        if state is None:
            return files, None
        engine.load_state(state["engine"], files.path("last"))
        self.run = Run(**state["run"])
        if engine.rank < len(state["processes"]):  # else a run of fewer processes is continued
            own = state["processes"][engine.rank]
            set_rng_state(own["rng"])
            self.run.sums = own["sums"]
        if self.run.stop_reason == DONE and self.run.epoch < self.max_epochs:
            self.run.stop_reason = None
        return files, state["best"]

    def _save(self, files: Checkpoints, engine: Engine, best: dict[str, Tensor] | None) -> None:
        run = self.run
        if files.folder is None:
            return
        processes = engine.of_all({"rng": rng_state(), "sums": run.sums})
        if engine.is_main:
            state = {"run": asdict(run), "engine": engine.state(run.batch), "processes": processes}
            files.save(state, best, best_is_new=run.best_epoch == run.epoch and not run.batch)
        engine.wait()

    def _lr_factor(self, t: float) -> float:
        schedule = SCHEDULES[self.schedule] if isinstance(self.schedule, str) else self.schedule
        return schedule(t) * (min(1.0, t / self.warmup) if self.warmup else 1.0)

    def _measure(self, engine: Engine, probe: Probe | None) -> dict[str, float]:
        """A row of the history: means of the epoch, and what the embeddings of held-out samples are like."""
        row = {name: engine.mean(self.run.mean(name)) for name in ("loss", "active")}
        row |= {"lr": engine.optimizer.param_groups[0]["lr"], "skipped": self.run.skipped}
        row |= self._geometry() or self.run.geometry
        if probe is not None:
            z = self.embed(probe.samples).float()
            if not z.isfinite().all():
                self.run.fail(f"embeddings are NaN or infinite after epoch {self.run.epoch + 1}; look for bad samples")
                return row
            row["rank"] = effective_rank(z)
            if probe.labels is not None:
                row |= retrieval(z.numpy(force=True), probe.labels, ks=(1,)).mean()
        return row

    def _geometry(self) -> dict[str, float]:
        """What the last batch was like, if the objective looks at it."""
        return getattr(self.objective, "geometry", dict)()

    def _judge(self) -> None:
        """Whether to go on."""
        run, (loss, active, rank) = self.run, (self.history[name][-1] for name in ("loss", "active", "rank"))
        if run.failed:
            return
        if rank < self.min_rank:
            run.fail(f"collapse: the embeddings have effective rank {rank:.3g} < min_rank = {self.min_rank:g}; {HINT}")
        elif run.indistinct(self.min_contrast, on_sphere(self.objective)):
            last = {name: f"{self.history[name][-1]:.3g}" for name in ("loss", "contrast", "d_ap", "d_an", "norm")}
            run.fail(
                f"collapse: the loss, {last['loss']}, is that of embeddings in one point (contrast {last['contrast']} "
                f"< min_contrast = {self.min_contrast:g}); pairs of a class are {last['d_ap']} and others "
                f"{last['d_an']} apart on average, at norm {last['norm']}; {HINT}"
            )
        elif active <= self.min_active and loss > 0:
            run.fail(f"collapse: {active:.0%} of the samples got a gradient in epoch {run.epoch}; {HINT}")
        elif active <= self.min_active:
            run.stop_reason = f"all margins were met in epoch {run.epoch}: no sample got a gradient"
        elif self.patience is not None and run.epoch - run.best_epoch >= self.patience:
            run.stop_reason = f"{self.monitor} has not improved for {self.patience} epochs"
        else:
            reasons = filter(None, (callback(self) for callback in self.callbacks))
            run.stop_reason = next(reasons, DONE if run.epoch >= self.max_epochs else None)

    @property
    def _dtype(self) -> torch.dtype:
        """Of the model, and so of the samples."""
        return next((p.dtype for p in self.model.parameters() if p.is_floating_point()), torch.float32)
