"""Deep metric learning on PyTorch: losses, miners, and what they are made of."""

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

__all__ = [
    "Angular",
    "BatchAll",
    "BatchHard",
    "BatchSemiHard",
    "CenterTriplet",
    "Contrastive",
    "CrossBatchMemory",
    "CrossEntropy",
    "DISTANCES",
    "DeepFisherDA",
    "DistanceWeighted",
    "EasyPositive",
    "EasyPositiveNCA",
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
    "Loss",
    "MAE",
    "MSE",
    "MarginLoss",
    "Miner",
    "NCALoss",
    "NPair",
    "ProbabilisticDA",
    "ProxyNCA",
    "ProxyNCAPlusPlus",
    "RandomTriplets",
    "SoftTriple",
    "SoftmaxTriplet",
    "ThresholdContrastive",
    "TripleMiner",
    "Triplet",
    "TripletForm",
    "TripletGlobal",
    "Tuplet",
    "VirtualSampleDA",
    "WeightedSum",
    "cosine_dissimilarity",
    "gather",
]
