"""True and false mean the same in files, frames, spaces and old priors."""

from __future__ import annotations

import numpy as np
import pytest

from metakel.cli.options import assignments
from metakel.data import History
from metakel.errors import InputError
from metakel.space import Categorical, Fixed, Space

WANTED = {"task": "ds", "output": "y"}
COLUMNS = {
    "ds": ["a"] * 4 + ["b"] * 4,
    "x": [0.1, 0.9, 0.3, 0.4, 0.5, 0.2, 0.7, 0.8],
    "stirred": [True, False, False, True, True, True, False, False],
    "y": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
}
FLAGS = Categorical("stirred", (False, True))
WORDS = Categorical("stirred", ("False", "True"))


def written(path, say):
    rows = zip(
        *(COLUMNS[n] if n != "stirred" else map(say, COLUMNS[n]) for n in COLUMNS), strict=True
    )
    path.write_text("\n".join([",".join(COLUMNS), *(",".join(map(str, r)) for r in rows)]) + "\n")
    return path


@pytest.mark.parametrize("say", [str, lambda v: str(v).lower(), lambda v: str(v).upper()])
def test_a_file_of_true_and_false_reads_like_the_frame(tmp_path, say):
    frame = History.from_frame(COLUMNS, **WANTED)
    file = History.from_csv(written(tmp_path / "runs.csv", say), **WANTED)
    assert file.space == frame.space
    assert file.space["stirred"] == FLAGS
    assert all(np.array_equal(a.X, b.X) for a, b in zip(file, frame, strict=True))


@pytest.mark.parametrize("parameter", [FLAGS, WORDS])
@pytest.mark.parametrize("true", [True, np.True_, "True", "true", "TRUE"])
def test_every_way_to_say_true_is_one_choice(parameter, true):
    np.testing.assert_array_equal(parameter.encode([true]), parameter.encode([parameter.values[1]]))
    np.testing.assert_array_equal(Fixed("s", parameter.values[1]).encode([true]), np.empty((1, 0)))
    space = Space((parameter,))
    assert space.parse("stirred", true) == parameter.values[1]
    assert assignments(space, ["stirred=true"]) == {"stirred": parameter.values[1]}


def test_what_is_not_true_or_false_is_refused_with_quotes_that_tell():
    with pytest.raises(InputError, match=r"is 'yes'; expected one of False, True$"):
        FLAGS.encode(["yes"])
    with pytest.raises(InputError, match=r"is 'yes'; expected one of 'False', 'True'$"):
        WORDS.encode(["yes"])
    with pytest.raises(InputError, match="is True"):
        Categorical("x", ("yes", "no")).encode([True])
    with pytest.raises(InputError, match="is 'TRUE'"):  # two choices would do
        Categorical("x", ("True", "true")).encode(["TRUE"])
    assert Categorical("x", ("True", "true")).decode(np.eye(2)) == ["True", "true"]
    with pytest.raises(InputError, match="fixed at True"):
        Fixed("s", True).encode(["false"])


@pytest.mark.parametrize("values", ["[true, false]", '["True", "False"]', '["true", "false"]'])
def test_a_space_may_be_written_either_way(tmp_path, values):
    space = Space.from_toml(f'[stirred]\ntype = "categorical"\nvalues = {values}\n')
    path = written(tmp_path / "runs.csv", str)
    history = History.from_csv(path, **WANTED, space=space)
    assert same_columns(history, History.from_frame(COLUMNS, **WANTED, space=space))
    assert history[0].X[:, 0].tolist() == [float(v) for v in COLUMNS["stirred"][:4]]


def same_columns(one, other):
    return all(np.array_equal(a.X, b.X) for a, b in zip(one, other, strict=True))


def test_true_and_false_beside_another_word_stay_text(tmp_path):
    say = {True: "True", False: "auto"}.__getitem__
    space = History.from_csv(written(tmp_path / "runs.csv", say), **WANTED).space
    assert space["stirred"] == Categorical("stirred", ("True", "auto"))


def test_an_output_of_true_and_false_is_noted():
    flags = {**COLUMNS, "y": COLUMNS["stirred"], "stirred": list(range(8))}
    history = History.from_frame(flags, **WANTED)
    assert any("y holds true and false, taken as 1 and 0" in n for n in history.report.notes)


@pytest.mark.parametrize("default", [True, "true", "True"])
def test_a_default_is_written_as_the_column_writes_it(default):
    stirred = [None if i in (2, 5) else v for i, v in enumerate(COLUMNS["stirred"])]
    for values, known in ((stirred, (False, True)), (map(_word, stirred), ("False", "True"))):
        table = {**COLUMNS, "stirred": list(values)}
        history = History.from_frame(table, **WANTED, defaults={"stirred": default})
        assert history.space["stirred"].values == known
        assert history.report.kept == 8


def _word(value):
    return None if value is None else str(value)
