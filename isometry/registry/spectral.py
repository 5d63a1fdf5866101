"""Rows of the spectral methods."""

from __future__ import annotations

from isometry.registry.method import Method

# a row is a line or two of facts, then prose
# fmt: off
ROWS: tuple[Method, ...] = (
    Method("EUC", "isometry.spectral.euclidean:Euclidean", "Distance Metric", traits=("rotation",)),
    Method("M00", "isometry.spectral.covariance:Covariance", "Mahalanobis Distance; Generalized Mahalanobis Distance",
        traits=("rotation", "affine"),
        published={"reg": 0.0},
        deviates="The survey's proof of the identity of indiscernibles fails for singular W: d = 0 only says that "
        "the difference lies in the null space of W. W ≻ 0 gives a metric, W ⪰ 0 a pseudo-metric. Σ must be "
        "invertible; we drop directions without variance.",
        below_euclidean="Total whitening enlarges directions of noise as much as those of signal; it is a baseline."),
    Method("M01", "isometry.spectral.mmc:MMC", "The First Spectral Method",
        traits=("rotation", "affine", "iterative"),
        published={"strength": 1.0},
        deviates="One pass of gradient step, half-space projection and PSD projection does not land in the feasible "
        "set (the last step raises tr(W Σ_S)); we solve the equivalent scale-free problem in a factor of W and report "
        "its duality gap. The minimisation and the maximisation are equivalent up to the scale α only, which here is "
        "a mean distance, not a sum. The unsquared constraint does not exclude a solution of rank one: with all pairs "
        "of labels the exact optimum is often rank one.",
        below_euclidean="The optimum is often of rank one, which is too few directions for several classes."),
    Method("M01d", "isometry.spectral.mmc:MMC", "The First Spectral Method", variant="diagonal",
        params={"diagonal": True}, traits=("iterative",),
        published={"strength": 1.0},
        own_title="MMC with one weight for each feature",
        own_equation="min_{w ≥ 0} sᵀw − C log Σ_D √((z∘z)ᵀw),  s = diag(M_S)",
        deviates="The diagonal algorithm of the paper, which the survey leaves out. C sets the scale alone (sᵀw = "
        "C/2), so α takes its place.",
        below_euclidean="Most weights vanish at the optimum, so that few features are left."),
    Method("M02", "isometry.spectral.rank_one_mmc:RankOneMMC", "The First Spectral Method",
        traits=("rotation", "affine"),
        published={"strength": 1.0},
        deviates="In the lemma the sums run over u_i, whose index is missing, and the other eigenvectors vanish only "
        "if the leading eigenvalue is simple; with a multiple one any PSD matrix on its eigenspace is optimal, and we "
        "return a rank-one one.",
        below_euclidean="One direction by construction, which is too few for several classes."),
    Method("M03", "isometry.spectral.trace_sdp:TraceSDP", "Formulating as Semidefinite Programming",
        builds="isometry.spectral.fisher:FisherML", traits=("rotation",),
        published={"reg": 1e-6},
        deviates="In the lemma the second norm must be squared. No interior-point solver is needed: a linear "
        "function on the spectrahedron is smallest at the projector on the lowest eigenvector. One direction is too "
        "few with several classes, so the default takes the p = c − 1 lowest (the Fantope form). The paper's target "
        "distances are TraceSDP(target_distances=True) on Pairs(i, j, target=e, n=n).",
        below_euclidean="The criterion is a difference of variances, not scale-free, and keeps c − 1 directions "
        "only."),
    Method("M04", "isometry.spectral.fisher:FisherML", "Relevant to Fisher Discriminant Analysis, Approach 1",
        variant="orthonormal", params={"constraint": "orthonormal"}, traits=("rotation",),
        own_title="Metric related to Fisher discriminant analysis, orthonormal directions",
        published={"reg": 1e-6},
        deviates="Under the trace constraint alone every column of an optimal U is a multiple of the same "
        "eigenvector, so W has rank 1 whatever p; the orthonormal form is the one with p directions. With p = d it is "
        "a rotation.",
        below_euclidean="The criterion is a difference of variances, not scale-free, and keeps c − 1 directions "
        "only."),
    Method("M05", "isometry.spectral.fisher:FisherML", "Relevant to Fisher Discriminant Analysis, Approach 2",
        traits=("rotation", "affine"),
        published={"reg": 1e-6},
        deviates="M_D contains within-class scatter too, so replacing the pair scatters by class covariances is "
        "loose: the eigenvectors are LDA's exactly when all pairs are used and the classes have equal sizes. With "
        "uneven classes a leading one may show only that a small class is wide, so by default the c − 1 are taken "
        "along which means differ most."),
    Method("M06", "isometry.spectral.rca:RCA", "Relevant Component Analysis (RCA)", traits=("rotation", "affine"),
        published={"reg": 0.0},
        below_euclidean="Where rows are hardly more than features, directions that vary least within classes get most "
        "weight, and are noise: on mnist it makes 439 effective dimensions of 57, counted as (Σλ)²/Σλ². reg=1 wins "
        "back 33 of 41 points.",
        deviates="1/n in C_w must be 1/m, the number of samples in chunklets. With a PCA basis Q the distance is "
        "taken in the PCA subspace, W = Q(QᵀC_wQ)⁻¹Qᵀ, which the survey leaves implicit."),
    Method("M07", "isometry.spectral.dca:DCA", "Discriminative Component Analysis (DCA)",
        traits=("rotation", "affine"),
        published={"reg": 1e-8},
        deviates="A ratio of traces without orthogonality is not solved by the generalised eigenproblem: its maximum "
        "is the rank-one top eigenvector. The objective is the ratio of determinants. The published two-step recipe "
        "(algorithm='hoi') stays in range(C_b) and does not maximise it when there are fewer classes than features; "
        "our default does."),
    Method("M08", "isometry.spectral.trace_ratio:TraceRatioML", "High Dimensional Discriminative Component Analysis",
        traits=("rotation", "iterative"),
        published={"reg": 0.0},
        below_euclidean="It keeps c − 1 orthonormal directions, which is 1 of 5 on phoneme: with four of them 9 of 12 "
        "points come back.",
        deviates="λ is not a regularisation parameter but the unknown optimal ratio, the root of max tr(Uᵀ(S_b − "
        "λS_w)U) = 0; a fixed λ is another criterion (lam=number). The eigenvectors of the largest eigenvalues are "
        "taken. The reduction to range(S_b + S_w) is mandatory, not merely harmless, and its basis has d-vectors, not "
        "n-vectors. If S_w leaves p directions unused, S_b is maximised over them. Pair Laplacians give Σ_c n_c W_c, "
        "not the class-mean S_w."),
    Method("M09", "isometry.spectral.lle:LLERegularizedML", "Regularization by Locally Linear Embedding",
        traits=("rotation", "iterative"),
        published={"reg": 1.0},
        deviates="The first display has similar pairs in the numerator and unsquared norms. With UᵀU = I the "
        "generalised eigenproblem is not the solution (its eigenvectors are not orthonormal): it is a trace ratio; "
        "the eigenproblem is kept as algorithm='gevp'. G_i⁻¹1/1ᵀG_i⁻¹1 is the vector of row i of S, not one entry. "
        "One sample weighs against one similar pair by λ, as printed; weighting='mean' makes λ free of their numbers."),
    Method("M10", "isometry.spectral.fishmml:FishMML", "Fisher-HSIC Multi-view Metric Learning (FISH-MML)",
        traits=("iterative",),
        published={"strength": 1.0},
        deviates="One U for all views is impossible when they differ in width: each view has its own. The index w of "
        "the other view needs a sum, and the matrix whose eigenvectors are taken depends on the other U_w, so the "
        "problem is solved by block ascent, not by one eigenproblem. S_b carries the class sizes, so that S_b + S_w = "
        "S_t. Views are brought to unit variance first, because HSIC is quartic in their units.",
        below_euclidean="Every view keeps its own directions, and the term in the total variance favours loud ones.",
        xfails={"test_beats_euclidean_on_a_planted_problem":
            "the criterion rewards total variance, and that is noise there; the second half of the columns, a view of "
            "its own, holds nothing else"}),
    Method("M11", "isometry.spectral.lmnn:LMNN", "Large-Margin Metric Learning", traits=("rotation", "iterative"),
        published={"strength": 1.0},
        deviates="The sandwich 1 − ξ ≤ d_il − d_ij ≤ 1 has no upper bound in truth. 'Pushes' and 'pulls' are swapped "
        "in the text. Triplets are not random: targets are fixed neighbours and l runs over active impostors. The "
        "hinge is rounded while descending and sharpened to 1e-4 of the margin."),
    Method("M12", "isometry.spectral.lmnn:LMNN", "Large-Margin Metric Learning", variant="semi_hard",
        params={"mining": "semi_hard"}, reference=1, traits=("rotation", "iterative"),
        own_title="Large margin nearest neighbours on mined triplets",
        own_equation="LMNN over a list of triplets: k positives × k negatives of every anchor instead of all",
        published={"strength": 1.0},
        deviates="The survey only says that points at the smallest or largest distances can limit the number of "
        "triplets. The miners are defined in isometry.spectral.mining: by distances in the input space, and in the "
        "metric found so far if triplets are mined again; ties by index. A pair is pulled once, as in M11, not once "
        "for each of its triplets as in the authors' code: where every pair has k negatives, their problem is ours "
        "with k times their (1 − μ)/μ; where some have fewer, the two differ. Semi-hard negatives are sought for each "
        "anchor and positive; the authors' routine loses the anchor in an index. Negatives are sampled on rows scaled "
        "to length 1, without replacement."),
    Method("M12h", "isometry.spectral.hierarchical_lmnn:HierarchicalLMNN", "Large-Margin Metric Learning",
        traits=("iterative",), test_params={"n_rounds": 8},
        published={"strength": 1.0},
        below_euclidean="Its rounds are multiplied: after ten of them one direction of 8 is left on yeast; n_rounds=3 "
        "wins back 14 of 17 points.",
        deviates="The survey cites the paper for its miners and leaves this scheme out. As in the authors' code, I "
        "is added to M so that no direction collapses. Ours: each step is scaled so that the total variance stays, "
        "and radii are in units of the root of the total variance. With theirs, the mean deviation of a feature, "
        "fewer than one of the 44 balls of ten rounds holds a point, on average, in standardised data of eight to "
        "fifty features. A ball that is empty all the same is moved to the sample nearest to its centre."),
    Method("M13", "isometry.spectral.iml:IML", "Imbalanced Metric Learning (IML)", traits=("rotation", "iterative"),
        test_params={"tol": 1e-7},  # distances are known to the root of it
        published={"strength": 1.0},
        deviates="Pairs are not random: similar ones are nearest neighbours in the input space, dissimilar ones "
        "nearest neighbours under W itself, as in the authors' code. Those are the pairs of largest hinge, so the "
        "problem stays convex, and we minimise it exactly (up to the rounding of the hinge). Any number of classes, "
        "not two only."),
    Method("M14", "isometry.spectral.llma:LLMA", "Locally Linear Metric Adaptation (LLMA)",
        traits=("rotation", "iterative"),
        as_it_is="The map is not linear, so that a mixture needs the features beside its images: Shrunk makes "
        "one.",
        deviates="y_i = x_i + Bπ_i (indices are mixed up in print), and B is shared, so its columns belong to global "
        "centres, not to the neighbours of each point. Minimising over σ is degenerate (σ → 0 removes the penalty) "
        "and over w ill posed: both are parameters. The penalty keeps local distances of all points, not of similar "
        "ones. Means instead of sums rescale λ. A ridge on B is ours: without it samples outside the fit are thrown "
        "about.",
        xfails={"test_labels_and_all_their_pairs_agree":
            "labels become links between near samples of a class, not all its pairs"}),
    Method("M15", "isometry.spectral.margin_svm:MarginSVM", "Relevant to Support Vector Machine",
        traits=("rotation", "iterative"),
        published={"strength": 1.0},
        deviates="νγ enters with a minus sign: with the printed plus the margin is always 0 and the dual constraint "
        "Σa ≥ C_D ν does not arise. The constraint compares the new with the original squared distance of each "
        "dissimilar pair; the printed triplet constraint does not belong to the printed dual. In the dual's first "
        "term W must be I. |W|₂ is the Frobenius norm. The closed form of W need not be PSD: the exact dual with W ⪰ "
        "0 has the positive part of the same matrix, and that is the default (psd=True).",
        below_euclidean="W is a scatter of dissimilar pairs, so that wide directions get most weight and few carry "
        "the distance: the variance of isolet spreads over 2.7 dimensions, counted as (Σλ)²/Σλ², instead of 10.6. "
        "C_D=1000, nu=0.1 spread it over 6.4 and win back 12 of 17 points.",
        xfails={"test_beats_euclidean_on_a_planted_problem":
            "W follows the scatter of dissimilar pairs, which is mostly noise there, unless C_S is raised to about "
            "C_D"}),
    Method("M16", "isometry.spectral.parametric_mds:ParametricMDS", "Relevant to Multidimensional Scaling",
        traits=("rotation", "iterative"),
        published={"strength": 1.0},
        deviates="The printed problem has Euclidean targets, which W = I meets with value 0: it learns nothing. The "
        "targets must be label-aware dissimilarities, and the paper fits unsquared distances by iterative "
        "majorisation, whose fixed point we reach by L-BFGS (to 1e-4) in 3 to 33 times fewer steps on nine real sets; "
        "squared ones are kept as loss='sstress'. The constants in δ are ours."),
    Method("M16r", "isometry.spectral.rbf_parametric_mds:RBFParametricMDS", "Relevant to Multidimensional Scaling",
        traits=("iterative",),
        as_it_is="The map is not linear, so that a mixture needs the features beside its images: Shrunk makes "
        "one.",
        deviates="The non-linear map of the paper, which the survey leaves out; targets as in ParametricMDS. The "
        "small ridge is ours."),
    # beyond the survey
    Method("B25", "isometry.spectral.whitening:Whitening", "beyond the survey", traits=("rotation",),
        published={"reg": 0.01},
        deviates="Ours: the ridge counts only directions that have variance, so that a constant column changes "
        "nothing; what has no variance within classes but some between them is kept.",
        below_euclidean="It equalises directions of noise and of signal alike: full power loses up to 13 points, half "
        "of it up to 6. It is for embeddings, where few directions are much louder than all others."),
    Method("B01", "isometry.spectral.lfda:LFDA", "beyond the survey", traits=("rotation",),
        published={"reg": 0.001},
        deviates="λ is found with S_lb + S_lw, which is positive semi-definite; where λ < 0 peers take a root of it. A "
        "class with fewer samples than neighbours uses those it has. Ours: the relative ridge; affinities among "
        "duplicates, where σ = 0; 50 nearest samples in classes of more than 5000."),
    Method("B01s", "isometry.spectral.lfda:LFDA", "beyond the survey", variant="self", params={"beta": 0.5},
        reference=1, traits=("rotation",),
        own_title="Semi-supervised local Fisher discriminant analysis (SELF)",
        own_equation="max_V tr((VᵀS_wV)⁻¹ VᵀS_bV),  S_b = (1 − β)S_lb + βS_t,  S_w = (1 − β)S_lw + β tr(S_t)/d I",
        published={"reg": 0.001},
        deviates="The identity in S_w has the weight tr(S_t)/d, so that β does not depend on units.",
        xfails={"test_beats_euclidean_on_a_planted_problem":
            "half of the weight is that of the variance of all samples, which is wide noise there"}),
    Method("B07", "isometry.spectral.anmm:ANMM", "beyond the survey", traits=("rotation",),
        published={"reg": 0.0},
        deviates="Ours: by default the directions with a positive margin are kept; all of them are a rotation. A "
        "sample with fewer neighbours of a kind divides by those it has."),
    Method("B08", "isometry.spectral.mfa:MFA", "beyond the survey", traits=("rotation",),
        published={"reg": 0.001},
        deviates="S_b joins every sample to the nearest of other classes, as programs do; the article joins a class to "
        "others by its shortest pairs (margin='class'). Ours: scatters are means over edges, and by default the "
        "directions with λ > 1 are kept."),
    Method("B15", "isometry.spectral.rvml:RVML", "beyond the survey", traits=("rotation",),
        published={"reg": 0.01},
        deviates="A ridge relative to the variance of the data. With points='landmarks' the article transports samples "
        "onto landmarks of their class; ours takes the nearest centre of k-means of the class.",
        below_euclidean="Virtual points of classes leave c − 1 directions, too few where classes are many and small; "
        "landmarks keep more."),
    Method("B15l", "isometry.spectral.rvml:RVML", "beyond the survey", variant="landmarks",
        params={"points": "landmarks"}, traits=("rotation",),
        own_title="Regressive virtual metric learning onto landmarks of the classes",
        published={"reg": 0.01},
        deviates="As RVML.",
        below_euclidean="Samples are drawn to the centres of clusters, and with them what lies between.",
        xfails={"test_sample_order_and_label_names_do_not_matter": "k-means draws its starts by row number"}),
    Method("B03", "isometry.spectral.sir:SIR", "beyond the survey", traits=("rotation", "affine"),
        deviates="Ours: directions are weighted by √λ, the relative ridge, and a warning where slices differ no more "
        "than by chance. Several targets are cut by k-means."),
    Method("B26", "isometry.spectral.cross_view:CCA", "beyond the survey",
        deviates="Ours: directions are weighted by a power of their correlation, here the first; the relative ridge.",
        below_euclidean="It looks at no labels, and keeps what one half of the features knows of the other.",
        xfails={"test_survives[one feature]": "one feature makes no two views",
                "check_transformer_general":
            "scikit-learn takes a class of this name for its own, whose transform takes y",
                "check_transformer_data_not_an_array":
            "scikit-learn takes a class of this name for its own, whose transform takes y"}),
    Method("B26p", "isometry.spectral.cross_view:Procrustes", "beyond the survey",
        deviates="Ours: both views are brought to total variance 1, and may differ in width.",
        below_euclidean="It looks at no labels; each view is rotated, and the narrower one decides how much is kept.",
        xfails={"test_survives[one feature]": "one feature makes no two views"}),
    # beyond the survey, searched for
    Method("B05", "isometry.spectral.lsml:LSML", "beyond the survey", traits=("rotation", "iterative", "objective"),
        published={"strength": 1.0},
        deviates="The price γ of the residuals is ours: with the article's, 1, the metric hardly "
        "leaves the prior. The identity prior is that of samples of mean squared distance 1."),
    Method("B06", "isometry.spectral.scml:SCML", "beyond the survey", traits=("rotation", "iterative"),
        test_params={"tol": 1e-6},
        published={"strength": 1.0},
        deviates="Weights are found by L-BFGS with bounds on all triplets instead of dual "
        "averaging, which needs a table of triplets × directions; units and the strength of the penalty are ours. "
        "From triplets, all eigenvectors of a non-zero eigenvalue are directions."),
    Method("B11", "isometry.spectral.gmlvq:GMLVQ", "beyond the survey", traits=("rotation", "iterative"),
        published={"strength": 1.0},
        deviates="Prototypes and map are found together by L-BFGS. The penalty of the second "
        "article, log det alone, would let the scale of L run away without its trace constraint; ours does not see "
        "the scale."),
    Method("B12", "isometry.spectral.dml_eig:DMLeig", "beyond the survey",
        traits=("rotation", "affine", "iterative"),
        published={"strength": 1.0},
        deviates="L-BFGS on a factor takes the place of Frank–Wolfe, which needs thousands of "
        "steps, with the same duality gap; the width of the soft minimum is relative to the mean distance.",
        below_euclidean="The minimum looks at the hardest pairs alone, which on small sets of many classes are noise."),
    Method("B17", "isometry.spectral.relative:RelativeML", "beyond the survey",
        traits=("rotation", "iterative", "objective"),
        published={"strength": 1.0},
        deviates="One class for several articles: hinge and trace are SML, since the least "
        "(2,1)-norm over rotations of W is tr W; the other rows name theirs. Ours are the batch solvers, with a "
        "certificate of the minimum, and the units: samples of mean squared distance 1, and a margin of one median "
        "gap."),
    Method("B17d", "isometry.spectral.relative:RelativeML", "beyond the survey", variant="diagonal",
        params={"structure": "diagonal", "penalty": "frobenius"}, traits=("iterative", "objective"),
        published={"strength": 1.0},
        own_title="Relative comparisons with one weight for each feature",
        own_equation="min_{w ≥ 0} mean [1 + Σ_k w_k (z_near,k² − z_far,k²)]₊ + reg |w|²/(2 d w₀²)",
        deviates="The article's soft margins are the mean hinge, in the units of B17; its kernel "
        "is a fixed map A before the weights."),
    Method("B17p", "isometry.spectral.relative:RelativeML", "beyond the survey", variant="logistic",
        params={"loss": "logistic"}, traits=("rotation", "iterative", "objective"), reference=2,
        published={"strength": 1.0},
        own_title="Probabilistic relative distance comparison",
        own_equation="min_{W ⪰ 0} mean log(1 + exp(d²(near) − d²(far))) + reg tr W/(d w₀)",
        deviates="The trace penalty and the units are ours; the global minimum takes the place of "
        "the article's greedy directions."),
    Method("B17t", "isometry.spectral.relative:RelativeML", "beyond the survey", variant="logdet",
        params={"penalty": "logdet"}, traits=("rotation", "iterative", "objective"), reference=3,
        published={"strength": 1.0},
        own_title="LogDet metric learning with triplets",
        own_equation="min_{W ≻ 0} mean [1 + d²(near) − d²(far)]₊ + reg ((tr W/w₀ − log det(W/w₀))/d − 1)",
        deviates="The minimum over all triplets takes the place of one pass over them, which "
        "depends on their order."),
    Method("B17o", "isometry.spectral.relative:RelativeML", "beyond the survey", variant="ordinal",
        params={"comparisons": "ordinal"}, traits=("rotation", "iterative", "objective"), reference=4,
        published={"strength": 1.0},
        own_title="Metric for ordinal classes",
        own_equation="RelativeML over triplets (i, j, l): y_i = y_j ≠ y_l, or y_i < y_j < y_l, or y_i > y_j > y_l",
        deviates="Loss, penalty and units are those of B17.",
        xfails={"test_sample_order_and_label_names_do_not_matter": "the order of the labels is what it learns from"}),
    Method("B18", "isometry.spectral.boost_metric:BoostMetric", "beyond the survey", traits=("rotation", "iterative"),
        published={"strength": 1.0},
        deviates="By default the whole matrix is searched, up to a certificate of the minimum; the article's rank-one "
        "metrics one at a time are solver='boost', where the weights of all are adapted each time. Units and the scale "
        "of the price are ours, and its rise for a large trace, without which separable triplets have no minimum."),
    Method("B19", "isometry.spectral.mlr:MLR", "beyond the survey", traits=("rotation", "iterative", "objective"),
        published={"strength": 1.0},
        deviates="For the area under the curve the cutting planes are not needed: the worst ranking is a sum of "
        "hinges over all pairs of a query, worked out by sorting, and the minimum is certified. Average precision "
        "(loss='map') is minimised over batches of queries. Units are ours.",
        below_euclidean="It asks that all of a class come before all others: classes of several clusters lose, such "
        "as those of glass."),
    Method("B20", "isometry.spectral.oasis:OASIS", "beyond the survey", traits=("iterative",),
        as_it_is="It learns from a stream, which leaves no rows to hold out; Shrunk draws a fit to a table back.",
        deviates="The similarity need not be a metric; distances are those of its symmetric positive part. Samples "
        "are centred and scaled first, so that the step has no unit.",
        below_euclidean="Random triplets ask that all of a class be alike, and a similarity is not a metric: classes "
        "of several clusters, and small sets of many classes, lose."),
    Method("B21", "isometry.spectral.pola:POLA", "beyond the survey", traits=("iterative",),
        as_it_is="It learns from a stream, which leaves no rows to hold out; Shrunk draws a fit to a table back.",
        deviates="The result is the average over the steps, and samples are in units of their mean squared distance, "
        "so that the article's constants have no unit. Weights of pairs are parts of steps.",
        below_euclidean="One pass over random pairs, each asking that all of a class be alike: classes of several "
        "clusters, and small sets of many classes, lose.",
        xfails={"test_labels_and_all_their_pairs_agree": "of labels it takes random pairs in random order",
            "test_weights_and_soft_similarities_count_or_are_refused":
            "a soft pair is a similar and a dissimilar one in turn; listed apart they come in another order"}),
    Method("B22", "isometry.spectral.gb_lmnn:GBLMNN", "beyond the survey", traits=("iterative",),
        test_params={"n_estimators": 8},
        as_it_is="The map is not linear, so that a mixture needs the features beside its images: Shrunk makes "
        "one.",
        deviates="Each step is found by a line search that lowers the objective, and only the 50 nearest samples of "
        "other classes can be impostors, searched anew every ten rounds."),
    Method("B23", "isometry.spectral.chi_square:ChiSquareLMNN", "beyond the survey", traits=("histograms", "iterative"),
        as_it_is="Its samples are histograms, whose distance is not Euclidean.",
        deviates="transform maps histograms to coordinates in which χ² is the squared Euclidean distance, spanned by "
        "500 of them at most. Only the 50 nearest samples of other classes can be impostors, and the margin is "
        "relative to the median gap.",
        xfails={"check_estimators_dtypes": "one of the rows of that check is 0 everywhere, which is no histogram"}),
    Method("B24", "isometry.spectral.multi_task:MultiTaskLMNN", "beyond the survey", traits=("rotation", "iterative"),
        published={"strength": 1.0},
        deviates="The objective of a task is a mean over its samples, which are scaled first, so that the prices have "
        "no unit."),
)
