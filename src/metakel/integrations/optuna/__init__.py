"""An Optuna sampler that starts from what finished studies have in common."""

try:
    import optuna as _host  # noqa: F401
except ImportError:
    raise ImportError("the Optuna sampler needs Optuna 5: pip install 'optuna>=5'") from None

from metakel.integrations.optuna.pruner import MetaKelPruner
from metakel.integrations.optuna.sampler import MetaKelSampler, StopAtCallback
from metakel.io.optuna import Studies

__all__ = ["MetaKelPruner", "MetaKelSampler", "StopAtCallback", "Studies"]
