"""Tables of numbers and labels, from and to csv, tsv, parquet, npy and npz.

**One table, one array, whatever the format.** A csv file knows no number types: the 32-bit number printed as 0.1 comes
back as the 64-bit number 0.1, which is not the 32-bit one. So a number means the decimal it prints as, in every format:
with ``dtype=float64`` 32-bit columns are widened through their shortest decimal, and csv is parsed to the nearest
number. With ``dtype=float32`` every format is rounded once, to what the 32-bit original was. Labels become int64 where
they are whole numbers, bool or text otherwise.
"""

from __future__ import annotations

import difflib
import lzma
import os
import re
import zipfile
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
from sklearn.utils.validation import check_is_fitted

from isometry.core.warn import warn_user
from isometry.io.atomic import atomic_write
from isometry.io.columns import (
    BY_OPTION,
    TableError,
    as_numbers,
    expand_vectors,
    how_to_drop,
    import_optional,
    label_array,
    labelled_rows,
    listing,
    refuse_decimal_commas,
    refuse_repeats,
    refuse_text_for_numbers,
    told_left_out,
)
from isometry.io.prepare import STEPS, category_columns, lets_pass, needs_cells, tidy, told_of_columns, warn_of_unseen
from isometry.io.text import COMPRESSED, read_text

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Table", "TableError", "read_columns", "read_table", "write_table"]

SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
PARQUET = (".parquet", ".pq")
NUMPY = (".npy", ".npz")
ARRAY_ERRORS = (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, NotImplementedError)
NAMES = "feature_names"
CLASSES = "classes"


@dataclass(frozen=True)
class Table:
    """Numbers, with a label for each row if there is one.

    Attributes
    ----------
    X : ndarray of shape (n, d) or DataFrame
        The features; a DataFrame where ``prepare`` left gaps or categories, or for a ``model`` that knows names.
    y : ndarray of shape (n,) or None
        The labels; float64 if they are numbers to predict.
    feature_names : list of str
        Names of the features.
    target_name : str or None
        Name of the column of labels.
    name : str
        Name of the data set: the file's name without its ending.
    notes : tuple of str
        What ``prepare`` made of columns of dates, which columns may name rows, and how many rows were left out.
    rows : ndarray of shape (n,) or None
        Numbers of the rows in the file, from 0, where those without a label were left out; None: it has these rows.

    Examples
    --------
    >>> import pandas as pd
    >>> from isometry.io import read_table
    >>> table = read_table(pd.DataFrame({"x": [1.0, 2.0], "kind": ["a", "b"]}), "kind")
    >>> table.X.shape, table.y.tolist(), table.feature_names
    ((2, 1), ['a', 'b'], ['x'])
    """

    X: Any  # (n, d) array; a DataFrame where `prepare` left gaps or categories, or for a model that knows names
    y: np.ndarray | None  # (n,) labels; float64 if they are numbers to predict
    feature_names: list[str]
    target_name: str | None
    name: str  # of the data set: the file's name without its ending
    notes: tuple[str, ...] = ()  # what became of columns of dates, and which may name rows
    rows: np.ndarray | None = None  # (n,) their numbers in the file, where some were left out


