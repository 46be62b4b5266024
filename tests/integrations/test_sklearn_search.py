"""`MetaKelSearchCV` keeps the contract of scikit-learn's searches, and begins with a prior."""

import pickle
import re
from itertools import product

import numpy as np
import pytest

pytest.importorskip("sklearn")

from scipy.sparse import csr_matrix
from scipy.stats import loguniform, randint, rv_discrete, uniform
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_diabetes, load_wine
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.metrics import f1_score, get_scorer, make_scorer, recall_score
from sklearn.model_selection import (
    KFold,
    ParameterGrid,
    RandomizedSearchCV,
    ShuffleSplit,
    StratifiedKFold,
    cross_val_score,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from metakel import History, learn_prior, library
from metakel.errors import InputError
from metakel.integrations.sklearn import MetaKelSearchCV
from metakel.integrations.sklearn.past import past_runs, rows_of
from metakel.space import Categorical, Float, Space

X, y = load_wine(return_X_y=True)
X = StandardScaler().fit_transform(X)
PIPE = make_pipeline(StandardScaler(), KNeighborsClassifier())
K = "kneighborsclassifier__n_neighbors"


# As scikit-learn checks its own searches.
CHECKED = MetaKelSearchCV(
    LogisticRegression(), {"C": [0.1, 1.0, 10.0]}, n_iter=2, cv=2, error_score="raise"
)


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([CHECKED])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def test_a_model_in_a_pipeline_needs_neither_space_nor_history():
    search = MetaKelSearchCV(PIPE, n_iter=4, cv=3, scoring="neg_log_loss").fit(X, y)
    assert search.prior_.info.model == "knn"
    assert set(search.best_params_) == {
        K, "kneighborsclassifier__weights", "kneighborsclassifier__p",
    }  # fmt: skip
    first = [found["n_neighbors"] for found in search.prior_.info.tried_first]
    assert [found[K] for found in search.cv_results_["params"][:3]] == first
    assert search.predict(X).shape == y.shape
    assert search.optimizer_.t == 4
    assert search.stop_reason_ == "n_iter = 4 configurations were tried"


def test_results_have_the_columns_of_a_randomized_search():
    space = {"C": loguniform(1e-3, 1e3)}
    model = LogisticRegression()
    options = {"n_iter": 3, "cv": 3, "scoring": ["accuracy", "neg_log_loss"], "refit": "accuracy"}
    ours = MetaKelSearchCV(model, space, return_train_score=True, **options).fit(X, y)
    theirs = RandomizedSearchCV(model, space, return_train_score=True, **options).fit(X, y)
    assert set(ours.cv_results_) == set(theirs.cv_results_)
    assert len(ours.cv_results_["params"]) == 3
    scores = ours.cv_results_["mean_test_accuracy"]
    assert ours.best_score_ == scores.max() == scores[ours.best_index_]
    again = cross_val_score(clone(model).set_params(**ours.best_params_), X, y, cv=3).mean()
    assert ours.best_score_ == pytest.approx(again)


def test_the_same_search_decides_the_same_and_copies_go_on():
    search = MetaKelSearchCV(PIPE, n_iter=3, cv=3)
    one, two = clone(search).fit(X, y), clone(search).fit(X, y)
    assert one.cv_results_["params"] == two.cv_results_["params"]
    again = pickle.loads(pickle.dumps(one))
    assert again.best_params_ == one.best_params_
    np.testing.assert_array_equal(again.predict(X), one.predict(X))
    with pytest.raises(NotFittedError):
        clone(one).predict(X)


def test_lists_ranges_and_parameters_that_the_prior_lacks():
    space = {K: [1, 5, 25], "kneighborsclassifier__leaf_size": randint(5, 50)}
    search = MetaKelSearchCV(PIPE, space, n_iter=5, cv=3).fit(X, y)
    tried = search.cv_results_["params"]
    assert {p[K] for p in tried} <= {1, 5, 25}
    assert all(set(p) == set(space) for p in tried)
    assert search.prior_.info.model == "knn"


@pytest.mark.parametrize("prior", ["auto", None])
@pytest.mark.parametrize(
    "space",
    [
        {"n_neighbors": [1, 3, 5, 9], "weights": ["uniform", "distance"]},
        {"n_neighbors": [1, 2, 60], "leaf_size": [10, 30, 31]},
    ],
)
def test_no_configuration_of_lists_is_tried_twice(space, prior):
    search = MetaKelSearchCV(KNeighborsClassifier(), space, n_iter=12, cv=3, prior=prior)
    tried = [str(sorted(p.items())) for p in search.fit(X, y).cv_results_["params"]]
    count = len(ParameterGrid(space))
    assert len(set(tried)) == len(tried) == count
    assert search.stop_reason_ == f"all {count} configurations of param_space were tried"


@pytest.mark.parametrize(
    "space",
    [
        {"C": loguniform(1e-2, 1e2)},
        {"C": [0.1, 1.0, 10.0], "kernel": ["rbf", "linear"]},
        {"C": [0.1, 1.0, 10.0], "kernel": ["linear"]},
        {"C": [0.1, 1.0], "kernel": ["linear", "poly"], "degree": [2, 3]},
        {"C": [0.1, 1.0], "kernel": ["linear", "sigmoid"]},
    ],
)
def test_parameters_that_depend_on_another_one_may_be_left_out(space):
    search = MetaKelSearchCV(SVC(), space, n_iter=5, cv=3).fit(X, y)
    assert search.prior_.info.model == "svm"
    tried = search.cv_results_["params"]
    assert all(set(p) <= set(space) for p in tried)
    wanted = space.get("kernel", ["rbf"])
    assert {p.get("kernel", "rbf") for p in tried} <= set(wanted)
    assert len({str(p) for p in tried}) == len(tried)


def test_a_randomized_search_of_a_table_with_names_is_replaced():
    rng = np.random.default_rng(0)
    table = np.empty((90, 3), dtype=object)
    table[:, 0], table[:, 1] = rng.normal(size=90), rng.choice(["a", "b", "c"], 90)
    table[:, 2] = rng.choice([1.0, 2.0, np.nan], 90)
    labels = np.where((table[:, 1] == "a") | (table[:, 0] > 1), "yes", "no")
    numbers = Pipeline([("impute", SimpleImputer()), ("scale", StandardScaler())])
    columns = ColumnTransformer([("numbers", numbers, [0, 2]), ("names", OneHotEncoder(), [1])])
    forest = RandomForestClassifier(random_state=0)
    model = Pipeline([("columns", columns), ("forest", forest)])
    space = {
        "columns__numbers__impute__strategy": ["mean", "median"],
        "forest__n_estimators": randint(5, 20),
        "forest__max_depth": [2, 5, None],
        "forest__max_features": ["sqrt", None],
    }
    options = {"n_iter": 3, "cv": 3, "scoring": ["roc_auc", "accuracy"], "refit": "roc_auc"}
    for made in (RandomizedSearchCV, MetaKelSearchCV):
        seed = np.random.RandomState(0)
        search = made(model, space, random_state=seed, **options).fit(table, labels)
        assert set(search.best_params_) == set(space)
        assert search.cv_results_["mean_test_accuracy"].shape == (3,)
        assert set(search.predict(table)) <= {"yes", "no"}


def test_values_of_any_kind_are_choices():
    space = {"class_weight": [None, "balanced"], "C": [1.0]}
    search = MetaKelSearchCV(LogisticRegression(), space, n_iter=2, cv=3).fit(X, y)
    assert {p["class_weight"] for p in search.cv_results_["params"]} == {None, "balanced"}
    assert all(p["C"] == 1.0 for p in search.cv_results_["params"])


def test_a_space_of_ours_and_a_prior_of_ours():
    space = Space((Float("C", 0.01, 100, log=True), Categorical("fit_intercept", (True, False))))
    search = MetaKelSearchCV(LogisticRegression(), space, n_iter=3, cv=3, prior=None).fit(X, y)
    assert not search.prior_.helps
    other = MetaKelSearchCV(LogisticRegression(), prior="library:logistic_regression:auc")
    with pytest.raises(InputError, match="scoring measures 'accuracy'"):
        other.fit(X, y)
    named = MetaKelSearchCV(
        LogisticRegression(), n_iter=2, cv=3, prior="library:logistic_regression"
    )
    assert named.fit(X, y).prior_ is library.load("logistic_regression", "accuracy")


def test_a_space_narrows_a_prior_of_ones_own():
    rng, ranges = np.random.default_rng(0), Space((Float("C", 1e-3, 1e3, log=True),))
    past = {"task": [], "C": [], "accuracy": []}
    for task, x in product("abc", ranges.sample(rng, 8)):
        C = ranges.decode(x[None])[0]["C"]
        values = (task, C, 0.9 - 0.01 * np.log10(C) ** 2 + 0.001 * rng.normal())
        for column, value in zip(past.values(), values, strict=True):
            column.append(value)
    history = History.from_frame(past, task="task", output="accuracy", minimize=False, space=ranges)
    prior = learn_prior(history, certify="none")
    space = {"C": loguniform(10.0, 100.0), "fit_intercept": [True, False]}
    search = MetaKelSearchCV(LogisticRegression(), space, n_iter=3, cv=3, prior=prior).fit(X, y)
    assert all(10 <= p["C"] <= 100 and set(p) == set(space) for p in search.cv_results_["params"])
    assert not set(MetaKelSearchCV(
        LogisticRegression(), n_iter=2, cv=3, prior=prior
    ).fit(X, y).best_params_) - {"C"}  # fmt: skip


def test_a_cold_start_minimises_a_loss():
    space = {"C": loguniform(1e-6, 1e3)}
    search = MetaKelSearchCV(
        LogisticRegression(max_iter=500), space, n_iter=8, cv=3, prior=None, scoring="neg_log_loss"
    ).fit(X, y)
    assert search.prior_.info.minimize
    assert search.optimizer_.best().value == pytest.approx(-search.best_score_)
    assert search.best_params_["C"] > 1e-2


def test_no_prior_is_a_cold_start_that_is_said_once(caplog):
    search = MetaKelSearchCV(GaussianNB(), {"var_smoothing": loguniform(1e-12, 1)}, n_iter=3, cv=3)
    search.fit(X, y)
    assert len([r for r in caplog.records if "a cold start" in r.message]) == 1
    with pytest.raises(InputError, match="no param_space to search"):
        MetaKelSearchCV(GaussianNB(), n_iter=2).fit(X, y)
    caplog.clear()
    search = MetaKelSearchCV(Ridge(), n_iter=2, cv=3, scoring="neg_max_error").fit(X, y)
    assert "over the ranges of ridge, by rmse at first" in caplog.text
    assert not search.prior_.info.tasks


class Fails(ClassifierMixin, BaseEstimator):
    def __init__(self, a=0.0):
        self.a = a

    def fit(self, X, y):
        if self.a > 0.5:
            raise ValueError("too large")
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[int(self.a > 0.2)])


