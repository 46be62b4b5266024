"""The estimator: what it learns from tasks, what it predicts for whom, and what it promises."""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.exceptions import NotFittedError, UnsetMetadataPassedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.metrics import mean_absolute_error
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.metadata_routing import MetadataRequest
from sklearn_worlds import HIGH, LOW, NOISE, tables

import metakel as mk
from metakel.integrations.sklearn import MetaKernelRegressor

TRUE = {"level", "P1(x1)", "P2(x0)", "P1(x0) P1(x1)"}


@pytest.fixture(scope="module")
def past():
    return tables(np.random.default_rng(0), m=25, n=25)


@pytest.fixture(scope="module")
def model(past):
    return MetaKernelRegressor().fit(past.X, past.y, task=past.task)


def grid(k: int) -> np.ndarray:
    u = np.stack(np.meshgrid(*[np.linspace(0, 1, k)] * 2), axis=-1).reshape(-1, 2)
    return LOW + u * (HIGH - LOW)


# What it learns


def test_the_shared_structure_and_the_noise_are_found(model):
    assert set(model.learned_.names) == TRUE
    assert model.noise_std_ == pytest.approx(NOISE, rel=0.15)
    assert model.learned_.solution.gap < 1e-8
    assert model.tasks_ == list(range(25))


def test_shuffled_values_have_no_structure(past, rng):
    shuffled = MetaKernelRegressor().fit(past.X, rng.permutation(past.y), task=past.task)
    assert set(shuffled.learned_.names) != TRUE
    assert shuffled.noise_std_ > 10 * NOISE


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_new_task_needs_few_rows_where_a_general_kernel_needs_many(model, rng):
    general = ConstantKernel() * RBF([3.0, 200.0]) + WhiteKernel(NOISE**2)
    wins = 0
    for _ in range(10):
        new = tables(rng, m=1, n=60)
        X, y, Z, f = new.X[4:12], new.y[4:12], new.X[12:], new.f[12:]
        rival = GaussianProcessRegressor(general, normalize_y=True).fit(X, y)
        ours, theirs = model.adapt(X, y).predict(Z), rival.predict(Z)
        wins += np.mean((ours - f) ** 2) < np.mean((theirs - f) ** 2) / 2
    assert wins >= 9


def test_deviations_are_of_the_size_of_the_errors(model, rng):
    ratios = []
    for _ in range(20):
        new = tables(rng, m=1, n=40)
        mean, std = model.adapt(new.X[4:14], new.y[4:14]).predict(new.X[14:], return_std=True)
        ratios.append((mean - new.f[14:]) / std)
    assert 0.6 < np.sqrt(np.mean(np.square(ratios))) < 1.6


def test_rows_that_carry_no_signal_are_predicted_by_their_mean(rng):
    X, y = rng.uniform(size=(40, 3)), rng.normal(size=40)
    mean = MetaKernelRegressor(lam="self-normalised").fit(X, y).predict(X)
    assert_allclose(mean, y.mean(), atol=1e-10)


# What it predicts


def test_predictions_are_those_of_scikit_learn_with_the_same_kernel(past, model):
    rows, Z = past.task == 3, grid(7)
    theirs = GaussianProcessRegressor(model.kernel_, alpha=model.noise_std_**2)
    theirs.fit(model.scaler_.transform(past.X[rows]), past.y[rows] - model.level_)
    mean, std = theirs.predict(model.scaler_.transform(Z), return_std=True)
    ours, deviation = model.predict(Z, task=[3] * len(Z), return_std=True)
    assert_allclose(ours, mean + model.level_, atol=1e-8)
    assert_allclose(deviation, std, atol=1e-8)


def test_rows_are_predicted_by_their_own_task_wherever_they_stand(past, model, rng):
    mixed = rng.permutation(len(past.y))
    together = model.predict(past.X[mixed], task=past.task[mixed])
    alone = np.concatenate([model.predict(past.X[[i]], task=past.task[[i]]) for i in mixed[:20]])
    assert_allclose(together[:20], alone, atol=1e-10)


