"""Tasks in a row: what one task teaches counts for the next, and for nothing before it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import binom

import metakel as mk
from metakel.errors import InputError
from metakel.kernels import legendre
from metakel.learn import as_problem, learn_kernel
from metakel.learn.rules import lifelong, monte_carlo, self_normalised
from metakel.lifelong import replay_alarms
from metakel.search import box, grid

NOISE, BOUND, DELTA = 0.1, 3.0, 0.1
BASE = legendre(12, scaling="sup")
ACTIVE = [1, 4, 7]
DOMAIN = grid([(-1, 1)], 51)
PHI = BASE.features(DOMAIN.X)


def draw(rng, base=BASE, active=ACTIVE):
    theta = np.zeros(base.dim)
    theta[active] = rng.standard_normal(len(active))
    return 0.9 * BOUND * theta / np.linalg.norm(theta)


def learner(seed=0, **options):
    settings = {"noise_std": NOISE, "norm_bound": BOUND, "delta": DELTA, "warm_up": 2}
    return mk.Lifelong(BASE, DOMAIN, rng=np.random.default_rng(seed), **(settings | options))


def oracle(seed):
    """Lifelong on the true kernels alone."""
    true = BASE.select(ACTIVE)
    settings = {"noise_std": NOISE, "norm_bound": BOUND, "delta": DELTA}
    return mk.Lifelong(true, DOMAIN, rng=np.random.default_rng(seed), **settings)


def play(life, name, theta, rng, steps=15):
    optimizer = life.task(name)
    for _ in range(steps):
        x = optimizer.ask()
        optimizer.tell(x, BASE.features(x[None])[0] @ theta + NOISE * rng.standard_normal())
    return optimizer


def sequence(seed, tasks, **options):
    life, rng = learner(seed, **options), np.random.default_rng(100 + seed)
    for s in range(tasks):
        life.finish(play(life, f"plant {s}", draw(rng), rng))
    return life, rng


# The rule


@pytest.mark.parametrize("n", [5, 25, 100])
def test_the_price_of_all_relearnings_is_small(n):
    base = legendre(20, scaling="l2")
    for m in (1, 2, 8, 30, 300):
        rng = np.random.default_rng(m)
        pairs = [(rng.uniform(-1, 1, n), rng.standard_normal(n)) for _ in range(m)]
        problem = as_problem(mk.History.from_pairs(pairs), base)
        level = {"noise_std": 1.0, "delta": 0.1, "sup": base.sup}
        ratio = lifelong(problem, **level) / self_normalised(problem, **level)
        assert (ratio >= 1).all()
        assert (ratio <= 1.25).all()


@pytest.mark.parametrize(("rule", "holds"), [("lifelong", True), ("monte-carlo", False)])
def test_the_event_holds_at_all_relearnings_under_a_policy_that_chases_noise(rule, holds):
    """Tasks of pure noise, whose points go where the noise of the past looks like signal."""
    base, runs, tasks, longest = legendre(3, scaling="sup"), 60, 6, 80
    arms = np.linspace(-1, 1, 21)[:, None]
    features = base.features(arms)
    broken = 0
    for seed in range(runs):
        rng, pairs, failed = np.random.default_rng(seed), [], False
        for _ in range(tasks):
            energy, b, X, y = np.full(3, 1e-3), np.zeros(3), [], []
            while len(y) < longest and (np.abs(b) < 2.5 * np.sqrt(energy)).all():
                # Repeat where the noise correlates most with a kernel; stop when there is much.
                arm = int(np.argmax(np.abs(features @ b))) if y else int(rng.integers(21))
                X.append(arms[arm])
                y.append(rng.standard_normal())
                energy += features[arm] ** 2
                b += features[arm] * y[-1]
            pairs.append((np.array(X), np.array(y)))
            problem = as_problem(mk.History.from_pairs(pairs), base)
            level = {"noise_std": 1.0, "delta": DELTA}
            if rule == "lifelong":
                lam = lifelong(problem, **level, sup=base.sup)
            else:
                lam = monte_carlo(problem, **level, rng=rng, draws=59)
            noise = np.sqrt(problem.energies([task[1] for task in pairs])) / problem.total
            failed |= bool((noise > lam / 4).any())
        broken += failed
    assert (broken <= binom.ppf(1 - 1e-4, runs, DELTA)) == holds


def test_noise_alone_selects_nothing_at_half_of_lambda():
    chosen = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        pairs = [(rng.uniform(-1, 1, 15), NOISE * rng.standard_normal(15)) for _ in range(6)]
        history = mk.History.from_pairs(pairs)
        learned = learn_kernel(history, BASE, noise_std=NOISE, lam="lifelong", delta=DELTA)
        chosen += learned.active.size > 0
    assert chosen <= binom.ppf(1 - 1e-4, 40, DELTA)


def test_the_rule_refuses_weights_that_change_with_every_task():
    rng = np.random.default_rng(0)
    history = mk.History.from_pairs([(rng.uniform(-1, 1, n), rng.normal(size=n)) for n in (5, 9)])
    with pytest.raises(InputError, match=r"'lifelong'.*loss='points'"):
        learn_kernel(history, BASE, noise_std=NOISE, lam="lifelong", loss="tasks")


# The loop


def test_tasks_get_better_and_bands_cover():
    """The last tasks cost less than with all kernels, and not much more than with the true ones."""
    regret, covered, tasks, found = dict.fromkeys(("learned", "all", "true"), 0.0), 0, 0, 0
    for seed in range(6):
        life, rng = learner(seed), np.random.default_rng(seed)
        everything = learner(seed, warm_up=99)  # never leaves the warm-up
        for s in range(8):
            theta = draw(rng)
            truth = PHI @ theta
            optimizer = play(life, f"plant {s}", theta, rng)
            lower, upper = optimizer.confidence()
            covered += bool(((lower <= truth + 1e-9) & (truth <= upper + 1e-9)).all())
            tasks += 1
            if s >= 5:
                rivals = {
                    "learned": optimizer,
                    "all": play(everything, f"plant {s}", theta, rng),
                    "true": play(oracle(seed), f"plant {s}", theta, rng),
                }
                for name, rival in rivals.items():
                    regret[name] += (truth.max() - BASE.features(rival.X) @ theta).sum()
            life.finish(optimizer)
        found += set(ACTIVE) <= set(life.learned.active)
    assert found == 6
    assert regret["learned"] <= 0.75 * regret["all"]
    assert regret["learned"] <= 1.6 * regret["true"]
    assert covered >= binom.ppf(1e-4, tasks, 1 - DELTA)


def test_a_task_is_never_solved_with_a_kernel_learned_from_itself():
    """Whatever values a task has: its points up to then, and its kernel, are the same."""
    (life, rng), (other, _) = sequence(1, 3), sequence(1, 3)
    theta = draw(rng)
    mine, theirs = life.task("next"), other.task("next")
    for step in range(5):
        x = mine.ask()
        assert_array_equal(x, theirs.ask())
        value = BASE.features(x[None])[0] @ theta
        mine.tell(x, value)
        theirs.tell(x, value)
        if step == 2:  # another task ends in between, with different lessons
            noise = np.random.default_rng(9)
            life.finish(play(life, "meanwhile", draw(noise, active=[9, 10, 11]), noise, 25))
            assert set(life.selected) != set(other.selected)


def test_several_open_tasks_and_the_order_of_finishing():
    lives = []
    for order in (("a", "b", "c"), ("c", "a", "b")):
        life, rng = learner(warm_up=0), np.random.default_rng(3)
        for name in ("a", "b", "c"):
            play(life, name, draw(rng), rng)
        assert list(life.open) == ["a", "b", "c"]
        for name in order:
            life.finish(name)
        lives.append(life)
    one, two = (life.learned for life in lives)
    assert_array_equal(one.active, two.active)
    assert_allclose(one.solution.eta, two.solution.eta, atol=1e-6)


def test_values_may_be_kept_and_learned_from_later():
    life, rng = learner(warm_up=0), np.random.default_rng(4)
    assert life.finish(play(life, "a", draw(rng), rng), learn=False).selected is None
    assert life.learned is None
    assert life.m == 1
    done = life.finish(play(life, "b", draw(rng), rng))
    assert life.learned.history.m == 2
    assert done.selected == life.selected


def test_forgetting_learns_from_the_rest_at_a_smaller_share_of_delta():
    life, rng = sequence(0, 3)
    shifted = [9, 10]
    for s in range(3):
        life.finish(play(life, f"after the change {s}", draw(rng, active=shifted), rng))
    before = life.learned.delta
    life.forget(before="after the change 0")
    assert life.m == 3
    assert life.learned.delta == before * 2 / (4 * 5)  # three forgotten
    share = {"noise_std": NOISE, "lam": "lifelong", "delta": life.learned.delta}
    anew = learn_kernel(mk.History(life.history.tasks), BASE, **share)
    assert_array_equal(life.learned.solution.eta, anew.solution.eta)
    assert len(life.tasks) == 6  # the report keeps them
    with pytest.raises(InputError, match="there is no task 'plant 0'"):
        life.forget(before="plant 0")


def test_a_history_that_is_known_counts_for_the_warm_up():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (4, 30))
    pairs = [(x, BASE.features(x[:, None]) @ draw(rng) + NOISE * rng.normal(size=30)) for x in X]
    life = learner(history=mk.History.from_pairs(pairs), warm_up=4)
    assert not life.warming_up
    optimizer = life.task("new")
    assert set(optimizer.model.kernel.active) == set(life.learned.active)
    assert learner().warming_up


def test_nothing_selected_means_all_kernels():
    life, rng = learner(warm_up=0), np.random.default_rng(5)
    life.finish(play(life, "noise", np.zeros(BASE.dim), rng))
    assert life.selected == ()
    assert life.warming_up
    assert life.task("next").model.kernel.active.size == BASE.p


def test_save_load_and_going_on(tmp_path):
    life, rng = sequence(2, 4)
    play(life, "open", draw(rng), rng, steps=3)
    life.finish(play(life, "kept", draw(rng), rng), learn=False)
    life.forget(before="plant 1")
    life.save(tmp_path / "life.json")
    loaded = mk.Lifelong.load(tmp_path / "life.json")
    assert loaded.report() == life.report()
    assert_array_equal(loaded.open["open"].ask(), life.open["open"].ask())
    assert_array_equal(loaded.task("new").ask(), life.task("new").ask())
    assert_array_equal(loaded.learned.lam, life.learned.lam)
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(InputError, match=r"expected 'metakel\.Lifelong'"):
        mk.Lifelong.load(tmp_path / "other.json")


def test_minimising_learns_the_same_kernels():
    up, rng = sequence(3, 2)
    down = learner(3, maximize=False)
    for s in range(2):
        mirrored = down.task(f"plant {s}")
        task = up.history[s]
        mirrored.tell(task.X, -task.y)
        down.finish(mirrored)
    assert_allclose(down.learned.solution.eta, up.learned.solution.eta, atol=1e-8)
    assert down.tasks[0].best == pytest.approx(-up.tasks[0].best)


def test_with_contexts_the_history_holds_both():
    base = mk.tensor_product(2, 2, scaling="l2")
    life = mk.Lifelong(
        base,
        grid([(-1, 1)], 11),
        context=box([(-1, 1)]),
        noise_std=NOISE,
        norm_bound=BOUND,
        rng=np.random.default_rng(0),
    )
    optimizer, rng = life.task("a"), np.random.default_rng(1)
    for z in rng.uniform(-1, 1, 6):
        x = optimizer.ask(context=[z])
        optimizer.tell(x, x[0] * z, context=[z])
    done = life.finish(optimizer)
    assert life.history.d0 == 2
    assert done.best is None
    assert done.regret > 0
    assert "plant" not in life.report()


def test_bad_input_changes_nothing():
    life, rng = sequence(0, 1)
    optimizer = life.task("open")
    for call, message in (
        (lambda: life.task("open"), "is open"),
        (lambda: life.task("plant 0"), "expected a new name"),
        (lambda: life.task(""), "expected text"),
        (lambda: life.finish("open"), r"no values; use drop\('open'\)"),
        (lambda: life.finish("closed"), "no open task 'closed'; open tasks: 'open'"),
        (lambda: learner(warm_up=-1), "warm_up is -1"),
        (lambda: learner(delta=1.5), "delta is 1.5"),
    ):
        with pytest.raises(InputError, match=message):
            call()
    optimizer.tell([0.0], 1.0, noise_std=1.0)
    with pytest.raises(InputError, match=r"noise level of 1; expected at most noise_std = 0\.1"):
        life.finish(optimizer)
    assert life.m == 1
    life.drop(optimizer)
    assert not life.open
    assert "1 tasks known, 0 open" in repr(life)


@pytest.mark.parametrize("missing", [False, True])
def test_an_alarm_on_the_next_task_is_as_rare_as_replays_say(missing):
    """With a kernel that is missing, replays and the next task raise it equally often."""
    rng, promised, raised = np.random.default_rng(3), [], []
    right = mk.KernelSum.uniform(BASE, active=[1, 3], weight=1.0)
    kernel = mk.KernelSum.uniform(BASE, active=[1], weight=1.0) if missing else right

    def record():
        X, theta = rng.uniform(-1, 1, (8, 1)), rng.normal(size=2)
        return mk.Task(X, right.features(X) @ theta + 0.1 * rng.normal(size=8))

    options = {"noise_std": 0.1, "norm_bound": 4.0}
    for _ in range(20):
        *past, new = [record() for _ in range(6)]
        promised.append(replay_alarms(kernel, past, **options).expected)
        raised.append(replay_alarms(kernel, [new], **options).count)
    assert sum(raised) <= binom.ppf(1 - 1e-4, 20, min(np.mean(promised), 1))
    assert (np.mean(raised) > 0.3) == missing
    with pytest.raises(InputError, match="no task"):
        replay_alarms(kernel, [], **options)
