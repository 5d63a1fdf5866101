"""Rows of the networks and objectives of the deep family: what is more than a loss."""

from __future__ import annotations

from isometry.registry.deep import deep_row
from isometry.registry.method import Method

_AUTOENCODERS = (
    deep_row(
        "D01",
        "Reconstruction",
        "Reconstruction autoencoder, under- or over-complete",
        "objectives.reconstruction:Reconstruction",
        "mean_i ‖x_i − D(E(x_i))‖²",
        "D. E. Rumelhart, G. E. Hinton, R. J. Williams 1986, Learning representations by back-propagating errors, Nature",
        "Reconstruction Autoencoders",
        "The penalty is added once; the survey has it inside the sum over samples, so that it counts b times. Squares are summed "
        "over features and averaged over the batch. A code as large as a sample, which the survey leaves out, is allowed; "
        "without penalty or noise there is a warning that it can copy.",
        kind="objective",
        sees="none",
    ),
    deep_row(
        "D02",
        "Reconstruction[penalty]",
        "Regularised autoencoder: weights, sparse codes, contraction",
        "objectives.reconstruction:Reconstruction",
        "mean_i ‖x_i − D(E(x_i))‖² + λΩ;  Ω of weights (l1, l2), of codes (l1, l2, KL to a rate), or mean_i ‖∂h_i/∂x_i‖_F²",
        "S. Rifai, P. Vincent, X. Muller, X. Glorot, Y. Bengio 2011, Contractive auto-encoders: explicit invariance during "
        "feature extraction, ICML",
        "Reconstruction Loss",
        "The survey names no Ω. A penalty on weights is part of the loss, not the decoupled decay of AdamW.",
        kind="objective",
        sees="none",
        params={"penalty": "contractive"},
    ),
    deep_row(
        "D03",
        "Reconstruction[noise]",
        "Denoising autoencoder",
        "objectives.reconstruction:Reconstruction",
        "mean_i ‖x_i − D(E(x̃_i))‖²,  x̃ ∼ q(x̃ | x): Gaussian, masking, salt and pepper",
        "P. Vincent, H. Larochelle, I. Lajoie, Y. Bengio, P.-A. Manzagol 2010, Stacked denoising autoencoders, JMLR",
        "Denoising Autoencoder",
        "The target is the clean sample. It serves codes of any size, not over-complete ones only.",
        kind="objective",
        sees="none",
        params={"noise": "gaussian"},
    ),
    deep_row(
        "D04",
        "LinearAutoencoder",
        "Linear autoencoder: the principal subspace",
        "models.autoencoder:LinearAutoencoder",
        "min ‖X − X U_e U_d‖_F²",
        "P. Baldi, K. Hornik 1989, Neural networks and principal component analysis: learning from examples without local "
        "minima, Neural Networks",
        "Metric Learning by Reconstruction Autoencoder",
        "It is PCA only for squares, without penalty, with centred samples or biases, and up to an invertible map of the code, "
        "whose directions are neither orthonormal nor ordered; canonicalise() makes them so.",
        kind="network",
        sees="none",
        test_params={"n_features": 5, "n_components": 2},
    ),
    deep_row(
        "D05",
        "VariationalReconstruction",
        "Variational autoencoder",
        "objectives.variational:VariationalReconstruction",
        "mean_i −E_q log p(x_i | h) + β KL(N(μ_i, diag σ_i²) ‖ N(0, I))",
        "D. P. Kingma, M. Welling 2014, Auto-encoding variational Bayes, ICLR",
        "Types of Autoencoders",
        "Named by the survey without a formula.",
        kind="objective",
        sees="none",
    ),
    deep_row(
        "D06",
        "AdversarialReconstruction",
        "Adversarial autoencoder",
        "objectives.adversarial_autoencoder:AdversarialReconstruction",
        "E, D: mean_i ‖x_i − D(z_i)‖² − λ log σ(T(z_i));  T: mean_i −log σ(T(h_i)) − log(1 − σ(T(z_i))),  h ∼ prior",
        "A. Makhzani, J. Shlens, N. Jaitly, I. Goodfellow, B. Frey 2015, Adversarial autoencoders, arXiv",
        "Types of Autoencoders",
        "Named by the survey without a formula. The original updates reconstruction, discriminator and generator one after the "
        "other, with an optimiser each. Here they move at once along the gradients of their own losses, by one optimiser, so that "
        "the two terms of the encoder need the weight λ.",
        kind="objective",
        sees="none",
        test_params={"embedding_size": 4, "hidden": (8,)},
    ),
    deep_row(
        "D07",
        "Head",
        "Classifier-head embedding: the features below a linear head",
        "losses.heads:Head",
        "f_o = W f(x) + b;  a loss of f_o and the label trains f, the embedding; W, b are dropped",
        "M. Sikaroudi, A. Safarpoor, B. Ghojogh, S. Shafiei, M. Crowley, H. Tizhoosh 2020, Supervision and source domain impact "
        "on representation learning: a histopathology case study, EMBC",
        "Supervised Metric Learning by Supervised Loss Functions",
        "c outputs and one-hot targets for c classes: one output that regresses an integer label imposes an order. Convolutional "
        "features need not be flattened.",
        kind="network",
        sees="labels, targets",
    ),
)

