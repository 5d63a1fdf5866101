"""Small backbones: samples in, embeddings out."""

from isometry.deep.models.autoencoder import (
    Autoencoder,
    LinearAutoencoder,
    VariationalAutoencoder,
    mlp_autoencoder,
    mlp_variational,
)
from isometry.deep.models.conv import ConvNet
from isometry.deep.models.mlp import MLP, LinearMap
from isometry.deep.models.multimodal import MultiModalNet
from isometry.deep.models.pyramid import FeaturePyramid
from isometry.deep.models.spd import BiMap, LogEig, ReEig, SPDNet

__all__ = [
    "Autoencoder",
    "BiMap",
    "ConvNet",
    "FeaturePyramid",
    "LinearAutoencoder",
    "LinearMap",
    "LogEig",
    "MLP",
    "MultiModalNet",
    "ReEig",
    "SPDNet",
    "VariationalAutoencoder",
    "mlp_autoencoder",
    "mlp_variational",
]