@pytest.mark.filterwarnings("ignore")
def test_failed_fits_are_failures_and_are_left():
    search = MetaKelSearchCV(Fails(), {"a": [0.1, 0.3, 0.7, 0.9]}, n_iter=12, cv=3).fit(X, y)
    scores = search.cv_results_["mean_test_score"]
    assert np.isnan(scores).any()
    assert search.best_params_["a"] <= 0.5
    with pytest.raises(ValueError, match="too large"):
        MetaKelSearchCV(Fails(), {"a": [0.7, 0.9]}, n_iter=2, cv=3, error_score="raise").fit(X, y)
    with pytest.raises(ValueError, match="fits failed"):
        MetaKelSearchCV(Fails(), {"a": [0.7, 0.9]}, n_iter=2, cv=3).fit(X, y)


@pytest.mark.filterwarnings("ignore")
def test_results_have_every_failure_once_and_nothing_twice():
    space = {"a": [0.1, 0.2, 0.3, 0.6, 0.7, 0.8, 0.9]}
    for count in range(2, 8):
        search = MetaKelSearchCV(Fails(), space, n_iter=count, cv=2).fit(X, y)
        tried = [found["a"] for found in search.cv_results_["params"]]
        assert len(tried) == len(set(tried)) == count
        failed = np.isnan(search.cv_results_["mean_test_score"])
        assert [a > 0.5 for a in tried] == failed.tolist()


