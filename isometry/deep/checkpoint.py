"""Checkpoints of a training run: one safetensors file each, with all that is not a tensor as JSON in its header.

Nothing is pickled: a file from a stranger can hold wrong numbers but runs no code. A file is replaced only by a
complete one, so that a crash or a full disk leaves the last good checkpoint; a checksum tells a damaged one, and then
the run goes on from the one before.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import threading
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from isometry.core.files import InUseError, sole_use, taking_place

FORMAT = "isometry checkpoint 3"
WITHOUT_CHECKSUM = "isometry checkpoint 2"


class CheckpointError(ValueError):
    """A file that cannot be read as a checkpoint, or does not belong to this run.

    Notes
    -----
    The message names the file and says what to do.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from isometry.deep import CheckpointError, load_checkpoint
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "last.safetensors"
    ...     _ = path.write_bytes(b"no checkpoint")
    ...     try:
    ...         load_checkpoint(path)
    ...     except CheckpointError:
    ...         print("damaged")
    damaged
    """


# -- files -------------------------------------------------------------------------------------------------------------


def save_checkpoint(path: str | os.PathLike[str], state: Any, *, keep_as: str | os.PathLike[str] | None = None) -> None:
    """Write nested dicts, lists and tuples of tensors, numbers and strings; `load_checkpoint` gives them back.

    A file that is there already is replaced, or keeps on under the name ``keep_as``.

    Parameters
    ----------
    path : str or Path
        The file.
    state : dict, list, tuple, Tensor, int, float, str or None
        What is written, nested as wanted.
    keep_as : str, Path or None, default=None
        The name under which a file that is there is kept; None: it is replaced.

    Notes
    -----
    Nothing is pickled: a safetensors file with the rest as JSON in its header, and a checksum. A file is replaced only
    by a complete one.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import torch
    >>> from isometry.deep import load_checkpoint, save_checkpoint
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "state.safetensors"
    ...     save_checkpoint(path, {"step": 3, "weights": [torch.ones(2)]})
    ...     load_checkpoint(path)
    {'step': 3, 'weights': [tensor([1., 1.])]}
    """
    tensors: dict[str, Tensor] = {}
    tree = json.dumps(_pack(state, tensors, "state"))
    path = Path(path)
    metadata = {"format": FORMAT, "state": tree, "sha256": _digest(tree, tensors)}
    with taking_place(path.with_name(f".{path.name}.part"), path) as temporary:  # one name: a killed run's is replaced
        save_file(tensors, temporary, metadata=metadata)
        if keep_as is not None and path.exists():
            os.replace(path, keep_as)


def load_checkpoint(path: str | os.PathLike[str]) -> Any:
    """What `save_checkpoint` was given, bit for bit, its tensors on the CPU.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    dict, list, tuple, Tensor, int, float, str or None
        The state. A damaged file raises `CheckpointError`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from isometry.deep import load_checkpoint, save_checkpoint
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_checkpoint(Path(folder) / "state.safetensors", {"epoch": 7})
    ...     load_checkpoint(Path(folder) / "state.safetensors")
    {'epoch': 7}
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            # copies: training writes into its state, which must not be a view of the mapped file
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        raise FileNotFoundError(f"there is no checkpoint {path}") from error
    except (SafetensorError, OSError) as error:
        raise _damaged(path, error) from error
    if metadata.get("format") not in (FORMAT, WITHOUT_CHECKSUM):
        raise CheckpointError(f"{path} has format {metadata.get('format')!r}; this version reads {FORMAT!r}")
    tree = metadata.get("state", "")
    if metadata["format"] == FORMAT and metadata.get("sha256") != _digest(tree, tensors):
        raise _damaged(path, "its contents do not match its checksum")
    try:
        return _unpack(json.loads(tree), tensors)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Any, reason: Any) -> CheckpointError:
    return CheckpointError(
        f"{path} is no checkpoint, or a damaged or cut one ({reason}). Nothing was changed; move it to start over"
    )


