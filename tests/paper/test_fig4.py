"""Property B: regret in one dimension."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from quick_figures import failing, measured, results

from metakel.kernels import KernelSum
from reproduction.figure import load_figure
from reproduction.play import play_paper
from reproduction.settings import Streams
from reproduction.synthetic import dictionary, domain, objective

# 2 k* with 6 instances each instead of 5 with 100; a ratio has a standard error of about 0.1.
SLACK = {
    "mu learned/true": 0.15,
    "reg learned/true": 0.1,
    "mu learned/full": 0.25,
    "reg learned/full": 0.2,
    "worst reg learned/full": 0.2,
    "simple at the end": 0.1,
}


def test_learned_is_competitive_and_full_is_slower():
    assert failing("fig4", slack=SLACK) == []


def test_the_order_is_the_same_with_coefficients_of_both_signs():
    numbers = measured("fig4", "signed")
    assert 0.7 < numbers["mu learned/true"] < 1.35
    assert numbers["mu learned/full"] < 1.0
    assert numbers["reg learned/full"] < 1.0
    assert numbers["simple at the end"] < 0.3


def test_literal_reading_is_solved_at_once_by_every_polynomial_kernel():
    assert measured("fig4", "literal")["largest simple at t = 10 with k* and k_full"] < 1e-9


def oracle_against_full(degrees, count=8):
    """Cumulative regret of k* / that of k_full for equal weights on these degrees."""
    settings = replace(load_figure("fig4").configured(), grid=201)
    base, Z = dictionary(settings), domain(settings)
    eta = np.zeros(settings.p)
    eta[np.array(degrees) - 1] = 1 / len(degrees)
    kernels = KernelSum(base, eta), KernelSum.uniform(base)
    total = np.zeros(2)
    for run in range(count):
        streams = Streams(0, 0, run)
        f = objective(settings, kernels[0], Z, streams)
        total += [play_paper(settings, k, Z, f, streams).regrets()["reg"][-1] for k in kernels]
    return total[0] / total[1]


def test_how_much_k_full_loses_depends_on_the_degrees_of_k_star():
    # High degrees have their minimum next to the ends, where every kernel looks first.
    high, low = oracle_against_full([7, 10, 15, 18, 19]), oracle_against_full([2, 4, 6, 8, 10])
    assert low < 0.65 < 0.7 < high < 1


def test_the_k_star_of_the_earlier_study_gives_what_it_gave_there(monkeypatch):
    """Degrees 4, 5, 6, 9, 20: regret 93 with k*, 93 with k-hat and 145 with k_full."""
    figure = load_figure("fig4")
    settings, degrees = figure.configured(), np.array([4, 5, 6, 9, 20])

    def named(base, *, rng, **_):
        eta = np.zeros(settings.p)
        eta[degrees - 1] = rng.dirichlet(np.full(5, 4.0))
        return KernelSum(base, eta)

    monkeypatch.setattr("reproduction.synthetic.true_kernel", named)
    rows = [row for draw in range(12) for row in figure.run_once(settings, Streams(0, draw, 0))]
    final = [row for row in rows if row["t"] == settings.horizon]
    mean = {
        name: np.mean([row["reg"] for row in final if row["kernel"] == name])
        for name in ("true", "learned", "full")
    }
    assert 65 < mean["true"] < 120
    assert 110 < mean["full"] < 210
    assert mean["learned"] <= 1.3 * mean["true"]
    assert mean["learned"] <= 0.75 * mean["full"]


def test_inference_regret_of_the_paper_starts_at_the_optimum_itself():
    first = results("fig4")[results("fig4")["t"] == 1]
    by_instance = first.groupby(["draw", "run"])["mu"]
    assert np.allclose(by_instance.min(), by_instance.max())  # mu_0 = 0 for every kernel
