"""ADBC over Flight SQL: every type, parameters, transactions, ingestion, cancelling, metadata, errors."""

import datetime
import decimal
import os
import threading
import time

import adbc_driver_flightsql.dbapi
import adbc_driver_manager
import pyarrow

checks = 0


def same(found, expected):
    global checks
    checks += 1
    assert found == expected, f"{found!r} instead of {expected!r}"


def fails(state, action):
    global checks
    checks += 1
    try:
        action()
    except adbc_driver_manager.Error as error:
        details = dict((key, value) for key, value in error.details)
        assert details.get(b"sqlstate") == state.encode(), f"{details} {error}"
        assert f"(SQLSTATE {state})" in str(error), str(error)
        return
    raise AssertionError(f"no error instead of {state}")


UTC = datetime.timezone.utc
KINDS = [
    ("boolean", "true", True),
    ("smallint", "-32768", -32768),
    ("integer", "2147483647", 2**31 - 1),
    ("bigint", "-9223372036854775808", -(2**63)),
    ("real", "0.5", 0.5),
    ("double precision", "'1e300'", 1e300),
    ("numeric(12,2)", "-1234567890.12", decimal.Decimal("-1234567890.12")),
    ("numeric(38,10)", "123456789012345678901.0123456789", decimal.Decimal("123456789012345678901.0123456789")),
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
        bytes.fromhex("0123456789abcdef0123456789abcdef"),
    ),
]

address = f"grpc://127.0.0.1:{os.environ['FIRN_FLIGHT_PORT']}"
user = {"username": os.environ["PGUSER"], "password": os.environ["PGPASSWORD"]}


def connect(autocommit=False, **options):
    return adbc_driver_flightsql.dbapi.connect(address, db_kwargs={**user, **options}, autocommit=autocommit)


fails("28P01", lambda: connect(password="wrong"))
fails(
    "28000",
    lambda: adbc_driver_flightsql.dbapi.connect(address).cursor().execute("SELECT 1"),
)

