"""Tasks in a row: the rule "lifelong" at all relearnings, and what a loop of updates gains."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

import metakel as mk
from gpucb import gpucb
from metakel.errors import InputError
from metakel.kernels import legendre
from metakel.learn import as_problem, learn_kernel
from metakel.learn.rules import lifelong, monte_carlo, self_normalized
from metakel.search import grid

NOISE, BOUND, DELTA = 0.1, 3.0, 0.1
BASE = legendre(12, scaling="sup")
ACTIVE = [1, 4, 7]
DOMAIN = grid([(-1, 1)], 51)
PHI = BASE.features(DOMAIN.X)
EVERYTHING = mk.KernelSum.uniform(BASE, weight=1.0)


def draw(rng, base=BASE, active=ACTIVE):
    theta = np.zeros(base.dim)
    theta[active] = rng.standard_normal(len(active))
    return 0.9 * BOUND * theta / np.linalg.norm(theta)


def play(kernel, theta, rng, share=0.0, steps=15):
    """Points of a task that is decided with a kernel, and whether its final band covers."""
    optimizer = gpucb(
        kernel,
        DOMAIN,
        rng=rng,
        noise_std=NOISE,
        norm_bound=BOUND,
        delta=DELTA / 2 + share,
        delta_learning=share,
        full=EVERYTHING,
    )
    for _ in range(steps):
        x = optimizer.ask()
        optimizer.tell(x, BASE.features(x[None])[0] @ theta + NOISE * rng.standard_normal())
    lower, upper = optimizer.confidence()
    truth = PHI @ theta
    return optimizer, bool(((lower <= truth + 1e-9) & (truth <= upper + 1e-9)).all())


# The rule


@pytest.mark.parametrize("n", [5, 25, 100])
def test_the_price_of_all_relearnings_is_small(n):
    base = legendre(20, scaling="l2")
    for m in (1, 2, 8, 30, 300):
        rng = np.random.default_rng(m)
        pairs = [(rng.uniform(-1, 1, n), rng.standard_normal(n)) for _ in range(m)]
        problem = as_problem(mk.History.from_pairs(pairs), base)
        level = {"noise_std": 1.0, "delta": 0.1, "sup": base.sup}
        ratio = lifelong(problem, **level) / self_normalized(problem, **level)
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
    true = mk.KernelSum.uniform(BASE, active=ACTIVE, weight=1.0)
    for seed in range(6):
        rng, learned = np.random.default_rng(seed), None
        for s in range(8):
            theta, trusted = draw(rng), s >= 2 and learned.active.size > 0
            kernel, share = (learned.kernel, DELTA / 2) if trusted else (EVERYTHING, 0.0)
            optimizer, held = play(kernel, theta, rng, share)
            covered, tasks = covered + held, tasks + 1
            if s >= 5:
                rivals = {
                    "learned": optimizer,
                    "all": play(EVERYTHING, theta, rng)[0],
                    "true": play(true, theta, rng)[0],
                }
                for name, rival in rivals.items():
                    lost = (PHI @ theta).max() - BASE.features(rival.X) @ theta
                    regret[name] += lost.sum()
            task = mk.History.from_pairs([(optimizer.X, optimizer.y)])
            options = {"noise_std": NOISE, "lam": "lifelong", "delta": DELTA / 2}
            learned = learned.update(task) if learned else learn_kernel(task, BASE, **options)
        found += set(ACTIVE) <= set(learned.active)
    assert found == 6
    assert regret["learned"] <= 0.75 * regret["all"]
    assert regret["learned"] <= 1.6 * regret["true"]
    assert covered >= binom.ppf(1e-4, tasks, 1 - DELTA)
