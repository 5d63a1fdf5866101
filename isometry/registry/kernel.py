"""Rows of the kernel methods."""

from __future__ import annotations

from isometry.registry.method import Method

_K = "kernel"
_SPAN = "The solution is sought in coordinates of the feature space, where the linear method is exact. "
_FNCA = "W. Yang, K. Wang, W. Zuo 2012, Fast neighborhood component analysis, Neurocomputing"

ROWS: tuple[Method, ...] = (
    Method(
        key="M17",
        name="KernelSpectrum",
        title="Kernel spectrum adaptation",
        family=_K,
        kind="estimator",
        sees="labels, pairs",
        equation="K̃ = Σ_r β_r² a_r a_rᵀ:  min_β Σ_r f_r β_r²  s.t. Σ_r β_r = c,  f_r = mean_S (a_ri − a_rj)²;  β_r ∝ 1/f_r",
        cite="D.-Y. Yeung, H. Chang 2007, A kernel approach for semisupervised metric learning, IEEE Trans. Neural Networks",
        section="Using Eigenvalue Decomposition of Kernel",
        deviates=(
            "The text constrains Σβ_r², the formula Σβ_r; the formula is right, the text would keep one component. The kernel is centred "
            "first, else a nearly constant eigenvector with f_r ≈ 0 takes all the weight. f_r has a relative ridge. That distances "
            "become smaller than in the input space does not follow: c sets the scale."
        ),
        target="isometry.kernel.spectrum:KernelSpectrum",
        traits=frozenset({"rotation"}),
        xfails={
            "test_beats_euclidean_on_a_planted_problem": (
                "the eigenvectors of the kernel are kept, and none of them separates the signal from noise that is wider"
            )
        },
        below_euclidean="Only the weights of the kernel's own components are learned, and similar pairs alone decide them.",
    ),
    Method(
        key="M18",
        name="KernelLLE",
        title="Kernel trace ratio regularised by locally linear embedding",
        family=_K,
        kind="estimator",
        sees="labels, pairs",
        equation="max_T tr(TᵀK L_b KT) / tr(TᵀK (L_w + λE) KT)  s.t. TᵀKT = I",
        cite="M. S. Baghshah, S. B. Shouraki 2009, Semi-supervised metric learning using pairwise constraints, IJCAI",
        section="Kernel Spectral Metric Learning, Regularization by Locally Linear Embedding",
        deviates=(
            "UᵀL_bU on the way lacks X: it is UᵀXᵀL_bXU. Projected gradients are not needed: in coordinates of the feature space the "
            "problem is a trace ratio, solved globally. The kernel is truncated and the denominator has a ridge, else directions of "
            "almost no variance win the ratio. Laplacians are divided by the number of pairs, E by n. Another reading of the paper, "
            "TᵀT = I over the samples in similar pairs, is constraint='coef', basis='constrained'."
        ),
        target="isometry.kernel.lle:KernelLLE",
        test_params={"n_components": 2},
        traits=frozenset({"rotation", "iterative"}),
    ),
    Method(
        key="M19",
        name="LaplacianKernelML",
        title="Kernel matrix learned with Laplacian regularisation",
        family=_K,
        kind="estimator",
        sees="labels, pairs",
        equation="min_{K⪰0} tr(E_S K) + λ tr(LK)/n  s.t. K_ii + K_jj − 2K_ij ≥ c on D,  1ᵀK1 = 0",
        cite="M. S. Baghshah, S. B. Shouraki 2010, Kernel-based metric learning for semi-supervised clustering, Neurocomputing",
        section="Regularization by Laplacian",
        deviates=(
            "(1/2n) Σ A_ij |·|² is tr(LK)/n: the survey loses 1/n. K is only given up to a translation: it is centred. The graph is "
            "symmetrised and connected. The programme is solved by low-rank factors with a dual certificate. New samples, of "
            "which the method says nothing, get the mean position of their neighbours."
        ),
        target="isometry.kernel.laplacian:LaplacianKernelML",
        test_params={"tol": 1e-3},
        traits=frozenset({"rotation", "iterative"}),
        xfails={
            "test_sample_order_and_label_names_do_not_matter": "200 dissimilar pairs are drawn at random from the labels",
            "test_labels_and_all_their_pairs_agree": "200 dissimilar pairs are drawn at random from the labels",
            "test_beats_euclidean_on_a_planted_problem": (
                "the neighbour graph and the place of a new sample follow Euclidean distance in the input space"
            ),
        },
        below_euclidean="A new sample is placed by its Euclidean neighbours: no better than they are.",
    ),
    Method(
        key="M20",
        name="KDCA",
        title="Kernel discriminative component analysis",
        family=_K,
        kind="estimator",
        sees="chunklets, labels, pairs",
        equation="max_T det(TᵀK_bT) / det(Tᵀ(K_w + εK)T)",
        cite="S. C. H. Hoi, W. Liu, M. R. Lyu, W.-Y. Ma 2006, Learning distance metrics with contextual constraints for image retrieval, CVPR",
        section="Kernel Discriminative Component Analysis",
        deviates=(
            "Printed as a trace ratio; the eigenproblem maximises the determinant ratio. Class means run over the members of a class. K_w "
            "is always singular: it has a ridge in feature space, K_w + εK."
        ),
        target="isometry.kernel.dca:KDCA",
        traits=frozenset({"rotation"}),
    ),
    Method(
        key="M21",
        name="KernelFisherML",
        title="Kernel relative of Fisher discriminant analysis",
        family=_K,
        kind="estimator",
        sees="labels, pairs",
        equation="min_T tr(Tᵀ(Σ_S − Σ_D)T)  s.t. TᵀKT = I (or TᵀΣ_ST = I)",
        cite="B. Alipanahi, M. Biggs, A. Ghodsi 2008, Distance metric learning vs. Fisher discriminant analysis, AAAI",
        section="Relevant to Kernel Fisher Discriminant Analysis",
        deviates=(
            "In the text the objective ends in Tᵀ instead of T and a bracket closes too late; the displayed problem is right. T "
            "holds the eigenvectors with the smallest eigenvalues, which is not said. TᵀKT = I kernelises the orthonormal problem, "
            "not the one with TᵀΣ_ST = I of the equation it refers to: that one is constraint='similar', where Σ_S, singular in "
            "feature space, has a relative ridge there."
        ),
        target="isometry.kernel.fisher:KernelFisherML",
        test_params={"n_components": 2},
        traits=frozenset({"rotation"}),
        below_euclidean=(
            "It keeps c − 1 directions, which is one where there are two classes. On musk1, phoneme and magic five win back most of the "
            "loss, or more."
        ),
    ),
    Method(
        key="M22",
        name="KernelMarginSVM",
        title="Kernel metric by the margin of a support vector machine",
        family=_K,
        kind="estimator",
        sees="labels, pairs",
        equation="max_a Σ_D a zᵀz − ½|[Σ_D a zzᵀ − C_S M_S]₊|²,  z_ijᵀz_kl = k_ik − k_il − k_jk + k_jl",
        cite="I. W. Tsang, J. T. Kwok 2003, Distance metric learning with kernels, ICANN",
        section="Relevant to Kernel Support Vector Machine",
        deviates=_SPAN + "The printed dual has a stray Tᵀ and leaves out W ⪰ 0, which psd=False gives.",
        target="isometry.kernel.margin_svm:KernelMarginSVM",
        below_euclidean=(
            "As MarginSVM, in the feature space: W follows the scatter of dissimilar pairs, so that few directions carry the "
            "distance, some 5 on mnist. C_D=100 doubles them and wins back most of the loss there, little on isolet."
        ),
        test_params={"C_D": 1.0},
        traits=frozenset({"rotation", "iterative"}),
    ),
    Method(
        key="M31",
        name="KernelDRML",
        title="Kernel dimensionality reduction and metric learning on Stiefel × SPD",
        family=_K,
        kind="estimator",
        sees="labels, pairs",
        equation="min_{TᵀKT=I, Λ≻0} mean_S log(1 + e^{d²}) + mean_D log(1 + e^{−d²}) + λ D_logdet(Λ, Λ₀),  d² = |Λ^{1/2}Tᵀ(k_i − k_j)|²",
        cite="M. Harandi, M. Salzmann, R. Hartley 2017, Joint dimensionality reduction and metric learning: a geometric take, ICML",
        section="Metric Learning on Stiefel and SPD Manifolds",
        deviates=_SPAN
        + "The survey only says that a kernel version exists. The kernel is truncated to its leading components.",
        target="isometry.kernel.drml:KernelDRML",
        traits=frozenset({"rotation", "iterative"}),
    ),
    Method(
        key="P02",
        name="KernelMCML",
        title="Kernel maximally collapsing metric learning",
        family=_K,
        kind="estimator",
        sees="labels",
        equation="min_{R⪰0} (1/n) Σ_i KL(p⁰_i ‖ p_i) + reg tr(RK),  d² = (k_i − k_j)ᵀR(k_i − k_j)",
        cite="A. Globerson, S. Roweis 2005, Metric learning by collapsing classes, NIPS",
        section="Collapsing Classes in the Feature Space",
        deviates=(
            "The gradient is right for targets p⁰ normalised over each row only. The penalty left open is the norm of the metric in feature "
            "space, tr(RK) or |·|_F² = tr(RKRK), which does not depend on the basis as tr(R) does; without it there is no minimiser."
        ),
        target="isometry.kernel.mcml:KernelMCML",
        test_params={"reg": 1e-3, "tol": 1e-4},
        traits=frozenset({"rotation", "iterative"}),
    ),
    Method(
        key="P07",
        name="KernelFastNCA",
        title="Kernel fast neighbourhood component analysis",
        family=_K,
        kind="estimator",
        sees="labels",
        equation="max_T (1/n) Σ_i p_i − reg tr(TᵀKT),  p_ij ∝ exp(−|Tᵀ(k_i − k_j)|²) on k hits and k misses",
        cite=_FNCA,
        section="Kernel Fast NCA",
        deviates=(
            "Hits and misses are swapped in the survey, the exponent lacks its square and the gradient a factor 2, as in the linear "
            "method. The printed gradient of the penalty, 2 reg T, belongs to |T|² (penalty='coef'); the norm of the map has "
            "2 reg KT."
        ),
        target="isometry.kernel.fast_nca:KernelFastNCA",
        test_params={"n_components": 4},
        traits=frozenset({"rotation", "iterative"}),
    ),
    Method(
        key="P08",
        name="KernelNCA",
        title="Kernel neighbourhood component analysis",
        family=_K,
        kind="estimator",
        sees="labels",
        equation="max_T (1/n) Σ_i p_i − reg tr(TᵀKT),  p_ij ∝ exp(−|Tᵀ(k_i − k_j)|²)",
        cite=_FNCA,
        section="Kernel Fast NCA",
        deviates=_SPAN + "A penalty is needed: with a kernel of full rank p_i → 1 comes for free.",
        target="isometry.kernel.nca:KernelNCA",
        test_params={"n_components": 4},
        traits=frozenset({"rotation", "iterative"}),
    ),
    Method(
        key="P19",
        name="KernelIGML",
        title="Kernel information geometry metric learning",
        family=_K,
        kind="estimator",
        sees="labels",
        equation="min_{R≻0} tr(K_L⁻¹KRK) − log det R,  K_L = YYᵀ + λI",
        cite="S. Wang, R. Jin 2009, An information geometry approach for distance metric learning, AISTATS",
        section="Metric Learning by Information Geometry",
        deviates=(
            "No formula is printed. At full rank R = K⁻¹K_LK⁻¹ reproduces K_L on the training samples whatever the kernel, so that the "
            "kernel is centred and truncated, with a ridge."
        ),
        target="isometry.kernel.information:KernelIGML",
        traits=frozenset({"rotation"}),
    ),
    Method(
        key="P22",
        name="KernelPCCA",
        title="Kernel pairwise constrained component analysis",
        family=_K,
        kind="estimator",
        sees="pairs, labels",
        equation="min_A mean (1/β) log(1 + exp(β t (|A(k_i − k_j)|² − b))) + reg tr(AKAᵀ)",
        cite="A. Mignon, F. Jurie 2012, PCCA: a new approach for distance learning from sparse pairwise constraints, CVPR",
        section="Pairwise Constrained Component Analysis (PCCA)",
        deviates=(
            "The logistic weight has the wrong sign in the exponent, as in the linear method. The step of the paper, AK Lap, is the "
            "gradient in coordinates of the feature space, which L-BFGS follows here."
        ),
        target="isometry.kernel.pcca:KernelPCCA",
        test_params={"n_components": 4},
        traits=frozenset({"rotation", "iterative"}),
    ),
)
