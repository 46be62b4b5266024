"""Spaces of named parameters."""

from metakel.space.infer import infer_space
from metakel.space.parameters import Categorical, Fixed, Float, Integer, Ordinal, Parameter
from metakel.space.space import Condition, Space
from metakel.space.sums import Sum

__all__ = [
    "Categorical",
    "Condition",
    "Fixed",
    "Float",
    "Integer",
    "Ordinal",
    "Parameter",
    "Space",
    "Sum",
    "infer_space",
]
