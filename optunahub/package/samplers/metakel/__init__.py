"""MetaKelSampler for OptunaHub: a thin door to the metakel package."""

from metakel.integrations.optuna import MetaKelSampler


__all__ = ["MetaKelSampler"]
