"""Charts as inline SVG, for the report and notebooks.

What is drawn has a role, and a role looks the same everywhere. The pictures of papers
(`metakel.plots`) are drawn with matplotlib in the same colours.
"""

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
    "Style",
    "SvgChart",
    "number",
    "short",
]
