"""One row of the method table."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FAMILIES = ("spectral", "geometric", "kernel", "probabilistic", "deep")


@dataclass(frozen=True, eq=False)
class Method:
    """What the library knows about one method of the survey; tests, CLI and docs read it from here.

    ``target`` names the object as ``"module:attribute"`` so that listing methods imports none of them (nor torch).
    """

    key: str  # id in the method table: M06, P13, D21; unique
    name: str  # what the user writes: RCA
    title: str  # a line for humans
    family: str  # one of FAMILIES
    kind: str  # "estimator"; in the deep family also "loss", "miner", "network", "objective", "head", "sampler"
    sees: str  # supervision: none, labels, pairs, chunklets, triplets, candidates, ... ; a comma joins alternatives
    equation: str  # the problem it solves, in plain text or LaTeX-free maths
    cite: str  # the reference
    section: str  # title of the survey's section
    deviates: str  # where the code departs from the survey's printed equations, and why; "" if nowhere
    target: str  # "isometry.spectral.rca:RCA"
    params: Mapping[str, Any] = field(default_factory=dict)  # constructor arguments that make the class this method
    test_params: Mapping[str, Any] = field(default_factory=dict)  # further arguments that keep tests quick
    xfails: Mapping[str, str] = field(
        default_factory=dict
    )  # scikit-learn check or contract test -> the reason it cannot hold
    traits: frozenset[str] = frozenset()  # claims the contract suite tests: see tests/test_contract.py
    below_euclidean: str = ""  # why accuracy may fall below Euclidean by more than two points, if it may

    def load(self) -> Any:
        """The class or factory itself."""
        module, attribute = self.target.split(":")
        return getattr(importlib.import_module(module), attribute)

    def make(self, **params: Any) -> Any:
        """A new instance; ``params`` override the row's own."""
        return self.load()(**{**self.params, **params})

    def example(self, **params: Any) -> Any:
        """A new instance with parameters that suit small test problems."""
        return self.make(**{**self.test_params, **params})
