"""Deep metric learning on PyTorch: losses, miners, samplers, and what they are made of."""

from isometry.deep.batches import ShuffledBatches, Table
from isometry.deep.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from isometry.deep.class_gaussians import BUNCA, BUT, ClassGaussians
from isometry.deep.estimator import DeepMetric
from isometry.deep.functional import DISTANCES, cosine_dissimilarity
from isometry.deep.gather import Gathered, gather
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
from isometry.deep.losses.triplet import Triplet, Tuplet
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
from isometry.deep.objective import LossObjective, effective_rank
from isometry.deep.offline import OfflineTripletSampler, embed, mine_triplets
from isometry.deep.samplers import (
    Episode,
    EpisodeSampler,
    PairDataset,
    PairSampler,
    PKBatchSampler,
    TripletDataset,
    TripletSampler,
    ViewsDataset,
)
from isometry.deep.trainer import Trainer

__all__ = [
    "Angular",
    "BUNCA",
    "BUT",
    "BatchAll",
    "BatchHard",
    "BatchSemiHard",
    "CenterTriplet",
    "CheckpointError",
    "ClassGaussians",
    "Contrastive",
    "ConvNet",
    "CrossBatchMemory",
    "CrossEntropy",
    "DISTANCES",
    "DeepFisherDA",
    "DeepMetric",
    "DistanceWeighted",
    "EasyPositive",
    "EasyPositiveNCA",
    "Episode",
    "EpisodeSampler",
    "Extreme",
    "FisherContrastive",
    "FisherTriplet",
    "Gathered",
    "GeneralizedContrastive",
    "HardNegativeContrastive",
    "Head",
    "Hinge",
    "Huber",
    "KL",
    "Lifted",
    "LinearMap",
    "Loss",
    "LossObjective",
    "MAE",
    "MLP",
    "MSE",
    "MarginLoss",
    "Miner",
    "NCALoss",
    "NPair",
    "OfflineTripletSampler",
    "PKBatchSampler",
    "PairDataset",
    "PairSampler",
    "ProbabilisticDA",
    "ProxyNCA",
    "ProxyNCAPlusPlus",
    "RandomTriplets",
    "ShuffledBatches",
    "SoftTriple",
    "SoftmaxTriplet",
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
    "ViewsDataset",
    "VirtualSampleDA",
    "WeightedSum",
    "cosine_dissimilarity",
    "effective_rank",
    "embed",
    "gather",
    "load_checkpoint",
    "mine_triplets",
    "save_checkpoint",
]
