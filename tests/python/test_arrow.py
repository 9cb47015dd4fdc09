"""Results as Arrow, pandas and Polars tables, and such tables as sources."""

import ctypes
import datetime
import gc
import itertools
import os
import random
import resource
import time
from decimal import Decimal

import firndb
import pandas
import polars
import pyarrow
import pytest

MANY = 1_000_000


def series(rows):
    return f"SELECT g AS id, 'a name longer than twelve bytes ' || g AS name FROM generate_series(1, {rows}) g(g)"


def ranges(chunked, buffer=1):
    """The addresses of the values of each chunk."""
    found = []
    for chunk in chunked.chunks:
        width = chunk.type.bit_width // 8
        begin = chunk.buffers()[buffer].address + chunk.offset * width
        found.append((begin, begin + len(chunk) * width))
    return found


def test_every_type_has_its_type_in_arrow(connection):
    types = {
        "boolean": pyarrow.bool_(),
        "smallint": pyarrow.int16(),
        "integer": pyarrow.int32(),
        "bigint": pyarrow.int64(),
        "real": pyarrow.float32(),
        "double precision": pyarrow.float64(),
        "numeric(10,2)": pyarrow.decimal128(10, 2),
        "numeric": pyarrow.decimal128(38, 16),
        "text": pyarrow.string_view(),
        "varchar(5)": pyarrow.string_view(),
        "bytea": pyarrow.binary_view(),
        "date": pyarrow.date32(),
        "time": pyarrow.time64("us"),
        "timestamp": pyarrow.timestamp("us"),
        "timestamptz": pyarrow.timestamp("us", "UTC"),
        "interval": pyarrow.month_day_nano_interval(),
        "uuid": pyarrow.binary(16),
        "integer[]": pyarrow.list_(pyarrow.int32()),
    }
    columns = [f"NULL::{name} AS c{n}" for n, name in enumerate(types)]
    for query in (f"SELECT {', '.join(columns)}", f"SELECT {', '.join(columns)} WHERE false"):
        table = connection.execute(query).arrow()
        assert table.schema.types == list(types.values())
        assert table.column_names == [f"c{n}" for n in range(len(types))]
    assert pyarrow.schema(connection.execute("SELECT 1 AS a, 2 AS a")).names == ["a", "a"]


def test_a_result_is_one_table_by_every_way(connection):
    connection.execute("CREATE TABLE t (id integer PRIMARY KEY, name text, price numeric(8,2), day date)")
    day = datetime.date(2024, 2, 29)
    rows = [(1, "one", Decimal("1.50"), day), (2, None, None, None)]
    connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
    # As a short program and as a pipeline.
    for query in ("SELECT * FROM t WHERE id IN (1, 2) ORDER BY id", "SELECT * FROM t ORDER BY id"):
        run = lambda: connection.execute(query)
        as_rows = lambda table: [tuple(row.values()) for row in table.to_pylist()]
        assert run().fetchall() == rows
        assert as_rows(run().arrow()) == rows
        assert as_rows(run().record_batches().read_all()) == rows
        assert as_rows(pyarrow.table(run())) == rows
        assert as_rows(pyarrow.RecordBatchReader.from_stream(run()).read_all()) == rows
        assert run().pl().rows() == polars.DataFrame(run()).rows() == rows
        frame = run().df()
        assert list(frame["id"]) == [1, 2] and frame["name"][0] == "one" and pandas.isna(frame["name"][1])
        if hasattr(pandas.DataFrame, "from_arrow"):
            assert list(pandas.DataFrame.from_arrow(run()).columns) == ["id", "name", "price", "day"]
    assert connection.execute("SELECT * FROM t WHERE id < 0").arrow().num_rows == 0
    assert connection.execute("SELECT * FROM t WHERE id < 0").pl().shape == (0, 4)
    assert connection.execute("INSERT INTO t VALUES (3) RETURNING id, day").arrow().to_pylist() == [
        {"id": 3, "day": None}
    ]


