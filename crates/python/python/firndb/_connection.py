"""Connections and cursors: DB-API 2.0 and extensions of it."""

from __future__ import annotations

import atexit
import datetime
import os
import random
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from firndb import _errors, _files, _firndb, _frames

if TYPE_CHECKING:
    from types import TracebackType

    import pandas
    import polars
    import pyarrow

__all__ = ["Connection", "Cursor", "apilevel", "connect", "paramstyle", "threadsafety"]

apilevel = "2.0"
"""PEP 249."""
threadsafety = 2
"""Threads may share the module and connections, but not cursors. A connection runs one statement at a time."""
paramstyle = "qmark"
"""``WHERE id = ?``; ``WHERE id = $1``, and ``WHERE id = $name`` with a dict, work as well."""

Row = tuple[Any, ...]
Parameters = Sequence[Any] | Mapping[str, Any]
Isolation = Literal["serializable", "repeatable read", "read committed"]
T = TypeVar("T")

_LONGEST_PAUSE_S = 0.05

# The open sessions. They are closed before the interpreter exits.
_sessions: weakref.WeakSet[_firndb.Session] = weakref.WeakSet()


def _close_all() -> None:
    for session in list(_sessions):
        session.cancel()
    for session in list(_sessions):
        session.close()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_firndb._after_fork_in_child)


def connect(
    database: str | os.PathLike[str] = ":memory:",
    *,
    autocommit: bool = False,
    memory_limit: int | str | None = None,
    freeze_after: datetime.timedelta | str | None = None,
    compact_after: datetime.timedelta | str | None = None,
    find_frames: bool = True,
    **settings: object,
) -> Connection:
    """Opens a database and connects to it.

    ``database`` is a directory, created if it is missing, or ``":memory:"`` for a new database that ends with its last
    connection. Connections of one process share a directory; a second process is refused (55006).

    With ``autocommit`` every statement is a transaction. Without it a transaction begins with the first
    statement and lasts until :meth:`Connection.commit` or :meth:`Connection.rollback`, as DB-API requires.
    ``memory_limit`` limits the memory of the database's store, in bytes or as ``"8GiB"``: three quarters of the machine's
    memory if left out, 0 for no limit.
    ``freeze_after`` and ``compact_after`` are the times after which rows without writes become cold, like ``"10s"`` or
    ``"never"``: first frozen, so that results share their memory (5 seconds if left out), then compact, so that they take
    less memory (a minute later). Tables may have times of their own.
    With ``find_frames``, names in ``FROM`` that are not names of tables refer to the caller's variables, if those are data frames
    (:attr:`Connection.find_frames`). Other arguments are settings as in ``SET``: ``connect(path, statement_timeout="5s")``.
    """
    directory = None if database == ":memory:" else os.fspath(database)
    limit = None if memory_limit is None else str(memory_limit)
    session = _firndb.connect(directory, limit, _time(freeze_after), _time(compact_after), autocommit)
    connection = Connection(session)
    connection.find_frames = find_frames
    try:
        for name, value in settings.items():
            connection._session.set(name, _setting(value))
    except BaseException:
        connection.close()
        raise
    return connection


def _time(value: datetime.timedelta | str | None) -> str | None:
    if isinstance(value, datetime.timedelta):
        return f"{value // datetime.timedelta(milliseconds=1)}ms"
    return value


