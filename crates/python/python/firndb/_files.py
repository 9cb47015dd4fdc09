"""The SQL of statements that read files and load them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

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
