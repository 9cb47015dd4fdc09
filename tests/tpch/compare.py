#!/usr/bin/env python3
"""Checks our answers to TPC-H against DuckDB's over the same rows.

    compare.py DIRECTORY VENV

DIRECTORY is the output of `firn-proofs answers`: schema.sql, data/<table>.csv and
answers/q<n>.csv. VENV is a Python environment with the package duckdb; it is created if it is missing.
Our answers are text, and are converted to the types of DuckDB's: exact numbers must be equal, floats may
differ by 1e-9 of their size.

Exit codes: 0 all equal, 1 some differ or DuckDB cannot be installed.
"""

import csv
import datetime
import pathlib
import subprocess
import sys
from decimal import Decimal

QUERIES = pathlib.Path(__file__).resolve().parents[2] / "bench" / "engine" / "sql" / "tpch"
VERSION = "2.0.0"


def main():
    directory, venv = map(pathlib.Path, sys.argv[1:3])
    try:
        import duckdb
    except ImportError:
        return again_with_duckdb(venv)
    database = duckdb.connect()
    database.execute((directory / "schema.sql").read_text())
    for file in sorted((directory / "data").glob("*.csv")):
        database.execute(f"copy {file.stem} from '{file}' (header)")
    wrong = 0
    for file in sorted(QUERIES.glob("q*.sql")):
        with open(directory / "answers" / f"{file.stem}.csv", newline="") as answers:
            ours = list(csv.reader(answers))[1:]
        theirs = database.sql(file.read_text()).fetchall()
        difference = compare(ours, theirs)
        print(f"{file.stem}: {len(theirs)} rows, {difference or 'equal'}")
        wrong += difference is not None
    return 1 if wrong else 0


def again_with_duckdb(venv):
    """Runs this program in an environment that has DuckDB."""
    python = venv / "bin" / "python"
    if not python.exists():
        steps = [
            [sys.executable, "-m", "venv", str(venv)],
            [str(python), "-m", "pip", "install", "--quiet", f"duckdb=={VERSION}"],
        ]
        for step in steps:
            # An index may fail once.
            if subprocess.run(step).returncode != 0 and subprocess.run(step).returncode != 0:
                return 1
    check = subprocess.run([str(python), "-c", "import duckdb"])
    if check.returncode != 0:
        return 1
    return subprocess.run([str(python), __file__, *sys.argv[1:]]).returncode


def compare(ours, theirs):
    """A description of the first difference; None if there is none."""
    if len(ours) != len(theirs):
        return f"we have {len(ours)} rows, DuckDB {len(theirs)}"
    try:
        ours = [[like(cell, model) for cell, model in zip(row, theirs[0], strict=True)] for row in ours]
    except (ValueError, ArithmeticError) as error:
        return f"our cells do not have DuckDB's types: {error!r}"
    difference = first_difference(ours, theirs)
    if difference is None:
        return None
    # Rows that are equal by ORDER BY may come in any order.
    if first_difference(sorted(ours, key=rough), sorted(theirs, key=rough)) is None:
        return None
    return difference


class Average(float):
    """A number of ours in a column of doubles in DuckDB. An average of ours is exact up to the decimals that are
    printed; `slack` is one unit of the last decimal."""

    def __new__(cls, text):
        number = super().__new__(cls, text)
        decimals = len(text.partition(".")[2]) if "e" not in text.lower() else 15
        number.slack = 1.0000001 * 10.0**-decimals
        return number


def like(text, model):
    """A cell of ours, converted to the type that DuckDB has in that column."""
    if text == "":
        return None
    if isinstance(model, float):
        return Average(text)
    if isinstance(model, (int, Decimal)):
        return Decimal(text)
    if isinstance(model, datetime.date):
        return datetime.date.fromisoformat(text)
    return text


def first_difference(ours, theirs):
    for number, (our_row, their_row) in enumerate(zip(ours, theirs), 1):
        for our_cell, their_cell in zip(our_row, their_row):
            if not equal(our_cell, their_cell):
                return f"row {number}: {our_cell!r} is not {their_cell!r} in {their_row}"
    return None


def equal(ours, theirs):
    if isinstance(ours, float) and isinstance(theirs, float):
        return abs(ours - theirs) <= max(ours.slack, 1e-9 * max(abs(ours), abs(theirs)))
    return ours == theirs


def rough(row):
    """A sort key of rows that does not depend on the last digits of their floats."""
    return tuple(f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in row)


sys.exit(main())
