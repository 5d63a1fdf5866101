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
        target="isometry.spectral.euclidean:Euclidean",
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
            "classes, so the default takes the p = c − 1 lowest (the Fantope form). The paper's target distances are "
            "TraceSDP(target_distances=True) on Pairs(i, j, target=e, n=n)."
        ),
        target="isometry.spectral.trace_sdp:TraceSDP",
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
            "eigenvectors are LDA's exactly when all pairs are used and the classes have equal sizes. With uneven classes a "
            "leading one may show only that a small class is wide, so by default the c − 1 are taken along which means differ most."
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
        cite="S. C. H. Hoi, W. Liu, M. R. Lyu, W.-Y. Ma 2006, Learning distance metrics with contextual constraints for image retrieval, CVPR",
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
        target="isometry.spectral.rank_one_mmc:RankOneMMC",
        traits=frozenset({"rotation", "affine"}),
        below_euclidean="One direction by construction, which is too few for several classes.",
    ),
    Method(
        key="M08",
        name="TraceRatioML",
        title="Orthonormal trace-ratio metric, also for high dimension",
        family=_S,
        kind="estimator",
        sees="labels, pairs",
        equation="max tr(UᵀM_DU)/tr(UᵀM_SU)  s.t.  UᵀU = I, in range(M_S + M_D)",
        cite="S. Xiang, F. Nie, C. Zhang 2008, Learning a Mahalanobis distance metric for data clustering and classification, Pattern Recognition",
        section="High Dimensional Discriminative Component Analysis",
        deviates=(
            "λ is not a regularisation parameter but the unknown optimal ratio, the root of max tr(Uᵀ(S_b − λS_w)U) = 0; a "
            "fixed λ is another criterion (lam=number). The eigenvectors of the largest eigenvalues are taken. The reduction "
            "to range(S_b + S_w) is mandatory, not merely harmless, and its basis has d-vectors, not n-vectors. If S_w leaves "
            "p directions unused, S_b is maximised over them. Pair Laplacians give Σ_c n_c W_c, not the class-mean S_w."
        ),
        target="isometry.spectral.trace_ratio:TraceRatioML",
        traits=frozenset({"rotation", "iterative"}),
    ),
    Method(
        key="M09",
        name="LLERegularizedML",
        title="Trace-ratio metric regularised by locally linear embedding, semi-supervised",
        family=_S,
        kind="estimator",
        sees="labels, pairs",
        equation="max tr(UᵀM_DU)/tr(Uᵀ(M_S + λ XᵀEX/|S|)U)  s.t.  UᵀU = I,  E = (I − S)ᵀ(I − S)",
        cite="M. S. Baghshah, S. B. Shouraki 2009, Semi-supervised metric learning using pairwise constraints, IJCAI",
        section="Regularization by Locally Linear Embedding",
        deviates=(
            "The first display has similar pairs in the numerator and unsquared norms. With UᵀU = I the generalised "
            "eigenproblem is not the solution (its eigenvectors are not orthonormal): it is a trace ratio; the eigenproblem is "
            "kept as algorithm='gevp'. G_i⁻¹1/1ᵀG_i⁻¹1 is the vector of row i of S, not one entry. One sample weighs against one "
            "similar pair by λ, as printed; weighting='mean' makes λ free of their numbers."
        ),
        target="isometry.spectral.lle:LLERegularizedML",
        traits=frozenset({"rotation", "iterative"}),
    ),
    Method(
        key="M10",
        name="FishMML",
        title="Fisher–HSIC multi-view metric learning",
        family=_S,
        kind="estimator",
        sees="labels",
        equation="max Σ_r tr(U_rᵀ(S_b^r + λ₁S_t^r)U_r) + λ₂ Σ_{r<w} HSIC(X^rU_r, X^wU_w)  s.t.  U_rᵀU_r = I",
        cite="C. Zhang, Y. Liu, Y. Liu, Q. Hu, X. Liu, P. Zhu 2018, FISH-MML: Fisher-HSIC multi-view metric learning, IJCAI",
        section="Fisher-HSIC Multi-view Metric Learning (FISH-MML)",
        deviates=(
            "One U for all views is impossible when they differ in width: each view has its own. The index w of the other "
            "view needs a sum, and the matrix whose eigenvectors are taken depends on the other U_w, so the problem is solved "
            "by block ascent, not by one eigenproblem. S_b carries the class sizes, so that S_b + S_w = S_t. Views are brought "
            "to unit variance first, because HSIC is quartic in their units."
        ),
        target="isometry.spectral.fishmml:FishMML",
        xfails={
            "test_beats_euclidean_on_a_planted_problem": (
                "the criterion rewards total variance, and that is noise there; the second half of the columns, a view of "
                "its own, holds nothing else"
            ),
        },
        traits=frozenset({"iterative"}),
        below_euclidean="Every view keeps its own directions, and the term in the total variance favours loud ones.",
    ),
    Method(
        key="M13",
        name="IML",
        title="Imbalanced metric learning",
        family=_S,
        kind="estimator",
        sees="labels",
        equation="min_W Σ_c 1/(2C) (a mean_Sim_c [d² − 1]₊ + (1 − a) mean_Dis_c [1 + m − d²]₊) + γ|W − I|²",
        cite="L. Gautheron, A. Habrard, E. Morvant, M. Sebban 2019, Metric learning from imbalanced data, ICTAI",
        section="Imbalanced Metric Learning (IML)",
        deviates=(
            "Pairs are not random: similar ones are nearest neighbours in the input space, dissimilar ones nearest neighbours "
            "under W itself, as in the authors' code. Those are the pairs of largest hinge, so the problem stays convex, and "
            "we minimise it exactly (up to the rounding of the hinge). Any number of classes, not two only."
        ),
        target="isometry.spectral.iml:IML",
        traits=frozenset({"rotation", "iterative"}),
    ),
    Method(
        key="M14",
        name="LLMA",
        title="Locally linear metric adaptation, semi-supervised and non-linear",
        family=_S,
        kind="estimator",
        sees="labels, pairs",
        equation="min_B mean_S |y_i − y_j|² + λ mean_ω (|y_i − y_j| − |x_i − x_j|)² (+ ε|B|²),  y = x + Bπ(x)",
        cite="H. Chang, D.-Y. Yeung 2004, Locally linear metric adaptation for semi-supervised clustering, ICML",
        section="Locally Linear Metric Adaptation (LLMA)",
        deviates=(
            "y_i = x_i + Bπ_i (indices are mixed up in print), and B is shared, so its columns belong to global centres, not "
            "to the neighbours of each point. Minimising over σ is degenerate (σ → 0 removes the penalty) and over w ill "
            "posed: both are parameters. The penalty keeps local distances of all points, not of similar ones. Means instead "
            "of sums rescale λ. A ridge on B is ours: without it samples outside the fit are thrown about."
        ),
        target="isometry.spectral.llma:LLMA",
        xfails={
            "test_labels_and_all_their_pairs_agree": "labels become links between near samples of a class, not all its pairs",
        },
        traits=frozenset({"rotation", "iterative"}),
    ),
    Method(
        key="M15",
        name="MarginSVM",
        title="Metric by the margin of a support vector machine",
        family=_S,
        kind="estimator",
        sees="labels, pairs",
        equation="min ½|W|² + C_S mean_S zᵀWz + C_D(−νg + mean_D ξ)  s.t.  zᵀWz − zᵀz ≥ g − ξ on D, W ⪰ 0, g, ξ ≥ 0",
        cite="I. W. Tsang, J. T. Kwok 2003, Distance metric learning with kernels, ICANN",
        section="Relevant to Support Vector Machine",
        deviates=(
            "νγ enters with a minus sign: with the printed plus the margin is always 0 and the dual constraint Σa ≥ C_D ν does "
            "not arise. The constraint compares the new with the original squared distance of each dissimilar pair; the "
            "printed triplet constraint does not belong to the printed dual. In the dual's first term W must be I. |W|₂ is the "
            "Frobenius norm. The closed form of W need not be PSD: the exact dual with W ⪰ 0 has the positive part of the "
            "same matrix, and that is the default (psd=True)."
        ),
        target="isometry.spectral.margin_svm:MarginSVM",
        below_euclidean=(
            "W is a scatter of dissimilar pairs, so that wide directions get most weight and few carry the distance: the variance "
            "of isolet spreads over 2.7 dimensions, counted as (Σλ)²/Σλ², instead of 10.6. C_D=1000, nu=0.1 spread it over 6.4 and win "
            "back 12 of 17 points."
        ),
        xfails={
            "test_beats_euclidean_on_a_planted_problem": (
                "W follows the scatter of dissimilar pairs, which is mostly noise there, unless C_S is raised to about C_D"
            ),
        },
        traits=frozenset({"rotation", "iterative"}),
    ),
    Method(
        key="M16",
        name="ParametricMDS",
        title="Multidimensional scaling of label-aware dissimilarities by a linear map",
        family=_S,
        kind="estimator",
        sees="labels, pairs",
        equation="min_L mean (|L(x_i − x_j)| − δ_ij)²,  δ_ij² = 2 − exp(−|x_i − x_j|²/β) − [similar]",
        cite="Z. Zhang, J. T. Kwok, D.-Y. Yeung 2003, Parametric distance metric learning with label information, IJCAI",
        section="Relevant to Multidimensional Scaling",
        deviates=(
            "The printed problem has Euclidean targets, which W = I meets with value 0: it learns nothing. The targets must "
            "be label-aware dissimilarities, and the paper fits unsquared distances by iterative majorisation, whose fixed "
            "point we reach by L-BFGS (to 1e-4) in 3 to 33 times fewer steps on nine real sets; squared ones are "
            "kept as loss='sstress'. The constants in δ are ours."
        ),
        target="isometry.spectral.parametric_mds:ParametricMDS",
        traits=frozenset({"rotation", "iterative"}),
    ),
    Method(
        key="M16r",
        name="RBFParametricMDS",
        title="Multidimensional scaling of label-aware dissimilarities by radial basis functions",
        family=_S,
        kind="estimator",
        sees="labels, pairs",
        equation="min_L mean (|L(ψ(x_i) − ψ(x_j))| − δ_ij)² (+ ε|L|²),  ψ_l(x) = exp(−|x − c_l|²/β)",
        cite="Z. Zhang, J. T. Kwok, D.-Y. Yeung 2003, Parametric distance metric learning with label information, IJCAI",
        section="Relevant to Multidimensional Scaling",
        deviates="The non-linear map of the paper, which the survey leaves out; targets as in ParametricMDS. The small ridge is ours.",
        target="isometry.spectral.rbf_parametric_mds:RBFParametricMDS",
        traits=frozenset({"iterative"}),
    ),
    Method(
        key="M12",
        name="LMNN[semi_hard]",
        title="Large margin nearest neighbours on mined triplets",
        family=_S,
        kind="estimator",
        sees="labels, triplets",
        equation="M11 over a list of triplets: k positives × k negatives of every anchor instead of all",
        cite="P. A. Poorheravi, B. Ghojogh, V. Gaudet, F. Karray, M. Crowley 2020, Acceleration of large margin metric learning for nearest neighbor classification using triplet mining and stratified sampling, Journal of Computational Vision and Imaging Systems 6(1)",
        section="Large-Margin Metric Learning",
        deviates=(
            "The survey only says that points at the smallest or largest distances can limit the number of triplets. The "
            "miners are defined in isometry.spectral.mining: by distances in the input space, and in the metric found so far "
            "if triplets are mined again; ties by index. A pair is pulled once, as in M11, not once for each of its triplets "
            "as in the authors' code: where every pair has k negatives, their problem is ours with k times their (1 − μ)/μ; "
            "where some have fewer, the two differ. Semi-hard negatives are sought for each anchor and positive; the authors' "
            "routine loses the anchor in an index. Negatives are sampled on rows scaled to length 1, without replacement."
        ),
        target="isometry.spectral.lmnn:LMNN",
        params={"mining": "semi_hard"},
        traits=frozenset({"rotation", "iterative"}),
    ),
    Method(
        key="M12h",
        name="HierarchicalLMNN",
        title="Large margin nearest neighbours by hierarchical stratified sampling",
        family=_S,
        kind="estimator",
        sees="labels",
        equation="L ← (M + I)^{1/2} L,  M = LMNN of a stratified sample in a ball; balls grow from round to round",
        cite="P. A. Poorheravi, B. Ghojogh, V. Gaudet, F. Karray, M. Crowley 2020, Acceleration of large margin metric learning for nearest neighbor classification using triplet mining and stratified sampling, Journal of Computational Vision and Imaging Systems 6(1)",
        section="Large-Margin Metric Learning",
        deviates=(
            "The survey cites the paper for its miners and leaves this scheme out. As in the authors' code, I is added to M "
            "so that no direction collapses. Ours: each step is scaled so that the total variance stays, and radii are in "
            "units of the root of the total variance. With theirs, the mean deviation of a feature, fewer than one of the "
            "44 balls of ten rounds holds a point, on average, in standardised data of eight to fifty features. A ball that "
            "is empty all the same is moved to the sample nearest to its centre."
        ),
        target="isometry.spectral.hierarchical_lmnn:HierarchicalLMNN",
        test_params={"n_rounds": 8},
        traits=frozenset({"iterative"}),
        xfails={
            "test_sample_order_and_label_names_do_not_matter": "samples of the balls are drawn by row number",
        },
    ),
)
