"""A page for every row of the method table, the gallery of all of them, and the table that a choice ends in."""

from __future__ import annotations

import inspect
import re
import textwrap
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

from docs.docstrings import linked, math_block, references, tolerant, with_scripts
from docs.measured import measured, seconds_text
from docs.proofs import proofs
from docs.toys import slug, why_not
from isometry.registry import FAMILIES, METHODS, Method

BEYOND = "beyond the survey"
SURVEY = (
    "B. Ghojogh, A. Ghodsi, F. Karray, M. Crowley, "
    '"Spectral, probabilistic, and deep metric learning: tutorial and survey", arXiv 2201.09267, 2022'
)
FAMILY_WORDS = {
    "spectral": "Linear maps from eigenproblems and convex programmes.",
    "geometric": "Metrics as points of a curved space: geodesics, manifolds, matrices as samples.",
    "kernel": "Linear methods in the feature space of a kernel: curved in yours.",
    "probabilistic": "Metrics from likelihoods: neighbours at random, posteriors, information.",
    "deep": "Losses, miners, samplers and objectives for networks.",
}
KIND_WORDS = {
    "estimator": "learners",
    "loss": "losses",
    "pair loss": "losses of pairs",
    "head": "losses with a classifier",
    "regularizer": "regularizers",
    "miner": "miners",
    "sampler": "samplers",
    "objective": "ways of training",
    "network": "parts of networks",
}


def heading(text: str, sign: str) -> list[str]:
    return [text, sign * max(len(text), 4), ""]


def wrapped(text: str) -> list[str]:
    return [*textwrap.wrap(with_scripts(_escaped(text)), 116, break_long_words=False, break_on_hyphens=False), ""]


def _escaped(text: str) -> str:
    """Prose of the registry as reStructuredText: nothing in it is markup."""
    return re.sub(r"([*|\\]|_(?=\W|$)|`)", r"\\\1", text)


def _class(method: Method) -> str:
    return method.target.split(":")[1]


def public_name(method: Method) -> str:
    """Where users import it from: isometry.RCA, isometry.deep.Triplet."""
    home = "isometry.deep" if method.family == "deep" else "isometry"
    return f"{home}.{_class(method)}"


@cache
def parsed(method: Method) -> Any:
    """The sections of the docstring."""
    from numpydoc.docscrape import NumpyDocString

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return NumpyDocString(inspect.cleandoc(method.load().__doc__ or ""))


def does(method: Method) -> str:
    """What the first line of the docstring says after the name."""
    line = inspect.cleandoc(method.load().__doc__ or "").split("\n\n")[0]
    said = " ".join(line.split()).partition(": ")[2]
    return said if not method.own_title else ""


def is_linear(method: Method) -> bool | None:
    """Whether the map is linear; None for what is no learner."""
    if method.family == "deep":
        return None
    if method.family == "kernel":
        return False
    from isometry.base import LinearMetric

    return isinstance(method.make(), LinearMetric)


def map_words(method: Method) -> str:
    linear = is_linear(method)
    return "network" if linear is None else "linear" if linear else "curved"


def complexity(method: Method) -> str:
    """The first statement of cost in the notes, or beside the equation; what a parameter saves is not the cost."""
    stated = r"O\((?:[^()]|\([^()]*\))*\)(?: (?:time|memory|per iteration|an iteration|a batch))?"
    for part in ("Notes", "Extended Summary"):
        if found := re.search(stated, " ".join(" ".join(parsed(method)[part]).split())):
            return found[0]
    return ""


def in_words(method: Method) -> list[str]:
    """Who it is for, from what the contract suite tests of it."""
    out = []
    kinds = [k for k in method.sees.split(", ") if k != "none"]
    if kinds:
        text = kinds[0] if len(kinds) == 1 else f"{', '.join(kinds[:-1])} or {kinds[-1]}"
        out.append(f"Learns from {text}." if "none" not in method.sees else f"Needs no supervision; can use {text}.")
    elif method.family != "deep":
        out.append("Needs no supervision.")
    if method.family != "deep":
        out.append("The map is linear." if is_linear(method) else "The map is curved.")
        out.append(
            "Found by an iterative search."
            if "iterative" in method.traits
            else "Solved without a search, in one piece of linear algebra."
            if "objective" not in method.traits and "one-step" not in method.traits
            else ""
        )
        if "affine" in method.traits:
            out.append(
                "No change of units, nor any other invertible linear change of the features, changes the outcome."
            )
        elif "rotation" in method.traits:
            out.append("A rotation of the features changes nothing.")
        if "posterior" in method.traits:
            out.append("Knows how sure it is of a distance.")
        if hasattr(method.make(), "partial_fit"):
            out.append("Can go on learning from new samples (``partial_fit``).")
    if method.below_euclidean:
        out.append(f"Can fall below Euclidean distance: {_lower_first(method.below_euclidean)}")
    return [sentence for sentence in out if sentence]


def _lower_first(text: str) -> str:
    return text if text[:2].isupper() else text[0].lower() + text[1:]


