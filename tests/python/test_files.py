"""Files and tables of other packages are loaded and read."""

import datetime
import decimal
import gzip
import os
import threading

import firndb
import pandas
import polars
import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest

ORDERS = 'id;customer;total;day\n1;Ada;8.75;2024-02-01\n2;"Turing; Alan";99;2024-02-03\n3;;1e3;\n'
TYPED = [
    (1, "Ada", 8.75, datetime.date(2024, 2, 1)),
    (2, "Turing; Alan", 99.0, datetime.date(2024, 2, 3)),
    (3, None, 1000.0, None),
]
TABLE = pyarrow.table({"id": [1, 2], "name": ["one", None], "more": [0.5, 1.5]})


@pytest.fixture
def orders(tmp_path):
    path = tmp_path / "it's orders.csv"
    path.write_text(ORDERS)
    return path


def rows(connection, table):
    return connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()


def test_csv_files_are_read_and_made_tables(connection, orders):
    assert connection.read_csv(orders).fetchall() == TYPED
    assert connection.read_csv(str(orders), header=False).fetchone() == ("id", "customer", "total", "day")
    assert connection.read_csv(orders, null="Ada").fetchone()[1] is None
    assert connection.read_csv([orders], filename=True).fetchone()[-1] == str(orders)
    assert connection.load_csv(orders, "Orders", create=True) == 3
    assert rows(connection, '"Orders"') == TYPED
    with pytest.raises(firndb.ProgrammingError, match="already exists"):
        connection.load_csv(orders, "Orders", create=True)
    connection.rollback()


def test_csv_files_are_loaded(connection, orders):
    connection.execute("CREATE SCHEMA shop")
    connection.execute(
        "CREATE TABLE shop.orders (total numeric(10,2), id int PRIMARY KEY, day date, customer text DEFAULT 'nobody')"
    )
    columns = ["id", "customer", "total", "day"]
    load = {"schema": "shop", "columns": columns, "delimiter": ";"}
    assert connection.load_csv(orders, "orders", header="match", **load) == 3
    assert rows(connection, "shop.orders")[0] == (decimal.Decimal("8.75"), 1, TYPED[0][3], "Ada")
    connection.commit()
    with pytest.raises(firndb.IntegrityError) as caught:
        connection.load_csv(orders, "orders", **load)
    assert caught.value.sqlstate == "23505" and caught.value.context == "COPY orders, line 2"
    connection.rollback()
    orders.write_text("4;x;1;2024-01-01\nfive;x;1;2024-01-01\n")
    assert connection.load_csv(orders, "orders", header=False, on_error="ignore", **load) == 1
    assert any("skipped" in notice for notice in connection.notices())
    with pytest.raises(firndb.ProgrammingError, match="does not exist"):
        connection.load_csv(orders, "Orders")
    with pytest.raises(ValueError):
        connection.load_csv(orders, "new", create=True, on_error="ignore")
    connection.rollback()


@pytest.mark.parametrize("text, said, expected", [
    ("1,10\n2,20\n", {}, [(1, 10), (2, 20)]),
    ("a,b\n1,10\n", {}, [(1, 10)]),
    # A header names the columns, in any order and case.
    ("b,a\n10,1\n", {}, [(1, 10)]),
    ('B;"A"\n10;1\n', {}, [(1, 10)]),
    ("b\n10\n", {}, [(None, 10)]),
    # Delimiters are found with and without a header, unless they are given.
    ("1;10\n2;20\n", {}, [(1, 10), (2, 20)]),
    ("a\tb\n1\t10\n", {}, [(1, 10)]),
    ("b|a\n10|1\n", {"delimiter": "|"}, [(1, 10)]),
    ("1;10\n", {"header": False}, [(1, 10)]),
    # With `header` columns are matched by position, or the names must be in their order.
    ("b,a\n10,1\n", {"header": True}, [(10, 1)]),
    ("x;y\n10;1\n", {"header": True}, [(10, 1)]),
    ("a,b\n1,10\n", {"header": "match"}, [(1, 10)]),
    ("1,10\n2,20\n", {"header": True}, [(2, 20)]),
    # All columns of `columns` must be in the header.
    ("b,a\n10,1\n", {"columns": ["a", "b"]}, [(1, 10)]),
    ("10,1\n", {"columns": ["b", "a"]}, [(1, 10)]),
    ("", {}, []),
    # Columns that the file does not have.
    (",\n1,10\n", {}, [(1, 10), (None, None)]),
])
def test_delimiters_and_headers_are_found_in_files(connection, tmp_path, text, said, expected):
    path = tmp_path / "pairs.csv"
    path.write_text(text)
    connection.execute("CREATE TABLE pairs (a int, b int)")
    assert connection.load_csv(path, "pairs", **said) == len(expected)
    assert rows(connection, "pairs") == expected


