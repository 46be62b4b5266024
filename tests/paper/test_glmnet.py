from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from metakel.errors import InputError
from reproduction.glmnet import TEST_IDS, TRAIN_IDS, bundled, read_published

HEADER = (
    '"data_id","task_id","alpha","lambda","auc","accuracy","brier","runtime","scimark",'
    '"NumberOfFeatures","NumberOfInstances"\n'
)


@pytest.fixture
def published(tmp_path):
    """A small file in the published format: all of the paper's tasks, three rows each."""
    rows = [
        f"{number},{number + 5},{alpha},{lam},{auc},0.8,0.1,1.5,1000.0,20,500\n"
        for number in TRAIN_IDS + TEST_IDS
        for alpha, lam, auc in ((0.1, 2.0**-10, 0.7), (0.5, 1.0, 0.9), (0.9, 2.0**10, 0.5))
    ]
    rows.insert(0, "3,8,NA,NA,0.99,0.9,0.1,1.0,1000.0,20,500\n")  # a default that was not recorded
    path = tmp_path / "OpenMLRandomBotResultsFinal_mlr.classif.glmnet.csv"
    path.write_text(HEADER + "".join(rows))
    return path


def test_bundled_table():
    tuning = bundled()
    assert len(tuning.tasks) == 37
    assert all(task.n == 1000 for task in tuning.tasks)
    X = np.concatenate([task.X for task in tuning.tasks])
    assert X[:, 0].min() >= 0
    assert X[:, 0].max() <= 1
    assert np.abs(X[:, 1]).max() <= 1.0
    paper = set(TRAIN_IDS + TEST_IDS)
    assert sum(number in paper for number in tuning.ids) == 10
    assert sum(number == -1 for number in tuning.ids) == 27


def test_published_format(published):
    tuning = read_published(published)
    assert len(tuning.tasks) == 33
    task = tuning.named([1489])[0]
    assert_allclose(task.X, [[0.1, -1.0], [0.5, 0.0], [0.9, 1.0]])
    assert_allclose(task.y, [0.7, 0.9, 0.5])


def test_missing_file_says_where_to_get_it(tmp_path):
    with pytest.raises(InputError, match=r"5882230.*CC BY"):
        read_published(tmp_path / "nothing.csv")


def test_another_file_is_refused(tmp_path, published):
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match=r"no column 'data_id' \(found: a, b\)"):
        read_published(other)
    other.write_text(published.read_text().replace(",0.7,", ",1.7,"))
    with pytest.raises(InputError, match="auc"):
        read_published(other)
    other.write_text("data_id,alpha,lambda,auc\n3,NA,NA,0.5\n")
    with pytest.raises(InputError, match="no complete row"):
        read_published(other)


def test_split_depends_on_the_seed_and_covers_all_tasks():
    tuning = bundled()
    train, test = tuning.split(np.random.default_rng(0), test=13)
    assert len(train) == 24
    assert {t.name for t in train} | {t.name for t in test} == {t.name for t in tuning.tasks}
    _, again = tuning.split(np.random.default_rng(0), test=13)
    _, other = tuning.split(np.random.default_rng(1), test=13)
    assert [t.name for t in test] == [t.name for t in again]
    assert [t.name for t in test] != [t.name for t in other]
    with pytest.raises(InputError, match="37"):
        tuning.split(np.random.default_rng(0), test=37)
