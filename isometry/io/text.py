"""Tables of text as DataFrames: what separates the cells, names that come twice, gaps, decimal commas."""

from __future__ import annotations

import csv
import lzma
import warnings
import zlib
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from isometry.core.warn import warn_user
from isometry.io.columns import TableError, import_optional, refuse_repeats, with_decimal_commas

if TYPE_CHECKING:
    import pandas as pd

OTHER_SEPARATORS = (";", "\t", "|")
COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".xz": "lzma", ".zst": "zstandard"}  # text only; and what opens it
MISSING = frozenset({"", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "<NA>", "#N/A", "?"})
TEXT_ERRORS = (UnicodeDecodeError, OSError, EOFError, csv.Error, zlib.error, lzma.LZMAError)


def read_text(
    path: Path, separator: str, target: str | None, delimiter: str | None, decimal: str | None, *, as_text: bool = False
) -> pd.DataFrame:
    """The cells under the names of the header; `read_table` tells what the arguments mean.

    With ``as_text`` they are the texts that stand there, also those that look like numbers or gaps.
    """
    pandas = import_optional("pandas")
    options: dict[str, Any] = {"sep": _delimiter(delimiter or separator), "decimal": _decimal(decimal or ".")}
    if tuple(map(int, pandas.__version__.split(".")[:2])) < (3, 1):  # later versions always read the nearest number
        options["float_precision"] = "round_trip"
    with warnings.catch_warnings():
        warnings.simplefilter("error", pandas.errors.ParserWarning)  # cells would be lost
        try:
            names = _header(path, options["sep"])
            if delimiter is None and len(names) == 1:
                options["sep"] = next((s for s in OTHER_SEPARATORS if s in names[0]), options["sep"])
                names = _header(path, options["sep"])
            refuse_repeats(path.name, [c for c in names if c])
            if as_text:
                return _read_texts(path, options["sep"])
            frame = _read_cells(path, target, options)
            if decimal is None and options["sep"] != "," and with_decimal_commas(frame, target):
                options["decimal"] = ","
                frame = _read_cells(path, target, options)
        except pandas.errors.ParserWarning as error:
            raise TableError(
                f"{path}: rows have more cells than the header has names ({len(names)}), so that it is not known which "
                "name belongs to which cell. Give every column a name, also one of row numbers, or say what separates "
                "the cells: --delimiter ';' (in Python delimiter=';')"
            ) from error
        except TEXT_ERRORS + (pandas.errors.EmptyDataError, pandas.errors.ParserError) as error:
            raise TableError(f"{path} cannot be read as a text table: {error}") from error
    if options["decimal"] == "," and decimal is None:
        warn_user(
            "numbers are read with a decimal comma, 1,5 as one and a half; otherwise say --decimal . (in Python "
            "decimal='.')"
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
    suffix = path.suffix.lower()
    open_file = import_optional(COMPRESSED[suffix]).open if suffix in COMPRESSED else open
    file: IO[str] = open_file(path, mode="rt", encoding="utf-8-sig", newline="")
    return file


def _read_texts(path: Path, separator: str) -> pd.DataFrame:
    options: dict[str, Any] = {"sep": separator, "dtype": str, "keep_default_na": False, "index_col": False}
    frame: pd.DataFrame = import_optional("pandas").read_csv(path, **options)
    return frame


def _read_cells(path: Path, target: str | None, options: dict[str, Any]) -> pd.DataFrame:
    options = {**options, "keep_default_na": False, "index_col": False}
    frame = import_optional("pandas").read_csv(path, na_values=sorted(MISSING), **options)
    numeric = import_optional("pandas").api.types.is_numeric_dtype
    if target in frame.columns and frame[target].isna().any() and not numeric(frame[target]):
        # "NA" and "None" are gaps among numbers but may well be names of classes
        frame[target] = import_optional("pandas").read_csv(path, na_values=[""], usecols=[target], **options)[target]
    return frame
