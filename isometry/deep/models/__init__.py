"""Small backbones: samples in, embeddings out."""

from isometry.deep.models.autoencoder import Autoencoder as Autoencoder
from isometry.deep.models.autoencoder import LinearAutoencoder as LinearAutoencoder
from isometry.deep.models.autoencoder import VariationalAutoencoder as VariationalAutoencoder
from isometry.deep.models.autoencoder import mlp_autoencoder as mlp_autoencoder
from isometry.deep.models.autoencoder import mlp_variational as mlp_variational
from isometry.deep.models.conv import ConvNet as ConvNet
from isometry.deep.models.mlp import MLP as MLP
from isometry.deep.models.mlp import LinearMap as LinearMap
from isometry.deep.models.multimodal import MultiModalNet as MultiModalNet
from isometry.deep.models.pyramid import FeaturePyramid as FeaturePyramid
from isometry.deep.models.spd import BiMap as BiMap
from isometry.deep.models.spd import LogEig as LogEig
from isometry.deep.models.spd import ReEig as ReEig
from isometry.deep.models.spd import SPDNet as SPDNet