def bibtex(method: Method) -> str:
    """The reference as an entry; its parts are read from the line that cites it."""
    found = re.match(r'(?P<authors>.*?), "(?P<title>.*)", (?P<venue>.*?)(?:,? (?P<year>(?:19|20)\d\d))?$', method.cite)
    if not found:
        return ""
    authors = " and ".join(part.strip() for part in found["authors"].split(", "))
    last = re.sub(r"\W", "", found["authors"].split(",")[0].split(" ")[-1].lower())
    first_word = re.sub(r"\W", "", found["title"].split(" ")[0].lower())
    fields = {
        "author": authors,
        "title": f"{{{found['title']}}}",
        "howpublished": found["venue"],
        "year": found["year"],
    }
    rows = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
    return "\n".join([f"@misc{{{last}{found['year'] or ''}{first_word},", *rows, "}"])


def section(method: Method) -> str:
    """The survey's section, with what was corrected there, or that the method is not in the survey."""
    if method.section == BEYOND:
        return "Beyond the survey."
    if any(m.deviates and m.section == method.section for m in METHODS):
        return f"Section :ref:`“{_escaped(method.section)}” <{section_label(method.section)}>`."
    return f"Section “{_escaped(method.section)}”."


def section_label(title: str) -> str:
    """The label of a section on the page of the survey."""
    return "survey-" + re.sub(r"\W+", "-", title.lower()).strip("-")


def parameter_lines(entries: Sequence[Any]) -> list[str]:
    out: list[str] = []
    for entry in entries:
        kind, said = "".join(tolerant([entry.type])), tolerant(list(entry.desc))
        head = f"**{_escaped(entry.name)}**" + (f" : {kind}" if kind and said else "")
        out += [head, *(f"   {line}".rstrip() for line in said or [kind]), ""]
    return out


def paragraphs(written: Sequence[str]) -> list[str]:
    """Paragraphs of a docstring, in which methods are links to their pages."""
    lines: list[str] = []
    for paragraph in written:
        if paragraph.strip():
            lines += [*linked(tolerant(inspect.cleandoc(paragraph).splitlines()), _addresses()), ""]
    return lines


@cache
def _addresses() -> dict[str, str]:
    """Name → markup of a link: to the page of a method, or to that of another public name."""
    methods = {m.name: f":doc:`{m.name} <{slug(m)}>`" for m in METHODS if m.name == _class(m)}
    return {**references(), **methods}


def page(method: Method) -> str:
    """The page of a row, in reStructuredText."""
    doc = parsed(method)
    name = method.name
    lines = [f".. _method-{method.key}:", "", *heading(name, "=")]
    said = does(method)
    lines += [".. rst-class:: lead", "", *paragraphs([method.title + (f": {said}" if said else ".")])]
    badges = [f":bdg-primary:`{method.family}`", f":bdg-secondary-line:`{map_words(method)}`"]
    badges += [f":bdg-info-line:`{kind}`" for kind in method.sees.split(", ") if kind != "none"]
    badges.append(":bdg-light:`beyond the survey`" if method.section == BEYOND else ":bdg-light:`in the survey`")
    lines += [" ".join(badges), ""]
    lines += [*heading("The problem", "-"), *math_block(method.equation)]
    extended = [p for p in "\n".join(doc["Extended Summary"]).split("\n\n") if p.strip()]
    if extended and inspect.cleandoc(extended[0]).rstrip(",") == _class_equation(method):
        extended = extended[1:]
    lines += paragraphs(extended)
    reason = why_not(method)
    if reason:
        lines += [".. rst-class:: no-picture", "", *wrapped(f"No picture: {_lower_first(reason)}")]
    else:
        how = "a small network, trained by it" if method.family == "deep" else "the settings of its paper"
        lines += [
            f".. figure:: ../_static/warps/{slug(method)}.png",
            f"   :alt: two sets of the plane and their grid after the map of {name}",
            "   :class: warp",
            "   :width: 520",
            "",
            f"   Stripes and half moons, with their grid, after the map of {_escaped(name)} ({how}), turned and scaled",
            "   to lie on the samples as they were. :doc:`All methods on the same sets <index>`.",
            "",
        ]
    lines += heading("For whom", "-")
    lines += [" ".join(in_words(method)), ""]
    lines += paragraphs("\n".join(doc["Notes"]).split("\n\n"))
    lines += [*heading("In use", "-"), *usage(method)]
    if doc["Parameters"]:
        lines += [*heading("Parameters", "-"), *parameter_lines(doc["Parameters"])]
    lines += [f"All methods and attributes: :obj:`{public_name(method)}`.", ""]
    lines += measured_lines(method)
    lines += [*heading("The survey", "-"), section(method), ""]
    if method.deviates:
        lead = "What is ours" if method.section == BEYOND else "Where the code departs from the print"
        lines += [f".. admonition:: {lead}", "", *(f"   {line}".rstrip() for line in wrapped(method.deviates))]
    told = proofs(method)
    if told:
        lines += ["Tests that hold it to its equation:", ""]
        lines += [f"- :ref:`{t.words} <{t.anchor}>`" for t in told[:6]] + [""]
    lines += heading("Reference", "-")
    if method.cite:
        lines += [*wrapped(method.cite + "."), ".. code-block:: bibtex", ""]
        lines += [f"   {line}" for line in (bibtex(method) or method.cite).splitlines()] + [""]
    else:
        lines += ["Euclid, *Elements*, book I, proposition 47, about 300 BC.", ""]
    return "\n".join(lines)


