"""Tables of numbers and labels, from and to csv, tsv, parquet, npy and npz.

**One table, one array, whatever the format.** A csv file knows no number types: the 32-bit number printed as 0.1 comes
back as the 64-bit number 0.1, which is not the 32-bit one. So a number means the decimal it prints as, in every format:
with ``dtype=float64`` 32-bit columns are widened through their shortest decimal, and csv is parsed to the nearest
number. With ``dtype=float32`` every format is rounded once, to what the 32-bit original was. Labels become int64 where
they are whole numbers, bool or text otherwise.
"""

from __future__ import annotations

import csv
import difflib
import lzma
import os
import re
import shlex
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TextIO

import numpy as np

from isometry.io.atomic import replacing

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Table", "TableError", "read_table", "write_table"]

SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
PARQUET = (".parquet", ".pq")
NUMPY = (".npy", ".npz")
OTHER_SEPARATORS = (";", "\t", "|")
DATE = r"\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([ T].*)?\s*"
COMMA_NUMBER = r"\s*[+-]?\d*(,\d+)?([eE][+-]?\d+)?\s*"
LARGEST = 2**63 - 1  # of int64
TEXT_ERRORS = (UnicodeDecodeError, OSError, EOFError, csv.Error, zlib.error, lzma.LZMAError)
ARRAY_ERRORS = (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, NotImplementedError)
EXACT = 2**53  # below it float64 holds every whole number
COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".xz": "lzma", ".zst": "zstandard"}  # text only; and what opens it
SHOWN = 8  # names listed in an error message
NAMES = "feature_names"
CLASSES = "classes"


class TableError(ValueError):
    """A table that cannot be used as it is; the message says why and what to do."""


@dataclass(frozen=True)
class Table:
    """Numbers, with a label for each row if there is one."""

    X: np.ndarray  # (n, d)
    y: np.ndarray | None  # (n,)
    feature_names: list[str]
    target_name: str | None
    name: str  # of the data set: the file's name without its ending


def read_table(
    path: str | os.PathLike | pd.DataFrame,
    target: str | None = None,
    *,
    drop: str | Sequence[str] | None = None,
    features: str | Sequence[str] | None = None,
    key: str | None = None,
    dtype: Any = np.float64,
    delimiter: str | None = None,
    decimal: str | None = None,
) -> Table:
    """Read a table and check that it can be learned from.

    Parameters
    ----------
    path : a csv, tsv, parquet, npy or npz file (text may be compressed), or a DataFrame
    target : the column of labels. In an npz file the name of an array or of a feature; by default ``"y"``, if there is
    drop : columns to leave out
    features : columns to use, in this order; all but ``target`` by default
    key : the array of features in an npz file; ``"X"`` by default, or the only two-dimensional one
    dtype : of X, float64 or float32
    delimiter : between the cells of a text table; by default what the file's ending says, or semicolon, tab or bar if
        the header has one of these and nothing else
    decimal : sign before the fraction of numbers in a text table; by default a point, or a comma where semicolons
        separate cells and all text in a column looks like 1,5

    Notes
    -----
    An npz file may hold ``feature_names`` and ``classes``; whole-number labels then index ``classes``. A column whose
    cells are vectors of one length (embeddings in parquet) becomes as many columns.
    """
    if np.dtype(dtype) not in (np.float64, np.float32):
        raise TypeError(f"dtype={dtype!r} must be float64 or float32")
    if hasattr(path, "columns"):
        name, frame = "table", path
    else:
        path = Path(path)
        name, suffix = table_format(path)
        _check_file(path)
        if suffix in NUMPY:
            frame, target = _read_numpy(path, target, key)
        elif suffix in PARQUET:
            frame = _read_parquet(path)
        else:
            frame = _read_text(path, SEPARATORS[suffix], target, delimiter, decimal)
    return _make_table(frame, name, target, _as_list(drop) or [], _as_list(features), np.dtype(dtype))


