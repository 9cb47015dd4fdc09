"""ADBC over PostgreSQL's protocol: tables of every type by binary COPY, parameters, ingestion, metadata."""

import datetime
import os
import urllib.parse
import uuid

import adbc_driver_manager
import adbc_driver_postgresql.dbapi
import pyarrow

checks = 0


def same(found, expected):
    global checks
    checks += 1
    assert found == expected, f"{found!r} instead of {expected!r}"


UTC = datetime.timezone.utc
# The type, a literal, and its value in ADBC, where a numeric is text.
KINDS = [
    ("boolean", "true", True),
    ("smallint", "-32768", -32768),
    ("integer", "2147483647", 2**31 - 1),
    ("bigint", "-9223372036854775808", -(2**63)),
    ("real", "0.5", 0.5),
    ("double precision", "'1e300'", 1e300),
    ("numeric(12,2)", "-1234567890.12", "-1234567890.12"),
    ("text", "'Schnee, снег, 雪'", "Schnee, снег, 雪"),
    ("varchar(10)", "'firn'", "firn"),
    ("char(4)", "'ab'", "ab  "),
    ("bytea", "'\\x00ff10'", b"\x00\xff\x10"),
    ("date", "'1999-12-31'", datetime.date(1999, 12, 31)),
    ("time", "'23:59:59.999999'", datetime.time(23, 59, 59, 999999)),
    ("timestamp", "'2024-02-29 12:30:01.000005'", datetime.datetime(2024, 2, 29, 12, 30, 1, 5)),
    ("timestamptz", "'2024-02-29 12:30:01.000005+00'", datetime.datetime(2024, 2, 29, 12, 30, 1, 5, tzinfo=UTC)),
    ("interval", "'1 month 2 days 3 seconds'", pyarrow.MonthDayNano([1, 2, 3_000_000_000])),
    (
        "uuid",
        "'01234567-89ab-cdef-0123-456789abcdef'",
        uuid.UUID("01234567-89ab-cdef-0123-456789abcdef"),
    ),
]

password = urllib.parse.quote(os.environ["PGPASSWORD"])
url = f"postgresql://{os.environ['PGUSER']}:{password}@127.0.0.1:{os.environ['PGPORT']}/firn"
with adbc_driver_postgresql.dbapi.connect(url) as connection, connection.cursor() as cursor:
    cursor.execute("CREATE TABLE kinds (id integer, " + ", ".join(f"c{i} {ty}" for i, (ty, *_) in enumerate(KINDS)) + ")")
    cursor.execute("INSERT INTO kinds VALUES (1, " + ", ".join(literal for _, literal, _ in KINDS) + ")")
    cursor.execute("INSERT INTO kinds VALUES (2)")
    connection.commit()
    cursor.execute("SELECT * FROM kinds ORDER BY id")
    rows = cursor.fetch_arrow_table().to_pylist()
    for i, (ty, _, expected) in enumerate(KINDS):
        same((ty, rows[0][f"c{i}"]), (ty, expected))
        same((ty, rows[1][f"c{i}"]), (ty, None))

    # Many rows, over many messages.
    cursor.execute("SELECT g AS id, 'row ' || g AS name FROM generate_series(1, 200000) g ORDER BY g")
    table = cursor.fetch_arrow_table()
    same(table.num_rows, 200_000)
    same(table.column("name")[199_999].as_py(), "row 200000")

    # Parameters, several rows of them, and ingestion.
    cursor.execute("SELECT c7 FROM kinds WHERE id = $1", (1,))
    same(cursor.fetchone(), ("Schnee, снег, 雪",))
    cursor.executemany("INSERT INTO kinds (id, c7) VALUES ($1, $2)", [(3, "x"), (4, None)])
    data = pyarrow.table({"a": [1, 2, 3], "b": ["x", None, "снег"]})
    same(cursor.adbc_ingest("ingested", data, mode="create"), 3)
    same(cursor.adbc_ingest("ingested", data, mode="append"), 3)
    same(cursor.adbc_ingest("ingested", data.slice(0, 0), mode="append"), 0)
    connection.commit()
    cursor.execute("SELECT count(*), count(b), sum(a)::bigint FROM ingested")
    same(cursor.fetchone(), (6, 4, 12))

    # A rolled back change, an error with its SQLSTATE.
    cursor.execute("DELETE FROM ingested")
    connection.rollback()
    cursor.execute("SELECT count(*) FROM ingested")
    same(cursor.fetchone(), (6,))
    try:
        cursor.execute("SELECT * FROM nowhere")
        raise AssertionError("no error")
    except adbc_driver_manager.ProgrammingError as error:
        same(error.sqlstate, "42P01")
    connection.rollback()

    same(connection.adbc_get_table_schema("ingested").names, ["a", "b"])
    objects = connection.adbc_get_objects(depth="tables", catalog_filter="firn").read_all().to_pylist()
    tables = {
        table["table_name"]
        for schema in objects[0]["catalog_db_schemas"]
        if schema["db_schema_name"] == "public"
        for table in schema["db_schema_tables"]
    }
    same(tables, {"kinds", "ingested"})

    # Columns and constraints.
    cursor.execute("CREATE TABLE parents (a integer, b integer, c text UNIQUE, PRIMARY KEY (a, b), CHECK (a > 0))")
    cursor.execute("CREATE TABLE children (id integer PRIMARY KEY, x integer, y integer, FOREIGN KEY (x, y) REFERENCES parents (a, b))")
    connection.commit()
    objects = connection.adbc_get_objects(depth="all", catalog_filter="firn", db_schema_filter="public").read_all().to_pylist()
    tables = {table["table_name"]: table for table in objects[0]["catalog_db_schemas"][0]["db_schema_tables"]}
    same([column["column_name"] for column in tables["children"]["table_columns"]], ["id", "x", "y"])

    def constraints(table):
        return sorted(
            (
                constraint["constraint_type"],
                sorted(constraint["constraint_column_names"]),
                [(usage["fk_table"], usage["fk_column_name"]) for usage in constraint["constraint_column_usage"] or []],
            )
            for constraint in tables[table]["table_constraints"]
        )

    same(constraints("parents"), [("CHECK", ["a"], []), ("PRIMARY KEY", ["a", "b"], []), ("UNIQUE", ["c"], [])])
    foreign_key = ("FOREIGN KEY", ["x", "y"], [("parents", "a"), ("parents", "b")])
    same(constraints("children"), [foreign_key, ("PRIMARY KEY", ["id"], [])])
print(f"{checks} checks")
