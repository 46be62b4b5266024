"""Spaces of named parameters."""

from metakel.space.choices import Categorical, Fixed, Ordinal
from metakel.space.infer import infer_space
from metakel.space.numbers import Float, Integer
from metakel.space.parameter import Parameter
from metakel.space.space import Space

__all__ = [
    "Categorical",
    "Fixed",
    "Float",
    "Integer",
    "Ordinal",
    "Parameter",
    "Space",
    "infer_space",
]