def write_table(
    path: str | os.PathLike | TextIO,
    Z: np.ndarray,
    columns: Sequence[str] | None = None,
    *,
    y: Any = None,
    target: str = "y",
) -> Path | None:
    """Write rows ``Z`` (n, p), with labels ``y`` if given, in the format that the ending of ``path`` names.

    The columns are called z0, z1, … unless ``columns`` says otherwise; text formats get enough digits to read back the
    same numbers. An older file is replaced only by a complete one. An open text file, such as ``sys.stdout``, gets csv.
    """
    Z = np.asarray(Z)
    if Z.ndim != 2:
        raise ValueError(f"Z must have two dimensions, rows and columns; its shape is {Z.shape}")
    columns = [f"z{k}" for k in range(Z.shape[1])] if columns is None else [str(c) for c in columns]
    if len(columns) != Z.shape[1]:
        raise ValueError(f"Z has {Z.shape[1]} columns but there are {len(columns)} column names")
    if y is not None and len(y) != len(Z):
        raise ValueError(f"Z has {len(Z)} rows but y has {len(y)} labels")
    if y is not None and target in columns:
        raise ValueError(f"{target!r} is the name of a column of Z and of the labels: choose another `target`")
    if not isinstance(path, (str, os.PathLike)):
        _write_frame(path, ".csv", Z, columns, y, target)
        return None
    suffix = table_format(Path(path))[1]
    if suffix == ".npy" and y is not None:
        raise ValueError("an npy file holds one array and no labels: write npz, csv or parquet instead")
    with replacing(path) as temporary:
        if suffix == ".npy":
            np.save(temporary, Z)
        elif suffix == ".npz":
            arrays: dict[str, Any] = {"X": Z, NAMES: np.array(columns, dtype=str)}
            np.savez(temporary, **arrays if y is None else {**arrays, "y": _as_labels(y, target)})
        else:
            _write_frame(temporary, suffix, Z, columns, y, target)
    return Path(path)


def _write_frame(path: Path | TextIO, suffix: str, Z: np.ndarray, columns: list[str], y: Any, target: str) -> None:
    pd = _import("pandas")
    frame = pd.DataFrame(Z, columns=columns)
    if y is not None:
        frame[target] = _as_labels(y, target)
    if suffix in PARQUET:
        _import("pyarrow")
        frame.to_parquet(path, index=False)
    else:
        frame.to_csv(path, sep=SEPARATORS[suffix], index=False)


def _import(module: str) -> Any:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f'tables need {module}: pip install "isometry[cli]"', name=module) from error


def table_format(path: Path) -> tuple[str, str]:
    """The stem and the ending that names the format: ``data.csv.gz`` is ``data`` and ``.csv``."""
    inner = Path(path.stem) if path.suffix.lower() in COMPRESSED else path
    suffix = inner.suffix.lower()
    known = [*SEPARATORS, *PARQUET, *NUMPY]
    if suffix not in (SEPARATORS if inner != path else known):
        raise TableError(
            f"{path}: the ending {path.suffix!r} is not that of a table; expected one of {', '.join(known)}"
        )
    return inner.stem, suffix


def _check_file(path: Path) -> None:
    if not path.exists():
        near = difflib.get_close_matches(path.name, os.listdir(path.parent) if path.parent.is_dir() else [], n=1)
        hint = f"; did you mean {path.parent / near[0]}?" if near else ""
        raise FileNotFoundError(f"there is no file {path}{hint}")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file in it")
    if path.stat().st_size == 0:
        raise TableError(f"{path} is empty")


def _read_text(
    path: Path, separator: str, target: str | None, delimiter: str | None, decimal: str | None
) -> pd.DataFrame:
    pd = _import("pandas")
    options: dict[str, Any] = {"sep": _delimiter(delimiter or separator), "decimal": _decimal(decimal or ".")}
    if tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1):  # later versions always read the nearest number
        options["float_precision"] = "round_trip"
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # cells would be lost
        try:
            names = _header(path, options["sep"])
            if delimiter is None and len(names) == 1:
                options["sep"] = next((s for s in OTHER_SEPARATORS if s in names[0]), options["sep"])
                names = _header(path, options["sep"])
            _refuse_repeats(path.name, [c for c in names if c])
            frame = _read_cells(path, target, options)
            if decimal is None and options["sep"] == ";" and _with_decimal_commas(frame, target):
                options["decimal"] = ","
                frame = _read_cells(path, target, options)
        except pd.errors.ParserWarning as error:
            raise TableError(
                f"{path}: rows have more cells than the header has names ({len(names)}), so that it is not known which "
                "name belongs to which cell. Give every column a name, also one of row numbers, or say what separates "
                "the cells: --delimiter"
            ) from error
        except TEXT_ERRORS + (pd.errors.EmptyDataError, pd.errors.ParserError) as error:
            raise TableError(f"{path} cannot be read as a text table: {error}") from error
    if options["decimal"] == "," and decimal is None:
        warnings.warn(
            "numbers are read with a decimal comma, 1,5 as one and a half; otherwise give `decimal` (--decimal)",
            UserWarning,
            stacklevel=3,
        )
    return frame