def _class_equation(method: Method) -> str:
    from isometry.registry.source import equation

    return equation(method.target)


def usage(method: Method) -> list[str]:
    """How it is called: the example of the docstring, or two lines."""
    example = parsed(method)["Examples"]
    if example:
        return [*example, ""]
    cls = _class(method)
    home, _, _ = public_name(method).rpartition(".")
    arguments = ", ".join(f"{k}={v!r}" for k, v in method.params.items())
    lines = [".. code-block:: python", "", f"   from {home} import {cls}", ""]
    if method.family != "deep":
        return [*lines, f"   metric = {cls}({arguments}).fit(X, y)", "   Z = metric.transform(X)", ""]
    return [*lines, f"   {cls}({arguments or '...'})", ""]


def measured_lines(method: Method) -> list[str]:
    found = measured().get(method.key)
    if not found:
        return []
    return [
        *heading("Measured", "-"),
        f"On {found.sets} real tables: {found.gain:+.1f} points of 3-NN accuracy over Euclidean distance on average, "
        f"mean rank {found.rank:.1f}, {seconds_text(found.seconds)} of CPU for a fit (median). "
        ":doc:`How this was measured </results/accuracy>`.",
        "",
    ]


def gallery() -> str:
    """The front page of the methods: all of them as small multiples."""
    lines = [*heading("The methods", "=")]
    drawn = sum(not why_not(m) for m in METHODS)
    lines += [
        ".. rst-class:: lead",
        "",
        f"{len(METHODS)} methods, one page each. The same two sets of the plane, stripes that lie side by side and",
        f"half moons, after the map of each of the {drawn} that have one. A colour is a class, the grid shows how the",
        "plane was bent.",
        "",
        ".. figure:: ../_static/warps/as-they-are.png",
        "   :alt: the two sets before any map",
        "   :class: warp",
        "   :width: 420",
        "",
        "   The two sets as they are.",
        "",
    ]
    hidden = []
    for family in FAMILIES:
        rows = [m for m in METHODS if m.family == family]
        lines += [*heading(family.capitalize(), "-"), FAMILY_WORDS[family], ""]
        for kind in KIND_WORDS:
            some = sorted((m for m in rows if m.kind == kind), key=lambda m: m.section == BEYOND)  # the survey's first
            if not some:
                continue
            if family == "deep":
                lines += heading(KIND_WORDS[kind].capitalize(), "~")
            lines += [".. raw:: html", "", '   <div class="multiples">']
            for m in some:
                picture = (
                    f'<img loading="lazy" width="215" height="107" alt="" src="../_static/warps/{slug(m)}.png">'
                    if not why_not(m)
                    else f'<span class="blank">{why_not(m)}</span>'
                )
                lines.append(f'   <a class="multiple" href="{slug(m)}.html" title="{_html(m.title)}">{picture}')
                lines.append(f'   <span class="name">{_breakable(m.name)}</span></a>')
            lines += ["   </div>", ""]
            hidden += [f"   {slug(m)}" for m in some]
    lines += [".. toctree::", "   :hidden:", "", *hidden, ""]
    return "\n".join(lines)


def _breakable(name: str) -> str:
    """A name that may be broken between its words, if it is longer than its picture is wide."""
    return re.sub(r"(?<=[a-z])(?=[A-Z][a-z])|(?=\[)", "<wbr>", name)


def _html(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")


def choice_table() -> str:
    """Learners with what they learn from, whether their map is linear, cost, time and rank; in Markdown."""
    lines = [
        "| method | rank | points | fit | cost | learns from | map | family |",
        "|---|--:|--:|--:|---|---|---|---|",
    ]
    rows = [m for m in METHODS if m.kind == "estimator" and m.family != "deep"]
    rows.sort(key=lambda m: (measured()[m.key].rank if m.key in measured() else 1e9, m.name.lower()))
    for m in rows:
        found = measured().get(m.key)
        numbers = [f"{found.rank:.1f}", f"{found.gain:+.1f}", seconds_text(found.seconds)] if found else ["—", "—", "—"]
        cost = complexity(m).replace(" ", "\N{NO-BREAK SPACE}") or "—"
        cells = [f"[{m.name}](methods/{slug(m)}.rst)", *numbers, cost, m.sees, map_words(m), m.family]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join([*lines, ""])


def pages() -> dict[str, str]:
    """Path → text."""
    found = {f"methods/{slug(m)}.rst": page(m) for m in METHODS}
    return {"methods/index.rst": gallery(), "choice_table.txt": choice_table(), **found}
