"""Files that name rows: pairs, triplets, relevant documents; ids that are not there are counted, listed and refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isometry.cli.outputs import UsageError, usage_errors

if TYPE_CHECKING:
    import numpy as np

    from isometry.supervision import Pairs

SAME_WORDS = {"1": True, "1.0": True, "true": True, "same": True, "yes": True}
DIFFERENT_WORDS = dict.fromkeys(("0", "0.0", "-1", "-1.0", "false", "different", "no"), False)
MOST_LISTED = 5  # ids that are not found


class RowNames:
    """What names the rows of a table: ids, or their numbers, from 0."""

    def __init__(self, ids: Any, n: int, what: str = "the table"):
        import pandas

        self.n, self.what, self.numbered = n, what, ids is None
        self.ids = pandas.RangeIndex(n).astype(str) if ids is None else pandas.Index(ids).astype(str)
        if self.ids.has_duplicates:
            twice = self.ids[self.ids.duplicated()][0]
            raise UsageError(f"the id {twice!r} names more than one row of {what}: ids must be different")

    def rows(self, names: Any) -> np.ndarray:
        """Row numbers of names, in their shape; −1 for those that are not there."""
        import numpy as np

        texts = np.asarray(names).astype(str)
        return np.asarray(self.ids.get_indexer(texts.ravel())).reshape(texts.shape)

    def hint(self) -> str:
        return (
            f"the rows are numbered 0 to {self.n - 1}; name their column with --id"
            if self.numbered
            else "--id says which column names them"
        )


@dataclass(frozen=True)
class NamedRows:
    """Rows that a file names."""

    rows: np.ndarray  # (m, k) numbers
    more: Any  # (m,) what the file says of them in a last column; None: nothing
    column: str | None  # its name
    left_out: int  # lines that name rows which are not there


def read_named_rows(path: Path, names: list[RowNames], expected: str, *, last: bool, skip: bool = False) -> NamedRows:
    """Lines of a table of as many names as there are ``names``, with one further column if ``last``.

    With ``skip`` lines that name rows which are not there are left out; else they are refused.
    """
    import numpy as np

    from isometry.io import TableError
    from isometry.io.columns import plural
    from isometry.io.tables import read_cells, without_index

    with usage_errors(FileNotFoundError, IsADirectoryError, TableError):
        cells = read_cells(path).rename(columns=str)
    cells = cells[without_index(cells, list(cells.columns))]  # row numbers would be taken for names of rows
    k = len(names)
    if cells.shape[1] not in ((k, k + 1) if last else (k,)) or len(cells) == 0:
        raise UsageError(f"{path} has {len(cells)} rows and {cells.shape[1]} columns: expected {expected}")
    ends = cells.iloc[:, :k].astype(str).to_numpy()
    rows = np.column_stack([names[c].rows(ends[:, c]) for c in range(k)])
    there = (rows >= 0).all(axis=1)
    if not there.all():
        missing = sorted(set(ends[rows < 0]))
        if not skip:
            where = " or ".join(dict.fromkeys(n.what for n in names))
            more = f" and {len(missing) - MOST_LISTED} more" if len(missing) > MOST_LISTED else ""
            found = f"{plural(len(missing), 'name')} in {path} {'is' if len(missing) == 1 else 'are'} not in {where}"
            raise UsageError(f"{found} ({', '.join(missing[:MOST_LISTED])}{more}): {names[0].hint()}")
        if not there.any():
            raise UsageError(f"no line of {path} names rows that are there: {names[0].hint()}")
    rest = cells.iloc[:, k][there] if cells.shape[1] > k else None
    column = None if rest is None else str(cells.columns[k])
    return NamedRows(rows[there], rest, column, int(np.sum(~there)))


def read_signs(named: NamedRows, path: Path) -> np.ndarray | None:
    """(m,) whether the rows of each line are the same; None where the file does not say it."""
    import numpy as np

    if named.more is None:
        return None
    words = SAME_WORDS | DIFFERENT_WORDS
    said = [str(value).strip().lower() for value in named.more]
    unknown = sorted({value for value in said if value not in words})
    if unknown:
        raise UsageError(
            f"column {named.column} of {path} holds {unknown[0]!r}: expected 1 or 0, +1 or -1, true or false, same "
            "or different"
        )
    return np.array([words[value] for value in said])


def contradictory(rows: np.ndarray, same: np.ndarray, n: int) -> np.ndarray:
    """(m,) which pairs are listed as the same and as different."""
    import numpy as np

    low, high = np.sort(rows, axis=1).T.astype(np.int64)
    name = low * n + high
    return np.isin(name, np.intersect1d(name[same], name[~same]))


def make_pairs(rows: np.ndarray, same: np.ndarray | None, n: int) -> Pairs:
    """Pairs, all the same if nothing else is said; those that are both the same and different are refused."""
    import numpy as np

    from isometry.supervision import Pairs

    if same is not None:
        both = contradictory(rows, same, n)
        if both.any():
            first = np.sort(rows[both][0])
            n_both = len(np.unique(np.sort(rows[both], axis=1), axis=0))
            raise UsageError(
                f"{n_both} pairs are listed as the same and as different, such as rows {first[0]} and {first[1]}: "
                "remove one of the two"
            )
    with usage_errors(ValueError):
        return Pairs(rows[:, 0], rows[:, 1], np.ones(len(rows)) if same is None else same, n=n)