def _digest(tree: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(tree.encode())
    for name in sorted(tensors):
        t = tensors[name]
        digest.update(f"{name} {t.dtype} {tuple(t.shape)}".encode())
        digest.update(t.reshape(-1).view(torch.uint8).numpy().data if t.numel() else b"")
    return digest.hexdigest()


class Checkpoints:
    """The files of a run: ``last.safetensors`` to continue from, ``previous.safetensors``, and ``best.safetensors``.

    The second is the one before the last, the third holds the best weights.

    Parameters
    ----------
    folder : str, Path or None
        Where they are; None: none are kept.
    settings : dict
        What must not change between a checkpoint and its continuation.
    keep : int, default=0
        Newest states that are kept by their step too.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, settings: dict[str, Any], keep: int = 0):
        self.folder, self.settings, self.keep = None if folder is None else Path(folder), settings, keep
        self.last_is_good = True  # else it is not worth keeping when the next is written

    def path(self, name: str) -> Path:
        """The file "last", "previous" or "best"."""
        return (self.folder or Path()) / f"{name}.safetensors"

    @contextlib.contextmanager
    def locked(self, first_process: bool) -> Iterator[None]:
        """A block in which no other run works in the folder; of several processes the first one sees to it."""
        if self.folder is None or not first_process:
            yield
            return
        made = not self.folder.exists()
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with sole_use(self.folder / ".lock"):
                yield
        except InUseError as error:
            raise CheckpointError(str(error)) from error
        finally:
            if made:
                with contextlib.suppress(OSError):  # something was written
                    self.folder.rmdir()

    def load(self, resume: bool) -> dict[str, Any] | None:
        """The last state, with the best weights beside it, or None if there is none. Read and checked, not applied."""
        there = [name for name in ("last", "previous") if self.folder is not None and self.path(name).exists()]
        if not there:
            return None
        if not resume:
            raise FileExistsError(f"{self.folder} holds a checkpoint: give resume=True to continue, or another folder")
        name, state = self._newest(there)
        for setting, here in self.settings.items():
            before = state["settings"].get(setting)
            if before != here:
                raise CheckpointError(f"{self.path(name)} is of another run: {setting} was {before}, here it is {here}")
        return state | {"best": self._best() if state["has_best"] else None}

    def _newest(self, names: list[str]) -> tuple[str, dict[str, Any]]:
        """The first of these checkpoints that can be read; a warning names those that cannot."""
        problems: list[CheckpointError] = []
        for name in names:
            try:
                state = load_checkpoint(self.path(name))
            except CheckpointError as error:
                problems.append(error)
                continue
            self.last_is_good = name == "last"
            for problem in problems:
                warnings.warn(f"{problem}. The run goes on from {self.path(name)}", UserWarning, stacklevel=5)
            return name, state
        raise problems[0]

    def _best(self) -> Any:
        """The best weights; None, with a warning, if their file is missing or damaged: training can do without."""
        try:
            return load_checkpoint(self.path("best"))["weights"]
        except (FileNotFoundError, CheckpointError, KeyError, TypeError) as error:
            warnings.warn(
                f"the best weights so far are lost ({error}); those of a later epoch are kept",
                UserWarning,
                stacklevel=5,
            )
            return None

    def save(self, state: dict[str, Any], best: Mapping[str, Tensor] | None, best_is_new: bool) -> None:
        """Write the state and, if they are new, the best weights."""
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        if best_is_new and best is not None:  # first: if a crash follows, the epoch is trained again and ends the same
            save_checkpoint(self.path("best"), {"weights": best})
        state = {**state, "settings": self.settings, "has_best": best is not None}
        save_checkpoint(self.path("last"), state, keep_as=self.path("previous") if self.last_is_good else None)
        self.last_is_good = True
        if self.keep:
            self._keep_step(self.path(f"step-{state['run']['step']}"))

    def _keep_step(self, path: Path) -> None:
        """A second name for the last state, and none any more for those that are too old."""
        path.unlink(missing_ok=True)
        try:
            os.link(self.path("last"), path)  # takes no space as long as the last state is the same file
        except OSError:  # a file system without links
            shutil.copyfile(self.path("last"), path)
        kept = sorted(path.parent.glob("step-*.safetensors"), key=lambda p: int(p.stem.removeprefix("step-")))
        for old in kept[: -self.keep]:
            old.unlink()


def _pack(value: Any, tensors: dict[str, Tensor], where: str) -> Any:
    """``value`` as JSON; tensors go to ``tensors``, and ``where`` is for the error message."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Tensor):
        tensors[where] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {"$tensor": where}
    if isinstance(value, (list, tuple)):
        items = [_pack(v, tensors, f"{where}.{k}") for k, v in enumerate(value)]
        return items if isinstance(value, list) else {"$tuple": items}
    if isinstance(value, Mapping):
        return {"$dict": [[_pack(k, {}, where), _pack(v, tensors, f"{where}.{k}")] for k, v in value.items()]}
    raise CheckpointError(f"{where} is a {type(value).__name__}; a checkpoint holds tensors, numbers and strings only")


def _unpack(tree: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(tree, list):
        return [_unpack(v, tensors) for v in tree]
    if not isinstance(tree, dict):
        return tree
    ((tag, content),) = tree.items()
    if tag == "$tensor":
        return tensors[content]
    if tag == "$tuple":
        return tuple(_unpack(v, tensors) for v in content)
    return {_unpack(k, tensors): _unpack(v, tensors) for k, v in content}


def load_weights(module: nn.Module, weights: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Put weights into a module of the same names and shapes; of any other, refuse before anything is changed."""
    own = module.state_dict()
    missing, foreign = sorted(own.keys() - weights.keys()), sorted(weights.keys() - own.keys())
    # the state of a random stream has no fixed length
    sized = [k for k in own if k in weights and not k.endswith("_extra_state")]
    other = [k for k in sized if own[k].shape != weights[k].shape]
    if missing or foreign or other:
        k = (missing + foreign + other)[0]
        here, there = (tuple(w[k].shape) if k in w else "absent" for w in (own, weights))
        raise CheckpointError(
            f"{path} belongs to another model: {len(missing)} tensors are missing, {len(foreign)} unknown, "
            f"{len(other)} of another shape; {k} is {there} in the file and {here} here. Nothing was changed"
        )
    module.load_state_dict(dict(weights))


# -- random numbers ----------------------------------------------------------------------------------------------------


def rng_state() -> dict[str, Any]:
    """The global generators of Python, NumPy and torch: augmentation, dropout and miners may use any of them."""
    name, keys, *rest = cast(tuple[Any, ...], np.random.get_state(legacy=True))  # noqa: NPY002
    return {
        "python": random.getstate(),
        "numpy": (name, keys.tolist(), *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all(),
    }


def set_rng_state(state: Mapping[str, Any]) -> None:
    """Put the global generators where `rng_state` found them."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    torch.cuda.set_rng_state_all(state["cuda"])


GENERATORS = threading.RLock()  # held by the thread whose block has the global generators


@contextlib.contextmanager
def isolated_rng(seed: int) -> Iterator[None]:
    """A block whose global generators start from ``seed``; outside of it they are as if it had not run.

    There is one set of them in a process, so such blocks of several threads run one after another.
    """
    with GENERATORS:
        before = rng_state()
        try:
            seed_rng(seed)
            yield
        finally:
            set_rng_state(before)


def seed_rng(seed: int) -> None:
    """Let the global generators start from ``seed``."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.manual_seed(seed)


def seed_of_process(seed: int, rank: int) -> int:
    """The seed itself for the first process; hashed with the rank for others, as seed + rank is another run's seed."""
    return int(np.random.SeedSequence([seed % 2**64, rank]).generate_state(1)[0]) if rank else seed


# -- interruption ------------------------------------------------------------------------------------------------------


class StopSignals:
    """Notes the first Ctrl-C or SIGTERM, so that a step can be finished and saved; a second one comes through at once.

    SIGTERM is left to a handler of the program, if it has one. Of several processes each ends by it at once: the step
    of one could wait for another that has ended already.
    """

    pressed: int | None = None  # the signal

    def __enter__(self) -> StopSignals:
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():  # others cannot set handlers
            self._before[signal.SIGINT] = signal.signal(signal.SIGINT, self._note)
            found, alone = signal.getsignal(signal.SIGTERM), int(os.environ.get("WORLD_SIZE", "1")) == 1
            if not alone:
                return self
            if found is signal.SIG_DFL or getattr(found, "__module__", "").partition(".")[0] == "isometry":
                self._before[signal.SIGTERM] = signal.signal(signal.SIGTERM, self._note)
        return self

    def _note(self, number: int, _: object) -> None:
        if self.pressed is not None:
            self.pressed = number
            raise self.exception("stopped at once")
        self.pressed = number

    def exception(self, message: str) -> BaseException:
        """What ends the program: KeyboardInterrupt, or the exit code of a process that was terminated."""
        return SystemExit(143) if self.pressed == signal.SIGTERM else KeyboardInterrupt(message)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
