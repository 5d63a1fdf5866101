"""Rows of the spectral methods."""

from __future__ import annotations

from isometry.registry.method import Method

_S = "spectral"

ROWS: tuple[Method, ...] = (
    Method(
        key="EUC",
        name="Euclidean",
        title="Euclidean distance, the baseline",
        family=_S,
        kind="estimator",
        sees="none",
        equation="W = I",
        cite="—",
        section="Distance Metric",
        deviates="",
        target="isometry.spectral.covariance:Euclidean",
        traits=frozenset({"rotation"}),
    ),
    Method(
        key="M00",
        name="Covariance",
        title="Mahalanobis distance of the sample",
        family=_S,
        kind="estimator",
        sees="none, labels",
        equation="W = Σ⁻¹",
        cite="P. C. Mahalanobis 1936, On the generalised distance in statistics, Proc. Nat. Inst. Sci. India",
        section="Mahalanobis Distance; Generalized Mahalanobis Distance",
        deviates=(
            "The survey's proof of the identity of indiscernibles fails for singular W: d = 0 only says that the difference "
            "lies in the null space of W. W ≻ 0 gives a metric, W ⪰ 0 a pseudo-metric. Σ must be invertible; we drop "
            "directions without variance."
        ),
        target="isometry.spectral.covariance:Covariance",
        traits=frozenset({"rotation", "affine"}),
        below_euclidean="Total whitening enlarges directions of noise as much as those of signal; it is a baseline.",
    ),
    Method(
        key="M03",
        name="TraceSDP",
        title="Trace-normalised semidefinite programme, in closed form",
        family=_S,
        kind="estimator",
        sees="labels, pairs",
        equation="min tr(W(M_S − M_D))  s.t.  W ⪰ 0, tr W = 1  (p > 1: also W ⪯ I/p)",
        cite="A. Ghodsi, D. Wilkinson, F. Southey 2007, Improving embeddings by flexible exploitation of side information, IJCAI",
        section="Formulating as Semidefinite Programming",
        deviates=(
            "In the lemma the second norm must be squared. No interior-point solver is needed: a linear function on the "
            "spectrahedron is smallest at the projector on the lowest eigenvector. One direction is too few with several "
            "classes, so the default takes the p = c − 1 lowest (the Fantope form)."
        ),
        target="isometry.spectral.fisher:TraceSDP",
        traits=frozenset({"rotation"}),
        below_euclidean="The criterion is a difference of variances, not scale-free, and keeps c − 1 directions only.",
    ),
    Method(
        key="M04",
        name="FisherML[orthonormal]",
        title="Relation to Fisher discriminant analysis, approach 1, orthonormal directions",
        family=_S,
        kind="estimator",
        sees="labels, pairs",
        equation="min tr(Uᵀ(M_S − M_D)U)  s.t.  UᵀU = I  (or tr UUᵀ = 1)",
        cite="B. Alipanahi, M. Biggs, A. Ghodsi 2008, Distance metric learning vs. Fisher discriminant analysis, AAAI",
        section="Relevant to Fisher Discriminant Analysis, Approach 1",
        deviates=(
            "Under the trace constraint alone every column of an optimal U is a multiple of the same eigenvector, so W has "
            "rank 1 whatever p; the orthonormal form is the one with p directions. With p = d it is a rotation."
        ),
        target="isometry.spectral.fisher:FisherML",
        params={"constraint": "orthonormal"},
        traits=frozenset({"rotation"}),
        below_euclidean="The criterion is a difference of variances, not scale-free, and keeps c − 1 directions only.",
    ),
    Method(
        key="M05",
        name="FisherML",
        title="Relation to Fisher discriminant analysis, approach 2",
        family=_S,
        kind="estimator",
        sees="labels, pairs",
        equation="min tr(Uᵀ(M_S − M_D)U)  s.t.  UᵀM_S U = I",
        cite="B. Alipanahi, M. Biggs, A. Ghodsi 2008, Distance metric learning vs. Fisher discriminant analysis, AAAI",
        section="Relevant to Fisher Discriminant Analysis, Approach 2",
        deviates=(
            "M_D contains within-class scatter too, so replacing the pair scatters by class covariances is loose: the "
            "eigenvectors are LDA's exactly when all pairs are used and the classes have equal sizes."
        ),
        target="isometry.spectral.fisher:FisherML",
        traits=frozenset({"rotation", "affine"}),
    ),
    Method(
        key="M06",
        name="RCA",
        title="Relevant component analysis",
        family=_S,
        kind="estimator",
        sees="chunklets, labels, pairs",
        equation="W = C_w⁻¹,  C_w = (1/m) Σ_l Σ_{i∈l} (x_i − μ_l)(x_i − μ_l)ᵀ",
        cite="N. Shental, T. Hertz, D. Weinshall, M. Pavel 2002, Adjustment learning and relevant component analysis, ECCV",
        section="Relevant Component Analysis (RCA)",
        deviates=(
            "1/n in C_w must be 1/m, the number of samples in chunklets. With a PCA basis Q the distance is taken in the PCA "
            "subspace, W = Q(QᵀC_wQ)⁻¹Qᵀ, which the survey leaves implicit."
        ),
        target="isometry.spectral.rca:RCA",
        traits=frozenset({"rotation", "affine"}),
    ),
    Method(
        key="M07",
        name="DCA",
        title="Discriminative component analysis",
        family=_S,
        kind="estimator",
        sees="chunklets, labels, pairs",
        equation="max_A det(AᵀC_bA)/det(AᵀC_wA)",
        cite="S. C. H. Hoi, W. Liu, M. R. Lyu, W.-Y. Ma 2006, Learning distance metrics with contextual constraints, CVPR",
        section="Discriminative Component Analysis (DCA)",
        deviates=(
            "A ratio of traces without orthogonality is not solved by the generalised eigenproblem: its maximum is the rank-one "
            "top eigenvector. The objective is the ratio of determinants. The published two-step recipe (algorithm='hoi') "
            "stays in range(C_b) and does not maximise it when there are fewer classes than features; our default does."
        ),
        target="isometry.spectral.dca:DCA",
        traits=frozenset({"rotation", "affine"}),
    ),
    Method(
        key="M11",
        name="LMNN",
        title="Large margin nearest neighbours",
        family=_S,
        kind="estimator",
        sees="labels, triplets",
        equation="min_W (1−μ) Σ d²(i,j) + μ Σ [margin + d²(i,j) − d²(i,l)]₊ over targets j→i and impostors l",
        cite="K. Q. Weinberger, L. K. Saul 2009, Distance metric learning for large margin nearest neighbor classification, JMLR",
        section="Large-Margin Metric Learning",
        deviates=(
            "The sandwich 1 − ξ ≤ d_il − d_ij ≤ 1 has no upper bound in truth. 'Pushes' and 'pulls' are swapped in the text. "
            "Triplets are not random: targets are fixed neighbours and l runs over active impostors. The hinge is rounded "
            "while descending and sharpened to 1e-4 of the margin."
        ),
        target="isometry.spectral.lmnn:LMNN",
        traits=frozenset({"rotation", "iterative"}),
    ),
    Method(
        key="M01",
        name="MMC",
        title="The first spectral method: similar pairs near, dissimilar pairs apart on average",
        family=_S,
        kind="estimator",
        sees="labels, pairs",
        equation="min tr(W M_S)  s.t.  W ⪰ 0,  mean over dissimilar pairs of √(zᵀWz) ≥ α",
        cite="E. P. Xing, A. Y. Ng, M. I. Jordan, S. Russell 2002, Distance metric learning with application to clustering with side-information, NIPS",
        section="The First Spectral Method",
        deviates=(
            "One pass of gradient step, half-space projection and PSD projection does not land in the feasible set (the last "
            "step raises tr(W Σ_S)); we solve the equivalent scale-free problem in a factor of W and report its duality gap. "
            "The minimisation and the maximisation are equivalent up to the scale α only, which here is a mean distance, not "
            "a sum. The unsquared constraint does not exclude a solution of rank one: with all pairs of labels the exact "
            "optimum is often rank one."
        ),
        target="isometry.spectral.mmc:MMC",
        traits=frozenset({"rotation", "affine", "iterative"}),
        below_euclidean="The optimum is often of rank one, which is too few directions for several classes.",
    ),
    Method(
        key="M01d",
        name="MMC[diagonal]",
        title="The first spectral method with one weight for each feature",
        family=_S,
        kind="estimator",
        sees="labels, pairs",
        equation="min_{w ≥ 0} sᵀw − C log Σ_D √((z∘z)ᵀw),  s = diag(M_S)",
        cite="E. P. Xing, A. Y. Ng, M. I. Jordan, S. Russell 2002, Distance metric learning with application to clustering with side-information, NIPS",
        section="The First Spectral Method",
        deviates="The diagonal algorithm of the paper, which the survey leaves out. C sets the scale alone (sᵀw = C/2), so α takes its place.",
        target="isometry.spectral.mmc:MMC",
        params={"diagonal": True},
        traits=frozenset({"iterative"}),
        below_euclidean="Most weights vanish at the optimum, so that few features are left.",
    ),
    Method(
        key="M02",
        name="RankOneMMC",
        title="The first spectral method with squared distances in its constraint: one direction",
        family=_S,
        kind="estimator",
        sees="labels, pairs",
        equation="max tr(W M_D)  s.t.  W ⪰ 0, tr(W M_S) ≤ 1",
        cite="E. P. Xing, A. Y. Ng, M. I. Jordan, S. Russell 2002, Distance metric learning with application to clustering with side-information, NIPS",
        section="The First Spectral Method",
        deviates=(
            "In the lemma the sums run over u_i, whose index is missing, and the other eigenvectors vanish only if the leading "
            "eigenvalue is simple; with a multiple one any PSD matrix on its eigenspace is optimal, and we return a rank-one one."
        ),
        target="isometry.spectral.mmc:RankOneMMC",
        traits=frozenset({"rotation", "affine"}),
        below_euclidean="One direction by construction, which is too few for several classes.",
    ),
)