_FEW_SHOT = (
    deep_row(
        "D53",
        "TwoStep",
        "Support/query two-step update (meta-learning)",
        "objectives.two_step:TwoStep",
        "min_θ mean over episodes of L_query(θ′),  θ′ = θ − α ∇L_support(θ)",
        "C. Finn, P. Abbeel, S. Levine 2017, Model-agnostic meta-learning for fast adaptation of deep networks, ICML",
        "Few-shot Metric Learning",
        "The final update starts from θ: the query's gradient is taken through the step on the support. Read literally, the "
        "survey's second back-propagation goes on from θ′, which is two plain steps one after the other; it is kept as "
        "mode='sequential'.",
        kind="objective",
        sees="labels",
    ),
    deep_row(
        "D53p",
        "Prototypes",
        "Prototypical classification of episodes",
        "objectives.prototypes:Prototypes",
        "−mean_q log softmax_l(−d(z_q, μ_l)/τ) at y_q,  μ_l the mean of the support of class l",
        "J. Snell, K. Swersky, R. Zemel 2017, Prototypical networks for few-shot learning, NIPS",
        "Few-shot Metric Learning",
        "Not printed in the survey; the simplest episodic objective, and the default loss of the two steps.",
        kind="objective",
        sees="labels",
    ),
    deep_row(
        "D54",
        "MultiScale",
        "Multi-scale metric learning",
        "objectives.multi_scale:MultiScale",
        "CE(r_q·, y_q) + λ mean_{l ≠ y_q} [r_ql − r_qy + m]_+,  r_ql a network's score of the maps of query and class",
        "After W. Jiang, K. Huang, J. Geng, X. Deng 2021, Multi-scale metric learning for few-shot learning, IEEE TCSVT",
        "Multi-scale Metric Learning",
        "A score belongs to a query and a class, not to every data point. Only features of the support are averaged. The deeper "
        "networks are those of the coarse, semantic maps, as the original's abstract says; 'larger scales' reads like the "
        "opposite. The triplet term compares scores, which are large for similar things, so its sign is reversed. Its exact form "
        "in the original could not be checked.",
        kind="objective",
        sees="labels",
        test_params={"channels": 8},
        below_euclidean="A learned relation needs many classes to be trained on.",
    ),
    deep_row(
        "D55",
        "ContinuousScores",
        "Metric learning with continuous similarity scores",
        "objectives.continuous:ContinuousScores",
        "min Σ (s_ij − y′_ij)² over the network and, λ-weighted, over the labels y′ ∈ [β, 1] (similar) or [0, α] (dissimilar)",
        "After X. Xu, H. Cao, Y. Yang, E. Yang, C. Deng 2019, Zero-shot metric learning, IJCAI",
        "Metric Learning with Continuous Similarity Scores",
        "Minimised, not maximised. The factor 1 + λ on one squared error would change nothing: it stands for two updates, of the "
        "network with the labels held, and of the labels with the scores held. Labels are clipped to their intervals; scores are "
        "drawn into them by a penalty, since descent on weights cannot hold them there. The label step could not be checked "
        "against the original.",
        kind="objective",
        sees="labels, pairs",
        test_params={"n_components": 4},
    ),
)

