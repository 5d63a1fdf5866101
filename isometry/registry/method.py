"""One row of the method table."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from isometry.registry import source

FAMILIES = ("spectral", "geometric", "kernel", "probabilistic", "deep")


@dataclass(frozen=True, eq=False)
class Method:
    """What the library knows about one method of the survey; tests, CLI and docs read it from here.

    A row holds what the class cannot know. What the class says itself (its docstring, the supervision it names) is read
    from its source when it is asked for, so that listing methods imports none of them (nor torch).

    Attributes
    ----------
    key : str
        Id in the method table, such as M06, P13 or D21; unique.
    target : str
        The class or function, "isometry.spectral.rca:RCA".
    section : str
        Title of the survey's section.
    deviates : str
        Where the code departs from the survey's printed equations, and why; "" if nowhere.
    kind : str
        "estimator"; in the deep family also "loss", "pair loss", "regularizer", "miner", ….
    variant : str
        Name of a variant: "log" makes this row NCA[log], the class with ``params``.
    params : mapping
        Constructor arguments that make the class this method.
    published : mapping
        Arguments for the paper's method, where defaults adapt.
    as_it_is : str
        Why its defaults do not adapt to the data, of what learns from classes or pairs and does not.
    test_params : mapping
        Further arguments that keep tests quick.
    traits : tuple of str
        Claims that the contract suite tests.
    xfails : mapping
        Check that cannot hold → the reason.
    below_euclidean : str
        Why accuracy may fall below Euclidean by more than two points, if it may.
    reference : int
        Which of the class's References is the paper of this method.
    own_title : str
        Title in place of what the class says, for variants that differ from it.
    own_equation : str
        Equation in place of what the class says.
    own_sees : str
        For what is no estimator, the supervision it takes: "labels", "labels, pairs", "none", ….
    builds : str
        For a function, the class of the learner that it makes, which says what supervision it takes.

    Examples
    --------
    >>> from isometry.registry import get
    >>> row = get("RCA")
    >>> row.name, row.family, row.sees
    ('RCA', 'spectral', 'chunklets, labels, pairs')
    """

    key: str  # id in the method table: M06, P13, D21; unique
    target: str  # the class or function: "isometry.spectral.rca:RCA"
    section: str  # title of the survey's section
    _: KW_ONLY
    deviates: str = ""  # where the code departs from the survey's printed equations, and why; "" if nowhere
    kind: str = "estimator"  # in the deep family also "loss", "pair loss", "regularizer", "miner", …
    variant: str = ""  # "log" makes this row NCA[log]: the class with ``params``
    params: Mapping[str, Any] = field(default_factory=dict)  # constructor arguments that make the class this method
    published: Mapping[str, Any] = field(default_factory=dict)  # arguments for the paper's method, where defaults adapt
    as_it_is: str = ""  # why its defaults do not adapt to the data, of what learns from classes or pairs and does not
    test_params: Mapping[str, Any] = field(default_factory=dict)  # further arguments that keep tests quick
    traits: tuple[str, ...] = ()  # claims the contract suite tests: see tests/test_contract.py
    xfails: Mapping[str, str] = field(default_factory=dict)  # check that cannot hold -> the reason
    below_euclidean: str = ""  # why accuracy may fall below Euclidean by more than two points, if it may
    reference: int = 0  # which of the class's References is the paper of this method
    own_title: str = ""  # in place of what the class says, for variants that differ from it
    own_equation: str = ""
    own_sees: str = ""  # for what is no estimator: "labels", "labels, pairs", "none", ...
    builds: str = ""  # for a function: the class of the learner that it makes, which says what supervision it takes

    @property
    def family(self) -> str:
        """One of FAMILIES: the package of the class."""
        return self.target.split(".")[1]

    @property
    def name(self) -> str:
        """What the user writes: RCA, NCA[log]."""
        return self.target.split(":")[1] + (f"[{self.variant}]" if self.variant else "")

    @property
    def title(self) -> str:
        """The name in words."""
        return self.own_title or source.title(self.target)

    @property
    def equation(self) -> str:
        """The problem it solves, in plain text, of one line or several."""
        return self.own_equation or source.equation(self.target)

    @property
    def cite(self) -> str:
        """The reference; "" for the Euclidean distance, which has none."""
        references = source.references(self.target)
        return references[self.reference] if references else ""

    @property
    def sees(self) -> str:
        """Kinds of supervision it takes: "labels, pairs", "none", ...; a comma joins alternatives."""
        return self.own_sees or ", ".join(source.sees(self.builds or self.target))

    def load(self) -> Any:
        """The class or factory itself.

        Returns
        -------
        object
            The class or function.
        """
        module, attribute = self.target.split(":")
        return getattr(importlib.import_module(module), attribute)

    def make(self, **params: Any) -> Any:
        """A new instance.

        Parameters
        ----------
        **params : dict
            Arguments in place of the row's own.

        Returns
        -------
        object
            The instance.
        """
        return self.load()(**{**self.params, **params})

    def example(self, **params: Any) -> Any:
        """A new instance with parameters that suit small test problems.

        Parameters
        ----------
        **params : dict
            Arguments in place of the row's own.

        Returns
        -------
        object
            The instance.
        """
        return self.make(**{**self.test_params, **params})
