"""Rows of the probabilistic methods."""

from __future__ import annotations

from isometry.registry.method import Method

# a row is a line or two of facts, then prose
# fmt: off
ROWS: tuple[Method, ...] = (
    Method("P01", "isometry.probabilistic.mcml:MCML", "Collapsing Classes in the Input Space",
        traits=("rotation", "iterative", "objective"), test_params={"reg": 0.001},
        published={"strength": 1.0},
        deviates="The target p⁰ is printed as 1/0; it must be normalised over each row, else the printed gradient is "
        "wrong. The KL is per row, and exp(−δᵀWδ) is a Gaussian with covariance W⁻¹/2. Convex but not strictly, and "
        "without a penalty the scale can grow without end."),
    Method("P03", "isometry.probabilistic.nca:NCA", "Neighborhood Component Analysis (NCA)",
        traits=("rotation", "iterative", "objective"), test_params={"reg": 0.001},
        published={"strength": 1.0},
        deviates="Formula and gradient are right; p_ij is the probability that i picks j, not the reverse. We use "
        "the mean over i."),
    Method("P04", "isometry.probabilistic.nca:NCA", "Neighborhood Component Analysis (NCA)", variant="log",
        params={"objective": "log"}, traits=("rotation", "iterative", "objective"), test_params={"reg": 0.01},
        own_title="Neighbourhood component analysis, log-likelihood",
        own_equation="max_L (1/n) Σ_i log p_i − reg |L|²,  p_i as in NCA",
        published={"strength": 1.0},
        deviates="Samples without a partner of their class are left out: log 0 is not mentioned in the survey."),
    Method("P05", "isometry.probabilistic.nca:NCA", "Regularized Neighborhood Component Analysis",
        variant="regularised", params={"reg": "auto"}, reference=1, traits=("rotation", "iterative", "objective"),
        own_title="Regularised neighbourhood component analysis",
        published={"strength": 1.0},
        deviates="λ is 1/(2σ²), not the inverse variance; the posterior is of the whole sample, not of one i, and "
        "the prior covers all entries of L."),
    Method("P06", "isometry.probabilistic.fast_nca:FastNCA", "Fast NCA",
        traits=("rotation", "iterative", "objective"),
        published={"strength": 1.0},
        deviates="The survey defines N_i as hits and M_i as misses but sums over M_i: as printed it maximises the "
        "probability of a wrong neighbour; the roles are swapped back. The exponent lacks the square, the gradient a "
        "factor 2. We use the mean over i."),
    Method("P09", "isometry.probabilistic.bayesian:BayesianML", "Bayesian Metric Learning Using Sigmoid Function",
        traits=("rotation", "iterative", "posterior"),
        as_it_is="It learns a distribution of metrics, and a mixture would not have its covariance.",
        deviates="λ(ξ) is tanh(ξ/2)/(4ξ); the printed tanh(ξ)/(4ξ) is no bound. The threshold μ vanishes from the "
        "printed updates: we fold it into the Gaussian vector. Centred data and leading directions only; negative "
        "weights of the mean metric are cut at 0. The variational covariance is too narrow "
        "(covariance='variational'): the default is the curvature at the mode, made wider for pairs that share "
        "labelled rows; the probability of a pair is then calibrated on the training pairs.",
        below_euclidean="Weights of principal directions are all it can change, and against tens of thousands of "
        "pairs the prior counts for nothing: on mnist half the weights fall to 0 and 4 dimensions carry the variance "
        "instead of 27. prior_precision=1e5 undoes it."),
    Method("P10", "isometry.probabilistic.bayesian:BayesianML", "Bayesian Metric Learning Using Sigmoid Function",
        variant="active", traits=("rotation", "iterative", "posterior"),
        as_it_is="It learns a distribution of metrics, and a mixture would not have its covariance.",
        own_title="Active querying of pairs with a Bayesian metric (select_queries, partial_fit)",
        own_equation="argmax over pairs of H(P_ij), P_ij = E_q σ(−uᵀθ) the predictive probability of being similar",
        deviates="The survey only mentions it. A batch is chosen greedily, with the covariance each answer leaves on "
        "average."),
    Method("P11", "isometry.probabilistic.bnca:BNCA", "Bayesian Neighborhood Component Analysis",
        traits=("rotation", "iterative", "posterior"),
        as_it_is="It learns a distribution of metrics, and a mixture would not have its covariance.",
        deviates="H is Böhning's curvature bound, not the centring matrix; b uses the log-sum-exp at ψ; a "
        "neighbour's own zero column is left out of its competitors; the softmax runs over neighbours of all classes, "
        "the outer sum over those of the own class. V does not depend on ψ and is formed once; m is found as the "
        "maximum of the posterior, which the printed updates converge to. Böhning's covariance is too narrow "
        "(covariance='bohning'): the default is the curvature itself. The probability of a pair is calibrated on the "
        "training pairs, as that of lying below a threshold (link='threshold') says little of labels."),
    Method("P12", "isometry.probabilistic.ldm:LDM", "Local Distance Metric (LDM)", traits=("rotation", "iterative"),
        published={"strength": 1.0},
        deviates="A minus sign is lost between the two logarithms, the Jensen term has the wrong sign, and the "
        "printed weights φ carry an extra factor, so that they do not sum to 1 and the bound fails; λ ≥ 0 is not "
        "stated. We maximise the likelihood itself, on centred data and leading directions only."),
    Method("P13", "isometry.probabilistic.itml:ITML",
        "Information Theoretic Metric Learning with a Prior Weight Matrix, Offline", traits=("rotation", "iterative"),
        published={"strength": 1.0},
        deviates="The densities in the KL are Gaussians, not the neighbour softmax; a factor 1/2 is dropped on the "
        "way, and −n must be −d. The hard problem of the survey is often infeasible: the published method has slacks, "
        "weighted by γ; we eliminate them and solve a smooth convex problem to a closed duality gap."),
    Method("P14", "isometry.probabilistic.itml:ITML",
        "Information Theoretic Metric Learning with a Prior Weight Matrix, Online", variant="online",
        params={"online": "loss"}, traits=("rotation", "iterative"),
        own_title="Information-theoretic metric learning of a stream (partial_fit)",
        own_equation="W_{t+1} = argmin_W D(W, W_t) + (η/2)(vᵀWv − y)²",
        published={"strength": 1.0},
        deviates="The survey re-solves the batch problem with prior W_t (online='slack'); the published online rule "
        "is loss-based, one pair at a time. Its explicit step can lose positive definiteness, so we take the implicit "
        "one."),
    Method("P15", "isometry.probabilistic.dmbk:DMBK", "Information Theoretic Metric Learning for Imbalanced Data",
        traits=("rotation", "iterative"),
        published={"strength": 1.0},
        deviates="The product runs over i < j under a root of c(c − 1), which is no geometric mean and constant for "
        "two classes: we take all ordered pairs. The KL lacks −p, which matters inside a logarithm. The divergences "
        "depend on span(U) only and not at all for p = d, so p < d. The distance terms alone let one direction "
        "outgrow the others without end, so the search runs over maps that whiten the classes (whiten=False: any map; "
        "kl_constant=False: the printed KL).",
        below_euclidean="It keeps max(c − 1, d/2) directions, 2 of 5 on phoneme and 6 of 13 on cleveland; with d − 1 "
        "both losses all but vanish. On musk1 it is the whitening of the classes that costs, as it does in RCA."),
    Method("P16", "isometry.probabilistic.rca:ProbabilisticRCA", "Probabilistic Relevant Component Analysis Methods",
        traits=("rotation", "affine"),
        published={"reg": 1e-6},
        below_euclidean="As RCA: where rows are hardly more than features, it enlarges directions that are noise.",
        deviates="The printed constraint measures projected points by W, which applies the metric twice. The entropy "
        "of y = Uᵀx is H(x) + log|det U|, not proportional to det U. The variances are within chunklets, not between."),
    Method("P17", "isometry.probabilistic.rca:ProbabilisticRCA", "Probabilistic Relevant Component Analysis Methods",
        variant="reduced", params={"n_components": 2}, reference=1, traits=("rotation", "affine"),
        own_title="Relevant component analysis by maximal information, of rank p",
        published={"reg": 1e-6},
        deviates="The survey sums log det(Uᵀ Σ_l U) over chunklet covariances; the entropy is that of the whole "
        "projected sample, so Σ_x stands there once. For p < d the printed form picks another subspace.",
        below_euclidean="This row keeps two components, which are too few for many classes.",
        xfails={"test_survives[one feature]": "n_components=2 cannot exceed the number of features"}),
    Method("P18", "isometry.probabilistic.igml:IGML", "Metric Learning by Information Geometry",
        traits=("rotation", "affine"),
        published={"reg": 1e-8},
        below_euclidean="As RCA: where rows are hardly more than features, it enlarges directions that are noise.",
        deviates="K_L is built from the one-hot labels, not from the projected data as the symbol Y suggests. K_W = "
        "X W Xᵀ has rank d < n, so its log det is −∞; the pseudo-determinant gives the printed final problem. X is "
        "centred: the linear kernel depends on the origin."),
    Method("P20", "isometry.probabilistic.ldml:LDML", "Metric Learning Using the Sigmoid Function",
        traits=("rotation", "iterative"), test_params={"reg": 0.001},
        published={"strength": 1.0},
        deviates="The cross-entropy needs targets in {0, 1}, not {−1, +1}, with which it has no bound; i = j is left "
        "out of the sum; b is learned with W, not given. We use the mean over pairs.",
        below_euclidean="One threshold serves all pairs, and few directions meet it best, which loses local detail: "
        "2 of 6 on bupa, 4 of 9 on glass, 26 of 50 on musk1."),
    Method("P21", "isometry.probabilistic.pcca:PCCA", "Pairwise Constrained Component Analysis (PCCA)",
        traits=("rotation", "iterative", "objective"), test_params={"reg": 0.0001},
        published={"strength": 1.0},
        deviates="In the printed gradient the logistic weight has the wrong sign in its exponent, so that satisfied "
        "pairs would weigh most; β is dropped there. The sum runs over given pairs and L needs no projection. We use "
        "the mean over pairs."),
    Method("P23", "isometry.probabilistic.privileged:PrivilegedML", "Metric Learning for Privileged Information",
        traits=("rotation", "iterative"),
        published={"strength": 1.0},
        deviates="The sum runs over pairs, not over samples. The two distances are not made close: the privileged "
        "one is a learned threshold. Without penalties separable data have no finite minimiser; a constant b ≥ 0 is "
        "added to the threshold (fit_bias=False: the printed form).",
        below_euclidean="Without privileged features one threshold serves all pairs, and few directions meet it "
        "best: 2 of 6 on bupa, 4 of 9 on glass with most of the variance in one, 25 of 50 on musk1. reg=0.1 wins back "
        "most on glass and all on bupa."),
    # beyond the survey
    Method("B13", "isometry.probabilistic.kissme:KISSME", "beyond the survey", traits=("rotation",),
        published={"reg": 0.1},
        deviates="Eigenvalues are cut off at 0. Ours: the relative ridge on both scatters, all pairs of labels from "
        "class moments, and groups within which no pairs are taken."),
    Method("B13x", "isometry.probabilistic.kissme:XQDA", "beyond the survey", traits=("rotation", "affine"),
        published={"reg": 0.1},
        deviates="The eigenvectors of M_S⁻¹M_D, as in the article; the authors' program takes its singular vectors "
        "(subspace='svd'). Ours: the relative ridge on both scatters."),
    Method("B14", "isometry.probabilistic.plda:PLDA", "beyond the survey", traits=("rotation",),
        published={"reg": 0.1},
        deviates="B counts class sizes that differ (n₀ of the analysis of variance). Ours: the relative ridge on E, "
        "and the shrinkage of B, without which classes never seen before could differ only where those of the fit do."),
    Method("B14e", "isometry.probabilistic.plda:PLDA", "beyond the survey", variant="em", params={"estimator": "em"},
        reference=2, traits=("rotation", "iterative"),
        own_title="Joint Bayesian: probabilistic linear discriminant analysis of largest likelihood",
        own_equation="max_{m, B, E} Σ_c log N(x_c; 1 ⊗ m, 11ᵀ ⊗ B + I ⊗ E),  x_c the samples of a class",
        published={"reg": 0.1},
        deviates="The expectations are exact, in a basis where B and E are diagonal, and the mean is learned, too. "
        "Ours: the relative ridge on E and the shrinkage of B."),
    # beyond the survey, searched for
    Method("B02", "isometry.probabilistic.mlkr:MLKR", "beyond the survey",
        traits=("rotation", "iterative", "objective"),
        published={"strength": 1.0},
        deviates="Ours: the penalty on |L|², without which kernel regression can do worse than without learning, and "
        "targets of variance 1."),
    Method("B04", "isometry.probabilistic.sdml:SDML", "beyond the survey", traits=("iterative",),
        published={"strength": 1.0},
        deviates="Means over pairs instead of sums, and both prices relative to their limits: "
        "beyond η* there is no minimum, which is where fixed prices fail."),
    Method("B10", "isometry.probabilistic.ncm:NCM", "beyond the survey", traits=("rotation", "iterative", "objective"),
        published={"strength": 1.0},
        deviates="L-BFGS on all samples instead of stochastic steps, and a penalty on |L|² in "
        "units of the variance. n_centroids=1 is the article's NCMML, several are its NCMC."),
)
