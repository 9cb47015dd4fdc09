"""Fixtures of the package's tests, which run on the installed wheel (`cargo xtask test`)."""

import firndb
import pytest


def pytest_terminal_summary(terminalreporter):
    """Prints counts in the format of Rust's tests, for the summary of all tests."""
    passed, failed, errors, skipped = (
        len(terminalreporter.stats.get(kind, ())) for kind in ("passed", "failed", "error", "skipped")
    )
    outcome = "FAILED" if failed or errors else "ok"
    terminalreporter.write_line(
        f"test result: {outcome}. {passed} passed; {failed + errors} failed; {skipped} ignored"
    )


@pytest.fixture
def connection():
    """A new database in memory."""
    with firndb.connect(":memory:") as connection:
        yield connection


@pytest.fixture
def auto():
    """The same in autocommit mode."""
    connection = firndb.connect(":memory:", autocommit=True)
    yield connection
    connection.close()
