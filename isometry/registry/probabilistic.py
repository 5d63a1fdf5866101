"""Rows of the probabilistic methods."""

from __future__ import annotations

from isometry.registry.method import Method

_P = "probabilistic"

ROWS: tuple[Method, ...] = (
    Method(
        key="P01",
        name="MCML",
        title="Maximally collapsing metric learning",
        family=_P,
        kind="estimator",
        sees="labels",
        equation="min_{W⪰0} (1/n) Σ_i KL(p⁰_i ‖ p_i) + penalty",
        cite="A. Globerson, S. Roweis 2005, Metric learning by collapsing classes, NIPS",
        section="Collapsing Classes in the Input Space",
        deviates=(
            "The target p⁰ is printed as 1/0; it must be normalised over each row, else the printed gradient is wrong. The KL is "
            "per row, and exp(−δᵀWδ) is a Gaussian with covariance W⁻¹/2. Convex but not strictly, and without a penalty the "
            "scale can grow without end."
        ),
        target="isometry.probabilistic.mcml:MCML",
        test_params={"reg": 1e-3},
        traits=frozenset({"rotation", "iterative", "objective"}),
    ),
    Method(
        key="P03",
        name="NCA",
        title="Neighbourhood component analysis",
        family=_P,
        kind="estimator",
        sees="labels",
        equation="max_L Σ_i p_i,  p_i = Σ_{j∈S_i} exp(−d²_ij)/Σ_{k≠i} exp(−d²_ik)",
        cite="J. Goldberger, S. Roweis, G. Hinton, R. Salakhutdinov 2005, Neighbourhood components analysis, NIPS",
        section="Neighborhood Component Analysis (NCA)",
        deviates="Formula and gradient are right; p_ij is the probability that i picks j, not the reverse. We use the mean over i.",
        target="isometry.probabilistic.nca:NCA",
        test_params={"reg": 1e-3},
        traits=frozenset({"rotation", "iterative", "objective"}),
    ),
    Method(
        key="P04",
        name="NCA[log]",
        title="Neighbourhood component analysis, log-likelihood",
        family=_P,
        kind="estimator",
        sees="labels",
        equation="max_L Σ_i log p_i",
        cite="J. Goldberger, S. Roweis, G. Hinton, R. Salakhutdinov 2005, Neighbourhood components analysis, NIPS",
        section="Neighborhood Component Analysis (NCA)",
        deviates="Samples without a partner of their class are left out: log 0 is not mentioned in the survey.",
        target="isometry.probabilistic.nca:NCA",
        params={"objective": "log"},
        test_params={"reg": 1e-2},
        traits=frozenset({"rotation", "iterative", "objective"}),
    ),
    Method(
        key="P05",
        name="NCA[regularised]",
        title="Regularised neighbourhood component analysis",
        family=_P,
        kind="estimator",
        sees="labels",
        equation="max_L (1/n) Σ_i p_i − reg |L|²",
        cite="Z. Yang, J. Laaksonen 2007, Regularized neighborhood component analysis, SCIA",
        section="Regularized Neighborhood Component Analysis",
        deviates=(
            "λ is 1/(2σ²), not the inverse variance; the posterior is of the whole sample, not of one i, and the prior covers all "
            "entries of L."
        ),
        target="isometry.probabilistic.nca:NCA",
        params={"reg": "auto"},
        traits=frozenset({"rotation", "iterative", "objective"}),
    ),
    Method(
        key="P13",
        name="ITML",
        title="Information-theoretic metric learning",
        family=_P,
        kind="estimator",
        sees="labels, pairs",
        equation="min_{W≻0} D(W, W₀) + γ Σ_c h(d_W²(c)/bound_c),  D the LogDet divergence",
        cite="J. V. Davis, B. Kulis, P. Jain, S. Sra, I. S. Dhillon 2007, Information-theoretic metric learning, ICML",
        section="Information Theoretic Metric Learning with a Prior Weight Matrix, Offline",
        deviates=(
            "The densities in the KL are Gaussians, not the neighbour softmax; a factor 1/2 is dropped on the way, and −n must be "
            "−d. The hard problem of the survey is often infeasible: the published method has slacks, weighted by γ; we "
            "eliminate them and solve a smooth convex problem to a closed duality gap."
        ),
        target="isometry.probabilistic.itml:ITML",
        traits=frozenset({"rotation", "iterative"}),
    ),
    Method(
        key="P14",
        name="ITML[online]",
        title="Information-theoretic metric learning of a stream (partial_fit)",
        family=_P,
        kind="estimator",
        sees="labels, pairs",
        equation="W_{t+1} = argmin_W D(W, W_t) + (η/2)(vᵀWv − y)²",
        cite="J. V. Davis, B. Kulis, P. Jain, S. Sra, I. S. Dhillon 2007, Information-theoretic metric learning, ICML",
        section="Information Theoretic Metric Learning with a Prior Weight Matrix, Online",
        deviates=(
            "The survey re-solves the batch problem with prior W_t (online='slack'); the published online rule is loss-based, one "
            "pair at a time. Its explicit step can lose positive definiteness, so we take the implicit one."
        ),
        target="isometry.probabilistic.itml:ITML",
        params={"online": "loss"},
        traits=frozenset({"rotation", "iterative"}),
    ),
    Method(
        key="P21",
        name="PCCA",
        title="Pairwise constrained component analysis",
        family=_P,
        kind="estimator",
        sees="pairs, labels",
        equation="min_L mean (1/β) log(1 + exp(β t(|L(x_i − x_j)|² − b))) + reg |L|²",
        cite="A. Mignon, F. Jurie 2012, PCCA: a new approach for distance learning from sparse pairwise constraints, CVPR",
        section="Pairwise Constrained Component Analysis (PCCA)",
        deviates=(
            "In the printed gradient the logistic weight has the wrong sign in its exponent, so that satisfied pairs would weigh "
            "most; β is dropped there. The sum runs over given pairs and L needs no projection. We use the mean over pairs."
        ),
        target="isometry.probabilistic.pcca:PCCA",
        test_params={"reg": 1e-4},
        traits=frozenset({"rotation", "iterative", "objective"}),
    ),
    Method(
        key="P20",
        name="LDML",
        title="Logistic discriminant metric learning",
        family=_P,
        kind="estimator",
        sees="pairs, labels",
        equation="min_{W⪰0, b} mean log(1 + exp(t(d_W²(i, j) − b))) + reg tr(W)",
        cite="M. Guillaumin, J. Verbeek, C. Schmid 2009, Is that you? Metric learning approaches for face identification, ICCV",
        section="Metric Learning Using the Sigmoid Function",
        deviates=(
            "The cross-entropy needs targets in {0, 1}, not {−1, +1}, with which it has no bound; i = j is left out of the sum; b is "
            "learned with W, not given. We use the mean over pairs."
        ),
        target="isometry.probabilistic.ldml:LDML",
        test_params={"reg": 1e-3},
        traits=frozenset({"rotation", "iterative"}),
    ),
)
