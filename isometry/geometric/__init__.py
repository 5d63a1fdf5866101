"""Geometric methods."""

from isometry.geometric.aml import AML
from isometry.geometric.drml import DRML
from isometry.geometric.gmml import GMML

__all__ = ["AML", "DRML", "GMML"]
