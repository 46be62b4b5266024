"""The laws of the engine: one record, one decision, through every door."""

from __future__ import annotations

import copy
import json
import pickle
from itertools import permutations

import numpy as np
import optuna
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import metakel as mk
from gpucb import gpucb
from metakel.cli import main
from metakel.integrations.optuna import MetaKelSampler
from metakel.optimize import ACQUISITIONS, CertifiedModel, Optimizer, Record
from metakel.search import SearchSpace
from metakel.space import Categorical, Float, Integer, Space
from metakel.tuner import KernelSource

SPACE = Space(
    (Float("rate", 1e-4, 1.0, log=True), Integer("depth", 2, 10), Categorical("kind", ("a", "b")))
)
DISTRIBUTIONS = {
    "rate": optuna.distributions.FloatDistribution(1e-4, 1.0, log=True),
    "depth": optuna.distributions.IntDistribution(2, 10),
    "kind": optuna.distributions.CategoricalDistribution(("a", "b")),
}


def measure(x, shift=0.0):
    rate, depth = np.log10(x["rate"]) + 2 - shift, (x["depth"] - 6) / 4
    return float(0.9 - 0.1 * rate**2 - 0.05 * depth**2 - 0.05 * (x["kind"] != "a"))


def history():
    rng = np.random.default_rng(0)
    rows = {name: [] for name in ("task", "rate", "depth", "kind", "score")}
    for s in range(20):
        shift = 0.3 * rng.standard_normal()
        for x in SPACE.decode(SPACE.sample(rng, 16)):
            for name, value in {"task": s, **x, "score": measure(x, shift)}.items():
                rows[name].append(value)
    return mk.History.from_frame(rows, task="task", output="score", space=SPACE)


PRIOR = mk.learn_prior(history())
POINTS = SPACE.decode(SPACE.sample(np.random.default_rng(7), 6))
# What became of each point: a value, a failure, or nothing yet.
FATES = ("complete", "failed", "complete", "pending", "complete", "complete")
KERNEL = mk.KernelSum.uniform(mk.kernels.legendre(8, scaling="l2"), active=[0, 2, 4], weight=1.0)


def fill(optimizer, order=range(6)):
    """The same trials, told in any order."""
    for x, fate in zip(POINTS, FATES, strict=True):
        if fate == "pending":
            note_pending(optimizer, x)
    for i in order:
        if FATES[i] == "complete":
            optimizer.tell(POINTS[i], measure(POINTS[i]))
        elif FATES[i] == "failed":
            optimizer.tell(POINTS[i], failed=True)
    return optimizer


def note_pending(optimizer, x):
    optimizer.add_pending([x])


def by_optimizer():
    optimizer = fill(PRIOR.optimizer(rng=np.random.default_rng(0)))
    return optimizer.peek(), optimizer.trust


def by_tuner(journal=None):
    tuner = mk.Tuner(PRIOR, journal, adopt_after="never")
    tuner.enqueue(POINTS)
    tuner.ask_batch(6)
    for x, fate in zip(POINTS, FATES, strict=True):
        if fate != "pending":
            failed = fate == "failed"
            tuner.tell(x, None if failed else measure(x), failed=failed)
    trust = tuner.trust
    return (tuner.ask() if journal is None else tuner.optimizer.peek()), trust


def by_sampler(storage=None):
    sampler = MetaKelSampler(prior=PRIOR, seed=0)
    study = optuna.create_study(direction="maximize", sampler=sampler, storage=storage)
    for x, fate in zip(POINTS, FATES, strict=True):
        study.enqueue_trial(x)
        trial = study.ask(DISTRIBUTIONS)
        if fate == "failed":
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        elif fate == "complete":
            study.tell(trial, measure(x))
    trust = sampler.trust(study)
    return study.ask(DISTRIBUTIONS).params, trust


def by_command_line(tmp_path, capsys, monkeypatch):
    PRIOR.save(tmp_path / "prior.json")
    by_tuner(tmp_path / "run.jsonl")
    arguments = ["suggest", "prior.json", "--journal", "run.jsonl", "--json"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["metakel", *arguments])
    with pytest.raises(SystemExit):
        main()
    return json.loads(capsys.readouterr().out)[0]


def same(one, other):
    assert one.keys() == other.keys()
    assert_allclose(SPACE.encode([one]), SPACE.encode([other]), atol=1e-6)


def test_one_record_one_decision_through_every_door(tmp_path, capsys, monkeypatch):
    expected, trust = by_optimizer()
    for found, shown in (by_tuner(), by_sampler()):
        same(found, expected)
        assert shown == pytest.approx(trust, rel=1e-9)
    same(by_command_line(tmp_path, capsys, monkeypatch)["configuration"], expected)


