"""Side information as an object over the n samples: it travels in ``y`` and can be cut by scikit-learn's splitters.

Every object has a length (the number of samples), similar and dissimilar edges, and an indexing that returns the
induced sub-object, renumbered, so that `Pipeline`, `cross_validate` and `GridSearchCV` work with it.
"""

from isometry.supervision.base import EdgeList, Supervision
from isometry.supervision.candidates import Candidates
from isometry.supervision.chunklets import Chunklets
from isometry.supervision.comparisons import Quadruplets, Triplets
from isometry.supervision.entries import as_array
from isometry.supervision.labels import Labels
from isometry.supervision.pairs import Pairs
from isometry.supervision.reading import as_supervision
from isometry.supervision.targets import Slices, Targets
from isometry.supervision.views import Views

__all__ = [
    "Candidates",
    "Chunklets",
    "EdgeList",
    "Labels",
    "Pairs",
    "Quadruplets",
    "Slices",
    "Supervision",
    "Targets",
    "Triplets",
    "Views",
    "as_array",
    "as_supervision",
]
