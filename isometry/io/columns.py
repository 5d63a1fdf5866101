"""Columns of a table as numbers and labels, and errors that name the columns that are neither."""

from __future__ import annotations

import importlib
import shlex
from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

MAX_NAMES = 8  # listed in an error message
DATE = r"\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([ T].*)?\s*"
COMMA_NUMBER = r"\s*[+-]?\d*(,\d+)?([eE][+-]?\d+)?\s*"
MAX_INT64 = 2**63 - 1
MAX_EXACT_FLOAT = 2**53  # up to here float64 holds every whole number
BY_PANDAS = ", as pandas does by frame.dropna(subset=[{target!r}])"
BY_OPTION = " with --unlabelled drop (in Python unlabelled='drop')"
OTHER_LABELS = "Write the labels as text, such as c17, or choose another column"


class TableError(ValueError):
    """A table that cannot be used as it is; the message says why and what to do.

    Examples
    --------
    >>> import pandas as pd
    >>> from isometry.io import TableError, read_table
    >>> try:
    ...     read_table(pd.DataFrame({"x": [1.0, 2.0], "kind": ["a", "b"]}), "species")
    ... except TableError:
    ...     print("no such column")
    no such column
    """


class MissingLabels(TableError):
    """Rows without a label; ``way_out`` says how to leave them out."""

    def __init__(self, target: str, missing: np.ndarray, way_out: str):
        self.target, self.missing = target, missing
        super().__init__(self.told(way_out))

    def gaps(self, what: str) -> str:
        """How many there are, and where they begin; ``what`` is missing."""
        first = int(self.missing.argmax())
        return f"{plural(int(self.missing.sum()), f'missing {what}')}, the first in row {first}, counted from 0"

    def told(self, way_out: str) -> str:
        """The message."""
        fill, rows = ("it", "this row") if self.missing.sum() == 1 else ("them", "these rows")
        way_out = way_out.format(target=self.target)
        return f"the target column {self.target} has {self.gaps('label')}: fill {fill}, or leave out {rows}{way_out}"