def test_types_that_consumers_lack_are_cast_on_request_or_refused_in_words(connection):
    result = connection.execute("SELECT 'x' AS s, 1 AS n")
    wanted = pyarrow.schema([("s", pyarrow.string()), ("n", pyarrow.float64())])
    reader = pyarrow.RecordBatchReader.from_stream(result, schema=wanted)
    assert reader.schema == wanted and reader.read_all().to_pylist() == [{"s": "x", "n": 1.0}]
    with pytest.raises(firndb.NotSupportedError, match="no type for the intervals") as caught:
        connection.execute("SELECT interval '1 month' AS span").pl()
    assert caught.value.sqlstate == "0A000"
    assert connection.execute("SELECT gen_random_uuid() AS u, ARRAY['a'] AS l").pl().shape == (1, 2)


def test_a_value_that_does_not_fit_the_requested_type_is_an_error_and_never_null(connection):
    for query, kind in (
        ("SELECT n FROM (VALUES (1), (300)) v(n)", pyarrow.int8()),
        ("SELECT s AS n FROM (VALUES ('1'), ('many')) v(s)", pyarrow.int64()),
        ("SELECT n FROM (VALUES (1.5), (123456.5)) v(n)", pyarrow.decimal128(4, 1)),
        ("SELECT date '3000-01-01' AS n", pyarrow.timestamp("ns")),
    ):
        stream = pyarrow.RecordBatchReader.from_stream(connection.execute(query), schema=pyarrow.schema([("n", kind)]))
        with pytest.raises(pyarrow.ArrowInvalid, match='column "n" cannot be'):
            stream.read_all()
    # NULL remains NULL.
    query, wanted = "SELECT n FROM (VALUES (100), (NULL)) v(n)", pyarrow.schema([("n", pyarrow.int8())])
    stream = pyarrow.RecordBatchReader.from_stream(connection.execute(query), schema=wanted)
    assert stream.read_all().column("n").to_pylist() == [100, None]


def test_a_panic_in_a_stream_is_its_error(connection):
    """Arrow panics at such a low scale in builds that check overflow, such as those for tests. The process continues."""
    wanted = pyarrow.schema([("n", pyarrow.decimal128(38, -120))])
    for _ in range(2):
        stream = pyarrow.RecordBatchReader.from_stream(connection.execute("SELECT NULL::numeric AS n"), schema=wanted)
        try:
            assert stream.read_next_batch().column(0).to_pylist() == [None]
        except pyarrow.ArrowInvalid as error:
            assert "internal error: attempt to subtract with overflow" in str(error)
            with pytest.raises(pyarrow.ArrowInvalid, match="has failed before"):
                stream.read_next_batch()
    assert connection.execute("SELECT 1").fetchone() == (1,)


def test_zero_bytes_in_strings_are_an_error(connection):
    texts = ["1"] * MANY + ["a\0b"]
    connection.register("texts", pyarrow.table({"s": texts}))
    stream = pyarrow.RecordBatchReader.from_stream(connection.execute("SELECT s::integer AS n FROM texts"))
    with pytest.raises(pyarrow.ArrowInvalid, match='"UTF8": 0x00'):
        stream.read_all()
    connection.rollback()
    assert connection.execute("SELECT 1").fetchone() == (1,)


def test_rows_that_were_fetched_are_not_handed_out_again(connection):
    cursor = connection.execute("SELECT * FROM generate_series(1, 20000)")
    assert [cursor.fetchone() for _ in range(3)] == [(1,), (2,), (3,)]
    assert cursor.fetchmany(10)[-1] == (13,)
    batch = next(cursor.record_batches())
    assert batch.column(0)[0].as_py() == 14
    last = batch.column(0)[-1].as_py()
    assert cursor.fetchone() == (last + 1,)
    rest = cursor.arrow()
    assert rest.column(0).to_pylist() == list(range(last + 2, 20001))
    assert cursor.fetchone() is None and cursor.arrow().num_rows == 0
    # A stream continues at the cursor's position, and the cursor at the stream's.
    cursor = connection.execute("SELECT * FROM generate_series(1, 20000)")
    stream = pyarrow.RecordBatchReader.from_stream(cursor)
    assert cursor.fetchone() == (1,)
    batch = stream.read_next_batch()
    assert batch.column(0)[0].as_py() == 2
    last = batch.column(0)[-1].as_py()
    assert cursor.fetchone() == (last + 1,)
    batches = [stream.read_next_batch() for _ in range(2)]
    assert batches[0].column(0)[0].as_py() == last + 2
    last = batches[1].column(0)[-1].as_py()
    assert cursor.arrow().column(0).to_pylist() == list(range(last + 1, 20001))
    # The same for values of short programs.
    connection.execute("CREATE TABLE t (id integer PRIMARY KEY)")
    connection.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(50)])
    cursor = connection.execute("SELECT id FROM t WHERE id BETWEEN 10 AND 20 ORDER BY id")
    assert cursor.fetchone() == (10,)
    assert cursor.arrow().column(0).to_pylist() == list(range(11, 21))


