"""What commands print: tables, notes, errors."""

from __future__ import annotations

import sys
import unicodedata
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from isometry.eval import Interval

EXTRAS = {"torch": "deep", "accelerate": "deep", "onnx": "export", "faiss": "index", "dask": "dask"}
OBEYED = {"Cc", "Cs", "Zl", "Zp"}  # Unicode categories: control, surrogate, separators of lines and paragraphs
TURNING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}  # marks of the direction of writing
UNBOUNDED = 10_000  # columns: a pipe has no edge at which lines must break


def printer() -> Console:
    """Prints to stdout: in colour and to the width of a terminal, plain and unbroken into a pipe."""
    width = None if sys.stdout.isatty() else UNBOUNDED
    return Console(width=width, highlight=False, soft_wrap=False, emoji=False)


def say(text: str) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True, emoji=False).print(harmless(text), markup=False)


def harmless(text: str) -> str:
    """Text without what a terminal obeys or cannot show: such characters appear as escapes, ``\\x1b``.

    These are control characters, marks that change the direction of writing, and halves of characters.
    """
    return "".join(c.encode("unicode_escape").decode("ascii") if _is_obeyed(c) else c for c in text)


def _is_obeyed(c: str) -> bool:
    return c not in "\n\t" and (unicodedata.category(c) in OBEYED or unicodedata.bidirectional(c) in TURNING)


def explain(error: BaseException) -> str:
    if isinstance(error, ImportError) and error.name in EXTRAS:
        return f'{error.name} is not installed: pip install "isometry[{EXTRAS[error.name]}]"'
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return text or type(error).__name__


def plain(value: Any) -> str:
    """Text on one line, harmless, in which brackets are brackets, not markup."""
    from rich.markup import escape

    return escape(harmless(" ".join(str(value).split())))


def make_table(*heads: str, right: tuple[str, ...] = (), whole: tuple[str, ...] = ("key", "name")) -> RichTable:
    """A table whose ``right`` and ``whole`` columns are never broken; the others fold where the terminal is narrow."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable

    table = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for head in heads:
        justify: Any = "right" if head in right else "left"
        table.add_column(head, justify=justify, no_wrap=head in right or head in whole, overflow="fold")
    return table


def interval_text(value: Interval, form: str) -> str:
    return f"{value.mean:{form}} \\[{value.low:{form}}, {value.high:{form}}]"
