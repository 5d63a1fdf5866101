"""Learners beyond the survey: all are listed, checked and proved."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from isometry.registry import METHODS, get
from isometry.registry.around import ROWS as AROUND
from tests.test_conformance import _CLASSICAL
from tests.test_contract import METHODS as UNDER_CONTRACT
from tests.test_contract import OTHER_SAMPLES, TABLE

# what stands for which name elsewhere → the letters of its proof tests
PROOFS = {
    "B01": "abcde",  # LFDA, SELF
    "B02": "abcd",  # MLKR
    "B03": "abcd",  # SIR
    "B04": "abcdef",  # SDML
    "B05": "abcde",  # LSML
    "B06": "abcd",  # SCML
    "B07": "abcd",  # ANMM
    "B08": "abc",  # MFA
    "B09": "abcd",  # DMLMJ
    "B10": "abcde",  # NCMML, NCMC
    "B11": "abcd",  # GMLVQ
    "B12": "abcd",  # DML-eig
    "B13": "abcde",  # KISSME, XQDA
    "B14": "abcde",  # PLDA, Joint Bayesian
    "B15": "abcd",  # RVML
    "B16": "abcd",  # RGML
    "B17": "abcde",  # relative comparisons: S&J, SML, PRDC, LDMLT, LODML
    "B18": "abcd",  # BoostMetric
    "B19": "abcd",  # MLR
    "B20": "abcd",  # OASIS
    "B21": "abcd",  # POLA
    "B22": "abcd",  # GB-LMNN
    "B23": "abcd",  # χ²-LMNN
    "B24": "abc",  # mt-LMNN
    "B25": "abcdef",  # PCA, ZCA, all-but-the-top, NAP, WCCN
    "B26": "abcd",  # CCA, Procrustes
    "B27": "abcd",  # unit length
    "B28": "abcd",  # hubs
}
VARIANTS = [
    "B01s",
    "B13x",
    "B14e",
    "B15l",
    "B17d",
    "B17o",
    "B17p",
    "B17t",
    "B26p",
    "B01k",
    "B07k",
    "B08k",
    "B09k",
    "B13k",
    "B26k",
    "B29",
]
HERE = Path(__file__).resolve().parent


def tests_by_id():
    """(key, letter) of every test whose name has them: test_B13ab_… is one of B13a and of B13b."""
    found = set()
    for file in HERE.rglob("test_*.py"):
        for name in re.findall(r"^def (test_B\d\d\w+)", file.read_text("utf-8"), re.M):
            for key, letters in re.findall(r"(B\d\d)([a-f]+)(?=_)", name):
                found |= {(key, letter) for letter in letters}
    return found


@pytest.mark.parametrize("key", PROOFS)
def test_each_proof_is_a_test(key):
    assert not sorted({(key, letter) for letter in PROOFS[key]} - tests_by_id())


def test_all_are_in_the_table():
    keys = {m.key for m in (*METHODS, *AROUND)}
    assert not sorted({*PROOFS, *VARIANTS} - keys)


@pytest.mark.parametrize("key", [*(k for k in PROOFS if k not in ("B27", "B28")), *VARIANTS])
def test_learners_go_through_both_suites(key):
    """scikit-learn's checks and our contract; what takes no rows of any table has a contract of its own."""
    row = get(key)
    assert row.kind == "estimator" and row in _CLASSICAL and row in UNDER_CONTRACT
    assert row in TABLE or OTHER_SAMPLES & set(row.traits)
