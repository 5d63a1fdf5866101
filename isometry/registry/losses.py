"""Rows of the losses of embeddings, and of those on a head."""

from __future__ import annotations

from functools import partial

from isometry.registry.method import Method

_loss = partial(Method, kind="loss", own_sees="labels")
_head = partial(Method, kind="head", own_sees="labels, targets")
_BEYOND = "beyond the survey"
_SIZES = {"num_classes": 4, "embedding_size": 4}  # for tests: embeddings (B, 4) of four classes
_margin = partial(_loss, test_params=_SIZES)

_pair_loss = partial(Method, kind="pair loss", section="beyond the survey")
_regularizer = partial(Method, kind="regularizer", section="beyond the survey", own_sees="none")

# a row is a line or two of facts, then prose
# fmt: off
ROWS: tuple[Method, ...] = (
    _head("D08", "isometry.deep.losses.heads:MSE", "Mean Squared Error and Mean Absolute Value Losses",
        test_params=_SIZES,
        deviates="A mean over the batch where the survey writes a sum. Labels are one-hot: one output that regresses "
        "an integer label would impose an order on the classes."),
    _head("D09", "isometry.deep.losses.heads:MAE", "Mean Squared Error and Mean Absolute Value Losses",
        test_params=_SIZES,
        deviates="Not differentiable where the output, not the embedding, equals the label; the subgradient there is "
        "0. It makes residuals sparse, not the embedding."),
    _head("D10", "isometry.deep.losses.heads:Huber", "Huber and KL-Divergence Losss", test_params=_SIZES),
    _head("D11", "isometry.deep.losses.heads:KL", "Huber and KL-Divergence Losss", test_params=_SIZES,
        deviates="KL(label ‖ prediction): the printed order is infinite for one-hot labels. The prediction is a "
        "softmax of the outputs, and the sum runs over classes for every sample, not over samples only."),
    _head("D12", "isometry.deep.losses.heads:Hinge", "Hinge Loss", own_sees="labels", test_params=_SIZES),
    _head("D13", "isometry.deep.losses.heads:CrossEntropy", "Cross-entropy Loss", test_params=_SIZES,
        deviates="With sigmoid outputs the terms (1 − y) log(1 − σ) are needed; the printed sum is minimal for σ = 1 "
        "everywhere. Cross-entropy bounds a pairwise cross-entropy, not every metric-learning loss."),
    _loss("D14r", "isometry.deep.losses.triplet:RatioTriplet", "Siamese and Triplet Networks",
        own_sees="labels, triplets",
        deviates="Not printed in the survey; the loss that triplet networks were published with."),
    _loss("D16", "isometry.deep.losses.contrastive:Contrastive", "Contrastive Loss", own_sees="labels, pairs",
        deviates="The survey has d and [m − d]_+ for a squared distance d. There the push vanishes for coincident "
        "points and the margin has squared units; it is kept as squared_hinge=False, distance='sqeuclidean'."),
    _loss("D17", "isometry.deep.losses.contrastive:GeneralizedContrastive",
        "Contrastive Loss (Generalized Contrastive Loss)", own_sees="labels, pairs",
        deviates="The survey's ψ is a dissimilarity, 1 − s, though introduced as how similar two points are; squares "
        "as in the contrastive loss."),
    _loss("D18", "isometry.deep.losses.triplet:Triplet", "Triplet Loss", params={"reduction": "mean"},
        own_sees="labels, triplets",
        deviates="Embeddings of unit length, as in the original."),
    _loss("D19", "isometry.deep.losses.triplet:Tuplet", "Tuplet Loss", own_sees="labels, triplets",
        deviates="Printed by the survey as the loss of the multi-class N-pair paper, which is a log-sum-exp of inner "
        "products: NPair."),
    _loss("D20", "isometry.deep.losses.npair:NPair", "Tuplet Loss",
        deviates="The survey prints a sum of hinges under this citation; see Tuplet. All disjoint pairs of a batch "
        "are used."),
    _loss("D21", "isometry.deep.losses.nca:NCALoss", "Neighborhood Component Analysis Loss",
        deviates="The printed ratio has only negatives below and one positive above: no probability, and unbounded. "
        "It is kept as denominator='negatives'. d(f(a) − f(n)) is to be read d(f(a), f(n))."),
    _loss("D22", "isometry.deep.losses.proxy:ProxyNCA", "Proxy Neighborhood Component Analysis Loss",
        test_params=_SIZES,
        deviates="Proxies are learned in the paper; class means and k-means are the survey's. With k-means a cluster "
        "is no class: negatives are all proxies but the assigned one. Vectors have unit length. The bound on NCA "
        "needs additive constants."),
    _loss("D23", "isometry.deep.losses.proxy:ProxyNCAPlusPlus", "Proxy Neighborhood Component Analysis Loss",
        test_params=_SIZES,
        deviates="The denominator holds all proxies; the survey keeps the negatives only and divides by a "
        "temperature, which leaves out what the method is about."),
    _loss("D24", "isometry.deep.losses.softmax_triplet:SoftmaxTriplet", "Softmax Triplet Loss",
        own_sees="labels, views",
        deviates="The sum over negatives is added inside the bracket; the printed minus rewards confusion. "
        "Temperature and unit length are missing in the survey."),
    _loss("D25", "isometry.deep.losses.triplet_global:TripletGlobal", "Triplet Global Loss",
        own_sees="labels, triplets",
        deviates="Distances of unit vectors are divided by 4, which gives the margin its scale. There is one hinge a "
        "batch."),
    _loss("D26", "isometry.deep.losses.angular:Angular", "Angular Loss", own_sees="labels, triplets",
        deviates="The bound is tan²(α) times the distance of the negative to the centre of anchor and positive; the "
        "survey has tan²(α·d) of the anchor's distance to it, in which no negative occurs. The centre is of "
        "embeddings, not of inputs."),
    _loss("D27", "isometry.deep.losses.soft_triple:SoftTriple", "SoftTriple Loss",
        test_params={**_SIZES, "centers_per_class": 2},
        deviates="Similarities must satisfy aᵀp ≥ aᵀn + m, the opposite of what is printed. 1/γ, the summation index "
        "of the last factor and the regulariser of the centres are missing in the survey."),
    _loss("D28", "isometry.deep.losses.fisher:FisherTriplet", "Fisher Siamese Losses", own_sees="labels, triplets",
        deviates="S_W and S_B are scatters of pair differences, not covariances; S_W − S_W in the derivation is S_W "
        "− S_B. λ = 0.9 and unit length by default: with small λ the loss falls fastest by shrinking the embedding to "
        "a point.",
        below_euclidean="A trace criterion separates two groups at best; meant to stand beside cross-entropy."),
    _loss("D29", "isometry.deep.losses.fisher:FisherContrastive", "Fisher Siamese Losses", own_sees="labels, pairs",
        deviates="As for the triplet form.",
        below_euclidean="A trace criterion separates two groups at best; meant to stand beside cross-entropy."),
    _loss("D35", "isometry.deep.losses.nca:EasyPositiveNCA", "Triplet Mining",
        deviates="The easiest positive has the largest inner product, not the smallest; the −log and the temperature "
        "are missing in the survey, whose ratio would be driven the wrong way."),
    _loss("D36", "isometry.deep.losses.lifted:Lifted", "Triplet Mining", variant="max", params={"form": "max"},
        own_title="Lifted structured embedding, hardest negatives",
        own_equation="(1/2|P|) Σ_P [max(max_{neg(i)} m − d_ik, max_{neg(j)} m − d_jl) + d_ij]_+²",
        deviates="The factor 1/(2|P|) over unordered pairs is missing in the survey."),
    _loss("D37", "isometry.deep.losses.lifted:Lifted", "Triplet Mining",
        deviates="Between the two sums stands a plus, not a comma; factor as for the other form."),
    _loss("D38", "isometry.deep.losses.center_triplet:CenterTriplet", "Triplet Mining",
        deviates="The centre is the mean of embeddings, not the embedding of the mean input. Whether the original "
        "takes the nearest negative sample or centre is open; both are offered."),
    _loss("D39", "isometry.deep.losses.memory:CrossBatchMemory", "Triplet Mining",
        test_params={"loss": None, "embedding_size": 4, "memory_size": 32},
        deviates="The batch's own loss and a warm-up belong to the method; dissimilar pairs count only above a "
        "threshold, without which easy ones dominate. It is a pair loss, not a triplet loss."),
    _loss("D43", "isometry.deep.losses.margin:MarginLoss", "Triplet Sampling", own_sees="labels, pairs",
        deviates="Not printed in the survey; the loss that distance-weighted sampling was published with."),
    _loss("D45", "isometry.deep.losses.hard_negative:HardNegativeContrastive", "Triplet Sampling",
        own_sees="labels, views",
        deviates="The expectation is under the tilted density of true negatives and carries their number N; the "
        "survey's mixture keeps the false negatives. Positives are not tilted. With labels no correction is needed "
        "and τ⁺ = 0."),
    _loss("D46", "isometry.deep.losses.discriminant:ProbabilisticDA", "Deep Probabilistic Discriminant Analysis",
        deviates="The sums run over coordinates of the embedding, not over samples, and the variances are biased, "
        "else T is not the sum of its parts. form='logdet' is an addition for use without cross-entropy.",
        below_euclidean="One direction that separates two groups of classes minimises the ratio; meant for use "
        "beside cross-entropy."),
    _loss("D47", "isometry.deep.losses.discriminant:VirtualSampleDA", "Discriminant Analysis with Virtual Samples",
        test_params={"embedding_size": 4, "output_size": 3},
        deviates="After the published description. Features have unit length, S_W a ridge; both are needed and not "
        "stated. The embedding is the layer the hinge acts on."),
    _loss("D48", "isometry.deep.losses.discriminant:DeepFisherDA", "Deep Fisher Discriminant Analysis",
        test_params={"class_counts": (3, 4, 5, 6)},
        deviates="Targets come from the class counts of the training set; per mini-batch, as the survey has it, they "
        "are random and undefined for absent classes. The equivalence to FDA holds up to an invertible map."),
    # what came after the survey: margins, proxies and pairs
    _margin("E01", "isometry.deep.losses.margin_softmax:CosFace", _BEYOND,
        deviates="The margin is the 0.35 of the paper; other code has 0.40 as its default."),
    _margin("E01n", "isometry.deep.losses.margin_softmax:NormalizedSoftmax", _BEYOND),
    _margin("E02", "isometry.deep.losses.arcface:ArcFace", _BEYOND,
        deviates="The gradient is that of the printed loss. The authors' PyTorch code works the margin out without a "
        "graph, which makes the slope of the own logit s, not s sin(θ + m)/sin θ, and does not continue where θ + m "
        "exceeds π: gradient='straight' has that slope. Cosines are kept 1e-7 from ±1, where the angle has no slope."),
    _margin("E03", "isometry.deep.losses.sphereface:SphereFace", _BEYOND,
        deviates="The target is ψ from the first step; the paper mixes it with cos θ, ever less: anneal=(1000, 5, "
        "0.12)."),
    _margin("E03l", "isometry.deep.losses.sphereface:LargeMarginSoftmax", _BEYOND,
        deviates="As for SphereFace."),
    _margin("E04", "isometry.deep.losses.arcface:SubCenterArcFace", _BEYOND),
    _margin("E04d", "isometry.deep.losses.arcface:DynamicArcFace", _BEYOND,
        test_params={**_SIZES, "class_counts": (3, 40, 5, 600)}),
    _margin("E05", "isometry.deep.losses.adaptive_margin:AdaFace", _BEYOND,
        deviates="The mean and deviation of lengths begin with the first batch, not with 20 and 100, and forget by "
        "0.01 as in the published training, not at once as by the default of the authors' class. Cosines are kept "
        "1e-7 from ±1, not 1e-3, which changes the loss near alignment."),
    _margin("E06", "isometry.deep.losses.adaptive_margin:MagFace", _BEYOND,
        test_params={**_SIZES, "length_bounds": (0.5, 4.0), "weight": 6.0},
        deviates="No margin where cos θ ≤ 0, as in the authors' code; easy=False continues it instead. The weight 35 "
        "is that of their script, 20 the default of their code."),
    _margin("E07", "isometry.deep.losses.adaptive_margin:CurricularFace", _BEYOND),
    _margin("E07e", "isometry.deep.losses.adaptive_margin:ElasticFace", _BEYOND,
        deviates="With plus=True low cosines get large margins, as the paper says; the authors' code applies the "
        "permutation of a sort where its inverse is meant, and deals margins that have nothing to do with cosines."),
    _margin("E08", "isometry.deep.losses.sampled_softmax:SampledSoftmax", _BEYOND,
        test_params={**_SIZES, "sample_rate": 0.75, "random_state": 0},
        deviates="One process holds all classes; the authors' code divides them among processes."),
    _margin("E09", "isometry.deep.losses.center:CenterLoss", _BEYOND,
        deviates="A mean over the batch, as in the authors' code; the paper has sums, here and in the loss "
        "beside it.",
        below_euclidean="It draws all embeddings to one point; meant for use beside cross-entropy."),
    _margin("E09p", "isometry.deep.losses.center:P2SGrad", _BEYOND,
        deviates="The paper gives a gradient; this is the loss that has it."),
    _margin("E10", "isometry.deep.losses.proxy_anchor:ProxyAnchor", _BEYOND),
    _margin("E11", "isometry.deep.losses.proxy_graph:ProxyGML", _BEYOND,
        test_params={**_SIZES, "centers_per_class": 2, "share": 0.5},
        deviates="A class is in the softmax if one of its proxies is kept; the authors' code asks whether its score is "
        "not 0. The share of proxies lies in (0, 1]."),
    _margin("E12", "isometry.deep.losses.hypergraph:HIST", _BEYOND, test_params={**_SIZES, "hidden": 8, "tau": 2.0},
        deviates="Distances are worked out by products, and logarithms of probabilities directly: the authors' code "
        "builds an array (B, C, p) and drops samples whose probability is 0 in float32. The graph network takes unit "
        "vectors times √p, where theirs takes the output of a layer normalisation."),
    _loss("E13", "isometry.deep.losses.multi_similarity:MultiSimilarity", _BEYOND,
        deviates="As the authors' code: anchors for which the miner leaves no positive or no negative are skipped, and "
        "the sum is still divided by the size of the batch. The anchor itself is known by its index; their code takes "
        "every positive with a similarity above 1 − 1e-5 for it."),
    _loss("E14", "isometry.deep.losses.circle:Circle", _BEYOND,
        deviates="One term for each anchor, the form in use; the paper's batch form is one term for all pairs."),
    _loss("E15", "isometry.deep.losses.tuplet_margin:TupletMargin", _BEYOND),
    _loss("E15v", "isometry.deep.losses.tuplet_margin:IntraPairVariance", _BEYOND, own_sees="labels, pairs"),
    _loss("E16", "isometry.deep.losses.contrastive:Contrastive", _BEYOND, variant="snr", reference=1,
        params={"squared_hinge": False, "balanced": True, "distance": "snr", "normalize": True},
        own_sees="labels, pairs", own_title="Contrastive loss of signal-to-noise ratios",
        own_equation="mean_pos d + mean_neg [m − d]_+,  d(a, b) = var(a − b) / var(a) over the coordinates"),
    _loss("E17", "isometry.deep.losses.ranked_list:RankedList", _BEYOND,
        deviates="Weights are constants in the gradient, as in the authors' code, which scales the gradient of each "
        "pair; detach_weights=False differentiates them too, as pytorch-metric-learning does. All anchors count alike, "
        "and the balls are those of the paper; the authors' later code weighs an anchor by its share of all weights "
        "and has α = 1 + m/2."),
    _loss("E18", "isometry.deep.losses.threshold_margin:ThresholdConsistentMargin", _BEYOND,
        own_sees="labels, pairs"),
    _loss("E19", "isometry.deep.losses.selective_triplet:SelectiveTriplet", _BEYOND, own_sees="labels, triplets",
        deviates="As in the paper a triplet is hard where the negative is nearer than the positive. The authors' code "
        "adds s⁻ > 0.8, and passes over positives with a cosine above 0.9999: hard_above=0.8, min_distance=1e-4."),
    # -- contrast, ranking and other kinds of labels -------------------------------------------------------------------
    _loss("E20", "isometry.deep.losses.ranking:SmoothAP", _BEYOND, test_params={"temperature": 0.1},
        deviates="The query is not counted as its own first positive, which adds 1/K to AP; count_self=True does so, "
        "as the authors' code. Classes may be of unequal size."),
    _loss("E20p", "isometry.deep.losses.ranking:PNP", _BEYOND, test_params={"temperature": 0.1},
        deviates="As for SmoothAP. α = 4 is that of the authors' published command for D_q."),
    _loss("E21", "isometry.deep.losses.ranking:SupAP", _BEYOND, test_params={"temperature": 0.1, "delta": 0.2},
        deviates="H⁻ is continuous at δ; the authors' configuration has the offset 1.44 where σ(5) + ½ = 1.4933. The "
        "query is not counted."),
    _loss("E21r", "isometry.deep.losses.ranking:ROADMAP", _BEYOND, test_params={"temperature": 0.1, "delta": 0.2},
        deviates="Weights ½ and ½, in the authors' code 1 and 1; otherwise as for SupAP."),
    _loss("E22", "isometry.deep.losses.ranking:RecallAtK", _BEYOND, test_params={"k": (1, 2), "temperature": 0.1},
        deviates="The normaliser is the code's min(k, |P|), not the paper's |P|. The query takes no rank, and the sum "
        "over positives is not cut off at k."),
    _loss("E23", "isometry.deep.losses.histograms:FastAP", _BEYOND),
    _loss("E23h", "isometry.deep.losses.histograms:HistogramLoss", _BEYOND, test_params={"bins": 10}),
    _loss("E24", "isometry.deep.losses.blackbox:BlackboxAP", _BEYOND,
        deviates="The margin is a constant; the authors' code draws it for every pair (noise=True). Its second term, "
        "over all pairs of the batch at once, and its memory of batches are left out."),
    _loss("E25", "isometry.deep.losses.contrast:InfoNCE", _BEYOND, own_sees="labels, views",
        deviates="From three views or positives on, InfoNCE, SupCon and NCA differ; here other positives of an anchor "
        "are in neither sum, as in pytorch-metric-learning."),
    _loss("E26", "isometry.deep.losses.contrast:SupCon", _BEYOND, own_sees="labels, views",
        deviates="Anchors without a positive leave the mean; the authors' code counts them as 0. Its factor "
        "T / T_base, 1 by default, is left out."),
    _loss("E27", "isometry.deep.losses.contrast:DecoupledContrastive", _BEYOND, own_sees="labels, views",
        deviates="Published for two views; with labels every positive pair against the negatives of its anchor."),
    _loss("E28", "isometry.deep.losses.contrast:SigLIP", _BEYOND, own_sees="labels, pairs",
        deviates="Published for two columns; with labels all pairs of the batch. The bias starts at −5, not at −10, "
        "which is for far larger batches. Several processes gather embeddings instead of passing blocks round."),
    _pair_loss("E29", "isometry.deep.losses.redundancy:VICReg", own_sees="views"),
    _pair_loss("E29b", "isometry.deep.losses.redundancy:BarlowTwins", own_sees="views",
        deviates="A constant coordinate has correlation 0 and a finite gradient; the authors' batch norm adds 1e-5 to "
        "every variance instead."),
    _pair_loss("E29m", "isometry.deep.losses.redundancy:MMCR", own_sees="views",
        deviates="No network that follows another one slowly: all views are encoded by the one that is trained."),
    _regularizer("E30", "isometry.deep.regularizers:LpNorm"),
    _regularizer("E30z", "isometry.deep.regularizers:ZeroMean",
        deviates="The sum over the coordinates of each row, as in pytorch-metric-learning, not the mean over the "
        "batch."),
    _regularizer("E30c", "isometry.deep.regularizers:CenterInvariant"),
    _regularizer("E30r", "isometry.deep.regularizers:RegularFace"),
    _regularizer("E30s", "isometry.deep.regularizers:Spherical"),
    _regularizer("E30k", "isometry.deep.regularizers:KoLeo",
        deviates="Points that coincide have no gradient; others add 1e-8 to the distance."),
    _regularizer("E30u", "isometry.deep.regularizers:Uniformity"),
    _regularizer("E30o", "isometry.deep.regularizers:SpreadOut",
        deviates="Over all pairs of the batch; published for pairs that do not match."),
    _regularizer("E30g", "isometry.deep.regularizers:SIGReg", test_params={"slices": 8, "random_state": 0}),
    _loss("E39", "isometry.deep.losses.label_distance:LogRatio", _BEYOND,
        deviates="Squared distances, as in the paper; the authors' code has the distance itself (squared=False). All "
        "samples are anchors; pairs of equal label are left out."),
    _loss("E40", "isometry.deep.losses.label_distance:RankNContrast", _BEYOND),
    _loss("E41", "isometry.deep.losses.hierarchy:HierarchicalContrast", _BEYOND,
        deviates="The maximum is over pairs, as in the paper; the authors' code takes it over levels "
        "(constraint='level') and thins the batch to one sample a class after each level. It counts the sample's own "
        "number as a level: hence L + 1."),
    _pair_loss("E31", "isometry.deep.losses.columns:Ranking", own_sees="columns",
        deviates="Rows that have the same query or document as another, to the bit, are no negatives of it."),
    _pair_loss("E31m", "isometry.deep.losses.columns:MegaBatchMargin", own_sees="columns"),
    _pair_loss("E32", "isometry.deep.losses.columns:GuidedRanking", own_sees="columns",
        deviates="The guide's embeddings are given, the guide is no part of the loss. A row is excluded from its own "
        "negatives by index, not because the guide finds it similar to itself."),
    _pair_loss("E33", "isometry.deep.losses.scored_pairs:CoSENT", own_sees="columns, scores"),
    _pair_loss("E33a", "isometry.deep.losses.scored_pairs:AnglE", own_sees="columns, scores",
        deviates="As in the authors' code, where the quantity is a similarity; the paper speaks of a difference of "
        "angles, small for similar pairs. Which of the two is meant stays in doubt. The term of the angle only, "
        "without the contrastive ones beside it."),
    _pair_loss("E33c", "isometry.deep.losses.scored_pairs:CosineRegression", own_sees="columns, scores"),
    _pair_loss("E34", "isometry.deep.losses.taught:MarginMSE", own_sees="columns, scores"),
    _pair_loss("E34k", "isometry.deep.losses.taught:ScoreKL", own_sees="columns, scores"),
    _pair_loss("E34e", "isometry.deep.losses.taught:EmbeddingDistillation", own_sees="columns, targets"),
    _loss("E35", "isometry.deep.losses.matryoshka:Matryoshka", _BEYOND, test_params={"sizes": (2, 4)},
        deviates="The mean over widths, so that the learning rate does not depend on their number; "
        "reduction='sum' is the sum of other libraries. Early layers of the network: EarlyLayers."),
    _loss("E36", "isometry.deep.losses.mixing:EmbeddingExpansion", _BEYOND,
        deviates="Points between two positives are negatives of the real anchors; in the authors' code they are also "
        "anchors, and the nearest negative of a pair's points counts for both ends."),
    _loss("E36m", "isometry.deep.losses.mixing:MixedPairs", _BEYOND, test_params={"random_state": 0},
        deviates="On embeddings only, not on inputs or features. Every anchor sees every mixed point, those that are "
        "mixed of two other classes as a negative."),
    _loss("E37", "isometry.deep.losses.relation:LanguageGuidance", _BEYOND,
        test_params={"class_vectors": ((1.0, 0.0, 0.2), (0.9, 0.1, 0.0), (0.0, 1.0, 0.5), (-0.3, 0.8, 0.1))},
        deviates="The divergence runs from the teacher, as in the authors' class; their script has it the other way "
        "round (direction='backward')."),
    _margin("E38", "isometry.deep.losses.non_isotropy:NonIsotropy", _BEYOND,
        test_params=_SIZES | {"blocks": 2, "width": 3, "depth": 2},
        deviates="The mean of the negative log-likelihoods; the authors' code has the mean of their exponentials "
        "(exponential=True), which overflow beyond 88 and fade as the flow learns; so the weights are 0.01 and 1 "
        "here, 1 and 0.01 there. The proxy loss is ProxyAnchor, and the flow starts as the identity."),
    _margin("E44", "isometry.deep.losses.hashing:OrthoHash", _BEYOND,
        deviates="Scale 8, as in the authors' code; √2 log(C − 1), said to be the paper's, is scale='auto', and which "
        "of the two was used in print stays in doubt. Codes are rows of a Hadamard matrix where that is possible; "
        "theirs are drawn."),
    _loss("E44q", "isometry.deep.losses.hashing:QuantizationAware", _BEYOND),
    _loss("E47", "isometry.deep.losses.weighted:ClassWeighted", _BEYOND,
        test_params={"weights": (1.0, 2.0, 0.5, 3.0)},
        deviates="Divided by the sum of the weights; other libraries divide by the number of terms "
        "(normalize_weights=False), so that the learning rate depends on the scale of the weights."),
    _loss("E47t", "isometry.deep.losses.weighted:Threshold", _BEYOND, test_params={"low": 0.1, "high": 50.0}),
)
