"""Embeddings of many samples by a trained network: in batches, in their order, onto disk, and again after a stop."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import send_to_device
from numpy.lib.format import open_memmap
from torch import Tensor, nn
from torch.utils.data import Dataset, default_collate
from tqdm.auto import tqdm

from isometry.core.files import taking_place
from isometry.deep.checkpoint import CheckpointError, load_checkpoint, load_weights, save_checkpoint
from isometry.deep.columns import are_texts, check_texts
from isometry.deep.distributed import gather, is_distributed
from isometry.deep.functional import unit
from isometry.deep.offline import inputs_of
from isometry.deep.samplers import positive, rank_and_size
from isometry.parameters import one_of

FIRST_BATCH = 256  # samples at a time, halved where memory does not suffice
SAVE_EVERY = 64  # batches after which a file says how far it is
MEMORY_WORDS = ("out of memory", "can't allocate memory", "not enough memory")


class Encoder:
    """A network that embeds: in eval mode, without gradients, a batch at a time, in the order of the samples.

        encoder = Encoder(trainer.model, normalize=True)
        Z = encoder.encode(images, progress=True)
        encoder.encode(corpus, out="corpus.npy")  # stopped and called again, it goes on where it was

    Samples are an array (n, …), a data set, or texts, also from a generator. Texts, and data sets that tell their
    ``lengths``, pass in the order of their length, so that little is padded. Under ``torchrun`` each process embeds a
    part, and all get all.

    Embeddings of one sample agree to rounding whatever else is in its batch; they are the same to the bit if batches
    have the same shape.

    Parameters
    ----------
    model : nn.Module
        From samples to embeddings (B, p). A `Network` knows its ``transform`` and ``tokenize``.
    transform : callable or None, default=None
        From one sample to what the network takes; for texts from a list of them to a dictionary of tensors. None: that
        of a `Network`, or nothing.
    normalize : bool or None, default=None
        Put embeddings on the unit sphere; None: no, unless the encoder was loaded from a file that says so.
    truncate : int or None, default=None
        First dimensions that are kept, before embeddings are normalised; None: all.
    quantizer : object or None, default=None
        What embeddings (n, p) go through in the end, by its method ``encode``; None: nothing.
    batch_size : int or "auto", default="auto"
        Samples at a time; a batch that does not fit into memory is halved, and so are those after it.
    precision : {"auto", "no", "bf16", "fp16"}, default="auto"
        "auto" is bf16 on an accelerator that has it.
    device : str or None, default=None
        Where the model is put; None: it stays where it is.
    prompts : dict or None, default=None
        Texts to put before a sample, by the name that ``encode(prompt=…)`` gives; None: there are none.
    cache : str, Path or None, default=None
        A folder that keeps every embedding by a hash of weights and sample: a second time costs a read. None: nothing
        is kept.

    Notes
    -----
    For embedding much, once training is done: ``encode(corpus, out="corpus.npy")``, stopped and called again, goes on
    where it was. Costs one forward pass a sample.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.deep import MLP, Encoder
    >>> encoder = Encoder(MLP(4, 2), normalize=True)
    >>> Z = encoder.encode(np.eye(4))
    >>> Z.shape, bool(np.allclose(np.linalg.norm(Z, axis=1), 1))
    ((4, 2), True)
    """

    def __init__(
        self,
        model: nn.Module,
        transform: Callable[[Any], Any] | None = None,
        normalize: bool | None = None,
        truncate: int | None = None,
        quantizer: Any = None,
        batch_size: int | str = "auto",
        precision: str = "auto",
        device: str | None = None,
        prompts: Mapping[str, str] | None = None,
        cache: str | os.PathLike[str] | None = None,
    ):
        self.model, self.transform, self.normalize = model, transform, bool(normalize)
        self.truncate = None if truncate is None else positive("truncate", truncate)
        self.quantizer, self.prompts, self.cache = (
            quantizer,
            dict(prompts or {}),
            None if cache is None else Path(cache),
        )
        self.batch_size = FIRST_BATCH if batch_size == "auto" else positive("batch_size", int(batch_size))
        self.precision = one_of("precision", precision, ("auto", "no", "bf16", "fp16"))
        if device is not None:
            model.to(device)

    # -- what a caller asks for ----------------------------------------------------------------------------------------

    def encode(
        self,
        samples: Any,
        prompt: str | None = None,
        progress: bool = False,
        out: str | os.PathLike[str] | None = None,
    ) -> np.ndarray:
        """Embeddings (n, p) of the samples, or what the quantiser makes of them.

        Parameters
        ----------
        samples : array (n, …), data set, list of str, or generator
            What is embedded.
        prompt : str or None, default=None
            Name of a prompt, or a text, that is put before each text; None: nothing.
        progress : bool, default=False
            Show a bar.
        out : str, Path or None, default=None
            An npy file that the embeddings are written to as they come, mapped into memory; a call that was stopped
            goes on where it was, if weights and samples are the same. None: they are kept in memory.

        Returns
        -------
        array (n, p)
            Embeddings, in the order of the samples.
        """
        if isinstance(samples, Iterator):
            return self._stream(samples, prompt, progress, out)
        data = self._as_items(samples, prompt)
        n, (rank, world) = len(data), rank_and_size()
        rows = np.array_split(data.order(), world)[rank]
        if out is not None and (world > 1 or self.quantizer is not None):
            raise ValueError("out keeps embeddings of one process, before a quantiser: leave out one of the two")
        with self._ready():
            if out is not None:
                return self._to_file(data, rows, Path(out), progress)
            found = self._through_cache(data, rows, progress)
        if is_distributed():
            device = next((p.device for p in self.model.parameters()), torch.device("cpu"))
            place, z = gather(torch.as_tensor(rows, device=device), torch.as_tensor(found, device=device))
            rows, found = place.numpy(force=True), z.numpy(force=True)
        Z = np.empty((n, *found.shape[1:]), found.dtype)
        Z[rows] = found
        return Z if self.quantizer is None else self.quantizer.encode(Z)

    __call__ = encode

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the weights and what else the encoder is made of; `Encoder.load` reads it.

        Parameters
        ----------
        path : str or Path
            The file.
        """
        export(path, self.model, normalize=self.normalize, truncate=self.truncate, prompts=self.prompts,
               quantizer=self.quantizer)  # fmt: skip

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: nn.Module, **options: Any) -> Encoder:
        """An encoder of weights that `save` or ``Trainer.export`` wrote, in a network of the same architecture.

        Parameters
        ----------
        path : str or Path
            The file.
        model : nn.Module
            A network of the architecture that was saved.
        **options : dict
            Further arguments of `Encoder`.

        Returns
        -------
        Encoder
            The encoder.
        """
        state = load_checkpoint(path)
        if not isinstance(state, dict) or "network" not in state:
            raise CheckpointError(f"{path} holds no exported network: give a file of Trainer.export or Encoder.save")
        load_weights(model, state["network"], path)
        card = state["card"]
        known = {"normalize": card["normalize"], "truncate": card["truncate"], "prompts": card["prompts"]}
        return cls(model, **{**known, **options})

    # -- how it is done ------------------------------------------------------------------------------------------------

    def _as_items(self, samples: Any, prompt: str | None) -> _Items:
        before = "" if prompt is None else self.prompts.get(prompt, prompt)
        transform = self.transform
        if are_texts(samples):
            check_texts(samples, "the samples")
            transform = transform or getattr(self.model, "tokenize", None)
            if transform is None:
                raise ValueError("texts need a transform, from a list of texts to a dictionary of tensors")
            texts = [before + t for t in samples]
            return _Items(texts, transform, [len(t) for t in texts])
        if before:
            raise ValueError("a prompt is put before texts, and these samples are none")
        if isinstance(samples, Dataset) or not hasattr(samples, "__array__"):
            collate = getattr(samples, "collate", None) or _collate(transform)
            return _Items(samples, collate, getattr(samples, "lengths", None))
        x = samples if isinstance(samples, Tensor) else torch.as_tensor(np.ascontiguousarray(samples))
        dtype = next((p.dtype for p in self.model.parameters() if p.is_floating_point()), torch.float32)
        x = x.to(dtype) if x.is_floating_point() else x
        return _Items(x, _collate(transform), None)

    @contextlib.contextmanager
    def _ready(self) -> Iterator[None]:
        """A block with the model in eval mode, without gradients, and in the precision asked for."""
        device = next((p.device for p in self.model.parameters()), torch.device("cpu"))
        half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.precision)
        if self.precision == "auto" and device.type == "cuda" and torch.cuda.is_bf16_supported(False):
            half = torch.bfloat16
        modes = [(module, module.training) for module in self.model.modules()]
        self.model.eval()
        try:
            with torch.inference_mode(), torch.autocast(device.type, half, enabled=half is not None):
                yield
        finally:
            for module, training in modes:
                module.training = training

    def _batches(self, data: _Items, rows: np.ndarray, progress: bool) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Some of the rows, and their embeddings; where memory ends, fewer at a time."""
        done, size = 0, self.batch_size
        with tqdm(total=len(rows), disable=not progress, unit="sample") as bar:
            while done < len(rows):
                part = rows[done : done + size]
                try:
                    z = self._embed(data.batch(part))
                except (RuntimeError, MemoryError) as error:
                    if size == 1 or not out_of_memory(error):
                        raise
                    size = self.batch_size = max(1, min(size, len(part)) // 2)
                    continue
                if len(z) != len(part):
                    raise ValueError(f"the model gave {len(z)} embeddings for {len(part)} samples")
                yield part, z
                done += len(part)
                bar.update(len(part))

    def _embed(self, batch: Any) -> np.ndarray:
        device = next((p.device for p in self.model.parameters()), torch.device("cpu"))
        z = self.model(send_to_device(inputs_of(batch), device))
        if not isinstance(z, Tensor) or z.ndim != 2:
            got = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
            raise ValueError(f"the model must turn samples into embeddings (n, p); it gave {got}")
        z = z.double() if z.dtype == torch.float64 else z.float()
        z = z if self.truncate is None else z[:, : self.truncate]
        return (unit(z) if self.normalize else z).numpy(force=True)

    def _stream(self, samples: Iterator[Any], prompt: str | None, progress: bool, out: Any) -> np.ndarray:
        """Samples that come one by one, some batches of them at a time."""
        if out is not None:
            raise ValueError("how many samples a generator gives is not known before: to write a file give a list")
        parts = []
        with tqdm(disable=not progress, unit="sample") as bar:
            while chunk := list(itertools.islice(samples, 16 * self.batch_size)):
                items: Any = np.stack(chunk) if isinstance(chunk[0], np.ndarray) else chunk
                items = torch.stack(chunk) if isinstance(chunk[0], Tensor) else items
                parts.append(self.encode(items, prompt))
                bar.update(len(chunk))
        if not parts:
            raise ValueError("the generator gave no samples")
        return np.concatenate(parts)

    def _to_file(self, data: _Items, rows: np.ndarray, out: Path, progress: bool) -> np.ndarray:
        """Embeddings in an npy file, filled batch by batch; a note beside it says how far it is."""
        note = out.with_name(f".{out.name}.progress")
        same = {"weights": self.fingerprint(), "samples": data.fingerprint(), "n": len(rows)}
        state = _read_note(note) if out.exists() else None
        if out.exists() and (state is None or state["of"] != same):
            what = "holds something else" if state is None else "was begun with other weights or samples"
            raise FileExistsError(f"{out} is there and {what}: give another file, or remove it")
        done = 0 if state is None else state["done"]
        Z = open_memmap(out, mode="r+") if done else None
        for k, (part, z) in enumerate(self._batches(data, rows[done:], progress), start=1):
            if Z is None:
                _write_note(note, {"of": same, "done": 0})  # first: a file without a note is not ours
                Z = open_memmap(out, mode="w+", dtype=z.dtype, shape=(len(rows), z.shape[1]))
            Z[part] = z
            done += len(part)
            if k % SAVE_EVERY == 0 or done == len(rows):
                Z.flush()
                _write_note(note, {"of": same, "done": done})
        if Z is None:
            raise ValueError("there are no samples to embed")
        return Z

    def _through_cache(self, data: _Items, rows: np.ndarray, progress: bool) -> np.ndarray:
        """Embeddings of these rows, in this order; those that the cache has are read."""
        if self.cache is None:
            found = [z for _, z in self._batches(data, rows, progress)]
            return np.concatenate(found) if found else np.empty((0, 0), np.float32)
        cache = _Cache(self.cache / self.fingerprint())
        keys = [data.key(k) for k in rows]
        new = [k for k, key in enumerate(keys) if key not in cache.place]
        if new:
            fresh = [z for _, z in self._batches(data, rows[new], progress)]
            cache.add([keys[k] for k in new], np.concatenate(fresh))
        return cache.read(keys)

    def fingerprint(self) -> str:
        """A hash of the weights, and of what else decides on an embedding.

        Returns
        -------
        str
            The hash.
        """
        digest = hashlib.sha256(repr((self.normalize, self.truncate, self.precision)).encode())
        for name, value in self.model.state_dict().items():
            digest.update(name.encode())
            if isinstance(value, Tensor):
                digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()[:32]


def _collate(transform: Callable[[Any], Any] | None) -> Callable[[list[Any]], Any]:
    """Samples, or tuples that begin with one, as a batch."""

    def collate(items: list[Any]) -> Any:
        items = [item[0] if isinstance(item, (tuple, list)) else item for item in items]
        return default_collate(items if transform is None else [transform(item) for item in items])

    return collate


class _Items:
    """Samples by number, and how some of them become a batch."""

    def __init__(self, samples: Any, collate: Callable[[list[Any]], Any], lengths: Any):
        self.samples, self.collate, self.lengths = samples, collate, lengths

    def __len__(self) -> int:
        return len(self.samples)

    def order(self) -> np.ndarray:
        """Rows, longest first: the batch that needs most memory is the first, and fails at once if it does."""
        rows = np.arange(len(self))
        return rows if self.lengths is None else np.argsort(-np.asarray(self.lengths), kind="stable")

    def batch(self, rows: np.ndarray) -> Any:
        return self.collate([self.samples[int(k)] for k in rows])

    def key(self, row: int) -> bytes:
        """A hash of one sample."""
        return hashlib.sha256(_bytes_of(self.samples[int(row)])).digest()[:16]

    def fingerprint(self) -> str:
        """A hash of all of them: of arrays and texts the contents, of data sets, which cost to read, the first ones."""
        cheap = isinstance(self.samples, (Tensor, list))
        digest = hashlib.sha256(str(len(self)).encode())
        for row in range(len(self) if cheap else min(len(self), 8)):
            digest.update(self.key(row))
        return digest.hexdigest()[:32]


def _bytes_of(sample: Any) -> bytes:
    if isinstance(sample, Tensor):
        return sample.detach().cpu().contiguous().numpy().tobytes()
    if isinstance(sample, np.ndarray):
        return sample.tobytes()
    if isinstance(sample, (tuple, list)):
        return _bytes_of(sample[0]) if sample else b""
    if isinstance(sample, Mapping):
        return b"".join(str(k).encode() + _bytes_of(v) for k, v in sample.items())
    return str(sample).encode()


class _Cache:
    """Embeddings of one set of weights on disk: keys in one file, vectors in another, both only ever made longer."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self.keys, self.rows, self.about = folder / "keys.bin", folder / "rows.bin", folder / "about.json"
        self.shape: dict[str, Any] | None = json.loads(self.about.read_text()) if self.about.exists() else None
        self.place: dict[bytes, int] = {}
        if self.shape is not None:
            width = self.shape["p"] * np.dtype(self.shape["dtype"]).itemsize
            known = self.keys.read_bytes()
            count = min(len(known) // 16, self.rows.stat().st_size // width)  # a stop may have cut one of them short
            self.place = {known[16 * k : 16 * k + 16]: k for k in range(count)}
            os.truncate(self.keys, 16 * count)
            os.truncate(self.rows, width * count)
            self.count = count

    def add(self, keys: list[bytes], z: np.ndarray) -> None:
        if self.shape is None:
            self.shape, self.count = {"p": int(z.shape[1]), "dtype": str(z.dtype)}, 0
            self.about.write_text(json.dumps(self.shape))
        with self.rows.open("ab") as file:
            file.write(np.ascontiguousarray(z).tobytes())
        with self.keys.open("ab") as file:
            file.write(b"".join(keys))
        self.place |= {key: self.count + k for k, key in enumerate(keys)}
        self.count += len(keys)

    def read(self, keys: list[bytes]) -> np.ndarray:
        if self.shape is None:
            return np.empty((0, 0), np.float32)
        all_rows = np.memmap(self.rows, self.shape["dtype"], "r", shape=(self.count, self.shape["p"]))
        return np.asarray(all_rows[[self.place[key] for key in keys]])


def out_of_memory(error: BaseException) -> bool:
    """Whether this is the memory of a device or of the machine that did not suffice."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or any(
        w in str(error).lower() for w in MEMORY_WORDS
    )


def _read_note(path: Path) -> dict[str, Any] | None:
    try:
        note = json.loads(path.read_text(encoding="utf-8"))
        return note if isinstance(note, dict) and note.keys() == {"of", "done"} else None
    except (OSError, ValueError):
        return None


def _write_note(path: Path, note: dict[str, Any]) -> None:
    with taking_place(path.with_name(f"{path.name}.part"), path) as temporary:
        temporary.write_text(json.dumps(note), encoding="utf-8")


def export(
    path: str | os.PathLike[str],
    model: nn.Module,
    *,
    normalize: bool,
    truncate: int | None = None,
    prompts: Mapping[str, str] | None = None,
    quantizer: Any = None,
    embedding_size: int | None = None,
) -> None:
    """The bare network as safetensors, without optimiser and loss, and what one must know to use it as JSON beside.

    The file is ``path``, the JSON text ``path`` with the ending .json: dimensions, normalisation, prompts, quantiser.
    """
    path = Path(path)
    card = {
        "network": type(model).__name__,
        "embedding_size": embedding_size,
        "parameters": sum(p.numel() for p in model.parameters()),
        "normalize": normalize,
        "truncate": truncate,
        "prompts": dict(prompts or {}),
        "quantizer": None if quantizer is None else repr(quantizer),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    save_checkpoint(path, {"network": dict(model.state_dict()), "card": card})
    text = path.with_suffix(".json")
    with taking_place(text.with_name(f".{text.name}.part"), text) as temporary:
        temporary.write_text(json.dumps(card, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
