"""The command line: list, info, compare, fit, transform, adapt, verify, explain, explore, export, index, train.

Exit codes: 0 done, 1 failed at run time, 2 wrong usage (unknown method, missing file or column), 130 interrupted,
143 terminated.
"""

from __future__ import annotations

import sys

try:
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError as missing:
        raise SystemExit(f'the isometry command needs {missing.name}: pip install "isometry[cli]"') from None

    # isort: off
    # each module adds its commands, in the order in which help lists them
    from isometry.cli import methods, compare, fit, adapt, verify, explain, explore, export, index, train  # noqa: F401
    from isometry.cli.app import app, main
    # isort: on
except KeyboardInterrupt:  # the shell's command has not begun yet, and cannot say it itself
    print("interrupted", file=sys.stderr)
    raise SystemExit(130) from None

__all__ = ["app", "main"]
