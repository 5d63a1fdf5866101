"""What commands print: tables, notes, errors."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table as RichTable

    from isometry.eval import Interval

EXTRAS = {
    "torch": "deep",
    "accelerate": "deep",
    "onnx": "export",
    "onnxscript": "export",
    "faiss": "index",
    "dask": "dask",
}
EXTRAS |= {"PIL": "vision", "timm": "vision", "torchvision": "vision", "transformers": "text", "tensorboard": "logs"}
CONTROL_CATEGORIES = {"Cc", "Cs", "Zl", "Zp"}  # of Unicode: control, surrogate, separators of lines and paragraphs
BIDIRECTIONAL_MARKS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
PIPE_WIDTH = 10_000  # columns: output to a file or another program is never wrapped


def process_number() -> int:
    """Which of the processes that ``torchrun`` has started this is; 0 for a single one. Only the first one prints."""
    return int(os.environ.get("RANK", "0")) if int(os.environ.get("WORLD_SIZE", "1")) > 1 else 0


def printer(silent: bool = False) -> Console:
    """Prints to stdout: in colour and wrapped to the width of a terminal, else plain and not wrapped; or nothing."""
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return Console(width=width, highlight=False, soft_wrap=False, emoji=False, quiet=silent or process_number() > 0)


def shows_progress(quiet: bool, as_json: bool) -> bool:
    """Bars are drawn over and over in one line, which only a terminal can show."""
    return sys.stderr.isatty() and not (quiet or as_json)


def print_json(value: Any) -> None:
    """One JSON text on stdout; what is no number becomes null, and characters outside ASCII are escaped."""
    print(json.dumps(as_json_values(value), indent=2, allow_nan=False))


def as_json_values(value: Any) -> Any:
    """What JSON can hold: intervals and arrays as tables and lists, null for what is no number, text for the rest."""
    if isinstance(value, dict):
        return {str(k): as_json_values(v) for k, v in value.items()}
    if hasattr(value, "_asdict"):
        return as_json_values(value._asdict())
    if hasattr(value, "tolist"):
        return as_json_values(value.tolist())
    if isinstance(value, (list, tuple)):
        return [as_json_values(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def print_to_stderr(text: str) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True, emoji=False).print(escape_control(text), markup=False)


def escape_control(text: str) -> str:
    """Text in which characters that would control the terminal, or cannot be shown, appear as escapes: ``\\x1b``.

    These are control characters, marks that change the direction of writing, and halves of surrogate pairs.
    """
    return "".join(c.encode("unicode_escape").decode("ascii") if _is_control(c) else c for c in text)


def _is_control(c: str) -> bool:
    if c in "\n\t":
        return False
    return unicodedata.category(c) in CONTROL_CATEGORIES or unicodedata.bidirectional(c) in BIDIRECTIONAL_MARKS


class UsageError(Exception):
    """The command cannot be carried out as it was given."""


@contextlib.contextmanager
def usage_errors(*kinds: type[Exception]) -> Iterator[None]:
    """Errors of these kinds inside the block become usage errors."""
    try:
        yield
    except kinds as error:
        raise UsageError(explain(error)) from error


@contextlib.contextmanager
def collect_errors(problems: list[Exception]) -> Iterator[None]:
    """Keep an error for later, so that the rest of the command still runs."""
    try:
        yield
    except Exception as error:
        problems.append(error)


def raise_first(problems: list[Exception]) -> None:
    """Raise the first of the errors that were kept, if there are any, and say the others."""
    for problem in problems[1:]:
        print_to_stderr(f"error: {explain(problem)}")
    if problems:
        raise problems[0]


@contextlib.contextmanager
def resumable() -> Iterator[None]:
    """A block that may be stopped, and says then how to go on."""
    try:
        yield
    except KeyboardInterrupt as stop:
        done = str(stop).partition(";")[0] or "stopped"
        raise KeyboardInterrupt(f"{done}; nothing is lost: run the same command again to go on") from None
    except SystemExit:
        if not process_number():
            print_to_stderr("terminated; nothing is lost: run the same command again to go on")
        raise


def explain(error: BaseException) -> str:
    if isinstance(error, ImportError) and error.name in EXTRAS:
        return f'{error.name} is not installed: pip install "isometry[{EXTRAS[error.name]}]"'
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return as_options(text) or type(error).__name__


def as_options(text: str) -> str:
    """Words on a setting as the command line has it: ``protocol='open' (--protocol open)`` is ``--protocol open``."""
    return re.sub(r"\b\w+=\S+ \((--[a-z][^()]*)\)", r"\1", text)


def plain(value: Any) -> str:
    """Text on one line for rich, in which nothing is markup and nothing controls the terminal."""
    from rich.markup import escape

    return escape(escape_control(" ".join(str(value).split())))


def make_table(*heads: str, right: tuple[str, ...] = (), whole: tuple[str, ...] = ("key", "name")) -> RichTable:
    """A table whose ``right`` and ``whole`` columns are never wrapped; the others are where the terminal is narrow."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable

    table = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for head in heads:
        justify: Any = "right" if head in right else "left"
        table.add_column(head, justify=justify, no_wrap=head in right or head in whole, overflow="fold")
    return table


def interval_text(value: Interval, form: str) -> str:
    return f"{value.mean:{form}} \\[{value.low:{form}}, {value.high:{form}}]"


def write_frame(frame: pd.DataFrame, out: Path) -> None:
    """A csv, tsv or parquet file, or csv on standard output."""
    from isometry.io.atomic import atomic_write

    if str(out) in ("-", "/dev/stdout"):
        frame.to_csv(sys.stdout, index=False)
        return
    with atomic_write(out) as temporary:
        if out.suffix.lower() in (".parquet", ".pq"):
            frame.to_parquet(temporary, index=False)
        else:
            frame.to_csv(temporary, index=False, sep="\t" if out.suffix.lower() in (".tsv", ".tab") else ",")
