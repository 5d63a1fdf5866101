"""What a constructor of the registry refuses: every number that cannot be, by its name and with its range."""

from __future__ import annotations

import inspect
import math

import pytest

from isometry.registry import all_methods

KINDS = ("loss", "head", "pair loss", "regularizer", "miner")
MAKE = {
    f"{m.key} {m.name}": m.example
    for m in all_methods(family="deep")
    if m.kind in KINDS and not inspect.isabstract(m.load())
}
ABOVE_ZERO = {"temperature", "scale", "rank_temperature", "teacher_temperature"}
EXTENTS = {"num_classes", "embedding_size"}

# Values of a margin beyond its range, and what is said of them; None: any finite number is a margin.
ANGLE, COSINE = r"must lie in \[0, π/2\]", r"must lie in \[-1, 1\]: it is a cosine"
MARGINS = {
    **dict.fromkeys(("CosFace", "ProxyAnchor", "OrthoHash", "NonIsotropy", "BlackboxAP"), ((-0.1,), "not be negative")),
    **dict.fromkeys(("ArcFace", "SubCenterArcFace", "AdaFace", "CurricularFace", "ElasticFace"), ((-0.1, 28.6), ANGLE)),
    **dict.fromkeys(("SphereFace", "LargeMarginSoftmax"), ((0, 9), "must lie in 1 … 8")),
    "Circle": ((0, 1, -0.1, 1.5), r"must lie in \(0, 1\)"),
    "TupletMargin": ((-0.1, 5.73), r"must lie in \[0, 1\]: it is an angle in radians"),
    "RankedList": ((0, -0.1), "must be positive"),
    "ThresholdConsistentMargin": ((-1.1, 1.1), COSINE),
    "ROADMAP": ((-1.1, 1.1), COSINE),
    **dict.fromkeys(("MegaBatchMargin", "GuidedRanking", "PairMargin", "TripletMargin", "Contrastive"), None),
    **dict.fromkeys(("GeneralizedContrastive", "Triplet", "Tuplet", "TripletGlobal", "SoftTriple", "Hinge"), None),
    **dict.fromkeys(("FisherTriplet", "FisherContrastive", "Lifted", "CenterTriplet", "MarginLoss"), None),
    "VirtualSampleDA": None,
}


def parameters(key):
    """The class of a row, and the names and defaults of its numbers."""
    kind = type(MAKE[key]())
    found = inspect.signature(kind.__init__).parameters.values()
    numbers = {p.name: p.default for p in found if isinstance(p.default, int | float) and type(p.default) is not bool}
    return kind, numbers


@pytest.mark.parametrize("value", [math.nan, "wide"])
@pytest.mark.parametrize("key", MAKE)
def test_what_is_no_number_is_named(key, value):
    for name in parameters(key)[1].keys() - {"random_state"}:
        with pytest.raises(ValueError, match=name):
            MAKE[key](**{name: value})


@pytest.mark.parametrize("key", MAKE)
def test_what_must_be_finite_is_named(key):
    for name in parameters(key)[1].keys() - {"random_state", "low"}:  # terms from −∞ on are all terms
        with pytest.raises(ValueError, match=f"{name}.*inf"):
            MAKE[key](**{name: math.inf})


@pytest.mark.parametrize("value", [0, -1.0])
@pytest.mark.parametrize("key", MAKE)
def test_temperatures_and_scales_are_above_zero(key, value):
    for name in parameters(key)[1].keys() & ABOVE_ZERO:
        with pytest.raises(ValueError, match=f"^{name}={value} must be positive"):
            MAKE[key](**{name: value})


@pytest.mark.parametrize("key", MAKE)
def test_margins_outside_their_range_are_named(key):
    kind, numbers = parameters(key)
    margins = {name for name in numbers if name.endswith("margin") and name != "cosine_margin"}
    if not margins:
        return
    assert kind.__name__ in MARGINS
    values, words = MARGINS[kind.__name__] or ((), "")
    for name in margins:
        for value in values:
            with pytest.raises(ValueError, match=f"^{name}={value} .*{words}"):
                MAKE[key](**{name: value})


@pytest.mark.parametrize("value", [0, -3, 2.5])
@pytest.mark.parametrize("key", MAKE)
def test_sizes_are_counts(key, value):
    if type(MAKE[key]()).__name__ in {"MarginLoss", "DistanceWeighted", "CrossBatchMemory"}:
        return  # they need no table of classes, or say what they lack in their own words
    kind = type(MAKE[key]())
    given = inspect.signature(kind.__init__).parameters
    for name in given.keys() & EXTENTS:
        if given[name].default is inspect.Parameter.empty:
            with pytest.raises(ValueError, match=f"^{name}={value} must be"):
                MAKE[key](**{name: value})