def test_a_row_without_a_task_may_be_of_any_of_them(model):
    Z = grid(4)
    parts = [model.predict(Z, task=[s] * len(Z), return_std=True) for s in model.tasks_]
    means, stds = np.array(parts).transpose(1, 0, 2)
    mean, std = model.predict(Z, return_std=True)
    assert_allclose(mean, means.mean(axis=0))
    assert_allclose(std**2, means.var(axis=0) + np.mean(stds**2, axis=0))
    assert_array_equal(model.predict(Z, task=["never seen"] * len(Z)), mean)


def test_without_labels_all_rows_are_one_task(past):
    rows = past.task == 0
    plain = MetaKernelRegressor().fit(past.X[rows], past.y[rows])
    labelled = MetaKernelRegressor().fit(past.X[rows], past.y[rows], task=past.task[rows])
    assert plain.tasks_ == [None]
    assert_array_equal(plain.predict(past.X), labelled.predict(past.X))


def test_one_label_is_that_of_all_rows(past, model):
    Z, rows = grid(4), past.task == 3
    assert_array_equal(model.predict(Z, task=3), model.predict(Z, task=[3] * len(Z)))
    assert np.abs(model.predict(Z, task=3) - model.predict(Z, task=4)).max() > NOISE
    assert model.score(past.X[rows], past.y[rows], task=3) > 0.95
    assert model.score(past.X[rows], past.y[rows], task=4) < 0.5
    named = MetaKernelRegressor(order=2).fit(past.X[rows], past.y[rows], task="m3")
    plain = MetaKernelRegressor(order=2).fit(past.X[rows], past.y[rows])
    assert named.tasks_ == ["m3"]
    assert_array_equal(named.predict(Z, task="m3"), plain.predict(Z))


@pytest.mark.parametrize("names", [lambda s: f"run {s}", lambda s: -s, lambda s: (s, "a")])
def test_labels_are_only_names(past, model, names):
    task = np.empty(len(past.task), dtype=object)
    task[:] = [names(int(s)) for s in past.task]
    renamed = MetaKernelRegressor().fit(past.X, past.y, task=task)
    assert_array_equal(renamed.predict(past.X), model.predict(past.X))


def test_units_of_features_and_values_do_not_matter(past, model):
    other = MetaKernelRegressor().fit(32 * past.X - 7, 1000 * past.y + 1e4, task=past.task)
    found, std = other.predict(32 * grid(5) - 7, return_std=True)
    expected, deviation = model.predict(grid(5), return_std=True)
    assert_allclose(found, 1000 * expected + 1e4, rtol=1e-6)
    assert_allclose(std, 1000 * deviation, rtol=1e-6)


def test_outside_of_the_ranges_of_fit_the_nearest_end_is_taken(model):
    assert_allclose(model.predict([[-50.0, 1e6]]), model.predict([[LOW[0], HIGH[1]]]), atol=1e-9)


def test_adapting_leaves_the_model_as_it_was(past, model, rng):
    before = model.predict(past.X, return_std=True)
    new = tables(rng, m=1, n=9)
    once = model.adapt(new.X[-1:], new.y[-1:])
    assert_array_equal(model.predict(past.X, return_std=True), before)
    assert once.kernel_ is model.kernel_
    again = pickle.loads(pickle.dumps(once))
    assert_array_equal(again.predict(past.X), once.predict(past.X))
    assert abs(once.predict(new.X[-1:])[0] - new.y[-1]) < 3 * NOISE  # one row tells the level
    assert once.score(past.X, past.y) < 1  # and stays a regressor


# In the company of scikit-learn


def test_a_grid_search_routes_the_labels_and_finds_the_base_kernels(past):
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(
            MetaKernelRegressor().set_fit_request(task=True).set_score_request(task=True),
            {"order": [1, 2, 3]},
            cv=KFold(4, shuffle=True, random_state=0),
        ).fit(past.X, past.y, task=past.task)
    assert search.best_params_["order"] >= 2  # the products are of order 2
    assert search.best_score_ > 0.99
    assert search.cv_results_["mean_test_score"][0] < search.best_score_ - 0.005


