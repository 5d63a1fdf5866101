"""The folder of a training run: its settings, checkpoints, and what came of it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from isometry.cli.inputs import check_distinct
from isometry.cli.outputs import UsageError, usage_errors
from isometry.core.files import InUseError, sole_use
from isometry.io.atomic import atomic_write

SETTINGS = "settings.json"
LOCK = ".lock"
MIN_STEPS = 300  # updates of a run at least, in epochs that are longer for it where samples are few


class RunFolder:
    """The folder of a run.

    It holds ``settings.json``, ``checkpoints/``, ``model.safetensors`` or ``network.safetensors``, ``history.csv``,
    ``scores.json`` and ``report.html``.
    """

    def __init__(self, path: Path):
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.model = path / "model.safetensors"
        self.network = path / "network.safetensors"  # of images and texts, with a JSON text beside it
        self.history = path / "history.csv"
        self.scores = path / "scores.json"
        self.report = path / "report.html"

    @property
    def files(self) -> tuple[Path, ...]:
        """What a run writes, and a fresh one removes, beside its checkpoints."""
        networks = self.network, self.network.with_suffix(".json")
        return self.path / SETTINGS, self.model, *networks, self.history, self.scores, self.report

    @property
    def begun(self) -> bool:
        """Whether there is something to continue from."""
        return any((self.checkpoints / f"{name}.safetensors").exists() for name in ("last", "previous"))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """A block in which no other command works in the folder, which is made if it is not there."""
        with usage_errors(OSError):
            self.path.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            with usage_errors(InUseError):
                stack.enter_context(sole_use(self.path / LOCK))
            yield

    def check_inputs(self, inputs: dict[str, Path | None]) -> None:
        """Refuse inputs that the run would replace, or remove with its old checkpoints."""
        check_distinct({f"{f.name} in --out": f for f in self.files}, inputs)
        checkpoints = Path(os.path.realpath(self.checkpoints))
        for what, path in inputs.items():
            if path is not None and checkpoints in (real := Path(os.path.realpath(path)), *real.parents):
                raise UsageError(
                    f"{what} ({path}) is among the checkpoints of --out {self.path}, which a run replaces and removes: "
                    "give another --out, or move it"
                )

    def check(self, settings: dict[str, Any], fresh: bool) -> dict[str, Any]:
        """Refuse a folder that cannot be written, holds something else, or a run with other settings.

        Gives the settings to train with: a run that goes on keeps the length of its epochs, and may have more of them.
        """
        if self.path.exists() and not self.path.is_dir():
            raise UsageError(f"--out {self.path} is a file; give the name of a folder")
        there = [f.name for f in self.path.iterdir() if f.name != LOCK] if self.path.is_dir() else []
        if there and not (self.begun or self._settings_are_ours()):
            raise UsageError(f"{self.path} is not empty and holds no training run: give another --out")
        settings = {**settings, "min_steps": MIN_STEPS}
        if fresh or not self.begun:
            return settings
        before = self._read_settings()
        here = json.loads(json.dumps(settings))  # tuples are lists in the file
        free = {"min_steps", "epochs"} if self._longer(before, here) else {"min_steps"}
        changed = [k for k in sorted((before.keys() | here.keys()) - free) if before.get(k) != here.get(k)]
        if changed:
            changes = ", ".join(f"{k} was {before.get(k)}, here it is {here.get(k)}" for k in changed)
            raise UsageError(
                f"{self.path} holds a run with other settings ({changes}): give another --out, or --fresh to train "
                "anew and lose it"
            )
        steps_per_epoch = -(-int(before.get("min_steps", MIN_STEPS)) // int(before["epochs"]))
        return {**settings, "min_steps": steps_per_epoch * settings["epochs"]}

    @staticmethod
    def _longer(before: dict[str, Any], here: dict[str, Any]) -> bool:
        return isinstance(before.get("epochs"), int) and 0 < before["epochs"] < here["epochs"]

    def _settings_are_ours(self) -> bool:
        """Whether ``settings.json``, which other programs write, too, is that of a training run."""
        try:
            return "fingerprint" in self._read_settings()
        except (OSError, UsageError):
            return False

    def _read_settings(self) -> dict[str, Any]:
        damaged = f"{self.path / SETTINGS} is damaged: give another --out, or --fresh to train anew"
        try:
            settings = json.loads((self.path / SETTINGS).read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise UsageError(damaged) from error
        if not isinstance(settings, dict):
            raise UsageError(damaged)
        return settings

    def begin(self, settings: dict[str, Any], fresh: bool) -> None:
        """Make the folder and write down what is run in it; ``fresh`` removes what a run has left there."""
        if fresh:
            shutil.rmtree(self.checkpoints, ignore_errors=True)
            for file in self.files:
                file.unlink(missing_ok=True)
        self.path.mkdir(parents=True, exist_ok=True)
        self._write(self.path / SETTINGS, json.dumps(settings, indent=2, ensure_ascii=False))

    def write_history(self, history: dict[str, list[float]]) -> None:
        """One line an epoch; empty where something was not measured."""
        from isometry.deep.logs import write_history

        write_history(self.history, history)

    def write_scores(self, scores: list[dict[str, Any]]) -> None:
        """What the report shows of the held-out samples, for programs."""
        self._write(self.scores, json.dumps(scores, indent=2, ensure_ascii=False))

    @staticmethod
    def _write(path: Path, text: str) -> None:
        with atomic_write(path) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")
