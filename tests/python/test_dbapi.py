"""DB-API 2.0, in the order of PEP 249."""

import datetime
import inspect
import pickle
from decimal import Decimal

import firndb
import pytest


def filled(connection, rows=5):
    connection.execute("CREATE TABLE t (id integer PRIMARY KEY, name text)")
    connection.executemany("INSERT INTO t VALUES (?, ?)", [(n, f"name {n}") for n in range(rows)])
    connection.commit()
    return connection.cursor()


def test_the_module_says_what_it_keeps_to():
    assert firndb.apilevel == "2.0"
    assert firndb.threadsafety == 2
    assert firndb.paramstyle == "qmark"


def test_exceptions_stand_in_pep_249s_order():
    assert issubclass(firndb.Warning, Exception) and not issubclass(firndb.Warning, firndb.Error)
    assert issubclass(firndb.InterfaceError, firndb.Error)
    assert not issubclass(firndb.InterfaceError, firndb.DatabaseError)
    kinds = ["Data", "Operational", "Integrity", "Internal", "Programming", "NotSupported"]
    for kind in kinds:
        assert issubclass(getattr(firndb, kind + "Error"), firndb.DatabaseError)
    for kind in [*kinds, "Database", "Interface", ""]:
        name = kind + "Error"
        assert getattr(firndb.Connection, name) is getattr(firndb, name)


def test_constructors_and_type_objects(connection):
    moment = firndb.Timestamp(2024, 2, 29, 1, 2, 3)
    assert firndb.Date(2024, 2, 29) == moment.date() and firndb.Time(1, 2, 3) == moment.time()
    ticks = moment.timestamp()
    assert firndb.TimestampFromTicks(ticks) == moment
    assert (firndb.DateFromTicks(ticks), firndb.TimeFromTicks(ticks)) == (moment.date(), moment.time())
    assert connection.execute("SELECT ?", [firndb.Binary(b"\0\xff")]).fetchone() == (b"\0\xff",)
    kinds = {
        "STRING": "text varchar(3) char(3)",
        "BINARY": "bytea",
        "NUMBER": "smallint integer bigint real float numeric numeric(5,2)",
        "DATETIME": "date time timestamp timestamptz interval",
    }
    for kind, types in kinds.items():
        for name in types.split():
            code = connection.execute(f"SELECT NULL::{name}").description[0][1]
            equal = [k for k in [*kinds, "ROWID"] if getattr(firndb, k) == code]
            assert equal == [kind], name
    assert firndb.STRING != firndb.NUMBER and firndb.NUMBER == firndb.NUMBER
    assert len({firndb.STRING, firndb.NUMBER, firndb.STRING}) == 2


def test_description_and_rowcount(connection):
    cursor = filled(connection)
    assert (cursor.description, cursor.rowcount) == (None, -1)
    cursor.execute("SELECT id, name, 1.50::numeric(6,2) AS price, ARRAY[1] AS list FROM t")
    assert cursor.description == [
        ("id", "integer", None, None, None, None, None),
        ("name", "text", None, None, None, None, None),
        ("price", "numeric", None, None, 6, 2, None),
        ("list", "integer[]", None, None, None, None, None),
    ]
    assert len(cursor.fetchall()) == cursor.rowcount == 5
    for statement, rows in [
        ("INSERT INTO t VALUES (10, 'a'), (11, 'b')", 2),
        ("UPDATE t SET name = 'x' WHERE id < 3", 3),
        ("DELETE FROM t WHERE id = 99", 0),
        ("CREATE TABLE u (a integer)", -1),
    ]:
        assert cursor.execute(statement).rowcount == rows
        assert cursor.description is None
    assert cursor.execute("INSERT INTO t VALUES (12, 'c') RETURNING id").fetchall() == [(12,)]
    assert (cursor.rowcount, cursor.statusmessage) == (1, "INSERT 0 1")


