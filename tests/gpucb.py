"""GP-UCB with all assumptions in one row, as tests vary them."""

from __future__ import annotations

from metakel import GPUCB, ConfidenceSequence, FixedWidth, safe


def gpucb(kernel, domain, *, noise_std, norm_bound=None, nu=None, noise_var=None, **options):
    """An optimizer; the other options are those of sequence, limits and `GPUCB`."""
    chosen = ("rng", "seed", "acquisition", "minimize", "stop_at", "probes")
    limited = ("at_least", "at_most", "limits", "start", "stops")
    rest = {name: options.pop(name) for name in chosen if name in options}
    limits = {name: options.pop(name) for name in limited if name in options}
    bounds = None
    if nu is None or norm_bound is not None:
        bounds = ConfidenceSequence(kernel, noise_std=noise_std, norm_bound=norm_bound, **options)
    assumed = bounds
    if nu is not None:
        noise_var = noise_std**2 if noise_var is None else noise_var
        assumed = FixedWidth(kernel, nu, noise_var, bounds, options.get("center"))
    if any(value is not None for value in limits.values()):
        assumed = safe.Limited(assumed, **limits)
    return GPUCB(assumed, domain, **rest)
