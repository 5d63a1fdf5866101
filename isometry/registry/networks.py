"""Rows of the networks, and of the estimator that trains any of them."""

from __future__ import annotations

from functools import partial

from isometry.registry.method import Method

_network = partial(Method, kind="network", own_sees="none")

# a row is a line or two of facts, then prose
# fmt: off
ROWS: tuple[Method, ...] = (
    Method("D00", "isometry.deep.estimator:DeepMetric", "Deep Metric Learning",
        test_params={"n_components": 8, "max_epochs": 5, "min_steps": 20}),
    _network("D04", "isometry.deep.models.autoencoder:LinearAutoencoder",
        "Metric Learning by Reconstruction Autoencoder", test_params={"n_features": 5, "n_components": 2},
        deviates="It is PCA only for squares, without penalty, with centred samples or biases, and up to an "
        "invertible map of the code, whose directions are neither orthonormal nor ordered; canonicalise() makes them "
        "so."),
    _network("D07", "isometry.deep.losses.heads:Head", "Supervised Metric Learning by Supervised Loss Functions",
        own_sees="labels, targets",
        deviates="c outputs and one-hot targets for c classes: one output that regresses an integer label imposes an "
        "order. Convolutional features need not be flattened."),
    _network("D51", "isometry.deep.models.spd:SPDNet", "Geometric Metric Learning by Neural Network",
        own_sees="labels", test_params={"sizes": (4, 3), "n_components": 4},
        deviates="ε > 0: with max(λ, 0), as printed, the matrix is only semi-definite and its logarithm infinite. "
        "The layer acts on SPD matrices; the survey applies it to the data matrix (d × n) of layered geometric "
        "learning, which has no eigenvalues."),
    _network("E42", "isometry.deep.models.hyperbolic:ToPoincare", "beyond the survey",
        deviates="The distance between opposite points near the boundary is exact; the authors' code adds 1e-5 to a "
        "denominator and clamps, which makes 15.2 to 12.2. The loss is InfoNCE(distance=Poincare(c)); theirs sums over "
        "both orders of two views, twice as much."),
    _network("E45", "isometry.deep.models.heads:LowRankHead", "beyond the survey", test_params={"size": 4}),
    _network("E45g", "isometry.deep.models.heads:GatedHead", "beyond the survey", test_params={"size": 4}),
    _network("E45p", "isometry.deep.models.heads:GeM", "beyond the survey"),
)
