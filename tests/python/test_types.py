"""Values of every type of docs/dialect.md as parameters and results, including NULL and extremes."""

import datetime
import math
import random
import uuid
from decimal import Decimal

import firndb
import numpy
import pandas
import pytest

UTC = datetime.timezone.utc
DAY = datetime.timedelta(days=1)

# Type, the class of its values, some values.
TYPES = [
    ("boolean", bool, [True, False]),
    ("smallint", int, [0, -1, 2**15 - 1, -(2**15)]),
    ("integer", int, [0, 2**31 - 1, -(2**31)]),
    ("bigint", int, [0, 2**63 - 1, -(2**63)]),
    ("real", float, [0.0, -0.5, 2.0**100, math.inf, -math.inf]),
    ("double precision", float, [0.1, -1e308, 5e-324, math.inf, -math.inf]),
    ("numeric(10,2)", Decimal, [Decimal("0.00"), Decimal("-99999999.99")]),
    ("numeric(18,0)", Decimal, [Decimal(10**18 - 1)]),
    ("numeric(38,10)", Decimal, [Decimal("-9999999999999999999999999999.9999999999")]),
    ("numeric", Decimal, [Decimal("1.5"), Decimal("-0.0000000000000001"), Decimal(10**21)]),
    ("text", str, ["", "snow ❄ schnee", "a" * 100_000, "x'\"\\"]),
    ("varchar(5)", str, ["", "fünf!"]),
    ("char(3)", str, ["a  ", "abc"]),
    ("bytea", bytes, [b"", bytes(range(256)), b"\0" * 20]),
    ("date", datetime.date, [datetime.date.min, datetime.date(1969, 12, 31), datetime.date.max]),
    ("time", datetime.time, [datetime.time.min, datetime.time.max]),
    (
        "timestamp",
        datetime.datetime,
        [datetime.datetime.min, datetime.datetime.max, datetime.datetime(1969, 12, 31, 23, 59, 59, 1)],
    ),
    (
        "timestamptz",
        datetime.datetime,
        [datetime.datetime.min.replace(tzinfo=UTC), datetime.datetime.max.replace(tzinfo=UTC)],
    ),
    (
        "interval",
        datetime.timedelta,
        [
            datetime.timedelta(),
            datetime.timedelta(days=-1, microseconds=1),
            datetime.timedelta(days=100_000, hours=23),
            firndb.Interval(months=-1, days=2, microseconds=-3),
            firndb.Interval(months=12),
            firndb.Interval(microseconds=90_000_000_000),
        ],
    ),
    ("uuid", uuid.UUID, [uuid.UUID(int=0), uuid.UUID(int=2**128 - 1), uuid.uuid4()]),
]


@pytest.mark.parametrize(("name", "kind", "values"), TYPES, ids=[name for name, _, _ in TYPES])
def test_values_survive_a_column_by_both_ways_of_reading(connection, name, kind, values):
    connection.execute(f"CREATE TABLE t (id integer PRIMARY KEY, v {name})")
    values = [*values, None]
    connection.executemany("INSERT INTO t VALUES (?, ?)", enumerate(values))
    short = [connection.execute("SELECT v FROM t WHERE id = ?", (n,)).fetchone()[0] for n in range(len(values))]
    analytical = [row[0] for row in connection.execute("SELECT v FROM t ORDER BY id")]
    for read in (short, analytical):
        assert read == values
        assert all(value is None or isinstance(value, kind) for value in read)
        # Decimals keep their digits.
        assert kind is not Decimal or [str(value) for value in read] == [str(value) for value in values]
    if kind is datetime.timedelta:
        parts = lambda values: [getattr(value, "parts", None) for value in values]
        assert parts(short) == parts(analytical) == parts(values)
    # As a parameter with a type, and as one whose type is inferred.
    for value in values:
        assert connection.execute(f"SELECT ?::{name}", (value,)).fetchone() == (value,)
        if value is not None and not name.startswith("char"):
            assert connection.execute("SELECT count(*) FROM t WHERE v = ?", (value,)).fetchone() == (1,)
        again = connection.execute("SELECT ?", (value,)).fetchone()[0]
        assert again == value or (kind is float and name == "real")


