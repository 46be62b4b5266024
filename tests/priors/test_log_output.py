"""A loss that spans orders of magnitude is learned on a log scale; users see their own units."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

import metakel as mk
from metakel import library
from metakel.cli import main
from metakel.errors import InputError
from metakel.optimize.outcomes import OutputScale
from metakel.tuner.store import Store

ROWS = np.linspace(0, 1, 30)


def loss(level, center, x):
    return level * (1 + 20 * (np.asarray(x) - center) ** 4)


def frame(levels=(0.02, 0.1, 0.5, 3.0, 10.0, 40.0), name="loss", shift=0.0):
    rng = np.random.default_rng(0)
    centers = rng.uniform(0.5, 0.7, len(levels))
    rows = {"task": [], "x": [], name: []}
    for s, (level, center) in enumerate(zip(levels, centers, strict=True)):
        x = rng.permutation(ROWS)[:20]
        rows["task"] += [f"t{s}"] * len(x)
        rows["x"] += x.tolist()
        rows[name] += (loss(level, center, x) + shift).tolist()
    return rows


def history(**options):
    name = options.get("name", "loss")
    return mk.History.from_frame(frame(**options), task="task", output=name, minimize=True)


def squares():
    rng = np.random.default_rng(1)
    tasks = [mk.Task(X := rng.uniform(-1, 1, (20, 2)), -(X**2).sum(axis=1)) for _ in range(5)]
    found = history()
    return replace(found, tasks=tuple(tasks), space=None)


@pytest.fixture(scope="module")
def prior():
    return mk.learn_prior(history())


@pytest.mark.parametrize("minimize", [True, False])
@pytest.mark.parametrize("floor", [0.0, 1e-6])
def test_a_scale_and_its_inverse_agree(minimize, floor):
    scale = OutputScale(minimize, floor)
    values = np.array([0.01, 0.5, 3.0, 700.0])
    seen = scale.to_model(values)
    assert_allclose(scale.from_model(seen), values)
    assert (np.diff(seen) < 0).all() if minimize else (np.diff(seen) > 0).all()
    low, high = scale.interval(seen.min(), seen.max())
    assert_allclose([low, high], [0.01, 700.0])
    gained = scale.difference(float(seen[1]), 0.3)
    assert_allclose(gained, abs(scale.value(seen[1] + 0.3) - 0.5))


def test_a_wide_positive_loss_is_learned_on_a_log_scale_and_said_so(prior):
    assert prior.scale.log
    assert any("learned on a log scale" in note for note in prior.info.notes)


@pytest.mark.parametrize(
    "past",
    [
        history(levels=(1.0, 1.1, 1.2, 1.3), shift=20.0),  # narrow
        history(shift=-0.03),  # a negative value
        history(levels=(0.01, 0.02, 0.03), name="auc"),  # a share
        squares(),
    ],
    ids=["narrow", "negative", "share", "reaches zero"],
)
def test_other_outputs_are_learned_as_they_are(past):
    assert not mk.learn_prior(past, certify="none").scale.log


def test_it_is_decided_by_a_word(prior):
    assert not mk.learn_prior(history(), certify="none", log_output=False).scale.log
    narrow = history(levels=(1.0, 1.1, 1.2, 1.3), shift=20.0)
    assert mk.learn_prior(narrow, certify="none", log_output=True).scale.log
    with pytest.raises(InputError, match="expected positive values"):
        mk.learn_prior(history(shift=-0.03), log_output=True)


def play(prior, level, center, steps=6, **options):
    optimizer = prior.optimizer(**options)
    for _ in range(steps):
        x = optimizer.ask()
        optimizer.tell(x, float(loss(level, center, x["x"])))
    return optimizer


def test_a_task_in_other_units_is_searched_alike(prior):
    """A factor of all values is a level of their logarithms: the choices hardly depend on it."""
    one, other = (play(prior, level, 0.6) for level in (1.0, 20.0))
    assert abs(one.best().x["x"] - other.best().x["x"]) < 0.02


def test_what_is_told_is_what_is_shown(prior, tmp_path):
    optimizer = play(prior, 2.0, 0.62, candidates=[{"x": float(x)} for x in ROWS])
    told = [trial.value for trial in optimizer.record.trials]
    assert optimizer.y.tolist() == told
    assert optimizer.best().value == min(told)
    mean, sd = optimizer.predict(optimizer.best().x)
    assert_allclose(mean, min(told), rtol=0.05)
    assert (sd >= 0).all()
    certificate = optimizer.certificate()
    assert certificate.regret < min(told), "nothing is below zero, and this says more"
    assert certificate.lower == min(told)
    assert min(told) - float(loss(2.0, 0.62, ROWS).min()) <= certificate.regret
    why = optimizer.explain(optimizer.peek())
    assert why.best == min(told)
    assert 0 <= why.expected.low <= why.expected.value <= why.expected.high
    optimizer.save(tmp_path / "game.json")
    again = mk.Optimizer.load(tmp_path / "game.json")
    assert again.peek() == optimizer.peek()
    assert str(again.certificate()) == str(certificate)


def test_a_value_of_zero_is_taken_and_is_the_best(prior):
    optimizer = play(prior, 1.0, 0.6, steps=2)
    x = optimizer.ask()
    optimizer.tell(x, 0.0)
    assert optimizer.best().value == 0.0
    optimizer.tell(optimizer.ask(), 0.5)


def test_a_share_of_the_spread_stops_a_search():
    many = mk.learn_prior(history(levels=np.geomspace(0.02, 40, 14)))
    optimizer = many.optimizer([{"x": float(x)} for x in ROWS], stop_at="20%")
    while not optimizer.done:
        x = optimizer.ask()
        optimizer.tell(x, float(loss(5.0, 0.6, x["x"])))
    assert optimizer.t < len(ROWS)
    best = optimizer.best().value
    assert best - float(loss(5.0, 0.6, ROWS).min()) <= optimizer.certificate().regret


def test_the_prior_speaks_in_units_of_the_output(prior, tmp_path):
    prior.save(tmp_path / "prior.json")
    again = mk.Prior.load(tmp_path / "prior.json")
    assert again.scale == prior.scale
    means = again.mean([{"x": 0.1}, {"x": 0.6}])
    assert 0 < means[1] < means[0]
    assert "factor" in str(prior)
    assert prior.best_runs.values.min() == pytest.approx(min(frame()["loss"]))
    band = prior.confidence(delta=0.9)
    band.tell([{"x": 0.6}], [2.0])
    lower, upper = band.interval([{"x": 0.6}])
    assert 0 <= lower[0] <= 2.0 <= upper[0] < np.inf


def test_the_sampler_takes_the_word():
    optuna = pytest.importorskip("optuna")
    from metakel.integrations.optuna import MetaKelSampler

    studies = []
    for s, level in enumerate((0.1, 1.0, 10.0, 100.0)):
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=s))
        study.optimize(
            lambda t, level=level: float(loss(level, 0.6, t.suggest_float("x", 0, 1))), n_trials=15
        )
        studies.append(study)
    assert MetaKelSampler(studies).prior.scale.log
    assert not MetaKelSampler(studies, log_output=False).prior.scale.log


def test_the_command_line_takes_the_word(tmp_path, monkeypatch, capsys):
    rows = frame()
    lines = ["task,x,loss"]
    lines += [f"{t},{x},{y}" for t, x, y in zip(*rows.values(), strict=True)]
    (tmp_path / "runs.csv").write_text("\n".join(lines))
    options = ["--task", "task", "--output", "loss", "--minimize"]
    for words, log in (([], True), (["--no-log-output"], False)):
        out = tmp_path / f"prior{log}.json"
        arguments = ["learn", str(tmp_path / "runs.csv"), *options, "-o", str(out), *words]
        monkeypatch.setattr("sys.argv", ["metakel", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        assert not stop.value.code
        assert mk.Prior.load(out).scale.log is log
        assert ("log scale" in capsys.readouterr().out) is log


def test_the_negative_of_a_loss_is_refused_and_changes_nothing(prior, tmp_path):
    """All negative values would look alike as logarithms."""
    optimizer = prior.optimizer()
    x = optimizer.ask()
    for value in (-3.0, [-3.0], np.array([-1e-9])):
        points = [x] * len(value) if isinstance(value, list | np.ndarray) else x
        with pytest.raises(InputError, match="not its negative"):
            optimizer.tell(points, value)
    assert not any(trial.value is not None for trial in optimizer.record)
    optimizer.tell(x, 0.0)
    assert optimizer.best().value == 0

    journal = tmp_path / "run.jsonl"
    tuner = mk.Tuner(prior, journal, budget=5)
    asked, before = tuner.ask(), journal.read_bytes()
    for refused in (
        lambda: tuner.tell(asked, -3.0),
        lambda: tuner.observe([{"x": 0.1}], [-3.0]),
        lambda: Store.open(journal).tell({"x": 0.1}, -3.0, confirmed=True),
    ):
        with pytest.raises(InputError, match="not its negative"):
            refused()
    assert journal.read_bytes() == before
    tuner.tell(asked, 3.0)
    assert mk.Tuner(prior, journal, budget=5).best.value == 3.0


def test_a_study_of_negative_losses_is_refused():
    optuna = pytest.importorskip("optuna")
    from metakel.integrations.optuna import MetaKelSampler

    study = optuna.create_study(sampler=MetaKelSampler(prior="lightgbm"))
    with pytest.raises(InputError, match="not its negative"):
        study.optimize(lambda t: -t.suggest_float("learning_rate", 0.01, 0.3), n_trials=3)
    assert study.trials[0].value < 0


@pytest.mark.parametrize("unit", [1e-5, 1.0, 1e5])
def test_errors_of_the_library_may_be_in_any_unit(unit):
    """Errors differ from one another in every unit; below a floor they would be alike."""
    optimizer = library.load("ridge", "rmse").optimizer()
    scores = np.array([0.9, 0.5, 0.7])
    for score in scores:
        optimizer.tell(optimizer.ask(), unit * score)
    assert optimizer.best().value == pytest.approx(0.5 * unit)
    seen = optimizer.scale.to_model(unit * scores)
    assert_allclose(np.diff(seen), -np.diff(np.log(scores)))


def test_a_study_below_zero_shows_that_a_guessed_log_scale_was_wrong(caplog):
    """Past losses were positive; those of the new study are not, and are told apart."""
    optuna = pytest.importorskip("optuna")
    from metakel.integrations.optuna import MetaKelSampler

    def objective(trial, level=1.0, shift=0.0):
        return float(loss(level, 0.6, trial.suggest_float("x", 0, 1))) - shift

    studies = []
    for s, level in enumerate((0.1, 1.0, 10.0, 100.0)):
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=s))
        study.optimize(lambda t, level=level: objective(t, level), n_trials=15)
        studies.append(study)
    sampler = MetaKelSampler(studies, seed=0)
    assert sampler.prior.scale.log
    study = optuna.create_study(sampler=sampler)
    study.optimize(lambda t: objective(t, shift=2.0), n_trials=12)
    assert study.best_value < -0.9
    assert not sampler.prior.scale.log
    assert caplog.text.count("values below 0") == 1
    assert sampler.certificate(study) is not None
    given = optuna.create_study(sampler=MetaKelSampler(prior=MetaKelSampler(studies).prior, seed=0))
    given.optimize(lambda t: objective(t, shift=2.0), n_trials=3)
    assert caplog.text.count("values below 0") == 2
    stated = optuna.create_study(sampler=MetaKelSampler(studies, seed=0, log_output=True))
    with pytest.raises(InputError, match="not its negative"):
        stated.optimize(lambda t: objective(t, shift=2.0), n_trials=3)
