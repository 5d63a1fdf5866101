"""Exams of size: a million rows, and twenty thousand of all pairs, in bounded memory. Run by `make test-all`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

MILLION = """
import json, resource, sys, warnings
import numpy as np
import isometry
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
y = rng.integers(0, 100, 1_000_000)
X = rng.standard_normal((len(y), 128), dtype=np.float32)
X[:, :8] += (y % 10)[:, None]
learner = getattr(isometry, sys.argv[1])()
learner.fit(X[:10_000], y[:10_000])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
learner.fit(X, y)
print(json.dumps((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024))
"""

MEMORY = """
import json, resource, sys, warnings
import numpy as np, sklearn
import isometry
warnings.simplefilter("ignore")
sklearn.set_config(working_memory=256)
rng = np.random.default_rng(0)
y = rng.integers(0, 20, 20_000)
X = rng.standard_normal((20_000, 32)) + rng.standard_normal((20, 32))[y]
learner = getattr(isometry, sys.argv[1])
learner(max_iter=2).fit(X[:500], y[:500])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
learner(max_iter=2).fit(X, y)
print(json.dumps((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024))
"""


def run(code, *arguments):
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["GMML", "RCA", "DCA", "FisherML"])
def test_a_million_rows_need_no_copy_of_them(name):
    """Peak memory above X, which has 488 MiB in single precision. How long it takes is a matter of `make bench`."""
    mib = run(MILLION, name)
    print(name, mib)
    assert mib < 122  # a quarter


@pytest.mark.parametrize("name", ["NCA", "LMNN", "MCML"])
def test_twenty_thousand_rows_stay_under_a_gigabyte(name):
    """Peak memory above the data with working_memory=256."""
    mib = run(MEMORY, name)
    print(name, mib)
    assert mib < 1024
