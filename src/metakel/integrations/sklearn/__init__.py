"""A search class for scikit-learn, and learned kernels for its Gaussian processes."""

try:
    from metakel.integrations.sklearn.kernel import SklearnKernel
    from metakel.integrations.sklearn.search import MetaKelSearchCV
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("sklearn"):
        raise
    raise ImportError(
        "metakel.integrations.sklearn needs scikit-learn: pip install scikit-learn"
    ) from error

__all__ = ["MetaKelSearchCV", "SklearnKernel"]
