"""Names that packages export: where another one is, and what must be installed for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import isometry


@pytest.mark.parametrize(
    ("package", "name", "words"),
    [
        ("isometry", "Triplet", "it is in isometry.deep: from isometry.deep import Triplet"),
        ("isometry.deep", "LMNN", "it is in isometry: from isometry import LMNN"),
        ("isometry", "LMMN", "did you mean isometry.LMNN?"),
        ("isometry.deep", "Triplett", "did you mean isometry.deep.Triplet?"),
        ("isometry", "zzzzzzzz", "`isometry list` shows every method"),
    ],
)
def test_a_name_that_is_not_there_says_where_it_is(package, name, words):
    with pytest.raises(AttributeError) as caught:
        getattr(isometry if package == "isometry" else isometry.deep, name)
    assert str(caught.value).startswith(f"module {package!r} has no attribute {name!r}") and words in str(caught.value)


@pytest.mark.parametrize("missing", ["torch", "accelerate"])
@pytest.mark.parametrize("use", ["isometry.deep.DeepMetric", "from isometry.deep import DeepMetric"])
def test_without_torch_the_extra_is_named(missing, use):
    if missing == "accelerate":
        pytest.importorskip("torch")
    code = f"import sys; sys.modules[{missing!r}] = None; import isometry; {use}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert last == f'ModuleNotFoundError: isometry.deep.DeepMetric needs {missing}: pip install "isometry[deep]"'


def test_without_torch_a_loss_names_the_extra():
    code = "import sys; sys.modules['torch'] = None; import isometry; isometry.deep.Triplet"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert 'isometry.deep.Triplet needs torch: pip install "isometry[deep]"' in done.stderr
