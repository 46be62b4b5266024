"""MetaKelSampler decides well: transfer, unrelated pasts, constraints, failures, other ranges."""

from __future__ import annotations

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.samplers import PartialFixedSampler, RandomSampler, TPESampler
from optuna.trial import TrialState
from optuna_helpers import Refusing, learned, lr_loss, lr_past

from metakel.integrations.optuna import MetaKelSampler
from metakel.integrations.optuna.record import finished_trials

UNIT = FloatDistribution(-1.0, 1.0)
SEEDS = range(8)


@pytest.fixture(scope="module")
def prior():
    return MetaKelSampler(lr_past()).prior


@pytest.fixture(scope="module")
def two():
    """On x and y in [-1, 1], with the bottom of a bowl near -0.4, -0.4."""
    return learned(("x", UNIT), ("y", UNIT))


def decided(prior, seed=0):
    return MetaKelSampler(prior=prior, seed=seed, independent_sampler=Refusing())


def regret(sampler, trials, shift):
    study = optuna.create_study(sampler=sampler)
    study.optimize(lambda t: lr_loss(t, shift), n_trials=trials)
    return study.best_value


def test_with_a_related_past_six_trials_beat_six_of_the_others_by_far(prior):
    shifts = np.random.default_rng(9).normal(0, 0.3, len(SEEDS))

    def mean(make):
        return np.mean([regret(make(s), 6, shift) for s, shift in zip(SEEDS, shifts, strict=True)])

    ours = mean(lambda seed: decided(prior, seed))
    assert ours < 0.2 * mean(lambda seed: TPESampler(seed=seed))
    assert ours < 0.2 * mean(lambda seed: RandomSampler(seed=seed))


def wavy(trial):
    lr = trial.suggest_float("lr", 1e-5, 1e-1, log=True)
    depth = trial.suggest_int("depth", 1, 10)
    kind = trial.suggest_categorical("kind", ["adam", "sgd"])
    return np.sin(4 * np.log10(lr)) + np.cos(2 * depth) + 0.4 * (kind == "adam")


@pytest.mark.parametrize("unrelated", [lambda t: -lr_loss(t), wavy], ids=["upside down", "wavy"])
def test_an_unrelated_past_is_given_up(prior, unrelated):
    study = optuna.create_study(sampler=decided(prior))
    study.optimize(unrelated, n_trials=15)
    assert study.sampler.trust(study) < 0.01


def test_a_misleading_past_costs_little(prior):
    """The bottom of the past is the top here."""

    def mean(make):
        studies = [optuna.create_study(sampler=make(seed)) for seed in range(4)]
        for study in studies:
            study.optimize(lambda t: -lr_loss(t), n_trials=15)
        return np.mean([study.best_value for study in studies])

    assert mean(lambda seed: decided(prior, seed)) < mean(lambda seed: RandomSampler(seed=seed))


def limited(trial):
    """The loss falls with x and y; allowed is only x + y >= -0.5."""
    x, y = trial.suggest_float("x", -1, 1), trial.suggest_float("y", -1, 1)
    trial.set_constraint("sum", -0.5 - x - y)
    return (x + 0.4) ** 2 + (y + 0.4) ** 2


def test_constraints_lead_to_the_border_and_no_further(two):
    study = optuna.create_study(sampler=decided(two))
    study.optimize(limited, n_trials=15)
    beyond = np.array([t.constraints["sum"] for t in study.trials])
    assert beyond[0] > 0  # the favourite of the past is not allowed
    assert beyond[5:].max() < 0.1
    optimum = 2 * 0.15**2  # at x = y = -0.25
    assert optimum <= min(t.value for t in study.trials if t.constraints["sum"] <= 0)
    assert study.best_value < optimum + 0.01  # Optuna counts feasible trials only

    free = optuna.create_study(sampler=decided(two))
    free.optimize(limited_without_saying, n_trials=15)
    sums = np.array([t.params["x"] + t.params["y"] for t in free.trials])
    assert np.median(-0.5 - sums[5:]) > 0.2  # control: the optimum without the limit is far beyond


def limited_without_saying(trial):
    x, y = trial.suggest_float("x", -1, 1), trial.suggest_float("y", -1, 1)
    return (x + 0.4) ** 2 + (y + 0.4) ** 2


def test_constraints_func_is_the_same_as_set_constraint(two):
    def sum_of(trial):
        return (-0.5 - trial.params["x"] - trial.params["y"],)

    said = optuna.create_study(sampler=decided(two))
    said.optimize(limited, n_trials=8)
    sampler = MetaKelSampler(prior=two, seed=0, constraints_func=sum_of)
    study = optuna.create_study(sampler=sampler)
    study.optimize(limited_without_saying, n_trials=8)
    assert [t.params for t in study.trials] == [t.params for t in said.trials]
    assert study.best_params == said.best_params


