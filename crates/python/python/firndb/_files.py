"""The SQL of statements that read files and load them."""

from __future__ import annotations

import gzip
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

Path = str | os.PathLike[str]
Paths = Path | Sequence[Path]
Columns = Mapping[str, str] | str


class Name:
    """The name of a table as the value of an option, already quoted for SQL."""

    def __init__(self, sql: str) -> None:
        self.sql = sql


Option = bool | int | str | Sequence[str] | Name


def name(schema: str | None, table: str) -> str:
    """A table's name, quoted."""
    return identifier(table) if schema is None else f"{identifier(schema)}.{identifier(table)}"


def identifier(text: str) -> str:
    """A name in quotes."""
    return '"' + text.replace('"', '""') + '"'


def names(columns: Sequence[str]) -> str:
    """Names in parentheses."""
    return "(" + ", ".join(map(identifier, columns)) + ")"


def declared(columns: Columns | None) -> str | None:
    """Columns with their types as ``CREATE TABLE`` declares them."""
    if columns is None or isinstance(columns, str):
        return columns
    return ", ".join(f"{identifier(column)} {kind}" for column, kind in columns.items())


REJECTS = ("on_error", "reject_limit", "rejects_table", "log_verbosity")


def rejects(
    schema: str | None, on_error: str | None, limit: int | None, table: str | None, verbosity: str | None
) -> dict[str, Option | None]:
    """The options for rows that cannot be read, without those that are None."""
    kept = None if table is None else Name(name(schema, table))
    options: dict[str, Option | None] = dict(zip(REJECTS, (on_error, limit, kept, verbosity), strict=True))
    return {option: value for option, value in options.items() if value is not None}


def _literal(value: Option) -> str:
    if isinstance(value, Name):
        return value.sql
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return names(value)


def _place(path: Path) -> str:
    # The engine is in this process, but the process may change its directory later.
    return _literal(os.path.abspath(os.fspath(path)))


def _places(path: Paths) -> str:
    if isinstance(path, str | os.PathLike):
        return _place(path)
    return f"ARRAY[{', '.join(map(_place, path))}]"


def read(kind: str, path: Paths, options: Mapping[str, Option | None]) -> str:
    """A call of a table function. Options that are None are left out: the engine finds them."""
    given = [f"{option} => {_literal(value)}" for option, value in options.items() if value is not None]
    return f"read_{kind}({', '.join([_places(path), *given])})"


DELIMITERS = (",", "\t", ";", "|")
"""The delimiters that the engine tries, in its order of preference."""


def may_be_looked_at(path: Path) -> bool:
    """Whether it is a file that can be read more than once, and not an empty one."""
    return os.path.isfile(path) and os.path.getsize(path) > 0


def as_texts(path: Path, options: Mapping[str, Option | None], *, header: bool) -> str:
    """A CSV file, all of whose columns are text. With ``header`` their names are the fields of the first line
    that has as many fields as most lines."""
    read_it = read("csv", path, {**options, "header": header, "all_varchar": True})
    # Statements are prepared once per text and keep their columns. The comment gives a changed file at the path another text.
    try:
        status = os.stat(path)
    except OSError:
        return read_it
    return f"{read_it} /* of {status.st_mtime_ns}, {status.st_size} bytes */"


@contextmanager
def first_line(path: Path) -> Iterator[Path | None]:
    """A temporary file with a copy of a file's first line; None if the line cannot be read here (zstd)."""
    with open(path, "rb") as file:
        start = file.read(4)
    if start == b"\x28\xb5\x2f\xfd" or start[1:] == b"\x2a\x4d\x18":
        yield None
        return
    opened = gzip.open(path) if start.startswith(b"\x1f\x8b") else open(path, "rb")
    with opened as file, tempfile.NamedTemporaryFile(suffix=".csv") as copy:
        copy.write(file.readline(1 << 20))
        copy.flush()
        yield copy.name


def columns_of(table: str) -> str:
    """A query for the columns of a table, whose name is already quoted."""
    return (
        f"SELECT attname FROM pg_attribute WHERE attrelid = {_literal(table)}::regclass"
        " AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
    )


def named(first: Sequence[str | None], columns: Sequence[str], *, all_of_them: bool) -> list[str] | None:
    """The columns that a first line names; None if one of its fields is no column."""
    # Case is ignored, unless two columns differ only in it.
    folds = len({column.casefold() for column in columns}) == len(columns)
    by_name = {column.casefold() if folds else column: column for column in columns}
    found = [by_name.get(name.casefold() if folds else name) for name in first if name is not None]
    names = [column for column in found if column is not None]
    if len(names) < len(first) or len(set(names)) < len(names) or (all_of_them and len(names) < len(columns)):
        return None
    return names or None


def load(
    kind: str,
    path: Path,
    table: str,
    columns: Sequence[str] | None,
    options: Mapping[str, Option | None],
) -> str:
    """COPY into a table, whose name is already quoted."""
    listed = "" if columns is None else f" {names(columns)}"
    given = [f"{option.upper()} {_literal(value)}" for option, value in options.items() if value is not None]
    return f"COPY {table}{listed} FROM {_place(path)} ({', '.join([f'FORMAT {kind}', *given])})"