def test_a_splitter_that_shuffles_anew_gives_all_configurations_the_same_folds():
    for cv in (KFold(3, shuffle=True), ShuffleSplit(3, random_state=np.random.RandomState(0))):
        space = {"leaf_size": [10, 20, 30, 40]}
        search = MetaKelSearchCV(KNeighborsClassifier(), space, n_iter=4, cv=cv).fit(X, y)
        for fold in range(3):
            assert len(set(search.cv_results_[f"split{fold}_test_score"])) == 1


def test_numbers_of_a_list_beyond_the_range_of_the_prior_are_tried_as_they_are():
    forest = RandomForestClassifier(n_estimators=5, random_state=0)
    space = {"n_estimators": [5, 40, 400], "max_depth": [3, 50]}  # the library knows 20 to 300
    search = MetaKelSearchCV(forest, space, n_iter=9, cv=2).fit(X, y)
    assert search.prior_.info.model == "random_forest"
    tried = {tuple(sorted(found.items())) for found in search.cv_results_["params"]}
    assert tried == {tuple(sorted(found.items())) for found in ParameterGrid(space)}
    far = MetaKelSearchCV(forest, {"n_estimators": [1, 2, 5]}, n_iter=9, cv=2).fit(X, y)
    assert {found["n_estimators"] for found in far.cv_results_["params"]} == {1, 2, 5}


