"""Spaces of named parameters."""

from metakel.space.infer import infer_space
from metakel.space.parameters import Categorical, Fixed, Float, Integer, Ordinal, Parameter
from metakel.space.space import Condition, Space

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
