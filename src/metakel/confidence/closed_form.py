r"""Intervals mean +- nu times the posterior standard deviation, at one regulariser rho.

====================  ===============================================================  ===========
method                nu                                                               rho
====================  ===============================================================  ===========
"amm"                 sqrt(B^2 + (sigma^2/rho)(log det(I + K/rho) + 2 log(1/delta)))   any, fixed
"ay"                  B + (sigma/sqrt(rho)) sqrt(log det(I + K/rho) + 2 log(1/delta))  any, fixed
"paper-corrected"     "ay" with rho given; otherwise Lemma C.1 with the realised gain  1 + 2/t
"paper"               Theorem 5.1 as printed                                           1 + 2/t
"oracle"              Chowdhury and Gopalan with the true kernel, as Section 5 prints  1 + 2/t
====================  ===============================================================  ===========

B is the certified norm bound for the first three. "paper" and "oracle" are literal: "paper" is not
valid in general (it misses on an explicit counterexample), "oracle" holds if k(x, x) <= 1 and B
bounds the norm in the kernel given.
"""

from __future__ import annotations

from math import log, sqrt

from metakel.confidence.options import ConfidenceOptions
from metakel.confidence.spectrum import Spectrum
from metakel.theory import (
    exploration,
    exploration_oracle,
    exploration_paper,
    exploration_vanilla,
    noise_var_paper,
)


def regulariser_and_nu(
    options: ConfidenceOptions, spectrum: Spectrum, *, t: int, norm_bound: float
) -> tuple[float, float]:
    """rho, in units of the squared outputs, and nu after ``t`` observations.

    Parameters
    ----------
    options : ConfidenceOptions
    spectrum : Spectrum
        The t observations, whitened with ``options.noise_std``.
    t : int
        Theorem 5.1 writes t for the step that comes next, which is t + 1 here.
    norm_bound : float
        The certified bound in the norm of the kernel; "paper" and "oracle" take B itself.
    """
    sigma, delta = options.noise_std, options.delta_deciding
    B = options.norm_at(t)
    step = noise_var_paper(t=t + 1)
    match options.method:
        case "paper":
            assert options.beta_min is not None
            assert options.recovery_error is not None
            return step, exploration_paper(
                norm_bound=B,
                noise_std=sigma,
                dim=spectrum.kernel.dim,
                t=t + 1,
                delta=delta,
                recovery_error=options.recovery_error,
                beta_min=options.beta_min,
            )
        case "oracle":
            dim = spectrum.kernel.dim
            return step, exploration_oracle(
                norm_bound=B, noise_std=sigma, dim=dim, t=t + 1, delta=delta
            )
        case "paper-corrected" if options.rho is None:
            gain = spectrum.log_det(step / sigma**2) / 2
            return step, exploration_vanilla(
                norm_bound=norm_bound, noise_std=sigma, information_gain=gain, delta=delta
            )
    rho = sigma**2 if options.rho is None else options.rho
    log_det = spectrum.log_det(rho / sigma**2)
    if options.method == "amm":
        return rho, sqrt(norm_bound**2 + sigma**2 / rho * (log_det + 2 * log(1 / delta)))
    return rho, exploration(
        norm_bound=norm_bound,
        noise_std=sigma,
        smallest_weight=1.0,  # norm_bound is certified already
        information_gain=log_det / 2,
        noise_var=rho,
        delta=delta,
    )
