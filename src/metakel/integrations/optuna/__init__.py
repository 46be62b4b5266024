"""An Optuna sampler that starts from what finished studies have in common."""

from typing import TYPE_CHECKING, Any

try:
    import optuna as _host  # noqa: F401
except ImportError:
    raise ImportError("the Optuna sampler needs Optuna 5: pip install metakel[optuna]") from None

from metakel.integrations.optuna.sampler import MetaKelSampler
from metakel.integrations.optuna.stopping import StopAtCallback

if TYPE_CHECKING:
    from metakel.integrations.optuna.stopping import MetaKelRegretEvaluator

__all__ = ["MetaKelRegretEvaluator", "MetaKelSampler", "StopAtCallback"]


def __getattr__(name: str) -> Any:
    # Optuna is going to remove its terminators, so only who asks for one depends on them.
    if name == "MetaKelRegretEvaluator":
        from metakel.integrations.optuna.stopping import MetaKelRegretEvaluator

        return MetaKelRegretEvaluator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
