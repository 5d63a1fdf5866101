"""The training loop: any network, any objective ``(model, batch) → scalar``, one process or several."""

from __future__ import annotations

import contextlib
import math
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import gather_object
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn
from torch.utils.data import Dataset
from tqdm.auto import tqdm

from isometry.core.progress import check_time
from isometry.deep.batches import Probe, as_dataset, training_data
from isometry.deep.checkpoint import Checkpoints, StopSignals, isolated_rng, rng_state, set_rng_state
from isometry.deep.columns import ColumnTable, are_texts, is_column_table
from isometry.deep.engine import Engine, make_accelerator
from isometry.deep.functional import unit
from isometry.deep.inference import export
from isometry.deep.objective import LossObjective, TrainingObjective, as_objective, effective_rank, on_sphere
from isometry.deep.offline import embed
from isometry.deep.run import NOT_FINITE, Run
from isometry.deep.samplers import PKBatchSampler, ceil_div
from isometry.deep.settings import GROUP_OF, Batches, Hardware, Optimization, Saving, Stopping, check_known
from isometry.deep.wrapper import innermost
from isometry.eval import retrieval

ALL_EPOCHS_DONE = "all epochs done"
ADVICE = "lower lr, or take another margin, miner or loss"


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
    model : nn.Module
        The network, samples to embeddings (B, p); trained in place.
    objective : LossModule or callable
        A loss, or ``(model, batch) → scalar``; a foreign module ``(z, y) → scalar`` goes in ``LossObjective``.
        Parameters of a loss, such as proxies, are trained with the model; a part with a method ``plan_steps`` is told
        how many batches there will be.
    optimization : Optimization or None, default=None
        How weights follow the gradient; None: ``Optimization()``.
    batches : Batches or None, default=None
        What a batch and an epoch are made of; None: ``Batches()``.
    stopping : Stopping or None, default=None
        When training ends, and which weights it keeps; None: ``Stopping()``.
    hardware : Hardware or None, default=None
        Where and in which arithmetic the model is computed; None: ``Hardware()``.
    saving : Saving or None, default=None
        Which checkpoints are written to ``folder``; None: ``Saving()``.
    normalize : bool or None, default=None
        Put embeddings on the unit sphere; None: if the loss does.
    folder : str, Path or None, default=None
        Where checkpoints are written: ``last.safetensors`` after each epoch, ``previous.safetensors`` the one before,
        in case the last is damaged, and ``best.safetensors`` with the best weights; None: nowhere. One run at a time
        can use it.
    callbacks : sequence of callable, default=()
        Called with the trainer after each epoch; a string returned is the reason to stop.
    random_state : int, default=0
        Seed of batches, split, dropout and miners; the global generators are left as they were.
    verbose : bool, default=False
        Show a progress bar.
    **flat : dict
        Settings of a group by their own names: ``lr=0.01`` for ``optimization=Optimization(lr=0.01)``. They overrule
        the group, and can be read and set as attributes of the trainer.

    Notes
    -----
    For any network and any loss of this package. Under scikit-learn, for arrays, `DeepMetric` is the same with fewer
    words. An epoch costs a pass over the samples forward and back; watching held-out samples, another forward.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import MLP, Trainer, Triplet
    >>> X, y = torch.eye(8), [0, 0, 0, 0, 1, 1, 1, 1]
    >>> trainer = Trainer(MLP(8, 2), Triplet(miner="BatchSemiHard"), max_epochs=2, classes_per_batch=2)
    >>> trainer.fit(X, y).embed(X).shape
    torch.Size([8, 2])
    >>> len(trainer.history["loss"])
    2
    """

    def __init__(
        self,
        model: nn.Module,
        objective: nn.Module | TrainingObjective,
        *,
        optimization: Optimization | None = None,
        batches: Batches | None = None,
        stopping: Stopping | None = None,
        hardware: Hardware | None = None,
        saving: Saving | None = None,
        normalize: bool | None = None,
        folder: str | os.PathLike[str] | None = None,
        callbacks: Sequence[Callable[[Trainer], str | None]] = (),
        random_state: int = 0,
        verbose: bool = False,
        **flat: Any,
    ):
        self.model, self.objective = model, as_objective(objective)
        self.optimization, self.batches = optimization or Optimization(), batches or Batches()
        self.stopping, self.hardware = stopping or Stopping(), hardware or Hardware()
        self.saving = saving or Saving()
        self.normalize, self.folder, self.callbacks = normalize, folder, callbacks
        self.random_state, self.verbose = random_state, verbose
        for name, value in flat.items():
            check_known(name, vars(self))
            setattr(self, name, value)
        self.embedding_size: int | None = None  # known once something was embedded
        self.run = Run()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in GROUP_OF:
            name, value = GROUP_OF[name], replace(getattr(self, GROUP_OF[name]), **{name: value})
        super().__setattr__(name, value)

    if not TYPE_CHECKING:  # type checkers shall find misspelt attributes

        def __getattr__(self, name: str) -> Any:
            if name in GROUP_OF:
                return getattr(getattr(self, GROUP_OF[name]), name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def history(self) -> dict[str, list[float]]:
        """One column for each quantity that was measured, with one entry an epoch."""
        return self.run.history

    @property
    def stop_reason(self) -> str | None:
        """Why training ended, or None while it has not."""
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
        """Train the network.

        Parameters
        ----------
        samples : array (n, …), data set, or DataLoader
            What is learned from; the batches of a ``DataLoader`` go to the objective as they are. Texts, or a table of
            named columns of texts, if the model has a method ``tokenize``.
        labels : sequence (n,) or None, default=None
            One label a sample, of any type; needed for a data set too, to make batches by class. The loss gets the
            labels that are the second part of its items, if they have one, and these otherwise. An `ImageFolder` has
            its own. None: there are none.
        validation : float, tuple or None, default=None
            Share to hold out, or (samples, labels) to validate on; None: nothing is held out.
        protocol : {"open", "closed"}, default="open"
            Hold out whole classes, or a share of each class.
        resume : bool, default=False
            Continue from the checkpoint in ``folder``, if there is one; with the same settings, and on a CPU, the end
            is bit for bit that of a run without a stop.

        Returns
        -------
        Trainer
            The trainer itself.
        """
        with contextlib.ExitStack() as stack:
            stack.enter_context(isolated_rng(self.random_state))
            stop = stack.enter_context(StopSignals())
            engine, probe = self._prepare(samples, labels, validation, protocol)
            stack.callback(engine.freezing.end)
            files = self._checkpoints(engine)
            stack.enter_context(files.locked(engine.accelerator.is_main_process))
            best = self._begin(engine, files, resume)
            run, updates = self.run, ceil_div(len(engine.loader), self.optimization.accumulate)  # of an epoch
            total = self.stopping.max_epochs * updates
            with tqdm(
                total=total, initial=run.step, disable=not (self.verbose and engine.accelerator.is_main_process)
            ) as bar:
                while run.stop_reason is None:
                    engine.slower = self._slower()
                    for group in engine.groups(run.epoch, run.batch):
                        engine.set_lr(run.step / total)
                        batches = len(group)
                        loss, active = engine.backward(group)
                        if run.step == 0:
                            self._check_first_batch(loss, active, engine)
                        good = engine.update(loss)
                        run.record(batches, loss, active, good, engine.grad_norm)
                        if not bar.disable:
                            bar.set_postfix_str(run.status(), refresh=False)
                            bar.update()
                        check_time()
                        if run.bad_steps >= self.stopping.max_bad_steps:
                            run.fail(NOT_FINITE.format(run.bad_steps, run.step, run.epoch + 1))
                            break
                        if engine.any(stop.pressed is not None):
                            if engine.plan is not None:  # else only the end of an epoch can be resumed, and is saved
                                self._save(files, engine, best)
                            raise stop.exception(f"stopped after step {run.step}; to continue, fit with resume=True")
                        if self._is_due(engine):
                            self._save(files, engine, best)
                    else:
                        with engine.averaged():
                            run.close_epoch(self._measure(engine, probe))
                            if run.improved(self.stopping.monitor, self.stopping.min_delta):
                                best = engine.weights()
                            self._judge()
                        self._save(files, engine, best)
        chosen = best is not None and self.stopping.restore == "best"
        if best is not None and chosen:
            engine.module.load_state_dict(best)
        elif engine.average is not None and self.stopping.restore != "last":
            engine.average.swap()
        if run.failed:
            kept = f"the weights of epoch {run.best_epoch}" if chosen else "the last weights"
            warnings.warn(f"training stopped: {run.stop_reason}. It keeps {kept}", ConvergenceWarning, stacklevel=2)
        if stop.pressed is not None:
            raise stop.exception("training had just ended")
        return self

    def embed(self, samples: Any) -> Tensor:
        """Embeddings (n, p) of an array or a data set.

        Parameters
        ----------
        samples : array (n, …) or data set
            What is embedded.

        Returns
        -------
        Tensor
            Embeddings (n, p), in the order of the samples.
        """
        z = embed(self.model, self._as_data(samples))
        self.embedding_size = z.shape[1]
        normalize = on_sphere(self.objective) if self.normalize is None else self.normalize
        return unit(z) if normalize else z

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write the bare network, without optimiser and loss, as safetensors, and what one must know to use it as JSON.

        ``Encoder.load(path, network)`` reads it.

        Parameters
        ----------
        path : str or Path
            The file.
        """
        normalize = on_sphere(self.objective) if self.normalize is None else self.normalize
        export(path, self.model, normalize=normalize, prompts=self.batches.prompts, embedding_size=self.embedding_size)

    def _as_data(self, samples: Any, labels: Any = None) -> Dataset[Any]:
        """Samples as the model takes them."""
        if isinstance(samples, ColumnTable):
            return samples
        if is_column_table(samples) or are_texts(samples):
            table = {"text": samples} if are_texts(samples) else samples
            return ColumnTable(table, getattr(self.model, "tokenize", None), labels, self.batches.prompts)
        looks_up = any(isinstance(m, (nn.Embedding, nn.EmbeddingBag)) for m in self.model.modules())
        return as_dataset(samples, labels, network_dtype(self.model), keep_integers=looks_up)

    def _prepare(self, samples: Any, labels: Any, validation: Any, protocol: str) -> tuple[Engine, Probe | None]:
        # first: samplers ask the accelerator for their rank
        accelerator = make_accelerator(self.hardware.precision, self.hardware.device)
        if self.hardware.compile:
            self.model.compile()
        seed = self.random_state
        loader, probe = training_data(samples, labels, validation, protocol, self.batches, self._as_data, seed)
        if probe is not None and probe.labels is None and not isinstance(innermost(self.objective), LossObjective):
            probe = None  # what the model gives need not be an embedding
        if self.stopping.restore == "ema" and self.optimization.ema is None:
            raise ValueError("restore='ema' asks for averaged weights: set ema, such as 0.999")
        monitor, measured = self.stopping.monitor, probe is not None and probe.labels is not None
        for name, waits in (("patience", self.stopping.patience), ("schedule='plateau'", self.optimization.plateau)):
            if waits is not None and monitor in ("map@r", "recall@1") and not measured:
                raise ValueError(f"{name} waits for {monitor}: give validation to measure it, or set monitor='loss'")
        engine = Engine(accelerator, self.model, self.objective, loader, self.optimization, seed)
        if self.saving.save_every is not None and engine.plan is None:
            raise ValueError(
                "save_every writes checkpoints in the middle of an epoch, where a loader of your own cannot be entered "
                "again: give it one of isometry's samplers, or the samples themselves"
            )
        return engine, probe

    def _checkpoints(self, engine: Engine) -> Checkpoints:
        settings = {"random_state": self.random_state, "batches_per_epoch": len(engine.loader)}
        return Checkpoints(self.folder, settings, self.saving.keep)

    def _begin(self, engine: Engine, files: Checkpoints, resume: bool) -> dict[str, Tensor] | None:
        """Start anew, or where the checkpoint says; gives the best weights so far."""
        self.run = Run()
        for part in engine.module.modules():
            plan = getattr(part, "plan_steps", None)  # of what begins after a share of the run
            if callable(plan):
                plan(self.stopping.max_epochs * len(engine.loader))
        state = files.load(resume)
        if state is None:
            return None
        engine.load_state(state["engine"], files.path("last"))
        self.run = Run(**state["run"])
        if engine.rank < len(state["processes"]):  # else a run of fewer processes is continued
            own = state["processes"][engine.rank]
            set_rng_state(own["rng"])
            self.run.sums = own["sums"]
        if self.run.stop_reason == ALL_EPOCHS_DONE and self.run.epoch < self.stopping.max_epochs:
            self.run.stop_reason = None
        if state["has_best"] and state["best"] is None:  # lost
            if self.run.best_epoch == self.run.epoch and not self.run.batch:
                return engine.weights()  # which are the last
            self.run.best, self.run.best_epoch = -math.inf, self.run.epoch
        return state["best"]

    def _save(self, files: Checkpoints, engine: Engine, best: dict[str, Tensor] | None) -> None:
        run = self.run
        if files.folder is None:
            return
        if run.batch:  # in the middle of an epoch; a resumed run may have no batch left to look at
            run.geometry = self._geometry()
        processes = gather_object([{"rng": rng_state(), "sums": run.sums}])  # in the order of their ranks
        if engine.accelerator.is_main_process:
            state = {"run": asdict(run), "engine": engine.state(run.batch), "processes": processes}
            files.save(state, best, best_is_new=run.best_epoch == run.epoch and not run.batch)
        engine.accelerator.wait_for_everyone()

    def _measure(self, engine: Engine, probe: Probe | None) -> dict[str, float]:
        """A row of the history: means of the epoch, and what the embeddings of held-out samples are like."""
        row = {name: engine.mean(self.run.mean(name)) for name in ("loss", "active", "grad_norm")}
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

    def _slower(self) -> float:
        """Factor of the learning rate after the plateaus so far, if the schedule looks for them."""
        plateau = self.optimization.plateau
        return 1.0 if plateau is None else plateau.after(self.run.scores(self.stopping.monitor))

    def _is_due(self, engine: Engine) -> bool:
        """Whether a checkpoint is to be written after this step; the end of an epoch writes its own."""
        every = self.saving.save_every
        return every is not None and self.run.step % every == 0 and self.run.batch < len(engine.loader)

    def _check_first_batch(self, loss: float, active: float | None, engine: Engine) -> None:
        """Refuse class-balanced batches that hold nothing for the loss to compare: nothing would be learned."""
        objective = innermost(self.objective)
        if not isinstance(engine.plan, PKBatchSampler) or not isinstance(objective, LossObjective):
            return
        if loss or active is None or engine.any(active > 0) or hasattr(objective.loss, "memory"):
            return
        found = self._geometry()
        for name, part, setting in (
            ("d_an", "two classes", "classes_per_batch"),
            ("d_ap", "two samples of a class", "samples_per_class"),
        ):
            if name not in found:
                raise ValueError(
                    f"a batch never holds {part}, so that the loss has nothing to compare and nothing is learned: set "
                    f"{setting} to 2 or more (on the command line --batch 8x8)"
                )

    def _geometry(self) -> dict[str, float]:
        """What the last batch was like, if the objective looks at it."""
        return getattr(self.objective, "geometry", dict)()

    def _judge(self) -> None:
        """Whether to go on."""
        run, limits = self.run, self.stopping
        loss, active, rank = (self.history[name][-1] for name in ("loss", "active", "rank"))
        reasons = [reason for reason in [callback(self) for callback in self.callbacks] if reason]
        if run.failed:
            return
        if rank < limits.min_rank:
            found = f"effective rank {rank:.3g} < min_rank = {limits.min_rank:g}"
            run.fail(f"collapse: the embeddings have {found}; {ADVICE}")
        elif run.indistinct(limits.min_contrast, on_sphere(self.objective)):
            last = {name: f"{self.history[name][-1]:.3g}" for name in ("loss", "contrast", "d_ap", "d_an", "norm")}
            run.fail(
                f"collapse: the loss, {last['loss']}, is that of embeddings in one point (contrast {last['contrast']} "
                f"< min_contrast = {limits.min_contrast:g}); pairs of a class are {last['d_ap']} and others "
                f"{last['d_an']} apart on average, at norm {last['norm']}; {ADVICE}"
            )
        elif active <= limits.min_active and loss > 0:
            run.fail(f"collapse: {active:.0%} of the samples got a gradient in epoch {run.epoch}; {ADVICE}")
        elif active <= limits.min_active:
            run.stop_reason = f"all margins were met in epoch {run.epoch}: no sample got a gradient"
        elif limits.patience is not None and run.epoch - run.best_epoch >= limits.patience:
            run.stop_reason = f"{limits.monitor} has not improved for {limits.patience} epochs"
        else:
            run.stop_reason = next(iter(reasons), ALL_EPOCHS_DONE if run.epoch >= limits.max_epochs else None)


def network_dtype(network: nn.Module) -> torch.dtype:
    """What the network computes in."""
    return next((p.dtype for p in network.parameters() if p.is_floating_point()), torch.float32)
