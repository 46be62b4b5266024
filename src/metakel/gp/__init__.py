"""Gaussian-process posteriors (Eq. 3)."""

from metakel.gp.posterior import Posterior, mixture_moments, posterior

__all__ = ["Posterior", "mixture_moments", "posterior"]
