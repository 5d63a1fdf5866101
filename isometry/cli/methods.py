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
    """Show the methods there are, and what stands around any of them; commands take a name or its short key."""
    from isometry.registry import METHODS, all_methods
    from isometry.registry.around import ROWS as AROUND

    with usage_errors(ValueError):
        rows = all_methods(family=family, sees=sees)
    rows += [m for m in AROUND if sees is None or sees in m.sees.split()]  # they go with every family
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
    from isometry.registry.around import ROWS as AROUND

    if Path(method).is_file():
        _show_file(Path(method), as_json, quiet)
        return
    wanted = method.strip().lower()
    row = next((m for m in AROUND if wanted in (m.key.lower(), m.name.lower())), None) or find_method(method)
    rows = [m for m in (*METHODS, *AROUND) if m.name == row.name] if wanted == row.name.lower() else [row]
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
            *([("Strength", strength)] if (strength := _about_strength(m)) else []),
        ):
            console.print(f"\n[bold]{head}[/]\n{plain(text)}")
        console.print("\n[bold]Parameters[/]")
        console.print(parameter_table(m))


def _about_strength(m: Method) -> str:
    """Whether the data choose how far the metric goes from Euclidean distance; "" of what learns without classes."""
    if not m.published:
        return m.as_it_is
    given = ", ".join(f"{name}={value:g}" for name, value in m.published.items())
    return f"The data choose how far it goes from Euclidean distance; {given} is the method as published."


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
        console.print(f"[bold]{plain(name)}[/]  {plain(in_words(value))}")


def in_words(value: Any) -> str:
    """A value of a card on one line; a table in a table stands in brackets."""
    if not isinstance(value, dict):
        return str(value)
    return ", ".join(f"{k} ({in_words(v)})" if isinstance(v, dict) else f"{k} {v}" for k, v in value.items())


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
