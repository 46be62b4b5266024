"""Where points come from and the argmax over them (Eq. 11): tables, boxes and named spaces."""

from metakel.search.box import Box, box
from metakel.search.domain import Domain, InContext, StartPoints, domain_from_dict
from metakel.search.finite import CandidateTable, Finite, candidates, grid
from metakel.search.named import SearchSpace

__all__ = [
    "Box",
    "CandidateTable",
    "Domain",
    "Finite",
    "InContext",
    "SearchSpace",
    "StartPoints",
    "box",
    "candidates",
    "domain_from_dict",
    "grid",
]
