"""The command line: list, info, compare, fit, transform, train.

Exit codes: 0 done, 1 failed at run time, 2 wrong usage (unknown method, missing file or column), 130 interrupted,
143 terminated.
"""

from __future__ import annotations

try:
    import rich  # noqa: F401
    import typer  # noqa: F401
except ImportError as missing:
    raise SystemExit(f'the isometry command needs {missing.name}: pip install "isometry[cli]"') from None

# each module adds its commands, in the order in which help lists them
from isometry.cli import methods, compare, fit, train  # noqa: F401, I001
from isometry.cli.app import app, main

__all__ = ["app", "main"]