def test_one_record_one_decision_after_a_restart(tmp_path):
    expected, trust = by_optimizer()
    by_tuner(tmp_path / "run.jsonl")
    again = mk.Tuner(PRIOR, tmp_path / "run.jsonl", adopt_after="never")
    assert again.trust == pytest.approx(trust, rel=1e-9)
    same(again.ask(), expected)


def test_one_record_one_decision_in_any_order_of_arrival():
    optimizer = fill(PRIOR.optimizer())
    for order in list(permutations(range(6)))[::97]:
        other = fill(PRIOR.optimizer(), order)
        same(other.peek(), optimizer.peek())
        assert other.trust == pytest.approx(optimizer.trust, rel=1e-9)


def test_the_same_trials_give_the_same_model_to_the_last_bit_in_any_order_of_arrival():
    models = []
    for order in ([0, 1, 2, 3, 4, 5], [5, 2, 0, 4, 1, 3]):
        optimizer = PRIOR.optimizer()
        for x in POINTS:
            note_pending(optimizer, x)
        for i in order:
            optimizer.tell(POINTS[i], measure(POINTS[i]))
        models.append(optimizer)
    assert models[0].peek() == models[1].peek()
    assert models[0].trust == models[1].trust
    assert_array_equal(models[0].predict(POINTS), models[1].predict(POINTS))


def test_one_record_one_decision_one_by_one_or_as_a_batch():
    single, batch = PRIOR.optimizer(), PRIOR.optimizer()
    for x in POINTS:
        single.tell(x, measure(x))
    batch.tell(POINTS, [measure(x) for x in POINTS])
    assert batch.peek() == single.peek()
    assert batch.trust == single.trust


@pytest.mark.parametrize("domain", [mk.grid([(-1, 1)], 41), mk.box([(-1, 1)])], ids=["grid", "box"])
def test_a_certified_model_decides_alike_in_any_order_and_as_a_batch(domain):
    X = (
        np.array([[-0.9], [-0.2], [0.3], [0.8]])
        if domain.kind == "box"
        else domain.X[[2, 15, 26, 37]]
    )
    y = np.sin(3 * X[:, 0])

    def fresh():
        rng = np.random.default_rng(0)
        return gpucb(KERNEL, domain, rng=rng, noise_std=0.05, norm_bound=3.0)

    batch = fresh()
    batch.tell(X, y)
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        single = fresh()
        for x in X:
            note_pending(single, x)
        for i in order:
            single.tell(X[i], y[i])
        assert_array_equal(single.peek(), batch.peek())
        assert single.certificate().regret == batch.certificate().regret


def test_what_is_shown_decided(tmp_path, capsys, monkeypatch):
    shown = by_command_line(tmp_path, capsys, monkeypatch)
    prior = mk.Prior.load(tmp_path / "prior.json")
    optimizer = fill(prior.optimizer(rng=np.random.default_rng(0)))
    point = optimizer.peek()
    mean, sd = optimizer.predict([point])
    assert shown["configuration"] == point
    assert (shown["mean"], shown["sd"]) == (mean[0], sd[0])
    tuner = mk.Tuner(prior, tmp_path / "run.jsonl", adopt_after="never")
    assert tuner.trials[-1].note.expected == (mean[0], sd[0])
    assert tuner.trust == optimizer.trust


@pytest.mark.parametrize("fate", ["failed", "pending"])
@pytest.mark.parametrize("make", ["prior", "kernel", "table"])
def test_a_run_without_a_value_changes_no_evidence_and_is_kept_away_from(make, fate):
    if make == "kernel":
        rng = np.random.default_rng(0)
        # More features than points here, so that no place is known by heart.
        rich = mk.KernelSum.uniform(KERNEL.base, weight=1.0)
        optimizer = gpucb(rich, mk.box([(-1, 1)]), rng=rng, noise_std=0.05, norm_bound=3.0)
        optimizer.tell([0.1, -0.5], [0.3, 0.2])
    else:
        optimizer = PRIOR.optimizer(POINTS if make == "table" else None)
        optimizer.tell(POINTS[0], measure(POINTS[0]))
    trust, evidence = optimizer.trust, optimizer.model.log_evidence
    for _ in range(2):
        x = optimizer.ask()
        if fate == "failed":
            optimizer.tell(x, failed=True)
        assert optimizer.trust == trust
        assert optimizer.model.log_evidence == evidence
        encoded = optimizer.domain.encode(x if make != "kernel" else x[None], "test")
        following = optimizer.domain.encode(
            optimizer.peek() if make != "kernel" else optimizer.peek()[None], "test"
        )
        assert np.abs(encoded - following).max() > 1e-3