def test_a_range_that_ends_beyond_that_of_the_prior_is_searched_to_its_end():
    space = {"C": uniform(500, 4000), "gamma": randint(1, 40)}  # the library knows C to 1000
    search = MetaKelSearchCV(SVC(), space, n_iter=8, cv=2).fit(X, y)
    assert search.prior_.info.model == "svm"
    assert "beyond the recorded ranges" in search.optimizer_.certificate().reason
    found = [p["C"] for p in search.cv_results_["params"]]
    assert 500 <= min(found) < 1000 < max(found) <= 4500
    assert all(isinstance(p["gamma"], int) for p in search.cv_results_["params"])


@pytest.mark.parametrize("model", [KNeighborsClassifier(), SVC(), RandomForestClassifier(20)])
def test_sparse_features_are_searched_without_a_space(model):
    found = MetaKelSearchCV(model, n_iter=3, cv=2).fit(csr_matrix(X), y).cv_results_
    assert np.isfinite(found["mean_test_score"]).all()


@pytest.mark.parametrize("sparse", [True, False])
def test_steps_that_make_features_sparse_are_known_to_nearest_neighbours(sparse):
    names = np.random.default_rng(0).choice(["a", "b", "c"], (160, 4))
    labels = (names == "a").sum(axis=1) > 1
    steps = [OneHotEncoder(sparse_output=sparse), KNeighborsClassifier()]
    model = make_pipeline(make_pipeline(steps[0]), make_pipeline("passthrough", steps[1]))
    search = MetaKelSearchCV(model, n_iter=3, cv=2).fit(names, labels)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    searched = {name.rpartition("__")[2] for name in search.best_params_}
    assert searched == {"n_neighbors", "weights"} | (set() if sparse else {"p"})


def test_a_parameter_without_effect_is_not_searched():
    found = MetaKelSearchCV(KNeighborsClassifier(metric="cosine"), n_iter=2, cv=2).fit(X, y)
    assert set(found.best_params_) == {"n_neighbors", "weights"}


def test_a_law_of_any_kind_is_a_range_or_a_list():
    with pytest.raises(InputError, match="tells no range"):
        MetaKelSearchCV(KNeighborsClassifier(), {"p": type("Law", (), {"rvs": 1})()}).fit(X, y)
    space = {"n_neighbors": rv_discrete(values=([1, 4, 9], [0.2, 0.3, 0.5])), "p": uniform(1, 2)}
    search = MetaKelSearchCV(KNeighborsClassifier(), space, n_iter=6, cv=2).fit(X, y)
    assert {found["n_neighbors"] for found in search.cv_results_["params"]} <= {1, 4, 9}


class Interrupted(KNeighborsClassifier):
    fits = 0

    def fit(self, X, y):
        type(self).fits += 1
        if type(self).fits == 8:
            raise KeyboardInterrupt
        return super().fit(X, y)


