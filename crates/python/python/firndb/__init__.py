"""FirnDB in your process: a main-memory SQL database whose tables are Apache Arrow.

    >>> import firndb
    >>> with firndb.connect(":memory:") as connection:
    ...     connection.execute("CREATE TABLE items (id int PRIMARY KEY, name text, price numeric(10,2))").close()
    ...     connection.executemany("INSERT INTO items VALUES (?, ?, ?)", [(1, "pencil", "0.80"), (2, "paper", 4)]).close()
    ...     connection.execute("SELECT name, price FROM items WHERE price > ?", [1]).fetchall()
    [('paper', Decimal('4.00'))]

It follows DB-API 2.0 (PEP 249), and returns results as Arrow, pandas and Polars tables.
"""

from firndb._connection import (
    Connection,
    Cursor,
    apilevel,
    connect,
    paramstyle,
    threadsafety,
)
from firndb._firndb import __version__ as _version
from firndb._errors import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    QueryCanceled,
    SerializationFailure,
    Warning,
)
from firndb._types import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    Binary,
    Date,
    DateFromTicks,
    Interval,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
)

__version__ = _version

__all__ = [
    "BINARY",
    "Binary",
    "Connection",
    "Cursor",
    "DATETIME",
    "DataError",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "Interval",
    "NUMBER",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "QueryCanceled",
    "ROWID",
    "STRING",
    "SerializationFailure",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "Warning",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]
