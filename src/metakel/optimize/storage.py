"""An optimizer as JSON, exact to the last bit: what it goes on with is what it would have done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from metakel.confidence.sequence import ConfidenceSequence
from metakel.errors import InputError
from metakel.kernels.sum import KernelSum


def storable(name: str, value: Any) -> Any:
    """A setting as JSON keeps it."""
    if callable(value):
        raise InputError(f"a {name} that is a function cannot be stored; store the log instead")
    return value


def stored_model(kernel: KernelSum, sequence: ConfidenceSequence | None) -> dict[str, Any]:
    """Kernels and confidence sequence."""
    full = None if sequence is None else sequence.full
    return {
        "kernel": kernel.to_json(),
        "full": None if full is None else full.to_json(),
        "sequence": None if sequence is None else sequence.to_dict(),
    }


def read_model(
    data: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] | None
) -> tuple[KernelSum, ConfidenceSequence | None]:
    """Inverse of `stored_model`."""
    kernel = KernelSum.from_json(data["kernel"], functions)
    if data["sequence"] is None:
        return kernel, None
    # The kernel itself stands for no second one.
    full = kernel if data["full"] is None else KernelSum.from_json(data["full"], functions)
    return kernel, ConfidenceSequence.from_dict(data["sequence"], kernel, full)


def generator_state(rng: np.random.Generator) -> dict[str, Any]:
    """The state of a generator in a form that JSON keeps exactly."""
    state: dict[str, Any] = _plain(rng.bit_generator.state)
    return state


def generator_from(state: Mapping[str, Any]) -> np.random.Generator:
    """A generator that goes on from a stored state."""
    name = state.get("bit_generator")
    kinds = {"PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"}
    if name not in kinds:
        raise InputError(f"stored generator is of kind {name!r}; known are {', '.join(kinds)}")
    bits: np.random.BitGenerator = getattr(np.random, name)()
    bits.state = dict(state)
    return np.random.Generator(bits)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