def test_fantasies_leave_the_original_untouched():
    for optimizer in (fill(PRIOR.optimizer()), kernel_optimizer()):
        model = optimizer.model
        Z = optimizer.domain.sample(np.random.default_rng(0), 20)
        before = model.predict(Z)
        ahead = model.with_fantasies(Z[:3])
        ahead.predict(Z)
        assert_array_equal(model.predict(Z), before)
        assert (ahead.predict(Z[:3])[1] < before[1][:3]).all()
        assert ahead.transfer_weight == model.transfer_weight


def test_runs_without_a_value_do_not_shift_what_is_expected():
    for optimizer in (fill(PRIOR.optimizer()), kernel_optimizer()):
        Z = optimizer.domain.sample(np.random.default_rng(0), 20)
        expected = optimizer.model.predict(Z)[0]
        ahead = optimizer.model.with_fantasies(Z[:3])
        for model in (ahead, ahead.with_fantasies(Z[3:5])):
            assert_allclose(model.predict(Z)[0], expected, rtol=1e-12)
        # They are avoided all the same: scores fall where the search would go again.
        scores = [m.upper_bound().values(Z[:3]) for m in (optimizer.model, ahead)]
        assert (scores[1] < scores[0]).all()


def kernel_optimizer():
    rng = np.random.default_rng(0)
    optimizer = gpucb(KERNEL, mk.box([(-1, 1)]), rng=rng, noise_std=1e-5, norm_bound=3.0)
    optimizer.tell([0.1, -0.5, 0.7], KERNEL.features([[0.1], [-0.5], [0.7]]) @ [1.0, -0.5, 0.3])
    return optimizer


def test_without_noise_a_prediction_at_an_observed_point_is_its_value():
    optimizer = kernel_optimizer()
    mean, sd = optimizer.predict(optimizer.X)
    assert_allclose(mean, optimizer.y, atol=1e-3)
    assert (sd < 1e-2).all()


@pytest.mark.parametrize("acquisition", ["ucb", "ei"])
def test_gradients_of_the_mixture_are_derivatives(acquisition):
    optimizer = PRIOR.optimizer(acquisition=acquisition)
    optimizer.tell(POINTS, [measure(x) for x in POINTS])
    for model in (optimizer.model, optimizer.model.with_fantasies(optimizer.X[:1] + 0.1)):
        score = ACQUISITIONS[acquisition](model, float(optimizer.y.max()))
        Z = SPACE.sample(np.random.default_rng(1), 10) * 0.9
        values, slopes = score.gradient(Z)
        assert_allclose(values, score.values(Z), rtol=1e-6, atol=1e-12)
        h = 1e-6
        numeric = np.stack(
            [
                (score.gradient(Z + h * e)[0] - score.gradient(Z - h * e)[0]) / (2 * h)
                for e in np.eye(Z.shape[1])
            ],
            axis=1,
        )
        assert_allclose(slopes, numeric, atol=1e-4 * np.abs(slopes).max())


def test_finite_and_named_domains_of_the_same_points_have_the_same_argmax():
    space = Space((Integer("n", 0, 9), Categorical("c", ("u", "v", "w"))))
    named = SearchSpace(space, space)
    start = named.start_points(np.random.default_rng(0))
    finite = mk.candidates(start.X)
    rng = np.random.default_rng(1)
    for _ in range(20):
        w = rng.standard_normal(named.d0)
        found = named.maximize(lambda Z, w=w: np.sin(3 * Z @ w), np.random.default_rng(0))
        other = finite.maximize(lambda Z, w=w: np.sin(3 * Z @ w), np.random.default_rng(0))
        assert found[1] == other[1]
        assert_array_equal(found[0], other[0])


def test_boxes_and_named_domains_of_the_same_points_have_the_same_argmax():
    space = Space((Float("a", -1.0, 1.0), Float("b", -1.0, 1.0)))
    named, square = SearchSpace(space, space), mk.box([(-1, 1), (-1, 1)])
    rng = np.random.default_rng(1)
    for _ in range(10):
        center, bend = rng.uniform(-1.2, 1.2, 2), rng.uniform(0.5, 3, 2)

        def f(Z, c=center, b=bend):
            return -np.square((Z - c) * b).sum(axis=1)

        def gradient(Z, f=f, c=center, b=bend):
            return f(Z), -2 * (Z - c) * b**2

        found = [
            d.maximize(f, np.random.default_rng(0), gradient=gradient) for d in (named, square)
        ]
        assert_allclose(found[0][0], found[1][0], atol=0.1)
        assert_allclose(found[0][1], found[1][1], atol=1e-3 * np.ptp(f(square.sample(rng, 99))))


