"""What messages of the library advise, in the words of the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from metakel.errors import InputError

# Arguments of `History.from_csv` as messages write them, and the options that stand for them.
_OPTIONS = (
    (r"defaults=\{'([^']*)': value\}", r"--default '\1=value'"),
    (r"categories=\['([^']*)'\]", r"--category '\1'"),
    (r"inputs=\[\.\.\.\]", "--input NAME"),
    (r"delimiter='(.|\\t)'", r"--delimiter '\1'"),
    (r"extrapolate=True", "--extrapolate"),
    (r"\bspace=(?= )", "--space FILE"),
)


def as_options(text: str) -> str:
    """The same advice, to be typed."""
    for pattern, option in _OPTIONS:
        text = re.sub(pattern, option, text)
    return text


@contextmanager
def advice_as_options() -> Iterator[None]:
    """Refusals of the library, with advice that can be typed."""
    try:
        yield
    except InputError as error:
        raise type(error)(as_options(str(error))) from error
