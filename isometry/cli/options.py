"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def complete_method(incomplete: str) -> list[str]:
    """Names of methods that begin so, for the shell."""
    from isometry.registry import METHODS

    return [m.name for m in METHODS if m.name.lower().startswith(incomplete.lower())]


MethodName = Annotated[
    str,
    typer.Argument(
        help="name or key, e.g. LMNN or M11; auto: the best of several, or Euclidean",
        show_default=False,
        autocompletion=complete_method,
    ),
]
File = Annotated[Path, typer.Argument(help="csv, tsv, parquet, npy or npz file", show_default=False)]
Target = Annotated[
    str | None, typer.Option("--target", "-y", help="column of labels or numbers; in npz the array `y` by default")
]
TargetIs = Annotated[
    str, typer.Option(help="classes, numbers to predict, or auto: fractions are numbers, and all else classes")
]
Unlabelled = Annotated[
    str, typer.Option("--unlabelled", help="rows without a label: refuse, or drop, which leaves them out")
]
View = Annotated[
    Path | None,
    typer.Option("--view", help="a second table of the same samples, row by row: a metric between both is learned"),
]
Drop = Annotated[str | None, typer.Option(help="columns to leave out, separated by commas")]
Key = Annotated[str | None, typer.Option(help="array of features in an npz file, `X` by default")]
Delimiter = Annotated[str | None, typer.Option(help="sign between cells of a text table, e.g. ; or tab")]
Decimal = Annotated[str | None, typer.Option(help="sign before the fraction of numbers in a text table: . or ,")]
Backbone = Annotated[
    str | None, typer.Option(help="module:factory that made the network, if the model was trained with one")
]
Unit = Annotated[
    bool, typer.Option("--unit", help="unit length after every map: directions are compared, as by a cosine")
]
Json = Annotated[bool, typer.Option("--json", help="print the outcome as JSON, and nothing else, to standard output")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="print nothing but warnings and errors")]
Seed = Annotated[int, typer.Option(min=0, help="seed of everything random")]
Float32 = Annotated[bool, typer.Option("--float32", help="work in 32 bits: half the memory, for large embeddings")]
Prepare = Annotated[
    str,
    typer.Option(
        help="auto: fill gaps, code categories, read dates, leave out what names rows; none: such columns are errors"
    ),
]
Impute = Annotated[bool, typer.Option("--impute", help="with --prepare none: fill gaps with the median")]
OneHot = Annotated[bool, typer.Option("--one-hot", help="with --prepare none: code text as columns of 0 and 1")]
