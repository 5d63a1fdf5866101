"""Rows of the samplers: which samples come in a batch, and what is drawn in their place."""

from __future__ import annotations

from functools import partial

from isometry.registry.method import Method

_sampler = partial(Method, kind="sampler", own_sees="labels")
_SIZES = {"num_classes": 4, "embedding_size": 4}  # for tests: embeddings (B, 4) of four classes
_LABELS = (0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3)

# a row is a line or two of facts, then prose
# fmt: off
ROWS: tuple[Method, ...] = (
    _sampler("D15", "isometry.deep.tuples:TripletSampler", "Pairs and Triplets of Data Points",
        test_params={"labels": _LABELS},
        deviates="An anchor may have several triplets in an epoch. With augmentation every other instance counts as "
        "a negative, those of the same unknown class too."),
    _sampler("D15k", "isometry.deep.samplers:PKBatchSampler", "Triplet Mining",
        test_params={"labels": _LABELS, "classes_per_batch": 2, "samples_per_class": 2}),
    _sampler("D15p", "isometry.deep.tuples:PairSampler", "Pairs and Triplets of Data Points",
        test_params={"labels": _LABELS}),
    _sampler("D15v", "isometry.deep.tuples:ViewsDataset", "Pairs and Triplets of Data Points", own_sees="views",
        test_params={"samples": (0.0, 1.0), "augment": float}),
    _sampler("D40o", "isometry.deep.offline:OfflineTripletSampler", "Triplet Mining",
        test_params={"labels": _LABELS, "embeddings": None}),
    _sampler("D44", "isometry.deep.class_gaussians:BUT", "Triplet Sampling", test_params=_SIZES,
        deviates="The mean of the inverse Wishart posterior is Υ/(n − p − 1), not Υ⁻¹/(n − p − 1). The scatter is "
        "kept, not that mean: recycled, it inflates with every batch. With fewer than 2(p + 1) samples the covariance "
        "is shrunk instead. As many positives are drawn as there are other classes."),
    _sampler("D44n", "isometry.deep.class_gaussians:BUNCA", "Triplet Sampling", test_params=_SIZES,
        deviates="As for the triplet form. The positive stands in the denominator; without it, as printed, the loss "
        "is unbounded below. The survey's text names a contrastive loss where the NCA loss is meant."),
    _sampler("D52", "isometry.deep.samplers:EpisodeSampler", "Few-shot Metric Learning",
        test_params={"labels": _LABELS, "n_way": 2, "k_query": 2},
        deviates="k_s points of each class, not k_s in all."),
    _sampler("E48", "isometry.deep.row_samplers:NoDuplicates", "beyond the survey", own_sees="columns",
        test_params={"keys": _LABELS, "batch_size": 4}),
    _sampler("E48m", "isometry.deep.row_samplers:MultiSource", "beyond the survey", own_sees="none",
        test_params={"sizes": (6, 4), "batch_size": 4}),
)
