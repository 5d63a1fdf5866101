"""Model files that are damaged, forged or mutated, by the thousand: `load` reads wrong numbers or raises StoreError.

For every file it is asserted that nothing else leaves `load`, that nothing is imported, run or opened (an audit hook
and ``sys.modules`` tell; the classes that a file may name are imported before), and that memory stays within four times
the file, plus a megabyte for the Python objects of a small header. Large files get no such allowance.
"""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from isometry.io import save
from isometry.kernel import KernelFisherML
from tests.io.forgeries import (
    TREES,
    attempt,
    examine,
    make_originals,
    make_watchman,
    mutate_bytes,
    mutate_json,
    pack,
    tree_of,
    unpack,
    with_tree,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    return make_originals(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def watchman():
    return make_watchman()


@pytest.fixture(autouse=True)
def memory():
    tracemalloc.start()
    yield
    tracemalloc.stop()


def damaged(data, rng):
    """What disks, networks and editors do: cut, bits flipped, a stretch of zeros or of another place, line ends."""
    n = len(data)
    start, stop = sorted(rng.integers(0, n, size=2).tolist())
    yield data[:start]
    yield data[start:]
    yield data[:start] + bytes(stop - start) + data[stop:]
    yield data[:start] + data[stop:]
    yield data[:stop] + data[start:]
    yield data + rng.bytes(int(rng.integers(1, 100)))
    bits = bytearray(data)
    bits[start] ^= 1 << int(rng.integers(8))
    yield bytes(bits)
    yield data.replace(b"\n", b"\r\n") if b"\n" in data else data.replace(b" ", b"\n", 1)
    yield data.decode("latin1").encode("utf-8")


def test_five_hundred_damaged_files(originals, tmp_path, watchman):
    """The header may hold blanks, which can change; any other damage is found."""
    rng, count = np.random.default_rng(0), 0
    for _ in range(4):
        for data in originals:
            for bad in damaged(data, rng):
                if bad != data:
                    count += 1
                    read = attempt(bad, tmp_path / "m", watchman)
                    assert not read or len(bad) == len(data) or bad.split() == data.split()
    assert count >= 500


def test_five_hundred_forged_files(originals, tmp_path, watchman):
    """Trees of values chosen to harm, with a checksum that is right, alone and inside a model of each kind."""
    count = 0
    for k, data in enumerate(originals):
        for tree in TREES[k % 4 :: 4]:
            attempt(with_tree(data, tree), tmp_path / "m", watchman)
            inside = tree_of(data)
            inside["state"] = {**inside["state"], "extra_": tree}
            attempt(with_tree(data, inside), tmp_path / "m", watchman)
            count += 2
    assert count >= 500


def test_ten_thousand_mutants(originals, tmp_path, watchman):
    read = examine(10_000, originals, tmp_path / "m", watchman)
    assert 0 < read < 5_000  # some mutations change a harmless value


def test_ten_thousand_files_of_changed_bytes(originals, tmp_path, watchman):
    rng = np.random.default_rng(1)
    for k in range(10_000):
        attempt(mutate_bytes(originals[k % len(originals)], rng), tmp_path / "m", watchman)


def test_large_files_take_four_times_their_size_and_no_more(tmp_path, watchman):
    rng = np.random.default_rng(2)
    y = np.arange(600) % 3
    model = KernelFisherML(2).fit(rng.normal(size=(600, 400)) + y[:, None], y)
    save(model, tmp_path / "m")
    data = (tmp_path / "m").read_bytes()
    assert len(data) > 10**6
    assert attempt(data, tmp_path / "m", watchman, slack=0)
    header, body = unpack(data)
    for _ in range(300):
        for bad in (
            mutate_bytes(data, rng),
            pack(mutate_json(header, rng), body),
            with_tree(data, mutate_json(tree_of(data), rng)),
        ):
            attempt(bad, tmp_path / "m", watchman, slack=0 if len(bad) > 10**6 else 2**20)