def test_any_mix_of_ways_to_fetch_yields_every_row_once(connection):
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    connection.execute("CREATE TABLE t (id integer PRIMARY KEY)")
    connection.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(2000)])
    for _ in range(30):
        few = chance.random() < 0.5
        rows = chance.randrange(40) if few else chance.randrange(60_000)
        query = f"SELECT id FROM t WHERE id BETWEEN 0 AND {rows - 1} ORDER BY id"
        cursor = connection.execute(query if few else f"SELECT g - 1 AS id FROM generate_series(1, {rows}) g(g) ORDER BY g")
        # A reader of batches may be dropped at any time, as may an iterator.
        ways = {
            "one": lambda: [row] if (row := cursor.fetchone()) else [],
            "many": lambda: cursor.fetchmany(chance.randrange(700)),
            "some": lambda: list(itertools.islice(cursor, chance.randrange(300))),
            "batch": lambda: [(n,) for batch in itertools.islice(cursor.record_batches(), 1) for n in batch[0].to_pylist()],
        }
        seen = []
        while len(seen) < rows:
            if chance.random() < 0.05:
                rest = chance.choice([cursor.fetchall, lambda: cursor.pl().rows(), lambda: polars.DataFrame(cursor).rows()])
                seen += rest()
                break
            seen += chance.choice(list(ways.values()))()
        assert seen == [(n,) for n in range(rows)]
        assert cursor.fetchone() is None and cursor.rowcount == rows


def test_nothing_is_copied_on_the_way_in_and_out(connection):
    """A column that the engine does not change is returned at the same address."""
    ids = pyarrow.array(range(MANY), pyarrow.int64())
    names = pyarrow.array([f"name number {n}" for n in range(1000)]).cast(pyarrow.string_view())
    connection.register("numbers", pyarrow.table({"id": ids}))
    connection.register("names", pyarrow.table({"name": names}))
    begin = ids.buffers()[1].address
    end = begin + 8 * MANY
    for out in (
        connection.execute("SELECT id FROM numbers").arrow(),
        connection.execute("SELECT id FROM numbers").record_batches().read_all(),
        pyarrow.table(connection.execute("SELECT id FROM numbers")),
    ):
        out = out.column("id")
        assert len(out) == MANY
        assert all(begin <= low and high <= end for low, high in ranges(out))
    heap = {buffer.address for buffer in names.buffers()[2:]}
    out = connection.execute("SELECT name FROM names").arrow().column("name")
    assert {buffer.address for chunk in out.chunks for buffer in chunk.buffers()[2:]} <= heap
    # The same batches however often they are exported.
    batches = connection.execute("SELECT id FROM numbers")._result.batches()
    assert ranges(pyarrow.table(batches).column(0)) == ranges(pyarrow.table(batches).column(0))
    # The same in pandas and Polars.
    frame = polars.DataFrame({"x": range(100_000)})
    connection.register("frame", frame)
    out = connection.execute("SELECT x FROM frame").pl()
    assert out.equals(frame)


