"""Curves of past tasks: what is still to come, which runs may be stopped, and the promise."""

from dataclasses import replace

import numpy as np
import pytest

from metakel import library
from metakel.curves import CurveModel, _needed, _on_grid
from metakel.errors import InputError

STEPS = 20


def task(rng, n=25, noise=0.02, sign=1.0):
    """Curves that fall at different rates to different levels, in any unit."""
    unit = np.exp(rng.normal())
    curves = []
    for _ in range(n):
        rate, level = rng.uniform(0.05, 1), rng.uniform(0, 1)
        values = level + np.exp(-rate * np.arange(STEPS)) + noise * rng.normal(size=STEPS)
        curves.append({i + 1: sign * unit * float(v) for i, v in enumerate(values)})
    return curves


def played(model, curves):
    """Steps made, and whether the best run was stopped."""
    last = max(curves[0])
    finals = [c[last] for c in curves]
    best = int(np.argmin(finals) if model.minimize else np.argmax(finals))
    seen, made = [], 0
    for curve in curves:
        part = {}
        for step in sorted(curve):
            part[step] = curve[step]
            if step < last and model.decide(part, seen):
                break
        made += max(part)
        seen.append(part)
    return made / (last * len(curves)), max(seen[best]) < last


@pytest.fixture(scope="module")
def past():
    rng = np.random.default_rng(0)
    return [task(rng) for _ in range(30)]


@pytest.mark.parametrize("delta", [0.05, 0.2])
def test_the_best_run_is_stopped_as_rarely_as_promised_and_steps_are_saved(past, delta):
    model = CurveModel.learn(past, minimize=True, delta=delta)
    rng = np.random.default_rng(1)
    found = [played(model, task(rng)) for _ in range(60)]
    stopped = sum(dead for _, dead in found)
    assert stopped <= 60 * delta + 3 * np.sqrt(60 * delta * (1 - delta))
    assert np.mean([used for used, _ in found]) < 0.8


def test_a_margin_of_zero_breaks_the_promise(past):
    model = CurveModel.learn(past, minimize=True)
    careless = replace(model, margins=np.zeros(30), surprises=np.full(30, np.inf))
    rng = np.random.default_rng(1)
    assert sum(played(careless, task(rng))[1] for _ in range(30)) > 6


@pytest.mark.parametrize("steps", [12, 13, 27, 90])
def test_the_best_run_is_not_stopped_where_the_margin_is_what_it_needs(past, steps):
    """What decides is what was calibrated, whatever the number of steps."""

    def drawn(rng):
        return [
            {i + 1: float(np.interp(i / (steps - 1), np.linspace(0, 1, STEPS), [*c.values()]))
            for i in range(steps)}
            for c in task(rng)
        ]  # fmt: skip

    model = CurveModel.learn([drawn(np.random.default_rng(s)) for s in range(25)], minimize=True)
    for seed in range(100, 130):
        curves = drawn(np.random.default_rng(seed))
        margin = _needed(_on_grid(curves, -1.0), model.gains, 0.0) + 1e-9
        just = replace(model, margins=np.full(25, margin), surprises=np.full(25, np.inf))
        assert not played(just, curves)[1]


def test_a_maximum_is_a_minimum_turned_round(past):
    turned = [[{s: -v for s, v in c.items()} for c in t] for t in past]
    one, two = (CurveModel.learn(p, minimize=m) for p, m in ((past, True), (turned, False)))
    np.testing.assert_allclose(one.margins, two.margins)
    rng, again = (np.random.default_rng(5) for _ in range(2))
    assert played(one, task(rng)) == played(two, task(again, sign=-1.0))


def test_units_do_not_matter(past):
    model = CurveModel.learn(past, minimize=True)
    curves = task(np.random.default_rng(7))
    other = [{s: 1000 * v + 5 for s, v in c.items()} for c in curves]
    assert played(model, curves) == played(model, other)


