"""A journal whose end was cut off is noticed, and one without a count is read as it is."""

from __future__ import annotations

import shutil

import pytest
from tuning_history import measure, small_prior

from metakel import InputError
from metakel.tuner import Journal, Store, Tuner
from metakel.tuner.cuts import count_file
from metakel.tuner.salvage import salvaged

PRIOR = small_prior()


@pytest.fixture
def path(tmp_path):
    tuner = Tuner(PRIOR, tmp_path / "j", budget=3)
    for x in tuner:
        tuner.tell(x, measure(x))
    return tmp_path / "j"


def test_a_cut_anywhere_is_noticed(path):
    text = path.read_bytes()
    ends = [i + 1 for i in range(len(text) - 1) if text[i : i + 1] == b"\n"]
    for cut in {*range(0, len(text) - 1, 37), *ends}:
        path.write_bytes(text[:cut])
        for look in (Journal(path).read, lambda: Store.open(path), lambda: Tuner(PRIOR, path)):
            with pytest.raises(InputError, match=r"had 7 at least: its end was cut off.*--salvage"):
                look()
        assert cut not in ends or path.read_bytes() == text[:cut]
    path.write_bytes(text)
    assert len(Journal(path).read()) == 7


def test_what_a_cut_left_is_salvaged(path):
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:5]))
    found = salvaged(path)
    assert len(found.events) == 5
    assert [(damage.line, damage.what) for damage in found.damaged] == [
        (7, "cut off, as is all after line 5")
    ]


def test_without_its_count_a_journal_is_read_as_it_is(path):
    text, elsewhere = path.read_bytes(), path.with_name("copy")
    shutil.copy(path, elsewhere)
    count_file(path).write_text("nonsense")
    path.write_bytes(text[: text.rindex(b"\n", 0, -1) + 1])
    assert [len(Journal(place).read()) for place in (path, elsewhere)] == [6, 7]


def test_the_count_of_another_journal_does_not_matter(path):
    count = count_file(path).read_bytes()
    path.unlink()
    assert len(Journal(path).read()) == 0
    assert not Tuner(PRIOR, path).trials  # begun anew
    assert len(Journal(path).read()) == 1
    other = path.with_name("other")
    Tuner(PRIOR, other, seed=1)
    count_file(other).write_bytes(count)
    assert len(Journal(other).read()) == 1