def test_an_interrupt_keeps_what_was_tried():
    Interrupted.fits = 0
    with pytest.warns(UserWarning, match="interrupted after 2 configurations"):
        search = MetaKelSearchCV(Interrupted(), {"n_neighbors": [1, 3, 5, 9]}, n_iter=4, cv=3).fit(
            X, y
        )
    assert len(search.cv_results_["params"]) == 2
    assert search.predict(X).shape == y.shape


def test_an_interrupt_between_two_fits_keeps_what_was_tried(monkeypatch):
    written = []

    def note(search, *line):
        written.append(line)
        if len(written) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(MetaKelSearchCV, "_note", note)
    with pytest.warns(UserWarning, match="interrupted after 3 configurations"):
        search = MetaKelSearchCV(KNeighborsClassifier(), n_iter=5, cv=3).fit(X, y)
    assert len(search.cv_results_["params"]) == 3
    assert search.predict(X).shape == y.shape


def test_a_bar_shows_how_far_it_is(capsys):
    MetaKelSearchCV(PIPE, n_iter=2, cv=3, verbose=1).fit(X, y)
    out, err = capsys.readouterr()
    assert out == ""
    assert "2/2" in err
    assert "best" in err


def test_a_search_stops_at_a_certificate():
    search = MetaKelSearchCV(PIPE, n_iter=40, cv=3, scoring="neg_log_loss", stop_at="60%").fit(X, y)
    assert len(search.cv_results_["params"]) < 40
    assert "better by more than" in search.stop_reason_


def test_what_a_search_leaves_teaches_the_next(tmp_path):
    file = tmp_path / "runs.jsonl"
    space = {"C": loguniform(1e-3, 1e2)}
    rng = np.random.default_rng(0)

    def search(rows, moved=0.0):
        found = MetaKelSearchCV(
            LogisticRegression(max_iter=500), space, n_iter=6, cv=3, prior=None, history=file
        )
        return found.fit(X[rows] + moved, y[rows])

    for moved in (0.1, 0.2, 0.3):  # other data sets
        assert not search(rng.permutation(len(y))[:120], moved).prior_.info.tasks
    assert len(file.read_text().splitlines()) == 18
    fourth = search(np.arange(len(y)))
    assert len(fourth.prior_.info.tasks) == 3
    file.write_text("no json\n")
    with pytest.raises(InputError, match=r"runs\.jsonl, line 1"):
        search(np.arange(len(y)))
    others = [
        RandomizedSearchCV(LogisticRegression(), space, n_iter=6, cv=3, random_state=k).fit(X, y)
        for k in range(3)
    ]
    taught = MetaKelSearchCV(LogisticRegression(), space, n_iter=2, cv=3, history=others).fit(X, y)
    assert len(taught.prior_.info.tasks) == 3


@pytest.mark.parametrize(
    ("scorer", "output"),
    [
        (get_scorer("roc_auc_ovr"), "auc"),
        (make_scorer(f1_score, average="macro"), "balanced_accuracy"),
        ({"loss": get_scorer("neg_log_loss"), "other": "accuracy"}, "log_loss"),
    ],
)
def test_a_scorer_is_known_as_object_as_well(scorer, output):
    search = MetaKelSearchCV(KNeighborsClassifier(), n_iter=1, cv=3, scoring=scorer, refit=False)
    assert search.fit(X, y).prior_.info.output == output


def test_a_search_of_others_joins_the_library_whatever_form_it_has(caplog):
    def searched(space, **options):
        found = RandomizedSearchCV(KNeighborsClassifier(), space, n_iter=6, cv=3, **options)
        return found.fit(X[::2], y[::2])

    def prior(history, scoring="accuracy"):
        return (
            MetaKelSearchCV(
                KNeighborsClassifier(), n_iter=1, cv=3, scoring=scoring, history=history
            )
            .fit(X, y)
            .prior_
        )

    past = searched({"n_neighbors": randint(1, 40)}, random_state=0)
    notes = [prior(given).info.notes for given in (past, [past], past.cv_results_)]
    assert notes[0] == notes[1] == notes[2]
    assert any("the library's prior" in note for note in notes[0])
    both = searched(
        {"n_neighbors": randint(1, 40)}, scoring=["accuracy", "roc_auc_ovr"], refit=False
    )
    assert prior(both.cv_results_, "roc_auc_ovr").info.output == "auc"
    for wrong in (
        searched({"n_neighbors": randint(1, 40)}, scoring="f1_macro"),
        7,
        [{"params": []}],
    ):
        with pytest.raises(InputError, match="that measured 'accuracy'"):
            prior(wrong)
    with pytest.raises(InputError, match="no folder"):
        prior("nowhere/runs.jsonl")
    # Of what the library does not know nothing can be learned, which is said.
    assert prior(searched({"leaf_size": randint(3, 30)})).beside.library is None
    assert "6 of 6 past runs are not used" in caplog.text