def test_a_constraints_func_that_fails_is_an_error_as_in_optuna(two):
    sampler = MetaKelSampler(prior=two, seed=0, constraints_func=lambda trial: [float("nan")])
    with pytest.raises(ValueError, match="cannot be NaN"):
        optuna.create_study(sampler=sampler).optimize(limited_without_saying, n_trials=1)


def test_where_nothing_was_feasible_yet_feasible_points_are_looked_for(two):
    def narrow(trial):
        x, y = trial.suggest_float("x", -1, 1), trial.suggest_float("y", -1, 1)
        trial.set_constraint("far", 1.2 - x - y)  # a corner far from where the past was good
        trial.set_constraint("never", float("-inf"))
        return (x + 0.4) ** 2 + (y + 0.4) ** 2

    study = optuna.create_study(sampler=decided(two))
    study.optimize(narrow, n_trials=12)
    assert any(t.constraints["far"] <= 0 for t in study.trials)


@pytest.mark.parametrize("how", ["fail", "prune", "nan", "inf"])
def test_trials_without_a_value_are_left_behind(two, how):
    """Nothing comes back from around the favourite of the past."""

    def objective(trial):
        x, y = trial.suggest_float("x", -1, 1), trial.suggest_float("y", -1, 1)
        if np.hypot(x + 0.4, y + 0.4) < 0.25:
            if how == "fail":
                raise RuntimeError("out of memory")
            if how == "prune":
                raise optuna.TrialPruned
            return float(how)
        return (x + 0.4) ** 2 + (y + 0.4) ** 2

    study = optuna.create_study(sampler=decided(two))
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    study.optimize(objective, n_trials=15, catch=(RuntimeError,))
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    points = np.array([[t.params["x"], t.params["y"]] for t in study.trials])
    inside = np.hypot(*(points + 0.4).T) < 0.25
    assert inside[0]
    assert not inside.all()
    assert len(np.unique(points, axis=0)) == len(points)
    finite = [t.value for t in study.trials if t.state.name == "COMPLETE" and np.isfinite(t.value)]
    assert min(finite) < 0.25


@pytest.mark.parametrize("pruned", [(0,), (0, 1), (3, 4)])
def test_pruned_trials_do_not_cost_the_trust_in_the_past(prior, pruned):
    def objective(trial):
        loss = lr_loss(trial, 0.2)
        if trial.number in pruned:
            raise optuna.TrialPruned
        return 10.0 + loss  # a level that the past did not have

    for seed in range(3):
        study = optuna.create_study(sampler=decided(prior, seed))
        study.optimize(objective, n_trials=8 + len(pruned))
        valued = optuna.create_study()
        valued.add_trials([t for t in study.trials if t.state.name == "COMPLETE"])
        trust = study.sampler.trust(study)
        assert trust == pytest.approx(study.sampler.trust(valued), abs=1e-3)
        assert trust > 0.9
        assert study.best_value < 10.05


def with_pruned(last, values=(1.0, 2.0, 4.0), direction="minimize"):
    """A study with these values, a trial pruned at ``last``, and one more value after it."""
    study = optuna.create_study(direction=direction)
    trial = {"params": {"x": 0.9}, "distributions": {"x": UNIT}}
    for value in values:
        study.add_trial(optuna.create_trial(value=value, **trial))
    pruned = optuna.create_trial(
        state=TrialState.PRUNED, intermediate_values={0: -50.0, 3: last}, **trial
    )
    study.add_trial(pruned)
    study.add_trial(optuna.create_trial(value=1000.0, **trial))
    return finished_trials(study.trials, minimize=direction == "minimize")


@pytest.mark.parametrize(
    ("direction", "last", "counted"),
    [
        ("minimize", 3.0, 3.0),
        ("minimize", 0.5, 2.0),  # no better than the median of those completed before
        ("minimize", 50.0, 4.0),  # and no worse than the worst
        ("minimize", float("inf"), 4.0),
        ("maximize", 1.5, 1.5),
        ("maximize", 3.0, 2.0),
        ("maximize", -7.0, 1.0),
        ("minimize", float("nan"), None),
    ],
)
def test_a_pruned_trial_is_bad_but_nobody_says_how_bad(direction, last, counted):
    found = with_pruned(last, direction=direction)[3]
    assert found.value == counted
    assert found.state != "complete"


def test_a_trial_pruned_before_any_other_was_completed_says_nothing():
    assert with_pruned(3.0, values=())[0].value is None


