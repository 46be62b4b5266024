"""A certified solver for the group lasso behind Meta-KeL (Eq. 8)."""

from metakel.grouplasso.path import path, solve_square_root
from metakel.grouplasso.problem import Problem
from metakel.grouplasso.solve import Solution, lambda_max, solve

__all__ = [
    "Problem",
    "Solution",
    "lambda_max",
    "path",
    "solve",
    "solve_square_root",
]
