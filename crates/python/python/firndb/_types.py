"""DB-API's type objects and constructors, and intervals that a timedelta cannot represent."""

from __future__ import annotations

import datetime
from datetime import date as Date
from datetime import datetime as Timestamp
from datetime import time as Time

__all__ = [
    "BINARY",
    "Binary",
    "DATETIME",
    "Date",
    "DateFromTicks",
    "Interval",
    "NUMBER",
    "ROWID",
    "STRING",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
]

Binary = bytes


def DateFromTicks(ticks: float) -> datetime.date:
    """The local date of a time in seconds since 1970."""
    return Date.fromtimestamp(ticks)


def TimeFromTicks(ticks: float) -> datetime.time:
    """The local time of day of a time in seconds since 1970."""
    return Timestamp.fromtimestamp(ticks).time()


def TimestampFromTicks(ticks: float) -> datetime.datetime:
    """The local date and time of a time in seconds since 1970."""
    return Timestamp.fromtimestamp(ticks)


class _TypeObject:
    """Equal to the type codes of its kind, which are names of SQL types."""

    def __init__(self, name: str, *codes: str) -> None:
        self._name = name
        self._codes = frozenset(codes)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _TypeObject):
            return self._codes == other._codes
        return other in self._codes

    def __hash__(self) -> int:
        return hash(self._codes)

    def __repr__(self) -> str:
        return f"firndb.{self._name}"


STRING = _TypeObject("STRING", "text", "character varying", "character")
BINARY = _TypeObject("BINARY", "bytea")
NUMBER = _TypeObject(
    "NUMBER", "smallint", "integer", "bigint", "real", "double precision", "numeric"
)
DATETIME = _TypeObject(
    "DATETIME",
    "date",
    "time without time zone",
    "timestamp without time zone",
    "timestamp with time zone",
    "interval",
)
ROWID = _TypeObject("ROWID")


class Interval(datetime.timedelta):
    """An interval with months, or with hours that are not to become days.

    Its length as a timedelta is the one by which SQL compares it: a month is 30 days.
    """

    _parts: tuple[int, int, int]

    def __new__(cls, months: int = 0, days: int = 0, microseconds: int = 0) -> Interval:
        self = super().__new__(cls, days=months * 30 + days, microseconds=microseconds)
        self._parts = (months, days, microseconds)
        return self

    @property
    def parts(self) -> tuple[int, int, int]:
        """Months, days and microseconds, as the database stores them."""
        return self._parts

    def __repr__(self) -> str:
        months, days, microseconds = self._parts
        return f"firndb.Interval(months={months}, days={days}, microseconds={microseconds})"

    def __reduce__(self) -> tuple[object, ...]:
        return (Interval, self._parts)