def test_pruned_trials_teach(two):
    """Where a run was pruned, much is expected no longer; its last value is never the best."""

    def after(**pruned):
        study = optuna.create_study(sampler=decided(two))
        study.optimize(limited_without_saying, n_trials=3)
        trial = {"params": {"x": 0.6, "y": -0.4}, "distributions": {"x": UNIT, "y": UNIT}}
        study.add_trial(optuna.create_trial(state=TrialState.PRUNED, **trial, **pruned))
        return study

    silent, speaking = after(), after(intermediate_values={0: 0.9})
    trusts = [study.sampler.trust(study) for study in (silent, speaking)]
    assert trusts[0] != trusts[1]
    speaking.optimize(limited_without_saying, n_trials=4)
    assert speaking.best_value < 0.01


def test_a_narrower_range_is_kept_and_a_wider_one_used(two):
    def narrow(trial):
        x, y = trial.suggest_float("x", 0.2, 0.7), trial.suggest_float("y", -1, 1)
        return (x + 0.4) ** 2 + (y + 0.4) ** 2

    study = optuna.create_study(sampler=decided(two))
    study.optimize(narrow, n_trials=8)
    assert study.trials[0].params["x"] == 0.2  # the nearest to what the past prefers
    assert study.best_value < 0.36 + 0.02

    def wide(trial):
        x, y = trial.suggest_float("x", -4, 1), trial.suggest_float("y", -1, 1)
        return abs(x + 2.5) + (y + 0.4) ** 2

    study = optuna.create_study(sampler=decided(two))
    study.optimize(wide, n_trials=15)
    assert study.best_params["x"] < -1.5


@pytest.fixture(scope="module")
def valley():
    """Past studies on the unit square whose best points lie along x + y = 1."""
    studies = []
    for k in range(6):
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=k))
        study.optimize(lambda trial, k=k: along_the_valley(trial, 1.0) + 0.01 * k, n_trials=25)
        studies.append(study)
    return studies


def along_the_valley(trial, high):
    x, y = trial.suggest_float("x", 0, high), trial.suggest_float("y", 0, 1)
    return (x + y - 1) ** 2 - 0.05 * x


def test_the_first_trial_in_a_narrower_range_is_the_best_point_within_it(valley):
    study = optuna.create_study(sampler=MetaKelSampler(valley, seed=0))
    study.optimize(lambda trial: along_the_valley(trial, 0.3), n_trials=1)
    (trial,) = study.trials
    assert trial.value < 0.05  # the past's best point, with its x cut to 0.3, has about 0.4
    again = optuna.create_study(sampler=MetaKelSampler(valley, seed=0))
    given = again.ask({"x": FloatDistribution(0, 0.3), "y": FloatDistribution(0, 1)})
    assert given.params == pytest.approx(trial.params)
    # What is noted was expected of the point that is tried.
    optimizer = again.sampler.prior.optimizer()
    mean, _ = optimizer.predict([trial.params])
    assert trial.user_attrs["metakel:expected"]["value"] == pytest.approx(mean[0], rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_a_narrower_range_beside_another_parameter_by_a_known_name(valley, seed):
    """The past knows x as a number; here it is a choice that was handed out before y."""
    study = optuna.create_study(sampler=MetaKelSampler(valley, seed=seed))

    def objective(trial):
        return trial.suggest_categorical("x", [True, False]) + trial.suggest_float("y", 0.9, 1.0)

    study.optimize(objective, n_trials=4)
    assert len(study.trials) == 4
    assert all(0.9 <= trial.params["y"] <= 1.0 for trial in study.trials)


@pytest.fixture(scope="module")
def kinds():
    """Past studies in which the best n depends on the kind; kind c is bad, and a the best."""
    studies = []
    for k in range(6):
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=k))
        study.optimize(lambda trial: of_a_kind(trial, ["a", "b", "c"]), n_trials=30)
        studies.append(study)
    return studies


def of_a_kind(trial, choices, low=1, high=20):
    kind, n = trial.suggest_categorical("kind", choices), trial.suggest_int("n", low, high)
    best, worse = {"a": (5, 0.0), "b": (15, 0.3), "c": (15, 3.0)}[kind]
    return 0.02 * (n - best) ** 2 + worse


@pytest.mark.parametrize(
    ("choices", "low", "high", "best"),
    [(["c", "b"], 1, 20, ("b", 15)), (["b"], 1, 20, ("b", 15)), (["a", "b"], 14, 14, ("b", 14))],
)
def test_the_first_trial_is_the_best_among_the_choices_that_are_left(
    kinds, choices, low, high, best
):
    study = optuna.create_study(sampler=MetaKelSampler(kinds, seed=0))

    def objective(trial):  # a host asks no sampler for what has one value only
        trial.suggest_int("n", low, high) if low == high else None
        return of_a_kind(trial, choices, low, high)

    study.optimize(objective, n_trials=1)
    (trial,) = study.trials
    assert trial.params["kind"] == best[0]
    assert abs(trial.params["n"] - best[1]) <= 2
    mean, _ = study.sampler.prior.optimizer().predict([trial.params])
    assert trial.user_attrs["metakel:expected"]["value"] == pytest.approx(mean[0], rel=1e-6)


