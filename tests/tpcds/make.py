#!/usr/bin/env python3
"""Makes TPC-DS: its rows at a hundredth of scale factor 1, and its 99 queries.

    make.py DIRECTORY VENV

Writes DIRECTORY/schema.sql, DIRECTORY/data/<table>.csv and DIRECTORY/queries/<number>.sql, unless they exist. Rows and texts
come from DuckDB's extension tpcds, whose binary is in a package on PyPI; DuckDB checks its signature. VENV is a
Python environment with both; it is created if it is missing.

At this scale there is one store and one warehouse, and few rows meet all conditions of a query. So stores and similar tables
get more rows, and in the dimension tables values are replaced by constants of the queries: for each query some rows
have values that meet its conditions.

Exit codes: 0 all files exist, 77 the packages cannot be installed.
"""

import pathlib
import re
import shutil
import subprocess
import sys

VERSION = "1.5.5"
UNAVAILABLE = 77
# Increased when the output of this program changes.
EDITION = "1"

# The number of rows of tables that would have too few.
MULTIPLIED = {
    "store": 12,
    "warehouse": 5,
    "call_center": 8,
    "web_site": 8,
    "web_page": 12,
    "promotion": 12,
    "reason": 40,
}

# Tables whose columns get constants of the queries, and the prefix of these columns.
CHANGED = {
    "item": "i",
    "store": "s",
    "customer_address": "ca",
    "customer_demographics": "cd",
    "household_demographics": "hd",
    "warehouse": "w",
    "call_center": "cc",
    "web_site": "web",
    "web_page": "wp",
    "promotion": "p",
    "ship_mode": "sm",
}


def main():
    directory, venv = map(pathlib.Path, sys.argv[1:3])
    edition = f"{VERSION} {EDITION}"
    ready = directory / "ready"
    if ready.exists() and ready.read_text() == edition:
        return 0
    try:
        import duckdb
        import duckdb_extension_tpcds
    except ImportError:
        return again_with_duckdb(venv)
    shutil.rmtree(directory, ignore_errors=True)
    (directory / "data").mkdir(parents=True)
    (directory / "queries").mkdir()
    home = pathlib.Path(duckdb_extension_tpcds.__file__).parent
    (extension,) = home.glob(f"extensions/v{duckdb.__version__}/*.duckdb_extension")
    database = duckdb.connect()
    database.execute(f"LOAD '{extension}'")
    database.execute("CALL dsdgen(sf=0.01)")
    queries = database.sql("SELECT query_nr, query FROM tpcds_queries() ORDER BY 1").fetchall()
    for number, query in queries:
        (directory / "queries" / f"{number:02}.sql").write_text(query)
    multiply(database)
    fit(database, [query for _, query in queries])
    schema = []
    for name, sql in database.sql("SELECT table_name, sql FROM duckdb_tables() ORDER BY 1").fetchall():
        # Surrogate keys and counts are integers in the specification, and some are primary keys.
        schema.append(sql.replace("BIGINT", "integer").replace("DECIMAL", "numeric"))
        database.execute(f"COPY (SELECT * FROM {name} ORDER BY ALL) TO '{directory}/data/{name}.csv' (HEADER false)")
    (directory / "schema.sql").write_text("\n".join(schema) + "\n")
    ready.write_text(edition)
    return 0


