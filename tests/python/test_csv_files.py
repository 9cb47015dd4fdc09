"""CSV files that Python has written: we read the same as its `csv` module, and as DuckDB, if it is installed."""

import collections
import csv
import io
import random

import pytest

ROUNDS = 300
MOST_COLUMNS = 6

# Fields consist of these.
PIECES = ["a", "B", "7", "-1.5", " ", "  ", "ü", "京", "👩‍🚀", "e\u0301", "\u2028", "\x85", "NULL", "\\", "\\N", "#", "\\."]
PIECES_IN_QUOTES = [",", ";", "|", "\t", ":", '"', '""', "'", "\n", "\r\n", "\n\n"]

# By name, as some versions of Python do not have them, and whether an empty string is quoted like others.
QUOTINGS = {
    "QUOTE_MINIMAL": False,
    "QUOTE_NONE": False,
    "QUOTE_ALL": True,
    "QUOTE_NONNUMERIC": True,
    "QUOTE_STRINGS": True,
    "QUOTE_NOTNULL": True,
}


class File:
    """A random file, and the rows that must be read."""

    def __init__(self, seed, directory):
        chance = random.Random(seed)
        name = chance.choice([name for name in QUOTINGS if hasattr(csv, name)])
        quotes_empty = QUOTINGS[name]
        self.width = chance.randint(1, MOST_COLUMNS)
        self.header = chance.random() < 0.5
        self.delimiter = chance.choice([",", ";", "\t", "|", ":", "~", " "])
        self.quote = chance.choice(['"', '"', '"', "'"])
        # Python also escapes quotes outside of quoted fields, where PostgreSQL has no escapes.
        self.escape = "\\" if name == "QUOTE_ALL" and chance.random() < 0.3 else self.quote
        dialect = {
            "delimiter": self.delimiter,
            "quotechar": self.quote,
            "doublequote": self.escape == self.quote,
            "escapechar": None if self.escape == self.quote else self.escape,
            "lineterminator": chance.choice(["\n", "\r\n"]),
        }
        # Fields that Python does not quote must not need quotes.
        pieces = [piece for piece in PIECES if self.delimiter not in piece]
        if name != "QUOTE_NONE":
            pieces = PIECES + PIECES_IN_QUOTES
            if quotes_empty or dialect["lineterminator"] == "\r\n":
                pieces.append("\r")
        # For Python an empty line is not a record.
        shortest = 1 if name == "QUOTE_NONE" and self.width == 1 else 0

        def field():
            long = chance.random() < 0.02
            count = chance.randint(50, 200) if long else chance.choice([shortest, 1, 1, 2, 3])
            return "".join(chance.choice(pieces) for _ in range(count))

        # One row that makes every column text, so that numbers are not converted.
        rows = [["x"] * self.width]
        rows += [[field() for _ in range(self.width)] for _ in range(chance.randint(0, 12))]
        chance.shuffle(rows)
        names = [[field() for _ in range(self.width)]] if self.header else []
        self.begins_with_break = any("\n" in field or "\r" in field for field in (names + rows)[0])
        text = io.StringIO()
        csv.writer(text, quoting=getattr(csv, name), **dialect).writerows(names + rows)
        self.text = text.getvalue()
        if chance.random() < 0.2:
            self.text = self.text.removesuffix(dialect["lineterminator"])
        # For COPY such a line ends the data.
        self.has_marker = any(line.removesuffix("\r") == "\\." for line in self.text.split("\n"))
        self.path = directory / f"{seed}.csv"
        self.path.write_bytes(self.text.encode())

        quoting = csv.QUOTE_NONE if name == "QUOTE_NONE" else csv.QUOTE_MINIMAL
        read = csv.reader(io.StringIO(self.text, newline=""), quoting=quoting, **dialect)
        self.rows = list(read)[len(names) :]
        assert self.rows == rows, self
        # Python does not distinguish NULL from empty strings. An empty string that is its row's only field is always quoted.
        is_null = not quotes_empty and self.width > 1
        self.values = [tuple(None if is_null and field == "" else field for field in row) for row in rows]

    def __repr__(self):
        return f"{self.path.name}, {self.delimiter!r} {self.quote!r} {self.escape!r} {self.header}: {self.text!r}"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("files")
    return [File(seed, directory) for seed in range(ROUNDS)]


def literal(text):
    return "'" + str(text).replace("'", "''") + "'"


def read_in_place(connection, file):
    return connection.execute(
        f"SELECT * FROM read_csv({literal(file.path)}, delimiter => {literal(file.delimiter)},"
        f" quote => {literal(file.quote)}, escape => {literal(file.escape)}, header => {file.header})"
    ).fetchall()


def same(rows, expected):
    """Rows of a table have no order."""
    return collections.Counter(rows) == collections.Counter(expected)


def test_files_are_read_in_place_as_python_reads_them(auto, files):
    for file in files:
        assert same(read_in_place(auto, file), file.values), file


def test_files_are_copied_as_python_reads_them(auto, files):
    for width in range(1, MOST_COLUMNS + 1):
        auto.execute(f"CREATE TABLE t{width} ({', '.join(f'c{column} text' for column in range(width))})")
    assert any(file.has_marker for file in files)
    for file in [file for file in files if not file.has_marker]:
        auto.execute(f"TRUNCATE t{file.width}")
        auto.execute(
            f"COPY t{file.width} FROM {literal(file.path)} WITH (FORMAT csv, DELIMITER {literal(file.delimiter)},"
            f" QUOTE {literal(file.quote)}, ESCAPE {literal(file.escape)}, HEADER {file.header})"
        )
        assert same(auto.execute(f"SELECT * FROM t{file.width}").fetchall(), file.values), file


def test_usual_files_are_read_without_a_word_about_them(auto, tmp_path):
    chance = random.Random(7)
    path = tmp_path / "orders.csv"
    for delimiter in ",;\t|":
        for end in ["\n", "\r\n"]:
            # The first row has every value, as a column of NULL has no type.
            rows = [
                (
                    number,
                    chance.choice(["bolts, nuts", 'a "good" one', "two\nlines", "x;y|z\t", "ü"]),
                    None if number % 3 else number / 8,
                    None if number % 5 else number % 2 == 0,
                )
                for number in range(chance.randint(5, 30))
            ]
            with open(path, "w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file, delimiter=delimiter, lineterminator=end)
                writer.writerows([("order id", "what", "price", "is_paid"), *rows])
            result = auto.execute(f"SELECT * FROM {literal(path)}")
            assert [column[0] for column in result.description] == ["order id", "what", "price", "is_paid"]
            assert same(result.fetchall(), rows), path.read_text()


def test_duckdb_reads_what_we_read(auto, files):
    duckdb = pytest.importorskip("duckdb")
    # Version 2.0 fails for line breaks in quotes in the first record.
    files = [file for file in files if not file.begins_with_break]
    assert len(files) > ROUNDS / 2
    with duckdb.connect() as other:
        for file in files:
            theirs = other.execute(
                f"SELECT * FROM read_csv({literal(file.path)}, delim = {literal(file.delimiter)},"
                f" quote = {literal(file.quote)}, escape = {literal(file.escape)}, header = {file.header},"
                f" auto_detect = false, all_varchar = true,"
                f" columns = {{{', '.join(f'c{column}: VARCHAR' for column in range(file.width))}}})"
            ).fetchall()
            # It reads empty fields as NULL, quoted or not.
            ours = [tuple(field or None for field in row) for row in read_in_place(auto, file)]
            assert same([tuple(field or None for field in row) for row in theirs], ours), file
