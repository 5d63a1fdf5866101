"""Tables of columns, of texts above all, as data sets: what a tokeniser gets, padded batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from isometry.deep.batches import class_codes
from isometry.deep.objectives.columns import TARGETS

NAMED = 5  # bad rows that an error names
Tokenize = Callable[[list[str]], Mapping[str, Tensor]]


def is_column_table(samples: Any) -> bool:
    """Whether this is a table of named columns: a mapping, a DataFrame, or a data set of Hugging Face."""
    names = getattr(samples, "column_names", None)
    return isinstance(samples, Mapping) or isinstance(names, (list, tuple)) or hasattr(samples, "iloc")


def are_texts(values: Any) -> bool:
    """Whether these are strings, judged by the first."""
    series = hasattr(values, "iloc") and not hasattr(values, "columns")
    if not (series or isinstance(values, (list, tuple, np.ndarray))) or not len(values):
        return False
    return isinstance(values.iloc[0] if series else values[0], str)


class ColumnTable(Dataset[Any]):
    """Named columns, such as (anchor, positive, negative, score), of texts or of numbers.

        pairs = ColumnTable({"query": queries, "document": documents}, tokenize, prompts={"query": "query: "})
        Trainer(network, Columns(Ranking())).fit(pairs)

    A batch is a dictionary of the columns in their order, which `Columns` takes; with one column and labels it is
    (samples, labels), which losses take. Texts go through ``tokenize`` when a batch is made, and are padded to its
    longest.

    Parameters
    ----------
    table : mapping of columns, DataFrame, or Hugging Face data set
        The columns. One called label, labels, score, scores or target is what the loss compares with.
    tokenize : callable or None, default=None
        From a list of texts to a dictionary of tensors (B, …); None: the columns are numbers, or the network has a
        ``tokenize``.
    labels : sequence (n,) or None, default=None
        A class for each row, of any type; None: there are none.
    prompts : dict or None, default=None
        Text that is put before every text of a column, by its name; None: nothing.

    Notes
    -----
    For texts, and for matching rows of any kind. Texts are tokenised anew in each epoch; workers of the loader can do
    so.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import ColumnTable
    >>> pairs = ColumnTable({"query": [[0.0], [1.0]], "document": [[0.1], [1.1]], "score": [1.0, 0.5]})
    >>> batch = pairs.collate([pairs[0], pairs[1]])
    >>> list(batch), batch["query"].shape
    (['query', 'document', 'score'], torch.Size([2, 1]))
    """

    def __init__(
        self,
        table: Any,
        tokenize: Tokenize | None = None,
        labels: Any = None,
        prompts: Mapping[str, str] | None = None,
    ):
        names = list(getattr(table, "column_names", None) or table)
        self.columns: dict[str, Any] = {name: _as_column(table[name]) for name in names}
        sizes = {name: len(column) for name, column in self.columns.items()}
        if not names or len(set(sizes.values())) > 1:
            raise ValueError(f"columns must be of one length, got {sizes or 'none'}")
        self.inputs = [name for name in names if name not in TARGETS]
        if not self.inputs:
            raise ValueError(f"there are no samples among the columns {', '.join(names)}: all are names of targets")
        self.tokenize, self.prompts = tokenize, dict(prompts or {})
        self.texts = [name for name in self.inputs if are_texts(self.columns[name])]
        for name in self.texts:
            check_texts(self.columns[name], f"column {name!r}")
        unknown = [name for name in self.prompts if name not in self.texts]
        if unknown:
            raise ValueError(f"prompts are for the text columns {', '.join(self.texts)}; there is no {unknown[0]!r}")
        if self.texts and tokenize is None:
            raise ValueError(
                f"column {self.texts[0]!r} holds texts: give tokenize, from a list of texts to a dictionary of "
                "tensors, or train a network that has one, such as backbone('transformers:FOLDER')"
            )
        if labels is None and len(self.inputs) == 1:
            labels = next((self.columns[name] for name in TARGETS[:2] if name in self.columns), None)
        self.labels = None if labels is None else np.asarray(labels)
        self.codes = None if self.labels is None else class_codes(self.labels)

    def __len__(self) -> int:
        return len(self.columns[self.inputs[0]])

    def __getitem__(self, row: int) -> dict[str, Any]:
        """A row as it was given, and the code of its class."""
        item = {name: column[row] for name, column in self.columns.items()}
        return item if self.codes is None else item | {"$code": int(self.codes[row])}

    def collate(self, rows: list[dict[str, Any]]) -> Any:
        """Rows as a batch.

        Parameters
        ----------
        rows : list of dict
            Rows of the table.

        Returns
        -------
        dict or tuple
            The batch.
        """
        batch = {
            name: self.tokenize([self.prompts.get(name, "") + row[name] for row in rows])
            if name in self.texts and self.tokenize is not None
            else default_collate([row[name] for row in rows])
            for name in self.columns
            if self.codes is None or name in self.inputs
        }
        if self.codes is None:
            return batch
        x = batch[self.inputs[0]] if len(self.inputs) == 1 else batch
        return x, torch.tensor([row["$code"] for row in rows])

    @property
    def lengths(self) -> np.ndarray | None:
        """Letters of each row's longest text (n,); None where there are no texts."""
        return np.max([[len(t) for t in self.columns[name]] for name in self.texts], 0) if self.texts else None

    def subset(self, rows: Sequence[int] | np.ndarray) -> ColumnTable:
        """Some of the rows; codes are places among the labels that they have.

        Parameters
        ----------
        rows : sequence of int
            Which rows.

        Returns
        -------
        ColumnTable
            A table of these.
        """
        part = ColumnTable.__new__(ColumnTable)
        vars(part).update(vars(self))
        part.columns = {name: _take(column, rows) for name, column in self.columns.items()}
        part.labels = None if self.labels is None else self.labels[rows]
        part.codes = None if part.labels is None else class_codes(part.labels)
        return part


def _as_column(column: Any) -> Any:
    """A column that can be indexed by row: texts as a list, all else as an array."""
    if isinstance(column, Tensor):
        return column
    values = list(column)
    return values if values and isinstance(values[0], (str, type(None))) else np.asarray(values)


def _take(column: Any, rows: Any) -> Any:
    return [column[k] for k in rows] if isinstance(column, list) else column[np.asarray(rows)]


def check_texts(texts: Sequence[Any], what: str) -> None:
    """An error that names the rows without a text: they would all be the same sample."""
    bad = [k for k, t in enumerate(texts) if not isinstance(t, str) or not t.strip()]
    if bad:
        rows = ", ".join(map(str, bad[:NAMED])) + (f" and {len(bad) - NAMED} more" if len(bad) > NAMED else "")
        raise ValueError(
            f"{what} has {len(bad)} empty texts, in rows {rows} (the first row is 0): leave these rows out"
        )