def test_frozen_rows_leave_in_the_tables_own_memory(auto):
    """Two results of one table have the same addresses; copies would not."""
    auto.execute("CREATE TABLE t (id bigint NOT NULL, name text)")
    auto.execute("INSERT INTO t SELECT g, 'name ' || g FROM generate_series(1, 200000) g(g)")
    hot = "SELECT count(*) FROM firn_blocks WHERE relname = 't' AND state <> 'frozen'"
    deadline = time.monotonic() + 60
    while auto.execute(hot).fetchone() != (0,):
        assert time.monotonic() < deadline, auto.execute("SELECT * FROM firn_blocks").fetchall()
        time.sleep(0.1)
    first = auto.execute("SELECT id, name FROM t").arrow()
    second = auto.execute("SELECT id, name FROM t").arrow()
    third = pyarrow.table(auto.execute("SELECT id FROM t"))
    places = lambda table: sorted(ranges(table.column("id")))
    assert places(first) == places(second) == places(third)
    assert sum(end - begin for begin, end in places(first)) == 8 * 200_000
    # Later writes are made in a copy: the batches that are held do not change.
    auto.execute("UPDATE t SET id = -id")
    assert sorted(first.column("id").to_pylist()) == list(range(1, 200_001))
    assert auto.execute("SELECT max(id) FROM t").fetchone() == (-1,)


def test_memory_of_a_source_is_given_back(connection):
    table = pyarrow.table({"id": pyarrow.array(range(MANY), pyarrow.int64())})
    gc.collect()
    held = pyarrow.total_allocated_bytes()
    connection.register("numbers", table)
    assert connection.execute("SELECT count(*) FROM numbers").fetchone() == (MANY,)
    out = connection.execute("SELECT id FROM numbers WHERE id < 10").arrow()
    del table
    gc.collect()
    assert pyarrow.total_allocated_bytes() >= held - 8 * MANY // 2
    connection.unregister("numbers")
    connection.rollback()
    gc.collect()
    assert pyarrow.total_allocated_bytes() < held - 8 * MANY // 2
    assert out.num_rows == 10


def test_results_outlive_their_connection(tmp_path):
    connection = firndb.connect(tmp_path / "db")
    table = connection.execute(series(1000)).arrow()
    connection.close()
    assert table.column("name")[999].as_py() == "a name longer than twelve bytes 1000"
    stream = pyarrow.RecordBatchReader.from_stream(firndb.connect().execute(series(100_000)))
    gc.collect()
    assert stream.read_all().num_rows == 100_000


def test_a_stream_of_a_closed_connection_ends_in_an_error(connection):
    stream = pyarrow.RecordBatchReader.from_stream(connection.execute(series(MANY)))
    stream.read_next_batch()
    connection.close()
    with pytest.raises(Exception, match="closed"):
        stream.read_all()


def test_a_long_result_streams_in_little_memory(auto):
    """All rows would take a gigabyte; the process must not grow by a third of that."""
    query = "SELECT g AS id, repeat('x', 500) || g AS name FROM generate_series(1, 2000000) g(g)"
    before = peak_bytes()
    rows = sum(batch.num_rows for batch in auto.execute(query).record_batches())
    assert rows == 2_000_000
    rows = 0
    cursor = auto.execute(query)
    for _ in range(100_000):
        assert len(cursor.fetchone()[1]) > 500
    cursor.close()
    assert peak_bytes() - before < 300 << 20


def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_sources_of_every_kind(connection):
    columns = {"id": [1, 2, 3], "name": ["x", None, "z"]}
    rows = [(1, "x"), (2, None), (3, "z")]
    table = pyarrow.table(columns)
    for source in (
        table,
        table.to_batches()[0],
        pyarrow.RecordBatchReader.from_batches(table.schema, table.to_batches()),
        pandas.DataFrame(columns),
        polars.DataFrame(columns),
        connection.execute("SELECT * FROM (VALUES (1, 'x'), (2, NULL), (3, 'z')) v(id, name)"),
    ):
        connection.register("source", source)
        assert connection.execute("SELECT id, name FROM source ORDER BY id").fetchall() == rows
        assert connection.execute("SELECT count(name) FROM source WHERE id > ?", (1,)).fetchone() == (1,)
    for source in (None, [1, 2], {"a": [1]}, pyarrow.array([1]), pyarrow.chunked_array([[1]])):
        with pytest.raises((TypeError, ValueError)):
            connection.register("source", source)


