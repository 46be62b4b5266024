"""One vocabulary for every picture: what is drawn has a role, and a role looks the same everywhere.

`metakel.plots`, the effects of a prior, the demo, the guide and the figures of the paper are drawn
with matplotlib (`Panel`); the report is inline SVG (`SvgChart`). Both take the same words.
"""

from metakel.charts.axes import Panel, new_axes, tidy
from metakel.charts.style import (
    ALARM,
    BAND_OPACITY,
    CERTIFICATE,
    CHOSEN,
    COLD,
    LEARNED,
    OBSERVED,
    RANDOM,
    REFERENCE,
    SERIES,
    SPREAD,
    TRUTH,
    Axis,
    Style,
    number,
    short,
)
from metakel.charts.svg import SvgChart

Chart = Panel | SvgChart

__all__ = [
    "ALARM",
    "BAND_OPACITY",
    "CERTIFICATE",
    "CHOSEN",
    "COLD",
    "LEARNED",
    "OBSERVED",
    "RANDOM",
    "REFERENCE",
    "SERIES",
    "SPREAD",
    "TRUTH",
    "Axis",
    "Chart",
    "Panel",
    "Style",
    "SvgChart",
    "new_axes",
    "number",
    "short",
    "tidy",
]
