"""Spaces of named parameters."""

from metakel.space.parameters import Categorical, Fixed, Float, Integer, Ordinal, Parameter
from metakel.space.space import Condition, Space, infer_space

__all__ = [
    "Categorical",
    "Condition",
    "Fixed",
    "Float",
    "Integer",
    "Ordinal",
    "Parameter",
    "Space",
    "infer_space",
]