def test_sources_fill_tables(connection):
    moments = pandas.to_datetime(["2024-01-01 10:00", None]).tz_localize("Europe/Berlin")
    frame = pandas.DataFrame(
        {
            "id": [1, 2],
            "kind": pandas.Categorical(["a", "b"]),
            "at": moments,
            "price": [1.5, float("nan")],
            "small": pandas.array([7, None], dtype="UInt8"),
        }
    )
    connection.register("frame", frame)
    connection.execute("CREATE TABLE copy AS SELECT * FROM frame")
    kinds = [column[1] for column in connection.execute("SELECT * FROM copy").description]
    assert kinds == ["bigint", "text", "timestamp with time zone", "double precision", "smallint"]
    connection.execute("CREATE TABLE strict (id integer PRIMARY KEY, kind varchar(1) NOT NULL, price numeric(5,1))")
    assert connection.execute("INSERT INTO strict SELECT id, kind, 2.25 FROM frame").rowcount == 2
    utc = datetime.timezone.utc
    assert connection.execute("SELECT at FROM copy ORDER BY id").fetchall() == [
        (datetime.datetime(2024, 1, 1, 9, tzinfo=utc),),
        (None,),
    ]
    connection.commit()
    with pytest.raises(firndb.IntegrityError):
        connection.execute("INSERT INTO strict SELECT id, kind, 1 FROM frame")
    connection.rollback()
    assert connection.execute("SELECT price FROM strict WHERE id = 1").fetchone() == (Decimal("2.3"),)


def test_columns_of_nothing_but_null(connection):
    columns = {"a": [1, 2], "b": [None, None]}
    one = polars.DataFrame(columns)
    for source in (
        one,
        polars.concat([one[:1], one[1:]], rechunk=False),
        one.select("a").with_columns(polars.lit(None).alias("b")),
        pyarrow.table(columns),
        pyarrow.table(columns).to_batches()[0],
        pandas.DataFrame(columns),
    ):
        connection.register("source", source)
        assert connection.execute("SELECT a, b FROM source ORDER BY a").fetchall() == [(1, None), (2, None)]
        assert connection.load_arrow(source, "made", create=True) == 2
        assert connection.execute("SELECT count(*), count(b) FROM made").fetchone() == (2, 0)
        connection.rollback()


def test_nulls_in_dictionaries_and_values_out_of_range(connection):
    hollow = pyarrow.DictionaryArray.from_arrays([0, 1, None], ["a", None])
    lists = pyarrow.ListArray.from_arrays([0, 1, 2, 3], hollow)
    table = pyarrow.table({"a": hollow, "l": lists})
    connection.register("source", table)
    assert connection.execute("SELECT a, l[1] FROM source").fetchall() == [("a", "a"), (None, None), (None, None)]
    connection.execute("CREATE TABLE strict (a text NOT NULL)")
    connection.commit()
    with pytest.raises(firndb.IntegrityError):
        connection.load_arrow(table.select(["a"]), "strict")
    connection.rollback()
    # Lists are arrays.
    connection.load_arrow(table, "made", create=True)
    made = connection.execute("SELECT l, pg_typeof(l)::text FROM made ORDER BY a").fetchall()
    assert made == [(["a"], "text[]"), ([None], "text[]"), ([None], "text[]")]
    connection.rollback()
    late = pyarrow.array([0, 30 * 3_600_000_000], pyarrow.int64()).view(pyarrow.time64("us"))
    with pytest.raises(firndb.DataError) as caught:
        connection.load_arrow(pyarrow.table({"t": late}), "made", create=True)
    assert caught.value.sqlstate == "22008"
    connection.rollback()