def _setting(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _shown(state: Callable[[], str]) -> str:
    # `repr` in a debugger must not raise, not even in a forked child.
    try:
        return state()
    except _errors.OperationalError:
        return "of another process"


class Connection:
    """A connection for any number of threads, which runs one statement at a time. :func:`connect` creates it.

    As a context manager it commits at the end, or rolls back after an exception, and closes.
    """

    Warning = _errors.Warning
    Error = _errors.Error
    InterfaceError = _errors.InterfaceError
    DatabaseError = _errors.DatabaseError
    DataError = _errors.DataError
    OperationalError = _errors.OperationalError
    IntegrityError = _errors.IntegrityError
    InternalError = _errors.InternalError
    ProgrammingError = _errors.ProgrammingError
    NotSupportedError = _errors.NotSupportedError

    find_frames: bool
    """Whether a name in ``FROM`` that is not the name of a table refers to a variable of the caller that is a data frame.

    Variables of the function that calls :meth:`execute` and similar methods take precedence over those of its module. Switch it
    off if the text of statements comes from untrusted sources: they could read any frame.
    """

    def __init__(self, session: _firndb.Session) -> None:
        self._session = session
        self.find_frames = True
        _sessions.add(session)

    def connect(self, *, autocommit: bool | None = None) -> Connection:
        """Another connection to the same database, with transactions and settings of its own."""
        wanted = self.autocommit if autocommit is None else autocommit
        other = Connection(self._session.connect(wanted))
        other.find_frames = self.find_frames
        return other

    def _finder(self) -> Callable[[str], object | None] | None:
        return _frames.find_frame if self.find_frames else None

    def cursor(self) -> Cursor:
        """A cursor. Cursors of one connection share its transaction."""
        if self.closed:
            raise _errors.InterfaceError("the connection is closed")
        return Cursor(self)

    def execute(self, sql: str, parameters: Parameters | None = None) -> Cursor:
        """Runs a statement on a new cursor."""
        return self.cursor().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Parameters]) -> Cursor:
        """Runs a statement for each of the sequences or dicts of values, on a new cursor."""
        return self.cursor().executemany(sql, parameters)

    def executescript(self, sql: str) -> None:
        """Runs statements separated by semicolons, without parameters; their rows are discarded."""
        self._session.executescript(sql, self._finder())

    # Transactions.

    def commit(self) -> None:
        """Commits the open transaction, if there is one."""
        self._session.end(True)

    def rollback(self) -> None:
        """Rolls back the open transaction."""
        self._session.end(False)

    @property
    def autocommit(self) -> bool:
        """Whether every statement is a transaction; can be set while no transaction is open."""
        return self._session.autocommit

    @autocommit.setter
    def autocommit(self, value: bool) -> None:
        self._session.autocommit = value

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, or has failed and is not rolled back."""
        return self._session.transaction_status != "idle"

    @contextmanager
    def transaction(
        self, *, isolation: Isolation | None = None, read_only: bool = False
    ) -> Iterator[Connection]:
        """A transaction that commits when the block ends and rolls back when it raises.

        Inside another one it is a savepoint, which has neither ``isolation`` nor ``read_only`` of its own.
        """
        session = self._session
        if session.transaction_status != "idle":
            if isolation is not None or read_only:
                raise _errors.from_engine(
                    "25001",
                    "isolation and read_only cannot change inside a transaction",
                    None,
                    "Call commit() or rollback() first.",
                    *(None,) * 5,
                )
            begin, commit, rollback = (
                "SAVEPOINT firndb",
                ["RELEASE SAVEPOINT firndb"],
                ["ROLLBACK TO SAVEPOINT firndb", "RELEASE SAVEPOINT firndb"],
            )
        else:
            begin = "BEGIN"
            if isolation is not None:
                if isolation not in ("serializable", "repeatable read", "read committed"):
                    raise ValueError(f"there is no isolation level {isolation!r}")
                begin += f" ISOLATION LEVEL {isolation}"
            if read_only:
                begin += " READ ONLY"
            commit, rollback = ["COMMIT"], ["ROLLBACK"]
        session.execute(begin).close()
        try:
            yield self
            if commit == ["COMMIT"]:
                session.end(True)
            else:
                for statement in commit:
                    session.execute(statement).close()
        except BaseException:
            if not session.closed and session.transaction_status != "idle":
                for statement in rollback:
                    session.execute(statement).close()
            raise

    def retry(
        self,
        work: Callable[[Connection], T],
        *,
        attempts: int = 20,
        isolation: Isolation | None = None,
        read_only: bool = False,
    ) -> T:
        """Runs ``work(connection)`` in a transaction and commits; again after a :class:`SerializationFailure`.

        ``work`` may run several times, so it should change nothing but the database. An error of the last of ``attempts``
        is raised.
        """
        if self.in_transaction:
            raise _errors.from_engine(
                "25001",
                "retry() begins a transaction, and one is open already",
                None,
                "Call commit() or rollback() first.",
                *(None,) * 5,
            )
        if attempts < 1:
            raise ValueError("attempts must be positive")
        for attempt in range(1, attempts + 1):
            try:
                with self.transaction(isolation=isolation, read_only=read_only):
                    return work(self)
            except _errors.SerializationFailure:
                if attempt == attempts:
                    raise
                # Other transactions get ahead during a random pause, whose upper limit doubles each time.
                time.sleep(random.uniform(0, min(_LONGEST_PAUSE_S, 0.0001 * 2**attempt)))
        raise AssertionError("the last attempt returns or raises")

    # Sources.

    def register(self, name: str, table: object) -> None:
        """Gives ``name`` to a table of pyarrow, pandas or Polars in this connection's statements.

        Any object with ``__arrow_c_stream__`` or ``__arrow_c_array__`` is accepted; a stream is read to its end now.
        Nothing is copied, so the table must not change while it is registered. It takes precedence over tables of
        that name, and is read-only: ``INSERT INTO t SELECT * FROM name``.

        The name is case-sensitive. SQL converts unquoted names to lower case, so ``SELECT * FROM "Items"`` reads
        the table that is registered as ``"Items"``.
        """
        self._session.register(name, table)

    def unregister(self, name: str) -> None:
        """Removes a registered name."""
        self._session.unregister(name)

    # Files.

    def read_csv(
        self,
        path: _files.Paths,
        *,
        delimiter: str | None = None,
        quote: str | None = None,
        escape: str | None = None,
        null: str | None = None,
        header: bool | None = None,
        skip: int | None = None,
        types: _files.Columns | None = None,
        columns: _files.Columns | None = None,
        all_varchar: bool | None = None,
        ignore_errors: bool | None = None,
        encoding: str | None = None,
        filename: bool | str | None = None,
    ) -> Cursor:
        """The rows of a CSV file, of all files whose names match a pattern (``orders-*.csv``), or of a list of both.

        Options that are left out, and the types of the columns, are found in the first megabyte. ``types`` has the types of
        some columns, ``{"price": "numeric(10,2)"}``, and ``columns`` names and types of all; both may also be text, as in
        ``CREATE TABLE``. With ``all_varchar=True`` all columns are text. ``skip`` is the number of lines to skip at the beginning.
        ``quote=""`` means that the file has no quotes. ``ignore_errors=True`` skips rows that cannot be read.
        ``filename=True`` adds a column ``filename`` with the file of each row; a string instead of ``True`` is its name.
        """
        options = {
            "delimiter": delimiter,
            "quote": quote,
            "escape": escape,
            "null": null,
            "header": header,
            "skip": skip,
            "types": _files.declared(types),
            "columns": _files.declared(columns),
            "all_varchar": all_varchar,
            "ignore_errors": ignore_errors,
            "encoding": encoding,
            "filename": filename,
        }
        return self._read("csv", path, options)

    def read_parquet(self, path: _files.Paths, *, filename: bool | str | None = None) -> Cursor:
        """The rows of a Parquet file, of all files whose names match a pattern, or of a list of both.

        ``filename`` is as in :meth:`read_csv`.
        """
        return self._read("parquet", path, {"filename": filename})

    def read_arrow(self, path: _files.Paths, *, filename: bool | str | None = None) -> Cursor:
        """The rows of a file or stream in Arrow's IPC format, of all files whose names match a pattern, or of a list of both.

        ``filename`` is as in :meth:`read_csv`.
        """
        return self._read("arrow", path, {"filename": filename})

    def read_json(
        self,
        path: _files.Paths,
        *,
        types: _files.Columns | None = None,
        columns: _files.Columns | None = None,
        ignore_errors: bool | None = None,
        filename: bool | str | None = None,
    ) -> Cursor:
        """The rows of a file with a JSON object on each line, of all files whose names match a pattern, or of a list of both.

        The options are those of :meth:`read_csv`.
        """
        options = {
            "types": _files.declared(types),
            "columns": _files.declared(columns),
            "ignore_errors": ignore_errors,
            "filename": filename,
        }
        return self._read("json", path, options)

    def _read(self, kind: str, path: _files.Paths, options: dict[str, _files.Option | None]) -> Cursor:
        return self.execute(f"SELECT * FROM {_files.read(kind, path, options)}")

    def load_csv(
        self,
        path: _files.Path,
        table: str,
        *,
        schema: str | None = None,
        columns: Sequence[str] | None = None,
        create: bool = False,
        delimiter: str | None = None,
        quote: str | None = None,
        escape: str | None = None,
        null: str | None = None,
        header: bool | Literal["match"] | None = None,
        encoding: str | None = None,
        on_error: Literal["stop", "ignore"] | None = None,
        reject_limit: int | None = None,
        rejects_table: str | None = None,
        log_verbosity: Literal["default", "verbose"] | None = None,
    ) -> int:
        """Loads a CSV file into a table, by ``COPY``. Returns the number of rows.

        Without ``header``, the first line is a header if its fields are names of the table's columns, or all of
        ``columns``, in any order and case. Then the file has these columns. Any other first line is a row, and
        the file's columns are the table's, or ``columns``, in that order. ``header=True`` skips the first line,
        ``header=False`` reads it as a row, and ``header="match"`` requires the names of the columns, in their order.
        Without ``delimiter``, it is found in the file, as by :meth:`read_csv`. A pipe can be read only once, so it is not
        inspected: its default is commas and no header. ``on_error="ignore"`` skips rows that cannot be read, and
        ``reject_limit`` limits their number. :meth:`notices` returns their number, and with ``log_verbosity="verbose"`` each
        of them. ``rejects_table``, in the same schema, stores them, and is created if it does not exist.

        ``create=True`` creates the table, with the columns and types that :meth:`read_csv` finds.
        """
        options: dict[str, _files.Option | None] = {
            "delimiter": delimiter,
            "quote": quote,
            "escape": escape,
            "null": null,
            "header": header,
            "encoding": encoding,
        }
        rejects = _files.rejects(schema, on_error, reject_limit, rejects_table, log_verbosity)
        if create:
            if columns is not None or rejects or header == "match":
                options_left_out = ", ".join(_files.REJECTS)
                raise ValueError(f"create=True has columns, {options_left_out} and header='match' left out")
            return self._create("csv", path, _files.name(schema, table), options)
        into = _files.name(schema, table)
        if _files.may_be_looked_at(path):
            columns = self._look_at_csv(path, into, columns, options)
        options["quote"] = "none" if quote == "" else quote
        options |= rejects
        return self._load("csv", path, into, columns, options)

    def _look_at_csv(
        self,
        path: _files.Path,
        into: str,
        columns: Sequence[str] | None,
        options: dict[str, _files.Option | None],
    ) -> Sequence[str] | None:
        """Finds delimiter and header of a CSV file, if they are not in ``options``. Returns the columns of the table that the file has."""
        if options["header"] is not None and options["delimiter"] is not None:
            return columns
        said = {name: value for name, value in options.items() if name not in ("null", "header")}
        # COPY reports or skips rows that cannot be read. The savepoint protects the caller's transaction from the error.
        with suppress(_errors.DataError), self.transaction():
            if options["delimiter"] is None:
                names = self._columns_of(path, said)
                for delimiter in _files.DELIMITERS:
                    if self._columns_of(path, {**said, "delimiter": delimiter}) == names:
                        options["delimiter"] = said["delimiter"] = delimiter
                        break
        if options["header"] is None:
            first = self._first_row(path, said)
            if first is None:
                # Perhaps another line cannot be read: try the first line alone.
                with _files.first_line(path) as line:
                    first = None if line is None else self._first_row(line, said)
            known = columns
            if known is None:
                with self.execute(_files.columns_of(into)) as cursor:
                    known = [name for (name,) in cursor]
            found = None if first is None else _files.named(first, known, all_of_them=columns is not None)
            options["header"] = found is not None
            return columns if found is None else found
        return columns

    def _first_row(self, path: _files.Path, options: dict[str, _files.Option | None]) -> Row | None:
        with suppress(_errors.DataError), self.transaction():
            sql = f"SELECT * FROM {_files.as_texts(path, options, header=False)} LIMIT 1"
            with self.execute(sql) as cursor:
                return cursor.fetchone()
        return None

    def _columns_of(self, path: _files.Path, options: dict[str, _files.Option | None]) -> list[str]:
        with self.execute(f"SELECT * FROM {_files.as_texts(path, options, header=True)} LIMIT 0") as cursor:
            return [column[0] for column in cursor.description or ()]

    def load_parquet(
        self,
        path: _files.Path,
        table: str,
        *,
        schema: str | None = None,
        columns: Sequence[str] | None = None,
        create: bool = False,
    ) -> int:
        """Loads a Parquet file into a table. Returns the number of rows.

        Columns are matched by name: all of the file, or ``columns``. ``create=True`` creates the table.
        """
        return self._load_or_create("parquet", path, _files.name(schema, table), columns, create)

    def load_json(
        self,
        path: _files.Path,
        table: str,
        *,
        schema: str | None = None,
        columns: Sequence[str] | None = None,
        create: bool = False,
        encoding: str | None = None,
        on_error: Literal["stop", "ignore"] | None = None,
        reject_limit: int | None = None,
        rejects_table: str | None = None,
        log_verbosity: Literal["default", "verbose"] | None = None,
    ) -> int:
        """Loads a file with a JSON object on each line, as :meth:`load_parquet` does.

        The options for lines that cannot be read are those of :meth:`load_csv`.
        """
        options: dict[str, _files.Option | None] = {"encoding": encoding}
        options |= _files.rejects(schema, on_error, reject_limit, rejects_table, log_verbosity)
        return self._load_or_create("json", path, _files.name(schema, table), columns, create, options)

    def load_arrow(
        self,
        data: _files.Path | object,
        table: str,
        *,
        schema: str | None = None,
        columns: Sequence[str] | None = None,
        create: bool = False,
    ) -> int:
        """Loads a file in Arrow's IPC format as :meth:`load_parquet` does, or a table of pyarrow, pandas or Polars.

        Such a table is any object that :meth:`register` accepts. It is not copied before it is loaded.
        """
        into = _files.name(schema, table)
        if isinstance(data, (str, os.PathLike)):
            return self._load_or_create("arrow", data, into, columns, create)
        source = f"firndb load {id(data)}"
        self.register(source, data)
        try:
            rows = f"FROM {_files.identifier(source)}"
            if create:
                if columns is not None:
                    raise ValueError("create=True has columns left out")
                return self.execute(f"CREATE TABLE {into} AS SELECT * {rows}").rowcount
            if columns is None:
                with self.execute(f"SELECT * {rows} LIMIT 0") as cursor:
                    columns = [column[0] for column in cursor.description or ()]
            listed = _files.names(columns)
            return self.execute(f"INSERT INTO {into} {listed} SELECT {listed[1:-1]} {rows}").rowcount
        finally:
            self.unregister(source)

    def _load_or_create(
        self,
        kind: str,
        path: _files.Path,
        into: str,
        columns: Sequence[str] | None,
        create: bool,
        options: Mapping[str, _files.Option | None] | None = None,
    ) -> int:
        given = {name: value for name, value in (options or {}).items() if value is not None}
        if not create:
            return self._load(kind, path, into, columns, given)
        if columns is not None or given:
            raise ValueError(f"create=True has {', '.join(['columns', *given])} left out")
        return self._create(kind, path, into, {})

    def _load(
        self,
        kind: str,
        path: _files.Path,
        into: str,
        columns: Sequence[str] | None,
        options: dict[str, _files.Option | None],
    ) -> int:
        return self.execute(_files.load(kind, path, into, columns, options)).rowcount

    def _create(
        self, kind: str, path: _files.Path, into: str, options: dict[str, _files.Option | None]
    ) -> int:
        rows = _files.read(kind, path, options)
        return self.execute(f"CREATE TABLE {into} AS SELECT * FROM {rows}").rowcount

    # The rest.

    def cancel(self) -> None:
        """Cancels the running statement, which raises :class:`QueryCanceled`. Other threads call this."""
        self._session.cancel()

    def notices(self) -> list[str]:
        """Warnings and notices of statements since the last call; at most the last 100."""
        return self._session.notices()

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._session.closed

    def close(self) -> None:
        """Rolls back and closes; the database too, if this was its last connection. A second call does nothing."""
        self._session.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None and not self.closed:
                self.commit()
        finally:
            self.close()

    def __repr__(self) -> str:
        return f"<firndb.Connection {_shown(lambda: 'closed' if self.closed else self._session.transaction_status)}>"


class Cursor:
    """Runs statements and fetches their rows, which are computed when they are fetched.

    It is an iterator, a context manager that closes it, and an Arrow stream
    (``pyarrow.table(cursor)``, ``polars.DataFrame(cursor)``).
    """

    arraysize: int
    """How many rows :meth:`fetchmany` returns without an argument."""

    def __init__(self, connection: Connection) -> None:
        self.arraysize = 1
        self._connection = connection
        self._result: _firndb.RowSet | None = None
        self._closed = False

    @property
    def connection(self) -> Connection:
        """The connection that it belongs to."""
        return self._connection

    def execute(self, sql: str, parameters: Parameters | None = None) -> Cursor:
        """Runs one statement, with a value for each ``?`` (or ``$1``, ``$2``, …) in it, or a dict for each ``$name``."""
        self._run(lambda session: session.execute(sql, parameters, self._connection._finder()))
        return self

    def executemany(self, sql: str, parameters: Iterable[Parameters]) -> Cursor:
        """Runs a statement that changes rows for each of the sequences or dicts of values; for all of them or none."""
        self._run(lambda session: session.executemany(sql, parameters, self._connection._finder()))
        return self

    def _run(self, run: Callable[[_firndb.Session], _firndb.RowSet]) -> None:
        if self._closed:
            raise _errors.InterfaceError("the cursor is closed")
        if self._result is not None:
            # Otherwise its remaining rows would be read into memory.
            self._result.close()
            self._result = None
        self._result = run(self._connection._session)

    def _rows(self) -> _firndb.RowSet:
        if self._closed:
            raise _errors.InterfaceError("the cursor is closed")
        if self._result is None:
            raise _errors.InterfaceError("no statement has been executed")
        return self._result

    @property
    def description(
        self,
    ) -> list[tuple[str, str, None, None, int | None, int | None, None]] | None:
        """Name, type, precision and scale of each column, in DB-API's tuples of seven."""
        columns = None if self._result is None else self._result.columns_of
        if columns is None:
            return None
        return [
            (name, kind, None, None, precision, scale, None)
            for name, kind, precision, scale in columns
        ]

    @property
    def rowcount(self) -> int:
        """The number of changed rows, or of fetched rows once all are fetched; -1 before."""
        return -1 if self._result is None else self._result.rowcount

    @property
    def statusmessage(self) -> str | None:
        """PostgreSQL's command tag of the statement: ``INSERT 0 3``."""
        return None if self._result is None else self._result.statusmessage

    def fetchone(self) -> Row | None:
        """The next row; None after the last."""
        return self._rows().fetchone()

    def fetchmany(self, size: int | None = None) -> list[Row]:
        """The next rows: ``size`` at most, :attr:`arraysize` without."""
        size = self.arraysize if size is None else size
        if size < 0:
            raise ValueError("size must not be negative")
        return self._rows().fetch(size)

    def fetchall(self) -> list[Row]:
        """All remaining rows."""
        return self._rows().fetch()

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows())

    def __next__(self) -> Row:
        row = self._rows().fetchone()
        if row is None:
            raise StopIteration
        return row

    # Arrow.

    def arrow(self) -> pyarrow.Table:
        """The remaining rows as a table of pyarrow, without copying data that the engine has in Arrow's format."""
        import pyarrow

        return pyarrow.table(self._rows().batches())

    def record_batches(self) -> pyarrow.RecordBatchReader:
        """The remaining rows as batches of pyarrow, each computed when it is read."""
        import pyarrow

        rows = self._rows()

        def batches() -> Iterator[pyarrow.RecordBatch]:
            # Not the stream itself, which would convert our exceptions to pyarrow's.
            while (batch := rows.next_batch()) is not None:
                yield from pyarrow.RecordBatchReader.from_stream(batch)

        return pyarrow.RecordBatchReader.from_batches(pyarrow.schema(rows), batches())

    def df(self) -> pandas.DataFrame:
        """The remaining rows as a data frame of pandas."""
        return self.arrow().to_pandas()

    def pl(self) -> polars.DataFrame:
        """The remaining rows as a data frame of Polars."""
        import polars

        rows = self._rows()
        for name, kind, _, _ in rows.columns_of or ():
            if kind == "interval":
                raise _errors.from_engine(
                    "0A000",
                    f'Polars has no type for the intervals of column "{name}"',
                    None,
                    "Cast the column to text, or take extract(epoch FROM …).",
                    *(None,) * 5,
                )
        return polars.DataFrame(rows.batches())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._rows().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self._rows().__arrow_c_schema__()

    # The rest of DB-API.

    def setinputsizes(self, sizes: Sequence[object]) -> None:
        """Does nothing, as DB-API allows."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Does nothing, as DB-API allows."""

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._closed

    def close(self) -> None:
        """Discards the remaining rows. A second call does nothing."""
        self._closed = True
        if self._result is not None:
            self._result.close()
            self._result = None

    def __enter__(self) -> Cursor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<firndb.Cursor {_shown(lambda: 'closed' if self._closed else self.statusmessage or 'new')}>"