def test_tasks_that_were_held_out_are_predicted_by_what_all_have_in_common(past):
    y = 0.2 * past.y + 3 * past.X[:, 0]  # every task has this slope
    with config_context(enable_metadata_routing=True):
        regressor = MetaKernelRegressor().set_fit_request(task=True).set_score_request(task=False)
        search = GridSearchCV(
            make_pipeline(StandardScaler(), regressor),
            {"metakernelregressor__order": [1, 2]},
            cv=GroupKFold(3),
        ).fit(past.X, y, task=past.task, groups=past.task)
    assert search.best_score_ > 0.9
    assert search.best_estimator_[-1].tasks_ == list(range(25))


class ErrorWithinTasks:
    """The scorer of the guide: it asks for labels, and hands them to predict."""

    def __call__(self, estimator, X, y, task=None):
        return -mean_absolute_error(y, estimator.predict(X, task=task))

    def get_metadata_routing(self):
        routing = MetadataRequest(owner=type(self).__name__)
        routing.score.add_request(param="task", alias=True)
        return routing


def test_a_scorer_that_hands_no_labels_to_predict_is_warned_about(past):
    folds = {"cv": KFold(2, shuffle=True, random_state=0), "params": {"task": past.task}}
    with config_context(enable_metadata_routing=True):
        asking = MetaKernelRegressor(order=2).set_fit_request(task=True)
        asking.set_score_request(task=True).set_predict_request(task=True)
        assert cross_val_score(asking, past.X, past.y, **folds).min() > 0.99
        with pytest.warns(UserWarning, match=r"averages over 25 tasks.*leave scoring out"):
            blind = cross_val_score(asking, past.X, past.y, scoring="r2", **folds)
        assert blind.max() < 0.5
        errors = -cross_val_score(asking, past.X, past.y, scoring=ErrorWithinTasks(), **folds)
    assert errors.max() < 2 * NOISE


def test_averages_over_tasks_warn_only_if_labels_were_requested(past, model):
    model.predict(past.X)  # warnings are errors here
    with config_context(enable_metadata_routing=True):
        asking = MetaKernelRegressor(order=1).set_predict_request(task=True)
    asking.fit(past.X[:40], past.y[:40], task=past.task[:40])
    asking.score(past.X, past.y)  # its labels are another request
    asking.adapt(past.X[:5], past.y[:5]).predict(past.X)
    asking.fit(past.X[:40], past.y[:40]).predict(past.X)


def test_labels_that_were_not_requested_are_refused(past):
    search = GridSearchCV(MetaKernelRegressor(), {"order": [1]})
    with (
        config_context(enable_metadata_routing=True),
        pytest.raises(UnsetMetadataPassedError, match="task"),
    ):
        search.fit(past.X, past.y, task=past.task)


def test_names_of_columns_are_kept_and_checked(past):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(past.X, columns=["time", "heat"])
    model = MetaKernelRegressor(order=2).fit(frame, past.y, task=pandas.Series(past.task))
    assert list(model.feature_names_in_) == ["time", "heat"]
    assert model.n_features_in_ == 2
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["heat", "time"]])
    assert set(model.learned_.names) == {
        "level",
        "P1(heat)",
        "P2(time)",
        "P1(time) P1(heat)",
    }
    assert "P2(time)" in model.learned_.report()
    assert "P2(time)" in repr(model.kernel_)
    plain = MetaKernelRegressor(order=2).fit(past.X, past.y, task=past.task)
    assert_array_equal(plain.predict(past.X), model.predict(frame))
    with pytest.raises(mk.InputError, match="feature heat is 701"):
        model.adapt(frame[:20], past.y[:20]).confidence(frame[:1].assign(heat=701.0))


def _x1(X):
    return X[:, :1]


