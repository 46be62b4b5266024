"""Pictures show what the objects say, and can be read."""

from __future__ import annotations

import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from numpy.testing import assert_allclose

from gpucb import gpucb
from metakel import plots
from metakel.confidence import ConfidenceSequence
from metakel.errors import InputError, ShapeError
from metakel.kernels import KernelSum, legendre
from metakel.search import box

matplotlib.use("Agg")
import matplotlib.pyplot as plt

BASE = legendre(6, scaling="l2")
KERNEL = KernelSum.uniform(BASE, active=[0, 2])
Z = np.linspace(-1, 1, 60)


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


def game(**options):
    settings = {"noise_std": 0.1, "norm_bound": 2.0, **options}
    optimizer = gpucb(KERNEL, box([(-1, 1)]), rng=np.random.default_rng(0), **settings)
    for _ in range(5):
        x = optimizer.ask()
        optimizer.tell(x, x**2)
    return optimizer


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def edges(ax):
    """Lower and upper edge of the first shaded area, by x."""
    vertices = ax.collections[0].get_paths()[0].vertices
    low, high = np.empty((2, len(Z)))
    for i, x in enumerate(Z):
        heights = vertices[np.isclose(vertices[:, 0], x), 1]
        low[i], high[i] = heights.min(), heights.max()
    return low, high


@pytest.mark.parametrize("minimize", [True, False])
def test_the_band_is_the_confidence_interval_with_data_truth_and_next_point(minimize):
    optimizer = game(minimize=minimize)
    asked = optimizer.ask()
    shuffled = np.random.default_rng(0).permutation(Z)
    ax = plots.band(optimizer, shuffled, truth=shuffled**2)
    assert_allclose(edges(ax), optimizer.confidence(Z), rtol=1e-6)
    assert legend(ax) == [
        "90% confidence, all x and t",
        "posterior mean",
        "function",
        "5 observations",
        "next point",
    ]
    lines = {line.get_label(): line for line in ax.lines}
    assert_allclose(lines["function"].get_ydata(), Z**2)
    assert_allclose(lines["5 observations"].get_ydata(), optimizer.y)
    assert_allclose(lines["next point"].get_xdata(), asked[0])
    assert ax.get_xlabel()
    assert ax.get_ylabel()


def test_the_truth_may_be_a_column_and_nothing_else():
    optimizer = game()
    lines = [
        {line.get_label(): line for line in plots.band(optimizer, Z, truth=truth).lines}
        for truth in (Z**2, Z[:, None] ** 2)
    ]
    assert_allclose(lines[0]["function"].get_ydata(), lines[1]["function"].get_ydata())
    for wrong in (Z[None], Z[:5, None], np.zeros((len(Z), 2))):
        with pytest.raises(ShapeError, match="truth has shape"):
            plots.band(optimizer, Z, truth=wrong)


def test_pictures_are_there_after_importing_metakel_and_cost_nothing_before():
    code = (
        "import sys, metakel as mk\n"
        "assert 'plots' in dir(mk) and 'metakel.plots' not in sys.modules\n"
        "assert mk.plots.band and mk.plots is sys.modules['metakel.plots']\n"
        "assert 'matplotlib' not in sys.modules\n"
        "assert not hasattr(mk, 'plot')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_band_of_a_sequence_on_given_axes_before_any_data():
    sequence = ConfidenceSequence(KERNEL, noise_std=0.1, norm_bound=2.0, delta=0.05)
    _, mine = plt.subplots()
    ax = plots.band(sequence, Z, ax=mine, next_point=[0.3])
    assert ax is mine
    assert legend(ax) == ["95% confidence, all x and t", "posterior mean", "next point"]


def test_a_fixed_nu_alone_has_no_band():
    with pytest.raises(InputError, match="nu alone"):
        plots.band(game(nu=2.0, norm_bound=None), Z)


def test_a_curve_has_its_spread_where_it_is_finite():
    t, mean = np.arange(4.0), np.ones(4)
    ax = plots.curve(t, mean, mean - 1, [2, 2, 2, np.inf], label="regret", marker="o")
    assert ax.lines[0].get_label() == "regret"
    assert_allclose(ax.lines[0].get_ydata(), mean)
    assert ax.collections[0].get_paths()[0].get_extents().x1 == 2


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ShapeError, match="a line needs one"):
        plots.band(game(), np.zeros((4, 2)))
    with pytest.raises(ShapeError, match="truth"):
        plots.band(game(), Z, truth=[1.0])
