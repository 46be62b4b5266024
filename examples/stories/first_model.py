"""A first model without any history: five lines instead of RandomizedSearchCV, and the report.

python examples/stories/first_model.py [--fits 15]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score, train_test_split

from metakel.integrations.sklearn import MetaKelSearchCV
from metakel.report import write_report


def main(fits: int, page: Path | None) -> None:
    X, y = load_breast_cancer(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0, stratify=y)
    model = RandomForestClassifier(random_state=0)
    before = cross_val_score(model, X_train, y_train, scoring="neg_log_loss", cv=3).mean()

    search = MetaKelSearchCV(model, n_iter=fits, scoring="neg_log_loss", cv=3)
    search.fit(X_train, y_train)

    print(f"defaults: log loss {-before:.4f} in cross-validation")
    print(f"after {fits} fits: {-search.best_score_:.4f} with {search.best_params_}")
    print(f"on rows that no search saw: {-search.score(X_test, y_test):.4f}")
    print(f"trust in the library: {search.optimizer_.trust:.2f}")
    print(search.optimizer_.certificate())
    if page is not None:
        write_report(search.prior_, page)
        print(f"what the prior knows: {page}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fits", type=int, default=15)
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()
    main(options.fits, options.report)