def test_lists_of_frames_are_arrays(connection):
    columns = {"id": [1, 2, 3], "n": [[1, 2], [], None], "s": [["a", None], ["b"], []]}
    rows = [(1, [1, 2], ["a", None]), (2, [], ["b"]), (3, None, [])]
    for source in (
        pyarrow.table(columns),
        pyarrow.table({**columns, "n": pyarrow.array(columns["n"], pyarrow.large_list(pyarrow.int16()))}),
        polars.DataFrame(columns),
        pandas.DataFrame(columns),
    ):
        connection.register("source", source)
        assert connection.execute("SELECT id, n, s FROM source ORDER BY id").fetchall() == rows
        assert connection.execute("SELECT id FROM source WHERE 2 = ANY (n) AND s[1] = 'a'").fetchall() == [(1,)]
        assert connection.execute("SELECT sum(u) FROM source, unnest(n) AS u").fetchone() == (3,)
        connection.execute("CREATE TABLE t (id integer PRIMARY KEY, n integer[], s text[])")
        assert connection.load_arrow(source, "t") == 3
        assert connection.execute("SELECT * FROM t ORDER BY id").fetchall() == rows
        connection.rollback()
    pairs = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array([1, 2, 3, 4]), 2)
    connection.register("source", pyarrow.table({"pair": pairs}))
    assert connection.execute("SELECT pair FROM source").fetchall() == [([1, 2],), ([3, 4],)]
    assert connection.execute("SELECT pair FROM source").arrow().to_pylist() == [{"pair": [1, 2]}, {"pair": [3, 4]}]


module_frame = pyarrow.table({"id": [1, 2, 3]})
items = pyarrow.table({"id": [9]})


def test_a_name_without_a_table_is_a_frame_of_the_callers_scope(connection):
    items = polars.DataFrame({"id": [1, 2], "name": ["a", "b"]})  # noqa: F841 - SQL reads it

    def counted(name):
        Local = pandas.DataFrame({"id": [1, 2, 3, 4]})  # noqa: F841
        return connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]

    # Local variables take precedence over those of the module, with the exact name or in another case.
    assert connection.execute("SELECT count(*), max(name) FROM items WHERE id > ?", (0,)).fetchone() == (2, "b")
    assert counted("items") == 1
    assert counted("module_frame") == 3
    assert counted("Local") == counted('"Local"') == counted("local") == 4
    # Several in one statement, in every clause that reads.
    assert connection.execute(
        "WITH c AS (SELECT id FROM items) SELECT count(*) FROM module_frame m JOIN c USING (id) "
        "WHERE EXISTS (SELECT FROM items i WHERE i.id = m.id)"
    ).fetchone() == (2,)
    connection.execute("CREATE TABLE target (id integer PRIMARY KEY)")
    assert connection.execute("INSERT INTO target SELECT id FROM items").rowcount == 2
    assert connection.execute("DELETE FROM target USING items WHERE target.id = items.id AND name = 'a'").rowcount == 1
    connection.executemany("INSERT INTO target SELECT id + ? FROM module_frame", [(10,), (20,)])
    connection.executescript("CREATE TABLE made AS SELECT * FROM items; INSERT INTO made SELECT * FROM items")
    assert connection.execute("SELECT (SELECT count(*) FROM target), (SELECT count(*) FROM made)").fetchone() == (7, 4)
    assert connection.execute("EXPLAIN SELECT * FROM items").fetchall()
    # Remaining rows are read after the variable was assigned; a new statement reads its new value.
    rows = connection.execute("SELECT id FROM items ORDER BY id")
    items = pyarrow.table({"id": [5]})
    assert rows.fetchall() == [(1,), (2,)]
    assert connection.execute("SELECT id FROM items").fetchall() == [(5,)]
    connection.commit()


