"""The survey, corrected: section by section, what was misprinted, what we compute, why, and the tests that prove it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from docs.docstrings import math_block
from docs.method_pages import BEYOND, SURVEY, heading, section_label, wrapped
from docs.proofs import proofs
from isometry.registry import METHODS, Method

PARTS = {
    "EM": "Spectral and geometric metric learning",
    "P": "Probabilistic metric learning",
    "D": "Deep metric learning",
}
FIGURES = {
    "EM": ("euclidean_mahalanobis", "contours"),
    "D": ("contrastive_triplet", "siamese"),
}
CAPTIONS = {
    "euclidean_mahalanobis": "Points at distance 1 from a point: a circle for Euclidean distance, an ellipse for a "
    "Mahalanobis one. The same two points (hollow) are equally far in one and not in the other.",
    "contours": "Distances from a sample of the middle class before, and after a metric was learned (GMML on the "
    "stripes): the contours lie along the class.",
    "contrastive_triplet": "Where each loss moves samples: minus the gradient of the contrastive and of the triplet "
    "loss at every point, computed by the library. Contrastive pulls whatever is alike, triplet only where an enemy is "
    "too near.",
    "siamese": "A Siamese network: two samples pass the same weights, and a loss compares where they end. A triplet "
    "network has three.",
}


def order(method: Method) -> tuple[str, int, str]:
    """Keys follow the survey: M06 before M12, M12 before M12h."""
    if method.key == "EUC":
        return "M", -1, ""
    found = re.match(r"([A-Z]+)(\d+)(.*)", method.key)
    assert found is not None
    return found[1], int(found[2]), found[3]


def sections(letters: str) -> Iterator[tuple[str, list[Method]]]:
    """Sections of a part of the survey that have something to correct, in its order."""
    rows = sorted((m for m in METHODS if m.key[0] in letters and m.section != BEYOND), key=order)
    titles = list(dict.fromkeys(m.section for m in rows))
    for title in titles:
        wrong = [m for m in rows if m.section == title and m.deviates]
        if wrong:
            yield title, wrong


def entry(method: Method) -> list[str]:
    """What we compute, what was printed otherwise and why, and the proof."""
    lines = [f":ref:`{method.name} <method-{method.key}>`", ""]
    lines += [
        *("   " + line for line in math_block(method.equation)),
        *("   " + line for line in wrapped(method.deviates)),
    ]
    told = proofs(method)[:3]
    if told:
        joined = ", ".join(f":ref:`{t.words} <{t.anchor}>`" for t in told)
        lines += [f"   Proved by: {joined}.", ""]
    return [line.rstrip() for line in lines]


def page() -> str:
    n = sum(1 for m in METHODS if m.deviates and m.section != BEYOND)
    lines = [
        *heading("The survey, corrected", "="),
        ".. rst-class:: lead",
        "",
        "isometry implements what *Spectral, Probabilistic, and Deep Metric Learning* surveys. As every long text, it",
        f"has misprints. Here are {n} entries, section by section: the equation as the code solves it, what the print",
        "says otherwise, why, and the tests that prove it. Methods without an entry follow the print.",
        "",
        *wrapped(SURVEY + "."),
    ]
    for letters, title in PARTS.items():
        lines += heading(title, "-")
        for name in FIGURES.get(letters, ()):
            lines += [
                f".. figure:: _static/survey/{name}.png",
                f"   :alt: {CAPTIONS[name].split(':')[0]}",
                "   :class: survey",
                "",
            ]
            lines += [*(f"   {line}".rstrip() for line in wrapped(CAPTIONS[name]))]
        for section, rows in sections(letters):
            lines += [f".. _{section_label(section)}:", "", *heading(section, "~")]
            for method in rows:
                lines += entry(method)
    beyond = [m for m in METHODS if m.deviates and m.section == BEYOND]
    lines += [
        *heading("Beyond the survey", "-"),
        "What is ours in methods that the survey does not have, and what we compute where a paper and the code of its",
        "authors differ.",
        "",
    ]
    for method in beyond:
        lines += [
            f":ref:`{method.name} <method-{method.key}>`",
            *(f"   {line}".rstrip() for line in wrapped(method.deviates)),
        ]
    return "\n".join(lines)


def pages() -> dict[str, str]:
    return {"survey.rst": page()}
