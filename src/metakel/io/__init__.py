"""Readers: tables, files and studies in, named columns and numeric rows out.

A reader is a function ``read_...`` that returns a `Table`; `metakel.data.History.from_table`
takes what any of them returns.
"""

from metakel.io.columns import Column
from metakel.io.csv_files import csv_columns, read_csv
from metakel.io.excel import excel_columns, read_excel, read_sheets
from metakel.io.optuna import read_optuna
from metakel.io.propose import propose
from metakel.io.rows import read
from metakel.io.schema import Report, Roles, Schema, Table
from metakel.io.stopped import folded
from metakel.io.tables import join_tables, read_frame, read_jsonl, read_parquet, renamed

__all__ = [
    "Column",
    "Report",
    "Roles",
    "Schema",
    "Table",
    "csv_columns",
    "excel_columns",
    "folded",
    "join_tables",
    "propose",
    "read",
    "read_csv",
    "read_excel",
    "read_frame",
    "read_jsonl",
    "read_optuna",
    "read_parquet",
    "read_sheets",
    "renamed",
]