def test_kernels_keep_the_names_that_their_user_gave_them(past):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(past.X, columns=["time", "heat"])
    own = mk.from_features(_x1, 1, name="my x1", d0=2) + mk.matern(1.5, [1.0], columns=(1,), d0=2)
    model = MetaKernelRegressor(own).fit(frame, past.y, task=past.task)
    assert model.kernel_.kernel.base.names == ("level", "my x1", "matern32(heat; l=1)")


def test_own_base_kernels_on_inputs_as_they_are(past):
    base = mk.squared_exponential([5.0], columns=[0], d0=2) + mk.squared_exponential(
        [300.0], columns=[1], d0=2
    )
    model = MetaKernelRegressor(base, feature_range=None).fit(past.X, past.y, task=past.task)
    assert model.scaler_ is None
    assert model.score(past.X, past.y, task=past.task) > 0.95
    by_width = MetaKernelRegressor(lambda d0: mk.tensor_product(d0, 2, scaling="sup"))
    assert by_width.fit(past.X, past.y).kernel_.kernel.base.p == 1 + 5
    with pytest.raises(mk.InputError, match="take 1 inputs"):
        MetaKernelRegressor(mk.legendre(3, scaling="l2")).fit(past.X, past.y)


# What it promises


def test_confidence_holds_everywhere_at_once_as_often_as_it_says(past, rng):
    model = MetaKernelRegressor(noise_std=NOISE).fit(past.X, past.y, task=past.task)
    Z, missed, widths = grid(6), 0, []
    for _ in range(30):
        new = tables(rng, m=1, n=25)
        f = truth(new, model, Z)
        lower, upper = model.adapt(new.X, new.y).confidence(Z, delta=0.1)
        missed += bool(((f < lower) | (f > upper)).any())
        widths.append(np.mean(upper - lower))
    assert missed <= 8  # P(Binomial(30, 0.1) > 8) < 1e-3
    assert np.mean(widths) < 1.0


def truth(new, model, Z):
    """The function of a task at ``Z``: its values without noise determine four coefficients."""
    kernel = mk.KernelSum.uniform(model.learned_.kernel.base, model.learned_.active)
    features = kernel.features(model.scaler_.transform(new.X))
    coefficients = np.linalg.lstsq(features, new.f, rcond=None)[0]
    return kernel.features(model.scaler_.transform(Z)) @ coefficients


def test_more_certainty_is_wider_and_too_few_rows_say_nothing(model, rng):
    new, Z = tables(rng, m=1, n=20), grid(4)
    adapted = model.adapt(new.X, new.y)
    wide, narrow = adapted.confidence(Z, delta=0.01), adapted.confidence(Z, delta=0.3)
    assert (wide[0] <= narrow[0]).all()
    assert (wide[1] >= narrow[1]).all()
    few = model.adapt(new.X[:2], new.y[:2])
    assert np.isinf(few.confidence(Z)[1]).any()
    assert np.isfinite(few.confidence(Z, norm_bound=20.0)[1]).all()


def test_a_task_of_another_kind_raises_the_alarm(model, rng, caplog):
    new = tables(rng, m=1, n=80)
    with caplog.at_level(logging.WARNING, logger="metakel"):
        model.adapt(new.X, new.y).confidence(grid(3))
        assert not caplog.records
        model.adapt(new.X, new.y + 3 * np.sin(new.X[:, 0])).confidence(grid(3))
        assert "does not fit" in caplog.text
        assert len(caplog.records) == 1


def test_confidence_is_refused_where_nothing_supports_it(past, model):
    with pytest.raises(mk.InputError, match="adapt"):
        model.confidence(grid(3))
    adapted = model.adapt(past.X[:20], past.y[:20])
    with pytest.raises(mk.InputError, match=r"feature 1 is 701.*\[100, 700\]"):
        adapted.confidence([[5.0, 701.0]])
    with pytest.raises(mk.InputError, match="adapt: feature 0"):
        model.adapt([[11.0, 200.0]], [1.0]).confidence(grid(3))


# Poor input