def test_too_few_tasks_stop_nothing_and_say_so(past):
    model = CurveModel.learn(past[:10], minimize=True, delta=0.05)
    curves = task(np.random.default_rng(3))
    assert played(model, curves) == (1.0, False)
    bad = dict.fromkeys(range(1, 10), 1000.0)
    assert "10 past tasks cannot vouch" in str(model.decide(bad, curves[:8]))


def test_predictions_approach_the_last_value(past):
    model = CurveModel.learn(past, minimize=True)
    curves = task(np.random.default_rng(4))
    misses = []
    for share in (5, 19):
        errors = []
        for curve in curves[10:]:
            part = {s: v for s, v in curve.items() if s <= share}
            mean, sd = model.predict(part, curves[:10], STEPS)
            errors.append(abs(mean - curve[STEPS]))
            assert sd > 0
        misses.append(np.mean(errors))
    assert misses[1] < misses[0]


def test_odd_curves_stop_nothing_and_break_nothing(past):
    model = CurveModel.learn([*past, [{1: np.nan, 2: 1.0}, {}, {1: 2.0}]], minimize=True)
    curves = task(np.random.default_rng(3))
    for odd in ({}, {1: np.nan}, {5: np.inf}, {1: 1.0}, {5: np.nan, 10: 3.0}):
        assert not model.decide(odd, curves[:8])
        assert not model.decide({10: 1.0}, [odd, odd, odd, odd])


def test_curves_unlike_the_past_are_noticed(past):
    """Runs that get worse first and better at the end contradict the past."""
    model = CurveModel.learn(past, minimize=True)
    late = [{s: c[STEPS] + (3.0 if s < STEPS else 0.0) for s in c} for c in past[0]]
    assert model.contradicted(late)
    assert not model.contradicted(past[1])
    seen = late[:4]  # which are made to their end, so that it is noticed before the first stop
    for curve in late[4:]:
        for step in range(1, STEPS):
            assert not model.decide({s: v for s, v in curve.items() if s <= step}, seen)
        seen.append(curve)


@pytest.mark.parametrize("delta", [0.05, 0.2])
def test_tasks_like_the_past_ones_seldom_seem_to_contradict_them(past, delta):
    """Also at another delta than the one that was learned with."""
    model = CurveModel.learn(past, minimize=True).at(delta)
    rng = np.random.default_rng(2)
    tasks = [task(rng) for _ in range(40)]
    rings = sum(any(model.contradicted(t[:n]) for n in range(4, len(t) + 1)) for t in tasks)
    assert rings <= 6


def test_it_is_kept_in_a_file(past, tmp_path):
    model = CurveModel.learn(past, minimize=True)
    model.save(tmp_path / "curves.json")
    again = CurveModel.load(tmp_path / "curves.json")
    assert repr(again) == repr(model)
    curves = task(np.random.default_rng(9))
    assert played(again, curves) == played(model, curves)
    with pytest.raises(InputError, match="calibrated for"):
        model.at(0.1, tolerance=3.0)
    assert model.at(0.2).margin <= model.margin


@pytest.mark.parametrize("tasks", [[], [[{}]], [[{1: 1.0, 2: 1.0}] * 9] * 3])
def test_nothing_to_learn_from_is_said(tasks):
    with pytest.raises(InputError, match="expected"):
        CurveModel.learn(tasks, minimize=True)


def test_the_library_has_curves_of_boosting():
    model = library.curves("lightgbm")
    assert model.minimize
    assert len(model.margins) > 50
    with pytest.raises(InputError, match="no curves"):
        library.curves("knn")


