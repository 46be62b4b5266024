"""Where points come from and the argmax over them (Eq. 11): tables, boxes and named spaces."""

from metakel.search.box import Box, box
from metakel.search.domain import (
    CandidateTable,
    Domain,
    Finite,
    StartPoints,
    candidates,
    grid,
)
from metakel.search.named import SearchSpace

__all__ = [
    "Box",
    "CandidateTable",
    "Domain",
    "Finite",
    "SearchSpace",
    "StartPoints",
    "box",
    "candidates",
    "grid",
]