def test_searches_that_began_with_the_library_join_it(tmp_path):
    file, rng = tmp_path / "runs.jsonl", np.random.default_rng(0)
    model = make_pipeline(StandardScaler(), KNeighborsClassifier())
    for _ in range(2):
        rows = rng.permutation(len(y))[:120]
        found = MetaKelSearchCV(model, n_iter=6, cv=3, history=file).fit(X[rows], y[rows])
    assert found.prior_.info.model == "knn"
    last = MetaKelSearchCV(model, n_iter=2, cv=3, history=file).fit(X, y)
    assert last.prior_.info.model == "knn"
    # The same runs of other data sets: nothing is learned twice.
    assert MetaKelSearchCV(model, n_iter=2, cv=3, history=file).fit(X, y).prior_ is last.prior_
    alone = last.prior_.beside.library is None
    assert any("used alone" in note for note in last.prior_.info.notes) == alone


def test_a_file_of_searches_teaches_those_of_the_same_model(tmp_path):
    path = tmp_path / "runs.jsonl"

    def searched(model, rows):
        pipe = make_pipeline(StandardScaler(), model)
        return MetaKelSearchCV(pipe, n_iter=3, cv=2, history=path).fit(X[rows], y[rows]).prior_

    searched(LogisticRegression(), slice(0, 170))
    other = searched(SVC(), slice(5, 175))  # both are pipelines, and both have C
    assert other.info.tasks == library.load("svm", "accuracy").info.tasks
    alone = MetaKelSearchCV(SVC(), n_iter=2, cv=2, history=path).fit(X, y).prior_
    assert alone.info.runs == 3  # those of the pipeline


def test_metadata_is_routed_to_scorers_splitters_and_models():
    weights = np.ones(len(y))
    with config_context(enable_metadata_routing=True):
        scorer = make_scorer(recall_score, average="macro").set_score_request(sample_weight=True)
        model = LogisticRegression().set_fit_request(sample_weight=True)
        search = MetaKelSearchCV(
            model, {"C": loguniform(0.1, 10)}, n_iter=2, cv=StratifiedKFold(3), scoring=scorer
        )
        search.fit(X, y, sample_weight=weights)
    assert np.isfinite(search.best_score_)


def test_a_regression_is_searched_in_any_unit():
    Xd, yd = load_diabetes(return_X_y=True)
    for scoring in (None, "neg_mean_squared_error", "neg_mean_absolute_error"):
        tried = []
        for unit in (1.0, 1e4):
            search = MetaKelSearchCV(Ridge(), n_iter=4, cv=3, scoring=scoring).fit(Xd, unit * yd)
            tried.append([p["alpha"] for p in search.cv_results_["params"]])
            assert search.prior_.info.model == "ridge"
        np.testing.assert_allclose(tried[0], tried[1], rtol=0.05)


@pytest.mark.parametrize("space", [{}, {"C": []}, {"C": 3}, {"C": "wide"}, 5])
def test_a_wrong_space_is_refused(space):
    with pytest.raises(InputError, match="param_space"):
        MetaKelSearchCV(LogisticRegression(), space, n_iter=2).fit(X, y)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("param_distributions", "param_space"), ("param_grid", "param_space"), ("n_trials", "n_iter")],
)
def test_an_argument_of_another_search_is_refused_with_its_name_here(theirs, ours):
    with pytest.raises(InputError, match=f"takes no {theirs}=; expected {ours}="):
        MetaKelSearchCV(Ridge(), **{theirs: {"alpha": [1.0, 2.0]}})
    names = MetaKelSearchCV(Ridge(), {"alpha": [1.0, 2.0]}).get_params(deep=False)
    assert ours in names
    assert theirs not in names
    with pytest.raises(TypeError, match="unexpected keyword argument 'param_spaces'"):
        MetaKelSearchCV(Ridge(), param_spaces={})


