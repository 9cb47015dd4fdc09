"""CSV files with typed values: we read the same as Python and DuckDB, and refuse the same as DuckDB.

The files have only values that all of them support: ISO dates, `true` and `false`, numbers in SQL's syntax with no more digits
than their type has, and empty fields for NULL, which DuckDB does not distinguish from empty strings.
"""

import collections
import csv
import datetime
import decimal
import random
import re

import firndb
import pytest

duckdb = pytest.importorskip("duckdb")

ROUNDS = 150

# For each type: a generator of values, their texts, how Python reads them, and fields that are invalid for all.
Kind = collections.namedtuple("Kind", "draw write read wrong")


def an_integer(bits):
    def draw(chance):
        edge = chance.choice([-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, 0, -1])
        usual = chance.randint(-(10 ** chance.randint(0, 4)), 10 ** chance.randint(0, 4))
        return edge if chance.random() < 0.2 else usual

    beyond = str(2 ** (bits - 1))
    return Kind(draw, lambda chance, value: str(value), int, ["x", "1x", "--1", "1 2", beyond, f"-{beyond}0"])


def a_double(chance):
    return chance.choice([chance.uniform(-1e3, 1e3), chance.uniform(-1, 1) * 10.0 ** chance.randint(-300, 300)])


def a_moment(chance):
    fraction = chance.choice([0, chance.randrange(1000) * 1000, chance.randrange(1_000_000)])
    since = datetime.timedelta(chance.randint(-50_000, 50_000), chance.randrange(86_400), fraction)
    return datetime.datetime(1970, 1, 1) + since


KINDS = {
    "smallint": an_integer(16),
    "integer": an_integer(32),
    "bigint": an_integer(64),
    "numeric(12,2)": Kind(
        lambda chance: decimal.Decimal(chance.randint(-(10**6), 10**6)).scaleb(-2),
        lambda chance, value: str(value),
        decimal.Decimal,
        ["x", "1.2.3", "1,5", "12345678901.00"],
    ),
    "double precision": Kind(a_double, lambda chance, value: repr(value), float, ["x", "1.5x", "1.2.3"]),
    "boolean": Kind(
        lambda chance: chance.random() < 0.5,
        lambda chance, value: str(value).lower(),
        lambda text: text == "true",
        ["x", "truth", "2"],
    ),
    "date": Kind(
        lambda chance: datetime.date(1970, 1, 1) + datetime.timedelta(chance.randint(-100_000, 100_000)),
        lambda chance, value: value.isoformat(),
        datetime.date.fromisoformat,
        ["x", "2024-02-30", "2024-13-01"],
    ),
    "timestamp": Kind(
        a_moment,
        lambda chance, value: value.isoformat(sep=chance.choice(" T")),
        datetime.datetime.fromisoformat,
        ["x", "2024-02-30 00:00:00", "2024-01-01 25:00:00"],
    ),
    "text": Kind(
        lambda chance: "".join(
            chance.choice(["a", "B", "7", "ü", "京", ",", '"', "\n", " x", "''"]) for _ in range(chance.randint(1, 8))
        ),
        lambda chance, value: value,
        str,
        [],
    ),
}


