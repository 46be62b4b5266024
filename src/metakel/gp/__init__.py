"""Gaussian-process posteriors (Eq. 3)."""

from metakel.gp.posterior import Posterior, posterior

__all__ = ["Posterior", "posterior"]
