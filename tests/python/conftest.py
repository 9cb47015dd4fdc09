"""What the tests of the package share. They run on the installed wheel: `cargo xtask test` sees to that."""

import firndb
import pytest


def pytest_terminal_summary(terminalreporter):
    """Counts as Rust's tests do, for the summary of all."""
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
    """The same, whose statements commit by themselves."""
    connection = firndb.connect(":memory:", autocommit=True)
    yield connection
    connection.close()