def read_table(
    path: str | os.PathLike[str] | pd.DataFrame,
    target: str | None = None,
    *,
    drop: str | Sequence[str] | None = None,
    features: str | Sequence[str] | None = None,
    key: str | None = None,
    dtype: Any = np.float64,
    delimiter: str | None = None,
    decimal: str | None = None,
    prepare: str | Collection[str] = (),
    categories: Collection[str] | None = None,
    target_is: str = "classes",
    model: Any = None,
    unlabelled: str = "refuse",
) -> Table:
    """Read a table and check that it can be learned from.

    Parameters
    ----------
    path : str, path-like or DataFrame
        A csv, tsv, parquet, npy or npz file (text may be compressed), or a DataFrame.
    target : str or None, default=None
        The column of labels. In an npz file the name of an array or of a feature; by default ``"y"``, if there is.
    drop : str, sequence of str or None, default=None
        Columns to leave out.
    features : str, sequence of str or None, default=None
        Columns to use, in this order; None: all but ``target``.
    key : str or None, default=None
        The array of features in an npz file; None: ``"X"``, or the only two-dimensional one.
    dtype : type, default=np.float64
        Type of X, float64 or float32.
    delimiter : str or None, default=None
        Sign between the cells of a text table; None: what the file's ending says, or semicolon, tab or bar if the
        header has one of these and nothing else.
    decimal : str or None, default=None
        Sign before the fraction of numbers in a text table; None: a point, or a comma where semicolons separate cells
        and all text in a column looks like 1,5.
    prepare : {"auto", "none"} or collection of str, default=()
        What to do with columns that are not numbers without gaps, see `isometry.io.prepare.STEPS`: "impute" and
        "one_hot" let gaps and text pass, "dates" turns dates into days, "ids" leaves out what names rows. "auto": all
        of it, as the command line does; "none", the default: nothing, such columns are errors.
    categories : collection of str or None, default=None
        With ``prepare``, the columns that are categories, if that is known already.
    target_is : {"classes", "numbers", "auto"}, default="classes"
        "classes": labels are names, and fractions an error; "numbers": what a regression predicts, as float64; "auto":
        fractions are numbers, and all else classes.
    model : estimator or None, default=None
        A fitted metric or verifier, such as `isometry.load` gives: the table is read as the one it was fitted on, with
        its columns by their names and dates, gaps and categories as it takes them, and has as many of them.
        ``features``, ``prepare``, ``categories`` and ``target_is`` then follow from it.
    unlabelled : {"refuse", "drop"}, default="refuse"
        Rows without a label: an error, or left out; ``notes`` say how many, and ``rows`` which are there.

    Returns
    -------
    Table
        Features, labels and names.

    Raises
    ------
    TableError
        If the table cannot be used as it is; the message says why and what to do.

    Notes
    -----
    An npz file may hold ``feature_names`` and ``classes``; whole-number labels then index ``classes``. A column whose
    cells are vectors of one length (embeddings in parquet) becomes as many columns.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import pandas as pd
    >>> from isometry.io import read_table
    >>> flowers = pd.DataFrame({"length": [1.5, 3.0], "width": [2.0, 4.5], "kind": ["rose", "tulip"]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "flowers.csv"
    ...     flowers.to_csv(path, index=False)
    ...     table = read_table(path, "kind")
    >>> table.X.shape, table.y.tolist(), table.name
    ((2, 2), ['rose', 'tulip'], 'flowers')
    """
    if model is not None:
        if not hasattr(model, "fit"):
            kind = type(model).__name__
            raise TypeError(
                f"model must be a fitted metric or verifier, got {kind}: isometry.load reads one from a file"
            )
        check_is_fitted(model)
        features = list(model.feature_names_in_) if hasattr(model, "feature_names_in_") else features
        # dates are numbers already when a metric sees them, so that only the table can tell that they were dates
        prepare = STEPS if needs_cells(model) else ("dates",)
        categories, target_is = category_columns(model), "auto"
    elif isinstance(prepare, str):
        prepare = {"auto": STEPS, "none": ()}.get(prepare, (prepare,))
    if target_is not in ("classes", "numbers", "auto"):
        raise ValueError(f"target_is={target_is!r} must be 'classes', 'numbers' or 'auto'")
    if unlabelled not in ("refuse", "drop"):
        raise ValueError(f"unlabelled={unlabelled!r} must be 'refuse' or 'drop'")
    if np.dtype(dtype) not in (np.float64, np.float32):
        raise TypeError(f"dtype={dtype!r} must be float64 or float32")
    if hasattr(path, "columns"):
        name, frame = "table", path
    else:
        path = Path(path)
        name, suffix = table_format(path)
        if suffix in NUMPY:
            check_file(path)
            frame, target = _read_numpy(path, target, key)
        else:
            frame = read_cells(path, target, delimiter=delimiter, decimal=decimal)
    table = _make_table(frame, name, target, _as_list(drop) or [], _as_list(features), target_is, unlabelled == "drop")
    if prepare:
        if decimal is None and categories is None:
            refuse_decimal_commas(table.X, name)
        cells = tidy(table.X, prepare, categories)
        if cells.shape[1] == 0:
            raise TableError(f"{name} has no feature column left: all of {listing(table.feature_names)} were left out")
        if "dates" in prepare:
            table = replace(table, notes=(*table.notes, *told_of_columns(table.X, cells, prepare, categories)))
        cells = cells if table.rows is None else cells.iloc[table.rows]
        coded = "one_hot" in prepare and categories is None  # then text is no fault, and it is gaps that are
        as_it_is = lets_pass(cells, prepare, categories)
        table = replace(table, X=cells if as_it_is or not coded else cells.select_dtypes(["number", "bool"]))
    else:
        as_it_is = False
        table = table if table.rows is None else replace(table, X=table.X.iloc[table.rows])
    wanted, names = getattr(model, "n_features_in_", None), list(table.X.columns)
    if wanted not in (None, len(names)):
        raise TableError(
            f"the {type(model).__name__} was fitted on {wanted} features, and {name} has {len(names)}: leave others "
            "out with --drop (in Python drop=[…])"
        )
    if as_it_is and model is not None:
        warn_of_unseen(table.X, model)
    elif hasattr(model, "feature_names_in_"):
        refuse_text_for_numbers(table.X, categories or (), name)
    X: Any = table.X if as_it_is else as_numbers(table.X, name, np.dtype(dtype), row_numbers=table.rows)
    if hasattr(model, "feature_names_in_"):  # a metric that knows names of columns warns of rows without them
        X = import_optional("pandas").DataFrame(X, columns=names)
    return replace(table, X=X, feature_names=names)