def test_values_that_are_no_numbers_stay_what_they_are(connection):
    (value,) = connection.execute("SELECT ?", (math.nan,)).fetchone()
    assert isinstance(value, float) and math.isnan(value)
    for given in ("NaN", "Infinity", "-Infinity"):
        (value,) = connection.execute("SELECT ?", (Decimal(given),)).fetchone()
        assert isinstance(value, Decimal) and str(value) == given
    with pytest.raises(firndb.DataError):
        connection.execute("SELECT ?::numeric(4,1)", (Decimal("Infinity"),)).fetchone()
    connection.rollback()


def test_lists_of_lists_are_arrays_of_several_dimensions(connection):
    for element, value in (("integer", [[1, 2], [3, None]]), ("text", [[["a"]], [["b"]]]), ("integer", [])):
        assert connection.execute(f"SELECT ?::{element}[]", (value,)).fetchone() == (value,)
    assert connection.execute("SELECT ?::integer[]", ([[], []],)).fetchone() == ([],)
    with pytest.raises(firndb.DataError, match="matching dimensions"):
        connection.execute("SELECT ?::integer[]", ([[1, 2], [3]],))
    connection.rollback()


def test_integers_of_any_size(connection):
    for value in (2**31, -(2**31) - 1, 2**63, -(2**63) - 1, 10**38 - 1):
        assert connection.execute("SELECT ?", (value,)).fetchone() == (value,)
    with pytest.raises(firndb.DataError):
        connection.execute("SELECT ?", (10**40,))
    assert connection.execute("SELECT ?", (Decimal("1E+5"),)).fetchone() == (Decimal(100_000),)


def test_moments_that_python_cannot_hold_are_errors_with_a_way_out(connection):
    for expression in (
        "date '10000-01-01'",
        "date '0001-01-01' - 1",
        "timestamp '10000-01-01'",
        "timestamptz '9999-12-31 23:00-05'",
        "time '24:00'",
    ):
        with pytest.raises(firndb.DataError, match="Python cannot represent") as caught:
            connection.execute(f"SELECT {expression}").fetchone()
        assert "text" in caught.value.hint
        assert connection.execute(f"SELECT ({expression})::text").fetchone()
        # The rows are not lost.
        cursor = connection.execute(f"SELECT {expression} AS moment, 7 AS n")
        with pytest.raises(firndb.DataError):
            cursor.fetchall()
        assert cursor.record_batches().read_all().column("n").to_pylist() == [7]


def test_moments_with_and_without_time_zones():
    east = datetime.timezone(datetime.timedelta(hours=5, minutes=30))
    aware = datetime.datetime(2024, 7, 1, 12, 0, 0, 250, tzinfo=east)
    naive = datetime.datetime(2024, 7, 1, 12)
    with firndb.connect(timezone="Europe/Berlin") as connection:
        (read,) = connection.execute("SELECT ?", (aware,)).fetchone()
        assert read == aware and read.tzinfo is UTC
        # A timestamp without a zone is in the session's zone, as in PostgreSQL.
        (read,) = connection.execute("SELECT ?::timestamptz", (naive,)).fetchone()
        assert read == datetime.datetime(2024, 7, 1, 10, tzinfo=UTC)
        (read,) = connection.execute("SELECT ?::timestamptz", ("2024-07-01 12:00",)).fetchone()
        assert read == datetime.datetime(2024, 7, 1, 10, tzinfo=UTC)
        with pytest.raises(TypeError, match="time zone"):
            connection.execute("SELECT ?", (datetime.time(1, tzinfo=UTC),))


