"""psycopg 3: every type in text and binary, prepared statements, pipelines, COPY, errors."""

import datetime
import decimal
import uuid

import psycopg
from psycopg import sql

checks = 0


def same(found, expected):
    global checks
    checks += 1
    assert found == expected, f"{found!r} instead of {expected!r}"


def raises(kind, action):
    global checks
    checks += 1
    try:
        action()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


UTC = datetime.timezone.utc
KINDS = [
    ("boolean", True),
    ("smallint", -32768),
    ("integer", 2**31 - 1),
    ("bigint", -(2**63)),
    ("real", 0.5),
    ("double precision", 1e300),
    ("numeric(12,2)", decimal.Decimal("-1234567890.12")),
    # A parameter is a plain numeric, which has 22 digits before the point here.
    ("numeric(38,10)", decimal.Decimal("123456789012345678901.0123456789")),
    ("text", "Schnee, снег, 雪 \\ ' \""),
    ("varchar(10)", "firn"),
    ("char(4)", "ab  "),
    ("bytea", bytes(range(256))),
    ("date", datetime.date(1999, 12, 31)),
    ("time", datetime.time(23, 59, 59, 999999)),
    ("timestamp", datetime.datetime(2024, 2, 29, 12, 30, 1, 5)),
    ("timestamptz", datetime.datetime(2024, 2, 29, 12, 30, 1, 5, tzinfo=UTC)),
    ("interval", datetime.timedelta(days=3, hours=4, microseconds=5)),
    ("uuid", uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")),
]

with psycopg.connect(autocommit=True) as connection:
    columns = ", ".join(f"c{i} {kind}" for i, (kind, _) in enumerate(KINDS))
    connection.execute(f"CREATE TABLE kinds (id integer PRIMARY KEY, {columns})")
    values = [value for _, value in KINDS]
    holes = ", ".join(["%s"] * (len(KINDS) + 1))
    connection.execute(f"INSERT INTO kinds VALUES ({holes})", [1, *values])
    connection.execute(f"INSERT INTO kinds VALUES ({holes})", [2, *[None] * len(values)])
    binary_holes = ", ".join(["%b"] * (len(KINDS) + 1))
    connection.execute(f"INSERT INTO kinds VALUES ({binary_holes})", [3, *values])
    for binary in (False, True):
        with connection.cursor(binary=binary) as cursor:
            for key, expected in ((1, values), (2, [None] * len(values)), (3, values)):
                # Often enough that psycopg prepares the statement.
                for _ in range(7):
                    row = cursor.execute("SELECT * FROM kinds WHERE id = %s", [key]).fetchone()
                same(list(row[1:]), expected)
    # Without a prepared statement.
    row = connection.execute("SELECT * FROM kinds WHERE id = %s", [1], prepare=False).fetchone()
    same(list(row[1:]), values)

    # Arrays as results.
    arrays = """
        SELECT ARRAY[1, NULL, 3]::int[], ARRAY['a', 'b c', '', 'NULL', '"'], ARRAY[true, false], ARRAY[1.5, 2.25],
               ARRAY[[1, 2], [3, 4]], array_agg(id ORDER BY id), ARRAY['2024-02-29'::date]
        FROM kinds WHERE id < %s
    """
    expected = (
        [1, None, 3],
        ["a", "b c", "", "NULL", '"'],
        [True, False],
        [decimal.Decimal("1.5"), decimal.Decimal("2.25")],
        [[1, 2], [3, 4]],
        [1, 2],
        [datetime.date(2024, 2, 29)],
    )
    for binary in (False, True):
        with connection.cursor(binary=binary) as cursor:
            same(cursor.execute(arrays, [3]).fetchone(), expected)
            same(cursor.execute("SELECT conkey FROM pg_constraint WHERE conname = 'kinds_pkey'").fetchone(), ([1],))
            same(cursor.execute("SELECT array_agg(id) FROM kinds WHERE id > 100").fetchone(), (None,))

    # Arrays as parameters, as text and in binary, prepared or not.
    for kind, value in KINDS:
        if kind.startswith("char"):
            continue
        column = f"c{[name for name, _ in KINDS].index(kind)}"
        for hole in ("%s", "%b"):
            query = f"SELECT id FROM kinds WHERE {column} = ANY({hole}) ORDER BY id"
            for _ in range(7):
                same(connection.execute(query, [[value]]).fetchall(), [(1,), (3,)])
            same(connection.execute(query, [[value, None]], prepare=False).fetchall(), [(1,), (3,)])
            query = f"SELECT count(*) FROM kinds WHERE {column} <> ALL({hole})"
            same(connection.execute(query, [[value]]).fetchone(), (0,))
    same(connection.execute("SELECT id FROM kinds WHERE id = ANY(%s)", [[]]).fetchall(), [])
    same(connection.execute("SELECT id FROM kinds WHERE id = ANY(%s) ORDER BY id", [[3, 7, 1]]).fetchall(), [(1,), (3,)])
    same(connection.execute("SELECT * FROM unnest(%s::text[])", [["a b", None]]).fetchall(), [("a b",), (None,)])

    # Transactions.
    connection.execute("CREATE TABLE t (a integer PRIMARY KEY, b text)")
    with connection.transaction():
        connection.execute("INSERT INTO t VALUES (1, 'one')")
        with connection.transaction() as inner:
            connection.execute("INSERT INTO t VALUES (2, 'two')")
            raise psycopg.Rollback(inner)
    same(connection.execute("SELECT * FROM t").fetchall(), [(1, "one")])

    # Errors.
    error = raises(psycopg.errors.UniqueViolation, lambda: connection.execute("INSERT INTO t VALUES (1, 'x')"))
    same(error.diag.constraint_name, "t_pkey")
    same((error.diag.severity, error.diag.message_detail), ("ERROR", "Key (a)=(1) already exists."))
    error = raises(psycopg.errors.UndefinedTable, lambda: connection.execute("SELECT * FROM missing"))
    same(error.diag.statement_position, "15")
    raises(psycopg.errors.SyntaxError, lambda: connection.execute("SELEC 1"))
    raises(psycopg.errors.DivisionByZero, lambda: connection.execute("SELECT 1 / %s", [0]))
    raises(psycopg.errors.InvalidTextRepresentation, lambda: connection.execute("SELECT 'x'::integer"))

    # Many parameters at once, and the number of changed rows.
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO t VALUES (%s, %s)", [(i, str(i)) for i in range(10, 110)])
        same(cursor.rowcount, 100)
        cursor.execute("UPDATE t SET b = b || '!' WHERE a >= %s RETURNING a", [100])
        same(sorted(row[0] for row in cursor.fetchall()), list(range(100, 110)))
        same(cursor.statusmessage, "UPDATE 10")

    # A pipeline is one transaction up to its sync.
    with connection.pipeline() as pipeline:
        first = connection.execute("SELECT 1")
        second = connection.execute("SELECT 'two'")
        pipeline.sync()
        same((first.fetchone(), second.fetchone()), ((1,), ("two",)))

    def broken_pipeline():
        with connection.pipeline():
            connection.execute("INSERT INTO t VALUES (500, 'lost')")
            connection.execute("SELECT 1 / 0")

    raises(psycopg.errors.DivisionByZero, broken_pipeline)
    same(connection.execute("SELECT count(*) FROM t WHERE a = 500").fetchone(), (0,))

    # COPY in and out.
    connection.execute("CREATE TABLE copied (a integer, b text, c date)")
    rows = [(i, None if i % 3 == 0 else f"row\t{i}\\", datetime.date(2024, 1, 1 + i % 28)) for i in range(2000)]
    with connection.cursor() as cursor:
        with cursor.copy("COPY copied FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        same(cursor.rowcount, 2000)
        with cursor.copy("COPY copied TO STDOUT") as copy:
            copy.set_types(["integer", "text", "date"])
            same(sorted(copy.rows()), sorted(rows, key=lambda row: row[0]))

        def bad_copy():
            with cursor.copy("COPY copied (a) FROM STDIN") as copy:
                copy.write("1\nnot a number\n")

        error = raises(psycopg.DataError, bad_copy)
        same(error.diag.context, 'COPY copied, line 2, column a: "not a number"')
        same(cursor.execute("SELECT count(*) FROM copied").fetchone(), (2000,))

    # COPY in binary: every type, in and out.
    kinds = ["text" if "char" in kind else kind.split("(")[0] for kind, _ in KINDS]
    connection.execute(f"CREATE TABLE kinds_too (id integer PRIMARY KEY, {columns})")
    with connection.cursor() as cursor:
        with cursor.copy("COPY kinds_too FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["integer", *kinds])
            for key in range(1, 3000):
                copy.write_row([key, *(values if key % 2 else [None] * len(values))])
        same(cursor.rowcount, 2999)
        with cursor.copy("COPY (SELECT * FROM kinds_too ORDER BY id) TO STDOUT (FORMAT binary)") as copy:
            copy.set_types(["integer", *kinds])
            copied = list(copy.rows())
        same(len(copied), 2999)
        same(list(copied[0]), [1, *values])
        same(list(copied[2997]), [2998, *[None] * len(values)])
        with cursor.copy("COPY (SELECT id FROM kinds_too WHERE id < 0) TO STDOUT (FORMAT binary)") as copy:
            copy.set_types(["integer"])
            same(list(copy.rows()), [])

        def bad_binary_copy():
            with cursor.copy("COPY kinds_too (id) FROM STDIN (FORMAT binary)") as copy:
                copy.set_types(["bigint"])
                copy.write_row([7000])

        error = raises(psycopg.errors.InvalidBinaryRepresentation, bad_binary_copy)
        same(error.diag.context, "COPY kinds_too, line 1, column id")

    # A server-side cursor.
    with connection.transaction():
        with connection.cursor() as cursor:
            same(sum(1 for _ in cursor.stream("SELECT a FROM copied")), 2000)

    # Cursors of DECLARE, with parameters.
    with connection.transaction():
        with connection.cursor(name="above") as cursor:
            cursor.execute("SELECT g FROM generate_series(1, 10) g WHERE g > %s", [7])
            same(cursor.fetchall(), [(8,), (9,), (10,)])
        with connection.cursor(name="by twos") as cursor:
            cursor.itersize = 2
            cursor.execute("SELECT g, %s::text FROM generate_series(1, %s) g", ["x", 5])
            same(list(cursor), [(i, "x") for i in range(1, 6)])
        with connection.cursor(name="dates") as cursor:
            cursor.execute("SELECT %s::date + %s, %s", ["2030-01-01", 3, None])
            same(cursor.fetchone(), (datetime.date(2030, 1, 4), None))
        with connection.cursor(name="scrolls", scrollable=True) as cursor:
            cursor.execute("SELECT g FROM generate_series(1, %s) g", [5])
            cursor.scroll(3)
            same(cursor.fetchone(), (4,))
            cursor.scroll(0, "absolute")
            same(cursor.fetchone(), (1,))
    with connection.cursor(name="held", withhold=True) as cursor:
        with connection.transaction():
            cursor.execute("SELECT g FROM generate_series(%s::int, %s) g", [1, 3])
        same(cursor.fetchall(), [(1,), (2,), (3,)])
    # A portal of the protocol is no cursor of pg_cursors.
    same(connection.execute("SELECT name FROM pg_cursors").fetchall(), [])

    # Numeric parameters keep their digits: in text, in binary and as strings.
    D = decimal.Decimal
    connection.execute("CREATE TABLE digits (v numeric(38,18), w numeric(38,0), p numeric(38,30))")
    for column, value in (
        ("v", D("0.123456789012345678")),
        ("v", D("-12345678901234567890.000000000000000001")),
        ("w", D("1" * 30)),
        ("w", D("9" * 38)),
        ("p", D("1E-30")),
    ):
        for hole, sent in (("%s", value), ("%b", value), ("%t", value), ("%s", f"{value:f}")):
            insert = f"INSERT INTO digits ({column}) VALUES ({hole}) RETURNING {column}"
            same(connection.execute(insert, [sent]).fetchone(), (value,))
            found = f"SELECT count(*) > 0 FROM digits WHERE {column} = {hole}"
            same(connection.execute(found, [sent]).fetchone(), (True,))
    connection.execute("CREATE TABLE prices (qty integer, price numeric(10,4))")
    connection.execute("INSERT INTO prices VALUES (1, 0.3333), (3, 2)")
    third = D("0.33333")
    for query, sent, expected in (
        ("SELECT CASE WHEN false THEN 1 ELSE {}::numeric END", third, third),
        ("SELECT CASE WHEN false THEN 0.90 ELSE {}::numeric END", third, third),
        ("SELECT sum(CASE WHEN qty > 2 THEN 0 ELSE {}::numeric END) FROM prices", third, third),
        ("SELECT price * CASE WHEN qty > 2 THEN 0.90 ELSE {} END FROM prices WHERE qty = 1", D("0.75"), D("0.249975")),
        ("SELECT lag(0.90, 5, {}::numeric) OVER () FROM prices LIMIT 1", third, third),
        ("SELECT {} + 1", D("0.123456789012345678"), D("1.123456789012345678")),
        ("SELECT {}::text", D("0.123456789012345678"), "0.123456789012345678"),
        ("SELECT sum(x) FROM (VALUES ({}::numeric), (1)) y(x)", D("0.12345678901234567"), D("1.12345678901234567")),
        ("SELECT x FROM (SELECT 1.5 AS x UNION ALL SELECT {}) q ORDER BY x LIMIT 1", D("0.00001"), D("0.00001")),
    ):
        for hole in ("%b", "%t"):
            same(connection.execute(query.format(hole), [sent]).fetchone(), (expected,))
    with connection.cursor() as cursor:
        tiny = [[D("1E-18")], [D("2E-18")]]
        cursor.executemany("INSERT INTO digits (v) VALUES (%s)", tiny)
        same(cursor.execute("SELECT count(*) FROM digits WHERE v IN (%s, %s)", [tiny[0][0], tiny[1][0]]).fetchone(), (2,))
    same(connection.execute("SELECT %s::numeric", [None]).fetchone(), (None,))

    # EXPLAIN as JSON, with parameters, of queries and of row changes.
    connection.execute("CREATE TABLE explained (id integer PRIMARY KEY, a integer)")
    for query, parameters in (
        ("EXPLAIN (FORMAT JSON) SELECT * FROM explained", []),
        ("EXPLAIN (ANALYZE, FORMAT JSON) SELECT count(*) FROM explained WHERE a = 1", []),
        ("EXPLAIN (FORMAT 'json', VERBOSE) SELECT 1", []),
        ("EXPLAIN (FORMAT JSON) SELECT * FROM explained WHERE id = %s", [1]),
        ("EXPLAIN (COSTS off, FORMAT JSON) UPDATE explained SET a = %s WHERE id = %s", [2, 3]),
    ):
        (plan,) = connection.execute(query, parameters).fetchone()
        same(isinstance(plan[0]["Plan"]["Node Type"], str), True)
    connection.execute("EXPLAIN ANALYZE INSERT INTO explained VALUES (%s, %s)", [1, 2])
    same(connection.execute("SELECT id, a FROM explained").fetchall(), [(1, 2)])

    # A cache of three statements: psycopg lets go of the others by DEALLOCATE.
    with psycopg.connect(autocommit=True, prepare_threshold=0) as other:
        other.prepared_max = 3
        for _ in range(2):
            for i in range(12):
                same(other.execute(f"SELECT %s::int + {i}", [1]).fetchone(), (1 + i,))
        same(other.execute("SELECT count(*) <= 4 FROM pg_prepared_statements").fetchone(), (True,))

    # Composed SQL, and parameters whose type differs between calls.
    query = sql.SQL("SELECT {} FROM {} WHERE a = %s").format(sql.Identifier("b"), sql.Identifier("t"))
    for parameter in (1, "1", 1.0, decimal.Decimal(1)):
        same(connection.execute(query, [parameter]).fetchone(), ("one",))

    # Cancelling.
    import threading

    threading.Timer(0.3, connection.cancel_safe).start()
    endless = "SELECT count(*) FROM generate_series(1, 100000000) a, generate_series(1, 100000000) b"
    raises(psycopg.errors.QueryCanceled, lambda: connection.execute(endless))
    same(connection.execute("SELECT 1").fetchone(), (1,))

print(f"{checks} checks")
