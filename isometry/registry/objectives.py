"""Rows of the objectives of a network and a batch: more than a loss of embeddings."""

from __future__ import annotations

from functools import partial

from isometry.registry.method import Method

_objective = partial(Method, kind="objective", own_sees="labels")

# a row is a line or two of facts, then prose
# fmt: off
ROWS: tuple[Method, ...] = (
    _objective("D01", "isometry.deep.objectives.reconstruction:Reconstruction", "Reconstruction Autoencoders",
        own_sees="none",
        deviates="The penalty is added once; the survey has it inside the sum over samples, so that it counts b "
        "times. Squares are summed over features and averaged over the batch. A code as large as a sample, which the "
        "survey leaves out, is allowed; without penalty or noise there is a warning that it can copy."),
    _objective("D02", "isometry.deep.objectives.reconstruction:Reconstruction", "Reconstruction Loss",
        variant="penalty", params={"penalty": "contractive"}, reference=1, own_sees="none",
        own_title="Regularised autoencoder: weights, sparse codes, contraction",
        deviates="The survey names no Ω. A penalty on weights is part of the loss, not the decoupled decay of AdamW."),
    _objective("D03", "isometry.deep.objectives.reconstruction:Reconstruction", "Denoising Autoencoder",
        variant="noise", params={"noise": "gaussian"}, reference=2, own_sees="none",
        own_title="Denoising autoencoder",
        deviates="The target is the clean sample. It serves codes of any size, not over-complete ones only."),
    _objective("D05", "isometry.deep.objectives.variational:VariationalReconstruction", "Types of Autoencoders",
        own_sees="none",
        deviates="Named by the survey without a formula."),
    _objective("D06", "isometry.deep.objectives.adversarial_autoencoder:AdversarialReconstruction",
        "Types of Autoencoders", own_sees="none", test_params={"embedding_size": 4, "hidden": (8,)},
        deviates="Named by the survey without a formula. The original updates reconstruction, discriminator and "
        "generator one after the other, with an optimiser each. Here they move at once along the gradients of their "
        "own losses, by one optimiser, so that the two terms of the encoder need the weight λ."),
    _objective("D14", "isometry.deep.objectives.siamese:Siamese", "Siamese and Triplet Networks",
        own_sees="pairs, triplets",
        deviates="One network, whose gradient is the sum over the branches: updating one of several copies and "
        "copying its weights, the survey's first implementation, drops the others' gradients. All branches pass in "
        "one batch, not one by one. Similar points are pulled and dissimilar ones pushed, not the reverse."),
    _objective("D30", "isometry.deep.objectives.daml:DAML", "Deep Adversarial Metric Learning",
        test_params={"generator": 4},
        deviates="The margin in the hinge has a minus. The hinge makes the synthetic negative violate the margin; it "
        "is the distance to the real negative that keeps it a negative. G acts on features, not on inputs. The survey "
        "does not say who gets which gradient: G that of the first line, through an f it cannot move; features and f "
        "that of the metric loss alone. Both move in one step."),
    _objective("D49", "isometry.deep.objectives.multimodal:MultiModal", "Multi-Modal Deep Metric Learning",
        deviates="Pair terms are means: sums over pairs grow with the square of the batch. A sample makes no pair "
        "with itself. The survey's m is both the number of modalities and the margins. How the shared layer merges "
        "modalities it does not say: here side by side, or as the mean of those present."),
    _objective("D53", "isometry.deep.objectives.two_step:TwoStep", "Few-shot Metric Learning",
        deviates="The final update starts from θ: the query's gradient is taken through the step on the support. "
        "Read literally, the survey's second back-propagation goes on from θ′, which is two plain steps one after the "
        "other; it is kept as mode='sequential'."),
    _objective("D53p", "isometry.deep.objectives.prototypes:Prototypes", "Few-shot Metric Learning",
        deviates="Not printed in the survey; the simplest episodic objective, and the default loss of the two steps."),
    _objective("D54", "isometry.deep.objectives.multi_scale:MultiScale", "Multi-scale Metric Learning",
        test_params={"channels": 8},
        deviates="A score belongs to a query and a class, not to every data point. Only features of the support are "
        "averaged. The deeper networks are those of the coarse, semantic maps, as the original's abstract says; "
        "'larger scales' reads like the opposite. The triplet term compares scores, which are large for similar "
        "things, so its sign is reversed. Its exact form in the original could not be checked.",
        below_euclidean="A learned relation needs many classes to be trained on."),
    _objective("D55", "isometry.deep.objectives.continuous:ContinuousScores",
        "Metric Learning with Continuous Similarity Scores", own_sees="labels, pairs",
        test_params={"n_components": 4},
        deviates="Minimised, not maximised. The factor 1 + λ on one squared error would change nothing: it stands "
        "for two updates, of the network with the labels held, and of the labels with the scores held. Labels are "
        "clipped to their intervals; scores are drawn into them by a penalty, since descent on weights cannot hold "
        "them there. The label step could not be checked against the original."),
    _objective("E31c", "isometry.deep.objectives.columns:Columns", "beyond the survey", own_sees="columns"),
    _objective("E35l", "isometry.deep.objectives.early_layers:EarlyLayers", "beyond the survey",
        deviates="All early layers weigh alike; other libraries divide by their number from the beginning, or let the "
        "user choose. The divergence, too, is a mean over the layers drawn."),
    _objective("E37s", "isometry.deep.objectives.self_distillation:S2SD", "beyond the survey",
        test_params={"feature_size": 4},
        deviates="Features teach with the same weight as the heads."),
    _objective("E43", "isometry.deep.objectives.probabilistic:ProbabilisticPairs", "beyond the survey",
        deviates="Also for labels: all pairs of different samples. One direction counts once; the authors' code "
        "doubles it. Its divergence is dropped above 1e4; here log-variances are clamped."),
)
