"""The exceptions: DB-API's, by class of SQLSTATE, with what the engine says beside its message."""

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


class Warning(Exception):  # noqa: A001 - PEP 249 names it so.
    """Never raised; PEP 249 asks for it."""


class Error(Exception):
    """Any error of the database. Its text is the message, with detail and hint on lines of their own."""

    sqlstate: str | None = None
    """PostgreSQL's code of five characters, such as ``23505``."""
    message: str | None = None
    """What went wrong, alone."""
    detail: str | None = None
    """What exactly was found."""
    hint: str | None = None
    """What to do about it."""
    context: str | None = None
    """What was being done."""
    position: int | None = None
    """Where in the statement, in characters from 1."""
    constraint: str | None = None
    """The constraint that was violated."""
    table: str | None = None
    """The table that it is about."""
    column: str | None = None
    """The column of that table."""

    def __reduce__(self) -> tuple[object, ...]:
        return (_restore, (type(self), self.args, self.__dict__))


def _restore(kind: type[Error], args: tuple[object, ...], attributes: dict[str, object]) -> Error:
    error = kind(*args)
    error.__dict__.update(attributes)
    return error


class InterfaceError(Error):
    """The package was misused: what is closed cannot be used."""


class DatabaseError(Error):
    """The database refused or failed."""


class DataError(DatabaseError):
    """A value cannot be what it is to be: out of range, badly written, divided by zero."""


class OperationalError(DatabaseError):
    """Something outside the statement: conflicts, cancellation, memory, disk, a database open elsewhere."""


class IntegrityError(DatabaseError):
    """A constraint is violated."""


class InternalError(DatabaseError):
    """A transaction is not in the state for this, or the engine has made a mistake."""


class ProgrammingError(DatabaseError):
    """The statement is wrong: syntax, names, types, the number of parameters."""


class NotSupportedError(DatabaseError):
    """FirnDB cannot do this."""


class SerializationFailure(OperationalError):
    """Others changed what the transaction needs (40001), or waited for it in a circle (40P01): run it again.

    :meth:`firndb.Connection.retry` does that.
    """


class QueryCanceled(OperationalError):
    """The statement was cancelled, or took longer than ``statement_timeout`` (57014)."""


# They are shown by the names under which programs know them.
for _name in __all__:
    globals()[_name].__module__ = "firndb"

# As psycopg maps them.
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
    """The exception for an error of the engine; the native half calls this."""
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
