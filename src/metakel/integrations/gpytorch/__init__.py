"""The learned kernel and the learned mean as GPyTorch modules, for GPyTorch and BoTorch models."""

try:
    import gpytorch as _host  # type: ignore[import-untyped]  # noqa: F401
except ImportError:
    raise ImportError(
        "GPyTorch kernels need torch and gpytorch: pip install torch gpytorch"
    ) from None

from metakel.integrations.gpytorch.kernel import GPyTorchKernel, GPyTorchMean

__all__ = ["GPyTorchKernel", "GPyTorchMean"]
