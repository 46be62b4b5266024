"""A certified solver for the group lasso behind Meta-KeL (Eq. 8)."""

from metakel.grouplasso.path import Path, path
from metakel.grouplasso.problem import Problem
from metakel.grouplasso.solve import Solution, lambda_max, solve
from metakel.grouplasso.square_root import solve_square_root

__all__ = [
    "Path",
    "Problem",
    "Solution",
    "lambda_max",
    "path",
    "solve",
    "solve_square_root",
]