@pytest.mark.parametrize(
    ("space", "found"),
    [
        ([{"alpha": loguniform(0.1, 1)}, {"alpha": uniform(1, 2)}], "param_space is a list"),
        ({"alpha": {loguniform(0.1, 1)}}, "param_space has a set for 'alpha'"),
    ],
)
def test_a_wrong_space_is_said_without_addresses_of_distributions(space, found):
    with pytest.raises(InputError, match=found) as error:
        MetaKelSearchCV(Ridge(), space).fit(X, y)
    assert "0x" not in str(error.value)


@pytest.mark.parametrize(
    ("model", "nearest", "other_kind"),
    [
        (GradientBoostingRegressor(), "HistGradientBoostingRegressor", {"SVC", "SGDClassifier"}),
        (GradientBoostingClassifier(), "HistGradientBoostingClassifier", {"SVR", "Ridge"}),
        (GaussianNB(), None, {"SVR", "Lasso", "ElasticNet"}),
        (LinearRegression(), None, {"LogisticRegression"}),
    ],
)
def test_priors_of_the_same_kind_are_offered_and_the_nearest(model, nearest, other_kind):
    with pytest.raises(InputError, match="no param_space to search") as error:
        MetaKelSearchCV(make_pipeline(StandardScaler(), model)).fit(X, y)
    offered = set(re.findall(r"\w+", str(error.value).partition("priors for")[2]))
    assert not offered & other_kind
    assert {"SVC", "LogisticRegression"} & offered or {"SVR", "Ridge", "Lasso"} <= offered
    assert ("nearest" in offered) == (nearest is not None)
    assert nearest is None or f"nearest by name is {nearest}" in str(error.value)