def test_the_pruner_stops_trials_beside_any_sampler(past):
    optuna = pytest.importorskip("optuna")
    from metakel.integrations.optuna import MetaKelPruner

    def objective(trial, curves):
        trial.suggest_float("x", 0, 1)
        curve = curves[trial.number % len(curves)]
        for step in range(STEPS):
            trial.report(curve[step + 1], step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return curve[STEPS]

    studies = []
    for curves in past[:24]:
        study = optuna.create_study(pruner=optuna.pruners.NopPruner())
        study.optimize(lambda trial, c=curves: objective(trial, c), n_trials=len(curves))
        studies.append(study)
    pruner = MetaKelPruner(studies)
    np.testing.assert_allclose(
        pruner.model.margins, CurveModel.learn(past[:24], minimize=True).margins
    )
    curves = task(np.random.default_rng(11))
    study = optuna.create_study(pruner=pruner, sampler=optuna.samplers.RandomSampler(seed=1))
    study.optimize(lambda trial: objective(trial, curves), n_trials=len(curves))
    made = sum(len(t.intermediate_values) for t in study.trials)
    assert made / (STEPS * len(curves)) == played(pruner.model, curves)[0]
    other = optuna.create_study(direction="maximize", pruner=pruner)
    with pytest.raises(InputError, match="the curves were minimised"):
        other.optimize(lambda trial: objective(trial, curves), n_trials=1)
    with pytest.raises(InputError, match="either"):
        MetaKelPruner()


def test_pruned_trials_of_the_present_study_count_by_their_expected_end(past):
    optuna = pytest.importorskip("optuna")
    from metakel.integrations.optuna import MetaKelPruner
    from metakel.integrations.optuna.pruner import curves_of
    from metakel.integrations.optuna.record import finished_trials

    model, curves = CurveModel.learn(past, minimize=True), task(np.random.default_rng(12), n=12)
    study = optuna.create_study(pruner=MetaKelPruner(model=model))
    for number, curve in enumerate(curves):
        trial = study.ask()
        trial.suggest_float("x", 0, 1)
        made = 8 if number > 7 else STEPS
        for step in range(made):
            trial.report(curve[step + 1], step)
        if made < STEPS:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        else:
            study.tell(trial, curve[STEPS])
    with_model = finished_trials(study.trials, minimize=True, curves=curves_of(study))
    without = finished_trials(study.trials, minimize=True)
    assert curves_of(study) is model
    assert [t.state for t in with_model] == ["complete"] * 8 + ["infeasible"] * 4
    best = min(t.value for t in with_model[:8])
    ends = [curve[STEPS] for curve in curves[8:]]
    for pruned, end in zip(with_model[8:], ends, strict=True):
        assert pruned.noise_std > 0
        assert pruned.value >= best
        assert abs(pruned.value - max(end, best)) < 6 * pruned.noise_std
    off = [
        sum(abs(t.value - end) for t, end in zip(found[8:], ends, strict=True))
        for found in (with_model, without)
    ]
    assert off[0] < off[1]


def test_the_pruner_says_once_where_no_trial_is_as_long_as_those_of_the_past(past, caplog):
    optuna = pytest.importorskip("optuna")
    from metakel.integrations.optuna import MetaKelPruner

    def studied(stretch, **options):
        pruner = MetaKelPruner(model=CurveModel.learn(past, minimize=True), **options)
        study = optuna.create_study(pruner=pruner)
        for curve in task(np.random.default_rng(13)):
            trial = study.ask({"x": optuna.distributions.FloatDistribution(0, 1)})
            steps = int(STEPS * stretch)
            for step in range(steps):
                trial.report(curve[1 + int(step / stretch)], step)
                if trial.should_prune():
                    study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                    break
            else:
                study.tell(trial, curve[STEPS])
        return [t.state.name == "PRUNED" for t in study.trials]

    # Twice as many steps are noticed by themselves, half as many are said.
    assert studied(2) == studied(2, n_steps=2 * STEPS)
    assert "n_steps=" not in caplog.text
    assert not any(studied(0.5))
    assert caplog.text.count("n_steps= says how many") == 1
    assert any(studied(0.5, n_steps=STEPS // 2))
    for wrong in ({"delta": 1.5}, {"tolerance": -1}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            MetaKelPruner([], **wrong)
