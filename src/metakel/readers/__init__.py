"""Readers: foreign tables and studies in, named columns and numeric rows out."""

from metakel.readers.assemble import Intake, assemble
from metakel.readers.experiments import read_experiments
from metakel.readers.files import csv_columns, parquet_columns
from metakel.readers.frames import frame_columns
from metakel.readers.report import Report
from metakel.readers.runs import read_runs
from metakel.readers.studies import OUTPUT, TASK, read_studies
from metakel.readers.wanted import Wanted

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
