"""The group lasso for many values of lambda at once, each solution with its duality gap."""

from metakel.grouplasso.path.batched_path import Path, path

__all__ = ["Path", "path"]
