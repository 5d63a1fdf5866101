"""The reference: every public name of the packages, by what it is for."""

from __future__ import annotations

import importlib
from typing import Any

from docs.method_pages import KIND_WORDS, heading
from isometry.registry import FAMILIES, METHODS

PACKAGES = {  # in the order of the page
    "isometry.eval": "Measuring: neighbours, retrieval, verification, clusters, intervals.",
    "isometry.search": "Search over a learned metric.",
    "isometry.select": "The honest comparison, and what it finds.",
    "isometry.io": "Files: tables, fitted metrics, other forms of a metric.",
    "isometry.report": "Pictures and pages.",
    "isometry.registry": "The method table.",
}


def public() -> dict[str, Any]:
    """Full name → object: every public name once, under the shortest name that leads to it."""
    out: dict[str, Any] = {}
    seen: list[Any] = []
    for package in ("isometry", "isometry.deep", *PACKAGES):
        module = importlib.import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            if not any(value is other for other in seen):
                seen.append(value)
                out[f"{package}.{name}"] = value
    return out


def summary(names: list[str], module: str) -> list[str]:
    """A table of names, each with a page of its own."""
    short = [f"   {name.removeprefix(module + '.')}" for name in sorted(names, key=str.lower)]
    return [
        f".. currentmodule:: {module}",
        "",
        ".. autosummary::",
        "   :toctree: .",
        "   :nosignatures:",
        "",
        *short,
        "",
    ]


def page() -> str:
    found = public()
    lines = heading("Reference", "=")
    lines += [
        "Every public name, with its parameters. :doc:`The methods </methods/index>` have pages of their own.",
        "",
    ]
    left = dict(found)
    lines += heading("isometry", "-")
    for family in [f for f in FAMILIES if f != "deep"]:
        names = {f"isometry.{m.target.split(':')[1]}" for m in METHODS if m.family == family} & left.keys()
        lines += [*heading(f"{family.capitalize()} methods", "~"), *summary(list(names), "isometry")]
        left = {name: value for name, value in left.items() if name not in names}
    own = [name for name in left if name.count(".") == 1]
    lines += [*heading("Supervision, wrappers and tools", "~"), *summary(own, "isometry")]
    lines += heading("isometry.deep", "-")
    deep = {name for name in left if name.startswith("isometry.deep.")}
    for kind, words in KIND_WORDS.items():
        rows = (m for m in METHODS if m.family == "deep" and m.kind == kind)
        names = {f"isometry.deep.{m.target.split(':')[1]}" for m in rows} & deep
        deep -= names
        if names:
            lines += [*heading(words.capitalize(), "~"), *summary(list(names), "isometry.deep")]
    lines += [*heading("Training, networks, data", "~"), *summary(list(deep), "isometry.deep")]
    for package, words in PACKAGES.items():
        names = {name for name in left if name.rpartition(".")[0] == package}
        if names:
            lines += [*heading(package, "-"), words, "", *summary(list(names), package)]
    return "\n".join(lines)


def template(kind: str) -> str:
    """How autosummary writes the page of a class or of anything else."""
    lines = ["{{ objname | escape | underline }}", "", ".. currentmodule:: {{ module }}", ""]
    if kind == "class":
        return "\n".join(
            [
                *lines,
                ".. autoclass:: {{ objname }}",
                "   :members:",
                "   :inherited-members: {{ 'Module' if module.startswith('isometry.deep') else 'BaseEstimator' }}",
                "",
            ]
        )
    return "\n".join([*lines, ".. auto{{ objtype }}:: {{ objname }}", ""])


def pages() -> dict[str, str]:
    templates = {f"_templates/autosummary/{kind}.rst": template(kind) for kind in ("class", "base")}
    return {"api/index.rst": page(), **templates}
