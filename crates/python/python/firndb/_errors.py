"""The exceptions: DB-API's, by class of SQLSTATE, with the fields of the engine's errors."""

from __future__ import annotations

__all__ = [
    "DataError",
    "DatabaseError",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "QueryCanceled",
    "SerializationFailure",
    "Warning",
]


class Warning(Exception):  # noqa: A001 - its name in PEP 249.
    """Never raised; PEP 249 requires it."""


class Error(Exception):
    """Any error of the database. Its text is the message, with detail and hint on lines of their own."""

    sqlstate: str | None = None
    """PostgreSQL's code of five characters, such as ``23505``."""
    message: str | None = None
    """The primary message."""
    detail: str | None = None
    """Details of the error."""
    hint: str | None = None
    """A suggestion how to solve the problem."""
    context: str | None = None
    """Where the error occurred: file, line, column."""
    position: int | None = None
    """The position in the statement, in characters from 1."""
    constraint: str | None = None
    """The constraint that was violated."""
    table: str | None = None
    """The table of the error."""
    column: str | None = None
    """The column of that table."""

    def __reduce__(self) -> tuple[object, ...]:
        return (_restore, (type(self), self.args, self.__dict__))


def _restore(kind: type[Error], args: tuple[object, ...], attributes: dict[str, object]) -> Error:
    error = kind(*args)
    error.__dict__.update(attributes)
    return error


class InterfaceError(Error):
    """The package was misused, for example a closed connection."""


class DatabaseError(Error):
    """An error of the engine."""


class DataError(DatabaseError):
    """An error of a value: out of range, invalid text, division by zero."""


class OperationalError(DatabaseError):
    """An error outside the statement: conflicts, cancellation, memory, disk, a database that another process has open."""


class IntegrityError(DatabaseError):
    """A constraint is violated."""


class InternalError(DatabaseError):
    """The transaction is in the wrong state, or the engine has an internal error."""


class ProgrammingError(DatabaseError):
    """An error in the statement: syntax, names, types, the number of parameters."""


class NotSupportedError(DatabaseError):
    """FirnDB does not support this."""


class SerializationFailure(OperationalError):
    """A conflict with another transaction (40001) or a deadlock (40P01): run the transaction again.

    :meth:`firndb.Connection.retry` does that.
    """


class QueryCanceled(OperationalError):
    """The statement was cancelled, or took longer than ``statement_timeout`` (57014)."""


# Their `repr` has the module from which programs import them.
for _name in __all__:
    globals()[_name].__module__ = "firndb"

# The mapping of psycopg.
_CLASSES: dict[str, type[DatabaseError]] = {
    "0A": NotSupportedError,
    "20": ProgrammingError,
    "21": ProgrammingError,
    "22": DataError,
    "23": IntegrityError,
    "24": InternalError,
    "25": InternalError,
    "26": ProgrammingError,
    "2B": InternalError,
    "2D": InternalError,
    "2F": InternalError,
    "34": ProgrammingError,
    "3B": InternalError,
    "3D": ProgrammingError,
    "3F": ProgrammingError,
    "42": ProgrammingError,
    "44": ProgrammingError,
    "F0": InternalError,
    "P0": ProgrammingError,
    "XX": InternalError,
}
_STATES: dict[str, type[Error]] = {
    "08003": InterfaceError,
    "40001": SerializationFailure,
    "40P01": SerializationFailure,
    "57014": QueryCanceled,
}


def from_engine(
    sqlstate: str,
    message: str,
    detail: str | None,
    hint: str | None,
    context: str | None,
    position: int | None,
    constraint: str | None,
    table: str | None,
    column: str | None,
) -> Error:
    """The exception for an error of the engine. The extension module calls this."""
    lines = [message]
    for name, text in ("DETAIL", detail), ("HINT", hint), ("CONTEXT", context):
        if text is not None:
            lines.append(f"{name}: {text}")
    kind = _STATES.get(sqlstate) or _CLASSES.get(sqlstate[:2], OperationalError)
    error = kind("\n".join(lines))
    error.sqlstate = sqlstate
    error.message = message
    error.detail = detail
    error.hint = hint
    error.context = context
    error.position = position
    error.constraint = constraint
    error.table = table
    error.column = column
    return error
