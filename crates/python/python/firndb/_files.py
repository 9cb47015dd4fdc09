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
    """The name of a table among options, which is SQL already."""

    def __init__(self, sql: str) -> None:
        self.sql = sql


Option = bool | int | str | Sequence[str] | Name


def name(schema: str | None, table: str) -> str:
    """A table's name, taken as it is."""
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
    """Options of what becomes of rows that cannot be read; those that are said."""
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
    # The engine is in this process, but nobody says that it is in this directory for ever.
    return _literal(os.path.abspath(os.fspath(path)))


def _places(path: Paths) -> str:
    if isinstance(path, str | os.PathLike):
        return _place(path)
    return f"ARRAY[{', '.join(map(_place, path))}]"


def read(kind: str, path: Paths, options: Mapping[str, Option | None]) -> str:
    """A table function; options that are None are left to the engine."""
    given = [f"{option} => {_literal(value)}" for option, value in options.items() if value is not None]
    return f"read_{kind}({', '.join([_places(path), *given])})"


DELIMITERS = (",", "\t", ";", "|")
"""What the engine tries, the likelier ones first."""


def may_be_looked_at(path: Path) -> bool:
    """Whether it is a file that can be read more than once, and not an empty one."""
    return os.path.isfile(path) and os.path.getsize(path) > 0


def as_texts(path: Path, options: Mapping[str, Option | None], *, header: bool) -> str:
    """A CSV file, all of whose columns are text; called as a line of it says that has as many fields as most, or its lines as they are."""
    read_it = read("csv", path, {**options, "header": header, "all_varchar": True})
    # Statements are prepared once for each text, and keep their columns; another file at the path is another text.
    try:
        status = os.stat(path)
    except OSError:
        return read_it
    return f"{read_it} /* of {status.st_mtime_ns}, {status.st_size} bytes */"


@contextmanager
def first_line(path: Path) -> Iterator[Path | None]:
    """A file that has a copy of another one's first line; nothing if that cannot be told."""
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
    """The columns of a table whose name is SQL already."""
    return (
        f"SELECT attname FROM pg_attribute WHERE attrelid = {_literal(table)}::regclass"
        " AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
    )


def named(first: Sequence[str | None], columns: Sequence[str], *, all_of_them: bool) -> list[str] | None:
    """The columns that a first line names; nothing if it says anything else."""
    # In whatever case, unless that is all that keeps two columns apart.
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
    """COPY into a table whose name is SQL already."""
    listed = "" if columns is None else f" {names(columns)}"
    given = [f"{option.upper()} {_literal(value)}" for option, value in options.items() if value is not None]
    return f"COPY {table}{listed} FROM {_place(path)} ({', '.join([f'FORMAT {kind}', *given])})"
