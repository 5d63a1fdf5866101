"""Rows of the miners: which positives and negatives of a batch a loss gets to see."""

from __future__ import annotations

from functools import partial

from isometry.registry.method import Method

_miner = partial(Method, kind="miner", own_sees="labels")
_NOT_ITSELF = (
    "A point is not its own positive: the sums over the class of x_i leave out i, which the survey does not say."
)

# a row is a line or two of facts, then prose
# fmt: off
ROWS: tuple[Method, ...] = (
    _miner("D31", "isometry.deep.miners:BatchAll", "Triplet Mining",
        deviates=_NOT_ITSELF),
    _miner("D32", "isometry.deep.miners:BatchHard", "Triplet Mining",
        deviates="An anchor that is alone in its class is skipped."),
    _miner("D33", "isometry.deep.miners:BatchSemiHard", "Triplet Mining",
        deviates="A pair without such a negative, which the survey leaves undefined, is skipped or gets the easiest."),
    _miner("D34", "isometry.deep.miners:EasyPositive", "Triplet Mining",
        deviates=_NOT_ITSELF),
    _miner("D40", "isometry.deep.miners:Extreme", "Triplet Mining"),
    _miner("D41", "isometry.deep.miners:RandomTriplets", "Triplet Sampling"),
    _miner("D42", "isometry.deep.miners:DistanceWeighted", "Triplet Sampling", test_params={"embedding_size": 4},
        deviates="The exponent is (p − 3)/2 with the dimension of the embedding, not the batch size. d is the "
        "unsquared distance of unit vectors. Far negatives are cut off, where 1/q grows again."),
    _miner("E13m", "isometry.deep.miners:MultiSimilarityMiner", "beyond the survey",
        deviates="An anchor that is itself among the references is known by its index; the authors' code takes every "
        "similarity above 1 − 1e-5 for the anchor."),
    # -- rules for pairs and triplets
    _miner("E46p", "isometry.deep.pair_miners:PairMargin", "beyond the survey"),
    _miner("E46t", "isometry.deep.pair_miners:TripletMargin", "beyond the survey",
        deviates="Margins are in the unit of the loss's distance, small for close pairs."),
    _miner("E46h", "isometry.deep.pair_miners:HDC", "beyond the survey",
        deviates="The selection of one level; the cascade of networks that it was published for is not part of it."),
    _miner("E46u", "isometry.deep.pair_miners:UniformHistogram", "beyond the survey",
        deviates="Pairs of a bin are drawn without replacement, in pytorch-metric-learning with it."),
    _miner("E46a", "isometry.deep.pair_miners:AngularMiner", "beyond the survey"),
    _miner("E46r", "isometry.deep.pair_miners:Ranked", "beyond the survey"),
    _miner("E46o", "isometry.deep.pair_miners:Overlap", "beyond the survey"),
    _miner("E46i", "isometry.deep.pair_miners:InRange", "beyond the survey"),
    _miner("E46m", "isometry.deep.pair_miners:AtMost", "beyond the survey"),
)
