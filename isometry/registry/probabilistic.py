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
        key="P06",
        name="FastNCA",
        title="Fast neighbourhood component analysis",
        family=_P,
        kind="estimator",
        sees="labels",
        equation="max_L (1/n) Σ_i Σ_{j∈H_i} p_ij − reg |L|²,  p_ij ∝ exp(−|L(x_i − x_j)|²) on k hits H_i and k misses M_i",
        cite="W. Yang, K. Wang, W. Zuo 2012, Fast neighborhood component analysis, Neurocomputing",
        section="Fast NCA",
        deviates=(
            "The survey defines N_i as hits and M_i as misses but sums over M_i: as printed it maximises the probability of a wrong "
            "neighbour; the roles are swapped back. The exponent lacks the square, the gradient a factor 2. We use the mean over i."
        ),
        target="isometry.probabilistic.fast_nca:FastNCA",
        traits=frozenset({"rotation", "iterative", "objective"}),
    ),
    Method(
        key="P09",
        name="BayesianML",
        title="Bayesian metric learning with a sigmoid likelihood",
        family=_P,
        kind="estimator",
        sees="pairs, labels",
        equation="P(t | θ) = σ(−t(γᵀw_ij − μ)), θ = (μ, γ) ~ N(θ₀, I/δ); q(θ) = N(m, V) at the mode",
        cite="L. Yang, R. Jin, R. Sukthankar 2007, Bayesian active distance metric learning, UAI",
        section="Bayesian Metric Learning Using Sigmoid Function",
        deviates=(
            "λ(ξ) is tanh(ξ/2)/(4ξ); the printed tanh(ξ)/(4ξ) is no bound. The threshold μ vanishes from the printed updates: we fold it "
            "into the Gaussian vector. Centred data and leading directions only; negative weights of the mean metric are cut at 0. The "
            "variational covariance is too narrow (covariance='variational'): the default is the curvature at the mode, made wider "
            "for pairs that share labelled rows; the probability of a pair is then calibrated on the training pairs."
        ),
        target="isometry.probabilistic.bayesian:BayesianML",
        below_euclidean=(
            "Weights of principal directions are all it can change, and against tens of thousands of pairs the prior counts for nothing: "
            "on mnist half the weights fall to 0 and 4 dimensions carry the variance instead of 27. prior_precision=1e5 undoes it."
        ),
        traits=frozenset({"rotation", "iterative"}),
    ),
    Method(
        key="P10",
        name="BayesianML[active]",
        title="Active querying of pairs with a Bayesian metric (select_queries, partial_fit)",
        family=_P,
        kind="estimator",
        sees="pairs, labels",
        equation="argmax over pairs of H(P_ij), P_ij = E_q σ(−uᵀθ) the predictive probability of being similar",
        cite="L. Yang, R. Jin, R. Sukthankar 2007, Bayesian active distance metric learning, UAI",
        section="Bayesian Metric Learning Using Sigmoid Function",
        deviates="The survey only mentions it. A batch is chosen greedily, with the covariance each answer leaves on average.",
        target="isometry.probabilistic.bayesian:BayesianML",
        traits=frozenset({"rotation", "iterative"}),
    ),
    Method(
        key="P11",
        name="BNCA",
        title="Bayesian neighbourhood component analysis",
        family=_P,
        kind="estimator",
        sees="labels",
        equation="P(y | λ) = Π_i Π_{j∈H_i} softmax over C_i of −λᵀw_ij,  λ ~ N(m₀, I/δ);  q(λ) = N(m, V) at the mode",
        cite="D. Wang, X. Tan 2017, Bayesian neighborhood component analysis, IEEE Trans. Neural Networks and Learning Systems",
        section="Bayesian Neighborhood Component Analysis",
        deviates=(
            "H is Böhning's curvature bound, not the centring matrix; b uses the log-sum-exp at ψ; a neighbour's own zero column is left "
            "out of its competitors; the softmax runs over neighbours of all classes, the outer sum over those of the own class. V does "
            "not depend on ψ and is formed once; m is found as the maximum of the posterior, which the printed updates converge to. "
            "Böhning's covariance is too narrow (covariance='bohning'): the default is the curvature itself. The probability of a "
            "pair is calibrated on the training pairs, as that of lying below a threshold (link='threshold') says little of labels."
        ),
        target="isometry.probabilistic.bnca:BNCA",
        traits=frozenset({"rotation", "iterative"}),
    ),
    Method(
        key="P12",
        name="LDM",
        title="Local distance metric",
        family=_P,
        kind="estimator",
        sees="pairs, labels",
        equation="max_{λ≥0} (1/n) Σ_i log [Σ_{S_i} exp(−λᵀw_ij) / Σ_{S_i∪D_i} exp(−λᵀw_ij)] − reg Σλ,  W = V diag(λ) Vᵀ",
        cite="L. Yang, R. Jin, R. Sukthankar, Y. Liu 2006, An efficient algorithm for local distance metric learning, AAAI",
        section="Local Distance Metric (LDM)",
        deviates=(
            "A minus sign is lost between the two logarithms, the Jensen term has the wrong sign, and the printed weights φ carry an "
            "extra factor, so that they do not sum to 1 and the bound fails; λ ≥ 0 is not stated. We maximise the likelihood itself, "
            "on centred data and leading directions only."
        ),
        target="isometry.probabilistic.ldm:LDM",
        traits=frozenset({"rotation", "iterative"}),
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
        key="P15",
        name="DMBK",
        title="Distance metric by balancing KL divergences",
        family=_P,
        kind="estimator",
        sees="labels",
        equation="max_U mean_{i≠j} log e_ij + reg mean_D |Uᵀδ|  s.t. mean_S |Uᵀδ|² = 1,  e_ij ∝ n_i n_j KL_ij(U)",
        cite="L. Feng, H. Wang, B. Jin, H. Li, M. Xue, L. Wang 2018, Learning a distance metric by balancing KL-divergence for imbalanced datasets, IEEE Trans. SMC Systems",
        section="Information Theoretic Metric Learning for Imbalanced Data",
        deviates=(
            "The product runs over i < j under a root of c(c − 1), which is no geometric mean and constant for two classes: we take all "
            "ordered pairs. The KL lacks −p, which matters inside a logarithm. The divergences depend on span(U) only and not at all for "
            "p = d, so p < d. The distance terms alone let one direction outgrow the others without end, so the search runs over maps "
            "that whiten the classes (whiten=False: any map; kl_constant=False: the printed KL)."
        ),
        target="isometry.probabilistic.dmbk:DMBK",
        below_euclidean=(
            "It keeps max(c − 1, d/2) directions, 2 of 5 on phoneme and 6 of 13 on cleveland; with d − 1 both losses all but vanish. "
            "On musk1 it is the whitening of the classes that costs, as it does in RCA."
        ),
        traits=frozenset({"rotation", "iterative"}),
    ),
    Method(
        key="P16",
        name="ProbabilisticRCA",
        title="Relevant component analysis by maximal information, full rank",
        family=_P,
        kind="estimator",
        sees="chunklets, labels",
        equation="max_{W≻0} log det W  s.t. (1/N) Σ_l Σ_{i∈l} |x_i − μ_l|²_W ≤ m;  W = (m/d) C⁻¹",
        cite="A. Bar-Hillel, T. Hertz, N. Shental, D. Weinshall 2003, Learning distance functions using equivalence relations, ICML",
        section="Probabilistic Relevant Component Analysis Methods",
        deviates=(
            "The printed constraint measures projected points by W, which applies the metric twice. The entropy of y = Uᵀx is H(x) + "
            "log|det U|, not proportional to det U. The variances are within chunklets, not between."
        ),
        target="isometry.probabilistic.rca:ProbabilisticRCA",
        traits=frozenset({"rotation", "affine"}),
    ),
    Method(
        key="P17",
        name="ProbabilisticRCA[reduced]",
        title="Relevant component analysis by maximal information, rank p",
        family=_P,
        kind="estimator",
        sees="chunklets, labels",
        equation="max_L log det(L Σ_x Lᵀ)  s.t. (1/N) Σ_l Σ_{i∈l} |L(x_i − μ_l)|² ≤ m,  L (p, d)",
        cite="A. Bar-Hillel, T. Hertz, N. Shental, D. Weinshall 2005, Learning a Mahalanobis metric from equivalence constraints, JMLR",
        section="Probabilistic Relevant Component Analysis Methods",
        deviates=(
            "The survey sums log det(Uᵀ Σ_l U) over chunklet covariances; the entropy is that of the whole projected sample, so Σ_x "
            "stands there once. For p < d the printed form picks another subspace."
        ),
        target="isometry.probabilistic.rca:ProbabilisticRCA",
        params={"n_components": 2},
        traits=frozenset({"rotation", "affine"}),
        xfails={"test_survives[one feature]": "n_components=2 cannot exceed the number of features"},
        below_euclidean="This row keeps two components, which are too few for many classes.",
    ),
    Method(
        key="P18",
        name="IGML",
        title="Information geometry metric learning",
        family=_P,
        kind="estimator",
        sees="labels",
        equation="min_{W≻0} tr(K_L⁻¹ X W Xᵀ) − log det W,  K_L = YYᵀ + λI;  W = (Xᵀ K_L⁻¹ X)⁻¹",
        cite="S. Wang, R. Jin 2009, An information geometry approach for distance metric learning, AISTATS",
        section="Metric Learning by Information Geometry",
        deviates=(
            "K_L is built from the one-hot labels, not from the projected data as the symbol Y suggests. K_W = X W Xᵀ has rank d < n, so "
            "its log det is −∞; the pseudo-determinant gives the printed final problem. X is centred: the linear kernel depends on the "
            "origin."
        ),
        target="isometry.probabilistic.igml:IGML",
        traits=frozenset({"rotation", "affine"}),
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
        below_euclidean=(
            "One threshold serves all pairs, and few directions meet it best, which loses local detail: 2 of 6 on bupa, 4 of 9 on glass, "
            "26 of 50 on musk1."
        ),
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
        key="P23",
        name="PrivilegedML",
        title="Metric learning with privileged information",
        family=_P,
        kind="estimator",
        sees="pairs, labels",
        equation="min_{W₁,W₂⪰0, b≥0} mean log(1 + exp(t(d²_{W₁}(x) − d²_{W₂}(z) − b))) + reg tr W₁ + reg_privileged tr W₂",
        cite="X. Yang, M. Wang, L. Zhang, D. Tao 2016, Empirical risk minimization for metric learning using privileged information, IJCAI",
        section="Metric Learning for Privileged Information",
        deviates=(
            "The sum runs over pairs, not over samples. The two distances are not made close: the privileged one is a learned threshold. "
            "Without penalties separable data have no finite minimiser; a constant b ≥ 0 is added to the threshold (fit_bias=False: the "
            "printed form)."
        ),
        target="isometry.probabilistic.privileged:PrivilegedML",
        below_euclidean=(
            "Without privileged features one threshold serves all pairs, and few directions meet it best: 2 of 6 on bupa, 4 of 9 on "
            "glass with most of the variance in one, 25 of 50 on musk1. reg=0.1 wins back most on glass and all on bupa."
        ),
        traits=frozenset({"rotation", "iterative"}),
    ),
)