def test_rows_are_fetched_one_some_and_all(connection):
    cursor = filled(connection, 1000)
    query = "SELECT id FROM t ORDER BY id"
    assert cursor.execute(query).arraysize == 1
    assert cursor.fetchone() == (0,)
    assert cursor.fetchmany() == [(1,)]
    assert cursor.fetchmany(2) == [(2,), (3,)]
    cursor.arraysize = 3
    assert cursor.fetchmany() == [(4,), (5,), (6,)]
    assert cursor.fetchmany(0) == []
    assert next(cursor) == (7,)
    assert cursor.fetchall() == [(n,) for n in range(8, 1000)]
    assert (cursor.fetchone(), cursor.fetchmany(5), cursor.fetchall()) == (None, [], [])
    assert [row for row in cursor.execute(query)] == [(n,) for n in range(1000)]
    with pytest.raises(ValueError):
        cursor.fetchmany(-1)


def test_what_yields_no_rows_cannot_be_fetched_from(connection):
    cursor = connection.cursor()
    for fetch in [cursor.fetchone, cursor.fetchmany, cursor.fetchall, cursor.arrow]:
        with pytest.raises(firndb.Error):
            fetch()
    cursor.execute("CREATE TABLE t (a integer)")
    for fetch in [cursor.fetchone, cursor.fetchmany, cursor.fetchall, cursor.arrow]:
        with pytest.raises(firndb.ProgrammingError, match="yields no rows"):
            fetch()


def test_parameters_are_question_marks_or_numbers(connection):
    one = lambda sql, values: connection.execute(sql, values).fetchone()
    assert one("SELECT ?, '?', ?", (1, "x")) == (1, "?", "x")
    assert one("SELECT $2, $1, $2", [1, "x"]) == ("x", 1, "x")
    assert one("SELECT ?||'?' -- ?", iter(["a"])) == ("a?",)
    assert one("SELECT 1", ()) == (1,)
    connection.execute("CREATE TABLE t (a integer)")
    for sql, values, kind in [
        ("SELECT ?", (), firndb.ProgrammingError),
        ("SELECT ?", (1, 2), firndb.ProgrammingError),
        ("SELECT ?, $1", (1,), firndb.ProgrammingError),
        ("SELECT ?", "x", TypeError),
        ("SELECT ?", {"a": 1}, firndb.ProgrammingError),
        ("SELECT ?", (object(),), TypeError),
        ("SELECT ?", ({"a": 1},), TypeError),
    ]:
        with pytest.raises(kind):
            connection.execute(sql, values)
        connection.rollback()


def test_parameters_may_have_names(connection):
    one = lambda sql, values: connection.execute(sql, values).fetchone()
    # A cast, a slice, a string and a comment contain no parameters. A name is case-sensitive and may be a keyword.
    row = one("SELECT $a::text, '$b', ($list::int[])[1:2], $A, $select || $a -- $c", {"a": "x", "list": [1, 2, 3], "A": 7, "select": "y", "z": object()})
    assert row == ("x", "$b", [1, 2], 7, "yx")
    assert one("SELECT 1", {}) == (1,)
    connection.execute("CREATE TABLE t (id integer PRIMARY KEY, name text)")
    connection.executemany("INSERT INTO t VALUES ($id, $name)", [{"id": n, "name": None} for n in range(3)])
    assert one("SELECT count(*) FROM t WHERE id < $most", {"most": 2}) == (2,)
    connection.commit()
    for sql, values, state, message in [
        ("SELECT $a", {"b": 1}, "42P02", r"there is no value for parameter \$a"),
        ("SELECT $a, ?", {"a": 1}, "42601", "values with names are for parameters with names"),
        ("SELECT $1", {"a": 1}, "42601", "values with names are for parameters with names"),
        ("SELECT $a", (1,), "42601", "Give the values of .name as a dict"),
        ("SELECT $a", None, "42601", "Give the values of .name as a dict"),
    ]:
        with pytest.raises(firndb.ProgrammingError, match=message) as caught:
            connection.execute(sql, values)
        assert caught.value.sqlstate == state
        connection.rollback()
    for rows in ([{"id": 8}, (9,)], [(8,), {"id": 9}]):
        with pytest.raises(TypeError, match="all sequences or all mappings"):
            connection.executemany("INSERT INTO t VALUES ($id)", rows)
    # Positions are those in the original text.
    with pytest.raises(firndb.ProgrammingError) as caught:
        connection.execute("SELECT $parameter::int, nonsense", {"parameter": 1})
    assert caught.value.position == 25
    connection.rollback()