def test_files_that_read_csv_cannot_read_are_left_to_copy(connection, tmp_path):
    connection.execute("CREATE TABLE people (id text, name text)")
    connection.execute("BEGIN")
    path = tmp_path / "nothing.csv.gz"
    path.write_bytes(gzip.compress(b""))
    assert connection.load_csv(path, "people") == 0
    # A title is not a header, even if the next line is one.
    path = tmp_path / "people.csv"
    path.write_text("Report of May\nid,name\n1,Ada\n2,Grace\n")
    assert connection.load_csv(path, "people", on_error="ignore") == 3
    # A header is recognised whatever follows it.
    path.write_text("name,id\nEmmy,4\nbroken,row,5\nMary,6\n")
    assert connection.load_csv(path, "people", on_error="ignore") == 2
    path.write_bytes(b"n\xe4me,id\n3,Alan\n")
    assert connection.load_csv(path, "people", on_error="ignore") == 1
    connection.execute("COMMIT")
    assert rows(connection, "people") == [
        ("1", "Ada"), ("2", "Grace"), ("3", "Alan"), ("4", "Emmy"), ("6", "Mary"), ("id", "name"),
    ]


def test_rows_that_cannot_be_read_are_left_out_if_that_is_said(connection, tmp_path):
    path = tmp_path / "numbers.csv"
    path.write_text("a,b\n1,x\ntwo,y\n3,z\n")
    read = {"types": {"a": "integer"}}
    with pytest.raises(firndb.DataError, match="two"):
        connection.read_csv(path, **read).fetchall()
    connection.rollback()
    assert connection.read_csv(path, ignore_errors=True, **read).fetchall() == [(1, "x"), (3, "z")]
    path = tmp_path / "numbers.json"
    path.write_text('{"a": 1}\n{"a": "two"}\n{"a": 3}\n')
    assert connection.read_json(path, ignore_errors=True, **read).fetchall() == [(1,), (3,)]
    assert connection.read_json(path, columns={"a": "text"}).fetchall() == [("1",), ("two",), ("3",)]


def test_first_lines_that_name_no_columns_are_rows(connection, tmp_path):
    path = tmp_path / "people.csv"
    connection.execute('CREATE TABLE people ("Name" text, name text, city text)')
    path.write_text("Ada,ada,London\nGrace,grace,New York\n")
    assert connection.load_csv(path, "people") == 2
    # Case matters if columns differ only in it.
    path.write_text("name,Name\nalan,Alan\n")
    assert connection.load_csv(path, "people") == 1
    path.write_text("City,Name,name\nx,y,z\n")
    assert connection.load_csv(path, "people") == 2
    assert rows(connection, "people") == [
        ("Ada", "ada", "London"), ("Alan", "alan", None), ("City", "Name", "name"), ("Grace", "grace", "New York"),
        ("x", "y", "z"),
    ]
    connection.execute("CREATE TABLE numbers (a int, b int)")
    path.write_text("a,c\n1,10\n")
    with pytest.raises(firndb.DataError, match='"a"'):
        connection.load_csv(path, "numbers")
    connection.rollback()


