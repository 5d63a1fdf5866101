"""Deep metric learning on PyTorch: losses, miners, samplers, and what they are made of."""

from isometry.registry.exports import exports

_OTHERS = {  # by module: what is exported beside the methods of the table
    "augment": ("Affine", "Augment", "Augmented", "Flip", "Mix", "Noise", "Shift"),
    "batches": ("ShuffledBatches", "TableDataset"),
    "checkpoint": ("CheckpointError", "load_checkpoint", "save_checkpoint"),
    "class_gaussians": ("ClassGaussians",),
    "distributed": ("Gathered", "gather"),
    "functional": ("DISTANCES", "Lp", "cosine_dissimilarity"),
    "gradient_cache": ("GradientCache",),
    "loss": ("Loss", "TripletForm", "WeightedSum"),
    "losses.contrastive": ("ThresholdContrastive",),
    "miners": ("Miner", "TripleMiner"),
    "models": ("MLP", "ConvNet", "LinearMap"),
    "models.autoencoder": ("Autoencoder", "VariationalAutoencoder", "mlp_autoencoder", "mlp_variational"),
    "models.multimodal": ("MultiModalNet",),
    "models.pyramid": ("FeaturePyramid",),
    "models.rotated": ("Rotated", "principal_axes"),
    "models.spd": ("BiMap", "LogEig", "ReEig"),
    "objective": ("LossObjective", "effective_rank"),
    "objectives.multimodal": ("DenoisingLevel", "pretrain_levels"),
    "objectives.prototypes": ("episode_loader", "episode_scorer"),
    "objectives.reconstruction": (
        "CodePenalty",
        "Contractive",
        "GaussianNoise",
        "MaskingNoise",
        "SaltPepperNoise",
        "SparseCode",
        "WeightPenalty",
    ),
    "objectives.siamese": ("SimilarityHead",),
    "offline": ("embed", "mine_triplets"),
    "pair_form": ("PairForm",),
    "regularizers": ("Regularized", "Regularizer"),
    "samplers": ("Episode",),
    "settings": ("Batches", "Hardware", "Optimization", "Stopping"),
    "trainer": ("Trainer",),
    "tuples": ("PairDataset", "TripletDataset"),
}
__all__, __getattr__, __dir__ = exports(__name__, _OTHERS)