def read_cells(
    path: str | os.PathLike[str], target: str | None = None, *, delimiter: str | None = None, decimal: str | None = None
) -> pd.DataFrame:
    """The cells of a text or parquet file as they are, numbers or not."""
    path = Path(path)
    suffix = table_format(path)[1]
    check_file(path)
    if suffix in NUMPY:
        raise TableError(f"{path} holds arrays, and no columns with names: give a csv, tsv or parquet file")
    if suffix in PARQUET:
        return _read_parquet(path)
    return read_text(path, SEPARATORS[suffix], target, delimiter, decimal)


def read_columns(
    path: str | os.PathLike[str], names: Sequence[str], *, delimiter: str | None = None
) -> dict[str, list[str]]:
    """Columns of a csv, tsv or parquet file as the texts that stand there; an empty cell is an empty text."""
    path = Path(path)
    _, suffix = table_format(path)
    check_file(path)
    if suffix in PARQUET:
        frame = _read_parquet(path).rename(columns=str)
        refuse_repeats(path.name, list(frame.columns))
    elif suffix in SEPARATORS:
        frame = read_text(path, SEPARATORS[suffix], None, delimiter, None, as_text=True)
    else:
        raise TableError(f"{path}: texts are read from csv, tsv and parquet files")
    for name in names:
        if name not in frame.columns:
            raise TableError(unknown_name(name, list(frame.columns), f"{path} has no column", "text"))
    return {name: ["" if v is None or v != v else str(v) for v in frame[name]] for name in names}


