"""Stamps of code: they change with what a result depends on, and with nothing else."""

from __future__ import annotations

import pytest

from benchmarks.accuracy import CHOICE, HERE, Row, rows, stamp
from benchmarks.stamps import Code, on_disk

FILES = {
    "isometry/method.py": '''
"""A method."""
from isometry.core import maths
from isometry.core.steps import step as one, unused
from isometry.passing import passed

SIZE = 3
OTHER = 4

class Method:
    """It learns."""

    depth: int = 1

    def fit(self, X):
        """Learn."""
        from isometry.core.late import late
        return maths.root(X) + one(X) + late(SIZE) + self._part(X) + getattr(self, "by_name")() + passed(X)

    def _part(self, X): return X
    def by_name(self): return 0
    def save(self, path): return path
''',
    "isometry/passing.py": "from isometry.core.steps import further as passed\n",
    "isometry/core/__init__.py": "",
    "isometry/core/maths.py": """
def root(x): return helper(x)
def helper(x): return x
def alone(x): return x
""",
    "isometry/core/steps.py": """
def step(x): return 1
def further(x): return 2
def unused(x): return 3
""",
    "isometry/core/late.py": "def late(x):\n    return x\n",
}
ROOT = [("isometry.method", "Method")]


def stamp_of(changes=(), **more):
    files = dict(FILES)
    for path, old, new in changes:
        assert old in files[path]
        files[path] = files[path].replace(old, new)
    return Code(files.get).stamp(ROOT, calls=("fit",), **more)


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("isometry/method.py", '"""It learns."""', '"""It learns more."""'),
        ("isometry/method.py", '"""Learn."""', ""),
        ("isometry/method.py", "SIZE = 3", "SIZE  =  3  # why"),
        ("isometry/method.py", "OTHER = 4", "OTHER = 5"),
        ("isometry/method.py", "def _part(self, X): return X", "def _part(self, X: int) -> int:\n        return X"),
        ("isometry/method.py", "return path", "return [path]"),  # nothing calls it
        ("isometry/core/steps.py", "return 3", "return 4"),
        ("isometry/core/maths.py", "def alone(x): return x", ""),
    ],
)
def test_what_has_no_part_in_a_result_leaves_a_stamp_as_it_is(path, old, new):
    assert stamp_of([(path, old, new)]) == stamp_of()


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("isometry/method.py", "SIZE = 3", "SIZE = 4"),
        ("isometry/method.py", "depth: int = 1", "depth: int = 2"),
        ("isometry/method.py", "def _part(self, X): return X", "def _part(self, X): return -X"),
        ("isometry/method.py", "by_name(self): return 0", "by_name(self): return 1"),
        ("isometry/core/maths.py", "def helper(x): return x", "def helper(x): return -x"),
        ("isometry/core/steps.py", "return 1", "return 10"),
        ("isometry/core/steps.py", "return 2", "return 20"),  # through a module that passes it on
        ("isometry/core/late.py", "return x", "return -x"),  # imported inside a function
    ],
)
def test_what_a_result_depends_on_changes_its_stamp(path, old, new):
    assert stamp_of([(path, old, new)]) != stamp_of()
    module = path.removesuffix(".py").replace("/", ".")
    assert stamp_of([(path, old, new)], without=[module]) == stamp_of(without=[module]) or module == "isometry.method"


def read_with(path, old, new):
    def read(asked):
        text = on_disk(asked)
        if asked != path:
            return text
        assert old in text
        return text.replace(old, new)

    return Code(read)


def test_a_cell_is_of_its_method_its_mathematics_and_its_settings():
    published, automatic = Row("M06", "published"), Row("M06", "automatic")
    other_rule = read_with("isometry/strength.py", "ERRORS_TO_LEAVE = 2.5", "ERRORS_TO_LEAVE = 2.6")
    assert stamp(automatic, other_rule) != stamp(automatic)
    assert stamp(published, other_rule) == stamp(published) != stamp(automatic)
    other_maths = read_with("isometry/core/linalg.py", "def top_eigenvectors(", "@other\ndef top_eigenvectors(")
    assert stamp(published, other_maths) != stamp(published)
    next_version = read_with("isometry/__init__.py", "__version__ = ", "__version__ = 'next' or ")
    assert stamp(published, next_version) == stamp(published)
    assert stamp(Row("AutoMetric", "automatic"), other_maths) != stamp(Row("AutoMetric", "automatic"))


def test_stamps_of_automatic_rows_cover_the_choice():
    for row in rows():
        if row.setting == "published" or row.method is None:
            continue
        module, _, name = row.method.target.partition(":")
        reached = {part for part, _ in HERE.reachable([(module, name)], calls=("fit", "transform"))}
        assert reached & set(CHOICE), row.name
