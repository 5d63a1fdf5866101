"""Rows of the deep methods."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from isometry.registry.method import Method

# Every loss can be built, for tests, for embeddings (B, 4) of four classes.
_SIZES = MappingProxyType({"num_classes": 4, "embedding_size": 4})

_FISHER = (
    "B. Ghojogh, M. Sikaroudi, S. Shafiei, H. Tizhoosh, F. Karray, M. Crowley 2020, Fisher discriminant triplet and "
    "contrastive losses for training Siamese networks, IJCNN"
)
_WU = "C.-Y. Wu, R. Manmatha, A. Smola, P. Krähenbühl 2017, Sampling matters in deep embedding learning, ICCV"
_HERMANS = "A. Hermans, L. Beyer, B. Leibe 2017, In defense of the triplet loss for person re-identification, arXiv"
_FACENET = "F. Schroff, D. Kalenichenko, J. Philbin 2015, FaceNet: a unified embedding for face recognition and clustering, CVPR"
_XUAN = "H. Xuan, A. Stylianou, R. Pless 2020, Improved embeddings with easy positive triplet mining, WACV"
_OH = "H. Oh Song, Y. Xiang, S. Jegelka, S. Savarese 2016, Deep metric learning via lifted structured feature embedding, CVPR"
_NOT_ITSELF = (
    "A point is not its own positive: the sums over the class of x_i leave out i, which the survey does not say."
)


def deep_row(
    key: str,
    name: str,
    title: str,
    target: str,
    equation: str,
    cite: str,
    section: str,
    deviates: str = "",
    *,
    kind: str = "loss",
    sees: str = "labels",
    **more: Any,
) -> Method:
    return Method(
        key, name, title, "deep", kind, sees, equation, cite, section, deviates, f"isometry.deep.{target}", **more
    )


_HEADS = (
    deep_row(
        "D08",
        "MSE",
        "Mean squared error on a head",
        "losses.heads:MSE",
        "mean_i ‖f_i − t_i‖²",
        "C. F. Gauss 1809, Theoria motus corporum coelestium",
        "Mean Squared Error and Mean Absolute Value Losses",
        "A mean over the batch where the survey writes a sum. Labels are one-hot: one output that regresses an integer label "
        "would impose an order on the classes.",
        kind="head",
        sees="labels, targets",
        test_params=_SIZES,
    ),
    deep_row(
        "D09",
        "MAE",
        "Mean absolute error on a head",
        "losses.heads:MAE",
        "mean_i ‖f_i − t_i‖₁",
        "P.-S. Laplace 1774, Mémoire sur la probabilité des causes par les évènements",
        "Mean Squared Error and Mean Absolute Value Losses",
        "Not differentiable where the output, not the embedding, equals the label; the subgradient there is 0. It makes "
        "residuals sparse, not the embedding.",
        kind="head",
        sees="labels, targets",
        test_params=_SIZES,
    ),
    deep_row(
        "D10",
        "Huber",
        "Huber loss on a head",
        "losses.heads:Huber",
        "mean_i Σ_l h_δ(f_il − t_il),  h_δ(r) = ½r² if |r| ≤ δ else δ(|r| − ½δ)",
        "P. J. Huber 1964, Robust estimation of a location parameter, Ann. Math. Statist.",
        "Huber and KL-Divergence Losss",
        kind="head",
        sees="labels, targets",
        test_params=_SIZES,
    ),
    deep_row(
        "D11",
        "KL",
        "Kullback–Leibler divergence on a head",
        "losses.heads:KL",
        "mean_i Σ_l t_il log(t_il / p_il),  p = softmax(f)",
        "S. Kullback, R. A. Leibler 1951, On information and sufficiency, Ann. Math. Statist.",
        "Huber and KL-Divergence Losss",
        "KL(label ‖ prediction): the printed order is infinite for one-hot labels. The prediction is a softmax of the "
        "outputs, and the sum runs over classes for every sample, not over samples only.",
        kind="head",
        sees="labels, targets",
        test_params=_SIZES,
    ),
    deep_row(
        "D12",
        "Hinge",
        "Hinge loss on a head",
        "losses.heads:Hinge",
        "mean_i [m − y_i f_i]_+ ; several classes: one-versus-rest or [m + max_{l≠y} f_l − f_y]_+",
        "K. Crammer, Y. Singer 2001, On the algorithmic implementation of multiclass kernel-based vector machines, JMLR",
        "Hinge Loss",
        kind="head",
        test_params=_SIZES,
    ),
    deep_row(
        "D13",
        "CrossEntropy",
        "Cross-entropy on a head, with an optional metric-learning term",
        "losses.heads:CrossEntropy",
        "mean_i log Σ_l e^{f_il} − f_{i,y_i}  (+ λ L(z, y))",
        "M. Boudiaf et al. 2020, A unifying mutual information view of metric learning: cross-entropy vs. pairwise losses, ECCV",
        "Cross-entropy Loss",
        "With sigmoid outputs the terms (1 − y) log(1 − σ) are needed; the printed sum is minimal for σ = 1 everywhere. "
        "Cross-entropy bounds a pairwise cross-entropy, not every metric-learning loss.",
        kind="head",
        sees="labels, targets",
        test_params=_SIZES,
    ),
)

_SIAMESE = (
    deep_row(
        "D16",
        "Contrastive",
        "Contrastive loss",
        "losses.contrastive:Contrastive",
        "mean over pairs of ½d² (similar) and ½[m − d]_+² (dissimilar)",
        "R. Hadsell, S. Chopra, Y. LeCun 2006, Dimensionality reduction by learning an invariant mapping, CVPR",
        "Contrastive Loss",
        "The survey has d and [m − d]_+ for a squared distance d. There the push vanishes for coincident points and the "
        "margin has squared units; it is kept as squared_hinge=False, distance='sqeuclidean'.",
        sees="labels, pairs",
    ),
    deep_row(
        "D17",
        "GeneralizedContrastive",
        "Generalised contrastive loss for soft similarities",
        "losses.contrastive:GeneralizedContrastive",
        "mean over pairs of s ½d² + (1 − s) ½[m − d]_+²",
        "M. Leyva-Vallina, N. Strisciuglio, N. Petkov 2021, Generalized contrastive optimization of Siamese networks for "
        "place recognition, arXiv",
        "Contrastive Loss (Generalized Contrastive Loss)",
        "The survey's ψ is a dissimilarity, 1 − s, though introduced as how similar two points are; squares as in the "
        "contrastive loss.",
        sees="labels, pairs",
    ),
    deep_row(
        "D18",
        "Triplet",
        "Triplet loss",
        "losses.triplet:Triplet",
        "[d(a, p) − d(a, n) + m]_+",
        _FACENET,
        "Triplet Loss",
        "Embeddings of unit length, as in the original.",
        sees="labels, triplets",
        params={"reduction": "mean"},
    ),
    deep_row(
        "D19",
        "Tuplet",
        "Tuplet hinge loss: one positive, several negatives",
        "losses.triplet:Tuplet",
        "mean over (a, p), j of [d(a, p) − d(a, n_j) + m]_+",
        "B. Ghojogh, A. Ghodsi, F. Karray, M. Crowley 2022, Spectral, probabilistic, and deep metric learning: tutorial and "
        "survey, arXiv",
        "Tuplet Loss",
        "Printed by the survey as the loss of the multi-class N-pair paper, which is a log-sum-exp of inner products: NPair.",
        sees="labels, triplets",
    ),
    deep_row(
        "D20",
        "NPair",
        "(N+1)-tuplet and multi-class N-pair loss",
        "losses.npair:NPair",
        "mean over pairs of log(1 + Σ_j exp(fᵀf_j⁻ − fᵀf⁺)) + (λ/4)(‖f‖² + ‖f⁺‖²)",
        "K. Sohn 2016, Improved deep metric learning with multi-class N-pair loss objective, NIPS",
        "Tuplet Loss",
        "The survey prints a sum of hinges under this citation; see Tuplet. All disjoint pairs of a batch are used.",
    ),
    deep_row(
        "D21",
        "NCALoss",
        "Neighbourhood component analysis loss",
        "losses.nca:NCALoss",
        "−mean_i log Σ_{j∈pos(i)} e^{−d_ij} / Σ_{k≠i} e^{−d_ik}",
        "J. Goldberger, S. Roweis, G. Hinton, R. Salakhutdinov 2005, Neighbourhood components analysis, NIPS",
        "Neighborhood Component Analysis Loss",
        "The printed ratio has only negatives below and one positive above: no probability, and unbounded. It is kept as "
        "denominator='negatives'. d(f(a) − f(n)) is to be read d(f(a), f(n)).",
    ),
    deep_row(
        "D22",
        "ProxyNCA",
        "Proxy neighbourhood component analysis",
        "losses.proxy:ProxyNCA",
        "mean_i ‖ẑ_i − π̂_i‖² + log Σ_{π≠π_i} e^{−‖ẑ_i − π̂‖²}",
        "Y. Movshovitz-Attias, A. Toshev, T. Leung, S. Ioffe, S. Singh 2017, No fuss distance metric learning using proxies, "
        "ICCV",
        "Proxy Neighborhood Component Analysis Loss",
        "Proxies are learned in the paper; class means and k-means are the survey's. With k-means a cluster is no class: "
        "negatives are all proxies but the assigned one. Vectors have unit length. The bound on NCA needs additive constants.",
        test_params=_SIZES,
    ),
    deep_row(
        "D23",
        "ProxyNCAPlusPlus",
        "Proxy-NCA++",
        "losses.proxy:ProxyNCAPlusPlus",
        "−mean_i log softmax_l(−‖ẑ_i − π̂_l‖²/T)[y_i]",
        "E. W. Teh, T. DeVries, G. Taylor 2020, ProxyNCA++: revisiting and revitalizing proxy neighborhood component "
        "analysis, ECCV",
        "Proxy Neighborhood Component Analysis Loss",
        "The denominator holds all proxies; the survey keeps the negatives only and divides by a temperature, which leaves "
        "out what the method is about.",
        test_params=_SIZES,
    ),
    deep_row(
        "D24",
        "SoftmaxTriplet",
        "Softmax triplet loss",
        "losses.softmax_triplet:SoftmaxTriplet",
        "−mean_i ( Σ_pos log p_ij + Σ_neg log(1 − p_ij) ),  p = softmax of ẑ_iᵀẑ_j/τ or −d_ij/τ",
        "M. Ye, X. Zhang, P. Yuen, S.-F. Chang 2019, Unsupervised embedding learning via invariant and spreading instance "
        "feature, CVPR",
        "Softmax Triplet Loss",
        "The sum over negatives is added inside the bracket; the printed minus rewards confusion. Temperature and unit length "
        "are missing in the survey.",
        sees="labels, views",
    ),
    deep_row(
        "D25",
        "TripletGlobal",
        "Triplet global loss",
        "losses.triplet_global:TripletGlobal",
        "σ₊² + σ₋² + λ[μ₊ − μ₋ + t]_+,  d = ‖ẑ − ẑ'‖²/4",
        "B. G. V. Kumar, G. Carneiro, I. Reid 2016, Learning local image descriptors with deep Siamese and triplet "
        "convolutional networks by minimising global loss functions, CVPR",
        "Triplet Global Loss",
        "Distances of unit vectors are divided by 4, which gives the margin its scale. There is one hinge a batch.",
        sees="labels, triplets",
    ),
    deep_row(
        "D26",
        "Angular",
        "Angular loss",
        "losses.angular:Angular",
        "mean over (a, p) of log(1 + Σ_n exp(4 tan²α (a+p)ᵀn − 2(1 + tan²α) aᵀp))",
        "J. Wang, F. Zhou, S. Wen, X. Liu, Y. Lin 2017, Deep metric learning with angular loss, ICCV",
        "Angular Loss",
        "The bound is tan²(α) times the distance of the negative to the centre of anchor and positive; the survey has "
        "tan²(α·d) of the anchor's distance to it, in which no negative occurs. The centre is of embeddings, not of inputs.",
        sees="labels, triplets",
    ),
    deep_row(
        "D27",
        "SoftTriple",
        "SoftTriple loss",
        "losses.soft_triple:SoftTriple",
        "−mean log softmax of λ(S_il − δ[l=y]),  S_il = Σ_k softmax_k(ẑᵀw_l^k/γ) ẑᵀw_l^k,  + τ·spread of the centres",
        "Q. Qian, L. Shang, B. Sun, J. Hu, H. Li, R. Jin 2019, SoftTriple loss: deep metric learning without triplet "
        "sampling, ICCV",
        "SoftTriple Loss",
        "Similarities must satisfy aᵀp ≥ aᵀn + m, the opposite of what is printed. 1/γ, the summation index of the last "
        "factor and the regulariser of the centres are missing in the survey.",
        test_params={**_SIZES, "centers_per_class": 2},
    ),
    deep_row(
        "D28",
        "FisherTriplet",
        "Fisher discriminant triplet loss",
        "losses.fisher:FisherTriplet",
        "[(2 − λ) tr(UᵀS_W U) − λ tr(UᵀS_B U) + m]_+",
        _FISHER,
        "Fisher Siamese Losses",
        "S_W and S_B are scatters of pair differences, not covariances; S_W − S_W in the derivation is S_W − S_B. λ = 0.9 "
        "and unit length by default: with small λ the loss falls fastest by shrinking the embedding to a point.",
        sees="labels, triplets",
        below_euclidean="A trace criterion separates two groups at best; meant to stand beside cross-entropy.",
    ),
    deep_row(
        "D29",
        "FisherContrastive",
        "Fisher discriminant contrastive loss",
        "losses.fisher:FisherContrastive",
        "(2 − λ) tr(UᵀS_W U) + [m − λ tr(UᵀS_B U)]_+",
        _FISHER,
        "Fisher Siamese Losses",
        "As for the triplet form.",
        sees="labels, pairs",
        below_euclidean="A trace criterion separates two groups at best; meant to stand beside cross-entropy.",
    ),
)

_MINING = (
    deep_row(
        "D31",
        "BatchAll",
        "All triplets of a batch",
        "miners:BatchAll",
        "Σ_i Σ_{j∈pos(i)} Σ_{k∈neg(i)} [d_ij − d_ik + m]_+",
        "S. Ding, L. Lin, G. Wang, H. Chao 2015, Deep feature learning with relative distance comparison for person "
        "re-identification, Pattern Recognition",
        "Triplet Mining",
        _NOT_ITSELF,
        kind="miner",
    ),
    deep_row(
        "D32",
        "BatchHard",
        "Hardest positive and hardest negative",
        "miners:BatchHard",
        "Σ_i [max_{j∈pos(i)} d_ij − min_{k∈neg(i)} d_ik + m]_+",
        _HERMANS,
        "Triplet Mining",
        "An anchor that is alone in its class is skipped.",
        kind="miner",
    ),
    deep_row(
        "D33",
        "BatchSemiHard",
        "Hardest of the semi-hard negatives",
        "miners:BatchSemiHard",
        "n(a, p) = argmin{d_an : d_an > d_ap}",
        _FACENET,
        "Triplet Mining",
        "A pair without such a negative, which the survey leaves undefined, is skipped or gets the easiest.",
        kind="miner",
    ),
    deep_row(
        "D34",
        "EasyPositive",
        "Easiest positive",
        "miners:EasyPositive",
        "Σ_i Σ_{k∈neg(i)} [min_{j∈pos(i)} d_ij − d_ik + m]_+",
        _XUAN,
        "Triplet Mining",
        _NOT_ITSELF,
        kind="miner",
    ),
    deep_row(
        "D35",
        "EasyPositiveNCA",
        "Easy-positive NCA loss",
        "losses.nca:EasyPositiveNCA",
        "−mean_i log( e^{s⁺/σ} / (e^{s⁺/σ} + Σ_neg e^{s_ik/σ}) ),  s⁺ = max_pos ẑ_iᵀẑ_j",
        _XUAN,
        "Triplet Mining",
        "The easiest positive has the largest inner product, not the smallest; the −log and the temperature are missing in the "
        "survey, whose ratio would be driven the wrong way.",
    ),
    deep_row(
        "D36",
        "Lifted[max]",
        "Lifted structured embedding, hardest negatives",
        "losses.lifted:Lifted",
        "(1/2|P|) Σ_P [max(max_{neg(i)} m − d_ik, max_{neg(j)} m − d_jl) + d_ij]_+²",
        _OH,
        "Triplet Mining",
        "The factor 1/(2|P|) over unordered pairs is missing in the survey.",
        params={"form": "max"},
    ),
    deep_row(
        "D37",
        "Lifted",
        "Lifted structured embedding, log-sum-exp",
        "losses.lifted:Lifted",
        "(1/2|P|) Σ_P [log(Σ_{neg(i)} e^{m − d_ik} + Σ_{neg(j)} e^{m − d_jl}) + d_ij]_+²",
        _OH,
        "Triplet Mining",
        "Between the two sums stands a plus, not a comma; factor as for the other form.",
    ),
    deep_row(
        "D38",
        "CenterTriplet",
        "Hard-mining centre-triplet loss",
        "losses.center_triplet:CenterTriplet",
        "mean_l [max_{i∈l} d(μ_l, z_i) − min_{k∉l} d(μ_l, z_k) + m]_+,  μ_l = mean_{i∈l} z_i",
        "X. Lv, C. Zhao, W. Chen 2019, A novel hard mining center-triplet loss for person re-identification, PRCV",
        "Triplet Mining",
        "The centre is the mean of embeddings, not the embedding of the mean input. Whether the original takes the nearest "
        "negative sample or centre is open; both are offered.",
    ),
    deep_row(
        "D39",
        "CrossBatchMemory",
        "Cross-batch memory",
        "losses.memory:CrossBatchMemory",
        "L(z, y; z, y) + η L(z, y; M, y_M)",
        "X. Wang, H. Zhang, W. Huang, M. Scott 2020, Cross-batch memory for embedding learning, CVPR",
        "Triplet Mining",
        "The batch's own loss and a warm-up belong to the method; dissimilar pairs count only above a threshold, without "
        "which easy ones dominate. It is a pair loss, not a triplet loss.",
        test_params={"loss": None, "embedding_size": 4, "memory_size": 32},
    ),
    deep_row(
        "D40",
        "Extreme",
        "Triplets of extreme distances",
        "miners:Extreme",
        "nearest or farthest positive with nearest or farthest negative: EPEN, EPHN, HPEN, HPHN",
        "M. Sikaroudi, B. Ghojogh, A. Safarpoor, F. Karray, M. Crowley, H. Tizhoosh 2020, Offline versus online triplet mining "
        "based on extreme distances of histopathology patches, ISVC",
        "Triplet Mining",
        kind="miner",
    ),
    deep_row(
        "D41",
        "RandomTriplets",
        "Random triplets of a batch",
        "miners:RandomTriplets",
        "positive and negative of each anchor uniform among those of the batch",
        "M. Sikaroudi, B. Ghojogh, F. Karray, M. Crowley, H. Tizhoosh 2021, Batch-incremental triplet sampling for training "
        "triplet networks using Bayesian updating theorem, ICPR",
        "Triplet Sampling",
        kind="miner",
    ),
    deep_row(
        "D42",
        "DistanceWeighted",
        "Distance-weighted sampling",
        "miners:DistanceWeighted",
        "P(n | a) ∝ min(λ, 1/q(d_an)),  q(d) ∝ d^{p−2} (1 − d²/4)^{(p−3)/2}",
        _WU,
        "Triplet Sampling",
        "The exponent is (p − 3)/2 with the dimension of the embedding, not the batch size. d is the unsquared distance of "
        "unit vectors. Far negatives are cut off, where 1/q grows again.",
        kind="miner",
        test_params={"embedding_size": 4},
    ),
    deep_row(
        "D43",
        "MarginLoss",
        "Margin-based loss with a learned boundary",
        "losses.margin:MarginLoss",
        "[α + t_ij (d_ij − β)]_+ over its non-zero terms + ν mean β",
        _WU,
        "Triplet Sampling",
        "Not printed in the survey; the loss that distance-weighted sampling was published with.",
        sees="labels, pairs",
    ),
    deep_row(
        "D45",
        "HardNegativeContrastive",
        "Contrastive loss with hard, debiased negatives",
        "losses.hard_negative:HardNegativeContrastive",
        "−log( e^{s⁺/t} / (e^{s⁺/t} + N_g) ),  N_g = (R − τ⁺N e^{s⁺/t})/(1 − τ⁺),  R = Σ e^{(β+1)s/t} / mean e^{βs/t}",
        "J. Robinson, C.-Y. Chuang, S. Sra, S. Jegelka 2021, Contrastive learning with hard negative samples, ICLR",
        "Triplet Sampling",
        "The expectation is under the tilted density of true negatives and carries their number N; the survey's mixture keeps "
        "the false negatives. Positives are not tilted. With labels no correction is needed and τ⁺ = 0.",
        sees="labels, views",
    ),
)

_DISCRIMINANT = (
    deep_row(
        "D46",
        "ProbabilisticDA",
        "Deep probabilistic discriminant analysis",
        "losses.discriminant:ProbabilisticDA",
        "W / (T − W),  W = Σ_l π_l Σ_k var(z_k | l),  T = Σ_k var(z_k)",
        "L. Li, M. Doroslovački, M. Loew 2019, Discriminant analysis deep neural networks, CISS",
        "Deep Probabilistic Discriminant Analysis",
        "The sums run over coordinates of the embedding, not over samples, and the variances are biased, else T is not the "
        "sum of its parts. form='logdet' is an addition for use without cross-entropy.",
        below_euclidean="One direction that separates two groups of classes minimises the ratio; meant for use beside "
        "cross-entropy.",
    ),
    deep_row(
        "D47",
        "VirtualSampleDA",
        "Discriminant analysis with virtual samples",
        "losses.discriminant:VirtualSampleDA",
        "(1/q) Σ_i [(g_pos(i) − g_neg(i)) mean|r| + m]_+ − κ tr(UᵀS_B U)/tr(UᵀS_W U),  g = e^{−fᵀf'}",
        "D. H. Kim, B. C. Song 2021, Virtual sample-based deep metric learning using discriminant analysis, Pattern Recognition",
        "Discriminant Analysis with Virtual Samples",
        "After the published description. Features have unit length, S_W a ridge; both are needed and not stated. The "
        "embedding is the layer the hinge acts on.",
        test_params={"embedding_size": 4, "output_size": 3},
    ),
    deep_row(
        "D48",
        "DeepFisherDA",
        "Deep Fisher discriminant analysis",
        "losses.discriminant:DeepFisherDA",
        "½ mean_i ‖F_i − Y_{y_i}‖²,  Y_lj = (n − n_j)/(n√n_j) if l = j else −√n_j/n",
        "D. Díaz-Vico, A. Omari, A. Torres-Barrán, J. Dorronsoro 2017, Deep Fisher discriminant analysis, IWANN",
        "Deep Fisher Discriminant Analysis",
        "Targets come from the class counts of the training set; per mini-batch, as the survey has it, they are random and "
        "undefined for absent classes. The equivalence to FDA holds up to an invertible map.",
        test_params={"class_counts": (3, 4, 5, 6)},
    ),
)

_LABELS = (0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3)
_SIKAROUDI = (
    "M. Sikaroudi, B. Ghojogh, F. Karray, M. Crowley, H. Tizhoosh 2021, Batch-incremental triplet sampling for training "
    "triplet networks using Bayesian updating theorem, ICPR"
)
_SURVEY = (
    "B. Ghojogh, A. Ghodsi, F. Karray, M. Crowley 2022, Spectral, probabilistic, and deep metric learning: tutorial and "
    "survey, arXiv"
)

_SAMPLING = (
    deep_row(
        "D15",
        "TripletSampler",
        "Random triplets of a data set",
        "tuples:TripletSampler",
        "p uniform in class(a) ∖ {a}; n uniform over the other classes' points, or over the other classes first",
        _SURVEY,
        "Pairs and Triplets of Data Points",
        "An anchor may have several triplets in an epoch. With augmentation every other instance counts as a negative, those "
        "of the same unknown class too.",
        kind="sampler",
        test_params={"labels": _LABELS},
    ),
    deep_row(
        "D15p",
        "PairSampler",
        "Random similar and dissimilar pairs of a data set",
        "tuples:PairSampler",
        "a share of similar pairs; partner uniform within the class or outside of it",
        _SURVEY,
        "Pairs and Triplets of Data Points",
        kind="sampler",
        test_params={"labels": _LABELS},
    ),
    deep_row(
        "D15v",
        "ViewsDataset",
        "Positives by augmentation",
        "tuples:ViewsDataset",
        "(t₁(x_i), t₂(x_i), i): independent random views of one sample share its index as label",
        _SURVEY,
        "Pairs and Triplets of Data Points",
        kind="sampler",
        sees="views",
        test_params={"samples": (0.0, 1.0), "augment": float},
    ),
    deep_row(
        "D15k",
        "PKBatchSampler",
        "Batches of P classes with K samples each",
        "samplers:PKBatchSampler",
        "P different classes and K different samples of each; shuffled passes, no repeat before all have come",
        _HERMANS,
        "Triplet Mining",
        kind="sampler",
        test_params={"labels": _LABELS, "classes_per_batch": 2, "samples_per_class": 2},
    ),
    deep_row(
        "D40o",
        "OfflineTripletSampler",
        "Triplets mined from the whole data set every few epochs",
        "offline:OfflineTripletSampler",
        "every R epochs: embed all, then nearest or farthest positive and negative of each anchor",
        "M. Sikaroudi, B. Ghojogh, A. Safarpoor, F. Karray, M. Crowley, H. Tizhoosh 2020, Offline versus online triplet mining "
        "based on extreme distances of histopathology patches, ISVC",
        "Triplet Mining",
        kind="sampler",
        test_params={"labels": _LABELS, "embeddings": None},
    ),
    deep_row(
        "D44",
        "BUT",
        "Triplets by Bayesian updating of class Gaussians",
        "class_gaussians:BUT",
        "mean_ij [‖z_i − s⁺_ij‖² − ‖z_i − s⁻_ij‖² + m]_+,  s ∼ N(μ_l, E[Σ_l])",
        _SIKAROUDI,
        "Triplet Sampling",
        "The mean of the inverse Wishart posterior is Υ/(n − p − 1), not Υ⁻¹/(n − p − 1). The scatter is kept, not that mean: "
        "recycled, it inflates with every batch. With fewer than 2(p + 1) samples the covariance is shrunk instead. As many "
        "positives are drawn as there are other classes.",
        kind="sampler",
        test_params=_SIZES,
    ),
    deep_row(
        "D44n",
        "BUNCA",
        "NCA by Bayesian updating of class Gaussians",
        "class_gaussians:BUNCA",
        "mean_ij log(1 + e^{‖z_i − s⁺_ij‖²} Σ_l e^{−‖z_i − s⁻_il‖²}),  s ∼ N(μ_l, E[Σ_l])",
        _SIKAROUDI,
        "Triplet Sampling",
        "As for the triplet form. The positive stands in the denominator; without it, as printed, the loss is unbounded below. "
        "The survey's text names a contrastive loss where the NCA loss is meant.",
        kind="sampler",
        test_params=_SIZES,
    ),
    deep_row(
        "D52",
        "EpisodeSampler",
        "Episodes of c ways and k shots",
        "samplers:EpisodeSampler",
        "c classes without replacement; of each k_s support and k_q query samples, disjoint",
        "O. Vinyals, C. Blundell, T. Lillicrap, K. Kavukcuoglu, D. Wierstra 2016, Matching networks for one shot learning, NIPS",
        "Few-shot Metric Learning",
        "k_s points of each class, not k_s in all.",
        kind="sampler",
        test_params={"labels": _LABELS, "n_way": 2, "k_query": 2},
    ),
)

_NETWORKS = (
    deep_row(
        "D00",
        "DeepMetric",
        "A network trained by any of the losses",
        "estimator:DeepMetric",
        "min_θ L(f_θ(X), y);  d(u, v) = ‖f_θ(u) − f_θ(v)‖",
        _SURVEY,
        "Deep Metric Learning",
        kind="estimator",
        test_params={"n_components": 8, "max_epochs": 5, "min_steps": 20},
    ),
)

ROWS: tuple[Method, ...] = (*_HEADS, *_SIAMESE, *_MINING, *_SAMPLING, *_DISCRIMINANT, *_NETWORKS)