def test_tables_views_and_registered_frames_go_before_frames_that_are_found(connection):
    items = pyarrow.table({"id": [1, 2]})
    connection.execute("CREATE TABLE items (id integer)")
    assert connection.execute("SELECT count(*) FROM items").fetchone() == (0,)
    connection.register("items", items.slice(1))
    assert connection.execute("SELECT count(*) FROM items").fetchone() == (1,)
    connection.unregister("items")
    connection.execute("DROP TABLE items")
    assert connection.execute("SELECT count(*) FROM items").fetchone() == (2,)
    # A name with a schema does not refer to a frame.
    connection.commit()
    with pytest.raises(firndb.ProgrammingError, match="does not exist"):
        connection.execute("SELECT count(*) FROM public.items")
    connection.rollback()
    # A view cannot read a frame, and a frame cannot be changed.
    for sql in ("CREATE VIEW v AS SELECT * FROM items", "PREPARE p AS SELECT * FROM items"):
        with pytest.raises(firndb.ProgrammingError, match='relation "items" does not exist'):
            connection.execute(sql)
        connection.rollback()
    for sql in ("DELETE FROM items", "INSERT INTO items VALUES (1)", "UPDATE items SET id = 1"):
        with pytest.raises(firndb.ProgrammingError):
            connection.execute(sql)
        connection.rollback()


def test_frames_are_looked_up_without_harm_to_the_transaction(connection):
    frame = pyarrow.table({"id": [1, 2]})  # noqa: F841
    connection.execute("CREATE TABLE t (id integer PRIMARY KEY)")
    connection.commit()
    connection.execute("INSERT INTO t VALUES (1)")
    assert connection.execute("SELECT count(*) FROM frame").fetchone() == (2,)
    connection.execute("CREATE TABLE made AS SELECT id FROM frame").close()
    connection.execute("SELECT id INTO other FROM frame").close()
    connection.commit()
    assert connection.execute("SELECT (SELECT count(*) FROM made), (SELECT count(*) FROM other)").fetchone() == (2, 2)
    # Without a frame the error is the usual one, and fails the transaction.
    for sql in ("SELECT * FROM nowhere", "CREATE TABLE again AS SELECT * FROM nowhere"):
        with pytest.raises(firndb.ProgrammingError, match='relation "nowhere" does not exist') as caught:
            connection.execute(sql)
        assert caught.value.sqlstate == "42P01"
        with pytest.raises(firndb.InternalError):
            connection.execute("SELECT 1")
        connection.rollback()
    # Errors of frames that cannot be read have the reason.
    nowhere = pyarrow.chunked_array([[1]])  # noqa: F841
    with pytest.raises((TypeError, ValueError)):
        connection.execute("SELECT * FROM nowhere")
    number = 7  # noqa: F841
    with pytest.raises(firndb.ProgrammingError, match="does not exist"):
        connection.execute("SELECT * FROM number")


def test_the_look_up_of_frames_can_be_switched_off(connection):
    frame = pyarrow.table({"id": [1]})  # noqa: F841
    with firndb.connect(find_frames=False) as other:
        assert other.find_frames is False and other.connect().find_frames is False
        with pytest.raises(firndb.ProgrammingError, match='relation "frame" does not exist'):
            other.execute("SELECT * FROM frame")
    assert connection.find_frames
    connection.find_frames = False
    with pytest.raises(firndb.ProgrammingError, match="does not exist"):
        connection.execute("SELECT * FROM frame")
    connection.rollback()


def test_memory_of_a_found_frame_is_given_back(connection):
    def count():
        frame = pyarrow.table({"id": pyarrow.array(range(1_000_000))})
        return connection.execute("SELECT count(*) FROM frame").fetchone(), frame.nbytes

    gc.collect()
    before = pyarrow.total_allocated_bytes()
    assert count() == ((1_000_000,), 8_000_000)
    connection.commit()
    gc.collect()
    assert pyarrow.total_allocated_bytes() - before < 1_000_000


def test_a_source_is_read_only_and_goes_before_tables(connection):
    connection.execute("CREATE TABLE t (id integer)")
    connection.commit()
    connection.register("t", pyarrow.table({"id": [1, 2]}))
    other = connection.connect()
    assert connection.execute("SELECT count(*) FROM t").fetchone() == (2,)
    assert connection.execute("SELECT count(*) FROM public.t").fetchone() == (0,)
    assert other.execute("SELECT count(*) FROM t").fetchone() == (0,)
    with pytest.raises(firndb.ProgrammingError, match="cannot change relation"):
        connection.execute("DELETE FROM t")
    connection.rollback()
    connection.unregister("t")
    assert connection.execute("SELECT count(*) FROM t").fetchone() == (0,)
    with pytest.raises(firndb.ProgrammingError, match="not registered"):
        connection.unregister("t")
    other.close()