def test_arrays_in_returning_are_lists(connection):
    connection.execute("CREATE TABLE t (id integer PRIMARY KEY, l integer[], s text[])")
    changed = connection.execute("INSERT INTO t VALUES (1, ?, ?) RETURNING l, s, l[2], ARRAY[l, l]", ([1, None], ["a", "b,c"]))
    assert changed.description[0][1] == "integer[]"
    assert changed.fetchall() == [([1, None], ["a", "b,c"], None, [[1, None], [1, None]])]
    table = connection.execute("UPDATE t SET l = l || 3 RETURNING l, s").arrow()
    assert table.to_pylist() == [{"l": [1, None, 3], "s": ["a", "b,c"]}]
    assert connection.execute("DELETE FROM t RETURNING s").fetchone() == (["a", "b,c"],)


def test_a_parameters_type_is_the_statements_or_the_values_own(connection):
    connection.execute("CREATE TABLE t (i integer PRIMARY KEY, n numeric(10,2), d date, s text, f real)")
    connection.execute("INSERT INTO t VALUES (2, 1.50, '2024-01-01', '2', 0.1)")
    found = lambda where, value: len(connection.execute(f"SELECT i FROM t WHERE {where}", (value,)).fetchall())
    # Values that the column's type cannot represent are compared exactly, not rounded to it.
    assert found("i = ?", 2) == 1
    assert found("i = ?", 1.5) == 0
    assert found("i = ?", 2.0) == 1
    assert found("i < ?", 2**40) == 1
    assert found("i = ?", "2") == 1
    assert found("n = ?", Decimal("1.504")) == 0
    assert found("n = ?", 1.5) == 1
    assert found("n > ?", 10**20) == 0
    assert found("d = ?", "2024-01-01") == 1
    assert found("d = ?", datetime.datetime(2024, 1, 1, 12)) == 0
    assert found("f = ?", 0.1) == 1
    assert found("i = ANY (?)", [1, 2]) == 1
    assert found("i = ANY (?)", "{1,2}") == 1
    assert found("i + ? = 5", 3) == 1
    with pytest.raises(firndb.ProgrammingError):
        found("s = ?", 2)
    connection.rollback()
    # Values are assigned to columns by SQL's rules, and those out of range are refused.
    connection.execute("CREATE TABLE u (i smallint, n numeric(4,1), s text)")
    assert connection.execute(
        "INSERT INTO u VALUES (?, ?, ?) RETURNING i, n, s", (1.6, 2.25, 3)
    ).fetchone() == (2, Decimal("2.3"), "3")
    with pytest.raises(firndb.DataError) as caught:
        connection.execute("INSERT INTO u VALUES (?, 1, '')", (2**40,))
    assert caught.value.sqlstate == "22003"
    connection.rollback()


def test_executemany_does_all_or_nothing(auto):
    auto.execute("CREATE TABLE t (id integer PRIMARY KEY, x text)")
    cursor = auto.executemany("INSERT INTO t VALUES (?, ?)", ((n, str(n)) for n in range(100)))
    assert cursor.rowcount == 100
    with pytest.raises(firndb.IntegrityError):
        auto.executemany("INSERT INTO t VALUES (?, ?)", [(100, "x"), (5, "twice")])
    assert auto.execute("SELECT count(*) FROM t").fetchone() == (100,)
    assert not auto.in_transaction
    assert auto.executemany("INSERT INTO t VALUES (?, ?)", []).rowcount == 0
    # Values of several types with one statement.
    auto.executemany("UPDATE t SET x = ? WHERE id = ?", [(1, 1), ("a", 2), (None, 3), (1.5, 4)])
    rows = auto.execute("SELECT x FROM t WHERE id BETWEEN 1 AND 4 ORDER BY id").fetchall()
    assert rows == [("1",), ("a",), (None,), ("1.5",)]
    with pytest.raises(firndb.ProgrammingError):
        auto.executemany("SELECT ?", [(1,)])


def test_commit_and_rollback(connection):
    cursor = filled(connection)
    assert not connection.in_transaction
    cursor.execute("DELETE FROM t")
    assert connection.in_transaction
    other = connection.connect()
    assert other.execute("SELECT count(*) FROM t").fetchone() == (5,)
    other.rollback()
    connection.rollback()
    assert cursor.execute("SELECT count(*) FROM t").fetchone() == (5,)
    cursor.execute("DELETE FROM t WHERE id = 1")
    connection.commit()
    assert other.execute("SELECT count(*) FROM t").fetchone() == (4,)
    connection.commit()
    connection.rollback()
    other.close()