def test_trials_side_by_side_are_spread_over_the_range_of_the_study(valley):
    study = optuna.create_study(sampler=MetaKelSampler(valley, seed=0))
    space = {"x": FloatDistribution(0.2, 0.4), "y": FloatDistribution(0.2, 0.4)}
    asked = [study.ask(space).params for _ in range(6)]
    X = np.array([[params["x"], params["y"]] for params in asked])
    assert (X >= 0.2).all()
    assert (X <= 0.4).all()
    apart = np.linalg.norm(X[:, None] - X, axis=2)[np.triu_indices(6, 1)]
    assert apart.min() > 0.05 * 0.2


def test_an_integer_may_have_been_a_float_and_a_choice_a_number(two):
    def other_kinds(trial):
        x = trial.suggest_int("x", -1, 1)
        y = trial.suggest_categorical("y", [-1.0, -0.5, 0.0, 0.5])
        return (x + 0.4) ** 2 + (y + 0.4) ** 2

    study = optuna.create_study(sampler=decided(two))
    study.optimize(other_kinds, n_trials=4)
    assert study.best_params == {"x": 0, "y": -0.5}


def test_another_parameter_by_a_known_name_does_not_keep_values_from_being_heard(two):
    def objective(trial):
        trial.suggest_categorical("x", ["some", "words"])
        return (trial.suggest_float("y", -1, 1) + 0.4) ** 2

    sampler = MetaKelSampler(prior=two, seed=0)
    study = optuna.create_study(sampler=sampler)
    study.optimize(objective, n_trials=6)
    assert study.best_value < 1e-2
    assert sampler.trust(study) != sampler.trust(optuna.create_study())


class Noting(RandomSampler):
    """Remembers what it was asked for."""

    def __init__(self):
        super().__init__(seed=0)
        self.asked = []

    def sample_independent(self, study, trial, param_name, param_distribution):
        self.asked.append(param_name)
        return super().sample_independent(study, trial, param_name, param_distribution)


def test_a_parameter_that_the_past_does_not_know_joins_after_the_first_trial(two):
    """Before it, nobody can know that there is one."""

    def objective(trial):
        new = trial.suggest_float("new", 10, 1000, log=True)
        kind = trial.suggest_categorical("kind", ["a", "b", "c"])
        effect = (np.log10(new) - 1.5) ** 2 + (kind != "b")
        return limited_without_saying(trial) + 0.1 * effect  # about as large as that of x and y

    sampler = MetaKelSampler(prior=two, seed=0, independent_sampler=Noting())
    study = optuna.create_study(sampler=sampler)
    study.optimize(objective, n_trials=15)
    assert sampler._independent.asked == ["new", "kind"]
    assert study.best_value < 0.02
    assert study.best_params["kind"] == "b"
    assert sampler.trust(study) > 0.5


def test_what_cannot_join_goes_to_the_independent_sampler(two):
    def objective(trial):
        trial.suggest_categorical("x", ["another", "kind"])
        if trial.number % 2:
            trial.suggest_float("sometimes", 0, 1)
        return trial.suggest_float("y", -1, 1) ** 2

    sampler = MetaKelSampler(prior=two, seed=0, independent_sampler=Noting())
    optuna.create_study(sampler=sampler).optimize(objective, n_trials=4)
    assert sampler._independent.asked == ["x", "x", "sometimes", "x", "x", "sometimes"]


def test_a_parameter_that_the_study_lacks_is_no_obstacle(two):
    study = optuna.create_study(sampler=decided(two))
    study.optimize(lambda t: (t.suggest_float("x", -1, 1) + 0.4) ** 2, n_trials=5)
    assert study.best_value < 1e-3


def test_a_parameter_fixed_by_the_host_is_taken_as_it_is(two):
    def tilted(trial):
        x, y = trial.suggest_float("x", -1, 1), trial.suggest_float("y", -1, 1)
        return (x + 0.4 - (y + 0.4) / 2) ** 2

    with pytest.warns(optuna.exceptions.ExperimentalWarning):
        sampler = PartialFixedSampler({"y": 0.8}, decided(two))
    study = optuna.create_study(sampler=sampler)
    study.optimize(tilted, n_trials=10)
    assert {t.params["y"] for t in study.trials} == {0.8}
    assert study.best_value < 1e-2


def test_a_finite_space_is_exhausted_before_anything_is_repeated():
    space = {"i": IntDistribution(0, 3), "j": IntDistribution(0, 2)}
    study = optuna.create_study(sampler=decided(learned(*space.items())))
    study.optimize(lambda t: t.suggest_int("i", 0, 3) + t.suggest_int("j", 0, 2), n_trials=14)
    tried = [tuple(t.params.values()) for t in study.trials]
    assert len(set(tried[:12])) == 12
