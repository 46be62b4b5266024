"""The group lasso along many lambdas at once, each solution certified."""

from metakel.grouplasso.path.path import Path, path

__all__ = ["Path", "path"]
