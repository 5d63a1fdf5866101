"""Deep metric learning on PyTorch: losses, miners, samplers, and what they are made of."""

from isometry.deep.augment import Affine, Augment, Augmented, Flip, Mix, Noise, Shift
from isometry.deep.batches import ShuffledBatches, Table
from isometry.deep.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from isometry.deep.class_gaussians import BUNCA, BUT, ClassGaussians
from isometry.deep.distributed import Gathered, gather
from isometry.deep.estimator import DeepMetric
from isometry.deep.functional import DISTANCES, cosine_dissimilarity
from isometry.deep.gradient_cache import GradientCache
from isometry.deep.loss import Loss, TripletForm, WeightedSum
from isometry.deep.losses.angular import Angular
from isometry.deep.losses.center_triplet import CenterTriplet
from isometry.deep.losses.contrastive import Contrastive, GeneralizedContrastive, ThresholdContrastive
from isometry.deep.losses.discriminant import DeepFisherDA, ProbabilisticDA, VirtualSampleDA
from isometry.deep.losses.fisher import FisherContrastive, FisherTriplet
from isometry.deep.losses.hard_negative import HardNegativeContrastive
from isometry.deep.losses.heads import KL, MAE, MSE, CrossEntropy, Head, Hinge, Huber
from isometry.deep.losses.lifted import Lifted
from isometry.deep.losses.margin import MarginLoss
from isometry.deep.losses.memory import CrossBatchMemory
from isometry.deep.losses.nca import EasyPositiveNCA, NCALoss
from isometry.deep.losses.npair import NPair
from isometry.deep.losses.proxy import ProxyNCA, ProxyNCAPlusPlus
from isometry.deep.losses.soft_triple import SoftTriple
from isometry.deep.losses.softmax_triplet import SoftmaxTriplet
from isometry.deep.losses.triplet import RatioTriplet, Triplet, Tuplet
from isometry.deep.losses.triplet_global import TripletGlobal
from isometry.deep.miners import (
    BatchAll,
    BatchHard,
    BatchSemiHard,
    DistanceWeighted,
    EasyPositive,
    Extreme,
    Miner,
    RandomTriplets,
    TripleMiner,
)
from isometry.deep.models import MLP, ConvNet, LinearMap
from isometry.deep.models.autoencoder import (
    Autoencoder,
    LinearAutoencoder,
    VariationalAutoencoder,
    mlp_autoencoder,
    mlp_variational,
)
from isometry.deep.models.multimodal import MultiModalNet
from isometry.deep.models.pyramid import FeaturePyramid
from isometry.deep.models.spd import BiMap, LogEig, ReEig, SPDNet
from isometry.deep.objective import LossObjective, effective_rank
from isometry.deep.objectives.adversarial_autoencoder import AdversarialReconstruction
from isometry.deep.objectives.continuous import ContinuousScores
from isometry.deep.objectives.daml import DAML
from isometry.deep.objectives.multi_scale import MultiScale
from isometry.deep.objectives.multimodal import DenoisingLevel, MultiModal, pretrain_levels
from isometry.deep.objectives.prototypes import Prototypes, episode_loader, episode_scorer
from isometry.deep.objectives.reconstruction import (
    CodePenalty,
    Contractive,
    GaussianNoise,
    MaskingNoise,
    Reconstruction,
    SaltPepperNoise,
    SparseCode,
    WeightPenalty,
)
from isometry.deep.objectives.siamese import Siamese, SimilarityHead
from isometry.deep.objectives.two_step import TwoStep
from isometry.deep.objectives.variational import VariationalReconstruction
from isometry.deep.offline import OfflineTripletSampler, embed, mine_triplets
from isometry.deep.samplers import Episode, EpisodeSampler, PKBatchSampler
from isometry.deep.settings import Batches, Hardware, Optimization, Stopping
from isometry.deep.trainer import Trainer
from isometry.deep.tuples import PairDataset, PairSampler, TripletDataset, TripletSampler, ViewsDataset

__all__ = [
    "AdversarialReconstruction",
    "Affine",
    "Angular",
    "Autoencoder",
    "Augment",
    "Augmented",
    "BUNCA",
    "BUT",
    "BatchAll",
    "BatchHard",
    "BatchSemiHard",
    "Batches",
    "BiMap",
    "CenterTriplet",
    "CheckpointError",
    "ClassGaussians",
    "CodePenalty",
    "ContinuousScores",
    "Contractive",
    "Contrastive",
    "ConvNet",
    "CrossBatchMemory",
    "CrossEntropy",
    "DAML",
    "DISTANCES",
    "DeepFisherDA",
    "DeepMetric",
    "DenoisingLevel",
    "DistanceWeighted",
    "EasyPositive",
    "EasyPositiveNCA",
    "Episode",
    "EpisodeSampler",
    "Extreme",
    "FeaturePyramid",
    "FisherContrastive",
    "FisherTriplet",
    "Flip",
    "Gathered",
    "GaussianNoise",
    "GeneralizedContrastive",
    "GradientCache",
    "HardNegativeContrastive",
    "Hardware",
    "Head",
    "Hinge",
    "Huber",
    "KL",
    "Lifted",
    "LinearAutoencoder",
    "LinearMap",
    "LogEig",
    "Loss",
    "LossObjective",
    "MAE",
    "MLP",
    "MSE",
    "MarginLoss",
    "MaskingNoise",
    "Miner",
    "MultiModal",
    "MultiModalNet",
    "MultiScale",
    "Mix",
    "NCALoss",
    "NPair",
    "Noise",
    "OfflineTripletSampler",
    "Optimization",
    "PKBatchSampler",
    "PairDataset",
    "PairSampler",
    "ProbabilisticDA",
    "Prototypes",
    "ProxyNCA",
    "ProxyNCAPlusPlus",
    "RandomTriplets",
    "RatioTriplet",
    "ReEig",
    "Reconstruction",
    "SPDNet",
    "SaltPepperNoise",
    "Shift",
    "ShuffledBatches",
    "Siamese",
    "SimilarityHead",
    "SoftTriple",
    "SoftmaxTriplet",
    "SparseCode",
    "Stopping",
    "Table",
    "ThresholdContrastive",
    "Trainer",
    "TripleMiner",
    "Triplet",
    "TripletDataset",
    "TripletForm",
    "TripletGlobal",
    "TripletSampler",
    "Tuplet",
    "TwoStep",
    "VariationalAutoencoder",
    "VariationalReconstruction",
    "ViewsDataset",
    "VirtualSampleDA",
    "WeightPenalty",
    "WeightedSum",
    "cosine_dissimilarity",
    "effective_rank",
    "embed",
    "episode_loader",
    "episode_scorer",
    "gather",
    "load_checkpoint",
    "mine_triplets",
    "mlp_autoencoder",
    "mlp_variational",
    "pretrain_levels",
    "save_checkpoint",
]
