"""What was once wrong in silence: settings that look like times, thousands, scales, exports."""

from __future__ import annotations

import re

import numpy as np
import optuna
import pandas as pd
import pytest

from metakel.data import History
from metakel.errors import InputError
from metakel.space import Float, Integer

# Of scikit-learn, XGBoost, LightGBM, CatBoost, Keras and PyTorch scripts.
PARAMETERS = re.findall(
    r"\w+",
    """
    min_samples_split min_samples_leaf min_weight_fraction_leaf min_impurity_decrease max_depth
    max_features max_leaf_nodes ccp_alpha n_estimators learning_rate learning_rate_init subsample
    validation_fraction n_iter_no_change tol max_iter C gamma coef0 degree nu alpha l1_ratio power_t
    hidden_layer_sizes momentum beta_1 beta_2 epsilon eta min_child_weight max_delta_step
    colsample_bytree colsample_bylevel reg_alpha reg_lambda scale_pos_weight max_bin
    grow_policy_weight num_leaves min_child_samples min_split_gain min_data_in_leaf
    min_sum_hessian_in_leaf min_gain_to_split bagging_fraction bagging_freq feature_fraction
    lambda_l1 lambda_l2 path_smooth cat_smooth depth iterations l2_leaf_reg random_strength
    bagging_temperature border_count od_wait rsm model_size_reg leaf_estimation_iterations
    batch_size dropout recurrent_dropout weight_decay label_smoothing warmup_steps epochs units
    gradient_clip_val eta_min T_max min_lr min_delta rho width_multiplier
    """,
)


def one_column(name, values):
    n, rng = len(values), np.random.default_rng(0)
    table = {"data": [f"t{i % 4}" for i in range(n)], name: values, "other": rng.uniform(size=n)}
    return History.from_frame({**table, "auc": rng.uniform(size=n)}, task="data", output="auc")


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_of_well_known_libraries_are_kept(name):
    assert len(PARAMETERS) >= 60
    drawn = np.random.default_rng(1).uniform(0.1, 9, 40)
    assert name in one_column(name, drawn).space.names
    assert name in one_column(name, np.random.default_rng(1).integers(1, 200, 40)).space.names


@pytest.mark.parametrize(
    "name", ["fit_time", "train_time_s", "total (min)", "elapsed_min", "Dauer", "seconds"]
)
def test_measured_times_are_left_out(name):
    drawn = np.random.default_rng(1).uniform(0.1, 9, 40)
    assert name not in one_column(name, drawn).space.names
    assert "seconds" not in one_column("seconds", drawn.round(1)).space.names