_BEYOND_LOSSES = (
    deep_row(
        "D14",
        "Siamese",
        "Siamese and triplet networks",
        "objectives.siamese:Siamese",
        "min_θ L(f_θ(x¹), f_θ(x²), similar)  or  L(f_θ(a), f_θ(p), f_θ(n)),  one f_θ for all branches",
        "J. Bromley, I. Guyon, Y. LeCun, E. Säckinger, R. Shah 1993, Signature verification using a Siamese time delay neural "
        "network, NIPS",
        "Siamese and Triplet Networks",
        "One network, whose gradient is the sum over the branches: updating one of several copies and copying its weights, the "
        "survey's first implementation, drops the others' gradients. All branches pass in one batch, not one by one. Similar points "
        "are pulled and dissimilar ones pushed, not the reverse.",
        kind="objective",
        sees="pairs, triplets",
    ),
    deep_row(
        "D14r",
        "RatioTriplet",
        "Squared softmax ratio of a triplet network",
        "objectives.siamese:RatioTriplet",
        "mean over triplets of (e^{d_ap} / (e^{d_ap} + e^{d_an}))²",
        "E. Hoffer, N. Ailon 2015, Deep metric learning using triplet network, SIMBAD",
        "Siamese and Triplet Networks",
        "Not printed in the survey; the loss that triplet networks were published with.",
        sees="labels, triplets",
    ),
    deep_row(
        "D30",
        "DAML",
        "Deep adversarial metric learning",
        "objectives.daml:DAML",
        "G: mean ‖x̃ − x‖² + λ₁‖x̃ − x⁻‖² + λ₂[‖f(x̃) − f(x)‖² − ‖f(x⁺) − f(x)‖² − α]_+;  f: L_metric(f(x), f(x⁺), f(x̃)),  x̃ = G(x, x⁺, x⁻)",
        "Y. Duan, W. Zheng, X. Lin, J. Lu, J. Zhou 2018, Deep adversarial metric learning, CVPR",
        "Deep Adversarial Metric Learning",
        "The margin in the hinge has a minus. The hinge makes the synthetic negative violate the margin; it is the distance to the "
        "real negative that keeps it a negative. G acts on features, not on inputs. The survey does not say who gets which gradient: "
        "G that of the first line, through an f it cannot move; features and f that of the metric loss alone. Both move in one step.",
        kind="objective",
        test_params={"generator": 4},
    ),
    deep_row(
        "D49",
        "MultiModal",
        "Multi-modal deep metric learning",
        "objectives.multimodal:MultiModal",
        "Σ_l mean_i ‖x_i^l − x̂_i^l‖² + λ₁ mean_sim [‖f_i − f_j‖² − m₁]_+ + λ₂ mean_dis [m₂ − ‖f_i − f_j‖²]_+",
        "S. M. Roostaiyan, E. Imani, M. S. Baghshah 2017, Multi-modal deep distance metric learning, Intelligent Data Analysis",
        "Multi-Modal Deep Metric Learning",
        "Pair terms are means: sums over pairs grow with the square of the batch. A sample makes no pair with itself. The survey's m "
        "is both the number of modalities and the margins. How the shared layer merges modalities it does not say: here side by side, "
        "or as the mean of those present.",
        kind="objective",
    ),
    deep_row(
        "D51",
        "SPDNet",
        "A network for SPD matrices: bilinear maps, eigenvalue rectification, logarithm",
        "models.spd:SPDNet",
        "X ↦ W X Wᵀ, WWᵀ = I;  X ↦ V diag(max(λ, ε)) Vᵀ;  X ↦ V diag(log λ) Vᵀ",
        "Z. Huang, L. Van Gool 2017, A Riemannian network for SPD matrix learning, AAAI",
        "Geometric Metric Learning by Neural Network",
        "ε > 0: with max(λ, 0), as printed, the matrix is only semi-definite and its logarithm infinite. The layer acts on SPD "
        "matrices; the survey applies it to the data matrix (d × n) of layered geometric learning, which has no eigenvalues.",
        kind="network",
        test_params={"sizes": (4, 3), "n_components": 4},
    ),
)

ROWS: tuple[Method, ...] = (*_AUTOENCODERS, *_FEW_SHOT, *_BEYOND_LOSSES)
