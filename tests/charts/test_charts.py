"""Charts as SVG: marks where they belong, on axes that can be read."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metakel.charts import (
    ALARM,
    BOTTOM,
    HEIGHT,
    LEARNED,
    LEFT,
    RANDOM,
    RIGHT,
    ROLES,
    TOP,
    WIDTH,
    Axis,
    SvgChart,
    number,
    style_sheet,
)
from metakel.priors.summary import Curve, draw_effect, effect_axis

ROOT = Path(__file__).parents[2]
UNIT = Axis("x", 0, 1)


def svg(chart: SvgChart) -> ElementTree.Element:
    return ElementTree.fromstring(chart.render("a chart"))


def points(element: ElementTree.Element) -> list[tuple[float, float]]:
    """Places on paper, from (0, 0) at the bottom left to (1, 1) at the top right."""
    pairs = [pair.split(",") for pair in element.attrib["points"].split()]
    return [
        (
            round((float(x) - LEFT) / (WIDTH - RIGHT - LEFT), 2),
            round((HEIGHT - BOTTOM - float(y)) / (HEIGHT - BOTTOM - TOP), 2),
        )
        for x, y in pairs
    ]


def test_colors_are_named_in_one_place():
    color = re.compile(r"""["']#[0-9a-fA-F]{6}["']|color=["']""")
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "reproduction").glob("*.py")]
    found = [path.name for path in files if color.search(path.read_text(encoding="utf-8"))]
    assert found == ["charts.py"]


def test_every_role_has_a_color_on_light_and_on_dark_pages():
    sheet = style_sheet()
    light, dark = sheet.split("@media")
    for role in ROLES:
        assert f"--{role.name}: {role.color};" in light
        assert f"--{role.name}: {role.on_dark};" in dark
        assert role.on_dark
    assert len({role.name for role in ROLES}) == len(ROLES)


@settings(deadline=None)
@given(
    low=st.floats(-1e6, 1e6),
    width=st.floats(1e-3, 1e6),
    values=st.lists(st.floats(-1e7, 1e7), min_size=2, max_size=5),
)
def test_ticks_lie_on_the_axis_and_order_is_kept(low, width, values):
    axis = Axis("x", low, low + width)
    assert 1 <= len(axis.ticks) <= 6
    assert all(-1e-6 <= (tick - low) / width <= 1 + 1e-6 for tick, _ in axis.ticks)
    places = [axis.fraction(value) for value in sorted(values)]
    assert places == sorted(places)
    assert 0 <= places[0] <= places[-1] <= 1


def test_logarithmic_ticks_are_powers_of_ten_where_there_are_two():
    assert [tick for tick, _ in Axis("x", 2e-4, 3.0, log=True).ticks] == [1e-3, 1e-2, 1e-1, 1]
    assert [tick for tick, _ in Axis("x", 2.0, 8.0, log=True).ticks] == [2.0, 8.0]
    assert Axis("x", 1e-2, 1e2, log=True).fraction(1.0) == pytest.approx(0.5)


def test_an_axis_covers_what_is_finite_and_is_never_empty():
    axis = Axis.covering("x", [1.0, np.inf], [np.nan, 3.0])
    assert (axis.low, axis.high) == pytest.approx((0.9, 3.1))
    assert Axis.covering("x", [np.nan]).high == 1
    constant = Axis.covering("x", [2.0, 2.0])
    assert constant.low < 2 < constant.high


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.25, "0.25"), (12345.6, "12346"), (1e-5, "10⁻⁵"), (-2e7, "-2·10⁷")],
)
def test_numbers_are_short(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    "axis", [Axis("rate", 1e-4, 1.0, log=True), Axis("n", 0, 7), Axis.of("kind", ["a", "b", "c"])]
)
def test_ticks_and_labels_are_written(axis):
    written = [text.text for text in svg(SvgChart(axis, UNIT)).iter("text")]
    assert [text for _, text in axis.ticks] == written[len(UNIT.ticks) : -2]
    assert axis.label in written


def test_twelve_names_that_begin_alike_can_be_told_apart():
    axis = Axis.of("solvent", [f"a mixture of solvents {i}" for i in range(12)])
    for letters in (9, 16):
        shown = [text for _, text in axis.names(letters, 200)]
        assert len(set(shown)) == 12
        assert max(map(len, shown)) <= letters
    assert len(axis.names(9, 100)) == 6
    written = {text.text for text in svg(SvgChart(axis, UNIT)).iter("text")}
    assert len(written - {label for _, label in UNIT.ticks} - {"solvent", UNIT.label}) == 12


def test_a_line_is_broken_and_a_band_interrupted_where_there_is_no_number():
    chart = SvgChart(UNIT, UNIT).line([0, 0.25, 0.5, 1], [0, np.nan, 0.5, 1], LEARNED)
    first, second = svg(chart).iter("polyline")
    assert points(first) == [(0, 0)]
    assert points(second) == [(0.5, 0.5), (1, 1)]
    banded = svg(SvgChart(UNIT, UNIT).band([0, 0.5, 1], [0, 0, 0], [1, 1, np.inf], LEARNED))
    assert points(next(banded.iter("polygon"))) == [(0, 1), (0.5, 1), (0.5, 0), (0, 0)]


def test_steps_stay_until_the_value_changes():
    x, y = [0, 0.5, 1], [0, 0.5, 1]
    drawn = points(next(svg(SvgChart(UNIT, UNIT).steps(x, y, LEARNED)).iter("polyline")))
    assert drawn == [(0, 0), (0.5, 0), (0.5, 0.5), (1, 0.5), (1, 1)]


def test_roles_and_labels_are_those_of_the_marks():
    chart = SvgChart(UNIT, UNIT).line([0, 1], [0, 1], RANDOM, label="a").rule(0.5, ALARM, "<b>")
    assert chart.legend == [("line random", "a")]
    assert {line.attrib["class"] for line in svg(chart).iter("polyline")} == {"line random"}
    assert "<b>" not in chart.render("")


@pytest.mark.parametrize("numeric", [True, False])
def test_an_effect_is_a_band_or_one_for_each_choice(numeric):
    values = [0.001, 0.01, 0.1] if numeric else ["a", "b", "c"]
    spread, common = np.array([0.1, 0.2, 0.1]), np.array([0.5, 0.0, -0.5])
    curve = Curve("rate", values, common, spread, log=numeric, numeric=numeric)
    chart = SvgChart(effect_axis(curve), Axis("effect", -1, 1))
    draw_effect(chart, curve)
    assert len(list(svg(chart).iter("polygon"))) == (1 if numeric else 3)
    assert [label for _, label in chart.legend] == ["± between tasks", "common"]