def _delimiter(text: str) -> str:
    """The sign itself; a space stands for any number of them."""
    text = {"\\t": "\t", "tab": "\t", " ": r"\s+"}.get(text, text)
    if len(text) != 1 and text != r"\s+":
        raise TableError(f"delimiter {text!r} must be one sign, such as ; or , or | or tab")
    return text


def _decimal(text: str) -> str:
    if text not in (".", ","):
        raise TableError(f"decimal {text!r} must be . or ,")
    return text


def _header(path: Path, separator: str) -> list[str]:
    """The names as they stand in the file: pandas would give names that come twice a number."""
    with _open_text(path) as file:
        if separator == r"\s+":
            return next((line.split() for line in file if line.strip()), [])
        return next((row for row in csv.reader(file, delimiter=separator) if row), [])


def _open_text(path: Path) -> IO[str]:
    options: dict[str, Any] = {"mode": "rt", "encoding": "utf-8-sig", "newline": ""}
    suffix = path.suffix.lower()
    if suffix not in COMPRESSED:
        return open(path, **options)
    return _import(COMPRESSED[suffix]).open(path, **options)


def _read_cells(path: Path, target: str | None, options: dict[str, Any]) -> pd.DataFrame:
    options = {**options, "keep_default_na": False, "index_col": False}
    frame = _import("pandas").read_csv(path, na_values=sorted(MISSING), **options)
    if target in frame.columns and frame[target].isna().any():
        # "NA" and "None" are gaps among numbers but may well be names of classes
        frame[target] = _import("pandas").read_csv(path, na_values=[""], usecols=[target], **options)[target]
    return frame


def _with_decimal_commas(frame: pd.DataFrame, target: str | None) -> bool:
    """Whether a column of text holds numbers such as 1,5 and nothing else."""
    for c, kind in frame.dtypes.items():
        if c == target or _import("pandas").api.types.is_numeric_dtype(kind):
            continue
        cells = frame[c].dropna().astype(str)
        if cells.str.fullmatch(COMMA_NUMBER).all() and cells.str.contains(",").any():
            return True
    return False


_OTHER_LABELS = "Write the labels as text, such as c17, or choose another column"
MISSING = frozenset({"", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "<NA>", "#N/A", "?"})