def again_with_duckdb(venv):
    """Runs this program in an environment that has DuckDB."""
    if "--again" in sys.argv:
        return UNAVAILABLE
    python = venv / "bin" / "python"
    packages = [f"duckdb=={VERSION}", f"duckdb-extension-tpcds=={VERSION}"]
    for step in [
        [sys.executable, "-m", "venv", "--clear", str(venv)],
        ["timeout", "--kill-after=5", "300", str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        + packages,
    ]:
        if subprocess.run(step).returncode != 0:
            return UNAVAILABLE
    return subprocess.run([str(python), __file__, *sys.argv[1:3], "--again"]).returncode


def columns(database, table):
    query = f"SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = '{table}' ORDER BY column_index"
    return dict(database.sql(query).fetchall())


def multiply(database):
    """Adds rows to the smallest tables, and distributes the rows of the fact tables over them."""
    tables = [name for (name,) in database.sql("SELECT table_name FROM duckdb_tables()").fetchall()]
    for table, count in MULTIPLIED.items():
        key, *others = columns(database, table)
        (rows,) = database.sql(f"SELECT count(*) FROM {table}").fetchone()
        database.execute(f"CREATE TEMP TABLE few AS SELECT row_number() OVER (ORDER BY {key}) AS number, * FROM {table}")
        # Two rows share a business key, as versions of one store do.
        identity = others[0]
        rest = [
            f"(left({identity}, 12) || lpad(((n + 1) // 2)::varchar, 4, '0')) AS {name}" if name == identity
            else f"{name} || ' ' || n AS {name}" if name.endswith("_name") and not name.endswith(("street_name", "company_name"))
            else name
            for name in others
        ]
        database.execute(f"DELETE FROM {table}")
        database.execute(
            f"INSERT INTO {table} SELECT n AS {key}, {', '.join(rest)} FROM range(1, {count + 1}) AS r(n) "
            f"JOIN few ON number = (n - 1) % {rows} + 1"
        )
        database.execute("DROP TABLE few")
        # web_site_sk is ws_web_site_sk in a table of facts, and store_sk is s_store_sk where it is a key.
        suffix = key.split("_", 1)[1]
        for fact in tables:
            for name in columns(database, fact):
                if name != key and name.endswith("_" + suffix) and fact not in MULTIPLIED:
                    database.execute(f"UPDATE {fact} SET {name} = 1 + hash(rowid) % {count} WHERE {name} IS NOT NULL")


def fit(database, queries):
    """Gives some rows values that meet the conditions of a query, for each query."""
    for table, prefix in CHANGED.items():
        types = columns(database, table)
        wanted = [conditions(query, prefix, types) for query in queries]
        wanted = [one for one in wanted if one]
        key = next(iter(types))
        database.execute(f"CREATE TEMP TABLE numbers AS SELECT {key} AS k, row_number() OVER (ORDER BY hash({key})) AS n FROM {table}")
        for number, values in enumerate(wanted):
            changes = [
                f"{name} = list_value({', '.join(texts)})[1 + (hash({key}, '{name}') % {len(texts)})::integer]"
                f"::{types[name]}"
                for name, texts in values.items()
            ]
            database.execute(
                f"UPDATE {table} SET {', '.join(changes)} FROM numbers WHERE k = {key} AND n % {len(wanted)} = {number}"
            )
        database.execute("DROP TABLE numbers")
    # Query 59 divides by sums of them; DuckDB's division by 0 is no error.
    database.execute("UPDATE store_sales SET ss_sales_price = 0.01 WHERE ss_sales_price = 0")


def conditions(query, prefix, types):
    """The constants with which a query compares columns of a table."""
    found = {}
    column = rf"\b({prefix}_\w+)"
    literal = r"('(?:[^']|'')*'|\d+(?:\.\d+)?)(?![\w.]*\s*[-+*/])"

    def add(name, texts):
        is_key = name.endswith("_sk") or name.endswith("_id") and types.get(name) == "VARCHAR"
        if name in types and not is_key:
            found.setdefault(name, []).extend(text for text in texts if text not in found.get(name, []))

    # Constants that are compared with a substring are not values of the column.
    for name, text in re.findall(column + r"\s*=\s*" + literal, query):
        add(name, [text])
    for name, texts in re.findall(column + r"\s+IN\s*\(([^()]*)\)", query, re.IGNORECASE):
        texts = re.findall(r"'(?:[^']|'')*'|\b\d+(?:\.\d+)?\b", texts)
        add(name, texts[:20])
    for name, low, high in re.findall(column + r"\s+BETWEEN\s+(\d+(?:\.\d+)?)\s+AND\s+(\d+)", query, re.IGNORECASE):
        if name in types and "VARCHAR" not in types[name]:
            middle = (float(low) + float(high)) / 2
            add(name, [low, f"{middle:.0f}", high])
    return {name: texts for name, texts in found.items() if fits(types[name], texts)}


def fits(ty, texts):
    """Whether constants have a column's type."""
    return all(text.startswith("'") == ("VARCHAR" in ty) for text in texts)


sys.exit(main())
