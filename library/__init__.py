"""Runs of ordinary models on public data sets, from which the library's priors are learned."""