def import_optional(module: str) -> Any:
    """A library that tables need, or an error that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f'tables need {module}: pip install "isometry[cli]"', name=module) from error


def refuse_repeats(name: str, columns: list[str]) -> None:
    """An error if a name comes twice, be it with other blanks around it."""
    twice = sorted(c for c, count in Counter(c.strip() for c in columns).items() if count > 1)
    if twice:
        raise TableError(f"{name} has several columns called {listing(twice)}: rename them")


def expand_vectors(frame: pd.DataFrame) -> pd.DataFrame:
    """Columns whose cells are vectors as several columns: ``v`` becomes ``v[0]``, ``v[1]`` and so on."""
    objects = [c for c, kind in zip(frame.columns, frame.dtypes, strict=True) if kind == np.dtype(object)]
    vectors = [c for c in objects if isinstance(frame[c].iloc[0], (list, np.ndarray))]
    if not vectors:
        return frame
    parts = []
    for c in frame.columns:
        if c not in vectors:
            parts.append(frame[[c]])
            continue
        lengths = {len(v) if isinstance(v, (list, np.ndarray)) else -1 for v in frame[c]}
        if len(lengths) != 1:
            raise TableError(f"column {c} holds vectors of different lengths ({listing(sorted(lengths))})")
        V = np.stack([np.asarray(v) for v in frame[c]])
        names = [f"{c}[{k}]" for k in range(V.shape[1])]
        parts.append(import_optional("pandas").DataFrame(V, columns=names, index=frame.index))
    return import_optional("pandas").concat(parts, axis=1)


def as_numbers(
    frame: pd.DataFrame, name: str, dtype: np.dtype, *, finite: bool = True, row_numbers: np.ndarray | None = None
) -> np.ndarray:
    """The columns as one array (n, d) of numbers, which must be finite unless that is asked of the rows later.

    ``row_numbers`` (n,) are those in the table, where others were left out.
    """
    _refuse_other_kinds(frame, name)
    X = np.empty(frame.shape, dtype=dtype)
    for narrow, columns in _by_width(frame).items():
        block = frame if len(columns) == frame.shape[1] else frame.iloc[:, columns]
        values = block.to_numpy(dtype=narrow or np.float64, na_value=np.nan)
        with np.errstate(over="ignore"):  # told below
            X[:, columns] = values if narrow in (None, dtype.name) else _widen(values)
        if X.dtype != values.dtype:
            _refuse_loss(values, X[:, columns], [frame.columns[c] for c in columns], name)
    bad = ~np.isfinite(X).all(axis=0)  # (d,)
    if finite and bad.any():
        names = list(frame.columns[bad])
        gaps = np.sum(~np.isfinite(X[:, bad]), axis=0)
        counts = [f"{c} ({m} of {len(X)} rows)" for c, m in zip(names, gaps, strict=True)]
        rows = np.flatnonzero(~np.isfinite(X[:, bad]).all(axis=1))
        rows = rows if row_numbers is None else row_numbers[rows]
        raise TableError(
            f"{name} has missing or infinite values in {len(counts)} columns: {listing(counts)}; and in {len(rows)} "
            f"rows, counted from 0: {listing(rows)}. Leave these columns out with {how_to_drop(names)}, leave out the "
            "rows, or fill the gaps, as scikit-learn's SimpleImputer does in a pipeline: `isometry compare` and "
            "`isometry fit` do it inside each fold if given --impute (read_table(…, prepare=['impute']) lets gaps pass)"
        )
    return X


def _refuse_loss(wide: np.ndarray, narrow: np.ndarray, columns: list[str], name: str) -> None:
    """An error if columns (n, d) vary, but not as numbers of 32 bits any more, or are too large for these."""
    if narrow.dtype.itemsize >= wide.dtype.itemsize:
        return
    varies = np.nanmin(wide, axis=0, initial=np.inf) < np.nanmax(wide, axis=0, initial=-np.inf)
    constant = np.nanmin(narrow, axis=0, initial=np.inf) >= np.nanmax(narrow, axis=0, initial=-np.inf)
    lost = (varies & constant) | (np.isinf(narrow) & np.isfinite(wide)).any(axis=0)
    if lost.any():
        names = [c for c, gone in zip(columns, lost, strict=True) if gone]
        raise TableError(
            f"{name} has columns whose numbers are too large, too small or too far from 0 for 32 bits, in which all of "
            f"a column would be one number: {listing(names)}. Subtract their mean or divide them by their size first"
        )


def _refuse_other_kinds(frame: pd.DataFrame, name: str) -> None:
    """An error if there are columns of text, dates, categories or complex numbers; it says which and what to do."""
    types = import_optional("pandas").api.types
    numeric = {k: types.is_numeric_dtype(k) and not types.is_complex_dtype(k) for k in set(frame.dtypes)}
    others = [c for c, kind in zip(frame.columns, frame.dtypes, strict=True) if not numeric[kind]]
    if not others:
        return
    shown = [f"{c} ({_kind(frame[c])})" for c in others[:MAX_NAMES]] + others[MAX_NAMES:]
    hint = ""
    if with_decimal_commas(frame[others[:MAX_NAMES]], None):
        hint = ". If 1,5 means one and a half, give the decimal sign: --decimal , (in Python decimal=',')"
    raise TableError(
        f"{name} has {len(others)} feature columns that are not numbers: {listing(shown)}. Leave them out with "
        f"{how_to_drop(others)}, or encode them as numbers, as scikit-learn's OneHotEncoder does in a pipeline: "
        "`isometry compare` and `isometry fit` do it inside each fold if given --one-hot (read_table(…, "
        f"prepare=['one_hot']) lets text pass){hint}"
    )


def refuse_text_for_numbers(frame: pd.DataFrame, categories: Collection[str], name: str) -> None:
    """An error if columns that a fitted metric takes for numbers hold something else."""
    is_numeric = import_optional("pandas").api.types.is_numeric_dtype
    wrong = [c for c in frame.columns if c not in categories and not is_numeric(frame[c])]
    if wrong:
        shown = [f"{c} ({_kind(frame[c])})" for c in wrong[:MAX_NAMES]] + wrong[MAX_NAMES:]
        hint = ", or give the decimal sign of all: --decimal , (in Python decimal=',')"
        raise TableError(
            f"{name} has {_count(wrong)} of other cells where the metric takes numbers: {listing(shown)}. Write them "
            f"as plain numbers, such as 1234.5{hint if with_decimal_commas(frame[wrong], None) else ''}"
        )


def _kind(column: pd.Series) -> str:
    """What a column holds, with an example, for a message."""
    pandas = import_optional("pandas")
    if pandas.api.types.is_datetime64_any_dtype(column):
        return "dates"
    if pandas.api.types.is_complex_dtype(column):
        return "complex numbers"
    cells = column.dropna()
    words = cells[pandas.to_numeric(cells.astype(str), errors="coerce").isna()].astype(str)
    if isinstance(column.dtype, pandas.CategoricalDtype):
        kind = "categories"
    else:
        kind = "dates" if len(words) and words.str.fullmatch(DATE).all() else "text"
    return f"{kind}, such as {words.iloc[0]!r}" if len(words) else kind


def refuse_decimal_commas(frame: pd.DataFrame, name: str) -> None:
    """An error if numbers such as 1,5 would be taken for categories or for names of rows."""
    commas = decimal_comma_columns(frame, None)
    if not commas:
        return
    found = f"{name} has {_count(commas)} of text that {'looks' if len(commas) == 1 else 'look'} like numbers with"
    found += f" a decimal comma: {listing(commas)}"
    is_float = import_optional("pandas").api.types.is_float_dtype
    points = [c for c in frame.columns if is_float(frame[c]) and (frame[c].dropna() % 1 != 0).any()]
    if points:
        raise TableError(
            f"{found}. Other columns have a decimal point ({listing(points)}), and a table has one sign. Write all "
            f"with a point, as pandas does by frame[{commas[0]!r}].str.replace(',', '.').astype(float); or leave "
            f"it out with {how_to_drop(commas)}"
        )
    raise TableError(
        f"{found}. If 1,5 means one and a half, give the decimal sign: --decimal , (in Python decimal=','); if they "
        "are text, --decimal . (in Python decimal='.')"
    )


def plural(n: int, what: str) -> str:
    """``1 row``, ``2 rows``."""
    return f"{n} {what}{'' if n == 1 else 's'}"


def _count(columns: list[str]) -> str:
    return "a column" if len(columns) == 1 else f"{len(columns)} columns"


def with_decimal_commas(frame: pd.DataFrame, target: str | None) -> bool:
    """Whether a column of text holds numbers such as 1,5 and nothing else."""
    return bool(decimal_comma_columns(frame, target))


def decimal_comma_columns(frame: pd.DataFrame, target: str | None) -> list[str]:
    """The columns of text that hold numbers such as 1,5 and nothing else."""
    is_numeric = import_optional("pandas").api.types.is_numeric_dtype
    numeric = {kind: is_numeric(kind) for kind in set(frame.dtypes)}
    found = []
    for c, kind in zip(frame.columns, frame.dtypes, strict=True):
        if c == target or numeric[kind]:
            continue
        cells = frame[c].dropna().astype(str)
        if cells.str.fullmatch(COMMA_NUMBER).all() and cells.str.contains(",").any():
            found.append(c)
    return found


def how_to_drop(columns: Sequence[str]) -> str:
    """How to leave out these columns, on the command line and in Python."""
    some = list(columns[:MAX_NAMES])
    rest = " …" if len(columns) > MAX_NAMES else ""
    quoted = ",".join(f'"{c}"' if "," in c else c for c in some)
    return f"--drop {shlex.quote(quoted)}{rest} (in Python drop={some}{rest})"


def listing(names: Sequence[Any] | np.ndarray) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(map(str, names[:MAX_NAMES]))
    return shown + (f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else "")


def _by_width(frame: pd.DataFrame) -> dict[Any, list[int]]:
    """Column numbers by the narrow float type they have; None for all other types."""
    groups: dict[Any, list[int]] = {}
    for k, kind in enumerate(frame.dtypes):
        name = str(kind).lower()
        groups.setdefault(name if name in ("float32", "float16") else None, []).append(k)
    return groups


def _widen(X: np.ndarray) -> np.ndarray:
    """Narrow floats as the float64 of their shortest decimal, the number that a csv file of them holds."""
    pa = import_optional("pyarrow")
    text = pa.array(X.astype("U").ravel()) if X.dtype == np.float16 else pa.array(X.ravel()).cast(pa.string())
    return np.asarray(text.cast(pa.float64())).reshape(X.shape)


def labelled_rows(column: pd.Series) -> np.ndarray:
    """Numbers of the rows that have a label."""
    rows = np.flatnonzero(column.notna().to_numpy())
    if len(rows) == 0:
        raise TableError(f"no row has a label in the target column {column.name}")
    return rows


def told_left_out(left_out: int, n: int, target: str, what: str = "rows") -> str:
    """How many rows were left out for want of a label."""
    return f"{left_out} of {n} {what} {'has' if left_out == 1 else 'have'} no label in {target}: left out"


def label_array(
    y: Any, target: str, kind: str = "classes", *, rows: np.ndarray | None = None, way_out: str = BY_PANDAS
) -> np.ndarray:
    """Labels as int64, bool or text; numbers to predict as float64.

    ``kind``: "classes", "numbers", or "auto", which takes fractions for numbers and all else for classes. ``rows``: the
    numbers of these rows in the table, where others were left out. ``way_out``: what to do about gaps.
    """
    pandas = import_optional("pandas")
    types = pandas.api.types
    column = pandas.Series(np.asarray(y) if not hasattr(y, "isna") else y).reset_index(drop=True)
    missing = column.isna()
    if missing.any():
        raise MissingLabels(target, np.asarray(missing), way_out)
    if kind == "numbers" and not types.is_numeric_dtype(column):
        raise TableError(f"the target column {target} holds {column.iloc[0]!r}: numbers to predict must be numbers")
    if types.is_bool_dtype(column) and kind != "numbers":
        return np.asarray(column, dtype=bool)
    if not types.is_numeric_dtype(column) or isinstance(column.dtype, pandas.CategoricalDtype):
        return _text_or_numbers(column.to_numpy(dtype=object))
    values = np.asarray(column.to_numpy(dtype=np.float64) if types.is_float_dtype(column) else column.to_numpy())
    fractions = values.dtype.kind == "f" and not np.array_equal(values, np.rint(values))
    if kind == "numbers" or (kind == "auto" and fractions):
        return _finite(values.astype(np.float64), target, rows)
    if values.dtype.kind == "f":
        _refuse_unsafe_labels(values, target)
    if values.dtype.kind == "u" and values.max(initial=0) > MAX_INT64:
        return values.astype(str)
    return values.astype(np.int64)


def _finite(values: np.ndarray, target: str, rows: np.ndarray | None) -> np.ndarray:
    bad = ~np.isfinite(values)
    if bad.any():
        first = bad.argmax() if rows is None else rows[bad.argmax()]
        raise TableError(
            f"the target column {target} holds {plural(int(bad.sum()), 'infinite number')}, the first in row "
            f"{int(first)}, counted from 0: leave out these rows"
        )
    return values


def _refuse_unsafe_labels(values: np.ndarray, target: str) -> None:
    """An error if floats are no whole numbers, or so large that rounding may have made two classes one."""
    if not np.isfinite(values).all():
        raise TableError(f"the target column {target} holds infinite numbers: labels name classes. {OTHER_LABELS}")
    if np.abs(values).max(initial=0) >= MAX_EXACT_FLOAT:
        raise TableError(
            f"the target column {target} holds numbers as large as {np.abs(values).max():g}, of which floating "
            f"point cannot tell neighbours apart: classes may have become one. {OTHER_LABELS}"
        )
    if not np.array_equal(values, np.rint(values)):
        raise TableError(
            f"the target column {target} holds fractions ({len(np.unique(values))} distinct values, e.g. "
            f"{values[values != np.rint(values)][0]:g}): labels name classes. Bin it, take it for "
            "numbers to predict with --target-is numbers (in Python target_is='numbers'), or choose another column"
        )


def _text_or_numbers(values: np.ndarray) -> np.ndarray:
    if all(isinstance(v, (bool, np.bool_)) for v in values):
        return values.astype(bool)
    text = [str(v) for v in values]
    short = all(len(v) <= 20 and v.removeprefix("-").isdecimal() for v in text)
    if short and all(str(int(v)) == v and abs(int(v)) <= MAX_INT64 for v in text):  # as csv would read them
        return np.array([int(v) for v in text], dtype=np.int64)
    return np.array(text, dtype=str)