@pytest.mark.parametrize("lam", ["cv", "self-normalised", 0.1])
def test_values_that_do_not_vary_are_predicted_exactly(lam, rng):
    X = rng.uniform(size=(12, 3))
    for value in (0.0, 0.1, -1e8):
        model = MetaKernelRegressor(lam=lam).fit(X, np.full(12, value))
        mean, std = model.predict(X + 0.1, return_std=True)
        assert_allclose(mean, value, rtol=1e-12)
        assert_allclose(std, 0, atol=1e-12 * max(abs(value), 1))


def test_noiseless_values_are_interpolated(rng):
    X = rng.uniform(size=(40, 4))
    model = MetaKernelRegressor().fit(X, 3 * X[:, 0] - X[:, 2] + 1e5)
    Z = rng.uniform(0.1, 0.9, size=(40, 4))
    assert_allclose(model.predict(Z), 3 * Z[:, 0] - Z[:, 2] + 1e5, rtol=1e-8)


@pytest.mark.parametrize(("n", "d0"), [(2, 1), (3, 50), (10, 300)])
def test_fewer_rows_than_features_give_finite_predictions(n, d0, rng):
    X, y = rng.normal(size=(n, d0)), rng.normal(size=n)
    mean, std = MetaKernelRegressor().fit(X, y).predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert np.abs(mean).max() <= 3 * np.abs(y).max()


def test_constant_features_and_tasks_of_one_row_are_harmless(past, model):
    X = np.column_stack([past.X, np.full(len(past.X), 7.0)])
    lonely = np.append(past.task, 99)
    padded = MetaKernelRegressor().fit(np.vstack([X, X[:1]]), np.append(past.y, 3.0), task=lonely)
    found = padded.predict(X, task=past.task)
    assert np.sqrt(np.mean((found - past.f) ** 2)) < NOISE


def test_errors_say_what_was_found(past):
    model = MetaKernelRegressor()
    with pytest.raises(NotFittedError):
        model.predict(past.X)
    with pytest.raises(NotFittedError):
        model.adapt(past.X, past.y)
    with pytest.raises(ValueError, match="minimum of 2"):
        model.fit(past.X[:1], past.y[:1])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(past.X, past.y, task=past.task[:-1])
    with pytest.raises(mk.InputError, match="row 2 has no task label"):
        model.fit(past.X[:3], past.y[:3], task=["a", "b", None])
    with pytest.raises(mk.InputError, match="one label for every row"):
        model.fit(past.X[:3], past.y[:3], task=[["a", "b", "c"]])
    with pytest.raises(mk.InputError, match=r"best.*known rules"):
        MetaKernelRegressor(lam="best", noise_std=0.1).fit(past.X, past.y)
    with pytest.raises(mk.InputError, match="'hkz' needs noise_std"):
        MetaKernelRegressor(lam="hkz").fit(past.X, past.y)


def test_a_label_that_is_missing_in_pandas_is_missing(past):
    pandas = pytest.importorskip("pandas")
    for labels in (
        pandas.Series(["a", None, "b"], dtype="string"),
        pandas.Series([1, None, 2], dtype="Int64"),
        pandas.Series([1.0, None, 2.0]),
    ):
        with pytest.raises(mk.InputError, match="row 1 has no task label"):
            MetaKernelRegressor().fit(past.X[:3], past.y[:3], task=labels)


def test_base_kernels_that_are_none_are_refused_with_the_way_to_them(past, model):
    for base, remedy in (
        (model.learned_, "base is a Learned.*give learned.kernel.base"),
        (model.learned_.kernel, "base is a KernelSum.*give kernel.base"),
        (lambda d0: d0, "base is a int"),
    ):
        with pytest.raises(mk.InputError, match=remedy):
            MetaKernelRegressor(base).fit(past.X, past.y)


def test_without_scikit_learn_the_error_names_the_extra():
    code = "import sys; sys.modules['sklearn'] = None; import metakel.integrations.sklearn"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode != 0
    assert "pip install metakel[sklearn]" in done.stderr