def german(path, dose, other=("0,52", "1,5", "0,7", "2,25")):
    lines = ["Versuch;Dosis;Rate;Ausbeute"]
    lines += [f"{'AB'[i % 2]};{dose[i % 4]};{other[i % 4]};{60 + i},5" for i in range(8)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return History.from_csv(path, task="Versuch", output="Ausbeute")


def test_points_between_thousands_where_commas_are_decimal(tmp_path):
    history = german(tmp_path / "a.csv", ("950", "1.050", "2.000", "12.500"))
    assert history.space["Dosis"].low == 950
    assert history.space["Dosis"].high == 12500
    assert "Dosis has points between thousands: 1.050 is read as 1050" in str(history.report)
    mixed = german(tmp_path / "b.csv", ("950", "1.050,5", "2.000", "800,25"))
    assert (mixed.space["Dosis"].low, mixed.space["Dosis"].high) == (800.25, 2000)
    points = german(
        tmp_path / "c.csv", ("0.5", "1.05", "2.000", "1.25")
    )  # decimal, whatever others
    assert (points.space["Dosis"].low, points.space["Dosis"].high) == (0.5, 2)


@pytest.mark.parametrize("unit", ["", " rpm"])
def test_points_between_thousands_where_other_readings_are_absurd(tmp_path, unit):
    lines = ["batch;speed;yield"]
    lines += [
        f"b{i % 2};{('950', '1.050', '2.000', '704')[i % 4]}{unit};{60 + i}" for i in range(8)
    ]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    history = History.from_csv(tmp_path / "t.csv", task="batch", output="yield")
    assert (history.space["speed"].low, history.space["speed"].high) == (704, 2000)
    assert re.search("1.050( rpm)?'? is read as 1050", str(history.report))


def test_a_long_minus_and_other_separators_are_read(tmp_path):
    lines = ["batch|heat|yield", *(f"b{i % 2}|−{i},5 °C|−{60 + i},5" for i in range(1, 9))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    history = History.from_csv(tmp_path / "t.csv", task="batch", output="yield")
    assert history.space["heat"].low == -8.5
    assert max(task.y.max() for task in history) == -61.5


def test_thousands_of_an_output_are_refused_by_name(tmp_path):
    lines = ["batch,rate,yield", *(f'b{i % 2},0.{i},"{i},146"' for i in range(1, 9))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    with pytest.raises(InputError, match=r"'yield' holds '1,146' in line 2.*decimals or thousands"):
        History.from_csv(tmp_path / "t.csv", task="batch", output="yield")


def test_labels_that_differ_only_in_case_or_spaces_are_one_task():
    rng = np.random.default_rng(0)
    labels = ["bupa", "Bupa", " bupa ", "iris", "IRIS", "wine"] * 4
    table = {"data": labels, "x": rng.uniform(size=24), "auc": rng.uniform(size=24)}
    history = History.from_frame(table, task="data", output="auc")
    assert [(task.name, task.n) for task in history] == [("bupa", 12), ("iris", 8), ("wine", 4)]
    assert "'bupa' and 'Bupa' and ' bupa ' differ only in case or spaces" in str(history.report)


def test_exact_copies_with_an_empty_cell_are_copies():
    row = {"data": "a", "x": 0.5, "remark": None, "other": float("nan"), "auc": 0.7}
    rows = [{**row, "data": "ab"[i % 2], "x": i / 10, "auc": i / 7} for i in range(10)]
    rows += [{**row, "other": 1.0}, rows[3], rows[4]]
    table = {name: [r[name] for r in rows] for name in row}
    assert History.from_frame(table, task="data", output="auc").report.duplicates == 2


# Per cent and shares


def formatted(tmp_path, name, cells):
    """A workbook with an output of cells, each a value or a value and its number format."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["Substrate", "Heat", name])
    for i, (value, form) in enumerate(cells):
        book.active.append(["AB"[i % 2], 40.5 + i, value])
        book.active.cell(i + 2, 3).number_format = form
    book.save(tmp_path / "runs.xlsx")
    history = History.from_excel(tmp_path / "runs.xlsx", task="Substrate", output=name)
    return sorted(np.concatenate([t.y for t in history]).tolist()), str(history.report)


SHARE_CELLS = [(0.07, "0.0%"), (0.632, "0.00%"), (0.8, "0%"), (0.941, "0.0%"), (1, "0%")]
IN_PER_CENT = [7, 63.2, 80, 94.1, 100]


def test_cells_shown_as_per_cent_are_per_cent_where_the_column_says_so(tmp_path):
    values, report = formatted(tmp_path, "Yield (%)", SHARE_CELLS)
    assert values == IN_PER_CENT
    assert "Yield (%) has cells in the format per cent (row 2, 3, 4, 5, 6): 7% is read as 7" in (
        report
    )
    assert formatted(tmp_path, "Yield", SHARE_CELLS)[0] == [0.07, 0.632, 0.8, 0.941, 1]
    literal = [(63.2, '0.0"%"'), (94.1, "0.0\\%"), (94.5, "0.0"), (95.0, "General")]
    assert formatted(tmp_path, "Yield (%)", literal)[0] == [63.2, 94.1, 94.5, 95]


def test_plain_numbers_among_cells_shown_as_per_cent_decide_or_are_refused(tmp_path):
    above, below = [(93.5, "General"), (0.5, "0.0")], [(0.93, "General"), (0.5, "0.0")]
    values, report = formatted(tmp_path, "Yield (%)", SHARE_CELLS + above)
    assert values == sorted([*IN_PER_CENT, 0.5, 93.5])
    assert "beside plain numbers as they are" in report
    assert formatted(tmp_path, "Yield", SHARE_CELLS + above[:1])[0] == sorted([*IN_PER_CENT, 93.5])
    values, report = formatted(tmp_path, "Yield", SHARE_CELLS + below)
    assert values == sorted([0.07, 0.5, 0.632, 0.8, 0.93, 0.941, 1])
    assert "7% is read as 0.07" in report
    for name, cells in (("Yield (%)", below), ("Yield", above)):
        with pytest.raises(InputError, match=r"\(row 2, 3, 4, 5, 6\) beside plain .* in row 7"):
            formatted(tmp_path, name, SHARE_CELLS + cells)


def scaled(output, factors, **options):
    rng, n = np.random.default_rng(0), 12 * len(factors)
    values = rng.uniform(0.4, 0.95, n) * np.repeat(factors, 12)
    table = {
        "data": np.repeat([f"t{s}" for s in range(len(factors))], 12),
        "x": rng.uniform(size=n),
    }
    return History.from_frame({**table, output: values}, task="data", output=output, **options)


@pytest.mark.parametrize("output", ["accuracy", "Yield (%)", "val_auc"])
def test_shares_in_some_tasks_and_per_cent_in_others_are_refused(output):
    with pytest.raises(InputError, match=r"1 in 2 tasks \(t0, t2; .* in 1 \(t1; .* by 100"):
        scaled(output, [1, 100, 1])
    for factors in ([1, 1, 1], [100, 100, 100], [1, 10, 100], [0.01, 1, 0.1], [0.1, 0.1, 100]):
        assert scaled(output, factors).m == 3


def test_two_scales_that_may_be_meant_are_noted():
    for output, factors in (("rmse", [1, 100]), ("titre", [1, 1000]), ("Yield (%)", [0.1, 100])):
        report = str(scaled(output, factors, minimize=output == "rmse").report)
        assert "is this one unit?" in report
    assert "is this one unit?" not in str(scaled("rmse", [1, 10], minimize=True).report)


@pytest.mark.parametrize("texts", [["76,7 %", "43 %"], ["76 %"]])
def test_per_cent_cells_beside_texts_in_per_cent(tmp_path, texts):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    page = book.active
    page.append(["batch", "heat", "Yield"])
    for k in range(18):
        cells = [*texts, 0.51]
        page.append([f"b{k // 6}", 30 + 7 * k % 19, cells[k % len(cells)]])
        if k % len(cells) == len(texts):
            page.cell(page.max_row, 3).number_format = "0.0%"
    book.save(tmp_path / "runs.xlsx")
    history = History.from_excel(tmp_path / "runs.xlsx", task="batch", output="Yield")
    values = {float(y) for task in history for y in task.y}
    assert values == {51.0, *(float(t.removesuffix(" %").replace(",", ".")) for t in texts)}
    assert "51% is read as 51" in str(history.report)


@pytest.mark.parametrize("name", ["Yield", "Yield (%)"])
def test_bounds_in_per_cent_beside_numbers(tmp_path, name):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["batch", "heat", name])
    for i in range(12):
        book.active.append([f"b{i % 2}", 20 + i * i % 11, 0.5 + i / 100 if i % 3 else "<5 %"])
        book.active.cell(i + 2, 3).number_format = "0.0%"
    book.save(tmp_path / "runs.xlsx")
    rows = [f"b{i % 2},{20 + i * i % 11},{50 + i if i % 3 else '<5 %'}" for i in range(12)]
    (tmp_path / "runs.csv").write_text("\n".join([f"batch,heat,{name}", *rows]))
    of_book = History.from_excel(tmp_path / "runs.xlsx", task="batch", output=name)
    of_text = History.from_csv(tmp_path / "runs.csv", task="batch", output=name)
    for one, other in zip(of_book, of_text, strict=True):
        assert one.y == pytest.approx(other.y)
        assert one.y.min() == 5


def test_a_blend_of_whole_numbers_is_found():
    rng = np.random.default_rng(0)
    a, b = rng.integers(10, 60, 60), rng.integers(5, 40, 60)
    table = {"batch": [f"b{k // 10}" for k in range(60)], "a": a, "b": b, "c": 100 - a - b}
    history = History.from_frame({**table, "auc": rng.uniform(size=60)}, task="batch", output="auc")
    assert [str(total) for total in history.space.sums] == ["a + b + c = 100"]
    other = {**table, "c": 100 - a - b + rng.integers(0, 2, 60), "auc": rng.uniform(size=60)}
    assert not History.from_frame(other, task="batch", output="auc").space.sums


@pytest.mark.parametrize(("total", "digits", "parts"), [(100, 0, 3), (100, 0, 5), (1, 2, 4)])
def test_a_blend_of_which_every_part_is_rounded_is_found(total, digits, parts):
    drawn = np.random.default_rng(parts).dirichlet(np.full(parts, 2.0), 60)
    columns = dict(zip("vwxyz", np.round(total * drawn, digits).T, strict=False))
    table = {"batch": [f"b{k // 10}" for k in range(60)], **columns, "auc": drawn[:, 0]}
    sums = History.from_frame(table, task="batch", output="auc", inputs=[*columns]).space.sums
    assert [str(found) for found in sums] == [f"{' + '.join(columns)} = {total}"]


# Optuna's own export


def exported(tmp_path, states=True):
    def objective(trial):
        x, depth = trial.suggest_float("x", 0, 1), trial.suggest_int("depth", 1, 9)
        if states and trial.number == 3:
            raise ValueError
        if states and trial.number == 5:
            raise optuna.TrialPruned
        return (x - 0.3) ** 2 + 0.01 * depth

    frames = []
    for seed in range(3):
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
        study.optimize(objective, n_trials=12, catch=ValueError)
        frames.append(study.trials_dataframe().assign(study=f"s{seed}"))
    path = tmp_path / "trials.csv"
    pd.concat(frames).to_csv(path)
    return path


@pytest.mark.parametrize("states", [True, False])
def test_an_export_of_optuna_is_read_as_the_studies_are(tmp_path, states):
    path = exported(tmp_path, states)
    with pytest.raises(InputError, match="'value' may be either"):
        History.from_csv(path, task="study", output="value")
    history = History.from_csv(path, task="study", output="value", minimize=True)
    assert set(history.space.names) == {"x", "depth"}
    assert isinstance(history.space["x"], Float)
    assert isinstance(history.space["depth"], Integer)
    assert history.total == (30 if states else 36)
    assert [len(task.failed) for task in history] == [int(states)] * 3  # a pruned run is no failure
    assert "an export of Optuna" in str(history.report)


def mlflow_export(x, depth, loss):
    rows = len(x)
    return {
        "run_id": [f"{k:032x}" for k in range(rows)],
        "experiment_id": [f"e{k % 3}" for k in range(rows)],
        "status": ["FINISHED"] * rows,
        "artifact_uri": [f"file:/runs/{k}" for k in range(rows)],
        "start_time": ["2025-05-01 10:00:00"] * rows,
        "metrics.loss": loss,
        "metrics.train_loss": loss / 2,
        "params.x": x,
        "params.depth": depth,
        "tags.mlflow.user": ["me"] * rows,
    }


def wandb_export(x, depth, loss):
    rows = len(x)
    return {
        "Name": [f"brisk-dew-{k}" for k in range(rows)],
        "State": ["crashed" if k == 7 else "finished" for k in range(rows)],
        "Created": ["2025-05-01T10:00:00Z"] * rows,
        "Runtime": np.arange(rows) + 100,
        "Sweep": ["s1"] * rows,
        "experiment_id": [f"e{k % 3}" for k in range(rows)],
        "x": x,
        "depth": depth,
        "loss": np.where(np.arange(rows) == 7, np.nan, loss),
    }


def mlflow_page(x, depth, loss):
    rows = len(x)
    return {
        "Start Time": ["2025-05-01 10:00:00"] * rows,
        "Duration": [f"{k}.5s" if k % 2 else f"{k}.1min" for k in range(rows)],
        "Run ID": [f"{k:032x}" for k in range(rows)],
        "Source Type": ["LOCAL", "NOTEBOOK"] * (rows // 2),
        "Source Name": ["train.py", "tune.py"] * (rows // 2),
        "User": ["ann", "bob"] * (rows // 2),
        "Status": ["FINISHED"] * rows,
        "experiment_id": [f"e{k % 3}" for k in range(rows)],
        "x": x,
        "depth": depth,
        "loss": loss,
    }


def sklearn_export(x, depth, loss):
    rows = len(x)
    return {
        "mean_fit_time": np.linspace(1, 2, rows),
        "std_score_time": np.linspace(1, 2, rows),
        "experiment_id": [f"e{k % 3}" for k in range(rows)],
        "param_x": x,
        "param_depth": depth,
        "params": [str({"x": a, "depth": b}) for a, b in zip(x, depth, strict=True)],
        "split0_test_score": loss - 0.01,
        "mean_test_score": loss,
        "rank_test_score": np.argsort(np.argsort(loss)) + 1,
    }


@pytest.mark.parametrize(
    ("export", "tool", "output"),
    [
        (mlflow_export, "MLflow", "loss"),
        (mlflow_export, "MLflow", "metrics.loss"),
        (mlflow_page, "MLflow", "loss"),
        (wandb_export, "Weights & Biases", "loss"),
        (sklearn_export, "scikit-learn", "mean_test_score"),
    ],
)
def test_the_export_of_a_tool_has_the_names_of_its_parameters(export, tool, output, tmp_path):
    rng = np.random.default_rng(0)
    x, depth = rng.uniform(size=36), rng.integers(1, 9, 36)
    frame = pd.DataFrame(export(x, depth, (x - 0.3) ** 2 + 0.01 * depth))
    frame.to_csv(tmp_path / "runs.csv", index=False)
    history = History.from_csv(
        tmp_path / "runs.csv", task="experiment_id", output=output, minimize=True
    )
    assert set(history.space.names) == {"x", "depth"}
    assert history.total == 36 - (export is wandb_export)
    assert f"an export of {tool}" in str(history.report)


def test_a_running_number_within_each_task_is_no_parameter():
    rng, n = np.random.default_rng(0), 60
    table = {"data": [f"t{i // 15}" for i in range(n)], "step": [i % 15 for i in range(n)]}
    table |= {"x": rng.uniform(size=n), "auc": rng.uniform(size=n)}
    history = History.from_frame(table, task="data", output="auc")
    assert history.space.names == ("x",)
    assert "step is a running number" in str(history.report)
    order, left = rng.permutation(n), rng.permutation(n)[:54]
    for rows in (order, np.sort(left)):  # sorted by something else, or without some runs
        some = {name: np.asarray(cells)[rows] for name, cells in table.items()}
        history = History.from_frame(some, task="data", output="auc")
        assert history.space.names == ("x",)
        assert "step numbers the runs of every task" in str(history.report)
    depth = {**table, "step": rng.integers(1, 16, n)}
    assert "step" in History.from_frame(depth, task="data", output="auc").space.names


@pytest.mark.parametrize(
    ("cells", "noted"),
    [
        (["1.250", "12", "961.107"], True),
        (["1.250", "0.125", "961.107"], False),
        (["1.25", "2.500", "3.125"], False),
    ],
)
def test_points_that_may_stand_between_thousands_have_a_note(tmp_path, cells, noted):
    rows = [f"t{i % 2},{0.1 * (7 * i % 11):.2f},{cells[i % 3]}" for i in range(9)]
    (tmp_path / "t.csv").write_text("\n".join(["task,x,score", *rows]))
    notes = History.from_csv(tmp_path / "t.csv", task="task", output="score").report.notes
    said = [note for note in notes if "is read with a decimal point; if points stand" in note]
    assert bool(said) is noted


def test_a_score_is_maximized_with_a_note_until_somebody_says_so():
    table = {"data": ["a", "b"] * 10, "x": np.linspace(0, 1, 20), "score": np.arange(20) % 7 / 7}
    wanted = {"task": "data", "output": "score"}
    assert "score: larger is taken as better; if" in str(History.from_frame(table, **wanted).report)
    for said in (True, False):
        report = History.from_frame(table, **wanted, minimize=said).report
        assert "taken as better" not in str(report)
