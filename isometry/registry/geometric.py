"""Rows of the geometric methods."""

from __future__ import annotations

from isometry.registry.method import Method

_CITE = "P. Zadeh, R. Hosseini, S. Sra 2016, Geometric mean metric learning, ICML"

ROWS: tuple[Method, ...] = (
    Method(
        key="M23",
        name="GMML",
        title="Geometric mean metric learning",
        family="geometric",
        kind="estimator",
        sees="labels, pairs",
        equation="min_{W≻0} tr(WS) + tr(W⁻¹D):  W = S⁻¹ ♯_{1/2} D",
        cite=_CITE,
        section="Geometric Mean Metric Learning, Regular",
        deviates="The constraint is W ≻ 0. Means of pairs take the place of sums, so that a prior weighs the same for any count.",
        target="isometry.geometric.gmml:GMML",
        traits=frozenset({"rotation"}),
    ),
    Method(
        key="M24",
        name="GMML[regularised]",
        title="Geometric mean metric learning with a prior",
        family="geometric",
        kind="estimator",
        sees="labels, pairs",
        equation="W = (S + λW₀⁻¹)⁻¹ ♯_{1/2} (D + λW₀)",
        cite=_CITE,
        section="Geometric Mean Metric Learning, Regularized GMML",
        deviates="In the survey's gradient the last term must be −λW⁻¹W₀W⁻¹; its solution is right.",
        target="isometry.geometric.gmml:GMML",
        params={"reg": 0.1},
        traits=frozenset({"rotation"}),
    ),
    Method(
        key="M25",
        name="GMML[weighted]",
        title="Geometric mean metric learning, anywhere on the geodesic",
        family="geometric",
        kind="estimator",
        sees="labels, pairs",
        equation="min_{W≻0} (1−t) δ²(W, S⁻¹) + t δ²(W, D):  W = S⁻¹ ♯_t D",
        cite=_CITE,
        section="Geometric Mean Metric Learning, Weighted GMML",
        deviates=(
            "The δ² problem shares its minimiser with the trace problem at t = 1/2 only; δ is the Riemannian distance. The "
            "printed solution belongs to the regularised matrices."
        ),
        target="isometry.geometric.gmml:GMML",
        params={"t": 0.3, "reg": 0.1},
        traits=frozenset({"rotation"}),
    ),
    Method(
        key="M30",
        name="DRML",
        title="Dimensionality reduction and metric learning on Stiefel × SPD",
        family="geometric",
        kind="estimator",
        sees="labels, pairs",
        equation="min_{VᵀV=I, Λ≻0} mean_S log(1 + e^{d²}) + mean_D log(1 + e^{−d²}) + λ D_logdet(Λ, Λ₀),  d² = zᵀVΛVᵀz",
        cite="M. Harandi, M. Salzmann, R. Hartley 2017, Joint dimensionality reduction and metric learning: a geometric take, ICML",
        section="Metric Learning on Stiefel and SPD Manifolds",
        deviates=(
            "The exponent is the squared distance (printed unsquared, which is no Gaussian and not smooth at 0). Means of pairs take "
            "the place of sums. Λ is strictly positive definite. Since (V, Λ) → (VO, OᵀΛO) changes nothing, the search runs over "
            "L = Λ^{1/2}Vᵀ without constraints, and Λ₀ acts through its eigenvalues."
        ),
        target="isometry.geometric.drml:DRML",
        traits=frozenset({"rotation", "iterative", "objective"}),
    ),
    Method(
        key="M33",
        name="AML",
        title="Adversarial metric learning",
        family="geometric",
        kind="estimator",
        sees="labels, pairs",
        equation="min_{W≻0} ℓ(W; X, t) + α ℓ(W; Π*, t),  Π* = argmin_Π ℓ(W; Π, −t) + β Σ (|x − π|²_W + |x' − π'|²_W)",
        cite="S. Chen, C. Gong, J. Yang, X. Li, Y. Wei, J. Li 2018, Adversarial metric learning, IJCAI",
        section="Adversarial Metric Learning (AML)",
        deviates=(
            "The sums of the confusion step run over the generated pairs (as printed they do not depend on the unknown) with flipped "
            "labels, since maximising the loss itself is unbounded. Adversarial pairs are closed-form functions of W and X and are "
            "substituted (bi-level); alternating the two steps has another fixed point and is an option."
        ),
        target="isometry.geometric.aml:AML",
        traits=frozenset({"rotation", "iterative"}),
    ),
    Method(
        key="M26",
        name="LowRankGMML",
        title="Low-rank geometric mean metric learning",
        family="geometric",
        kind="estimator",
        sees="labels, pairs",
        equation="min_{UᵀU=I} Σ_i φ(log m_i),  m = eig(UᵀSU · UᵀDU);  W = U (UᵀSU)⁻¹ ♯_t (UᵀDU) Uᵀ",
        cite="M. Bhutani, P. Jawanpuria, H. Kasai, B. Mishra 2018, Low-rank geometric mean metric learning, arXiv 1806.05454",
        section="Low-rank Geometric Mean Metric Learning",
        deviates=(
            "W has rank p, so W⁻¹ is the pseudo-inverse. B is a full SPD matrix, not eigenvalues; for a fixed B the objective "
            "depends on the basis, so B is eliminated and the search runs over subspaces. The subspace does not depend on t. Neither "
            "objective is free of scale: both scatters are scaled so that every m ≤ 1."
        ),
        target="isometry.geometric.low_rank:LowRankGMML",
        traits=frozenset({"rotation", "iterative"}),
        xfails={
            "test_beats_euclidean_on_a_planted_problem": (
                "the objective ranks subspaces by the product of both scatters, so that it keeps the wide noise; "
                "subspace='discriminant' finds the signal"
            )
        },
        below_euclidean="The objective prefers directions in which both scatters are large, not directions that separate.",
    ),
    Method(
        key="M27",
        name="PartialLabelGMML",
        title="Geometric mean metric learning from candidate labels",
        family="geometric",
        kind="estimator",
        sees="candidates, labels",
        equation="W = S⁻¹ ♯_{1/2} D,  S = Σ_i Σ_{j∈N_i⁺} w̄_ij zzᵀ + λ r_i r_iᵀ,  D = Σ_i Σ_{j∈N_i⁻} zzᵀ",
        cite="Y. Zhou, H. Gu 2018, Geometric mean metric learning for partial label data, Neurocomputing 275",
        section="Geometric Mean Metric Learning for Partial Labels",
        deviates=(
            "Settled where the survey is silent: weights that are all 0 become uniform; if no unlike sample is near enough, the "
            "nearest unlike ones take the place, or all pairs if there are none; X is centred, as the residuals depend on the origin; "
            "both scatters are means with a relative ridge."
        ),
        target="isometry.geometric.partial_label:PartialLabelGMML",
        traits=frozenset({"rotation"}),
    ),
    Method(
        key="M28",
        name="SPDGMML",
        title="Geometric mean metric learning of SPD matrices",
        family="geometric",
        kind="estimator",
        sees="labels, pairs",
        equation="d² = tr(W (T_i − T_j)²),  T_i = log X_i,  W = (S + λW₀⁻¹)⁻¹ ♯_t (D + λW₀),  S, D = mean (T_i − T_j)²",
        cite="P. Zhu, H. Cheng, Q. Hu, Q. Wang, C. Zhang 2018, Towards generalized and efficient metric learning on Riemannian manifold, IJCAI",
        section="Geometric Mean Metric Learning on SPD and Grassmannian Manifolds",
        deviates=(
            "The survey calls d_W a distance: it is a squared one. W ≻ 0, since W⁻¹ enters (printed ⪰). Means of pairs take the place "
            "of sums. The prior is ours; its weight is relative to the scatter, since logarithms have no natural unit."
        ),
        target="isometry.geometric.spd:SPDGMML",
        traits=frozenset({"matrix-samples"}),
    ),
    Method(
        key="M29",
        name="GrassmannGMML",
        title="Geometric mean metric learning of subspaces",
        family="geometric",
        kind="estimator",
        sees="labels, pairs",
        equation="d² = tr(W (P_i − P_j)²),  P_i = X_i (X_iᵀVX_i)⁻¹X_iᵀ,  W = S⁻¹ ♯_t D,  V = I or the fixed point V = W",
        cite="P. Zhu, H. Cheng, Q. Hu, Q. Wang, C. Zhang 2018, Towards generalized and efficient metric learning on Riemannian manifold, IJCAI",
        section="Geometric Mean Metric Learning on SPD and Grassmannian Manifolds",
        deviates=(
            "The survey's M, 'any matrix', is the factor of W, so that the differences depend on W and the closed form is one step of a "
            "fixed-point iteration: one pass from W = I by default, or repeated."
        ),
        target="isometry.geometric.grassmann:GrassmannGMML",
        traits=frozenset({"matrix-samples"}),
    ),
    Method(
        key="M32",
        name="CDML",
        title="Curvilinear distance metric learning",
        family="geometric",
        kind="estimator",
        sees="labels, pairs",
        equation="min_M mean_S [d² − u]₊² + [v − d²]₊² over D + λ Σ_l |M_l|²,  d² = Σ_l a_l (∫_{T_l(x)}^{T_l(x')} |θ_l'|)²",
        cite="S. Chen, L. Luo, J. Yang, C. Gong, J. Li, H. Huang 2019, Curvilinear distance metric learning, NeurIPS",
        section="Curvilinear Distance Metric Learning (CDML)",
        deviates=(
            "The sum runs over pairs (j is free in print). θ is a learned polynomial curve through the mean of the data, not a "
            "geodesic. Gradients are exact: they include the motion of the foot points and of a_l."
        ),
        target="isometry.geometric.cdml:CDML",
        test_params={"n_epochs": 5},
        traits=frozenset({"iterative"}),
        xfails={
            "test_reports_how_it_ended": (
                "the objective jumps, its minima lie at edges of jumps, and a search that ends there does not call itself converged"
            ),
        },
    ),
    Method(
        key="D50",
        name="LayeredGMML",
        title="Layered geometric metric learning",
        family="geometric",
        kind="estimator",
        sees="labels, pairs",
        equation="x_l = σ(W_l^{ρ/2} x_{l−1}),  W_l = S_l⁻¹ ♯_t D_l",
        cite="H. Hajiabadi, R. Godaz, M. Ghasemi, R. Monsefi 2019, Layered geometric learning, ICAISC",
        section="Geometric Metric Learning by Neural Network",
        deviates=(
            "Without activation and with full rank, L layers are the single metric W^L: there is a tanh between them, a damping "
            "ρ = 1/L, and a warning. Rectifying eigenvalues is no activation for data vectors; it belongs to networks of SPD matrices. "
            "Activation and damping are ours."
        ),
        target="isometry.geometric.layered:LayeredGMML",
    ),
)
