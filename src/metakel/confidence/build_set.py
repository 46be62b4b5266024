"""From observations to the confidence set of one time: a pure function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, log, sqrt

import numpy as np

from metakel._arrays import Array
from metakel.confidence.closed_form import regulariser_and_nu
from metakel.confidence.dual import smallest_squared_radius
from metakel.confidence.fallback import Hypothesis
from metakel.confidence.intersection import ROUNDING
from metakel.confidence.observations import Observations, no_observations
from metakel.confidence.options import Settings
from metakel.confidence.radius import log_evidence, squared_radius
from metakel.confidence.set import ConfidenceSet, closed_form_set, dual_set
from metakel.confidence.spectrum import Spectrum


@dataclass(frozen=True, eq=False)
class Assessment:
    """Parameters
    ----------
    set : ConfidenceSet
    radius : float
        R_t in units of the noise, or nu_t for the closed forms.
    alpha : float
        Regulariser of the posterior mean, in units of the noise variance.
    empty : bool
        Whether no function fits; ``set`` is then enlarged until some do.
    """

    set: ConfidenceSet
    radius: float
    alpha: float
    empty: bool


def assess(
    settings: Settings,
    hypotheses: Sequence[Hypothesis],
    stage: int,
    observations: Sequence[Observations],
    t: int,
) -> Assessment:
    """The set after ``t`` observations.

    Parameters
    ----------
    settings : Settings
    hypotheses : sequence of Hypothesis
        From narrow to wide; the first ones belong to ``observations``, one each.
    stage : int
        Which hypothesis is believed; one past the last for none.
    observations : sequence of Observations
        The same data for every kernel of the mixture.
    t : int
    """
    if settings.method != "dmm":
        return _closed_form(settings, hypotheses[0], observations[0].spectrum(), t)
    believed = hypotheses[stage] if stage < len(hypotheses) else None
    spectra, evidences, weights = [], [], []
    for data, hypothesis in zip(observations, hypotheses, strict=False):
        if believed is not None and data.kernel is believed.kernel:
            spectrum = data.spectrum()
            spectra.append(spectrum)
            eigen = spectrum.values, spectrum.targets**2, spectrum.rest
        else:
            eigen = data.eigen(float(hypothesis.scales.max()))
        evidences.append(log_evidence(*eigen, hypothesis.scales))
        weights.append(hypothesis.log_weights)
    radius = squared_radius(evidences, settings.delta_deciding, weights)
    if believed is None:
        nothing = no_observations(hypotheses[-1].kernel).spectrum()
        free = dual_set(nothing, squared_radius=radius, norm_bound=inf, norm_scales=np.ones(1))
        return Assessment(free, _root(radius), 1.0, empty=False)
    own = next(i for i, data in enumerate(observations) if data.kernel is believed.kernel)
    alpha = _best_scale(believed, evidences[own]) ** -2.0
    return _dual(settings, believed, spectra[0], radius, t, alpha=alpha)


def _best_scale(believed: Hypothesis, evidence: Array) -> float:
    """The scale that the data support best, of those that the norm bound allows."""
    largest = max(believed.norm_bound, float(believed.norm_scales.max()))
    allowed = believed.scales <= largest
    return float(believed.scales[allowed][int(np.argmax(evidence[allowed]))])


def _closed_form(
    settings: Settings, hypothesis: Hypothesis, spectrum: Spectrum, t: int
) -> Assessment:
    rho, nu = regulariser_and_nu(settings, spectrum, t=t, norm_bound=hypothesis.norm_bound)
    alpha = rho / settings.noise_std**2
    return Assessment(closed_form_set(spectrum, alpha=alpha, nu=nu), nu, alpha, empty=False)


def _dual(
    settings: Settings,
    believed: Hypothesis,
    spectrum: Spectrum,
    radius: float,
    t: int,
    *,
    alpha: float,
) -> Assessment:
    bound = believed.norm_bound
    if callable(settings.norm_bound) and isfinite(bound):
        bound = _grown_bound(bound * settings.norm_at(t) / settings.norm_at(0), spectrum, radius)
    smallest = smallest_squared_radius(spectrum, squared_radius=radius, norm_bound=bound)
    empty = smallest < -_tolerance(spectrum, radius)
    enlarged = radius - smallest + 2 * log(1 / settings.delta_deciding) if empty else radius
    found = dual_set(
        spectrum, squared_radius=enlarged, norm_bound=bound, norm_scales=believed.norm_scales
    )
    return Assessment(found, _root(radius), alpha, empty)


def _grown_bound(bound: float, spectrum: Spectrum, radius: float) -> float:
    """Double a bound of the norm that the data contradict, if a larger one can help at all."""
    free = smallest_squared_radius(spectrum, squared_radius=radius, norm_bound=inf)
    while (
        free > 0 and smallest_squared_radius(spectrum, squared_radius=radius, norm_bound=bound) < 0
    ):
        bound *= 2
    return bound


def _tolerance(spectrum: Spectrum, radius: float) -> float:
    """What rounding may make of a radius of 0."""
    return ROUNDING * (1 + abs(radius) + spectrum.rest)


def _root(squared_radius: float) -> float:
    return sqrt(max(squared_radius, 0.0))
