"""MetaKelSampler for OptunaHub, from the metakel package."""

from metakel.integrations.optuna import MetaKelSampler


__all__ = ["MetaKelSampler"]
