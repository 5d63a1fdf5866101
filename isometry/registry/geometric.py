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
)
