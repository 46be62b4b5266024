"""The group lasso behind Meta-KeL: a problem in arrays, a certified solver."""

from metakel.grouplasso.path import Path, path
from metakel.grouplasso.problem import Problem, lambda_max
from metakel.grouplasso.remote import Remote
from metakel.grouplasso.solve import Solution, solve
from metakel.grouplasso.square_root import solve_square_root

__all__ = [
    "Path",
    "Problem",
    "Remote",
    "Solution",
    "lambda_max",
    "path",
    "solve",
    "solve_square_root",
]