with connect() as connection, connection.cursor() as cursor:
    # Types, as strings and as views.
    cursor.execute("CREATE TABLE kinds (id integer, " + ", ".join(f"c{i} {ty}" for i, (ty, *_) in enumerate(KINDS)) + ")")
    cursor.execute("INSERT INTO kinds VALUES (1, " + ", ".join(literal for _, literal, _ in KINDS) + ")")
    same(cursor.rowcount, 1)
    cursor.execute("INSERT INTO kinds VALUES (2)")
    connection.commit()
    views = connect(**{"adbc.flight.sql.rpc.call_header.x-firn-strings": "view"})
    for other, text in ((connection, pyarrow.string()), (views, pyarrow.string_view())):
        with other.cursor() as reading:
            reading.execute("SELECT * FROM kinds ORDER BY id")
            table = reading.fetch_arrow_table()
            same(table.schema.field("c8").type, text)
            rows = table.to_pylist()
            for i, (ty, _, expected) in enumerate(KINDS):
                same((ty, rows[0][f"c{i}"]), (ty, expected))
                same((ty, rows[1][f"c{i}"]), (ty, None))
    views.close()
    cursor.execute("SELECT ARRAY[1, NULL, 3] AS a, ARRAY['x'] AS b")
    same(cursor.fetchone(), ([1, None, 3], ["x"]))

    # Parameters; the same prepared statement before and after a commit.
    for round in range(2):
        cursor.execute("SELECT c8 FROM kinds WHERE id = $1 AND c6 < $2", (1, decimal.Decimal("0.5")))
        same(cursor.fetchone(), ("Schnee, снег, 雪",))
        connection.commit()
    for first in (10, 20):
        cursor.executemany("INSERT INTO kinds (id, c8) VALUES (?, ?)", [(first, "x"), (first + 1, None)])
        connection.commit()
    cursor.execute("SELECT count(*), count(c8) FROM kinds WHERE id >= 10")
    same(cursor.fetchone(), (4, 2))

    # Many rows.
    cursor.execute("SELECT g AS id, 'row ' || g AS name FROM generate_series(1, 300000) g ORDER BY g")
    table = cursor.fetch_arrow_table()
    same((table.num_rows, table.column("name")[299_999].as_py()), (300_000, "row 300000"))

    # Transactions.
    cursor.execute("DELETE FROM kinds")
    same(cursor.rowcount, 6)
    connection.rollback()
    cursor.execute("SELECT count(*) FROM kinds")
    same(cursor.fetchone(), (6,))
    fails("42P01", lambda: cursor.execute("SELECT * FROM nowhere"))
    fails("25P02", lambda: cursor.execute("SELECT 1"))
    connection.rollback()

    # Settings of the session.
    cursor.execute("CREATE SCHEMA shop")
    cursor.execute("SET search_path = shop")
    connection.commit()
    cursor.execute("SHOW search_path")
    same(cursor.fetchone(), ("shop",))
    same(connection.adbc_current_db_schema, "shop")
    connection.adbc_current_db_schema = "public"
    same(connection.adbc_current_db_schema, "public")

    # Ingestion.
    data = pyarrow.table({"a": [1, 2, 3], "b": ["x", None, "снег"], "c": pyarrow.array(["p", "p", "q"]).dictionary_encode()})
    same(cursor.adbc_ingest("ingested", data, mode="create"), 3)
    same(cursor.adbc_ingest("ingested", data, mode="append"), 3)
    fails("42P07", lambda: cursor.adbc_ingest("ingested", data, mode="create"))
    connection.rollback()
    same(cursor.adbc_ingest("ingested", data, mode="create_append"), 3)
    same(cursor.adbc_ingest("ingested", data, mode="replace"), 3)
    connection.commit()
    cursor.execute("SELECT count(*), count(b), sum(a)::bigint FROM ingested")
    same(cursor.fetchone(), (3, 2, 6))

    # Lists are arrays.
    same(cursor.adbc_ingest("lists", pyarrow.table({"l": [[1, 2]]}), mode="create"), 1)
    connection.commit()
    cursor.execute("SELECT l, pg_typeof(l)::text FROM lists")
    same(cursor.fetchone(), ([1, 2], "bigint[]"))
    cursor.execute("DROP TABLE lists")
    connection.commit()

    # Metadata.
    cursor.execute("CREATE TABLE shop.orders (number bigint PRIMARY KEY, note text)")
    connection.commit()
    same(connection.adbc_get_info()["vendor_name"], "FirnDB")
    same(connection.adbc_get_table_types(), ["SYSTEM TABLE", "SYSTEM VIEW", "TABLE", "VIEW"])
    same(connection.adbc_get_table_schema("orders", db_schema_filter="shop").names, ["number", "note"])
    same(cursor.adbc_execute_schema("SELECT a, b FROM ingested").names, ["a", "b"])
    objects = connection.adbc_get_objects(depth="all", db_schema_filter="shop").read_all().to_pylist()
    (orders,) = objects[0]["catalog_db_schemas"][0]["db_schema_tables"]
    same([column["column_name"] for column in orders["table_columns"]], ["number", "note"])

    # A query that another thread cancels stops, and the connection remains usable.
    cursor.execute("SELECT count(*) FROM generate_series(1, 10000000) a, generate_series(1, 10000000) b")
    threading.Timer(0.5, cursor.adbc_cancel).start()
    began = time.monotonic()
    try:
        cursor.fetchone()
        raise AssertionError("the query ended")
    except (adbc_driver_manager.Error, pyarrow.ArrowException, OSError):
        checks += 1
    assert time.monotonic() - began < 30
    connection.rollback()
    cursor.execute("SELECT 1")
    same(cursor.fetchone(), (1,))

# Without a transaction every statement commits, a batch of rows as a whole.
with connect(autocommit=True) as connection, connection.cursor() as cursor:
    cursor.execute("CREATE TABLE alone (a integer PRIMARY KEY)")
    fails("23505", lambda: cursor.executemany("INSERT INTO alone VALUES ($1)", [(1,), (2,), (1,)]))
    cursor.executemany("INSERT INTO alone VALUES ($1)", [(1,), (2,)])
    cursor.execute("SELECT count(*) FROM alone")
    same(cursor.fetchone(), (2,))

# A connection that is closed inside a transaction leaves nothing behind.
with connect(autocommit=True) as watcher, watcher.cursor() as watching:
    connection = connect()
    cursor = connection.cursor()
    cursor.execute("INSERT INTO alone VALUES (3)")
    open_blocks = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
    watching.execute(open_blocks)
    same(watching.fetchone(), (1,))
    cursor.close()
    connection.close()
    watching.execute(open_blocks)
    same(watching.fetchone(), (0,))
    watching.execute("SELECT count(*) FROM alone")
    same(watching.fetchone(), (2,))
print(f"{checks} checks")
