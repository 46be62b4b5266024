"""Pictures show what the objects say, and can be read."""

from __future__ import annotations

import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from numpy.testing import assert_allclose

from metakel import plots
from metakel.confidence import ConfidenceSequence
from metakel.data import History
from metakel.errors import InputError, ShapeError
from metakel.kernels import KernelSum, legendre, tensor_product
from metakel.learn import learn_kernel
from metakel.optimize import GPUCB
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
    optimizer = GPUCB(KERNEL, box([(-1, 1)]), rng=np.random.default_rng(0), **settings)
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


def test_the_trace_ends_with_the_present_width_and_certificate():
    optimizer = game()
    ax = plots.trace(optimizer, Z)
    lower, upper = optimizer.confidence(Z)
    steps, widths = ax.lines[0].get_data()
    assert_allclose(steps, np.arange(6))
    assert_allclose(widths[-1], np.median(upper - lower) / 2, rtol=1e-2)
    assert_allclose(ax.lines[1].get_ydata()[-1], optimizer.certificate().regret, rtol=0.05)
    assert np.isnan(ax.lines[1].get_ydata()[0])
    assert (np.diff(widths) < 1e-6).all()
    assert ax.get_yscale() == "log"


def test_the_trace_goes_through_alarms_and_marks_them():
    optimizer = game(norm_bound=0.01)
    assert optimizer.alarm is not None
    assert "alarm" in legend(plots.trace(optimizer, Z, times=[1, 3, 5]))


def test_a_fixed_nu_alone_has_no_band():
    optimizer = game(nu=2.0, norm_bound=None)
    for draw in (plots.band, plots.trace):
        with pytest.raises(InputError, match="nu alone"):
            draw(optimizer, Z)


def test_weights_are_bars_by_name_and_the_strongest_when_there_are_many():
    ax = plots.weights(KernelSum(BASE, [0, 0.5, 0, 0.25, 0, 1]))
    assert_allclose([bar.get_height() for bar in ax.patches], [0, 0.5, 0, 0.25, 0, 1])
    assert [text.get_text() for text in ax.get_xticklabels()] == list(BASE.names)
    assert legend(ax) == ["dropped"]
    many = tensor_product(2, 8, scaling="l2")
    eta = np.zeros(many.p)
    eta[[3, 20, 30]] = [1, 3, 2]
    ax = plots.weights(KernelSum(many, eta), limit=2)
    assert [text.get_text() for text in ax.get_xticklabels()] == [many.names[20], many.names[30]]
    assert "the strongest 2 of 44" in ax.get_xlabel()


def test_weights_of_a_learned_kernel_are_the_strengths_found(rng):
    X = rng.uniform(-1, 1, (4, 30, 1))
    history = History.from_pairs([(x, BASE.features(x)[:, 2] + 0.01 * x[:, 0]) for x in X])
    learned = learn_kernel(history, BASE, noise_std=0.05)
    ax = plots.weights(learned)
    assert_allclose([bar.get_height() for bar in ax.patches], learned.solution.eta)


def test_functions_are_lines_with_their_names():
    values = np.stack([Z, Z**2])
    ax = plots.functions(Z[::-1], values[:, ::-1], names=["line", "bowl"])
    assert_allclose(ax.lines[1].get_ydata(), Z**2)
    assert legend(ax) == ["line", "bowl"]
    assert plots.functions(Z, values).get_legend() is None


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ShapeError, match="a line needs one"):
        plots.band(game(), np.zeros((4, 2)))
    with pytest.raises(ShapeError, match="truth"):
        plots.band(game(), Z, truth=[1.0])
    with pytest.raises(ShapeError, match="values have shape"):
        plots.functions(Z, np.zeros((2, 3)))
    with pytest.raises(ShapeError, match="1 names for 2"):
        plots.functions(Z, np.zeros((2, 60)), names=["one"])
