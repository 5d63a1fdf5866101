"""The command itself: its options, and how it ends when something goes wrong."""

from __future__ import annotations

import signal
import sys
import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from isometry.cli.outputs import UsageError, explain, print_to_stderr, process_number


class Group(TyperGroup):
    """Turns what goes wrong into one line on stderr and an exit code; ``--debug`` lets the traceback through."""

    def invoke(self, ctx: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            # scikit-learn's, by column number; tables that are read say it by name
            warnings.filterwarnings("ignore", "Found unknown categories", UserWarning)
            if not process_number():
                warnings.showwarning = lambda message, *_, **__: print_to_stderr(f"warning: {message}")
            else:
                warnings.simplefilter("ignore")  # the first process says the same
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt as stop:
                if not process_number():
                    print_to_stderr(str(stop) or "interrupted")
                raise typer.Exit(130) from None
            except Exception as error:
                if hasattr(error, "exit_code") or isinstance(error, (typer.Abort, BrokenPipeError)):
                    raise  # typer handles it
                if ctx.params.get("debug"):
                    raise
                if process_number() and not isinstance(error, UsageError):
                    print_to_stderr(f"error in process {process_number()}: {explain(error)}")
                elif not process_number():
                    print_to_stderr(f"error: {explain(error)}")
                raise typer.Exit(2 if isinstance(error, UsageError) else 1) from None


app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Metric learning: compare learned metrics with Euclidean distance, fit one, transform data with it.",
)


def main() -> None:
    """Entry point of the console script."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        app()
    except KeyboardInterrupt:  # while typer still reads what the commands take; later ones are the group's
        print_to_stderr("interrupted")
        raise SystemExit(130) from None
    except SystemExit as end:
        _leave_group(end)
        raise


def _leave_group(end: SystemExit) -> None:
    """End here if this is one of several processes that have met: shutting down the interpreter may abort it."""
    if "isometry.deep.distributed" in sys.modules and isinstance(end.code, int | None):
        from isometry.deep.distributed import end_process, is_distributed

        if is_distributed():
            end_process(end.code or 0)


def _terminate(*_: object) -> None:
    raise SystemExit(143)  # as an exception, so that half-written files are removed on the way out


def _show_version(wanted: bool) -> None:
    if wanted:
        from isometry import __version__

        typer.echo(f"isometry {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    pass
