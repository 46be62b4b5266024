"""Learned kernels in scikit-learn: a kernel for its Gaussian processes, and an estimator."""

try:
    from metakel.integrations.sklearn.kernel import SklearnKernel
    from metakel.integrations.sklearn.regressor import MetaKernelRegressor
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("sklearn"):
        raise
    raise ImportError(
        "metakel.integrations.sklearn needs scikit-learn: pip install metakel[sklearn]"
    ) from error

__all__ = ["MetaKernelRegressor", "SklearnKernel"]
