"""The safetensors container: named arrays and a few texts in one file.

A file is 8 bytes with the length of the header, the header as JSON, and the bytes of the arrays one after another. It
is written in one order, so that equal contents give equal bytes. It is read without trust: every number of the header
is checked against the size of the file before memory is asked for.
"""

from __future__ import annotations

import io
import json
import math
import os
import stat
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["ContainerError", "read_tensors", "write_tensors"]

DTYPES: dict[str, type[np.generic]] = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BOOL": np.bool_}
DTYPES |= {"I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8}
DTYPES |= {"U64": np.uint64, "U32": np.uint32, "U16": np.uint16, "U8": np.uint8}
NAMES = {np.dtype(kind): name for name, kind in DTYPES.items()}
METADATA = "__metadata__"
MAX_DIMENSIONS = 32


class ContainerError(ValueError):
    """A file that is no safetensors file, or a damaged one."""


def write_tensors(path: str | os.PathLike[str], tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    """Write arrays and texts; the same contents give the same bytes."""
    header: dict[str, Any] = {METADATA: dict(sorted(metadata.items()))}
    order = sorted(
        tensors, key=lambda name: (-tensors[name].itemsize, name)
    )  # wide types first, so that all arrays are aligned
    end = 0
    for name in order:
        a = tensors[name]
        start, end = end, end + a.nbytes
        header[name] = {"dtype": NAMES[a.dtype], "shape": list(a.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            file.write(tensors[name].astype(tensors[name].dtype.newbyteorder("<"), order="C", copy=False).tobytes())


def read_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, str], dict[str, np.ndarray], int]:
    """Texts, arrays and the size of the file in bytes; `ContainerError` or `OSError` if it cannot be read."""
    with _open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        header, start = _read_header(file, size)
        metadata = header.pop(METADATA, {})
        if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
            raise ContainerError("its metadata are not texts")
        layout = _check_layout(header, size - start)
        return metadata, {name: _read_array(file, dtype, shape) for name, dtype, shape in layout}, size


def _open_regular(path: str | os.PathLike[str]) -> io.BufferedReader:
    """The file, if it is one: opening a pipe would block until someone writes to it, and a device may never end."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags)
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise ContainerError("it is a folder" if stat.S_ISDIR(mode) else "it is a pipe or device, not a file")
    return os.fdopen(handle, "rb")


def _read_header(file: io.BufferedReader, size: int) -> tuple[dict[str, Any], int]:
    """The header, and where the arrays begin."""
    if size < 8:
        raise ContainerError(f"it has {size} bytes")
    length = int.from_bytes(file.read(8), "little")
    if length > size - 8:
        raise ContainerError(f"it has {size} bytes, its header alone should have {length}")
    try:
        header = json.loads(file.read(length).decode(), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:  # text that is not UTF-8, or no JSON
        raise ContainerError(f"its header cannot be read: {error}") from error
    if not isinstance(header, dict):
        raise ContainerError("its header is no table of arrays")
    return header, 8 + length


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An error if a name comes twice: readers differ in which of the two entries they take."""
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ContainerError("its header holds a name twice")
    return table


def _check_layout(header: dict[str, Any], n_bytes: int) -> list[tuple[str, np.dtype, tuple[int, ...]]]:
    """Name, type and shape of the arrays in the order of their bytes, which are ``n_bytes`` without a gap."""
    layout = sorted((_offsets(name, entry), name) for name, entry in header.items())
    end, checked = 0, []
    for (start, stop), name in layout:
        entry = header[name]
        dtype, shape = np.dtype(DTYPES[entry["dtype"]]), tuple(entry["shape"])
        if start != end or stop - start != dtype.itemsize * math.prod(shape):
            raise ContainerError(f"the bytes of its array {name!r} are not where and as many as they should be")
        end = stop
        checked.append((name, dtype, shape))
    if end != n_bytes:
        raise ContainerError(f"its arrays should have {end} bytes, and there are {n_bytes}")
    return checked


def _offsets(name: str, entry: Any) -> tuple[int, int]:
    """Where the bytes of an array begin and end, once its entry has the form it should have."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise ContainerError(f"the entry of its array {name!r} lacks type, shape or offsets")
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not (_are_counts(shape) and len(shape) <= MAX_DIMENSIONS and _are_counts(offsets) and len(offsets) == 2):
        raise ContainerError(f"its array {name!r} has an impossible shape or impossible offsets")
    if not isinstance(entry["dtype"], str) or entry["dtype"] not in DTYPES:
        raise ContainerError(f"its array {name!r} has an unknown type")
    return offsets[0], offsets[1]


def _are_counts(values: Any) -> bool:
    """A list of whole numbers that can be sizes."""
    return isinstance(values, list) and all(type(v) is int and 0 <= v < 2**63 for v in values)


def _read_array(file: io.BufferedReader, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    a = np.empty(shape, dtype=dtype.newbyteorder("<"))
    if a.size:
        raw = a.reshape(-1).view(np.uint8)
        if file.readinto(raw.data) != raw.size:
            raise ContainerError("it became shorter while it was read")
        if dtype == np.bool_ and raw.max() > 1:
            raise ContainerError("an array of truth values holds something else")
    return a.astype(dtype, copy=False)
