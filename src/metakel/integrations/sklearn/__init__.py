"""Learned kernels as kernels of scikit-learn's Gaussian processes."""

try:
    from metakel.integrations.sklearn.kernel import SklearnKernel
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("sklearn"):
        raise
    raise ImportError(
        "metakel.integrations.sklearn needs scikit-learn: pip install metakel[sklearn]"
    ) from error

__all__ = ["SklearnKernel"]
