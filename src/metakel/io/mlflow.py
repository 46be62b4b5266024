"""MLflow runs: every experiment is a task, or every value of a tag or parameter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from metakel.errors import InputError
from metakel.io.cleaning import typed
from metakel.io.columns import Column
from metakel.io.schema import Source

TASK = "experiment"
PAGE = 1000
OWN = "mlflow."  # how MLflow's own tags begin

# Task, parameters and value of a run.
Row = tuple[str | None, Mapping[str, str], float | None]


def read_mlflow(
    experiments: Any,
    *,
    output: str,
    task: str | None = None,
    tracking_uri: str | Path | None = None,
    filter_string: str = "",
) -> Source:
    """Runs of MLflow experiments: names, one name, or MLflow's own objects.

    Finished runs count. Parameters are text in MLflow: a column is whole numbers, else numbers,
    else true or false, else text.
    """
    client = _client(tracking_uri)
    found = _experiments(client, experiments)
    label = task or TASK
    rows: list[Row] = []
    metrics: set[str] = set()
    labels: set[str] = set()
    left_out: Counter[str] = Counter()
    for experiment in found:
        for run in _pages(
            client.search_runs,
            experiment_ids=[experiment.experiment_id],
            filter_string=filter_string,
            order_by=["attributes.start_time ASC"],
        ):
            if run.info.status != "FINISHED":
                left_out[run.info.status.lower()] += 1
                continue
            metrics.update(run.data.metrics)
            labels.update(run.data.params, (t for t in run.data.tags if not t.startswith(OWN)))
            marks = {TASK: experiment.name} if task is None else run.data.params | run.data.tags
            rows.append((marks.get(label), run.data.params, run.data.metrics.get(output)))
    if not rows:
        counted = ", ".join(f"{n} {status}" for status, n in left_out.items()) or "no runs"
        raise InputError(f"no finished runs in {', '.join(e.name for e in found)} ({counted})")
    if output not in metrics:
        raise InputError(f"no run has the metric {output!r}; found {', '.join(sorted(metrics))}")
    if task is not None and all(name is None for name, _, _ in rows):
        raise InputError(
            f"no finished run has a tag or parameter {task!r}; found {', '.join(sorted(labels))}"
        )
    notes = [f"{count} runs are {status}" for status, count in left_out.items()]
    lacking = sum(value is None for _, _, value in rows)
    if lacking:
        notes.append(f"{lacking} finished runs have no {output!r}")
    reserved = {output} if task else {output, TASK}
    hidden = reserved & {name for _, params, _ in rows for name in params}
    if hidden:
        notes.append(f"left out, as another column has this name: {', '.join(sorted(hidden))}")
    columns = {label: Column.of([name for name, _, _ in rows])}
    for name in dict.fromkeys(name for _, params, _ in rows for name in params):
        if name not in (label, output):
            columns[name] = Column.of(typed([params.get(name, "") for _, params, _ in rows]))
    columns[output] = Column.of([value for _, _, value in rows])
    failed = left_out.total()
    return Source("MLflow", columns, label, output, failed=failed, notes=tuple(notes))


def _client(tracking_uri: str | Path | None) -> Any:
    try:
        from mlflow import MlflowClient  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        raise ImportError("MLflow runs need mlflow: pip install metakel[mlflow]") from None
    if isinstance(tracking_uri, Path):
        tracking_uri = tracking_uri.absolute().as_uri()
    return MlflowClient(tracking_uri=tracking_uri)


def _experiments(client: Any, wanted: Any) -> list[Any]:
    several = isinstance(wanted, Sequence) and not isinstance(wanted, str)
    found = []
    for entry in wanted if several else [wanted]:
        experiment = client.get_experiment_by_name(entry) if isinstance(entry, str) else entry
        if not hasattr(experiment, "experiment_id"):
            known = ", ".join(sorted(e.name for e in _pages(client.search_experiments)))
            raise InputError(f"there is no MLflow experiment {entry!r}; found {known}")
        found.append(experiment)
    if not found:
        raise InputError("no MLflow experiments were named")
    return found


def _pages(search: Callable[..., Any], **options: Any) -> Iterator[Any]:
    """All that a search of MLflow finds, page by page."""
    token = None
    while True:
        page = search(max_results=PAGE, page_token=token, **options)
        yield from page
        token = page.token
        if not token:
            return
