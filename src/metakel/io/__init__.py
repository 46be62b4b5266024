"""Readers: foreign tables and studies in, named columns and numeric rows out."""

from metakel.io.ax import read_experiments
from metakel.io.encoding import Intake, assemble
from metakel.io.files import csv_columns, parquet_columns
from metakel.io.frames import frame_columns
from metakel.io.mlflow import read_runs
from metakel.io.optuna import OUTPUT, TASK, read_studies
from metakel.io.report import Report
from metakel.io.schema import Wanted

__all__ = [
    "OUTPUT",
    "TASK",
    "Intake",
    "Report",
    "Wanted",
    "assemble",
    "csv_columns",
    "frame_columns",
    "parquet_columns",
    "read_experiments",
    "read_runs",
    "read_studies",
]
