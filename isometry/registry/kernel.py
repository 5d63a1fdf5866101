"""Rows of the kernel methods."""

from __future__ import annotations

from isometry.registry.method import Method

# a row is a line or two of facts, then prose
# fmt: off
ROWS: tuple[Method, ...] = (
    Method("M17", "isometry.kernel.spectrum:KernelSpectrum", "Using Eigenvalue Decomposition of Kernel",
        traits=("rotation",),
        as_it_is="The map is not linear, so that a mixture needs the features beside its images: Shrunk makes "
        "one.",
        deviates="The text constrains Σβ_r², the formula Σβ_r; the formula is right, the text would keep one "
        "component. The kernel is centred first, else a nearly constant eigenvector with f_r ≈ 0 takes all the "
        "weight. f_r has a relative ridge. That distances become smaller than in the input space does not follow: c "
        "sets the scale.",
        below_euclidean="Only the weights of the kernel's own components are learned, and similar pairs alone decide "
        "them.",
        xfails={"test_beats_euclidean_on_a_planted_problem":
            "the eigenvectors of the kernel are kept, and none of them separates the signal from noise that is wider"}),
    Method("M18", "isometry.kernel.lle:KernelLLE",
        "Kernel Spectral Metric Learning, Regularization by Locally Linear Embedding",
        traits=("rotation", "iterative"), test_params={"n_components": 2},
        as_it_is="The map is not linear, so that a mixture needs the features beside its images: Shrunk makes "
        "one.",
        deviates="UᵀL_bU on the way lacks X: it is UᵀXᵀL_bXU. Projected gradients are not needed: in coordinates of "
        "the feature space the problem is a trace ratio, solved globally. The kernel is truncated and the denominator "
        "has a ridge, else directions of almost no variance win the ratio. Laplacians are divided by the number of "
        "pairs, E by n. Another reading of the paper, TᵀT = I over the samples in similar pairs, is "
        "constraint='coef', basis='constrained'."),
    Method("M19", "isometry.kernel.laplacian:LaplacianKernelML", "Regularization by Laplacian",
        traits=("rotation", "iterative"), test_params={"tol": 0.001},
        as_it_is="The map is not linear, so that a mixture needs the features beside its images: Shrunk makes "
        "one.",
        deviates="(1/2n) Σ A_ij |·|² is tr(LK)/n: the survey loses 1/n. K is only given up to a translation: it is "
        "centred. The graph is symmetrised and connected. The programme is solved by low-rank factors with a dual "
        "certificate. New samples, of which the method says nothing, get the mean position of their neighbours.",
        below_euclidean="A new sample is placed by its Euclidean neighbours: no better than they are.",
        xfails={"test_labels_and_all_their_pairs_agree": "200 dissimilar pairs are drawn at random from the labels",
                "test_beats_euclidean_on_a_planted_problem":
            "the neighbour graph and the place of a new sample follow Euclidean distance in the input space"}),
    Method("M20", "isometry.kernel.dca:KDCA", "Kernel Discriminative Component Analysis",
        builds="isometry.spectral.dca:DCA", traits=("rotation",),
        published={"reg": 1e-3},
        deviates="Printed as a trace ratio; the eigenproblem maximises the determinant ratio. Class means run over "
        "the members of a class. K_w is always singular: it has a ridge in feature space, K_w + εK."),
    Method("M21", "isometry.kernel.fisher:KernelFisherML", "Relevant to Kernel Fisher Discriminant Analysis",
        builds="isometry.spectral.fisher:FisherML", traits=("rotation",), test_params={"n_components": 2},
        published={"reg": 1e-3},
        deviates="In the text the objective ends in Tᵀ instead of T and a bracket closes too late; the displayed "
        "problem is right. T holds the eigenvectors with the smallest eigenvalues, which is not said. TᵀKT = I "
        "kernelises the orthonormal problem, not the one with TᵀΣ_ST = I of the equation it refers to: that one is "
        "constraint='similar', where Σ_S, singular in feature space, has a relative ridge there.",
        below_euclidean="It keeps c − 1 directions, which is one where there are two classes. On musk1, phoneme and "
        "magic five win back most of the loss, or more."),
    Method("M22", "isometry.kernel.margin_svm:KernelMarginSVM", "Relevant to Kernel Support Vector Machine",
        builds="isometry.spectral.margin_svm:MarginSVM", traits=("rotation", "iterative"), test_params={"C_D": 1.0},
        published={"strength": 1.0},
        deviates="The solution is sought in coordinates of the feature space, where the linear method is exact. The "
        "printed dual has a stray Tᵀ and leaves out W ⪰ 0, which psd=False gives.",
        below_euclidean="As MarginSVM, in the feature space: W follows the scatter of dissimilar pairs, so that few "
        "directions carry the distance, some 5 on mnist. C_D=100 doubles them and wins back most of the loss there, "
        "little on isolet."),
    Method("M31", "isometry.kernel.drml:KernelDRML", "Metric Learning on Stiefel and SPD Manifolds",
        builds="isometry.geometric.drml:DRML", traits=("rotation", "iterative"),
        published={"strength": 1.0},
        deviates="The solution is sought in coordinates of the feature space, where the linear method is exact. The "
        "survey only says that a kernel version exists. The kernel is truncated to its leading components."),
    Method("P02", "isometry.kernel.mcml:KernelMCML", "Collapsing Classes in the Feature Space",
        builds="isometry.probabilistic.mcml:MCML", traits=("rotation", "iterative"),
        test_params={"reg": 0.001, "tol": 0.0001},
        published={"strength": 1.0},
        deviates="The gradient is right for targets p⁰ normalised over each row only. The penalty left open is the "
        "norm of the metric in feature space, tr(RK) or |·|_F² = tr(RKRK), which does not depend on the basis as "
        "tr(R) does; without it there is no minimiser."),
    Method("P07", "isometry.kernel.fast_nca:KernelFastNCA", "Kernel Fast NCA",
        builds="isometry.probabilistic.fast_nca:FastNCA", traits=("rotation", "iterative"),
        test_params={"n_components": 4},
        published={"strength": 1.0},
        deviates="Hits and misses are swapped in the survey, the exponent lacks its square and the gradient a factor "
        "2, as in the linear method. The printed gradient of the penalty, 2 reg T, belongs to |T|² (penalty='coef'); "
        "the norm of the map has 2 reg KT."),
    Method("P08", "isometry.kernel.nca:KernelNCA", "Kernel Fast NCA", builds="isometry.probabilistic.nca:NCA",
        traits=("rotation", "iterative"), test_params={"n_components": 4},
        published={"strength": 1.0},
        deviates="The solution is sought in coordinates of the feature space, where the linear method is exact. A "
        "penalty is needed: with a kernel of full rank p_i → 1 comes for free."),
    Method("P19", "isometry.kernel.information:KernelIGML", "Metric Learning by Information Geometry",
        builds="isometry.probabilistic.igml:IGML", traits=("rotation",),
        published={"reg": 1e-3},
        deviates="No formula is printed. At full rank R = K⁻¹K_LK⁻¹ reproduces K_L on the training samples whatever "
        "the kernel, so that the kernel is centred and truncated, with a ridge."),
    Method("P22", "isometry.kernel.pcca:KernelPCCA", "Pairwise Constrained Component Analysis (PCCA)",
        builds="isometry.probabilistic.pcca:PCCA", traits=("rotation", "iterative"), test_params={"n_components": 4},
        published={"strength": 1.0},
        deviates="The logistic weight has the wrong sign in the exponent, as in the linear method. The step of the "
        "paper, AK Lap, is the gradient in coordinates of the feature space, which L-BFGS follows here."),
    # beyond the survey
    Method("B01k", "isometry.kernel.lfda:KernelLFDA", "beyond the survey",
        builds="isometry.spectral.lfda:LFDA", traits=("rotation",),
        published={"reg": 0.001},
        deviates="The solution is sought in coordinates of the feature space, where the linear method is exact. The "
        "kernel keeps 95 % of its trace, or all of a flat spectrum."),
    Method("B07k", "isometry.kernel.anmm:KernelANMM", "beyond the survey",
        builds="isometry.spectral.anmm:ANMM", traits=("rotation",),
        published={"reg": 0.0},
        deviates="The solution is sought in coordinates of the feature space, where the linear method is exact. The "
        "kernel keeps 95 % of its trace, or all of a flat spectrum."),
    Method("B08k", "isometry.kernel.mfa:KernelMFA", "beyond the survey",
        builds="isometry.spectral.mfa:MFA", traits=("rotation",),
        published={"reg": 0.001},
        deviates="The solution is sought in coordinates of the feature space, where the linear method is exact. The "
        "kernel keeps 95 % of its trace, or all of a flat spectrum."),
    Method("B09k", "isometry.kernel.dmlmj:KernelDMLMJ", "beyond the survey",
        builds="isometry.geometric.dmlmj:DMLMJ", traits=("rotation",),
        published={"reg": 0.001},
        deviates="The solution is sought in coordinates of the feature space, where the linear method is exact. The "
        "kernel keeps 95 % of its trace, or all of a flat spectrum.",
        xfails={"test_labels_and_all_their_pairs_agree": "labels give pairs of near samples, not all pairs"}),
    Method("B13k", "isometry.kernel.kissme:KernelKISSME", "beyond the survey",
        builds="isometry.probabilistic.kissme:KISSME", traits=("rotation",),
        published={"reg": 0.1},
        deviates="The solution is sought in coordinates of the feature space, where the linear method is exact. The "
        "kernel keeps 95 % of its trace, or all of a flat spectrum."),
    Method("B26k", "isometry.kernel.cca:KernelCCA", "beyond the survey",
        deviates="Ours: directions are weighted by a power of their correlation, here the first; the relative ridge.",
        below_euclidean="It looks at no labels, and keeps what one half of the features knows of the other.",
        xfails={"test_survives[one feature]": "one feature makes no two views"}),
    Method("B29", "isometry.kernel.lmnn:KernelLMNN", "beyond the survey",
        builds="isometry.spectral.lmnn:LMNN", traits=("rotation", "iterative"), test_params={"tol": 3e-5},
        published={"strength": 1.0},
        deviates="The solution is sought in coordinates of the feature space, where the linear method is exact. The "
        "kernel keeps 95 % of its trace, or all of a flat spectrum."),
)