def write_table(
    path: str | os.PathLike[str] | TextIO,
    Z: np.ndarray,
    columns: Sequence[str] | None = None,
    *,
    y: Any = None,
    target: str = "y",
) -> Path | None:
    """Write rows, with labels if given, in the format that the ending of the path names.

    Text formats get enough digits to read back the same numbers. An older file is replaced only by a complete one.

    Parameters
    ----------
    path : str, path-like or text file
        The file to write; an open text file, such as ``sys.stdout``, gets csv.
    Z : ndarray of shape (n, p)
        The rows.
    columns : sequence of str or None, default=None
        Names of the columns; None: z0, z1, ….
    y : array-like of shape (n,) or None, default=None
        Labels of the rows.
    target : str, default="y"
        Name of the column of labels.

    Returns
    -------
    Path or None
        Where it is; None for an open file.

    Examples
    --------
    >>> import sys
    >>> import numpy as np
    >>> from isometry.io import write_table
    >>> write_table(sys.stdout, np.array([[1.0, 2.5], [3.0, 4.0]]), y=["a", "b"])
    z0,z1,y
    1.0,2.5,a
    3.0,4.0,b
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
    with atomic_write(path) as temporary:
        if suffix == ".npy":
            np.save(temporary, Z)
        elif suffix == ".npz":
            arrays: dict[str, Any] = {"X": Z, NAMES: np.array(columns, dtype=str)}
            np.savez(temporary, **arrays if y is None else {**arrays, "y": label_array(y, target, "auto")})
        else:
            _write_frame(temporary, suffix, Z, columns, y, target)
    return Path(path)


def _write_frame(path: Path | TextIO, suffix: str, Z: np.ndarray, columns: list[str], y: Any, target: str) -> None:
    frame = import_optional("pandas").DataFrame(Z, columns=columns)
    if y is not None:
        frame[target] = label_array(y, target, "auto")
    if suffix in PARQUET:
        import_optional("pyarrow")
        frame.to_parquet(path, index=False)
    else:
        frame.to_csv(path, sep=SEPARATORS[suffix], index=False)


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


def check_file(path: Path) -> None:
    if not path.exists():
        near = difflib.get_close_matches(path.name, os.listdir(path.parent) if path.parent.is_dir() else [], n=1)
        hint = f"; did you mean {path.parent / near[0]}?" if near else ""
        raise FileNotFoundError(f"there is no file {path}{hint}")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file in it")
    if not path.is_file():
        raise TableError(f"{path} is a pipe or device, not a file: write what comes from it to a file first")
    if path.stat().st_size == 0:
        raise TableError(f"{path} is empty")


def _read_parquet(path: Path) -> pd.DataFrame:
    pa = import_optional("pyarrow")
    try:
        refuse_repeats(path.name, import_optional("pyarrow.parquet").read_schema(path).names)
        return import_optional("pandas").read_parquet(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise TableError(f"{path} cannot be read as parquet: {error}") from error


def _read_numpy(path: Path, target: str | None, key: str | None) -> tuple[pd.DataFrame, str | None]:
    """The arrays of a file as one DataFrame, and the name of its column of labels."""
    arrays = read_arrays(path)
    X = feature_array(path, arrays, key)
    frame = import_optional("pandas").DataFrame(X, columns=column_names(path, X, arrays.get(NAMES)))
    if target is None:
        target = "y" if "y" in arrays else None
    if target is not None:
        refuse_two_meanings(path, target, arrays, frame.columns)
    if target is not None and target not in frame.columns:
        if target not in arrays:
            raise TableError(unknown_name(target, [*arrays, *frame.columns], f"{path} has no labels", "target"))
        y = arrays[target].ravel() if arrays[target].ndim == 2 and 1 in arrays[target].shape else arrays[target]
        if y.shape != (len(X),):
            raise TableError(f"{path}: X has {len(X)} rows but {target} has shape {y.shape}")
        frame[target] = named_classes(path, y, arrays.get(CLASSES))
    return frame, target


def read_arrays(path: Path, *, mapped: bool = False) -> dict[str, np.ndarray]:
    """The arrays of an npz file by name, or that of an npy file as ``X``, which may stay in the file, ``mapped``."""
    check_file(path)
    try:
        loaded = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except ARRAY_ERRORS as error:
        raise TableError(_why_unreadable(str(path), error)) from error
    if isinstance(loaded, np.ndarray):
        return {"X": loaded}
    with loaded:
        return {name: _read_member(path, loaded, name) for name in loaded.files}


def feature_array(path: Path, arrays: dict[str, np.ndarray], key: str | None) -> np.ndarray:
    """The array of features: that of this ``key``, ``X``, or the only one with rows and columns."""
    X = arrays[_feature_key(path, arrays, key)]
    if X.ndim != 2:
        raise TableError(f"{path}: the features must be an array of rows and columns; its shape is {X.shape}")
    return X


def _read_member(path: Path, arrays: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(arrays[name])
    except ARRAY_ERRORS as error:
        raise TableError(_why_unreadable(f"{path}: the array {name!r}", error)) from error


def _why_unreadable(what: str, error: Exception) -> str:
    if "Object arrays" in str(error):
        return (
            f"{what} holds Python objects, which are never read because that can run code; save text as "
            "np.array(names, dtype=str) and numbers as a float array"
        )
    if "pickle" in str(error):  # numpy's words would tell to trust a file that it does not know
        return f"{what} cannot be read as an array: numpy has not written it, or it is damaged. Write the file again"
    reason = str(error) or type(error).__name__
    return f"{what} cannot be read as an array, it may be damaged ({reason}). Write the file again"


def _feature_key(path: Path, arrays: dict[str, np.ndarray], key: str | None) -> str:
    matrices = [k for k, a in arrays.items() if a.ndim == 2]
    if key is None:
        key = "X" if "X" in arrays or len(matrices) != 1 else matrices[0]
    if key not in arrays:
        raise TableError(unknown_name(key, list(arrays), f"{path} has no array", "key"))
    return key


def column_names(path: Path, X: np.ndarray, names: np.ndarray | None) -> list[str]:
    """Names of the columns of an array: x0, x1, … if the file has none."""
    columns = [f"x{k}" for k in range(X.shape[1])] if names is None else [str(v) for v in names]
    if len(columns) != X.shape[1]:
        raise TableError(f"{path}: X has {X.shape[1]} columns but there are {len(columns)} feature names")
    return columns


def refuse_two_meanings(path: Path, name: str, arrays: Collection[str], columns: Collection[str]) -> None:
    """Refuse a name that means an array and a feature: it is not known which of the two are the labels."""
    if name in arrays and name in columns:
        raise TableError(
            f"{path}: {name!r} is the name of an array, which would be the labels, and of a feature in "
            f"`{NAMES}`: rename one of them"
        )


def named_classes(path: Path, y: np.ndarray, classes: np.ndarray | None) -> np.ndarray:
    if classes is None or y.dtype.kind not in "iu":
        return y
    if y.min(initial=0) < 0 or y.max(initial=0) >= len(classes):
        raise TableError(
            f"{path}: labels run from {y.min()} to {y.max()} but there are {len(classes)} names in `classes`"
        )
    return np.asarray(classes[y])


def _make_table(
    frame: pd.DataFrame,
    name: str,
    target: str | None,
    drop: list[str],
    features: list[str] | None,
    target_is: str,
    drop_unlabelled: bool,
) -> Table:
    """The chosen columns as they are, of all rows, and the labels; of those ``rows`` that have one, if so asked."""
    frame = frame.rename(columns=str)
    columns = list(frame.columns)
    refuse_repeats(name, columns)
    known, dropped = set(columns), set(drop)
    if len(frame) == 0:
        raise TableError(f"{name} has columns {listing(columns)} but no rows")
    for wanted, what in (([] if target is None else [target], "target"), (drop, "drop"), (features or [], "features")):
        for c in wanted:
            if c not in known:
                raise TableError(unknown_name(c, columns, f"{name} has no column", what))
    y: np.ndarray | None = None
    rows: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    if target is not None:
        labels = frame[target]
        if drop_unlabelled and labels.isna().any():
            rows = labelled_rows(labels)
            labels, notes = labels.iloc[rows], (told_left_out(len(frame) - len(rows), len(frame), target),)
        y = label_array(labels, target, target_is, rows=rows, way_out=BY_OPTION)
    elif drop_unlabelled:
        raise TableError("rows without a label are left out by the column of labels: name it with --target (target=…)")
    rest = [c for c in features or columns if c != target and c not in dropped]
    chosen = rest if features else without_index(frame, rest)
    if not chosen:
        raise TableError(f"{name} has no feature column left: the columns are {listing(columns)}")
    numbers = expand_vectors(frame[chosen])
    refuse_repeats(name, list(numbers.columns))  # a column may be called as the place of a vector
    return Table(numbers, y, list(numbers.columns), target, name, notes, rows)


def without_index(frame: pd.DataFrame, columns: list[str]) -> list[str]:
    """The columns without the row numbers that DataFrame.to_csv writes: in sorted data they give the class away."""
    unnamed = [c for c in columns if re.fullmatch(r"Unnamed: \d+(\.\d+)?", c)]
    if unnamed and unnamed[0] == frame.columns[0] and _counts_rows(frame[unnamed[0]]):
        warn_user("the first column has no name and counts the rows: it is left out")
        columns, unnamed = columns[1:], unnamed[1:]
    if unnamed:
        warn_user(
            f"{len(unnamed)} columns have no name in the file and are used as features: {listing(unnamed)}. If they "
            f"number the rows, they may give the labels away: leave them out with {how_to_drop(unnamed)}"
        )
    return columns


def _counts_rows(column: pd.Series) -> bool:
    return len(column) > 0 and any(np.array_equal(column, np.arange(k, k + len(column))) for k in (0, 1))


def _as_list(names: str | Sequence[str] | None) -> list[str] | None:
    return [names] if isinstance(names, str) else None if names is None else [str(c) for c in names]


def unknown_name(name: str, names: Sequence[str], problem: str, what: str) -> str:
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    alone = (
        ""
        if len(names) != 1
        else ". If these are several columns, say what separates them: --delimiter ';' (in Python delimiter=';')"
    )
    return f"{problem} {name!r} ({what}){hint} It has {listing(names)}{alone}"