def test_pipes_are_loaded_without_a_look_at_them(connection, tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    connection.execute("CREATE TABLE pairs (a int, b int)")
    writer = threading.Thread(target=path.write_text, args=("1,10\n2,20\n",))
    writer.start()
    assert connection.load_csv(path, "pairs") == 2
    writer.join()


def test_what_is_known_of_files_is_said(connection, tmp_path):
    path = tmp_path / "prices.csv"
    path.write_bytes(b"May\nname,price\ncaf\xe9,1.50\n5\" pipe,2\n")
    said = {"skip": 1, "encoding": "latin1"}
    prices = [("caf\u00e9", decimal.Decimal("1.50")), ('5" pipe', decimal.Decimal("2.00"))]
    assert connection.read_csv(path, types={"price": "numeric(10,2)"}, **said).fetchall() == prices
    assert connection.read_csv(path, types="price numeric(10,2)", quote="", **said).fetchall() == prices
    columns = {"What": "text", "it costs": "numeric(10,2)"}
    cursor = connection.read_csv(path, columns=columns, header=True, **said)
    assert [column[0] for column in cursor.description] == list(columns) and cursor.fetchall() == prices
    assert connection.read_csv(path, all_varchar=True, **said).fetchall()[0] == ("caf\u00e9", "1.50")
    path.write_bytes(b"name,price\ncaf\xe9,1.50\n5\" pipe,2\nx,much\n")
    assert connection.load_csv(path, "made", create=True, encoding="latin1") == 3
    connection.execute("CREATE SCHEMA shop")
    connection.execute("CREATE TABLE shop.prices (name text, price numeric(10,2))")
    load = {"schema": "shop", "on_error": "ignore", "rejects_table": "Rejects", "log_verbosity": "verbose"}
    assert connection.load_csv(path, "prices", quote="", encoding="latin1", **load) == 2
    assert rows(connection, "shop.prices") == sorted(prices)
    assert any('"much"' in notice for notice in connection.notices())
    lines = tmp_path / "prices.json"
    lines.write_text('{"name": "x"}\n{"name": "y", "price": "little"}\n')
    assert connection.load_json(lines, "prices", **load) == 1
    kept = connection.execute('SELECT line, value FROM shop."Rejects" ORDER BY 1').fetchall()
    assert kept == [(2, "little"), (4, "much")]
    with pytest.raises(ValueError):
        connection.load_json(lines, "new", create=True, on_error="ignore")
    connection.rollback()


@pytest.mark.parametrize("kind", ["parquet", "arrow", "json"])
def test_other_files_are_read_and_loaded(connection, tmp_path, kind):
    path = tmp_path / f"rows.{kind}"
    if kind == "parquet":
        pyarrow.parquet.write_table(TABLE, path)
    elif kind == "arrow":
        pyarrow.feather.write_feather(TABLE, path)
    else:
        path.write_text('{"id": 1, "name": "one", "more": 0.5}\n{"id": 2, "more": 1.5}\n')
    expected = [(1, "one", 0.5), (2, None, 1.5)]
    read = getattr(connection, f"read_{kind}")
    assert read(path).fetchall() == expected
    assert read([path, str(path)], filename="file").fetchall() == 2 * [(*row, str(path)) for row in expected]
    load = getattr(connection, f"load_{kind}")
    assert load(path, "made", create=True) == 2
    assert rows(connection, "made") == expected
    connection.execute("CREATE TABLE other (more real, id bigint)")
    assert load(path, "other", columns=["id", "more"]) == 2
    assert rows(connection, "other") == [(0.5, 1), (1.5, 2)]
    connection.commit()
    with pytest.raises(firndb.ProgrammingError) as caught:
        load(path, "other")
    assert caught.value.sqlstate == "42703"
    connection.rollback()


@pytest.mark.parametrize("of", [lambda table: table, polars.from_arrow, pyarrow.Table.to_pandas])
def test_tables_of_other_packages_are_loaded(connection, of):
    connection.execute('CREATE TABLE "My table" (more numeric(5,1), "name" text, id int, rest int DEFAULT 7)')
    assert connection.load_arrow(of(TABLE), "My table") == 2
    assert rows(connection, '"My table"') == [
        (decimal.Decimal("0.5"), "one", 1, 7),
        (decimal.Decimal("1.5"), None, 2, 7),
    ]
    assert connection.load_arrow(of(TABLE), "My table", columns=["id"]) == 2
    assert connection.load_arrow(of(TABLE), "made", create=True) == 2
    assert rows(connection, "made") == [(1, "one", 0.5), (2, None, 1.5)]
    with pytest.raises(firndb.ProgrammingError):
        connection.load_arrow(of(TABLE), "My table", columns=["nowhere"])
    connection.rollback()


def test_a_frame_of_pandas_comes_back(connection):
    frame = pandas.DataFrame({"a": [1, 2, 3], "b": ["x", None, "z"]})
    connection.load_arrow(frame, "frame", create=True)
    assert connection.execute("SELECT * FROM frame ORDER BY a").fetchall() == [(1, "x"), (2, None), (3, "z")]