class File:
    """A random file whose columns all have types, and its rows."""

    def __init__(self, seed, directory, kinds):
        self.chance = chance = random.Random(seed)
        self.kinds = [chance.choice(kinds) for _ in range(chance.randint(2, 7))]
        self.quotes_all = chance.random() < 0.5
        self.end = chance.choice(["\n", "\r\n"])
        self.rows, self.written = [], []
        for number in range(chance.randint(1, 40)):
            # The first row has all values, and the others at most one NULL: an empty line would not be a row.
            null = chance.randrange(len(self.kinds)) if number and chance.random() < 0.3 else None
            row = [None if at == null else KINDS[kind].draw(chance) for at, kind in enumerate(self.kinds)]
            self.rows.append(tuple(row))
            fields = zip(self.kinds, row)
            self.written.append(["" if value is None else KINDS[kind].write(chance, value) for kind, value in fields])
        self.path = directory / f"{seed}.csv"
        self.write()

    def write(self):
        with open(self.path, "w", newline="", encoding="utf-8") as file:
            names = [f"c{column}" for column in range(len(self.kinds))]
            if self.quotes_all:
                # Except NULL, which would be an empty string. Python's writer has this option since 3.12.
                for row in [names, *self.written]:
                    quoted = ('"' + field.replace('"', '""') + '"' if field else "" for field in row)
                    file.write(",".join(quoted) + self.end)
            else:
                csv.writer(file, lineterminator=self.end).writerows([names, *self.written])

    def by_python(self):
        with open(self.path, newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))[1:]
        read = lambda kind, field: None if field == "" else KINDS[kind].read(field)
        return [tuple(map(read, self.kinds, row)) for row in rows]

    def columns(self):
        return [(f"c{column}", kind) for column, kind in enumerate(self.kinds)]

    def __repr__(self):
        return f"{self.path.name}: {self.kinds}\n{self.path.read_text(encoding='utf-8')}"


@pytest.fixture
def files(tmp_path):
    return lambda kinds=tuple(KINDS): (File(seed, tmp_path, kinds) for seed in range(ROUNDS))


@pytest.fixture
def other():
    with duckdb.connect() as connection:
        yield connection


def literal(text):
    return "'" + str(text).replace("'", "''") + "'"


def copied(auto, file):
    columns = ", ".join(f"{name} {kind}" for name, kind in file.columns())
    auto.execute("DROP TABLE IF EXISTS t")
    auto.execute(f"CREATE TABLE t ({columns})")
    auto.execute(f"COPY t FROM {literal(file.path)} (FORMAT csv, HEADER)")
    return auto.execute("SELECT * FROM t").fetchall()


def by_duckdb(other, file, types):
    dialect = "delim = ',', quote = '\"', escape = '\"', header = true"
    return other.execute(f"SELECT * FROM read_csv({literal(file.path)}, {dialect}, {types})").fetchall()


def declared(file):
    types = ", ".join(f"{name}: {literal(kind.removesuffix(' precision'))}" for name, kind in file.columns())
    return f"auto_detect = false, columns = {{{types}}}"


def same(rows, expected):
    """Rows of a table have no order."""
    return collections.Counter(rows) == collections.Counter(expected)


def test_values_of_types_are_those_that_python_and_duckdb_read(auto, other, files):
    for file in files():
        rows = copied(auto, file)
        assert same(rows, file.rows), file
        assert same(file.by_python(), file.rows), file
        assert same(by_duckdb(other, file, declared(file)), rows), file


def test_inferred_types_are_those_of_duckdb(auto, other, files):
    for file in files(["bigint", "double precision", "boolean", "date", "timestamp", "text"]):
        rows = auto.execute(f"SELECT * FROM {literal(file.path)}").fetchall()
        assert same(rows, by_duckdb(other, file, "sample_size = -1")), file


def test_what_is_no_value_is_refused_by_both_and_named_by_its_line(auto, other, files):
    refused = 0
    for file in files():
        places = [at for at, kind in enumerate(file.kinds) if KINDS[kind].wrong]
        if not places:
            continue
        at, number = file.chance.choice(places), file.chance.randrange(len(file.written))
        file.written[number][at] = file.chance.choice(KINDS[file.kinds[at]].wrong)
        file.write()
        with pytest.raises(duckdb.Error):
            by_duckdb(other, file, declared(file))
        with pytest.raises(firndb.Error) as error:
            copied(auto, file)
        # The line on which the record ends.
        so_far = "".join(field for row in file.written[: number + 1] for field in row)
        line = 2 + number + so_far.count("\n")
        said = re.search(r"COPY t, line (\d+), column (\w+)", error.value.context)
        assert said and said.groups() == (str(line), f"c{at}"), f"{error.value!r} instead of line {line}\n{file}"
        assert auto.execute("SELECT * FROM t").fetchall() == [], file
        refused += 1
    assert refused > ROUNDS / 2
