"""`isometry list` and `isometry info`: the method table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isometry.cli import options
from isometry.cli.app import app
from isometry.cli.inputs import find_method
from isometry.cli.outputs import UsageError, make_table, plain, print_json, printer, usage_errors

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from isometry.registry import Method

EVERYWHERE = {  # parameters that mean the same in every method, which docstrings therefore pass over
    "max_iter": "iterations at most",
    "tol": "relative change or gradient below which the search ends",
    "random_state": "seed of what is random",
    "verbose": "show a progress bar",
}


@app.command("list")
def list_methods(
    family: Annotated[str | None, typer.Option(help="spectral, geometric, kernel, probabilistic or deep")] = None,
    sees: Annotated[str | None, typer.Option(help="kind of supervision: labels, pairs, triplets, none, …")] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show the methods there are."""
    from isometry.registry import METHODS, all_methods

    with usage_errors(ValueError):
        rows = all_methods(family=family, sees=sees)
    if not rows:
        kinds = sorted({s for m in METHODS for s in m.sees.replace(",", " ").split()})
        raise UsageError(f"no method sees {sees!r} in this family; kinds of supervision are {', '.join(kinds)}")
    if as_json:
        print_json(
            [{fact: getattr(m, fact) for fact in ("key", "name", "family", "kind", "sees", "title")} for m in rows]
        )
        return
    table = make_table("key", "name", "family", "sees", "title")
    for m in rows:
        table.add_row(*map(plain, (m.key, m.name, m.family, m.sees, m.title)))
    printer(quiet).print(table)


@app.command()
def info(
    method: Annotated[
        str,
        typer.Argument(
            help="name or key of a method, or a file with a fitted metric",
            show_default=False,
            autocompletion=options.complete_method,
        ),
    ],
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show a method's equation, parameters, reference, and where it departs from the survey; or what a file holds."""
    from isometry.registry import METHODS

    if Path(method).is_file():
        _show_file(Path(method), as_json, quiet)
        return
    row = find_method(method)
    rows = [m for m in METHODS if m.name == row.name] if method.strip().lower() == row.name.lower() else [row]
    if as_json:
        facts = ("key", "name", "family", "kind", "sees", "title", "equation", "cite", "deviates", "section")
        print_json([{fact: getattr(m, fact) for fact in facts} for m in rows])
        return
    console = printer(quiet)
    for m in rows:
        console.print(f"[bold]{plain(m.name)}[/] ({m.key})  {plain(m.title)}")
        console.print(f"{m.family} {m.kind}; learns from {plain(m.sees)}; survey: {plain(m.section)}", style="dim")
        for head, text in (
            ("Problem", m.equation),
            ("Reference", m.cite or "none"),
            ("Departs from the survey", m.deviates or "nowhere"),
        ):
            console.print(f"\n[bold]{head}[/]\n{plain(text)}")
        console.print("\n[bold]Parameters[/]")
        console.print(parameter_table(m))


def _show_file(path: Path, as_json: bool, quiet: bool) -> None:
    """The card of a fitted metric."""
    from isometry.io import read_card

    with usage_errors(ValueError):
        card = read_card(path)
    if as_json:
        print_json(card)
        return
    console = printer(quiet)
    for name, value in card.items():
        shown = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
        console.print(f"[bold]{plain(name)}[/]  {plain(shown)}")


def parameter_table(row: Method) -> RichTable:
    import inspect

    target = row.load()
    texts = documented(target)
    table = make_table("name", "default", "meaning")
    for p in inspect.signature(target).parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            continue
        default = row.params.get(p.name, p.default)
        shown = "required" if default is p.empty else repr(default)
        text = texts.get(p.name) or EVERYWHERE.get(p.name, "")
        table.add_row(plain(p.name), plain(shown), plain(text))
    return table


def documented(target: Any) -> dict[str, str]:
    """Parameter → text, from the docstring of a class and, for what it passes on, from those of its bases."""
    import inspect

    texts: dict[str, str] = {}
    for base in reversed(inspect.getmro(target)) if inspect.isclass(target) else [target]:
        texts |= parameter_docs(inspect.cleandoc(base.__doc__ or ""))
    return texts


def parameter_docs(doc: str) -> dict[str, str]:
    """Parameter → text, from the section of a docstring whose entries read ``a, b : type`` and go on indented."""
    lines = iter(doc.splitlines())
    for line in lines:
        if line.strip() == "Parameters":
            next(lines, None)  # the rule below the heading
            break
    texts: dict[str, list[str]] = {}
    names: list[str] = []
    for line in lines:
        if not line.strip():
            break
        if line.startswith(" "):
            for name in names:
                texts[name].append(line.strip())
        else:
            names = line.partition(" : ")[0].split(", ")
            texts |= {name: [] for name in names}
    return {name: " ".join(text).replace("``", "") for name, text in texts.items()}
