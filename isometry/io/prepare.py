"""Tables as they come: gaps, categories, dates, and columns that name the row instead of describing it.

What needs no knowledge of other rows is done when a table is read: dates become numbers. Columns that name rows are
left out. Filling gaps and coding categories is the work of a transformer that a comparison fits inside each fold.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from isometry.core.warn import warn_user
from isometry.io.columns import DATE, TableError, how_to_drop, import_optional, listing

if TYPE_CHECKING:
    import pandas as pd

STEPS = ("impute", "one_hot", "dates", "ids")  # what can be asked for
MISSING = "(missing)"  # a category of its own
MAX_CATEGORIES = 20  # columns that one column of text may become; rare categories share the last
ID_NAME = r"(.*[_\s.-])?(id|uuid|guid|index|idx|key|row|row[_\s]?(nr|no|number)|serial)|.*[a-z]I[Dd]"
YEAR_FIRST = r"\s*\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([ T].*)?\s*"
MONTH = "(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
IN_WORDS = rf"\s*(\d{{1,2}}[\s.-]+{MONTH}|{MONTH}\s+\d{{1,2}})[\s.,-]+\d{{2,4}}(\s.*)?"  # 3 Jan 2020, Jan 3, 2020
PLAIN_DATE = r"(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])"  # 20200131
FEW = 20  # of fewer numbers it may be chance that all differ
YEARS = (1800, 2100)  # numbers that lie between these are years, also if they count the rows
UNIT = r"(%|[€$£¥]|[a-z]{1,3}[²³]?)?"
GROUPED = r"(\d{1,3}([,.'\s]\d{3})+|\d+)([.,]\d+)?"  # 1,234.50 and 1.234,50
WRITTEN_NUMBER = rf"\s*[€$£¥]?\s*[+-]?\s*{GROUPED}\s*{UNIT}\s*"  # $ 3, 70 kg, 5 %
POINT_NUMBER = r"\s*[+-]?\d*(\.\d+)?\s*"
ONE_SIGN = "a table has one decimal sign, so write all numbers with a point, or all with a comma, and they count"
AS_NUMBERS = "if they are numbers, write them with a point and without other signs, as 1234.5, and they count"
AS_ISO = "write them as 2020-01-31, and they count as days"


def tidy(frame: pd.DataFrame, steps: Collection[str], categories: Collection[str] | None) -> pd.DataFrame:
    """The columns that can be learned from: numbers, with gaps where cells are missing, and text for categories.

    Parameters
    ----------
    frame : DataFrame
        Columns of any kind.
    steps : collection of str
        Some of `STEPS`.
    categories : collection of str or None
        The columns that are categories, where a fitted metric says so; all others must then be numbers.

    Returns
    -------
    DataFrame
        The columns that are kept.
    """
    unknown = sorted(set(steps) - set(STEPS))
    if unknown:
        raise TableError(f"prepare={unknown[0]!r} is unknown: choose among {', '.join(STEPS)}")
    columns: dict[str, Any] = {}
    dropped: dict[str, str] = {}
    for name in frame.columns:
        cells, why = _column(frame[name], steps, None if categories is None else name in categories)
        if why:
            dropped[name] = why
        else:
            columns[name] = cells
    if dropped:
        _tell(dropped)
    infinite = {name: at for name in columns if "impute" in steps and (at := _infinite(frame[name])).any()}
    if infinite:
        rows = np.flatnonzero(np.any([*infinite.values()], axis=0))
        warn_user(
            f"cells of {listing([*infinite])} are infinite: they count as missing, and are filled as gaps are. Leave "
            f"the rows out if they mean something else ({listing(rows)}, counted from 0); --prepare none (in Python "
            "prepare='none') refuses them"
        )
    return import_optional("pandas").DataFrame(columns, index=frame.index)


def _column(cells: pd.Series, steps: Collection[str], is_category: bool | None) -> tuple[Any, str]:
    """A column as it will be used, or why it will not be."""
    types = import_optional("pandas").api.types
    if is_category:
        return _as_categories(cells), ""
    if types.is_float_dtype(cells) and not cells.isna().all():
        return _without_infinite(cells, steps), ""
    known = cells.dropna()
    numeric = types.is_numeric_dtype(cells) and not types.is_complex_dtype(cells)
    if is_category is None and "ids" in steps:
        if len(known) == 0:
            return None, "is empty"
        if why := _names_rows(str(cells.name), known, numeric):
            return None, why
    if not numeric and "dates" in steps and (is_category is None or len(known)):
        days = _days(cells, known)
        if days is not None:
            return days, ""
        if is_category is None and len(known) and known.astype(str).str.fullmatch(YEAR_FIRST).all():
            return None, "holds dates that no calendar has, such as the 31st of February: mend them"
    if numeric:
        return cells, ""
    if "one_hot" in steps and is_category is None and not types.is_complex_dtype(cells):
        return _as_categories(cells), ""
    return cells, ""  # what it is and what to do is said by `as_numbers`


def _names_rows(name: str, known: pd.Series, numeric: bool) -> str:
    """Why a column seems to name rows, or ""."""
    distinct = known.nunique()
    if import_optional("pandas").api.types.is_timedelta64_dtype(known):
        return ""
    if not numeric:
        words = known.astype(str)
        if words.str.fullmatch(YEAR_FIRST).all():
            return ""
        if words.str.fullmatch(DATE).all():
            return f"holds dates whose order of day and month is not guessed: {AS_ISO}"
        if words.str.fullmatch(IN_WORDS, case=False).all():
            return f"holds dates in words: {AS_ISO}"
        if not 2 * distinct > len(known) > 2:
            return ""
        told = f"is text with {distinct} different cells in {len(known)} rows"
        if words.str.fullmatch(POINT_NUMBER).all() and words.str.contains(".", regex=False).any():
            return f"{told}, such as {words.iloc[0]!r}: {ONE_SIGN}"
        if words.str.fullmatch(WRITTEN_NUMBER, case=False).all():
            return f"{told}, such as {words.iloc[0]!r}: {AS_NUMBERS}"
        return told
    if distinct < len(known) or len(known) < 3:
        return ""
    values = known.to_numpy()
    if values.dtype.kind not in "iu":
        return ""
    if re.fullmatch(ID_NAME, name, re.I):
        return "has a different number in each row and is called like a key"
    first, last = int(values.min()), int(values.max())
    if YEARS[0] <= first and last <= YEARS[1]:
        return ""
    if last - first + 1 == len(values):
        return "counts the rows"
    in_turn = known.is_monotonic_increasing or known.is_monotonic_decreasing  # else it may be a rank
    if in_turn and len(values) >= FEW and last - first + 1 <= 1.2 * len(values):
        return "counts the rows, some of which are not here"
    return ""


def _days(cells: pd.Series, known: pd.Series) -> np.ndarray | None:
    """Dates, year first, as days since 1970, and spans of time as days; None if the column holds anything else."""
    pandas = import_optional("pandas")
    if pandas.api.types.is_timedelta64_dtype(cells):
        return np.asarray(cells / pandas.Timedelta(days=1), dtype=np.float64)
    if not pandas.api.types.is_datetime64_any_dtype(cells):
        if len(known) == 0 or not known.astype(str).str.fullmatch(YEAR_FIRST).all():
            return None
        text = cells.where(cells.isna(), cells.astype(str).str.strip().str.replace(r"[/.](?=\d)", "-", n=2, regex=True))
        cells = pandas.to_datetime(text, errors="coerce", format="ISO8601", utc=True)
        if cells.isna().sum() > len(cells) - len(known):  # the 31st of February
            return None
    elif cells.dt.tz is None:
        cells = cells.dt.tz_localize("UTC")
    since = cells - pandas.Timestamp(0, tz="UTC")
    return np.asarray(since / pandas.Timedelta(days=1), dtype=np.float64)


def told_of_columns(
    frame: pd.DataFrame, tidied: pd.DataFrame, steps: Collection[str], categories: Collection[str] | None
) -> list[str]:
    """What became of columns of dates, and which may name rows, in a line each.

    Parameters
    ----------
    frame : DataFrame
        Columns as they were read.
    tidied : DataFrame
        What `tidy` made of them.
    steps : collection of str
        Some of `STEPS`.
    categories : collection of str or None
        What a fitted metric takes for categories; None: there is no such metric yet.

    Returns
    -------
    list of str
        Sentences.
    """
    types = import_optional("pandas").api.types
    kept = [c for c in tidied.columns if types.is_numeric_dtype(tidied[c])]
    days = [c for c in kept if not types.is_numeric_dtype(frame[c])]
    numbers = [c for c in kept if c not in days and _reads_as_dates(frame[c])]
    told = []
    if days:
        told.append(
            f"{listing(days)}: dates, taken as days since 1970, so that later is larger; leave them out with "
            f"{how_to_drop(days)}, or make columns of your own of them, such as month or weekday"
        )
    if numbers:
        told.append(
            f"{listing(numbers)}: numbers that read as dates, such as {frame[numbers[0]].dropna().iloc[0]:.0f}, taken "
            f"as numbers; {AS_ISO}"
        )
    keys = [c for c in kept if c not in (*days, *numbers) and _all_differ(frame[c])]
    if keys and "ids" in steps and categories is None:
        told.append(
            f"{listing(keys)}: another whole number in each row, taken as a number to learn from; if it names rows, "
            f"leave it out with {how_to_drop(keys)}"
        )
    return told


def _all_differ(cells: pd.Series) -> bool:
    """Whether each row has another whole number, as keys have and few measurements."""
    known = cells.dropna()
    return len(known) >= FEW and known.is_unique and bool((known % 1 == 0).all())


def _reads_as_dates(cells: pd.Series) -> bool:
    """Whether all numbers are such as 20200131."""
    known = cells.dropna().astype(np.float64)  # 16 bits do not hold such numbers
    if len(known) == 0 or not known.between(1900_01_01, 2099_12_31).all() or not (known % 1 == 0).all():
        return False
    return bool(known.astype("int64").astype(str).str.fullmatch(PLAIN_DATE).all())


def _as_categories(cells: pd.Series) -> Any:
    text = cells.astype(object).where(cells.notna(), MISSING)
    return np.array([str(v) for v in text], dtype=object)


def _without_infinite(cells: pd.Series, steps: Collection[str]) -> Any:
    """Numbers; where gaps are filled, what is infinite is a gap, too."""
    if "impute" not in steps or not _infinite(cells).any():
        return cells
    values = cells.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(np.isinf(values), np.nan, values)


def _infinite(cells: pd.Series) -> np.ndarray:
    """Which cells (n,) are infinite."""
    if not import_optional("pandas").api.types.is_float_dtype(cells):
        return np.zeros(len(cells), dtype=bool)
    return np.asarray(np.isinf(cells.to_numpy(dtype=np.float64, na_value=np.nan)))


def _tell(dropped: dict[str, str]) -> None:
    found: dict[str, list[str]] = {}  # by what to do, which is said once
    for name, why in list(dropped.items())[:8]:
        fact, _, advice = why.rpartition(": ")
        found.setdefault(advice if fact else "", []).append(f"{name} {fact or advice}")
    reasons = [", ".join(facts) + (f": {advice}" if advice else "") for advice, facts in found.items()]
    warn_user(
        f"left out of the features: {'; '.join(reasons)}{' …' if len(dropped) > 8 else ''}. Name them in "
        f"{how_to_drop(list(dropped))} to say so yourself; with --prepare none (in "
        "Python prepare='none') numbers among them are kept"
    )


def lets_pass(frame: pd.DataFrame, steps: Collection[str], categories: Collection[str] | None) -> bool:
    """Whether there are gaps or categories, and nothing that these steps do not allow."""
    types = import_optional("pandas").api.types
    text = {c for c, kind in zip(frame.columns, frame.dtypes, strict=True) if not types.is_numeric_dtype(kind)}
    gaps = bool(frame.isna().to_numpy().any())
    allowed = text <= set(text if categories is None else categories)
    return bool(text or gaps) and allowed and (not text or "one_hot" in steps) and (not gaps or "impute" in steps)


def needs_preparation(frame: pd.DataFrame) -> bool:
    """Whether there are gaps or categories."""
    return lets_pass(frame, STEPS, None)


def preparation(frame: pd.DataFrame, scaler: Any) -> Any:
    """A transformer of these columns into numbers without gaps; ``scaler`` itself where they are that already.

    Gaps are filled with the median, and numbers then go through ``scaler``; a category becomes a column of 0 and 1.
    """
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    types = import_optional("pandas").api.types
    numbers = [c for c in frame.columns if types.is_numeric_dtype(frame[c])]
    others = [c for c in frame.columns if c not in set(numbers)]
    gaps = bool(frame[numbers].isna().to_numpy().any())
    fill = [SimpleImputer(strategy="median", keep_empty_features=True)] if gaps else []
    if not others:
        return make_pipeline(*fill, scaler) if fill else scaler
    coder = OneHotEncoder(
        drop="if_binary", handle_unknown="infrequent_if_exist", max_categories=MAX_CATEGORIES, sparse_output=False
    )
    parts = [("numbers", make_pipeline(*fill, scaler), numbers)] if numbers else []
    return ColumnTransformer([*parts, ("categories", coder, others)], verbose_feature_names_out=False)


def category_columns(model: Any) -> list[str]:
    """The columns that a fitted pipeline codes as categories."""
    from sklearn.preprocessing import OneHotEncoder

    return [str(c) for coder, columns in _coders(model) if isinstance(coder, OneHotEncoder) for c in columns]


def warn_of_unseen(cells: pd.DataFrame, model: Any) -> None:
    """Say which categories a fitted pipeline has not seen, and what they count as."""
    from sklearn.preprocessing import OneHotEncoder

    for coder, columns in _coders(model):
        if not isinstance(coder, OneHotEncoder):
            continue
        rare: Any = getattr(coder, "infrequent_categories_", [None] * len(columns))
        for k, c in enumerate(columns):
            new = sorted(set(cells[c]) - set(coder.categories_[k]))
            if not new:
                continue
            first = coder.drop_idx_ is not None and coder.drop_idx_[k] is not None
            taken = f"as {coder.categories_[k][coder.drop_idx_[k]]}" if first else "as none of those it knows"
            warn_user(
                f"{c} has values that the metric has not seen: {listing(new)}. They count "
                f"{taken if rare[k] is None else 'as the rare ones that it knows'}"
            )


def _coders(model: Any) -> list[tuple[Any, Any]]:
    """Transformers of some columns in a fitted pipeline, and which columns."""
    from sklearn.compose import ColumnTransformer

    if isinstance(model, ColumnTransformer):
        return [(part, columns) for _, part, columns in model.transformers_]
    return [pair for step in _parts(model) for pair in _coders(step)]


def needs_cells(model: Any) -> bool:
    """Whether a fitted pipeline takes gaps, categories or dates: it begins with a transformer of this module."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer

    if isinstance(model, (ColumnTransformer, SimpleImputer)):
        return True
    return any(needs_cells(step) for step in _parts(model))


def _parts(model: Any) -> list[Any]:
    """The steps of a pipeline; or what an automatic choice or a verifier of pairs has learned."""
    learned = [vars(model)[name] for name in ("pipeline_", "metric_") if name in getattr(model, "__dict__", {})]
    return learned or [step for _, step in getattr(model, "steps", ())]


def describe(frame: pd.DataFrame) -> str:
    """What will be done to the columns, in words; "" if nothing."""
    types = import_optional("pandas").api.types
    others = [c for c in frame.columns if not types.is_numeric_dtype(frame[c])]
    gaps = [c for c in frame.columns if c not in others and frame[c].isna().any()]
    said = [f"gaps in {listing(gaps)} are filled with the median of the training part"] if gaps else []
    said += [f"{listing(others)} {'is a category' if len(others) == 1 else 'are categories'}"] if others else []
    if any((frame[c] == MISSING).any() for c in others):
        said[-1] += ", with gaps as one more"
    return "; ".join(said)
