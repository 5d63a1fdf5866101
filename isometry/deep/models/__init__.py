"""Small backbones: samples in, embeddings out."""

from isometry.deep.models.conv import ConvNet
from isometry.deep.models.mlp import MLP, LinearMap

__all__ = ["ConvNet", "LinearMap", "MLP"]