def test_the_name_of_a_source_is_taken_as_it_is_written(connection):
    connection.register("Delivery", pyarrow.table({"Id": [7]}))
    assert connection.execute('SELECT "Id" FROM "Delivery"').fetchone() == (7,)
    # SQL converts unquoted names to lower case.
    with pytest.raises(firndb.ProgrammingError, match="delivery"):
        connection.execute('SELECT "Id" FROM Delivery')
    connection.rollback()
    connection.register("delivery", pyarrow.table({"id": [8]}))
    assert connection.execute("SELECT ID FROM Delivery").fetchone() == (8,)
    connection.unregister("delivery")
    with pytest.raises(firndb.ProgrammingError, match="not registered"):
        connection.unregister("DELIVERY")
    connection.unregister("Delivery")


class CSchema(ctypes.Structure):
    """Arrow's `ArrowSchema`, with the fields that the tests use."""

    _fields_ = [
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_char_p),
        ("flags", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("children", ctypes.c_void_p),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    ]


class CStream(ctypes.Structure):
    """Arrow's `ArrowArrayStream`."""

    FILL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    TELL = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    _fields_ = [
        ("get_schema", FILL),
        ("get_next", FILL),
        ("get_last_error", TELL),
        ("release", RELEASE),
        ("private_data", ctypes.c_void_p),
    ]


class Failing:
    """A table whose stream fails: at its schema or at its first rows, with or without a text."""

    def __init__(self, schema_code, text):
        self.schema, self.text = CSchema(), text and ctypes.create_string_buffer(text)

        def get_schema(_, place):
            release_schema = ctypes.cast(self.release_schema, ctypes.c_void_p)
            ctypes.cast(place, ctypes.POINTER(CSchema))[0] = CSchema(
                format=b"+s", name=b"", release=release_schema
            )
            return schema_code

        self.release_schema = CStream.RELEASE(lambda _: None)
        self.released = 0
        self.stream = CStream(
            CStream.FILL(get_schema),
            CStream.FILL(lambda _, place: 5),
            CStream.TELL(lambda _: self.text and ctypes.addressof(self.text)),
            CStream.RELEASE(self.release),
        )

    def release(self, _):
        self.released += 1

    def __arrow_c_stream__(self, requested_schema=None):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.stream), b"arrow_array_stream", None)


@pytest.mark.parametrize("schema_code", [0, 22])
def test_a_stream_that_fails_without_a_word_is_an_error(connection, schema_code):
    silent = Failing(schema_code, None)
    with pytest.raises(ValueError, match=f"error {schema_code or 5}, without a message"):
        connection.register("source", silent)
    talking = Failing(schema_code, b"the disk is gone")
    with pytest.raises(ValueError, match="the disk is gone"):
        connection.register("source", talking)
    assert silent.released == talking.released == 1


@pytest.mark.filterwarnings("ignore:pandas only supports SQLAlchemy")
def test_pandas_reads_by_sql(connection):
    connection.execute("CREATE TABLE t (id integer, name text)")
    connection.execute("INSERT INTO t VALUES (1, 'x'), (2, 'y')")
    frame = pandas.read_sql("SELECT * FROM t WHERE id > ?", connection, params=(1,))
    assert frame.to_dict("list") == {"id": [2], "name": ["y"]}


def test_large_tables_go_both_ways(tmp_path):
    rows = 300_000
    table = pyarrow.table({"id": range(rows), "name": [f"name {n % 1000}" for n in range(rows)]})
    with firndb.connect(tmp_path / "db") as connection:
        connection.register("source", table)
        connection.execute("CREATE TABLE t AS SELECT * FROM source")
    with firndb.connect(tmp_path / "db") as connection:
        out = connection.execute("SELECT id, name FROM t ORDER BY id").arrow()
        assert out.column("id").to_pylist() == table.column("id").to_pylist()
        assert out.column("name").cast("string").to_pylist() == table.column("name").to_pylist()
    assert os.listdir(tmp_path) == ["db"]
