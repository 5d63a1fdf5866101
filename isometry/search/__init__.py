"""Search by a learned metric: an index, matches between tables, duplicates and communities, short codes."""

from isometry.search.groups import Duplicates, communities, duplicates
from isometry.search.index import Index, Near, Neighbors
from isometry.search.matcher import Matcher, Matches
from isometry.search.quantizer import Quantizer

__all__ = [
    "Duplicates",
    "Index",
    "Matcher",
    "Matches",
    "Near",
    "Neighbors",
    "Quantizer",
    "communities",
    "duplicates",
]
