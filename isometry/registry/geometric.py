"""Rows of the geometric methods."""

from __future__ import annotations

from isometry.registry.method import Method

# a row is a line or two of facts, then prose
# fmt: off
ROWS: tuple[Method, ...] = (
    Method("D50", "isometry.geometric.layered:LayeredGMML", "Geometric Metric Learning by Neural Network",
        as_it_is="The map is not linear, so that a mixture needs the features beside its images: Shrunk makes "
        "one.",
        deviates="Without activation and with full rank, L layers are the single metric W^L: there is a tanh between "
        "them, a damping ρ = 1/L, and a warning. Rectifying eigenvalues is no activation for data vectors; it belongs "
        "to networks of SPD matrices. Activation and damping are ours."),
    Method("M23", "isometry.geometric.gmml:GMML", "Geometric Mean Metric Learning, Regular", traits=("rotation",),
        published={"reg": 0.0},
        deviates="The constraint is W ≻ 0. Means of pairs take the place of sums, so that a prior weighs the same "
        "for any count."),
    Method("M24", "isometry.geometric.gmml:GMML", "Geometric Mean Metric Learning, Regularized GMML",
        variant="regularised", params={"reg": 0.1}, traits=("rotation",),
        as_it_is="The pull towards the prior is what it shows, as given; GMML chooses it.",
        own_title="Geometric mean metric learning with a prior",
        deviates="In the survey's gradient the last term must be −λW⁻¹W₀W⁻¹; its solution is right."),
    Method("M25", "isometry.geometric.gmml:GMML", "Geometric Mean Metric Learning, Weighted GMML", variant="weighted",
        params={"t": 0.3}, traits=("rotation",),
        published={"reg": 0.1},
        own_title="Geometric mean metric learning, anywhere on the geodesic",
        own_equation="min_{W ≻ 0} (1 − t) δ²(W, A⁻¹) + t δ²(W, B):  W = A⁻¹ ♯_t B,  A = S + λW₀⁻¹,  B = D + λW₀",
        deviates="The δ² problem shares its minimiser with the trace problem at t = 1/2 only; δ is the Riemannian "
        "distance. The printed solution belongs to the regularised matrices."),
    Method("M26", "isometry.geometric.low_rank:LowRankGMML", "Low-rank Geometric Mean Metric Learning",
        traits=("rotation", "iterative"),
        published={"strength": 1.0},
        deviates="W has rank p, so W⁻¹ is the pseudo-inverse. B is a full SPD matrix, not eigenvalues; for a fixed B "
        "the objective depends on the basis, so B is eliminated and the search runs over subspaces. The subspace does "
        "not depend on t. Neither objective is free of scale: both scatters are scaled so that every m ≤ 1.",
        below_euclidean="The objective prefers directions in which both scatters are large, not directions that "
        "separate.",
        xfails={"test_beats_euclidean_on_a_planted_problem":
            "the objective ranks subspaces by the product of both scatters, so that it keeps the wide noise; "
            "subspace='discriminant' finds the signal"}),
    Method("M27", "isometry.geometric.partial_label:PartialLabelGMML",
        "Geometric Mean Metric Learning for Partial Labels", traits=("rotation",),
        as_it_is="Of a sample with several candidate labels nobody knows which neighbours are right, so that "
        "there is nothing to try a strength on.",
        deviates="Settled where the survey is silent: weights that are all 0 become uniform; if no unlike sample is "
        "near enough, the nearest unlike ones take the place, or all pairs if there are none; X is centred, as the "
        "residuals depend on the origin; both scatters are means with a relative ridge."),
    Method("M28", "isometry.geometric.spd:SPDGMML",
        "Geometric Mean Metric Learning on SPD and Grassmannian Manifolds", traits=("matrix-samples",),
        as_it_is="Its samples are matrices, whose Euclidean distance is not what it begins with.",
        deviates="The survey calls d_W a distance: it is a squared one. W ≻ 0, since W⁻¹ enters (printed ⪰). Means "
        "of pairs take the place of sums. The prior is ours; its weight is relative to the scatter, since logarithms "
        "have no natural unit."),
    Method("M29", "isometry.geometric.grassmann:GrassmannGMML",
        "Geometric Mean Metric Learning on SPD and Grassmannian Manifolds", traits=("matrix-samples",),
        as_it_is="Its samples are matrices, whose Euclidean distance is not what it begins with.",
        deviates="The survey's M, 'any matrix', is the factor of W, so that the differences depend on W and the "
        "closed form is one step of a fixed-point iteration: one pass from W = I by default, or repeated."),
    Method("M30", "isometry.geometric.drml:DRML", "Metric Learning on Stiefel and SPD Manifolds",
        traits=("rotation", "iterative", "objective"),
        published={"strength": 1.0},
        deviates="The exponent is the squared distance (printed unsquared, which is no Gaussian and not smooth at "
        "0). Means of pairs take the place of sums. Λ is strictly positive definite. Since (V, Λ) → (VO, OᵀΛO) "
        "changes nothing, the search runs over L = Λ^{1/2}Vᵀ without constraints, and Λ₀ acts through its "
        "eigenvalues."),
    Method("M32", "isometry.geometric.cdml:CDML", "Curvilinear Distance Metric Learning (CDML)",
        traits=("iterative",), test_params={"n_epochs": 5},
        as_it_is="The map is not linear, so that a mixture needs the features beside its images: Shrunk makes "
        "one.",
        deviates="The sum runs over pairs (j is free in print). θ is a learned polynomial curve through the mean of "
        "the data, not a geodesic. Gradients are exact: they include the motion of the foot points and of a_l.",
        xfails={"test_reports_how_it_ended":
            "the objective jumps, its minima lie at edges of jumps, and a search that ends there does not call itself "
            "converged"}),
    Method("M33", "isometry.geometric.aml:AML", "Adversarial Metric Learning (AML)", traits=("rotation", "iterative"),
        published={"strength": 1.0},
        deviates="The sums of the confusion step run over the generated pairs (as printed they do not depend on the "
        "unknown) with flipped labels, since maximising the loss itself is unbounded. Adversarial pairs are "
        "closed-form functions of W and X and are substituted (bi-level); alternating the two steps has another fixed "
        "point and is an option."),
    # beyond the survey
    Method("B09", "isometry.geometric.dmlmj:DMLMJ", "beyond the survey", traits=("rotation",),
        published={"reg": 0.001},
        deviates="Ours: by default the directions with λ > 1 are kept, since those with λ < 1, which the divergence "
        "likes as well, spread the own class more than samples of other classes; the relative ridge.",
        xfails={"test_labels_and_all_their_pairs_agree": "labels give pairs of near samples, not all pairs"}),
    Method("B16", "isometry.geometric.rgml:RGML", "beyond the survey", traits=("rotation", "iterative"),
        published={"strength": 1.0},
        deviates="Ours: natural gradient steps of each class and a common one of all, instead of a search on the "
        "product manifold; shrinkage takes a share of ρ, since added to Tyler's it would let the scale grow without "
        "end; classes that are too small take no part.",
        below_euclidean="It looks at no dissimilar pairs, and many small classes leave it little to learn from."),
)
