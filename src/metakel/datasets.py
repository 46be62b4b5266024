"""Histories that come with the library."""

from __future__ import annotations

from metakel.data import History


def load_glmnet() -> History:
    """Elastic-net hyper-parameters (alpha, lambda) and their AUC on 37 classification tasks.

    1000 configurations each: a re-computation on public data sets, not the table of Kuehn et al.
    2018 that the paper used (``data/README.md``). At large lambda every coefficient is zero, so
    that more than half of the values are exactly 0.5.
    """
    from importlib.resources import as_file, files  # slow to import

    with as_file(files("metakel") / "data" / "glmnet.csv.gz") as path:
        return History.from_csv(path, task="task", output="auc")