def test_arrays(connection):
    for value in ([1, 2, None], [2**40], [1.5, 2], ["a", None, "b,\"c"], [Decimal("1.5")], [True], [b"\0"], [DAY]):
        assert connection.execute("SELECT ?", (value,)).fetchone() == (value,)
    assert connection.execute("SELECT ARRAY[]::integer[], NULL::text[]").fetchone() == ([], None)
    assert connection.execute("SELECT ARRAY[ARRAY[1,2],ARRAY[3,4]]").fetchone() == ([[1, 2], [3, 4]],)
    assert connection.execute("SELECT array_agg(g) FROM generate_series(1,3) g(g)").fetchone() == ([1, 2, 3],)
    names = connection.execute("SELECT array_agg(relname) FROM pg_class").fetchone()[0]
    assert "pg_class" in names
    assert connection.execute("SELECT row_number() OVER ()").fetchone() == (1,)
    assert connection.execute("SELECT sum(x) FROM unnest(?::bigint[]) u(x)", ((1, 2, 3),)).fetchone() == (6,)


def test_intervals_compare_by_their_lengths_and_keep_their_parts():
    month = firndb.Interval(months=1)
    assert month == datetime.timedelta(days=30) and month.parts == (1, 0, 0)
    assert repr(month) == "firndb.Interval(months=1, days=0, microseconds=0)"
    import copy
    import pickle

    assert pickle.loads(pickle.dumps(month)).parts == copy.copy(month).parts == (1, 0, 0)


def test_scalars_of_numpy_and_pandas(connection):
    for value, expected in [
        (numpy.int8(-3), -3),
        (numpy.uint64(2**63), 2**63),
        (numpy.float32(0.5), 0.5),
        (numpy.float64(0.1), 0.1),
        (numpy.bool_(True), True),
        (numpy.str_("x"), "x"),
        (numpy.datetime64("2024-01-02T03:04:05.123456789"), datetime.datetime(2024, 1, 2, 3, 4, 5, 123456)),
        (numpy.datetime64("2024-01-02"), datetime.datetime(2024, 1, 2)),
        (numpy.datetime64("NaT", "s"), None),
        (numpy.timedelta64(90, "m"), datetime.timedelta(minutes=90)),
        (numpy.array([1, 2]), [1, 2]),
        (pandas.Timestamp("2024-01-02 03:04:05"), datetime.datetime(2024, 1, 2, 3, 4, 5)),
        (pandas.Timedelta(days=1), DAY),
        (pandas.NaT, None),
        (pandas.NA, None),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"ab"), b"ab"),
    ]:
        assert connection.execute("SELECT ?", (value,)).fetchone() == (expected,), repr(value)


def test_random_rows_survive(auto):
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    kinds = {
        "a bigint": lambda: chance.randint(-(2**63), 2**63 - 1),
        "b numeric(30,6)": lambda: Decimal(chance.randint(-(10**29), 10**29)).scaleb(-6),
        "c text": lambda: "".join(chr(chance.randrange(32, 0xD7FF)) for _ in range(chance.randrange(30))),
        "d timestamp": lambda: datetime.datetime(1, 1, 1) + datetime.timedelta(
            days=chance.randrange(3_000_000), microseconds=chance.randrange(86_400_000_000)
        ),
        "e double precision": lambda: chance.uniform(-1e300, 1e300),
        "f bytea": lambda: chance.randbytes(chance.randrange(40)),
        "g interval": lambda: firndb.Interval(
            chance.randint(-1000, 1000), chance.randint(-1000, 1000), chance.randint(-(10**12), 10**12)
        ),
    }
    import decimal

    with decimal.localcontext(decimal.Context(prec=40)):
        rows = [
            (n, *(None if chance.random() < 0.1 else value() for value in kinds.values())) for n in range(3000)
        ]
    auto.execute(f"CREATE TABLE t (id integer PRIMARY KEY, {', '.join(kinds)})")
    auto.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    assert auto.execute("SELECT * FROM t ORDER BY id").fetchall() == rows
