"""`isometry export`: a saved metric in a form that runs elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isometry.cli import options
from isometry.cli.app import app
from isometry.cli.inputs import check_distinct, is_stdout
from isometry.cli.models import load_model
from isometry.cli.outputs import UsageError, plain, print_json, printer, usage_errors


@app.command()
def export(
    model: Annotated[Path, typer.Argument(help="file written by fit or compare --save", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Argument(
            help="file to write; its ending names the form: .npy, .safetensors, .onnx, .py, .duckdb.sql, "
            ".pgvector.sql; without one it is a folder for sentence-transformers",
            show_default=False,
        ),
    ] = None,
    as_option: Annotated[Path | None, typer.Option("--out", "-o", help="the same, as other commands have it")] = None,
    form: Annotated[
        str | None,
        typer.Option(
            help="npy, safetensors, onnx, numpy, duckdb, pgvector or sentence-transformers, whatever the name"
        ),
    ] = None,
    backbone: options.Backbone = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a saved metric as ONNX, SQL, a NumPy file or a matrix, to run without isometry."""
    from isometry.io import ExportError, read_card
    from isometry.io import export as write
    from isometry.io.forms import form_of

    if (out is None) == (as_option is None):
        raise UsageError("name one file to write, such as metric.onnx" + (": there are two" if out else ""))
    out = out or as_option
    assert out is not None
    check_distinct({"OUT": out}, {"the model": model})
    if is_stdout(out):
        raise UsageError("a metric cannot be exported to standard output: give the name of a file")
    with usage_errors(ExportError):
        form = form_of(out, form)
    metric = load_model(model, backbone)
    with usage_errors(ExportError, OSError):
        write(metric, out, form)
    of_map = read_card(model).get("map")  # of a head that `adapt` wrote: of all embeddings, or of queries alone
    if as_json:
        print_json({"file": out, "form": form, "features": metric.n_features_in_, "map": of_map})
        return
    console = printer(quiet)
    console.print(f"{plain(model)} as {form}: {plain(out)}")
    if of_map is not None:
        console.print(f"note: the map is {plain(of_map)}", style="dim")
