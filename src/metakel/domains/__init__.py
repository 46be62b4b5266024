"""Where actions come from, and the argmax over them (Eq. 11)."""

from metakel.domains.continuous import Box, box
from metakel.domains.domain import Domain, domain_from_dict
from metakel.domains.finite import Finite, grid, points
from metakel.domains.start import Candidates

__all__ = ["Box", "Candidates", "Domain", "Finite", "box", "domain_from_dict", "grid", "points"]
