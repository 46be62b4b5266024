"""Where points come from and the argmax over them (Eq. 11): tables, boxes and named spaces."""

from metakel.search.box import Box, box
from metakel.search.context import InContext
from metakel.search.domain import Domain, domain_from_dict
from metakel.search.finite import Finite, candidates, grid
from metakel.search.maximise import StartPoints
from metakel.search.named import SearchSpace
from metakel.search.table import CandidateTable

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