@pytest.mark.parametrize(
    ("model", "set_here", "others"),
    [
        (RandomForestClassifier(n_estimators=30, random_state=0), "n_estimators=30", "max_depth"),
        (KNeighborsClassifier(n_neighbors=7), "n_neighbors=7", "weights"),
        (MLPClassifier((50,), max_iter=20), "hidden_layer_sizes=(50,)", "alpha"),
        (LogisticRegression(C=3.0, max_iter=500), "C=3.0", "class_weight"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_the_user_has_set_is_searched_and_said_once(model, set_here, others, caplog):
    pipe = make_pipeline(StandardScaler(), model)
    step = pipe.steps[-1][0]
    MetaKelSearchCV(pipe, n_iter=2, cv=2).fit(X, y)
    said = [r.message for r in caplog.records if "what was set on the estimator" in r.message]
    assert len(said) == 1
    found, _, remedy = said[0].partition("param_space of the others alone: ")
    assert f"searched, too: {step}__{set_here}. " in found
    assert f"{step}__{others}" in remedy
    assert set_here.partition("=")[0] not in remedy
    assert "max_iter" not in said[0]
    caplog.clear()
    MetaKelSearchCV(type(model)(), n_iter=1, cv=2).fit(X, y)
    assert "what was set" not in caplog.text


def test_what_a_space_leaves_out_stays_as_it_was_set(caplog):
    forest = RandomForestClassifier(n_estimators=7, random_state=0)
    search = MetaKelSearchCV(forest, {"max_features": [0.2, 0.5, 0.9]}, n_iter=3, cv=2).fit(X, y)
    assert search.best_estimator_.n_estimators == 7
    assert "what was set" not in caplog.text


class LGBMClassifier(ClassifierMixin, BaseEstimator):
    """A tree with the name and the arguments of LightGBM's, which is not needed here."""

    def __init__(
        self, boosting_type="gbdt", learning_rate=0.1, n_estimators=100, num_leaves=31,
        min_child_samples=20, subsample=1.0, subsample_freq=0, colsample_bytree=1.0,
        reg_alpha=0.0, reg_lambda=0.0,
    ):  # fmt: skip
        self.boosting_type, self.learning_rate, self.n_estimators = (
            boosting_type, learning_rate, n_estimators,
        )  # fmt: skip
        self.num_leaves, self.min_child_samples = num_leaves, min_child_samples
        self.subsample, self.subsample_freq = subsample, subsample_freq
        self.colsample_bytree, self.reg_alpha = colsample_bytree, reg_alpha
        self.reg_lambda = reg_lambda

    def fit(self, X, y):
        if self.boosting_type == "goss" and self.subsample_freq:
            raise ValueError("no bagging in GOSS")
        leaves, least = max(int(self.num_leaves), 2), int(self.min_child_samples)
        self.tree_ = DecisionTreeClassifier(
            max_leaf_nodes=leaves, min_samples_leaf=least, random_state=0
        ).fit(X, y)
        self.classes_ = self.tree_.classes_
        return self

    def predict(self, X):
        return self.tree_.predict(X)

    def predict_proba(self, X):
        return self.tree_.predict_proba(X)


@pytest.mark.parametrize(
    ("set_here", "space", "expected"),
    [
        ({}, None, {1}),  # subsample is searched, and has no effect without it
        ({}, {"num_leaves": randint(4, 16)}, {0}),
        ({"subsample_freq": 5, "subsample": 0.7}, {"num_leaves": randint(4, 16)}, {5}),
        ({"subsample_freq": 5}, None, {5}),
        ({}, {"subsample_freq": [0], "subsample": uniform(0.5, 0.5)}, {0}),
        ({}, {"subsample_freq": [0, 5], "subsample": uniform(0.5, 0.5)}, {0, 5}),
        ({"boosting_type": "goss"}, None, {0}),
    ],
)
def test_what_a_parameter_needs_is_set_only_where_nobody_says_otherwise(set_here, space, expected):
    model = LGBMClassifier(**set_here)
    search = MetaKelSearchCV(model, space, n_iter=5, cv=2, error_score="raise").fit(X, y)
    assert {
        clone(model).set_params(**found).subsample_freq for found in search.cv_results_["params"]
    } <= expected
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_a_search_of_ours_and_what_was_set_on_others_join(caplog):
    """They were left out for an argument that our own search had set."""
    ours = MetaKelSearchCV(LGBMClassifier(), n_iter=3, cv=2).fit(X, y)
    space = {"num_leaves": randint(4, 16)}
    theirs = RandomizedSearchCV(
        LGBMClassifier(n_estimators=8), space, n_iter=5, cv=2, random_state=0
    ).fit(X, y)
    found = MetaKelSearchCV(LGBMClassifier(), n_iter=1, cv=2, history=[ours, theirs]).fit(X, y)
    assert "not used" not in caplog.text
    assert found.prior_.info.tasks == ("search 1", "search 2")
    assert any(
        point["n_estimators"] == 8 for point in found.prior_.space.decode(found.prior_.best_runs.X)
    )


def test_folds_of_one_data_set_are_no_tasks(tmp_path, caplog):
    """Of nested searches, none learns from one that saw its test rows; together they are one."""
    path = tmp_path / "runs.jsonl"
    search = MetaKelSearchCV(PIPE, n_iter=6, cv=2, history=path)
    cross_val_score(search, X, y, cv=3)
    assert caplog.text.count("saw some of these rows") == 2
    after = clone(search).fit(X, y)  # all rows: those of before, and more
    assert len(after.prior_.info.tasks) == 1
    assert after.prior_.info.runs == 18
    clone(search).fit(X[:90] + 1.0, y[:90])  # another data set
    new = rows_of(X + 2.0, y)
    found = past_runs(path, "", new, "KNeighborsClassifier", "accuracy")
    assert len({run["task"] for run in found}) == 2
    assert len(found) == 5 * 6


@pytest.mark.parametrize("name", ["lightgbm", "LightGBM", "lgbm", "LGBMClassifier"])
def test_a_prior_goes_by_any_of_its_names_and_for_a_model_with_its_parameters(name):
    search = MetaKelSearchCV(LGBMClassifier(), prior=name, n_iter=1, cv=2).fit(X, y)
    assert search.prior_.info.model == "lightgbm"
    with pytest.raises(InputError, match="prior is of LightGBM, and GradientBoostingClassifier"):
        MetaKelSearchCV(GradientBoostingClassifier(), prior=name).fit(X, y)