def _read_parquet(path: Path) -> pd.DataFrame:
    pd = _import("pandas")
    pa = _import("pyarrow")
    try:
        return pd.read_parquet(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise TableError(f"{path} cannot be read as parquet: {error}") from error


def _read_numpy(path: Path, target: str | None, key: str | None) -> tuple[pd.DataFrame, str | None]:
    """The arrays of a file as one DataFrame, and the name of its column of labels."""
    try:
        loaded = np.load(path, allow_pickle=False)
    except ARRAY_ERRORS as error:
        raise TableError(_why_unreadable(str(path), error)) from error
    if isinstance(loaded, np.ndarray):
        arrays = {"X": loaded}
    else:
        with loaded:
            arrays = {name: _read_member(path, loaded, name) for name in loaded.files}
    X = arrays[_feature_key(path, arrays, key)]
    if X.ndim != 2:
        raise TableError(f"{path}: the features must be an array of rows and columns; its shape is {X.shape}")
    frame = _frame_of(path, X, arrays.get(NAMES))
    if target is None:
        target = "y" if "y" in arrays else None
    if target is not None and target in arrays and target in frame.columns:
        raise TableError(
            f"{path}: {target!r} is the name of an array, which would be the labels, and of a feature in "
            f"`{NAMES}`: rename one of them"
        )
    if target is not None and target not in frame.columns:
        if target not in arrays:
            raise TableError(_unknown(target, [*arrays, *frame.columns], f"{path} has no labels", "target"))
        y = arrays[target].ravel() if arrays[target].ndim == 2 and 1 in arrays[target].shape else arrays[target]
        if y.shape != (len(X),):
            raise TableError(f"{path}: X has {len(X)} rows but {target} has shape {y.shape}")
        frame[target] = _class_names(path, y, arrays.get(CLASSES))
    return frame, target


def _read_member(path: Path, arrays: Any, name: str) -> np.ndarray:
    try:
        return arrays[name]
    except ARRAY_ERRORS as error:
        raise TableError(_why_unreadable(f"{path}: the array {name!r}", error)) from error


def _why_unreadable(what: str, error: Exception) -> str:
    if "Object arrays" in str(error):
        return (
            f"{what} holds Python objects, which are never read because that can run code; save text as "
            "np.array(names, dtype=str) and numbers as a float array"
        )
    reason = str(error) or type(error).__name__
    return f"{what} cannot be read as an array, it may be damaged ({reason}). Write the file again"


def _feature_key(path: Path, arrays: dict[str, np.ndarray], key: str | None) -> str:
    tables = [k for k, a in arrays.items() if a.ndim == 2]
    if key is None:
        key = "X" if "X" in arrays or len(tables) != 1 else tables[0]
    if key not in arrays:
        raise TableError(_unknown(key, list(arrays), f"{path} has no array", "key"))
    return key


def _frame_of(path: Path, X: np.ndarray, names: np.ndarray | None) -> pd.DataFrame:
    columns = [f"x{k}" for k in range(X.shape[1])] if names is None else [str(v) for v in names]
    if len(columns) != X.shape[1]:
        raise TableError(f"{path}: X has {X.shape[1]} columns but there are {len(columns)} feature names")
    return _import("pandas").DataFrame(X, columns=columns)


def _class_names(path: Path, y: np.ndarray, classes: np.ndarray | None) -> np.ndarray:
    if classes is None or y.dtype.kind not in "iu":
        return y
    if y.min(initial=0) < 0 or y.max(initial=0) >= len(classes):
        raise TableError(
            f"{path}: labels run from {y.min()} to {y.max()} but there are {len(classes)} names in `classes`"
        )
    return classes[y]


def _make_table(frame, name: str, target, drop: list[str], features: list[str] | None, dtype: np.dtype) -> Table:
    frame = frame.rename(columns=str)
    columns = list(frame.columns)
    _refuse_repeats(name, columns)
    known, dropped = set(columns), set(drop)
    if len(frame) == 0:
        raise TableError(f"{name} has columns {_listing(columns)} but no rows")
    for wanted, what in (([] if target is None else [target], "target"), (drop, "drop"), (features or [], "features")):
        for c in wanted:
            if c not in known:
                raise TableError(_unknown(c, columns, f"{name} has no column", what))
    y = None if target is None else _as_labels(frame[target], target)
    rest = [c for c in features or columns if c != target and c not in dropped]
    chosen = rest if features else _without_index(frame, rest)
    if not chosen:
        raise TableError(f"{name} has no feature column left: the columns are {_listing(columns)}")
    numbers = _expand(frame[chosen])
    return Table(_as_numbers(numbers, name, dtype), y, list(numbers.columns), target, name)


def _refuse_repeats(name: str, columns: list[str]) -> None:
    twice = sorted(c for c, count in Counter(columns).items() if count > 1)
    if twice:
        raise TableError(f"{name} has several columns called {_listing(twice)}: rename them")


def _without_index(frame, columns: list[str]) -> list[str]:
    """The columns without the row numbers that DataFrame.to_csv writes: in sorted data they give the class away."""
    unnamed = [c for c in columns if re.fullmatch(r"Unnamed: \d+(\.\d+)?", c)]
    if unnamed and unnamed[0] == frame.columns[0] and _counts_rows(frame[unnamed[0]]):
        warnings.warn("the first column has no name and counts the rows: it is left out", UserWarning, stacklevel=4)
        columns, unnamed = columns[1:], unnamed[1:]
    if unnamed:
        warnings.warn(
            f"{len(unnamed)} columns have no name in the file and are used as features: {_listing(unnamed)}. If they "
            f"number the rows, they may give the labels away: leave them out with {_drop(unnamed)}",
            UserWarning,
            stacklevel=4,
        )
    return columns


def _counts_rows(column) -> bool:
    return any(np.array_equal(column, np.arange(start, start + len(column))) for start in (0, 1))


def _expand(frame):
    """Columns whose cells are vectors as several columns: ``v`` becomes ``v[0]``, ``v[1]``, …"""
    objects = [c for c, kind in zip(frame.columns, frame.dtypes, strict=True) if kind == np.dtype(object)]
    vectors = [c for c in objects if isinstance(frame[c].iloc[0], (list, np.ndarray))]
    if not vectors:
        return frame
    pd, parts = _import("pandas"), []
    for c in frame.columns:
        if c not in vectors:
            parts.append(frame[[c]])
            continue
        lengths = {len(v) if isinstance(v, (list, np.ndarray)) else -1 for v in frame[c]}
        if len(lengths) != 1:
            raise TableError(f"column {c} holds vectors of different lengths ({_listing(sorted(lengths))})")
        V = np.stack([np.asarray(v) for v in frame[c]])
        parts.append(pd.DataFrame(V, columns=[f"{c}[{k}]" for k in range(V.shape[1])], index=frame.index))
    return pd.concat(parts, axis=1)


def _as_numbers(frame, name: str, dtype: np.dtype) -> np.ndarray:
    """The columns as one array (n, d) of finite numbers."""
    _refuse_other_kinds(frame, name)
    X = np.empty(frame.shape, dtype=dtype)
    for narrow, columns in _by_width(frame).items():
        block = frame if len(columns) == frame.shape[1] else frame.iloc[:, columns]
        values = block.to_numpy(dtype=narrow or np.float64, na_value=np.nan)
        X[:, columns] = values if narrow in (None, dtype.name) else _widen(values)
    bad = ~np.isfinite(X).all(axis=0)  # (d,)
    if bad.any():
        counts = [f"{frame.columns[k]} ({np.sum(~np.isfinite(X[:, k]))} of {len(X)} rows)" for k in np.flatnonzero(bad)]
        raise TableError(
            f"{name} has missing or infinite values in {len(counts)} columns: {_listing(counts)}. Leave these columns "
            f"out with {_drop([frame.columns[k] for k in np.flatnonzero(bad)])}, leave out the rows, or fill the gaps "
            "first, e.g. with scikit-learn's SimpleImputer"
        )
    return X


def _refuse_other_kinds(frame, name: str) -> None:
    """An error if there are columns of text, dates, categories or complex numbers; it says which and what to do."""
    types = _import("pandas").api.types
    numeric = {k: types.is_numeric_dtype(k) and not types.is_complex_dtype(k) for k in set(frame.dtypes)}
    others = [c for c, kind in zip(frame.columns, frame.dtypes, strict=True) if not numeric[kind]]
    if not others:
        return
    shown = [f"{c} ({_kind(frame[c])})" for c in others[:SHOWN]] + others[SHOWN:]
    hint = ""
    if _with_decimal_commas(frame[others[:SHOWN]], None):
        hint = ". If 1,5 means one and a half, give the decimal sign: --decimal , (decimal=',')"
    raise TableError(
        f"{name} has {len(others)} feature columns that are not numbers: {_listing(shown)}. Leave them out with "
        f"{_drop(others)}, or encode them as numbers first, e.g. with scikit-learn's OneHotEncoder{hint}"
    )


def _kind(column) -> str:
    """What a column holds, with an example, for a message."""
    pd = _import("pandas")
    if pd.api.types.is_datetime64_any_dtype(column):
        return "dates"
    if pd.api.types.is_complex_dtype(column):
        return "complex numbers"
    cells = column.dropna()
    words = cells[pd.to_numeric(cells.astype(str), errors="coerce").isna()].astype(str)
    if isinstance(column.dtype, pd.CategoricalDtype):
        kind = "categories"
    else:
        kind = "dates" if len(words) and words.str.fullmatch(DATE).all() else "text"
    return f"{kind}, such as {words.iloc[0]!r}" if len(words) else kind


def _drop(columns: Sequence[str]) -> str:
    """How to leave out these columns, on the command line and in Python."""
    some = list(columns[:SHOWN])
    rest = " …" if len(columns) > SHOWN else ""
    quoted = ",".join(f'"{c}"' if "," in c else c for c in some)
    return f"--drop {shlex.quote(quoted)}{rest} (in Python drop={some}{rest})"


def _by_width(frame) -> dict[Any, list[int]]:
    """Column numbers by the narrow float type they have; None for all other types."""
    groups: dict[Any, list[int]] = {}
    for k, kind in enumerate(frame.dtypes):
        name = str(kind).lower()
        groups.setdefault(name if name in ("float32", "float16") else None, []).append(k)
    return groups


def _widen(X: np.ndarray) -> np.ndarray:
    """Narrow floats as the float64 of their shortest decimal, the number that a csv file of them holds."""
    pa = _import("pyarrow")
    text = pa.array(X.astype("U").ravel()) if X.dtype == np.float16 else pa.array(X.ravel()).cast(pa.string())
    return text.cast(pa.float64()).to_numpy(zero_copy_only=False).reshape(X.shape)


def _as_labels(y: Any, target: str) -> np.ndarray:
    """Labels as int64, bool or text."""
    pd = _import("pandas")
    column = pd.Series(np.asarray(y) if not hasattr(y, "isna") else y).reset_index(drop=True)
    missing = column.isna()
    if missing.any():
        raise TableError(
            f"the target column {target} has {int(missing.sum())} missing labels, the first in row "
            f"{int(missing.argmax())}: fill them or leave out these rows"
        )
    if pd.api.types.is_bool_dtype(column):
        return column.to_numpy(dtype=bool)
    if pd.api.types.is_numeric_dtype(column) and not isinstance(column.dtype, pd.CategoricalDtype):
        values = column.to_numpy(dtype=np.float64) if pd.api.types.is_float_dtype(column) else column.to_numpy()
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise TableError(f"the target column {target} holds infinite numbers: labels name classes. {_OTHER_LABELS}")
        if values.dtype.kind == "f" and np.abs(values).max(initial=0) >= EXACT:
            raise TableError(
                f"the target column {target} holds numbers as large as {np.abs(values).max():g}, of which floating "
                f"point cannot tell neighbours apart: classes may have become one. {_OTHER_LABELS}"
            )
        if values.dtype.kind == "f" and not np.array_equal(values, np.rint(values)):
            raise TableError(
                f"the target column {target} holds fractions ({len(np.unique(values))} distinct values, e.g. "
                f"{values[values != np.rint(values)][0]:g}): labels name classes. Bin it, or choose another column"
            )
        if values.dtype.kind == "u" and values.max(initial=0) > LARGEST:
            return values.astype(str)
        return values.astype(np.int64)
    return _text_or_numbers(column.to_numpy(dtype=object))


def _text_or_numbers(values: np.ndarray) -> np.ndarray:
    if all(isinstance(v, (bool, np.bool_)) for v in values):
        return values.astype(bool)
    text = [str(v) for v in values]
    whole = all(v.removeprefix("-").isdecimal() and str(int(v)) == v for v in text)  # as csv would read them
    if whole and all(abs(int(v)) <= LARGEST for v in text):
        return np.array([int(v) for v in text], dtype=np.int64)
    return np.array(text, dtype=str)


def _as_list(names: str | Sequence[str] | None) -> list[str] | None:
    return [names] if isinstance(names, str) else None if names is None else [str(c) for c in names]


def _unknown(name: str, names: Sequence[str], problem: str, what: str) -> str:
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    alone = "" if len(names) != 1 else ". If these are several columns, say what separates them: --delimiter"
    return f"{problem} {name!r} ({what}){hint} It has {_listing(names)}{alone}"


def _listing(names: Sequence[Any]) -> str:
    shown = ", ".join(map(str, names[:SHOWN]))
    return shown + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
