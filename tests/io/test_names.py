"""What names say: an output of which less is better, and columns that are no settings."""

from __future__ import annotations

import pytest

from metakel.data import History
from metakel.errors import InputError
from metakel.io.words import is_bookkeeping, is_metric, small_is_good

ROWS = {"task": ["a", "a", "b", "b"], "rate": [0.1, 0.2, 0.1, 0.3], "y": [1.0, 2.0, 3.0, 4.0]}


def with_output(name: str) -> dict[str, list[object]]:
    return {name if key == "y" else key: list(values) for key, values in ROWS.items()}


@pytest.mark.parametrize(
    "name",
    [
        "loss",
        "RMSE",
        "val_loss",
        "valLogLoss",
        "test-error",
        "train_time",
        "cost",
        "regret",
        "Fehler",
        "Validierungsfehler",
        "Kosten",
        "Laufzeit",
    ],
)
def test_a_loss_is_neither_maximized_nor_minimized_in_silence(name):
    rows = with_output(name)
    with pytest.raises(InputError, match=f"{name}.*minimize=True, or .*minimize=False") as refusal:
        History.from_frame(rows, task="task", output=name)
    assert "--minimize" in refusal.value.as_typed()
    assert "--maximize" in refusal.value.as_typed()
    for minimize, first in ((True, -1.0), (False, 1.0)):
        history = History.from_frame(rows, task="task", output=name, minimize=minimize)
        assert history[0].y[0] == first


@pytest.mark.parametrize("name", ["auc", "y", "yield", "neg_mean_squared_error", "lifetime"])
def test_other_outputs_are_maximized_as_before(name):
    assert not small_is_good(name)
    assert History.from_frame(with_output(name), task="task", output=name)[0].y[0] == 1.0


@pytest.mark.parametrize("name", ["yield", "Yield"])
def test_a_column_with_a_unit_is_offered_for_its_name_without(name):
    rows = {"task": ["a", "b"], "x": [1.0, 2.0], "Yield [%]": [1.0, 2.0], "Year": [1, 2]}
    with pytest.raises(InputError, match=r"did you mean 'Yield \[%\]'\?"):
        History.from_frame(rows, task="task", output=name)
    with pytest.raises(InputError, match=r"no column 'Y'; found"):
        History.from_frame(rows, task="task", output="Y")


@pytest.mark.parametrize(
    "name",
    [
        *("seed", "random_state", "run_id", "Host", "gitCommit", "status"),
        *("Startwert", "Lauf-Nr", "Bemerkung"),
        *("Operator", "technician"),
    ],
)
def test_names_of_bookkeeping(name):
    assert is_bookkeeping(name)


@pytest.mark.parametrize(
    "name",
    [
        *("val_accuracy", "accuracy_test", "rmse", "fit_seconds", "f1", "train_time (s)"),
        *("Genauigkeit", "Testfehler", "Laufzeit"),
        *("Purity HPLC [%]", "conversion", "Ausbeute (isolated)", "GC yield"),
    ],
)
def test_names_of_second_metrics(name):
    assert is_metric(name)


@pytest.mark.parametrize(
    "name",
    [
        "time",
        "reaction_time",
        "error_tolerance",
        "loss_weight",
        "rate",
        "hours",
        "time (h)",
        "p",
        "Zeit",
        "Temperatur",
        "Dauer",
        "training_rate",
        "mutation operator",
        "yield strength",
    ],
)
def test_names_of_settings(name):
    assert not is_metric(name)
    assert not is_bookkeeping(name)