def test_a_failed_transaction_is_not_committed_silently(connection):
    cursor = filled(connection)
    cursor.execute("INSERT INTO t VALUES (9, 'lost')")
    with pytest.raises(firndb.IntegrityError):
        cursor.execute("INSERT INTO t VALUES (9, 'twice')")
    with pytest.raises(firndb.InternalError) as caught:
        cursor.execute("SELECT 1")
    assert caught.value.sqlstate == "25P02"
    with pytest.raises(firndb.InternalError):
        connection.commit()
    connection.rollback()
    assert cursor.execute("SELECT count(*) FROM t").fetchone() == (5,)


def test_autocommit(connection):
    assert connection.autocommit is False
    connection.execute("CREATE TABLE t (a integer)")
    with pytest.raises(firndb.InternalError):
        connection.autocommit = True
    connection.commit()
    connection.autocommit = True
    connection.execute("INSERT INTO t VALUES (1)")
    assert not connection.in_transaction
    connection.rollback()
    assert connection.execute("SELECT a FROM t").fetchall() == [(1,)]
    # An explicit transaction, and the implicit one of PEP 249.
    connection.execute("BEGIN")
    connection.execute("DELETE FROM t")
    connection.rollback()
    assert connection.execute("SELECT a FROM t").fetchall() == [(1,)]
    connection.autocommit = False
    connection.execute("BEGIN")
    assert connection.notices() == []
    connection.execute("DELETE FROM t")
    connection.execute("ROLLBACK")
    assert not connection.in_transaction


def test_what_is_closed_cannot_be_used():
    connection = firndb.connect()
    cursor, idle = connection.execute("SELECT 1"), connection.cursor()
    streaming = connection.execute("SELECT * FROM generate_series(1, 1000000)")
    assert streaming.fetchone() == (1,)
    cursor.close()
    cursor.close()
    assert cursor.closed and not connection.closed
    for use in [cursor.fetchone, lambda: cursor.execute("SELECT 1"), lambda: list(cursor)]:
        with pytest.raises(firndb.InterfaceError):
            use()
    connection.close()
    connection.close()
    assert connection.closed
    uses = [
        connection.cursor,
        connection.commit,
        connection.rollback,
        lambda: connection.execute("SELECT 1"),
        lambda: idle.execute("SELECT 1"),
        lambda: streaming.fetchall() and streaming.fetchall(),
        connection.connect,
    ]
    for use in uses:
        with pytest.raises(firndb.InterfaceError):
            use()
    assert "closed" in repr(connection)


@pytest.mark.parametrize("autocommit", [False, True])
def test_cursors_see_what_stood_there_when_they_were_executed(autocommit):
    connection = firndb.connect(autocommit=autocommit)
    connection.execute("CREATE TABLE t (id integer)")
    connection.execute("INSERT INTO t SELECT * FROM generate_series(1, 20000)")
    first, second = connection.cursor(), connection.cursor()
    first.execute("SELECT id FROM t")
    second.execute("SELECT id FROM t WHERE id > 10")
    assert first.fetchone() is not None
    assert connection.execute("DELETE FROM t WHERE id > 5").rowcount == 19995
    assert len(first.fetchall()) == 19999 and len(second.fetchall()) == 19990
    assert len(connection.execute("SELECT id FROM t").fetchall()) == 5
    first.execute("SELECT id FROM t, generate_series(1, 10000)")
    connection.rollback()
    if autocommit:
        assert len(first.fetchall()) == 50000
    else:
        # All rows except the first were not yet read in the transaction.
        with pytest.raises(firndb.ProgrammingError, match="rolled back"):
            first.fetchall()
    connection.close()


def test_rows_of_a_cursor_that_went_on_are_gone_not_short(connection):
    cursor = connection.execute("SELECT * FROM generate_series(1, 100000)")
    rows = iter(cursor)
    assert next(rows) == (1,)
    cursor.execute("SELECT 1")
    with pytest.raises(firndb.InterfaceError, match="closed"):
        list(rows)
    assert cursor.fetchall() == [(1,)] and cursor.fetchall() == []