def test_a_space_is_a_domain_of_gpucb():
    space = Space((Float("a", 0.0, 10.0),))
    rng = np.random.default_rng(0)
    optimizer = gpucb(KERNEL, space, rng=rng, noise_std=0.05, norm_bound=3.0)
    for _ in range(12):
        x = optimizer.ask()
        optimizer.tell(x, 1 - x["a"] / 5)  # the first Legendre polynomial, falling
    assert set(optimizer.best().x) == {"a"}
    assert optimizer.best().x["a"] < 0.5


def test_save_load_ask_equals_ask_for_every_constructor(tmp_path):
    makers = [
        fill(PRIOR.optimizer(rng=np.random.default_rng(3))),
        fill(PRIOR.optimizer([*POINTS, *SPACE.decode(SPACE.sample(np.random.default_rng(8), 9))])),
        PRIOR.optimizer(fixed={"kind": "a"}, acquisition="ei", delta=0.3),
        kernel_optimizer(),
        gpucb(KERNEL, mk.grid([(-1, 1)], 21), rng=np.random.default_rng(0), noise_std=0.1),
        gpucb(
            KERNEL,
            Space((Float("a", 0.0, 1.0),)),
            rng=np.random.default_rng(0),
            noise_std=0.1,
            nu=2.0,
        ),
    ]
    for i, optimizer in enumerate(makers):
        optimizer.save(tmp_path / f"{i}.json")
        again = Optimizer.load(tmp_path / f"{i}.json")
        assert json.dumps(again.to_dict()) == json.dumps(optimizer.to_dict())
        for _ in range(3):
            x, z = optimizer.ask(), again.ask()
            one, other = (optimizer.domain.encode([point], "test") for point in (x, z))
            assert_allclose(one, other, atol=1e-6)
            optimizer.tell(x, 0.5)
            again.tell(z, 0.5)
        assert again.trust == pytest.approx(optimizer.trust, rel=1e-6)


def test_a_tuner_takes_a_learned_kernel():
    space = Space((Float("a", 0.0, 1.0),))
    rng = np.random.default_rng(0)
    rows = {"task": [], "a": [], "y": []}
    for s in range(20):
        c = rng.standard_normal(2)
        for a in rng.uniform(0, 1, 30):
            z = 2 * a - 1
            value = c[0] * z + c[1] * (1.5 * z**2 - 0.5) + 0.05 * rng.standard_normal()
            for name, v in (("task", s), ("a", a), ("y", value)):
                rows[name].append(v)
    past = mk.History.from_frame(rows, task="task", output="y", space=space)
    learned = mk.learn_kernel(
        past, mk.kernels.legendre(10, scaling="l2"), noise_std=0.05, delta=0.05
    )
    tuner = mk.Tuner(KernelSource(learned, norm_bound=4.0), budget=10)
    assert isinstance(tuner.optimizer.model, CertifiedModel)
    for x in tuner:
        z = 2 * x["a"] - 1
        tuner.tell(x, -0.5 * z - (1.5 * z**2 - 0.5))
    assert abs(tuner.best.x["a"] - 5 / 12) < 0.1
    assert tuner.alarm is None
    assert tuner.certificate.regret < 3
    assert tuner.stop_reason == "the budget of 10 evaluations is spent"
    with pytest.raises(mk.InputError, match="without named parameters"):
        mk.Tuner(mk.learn_kernel(mk.History.from_pairs([(t.X, t.y) for t in past]),
                                 mk.kernels.legendre(4, scaling="l2"), noise_std=0.1))  # fmt: skip


def test_an_empty_record_has_no_outcomes():
    optimizer = PRIOR.optimizer()
    optimizer.tell(POINTS[0], 0.3)
    optimizer.record = Record()
    assert optimizer.t == 0
    assert optimizer.peek() == PRIOR.optimizer().peek()


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_a_copy_goes_on_alike_and_by_itself(way):
    kernel = mk.KernelSum.uniform(mk.kernels.legendre(4, scaling="l2"))
    certified = gpucb(
        kernel, mk.box([(-1, 1)]), noise_std=0.1, norm_bound=1.0, rng=np.random.default_rng(0)
    )
    for optimizer in (certified, PRIOR.optimizer()):
        optimizer.tell(optimizer.ask(), 0.1)
        other = way(optimizer)
        x = other.ask()
        other.tell(x, 0.2)
        assert (optimizer.t, other.t) == (1, 2)
        np.testing.assert_equal(optimizer.ask(), x)


def test_what_is_fixed_for_one_question_is_told_like_any_other_point():
    optimizer = PRIOR.optimizer()
    name = PRIOR.space.free[0]
    x = optimizer.ask(fixed={name: POINTS[0][name]})
    optimizer.tell(x, 0.2)
    assert (optimizer.t, optimizer.pending) == (1, [])


def test_what_is_no_configuration_is_refused_by_name():
    with pytest.raises(mk.InputError, match="0 is no configuration; expected a dict of"):
        PRIOR.optimizer().explain(0)
