"""Where actions come from, and the argmax over them (Eq. 11)."""

from metakel.search.box import Box, box
from metakel.search.domain import Domain, domain_from_dict
from metakel.search.finite import Finite, candidates, grid
from metakel.search.start import Candidates

__all__ = ["Box", "Candidates", "Domain", "Finite", "box", "candidates", "domain_from_dict", "grid"]