def test_connections_and_cursors_are_context_managers(tmp_path):
    with firndb.connect(tmp_path / "db") as connection:
        with connection.execute("CREATE TABLE t (a integer)") as cursor:
            assert not cursor.closed
        assert cursor.closed
    assert connection.closed
    with pytest.raises(ZeroDivisionError), firndb.connect(tmp_path / "db") as connection:
        connection.execute("INSERT INTO t VALUES (1)")
        1 / 0
    with firndb.connect(tmp_path / "db") as connection:
        assert connection.execute("SELECT * FROM t").fetchall() == []


def test_errors_tell_what_the_engine_tells(connection):
    connection.execute("CREATE TABLE t (id integer CONSTRAINT the_key PRIMARY KEY)")
    connection.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(firndb.IntegrityError) as caught:
        connection.execute("INSERT INTO t VALUES (?)", (1,))
    error = caught.value
    assert error.sqlstate == "23505" and error.constraint == "the_key" and error.table == "t"
    assert error.message == 'duplicate key value violates unique constraint "the_key"'
    assert error.detail == "Key (id)=(1) already exists."
    assert str(error) == f"{error.message}\nDETAIL: {error.detail}"
    connection.rollback()
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and again.sqlstate == "23505"
    for sql, kind, state in [
        ("SELEC 1", firndb.ProgrammingError, "42601"),
        ("SELECT * FROM nowhere", firndb.ProgrammingError, "42P01"),
        ("SELECT 1 / 0", firndb.DataError, "22012"),
        ("SELECT 'x'::integer", firndb.DataError, "22P02"),
        ("CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'", firndb.NotSupportedError, "0A000"),
        ("COPY (SELECT 1) TO STDOUT", firndb.NotSupportedError, "0A000"),
        ("SET statement_timeout = 'x'", firndb.DataError, "22023"),
    ]:
        with pytest.raises(kind) as caught:
            connection.execute(sql)
        assert caught.value.sqlstate == state, sql
        connection.rollback()


def test_an_errors_position_is_that_in_the_text_as_written(connection):
    for sql, values, word in [
        ("SELECT 1,\n nope", (), "nope"),
        ("SELECT ?, ?, 'ä', nope", (1, 2), "nope"),
        ("SELECT ? FROM nowhere", (1,), "nowhere"),
    ]:
        with pytest.raises(firndb.ProgrammingError) as caught:
            connection.execute(sql, values)
        assert caught.value.position == sql.index(word) + 1, sql
        connection.rollback()


def test_a_query_has_effects_and_errors_before_anybody_fetches(auto):
    auto.execute("CREATE SEQUENCE s")
    auto.execute("SELECT nextval('s')").close()
    assert auto.execute("SELECT nextval('s')").fetchone() == (2,)
    with pytest.raises(firndb.DataError):
        auto.execute("SELECT 1 / g FROM generate_series(0, 1) g(g)")


def test_scripts_and_notices(auto):
    auto.executescript("CREATE TABLE t (a text); INSERT INTO t VALUES ('?;'); SELECT * FROM t")
    assert auto.execute("SELECT * FROM t").fetchall() == [("?;",)]
    auto.execute("DROP TABLE IF EXISTS nowhere")
    assert len(auto.notices()) == 1 and auto.notices() == []


def test_statements_are_planned_anew_when_tables_change(auto):
    other = auto.connect()
    auto.execute("CREATE TABLE t (a integer)")
    auto.execute("INSERT INTO t VALUES (1)")
    assert auto.execute("SELECT * FROM t").fetchall() == [(1,)]
    other.execute("ALTER TABLE t ADD COLUMN b text")
    assert auto.execute("SELECT * FROM t").fetchall() == [(1, None)]
    auto.execute("DROP TABLE t")
    auto.execute("CREATE TABLE t (c text)")
    assert auto.execute("SELECT * FROM t").description[0][:2] == ("c", "text")
    other.close()


def test_every_public_name_is_there_and_documented():
    for name in firndb.__all__:
        assert hasattr(firndb, name)
    for kind in (firndb.Connection, firndb.Cursor):
        for name, member in inspect.getmembers(kind):
            if not name.startswith("_") and name != "arraysize":
                assert inspect.getdoc(member), f"{kind.__name__}.{name} has no docstring"
    assert firndb.__version__.count(".") == 2
