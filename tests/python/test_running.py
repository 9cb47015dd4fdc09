"""How the package runs: transactions, threads, signals, processes, files."""

import datetime
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import firndb
import pyarrow
import pytest

# A statement that does not end.
CROSS = "FROM generate_series(1, 3000) a(a), generate_series(1, 3000) b(b), generate_series(1, 3000) c(c)"
ENDLESS = f"SELECT count(*) {CROSS} WHERE a + b + c = 0"


def python(code, *arguments, **more):
    """Runs a program in another process."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        **more,
    )


def accounts(connection, count=2):
    connection.execute("CREATE TABLE account (id integer PRIMARY KEY, balance bigint NOT NULL)")
    connection.executemany("INSERT INTO account VALUES (?, 100)", [(n,) for n in range(count)])
    connection.commit()


def test_a_transaction_is_a_context(connection):
    accounts(connection)
    with connection.transaction() as same:
        assert same is connection and connection.in_transaction
        connection.execute("UPDATE account SET balance = 0 WHERE id = 0")
    assert not connection.in_transaction
    with pytest.raises(ZeroDivisionError), connection.transaction():
        connection.execute("UPDATE account SET balance = 1 WHERE id = 0")
        1 / 0
    assert connection.execute("SELECT balance FROM account WHERE id = 0").fetchone() == (0,)
    # Another one inside is a savepoint.
    with pytest.raises(firndb.IntegrityError), connection.transaction():
        connection.execute("INSERT INTO account VALUES (0, 0)")
    connection.execute("UPDATE account SET balance = 7 WHERE id = 1")
    with pytest.raises(firndb.ProgrammingError), connection.transaction():
        with connection.transaction():
            connection.execute("DELETE FROM account")
        connection.execute("SELECT nonsense")
    assert connection.execute("SELECT balance FROM account ORDER BY id").fetchall() == [(0,), (7,)]
    with pytest.raises(firndb.InternalError, match="isolation"), connection.transaction(isolation="serializable"):
        pass
    connection.commit()
    with connection.transaction(isolation="read committed", read_only=True):
        assert connection.execute("SHOW transaction_isolation").fetchone() == ("read committed",)
        with pytest.raises(firndb.InternalError, match="read-only"):
            connection.execute("DELETE FROM account")
        connection.rollback()
        connection.execute("BEGIN")
    with pytest.raises(ValueError), connection.transaction(isolation="none"):
        pass


def test_conflicts_are_serialization_failures_and_retry_runs_again(connection):
    accounts(connection)
    other = connection.connect()
    runs = []

    def add(connection):
        runs.append(connection.execute("SELECT balance FROM account WHERE id = 0").fetchone()[0])
        if len(runs) <= 2:
            with other.transaction():
                other.execute("UPDATE account SET balance = balance + 10 WHERE id = 0")
        connection.execute("UPDATE account SET balance = ? WHERE id = 0", (runs[-1] + 1,))
        return "done"

    assert connection.retry(add) == "done"
    assert runs == [100, 110, 120]
    assert connection.execute("SELECT balance FROM account WHERE id = 0").fetchone() == (121,)
    with pytest.raises(firndb.InternalError, match="open already"):
        connection.retry(add)
    connection.rollback()
    runs.clear()
    with pytest.raises(firndb.SerializationFailure) as caught:
        connection.retry(add, attempts=2)
    assert caught.value.sqlstate == "40001" and not connection.in_transaction
    assert issubclass(firndb.SerializationFailure, firndb.OperationalError)
    # Other errors are not retried.
    runs.clear()
    with pytest.raises(ZeroDivisionError):
        connection.retry(lambda connection: runs.append(1) or 1 / 0)
    assert runs == [1]
    other.close()


def test_threads_with_connections_of_their_own_lose_nothing(connection):
    accounts(connection)
    errors = []

    def transfer(amount):
        try:
            with connection.connect() as own:
                for _ in range(50):
                    own.retry(lambda own: move(own, amount), attempts=1000)
        except BaseException as error:
            errors.append(error)

    def move(own, amount):
        (balance,) = own.execute("SELECT balance FROM account WHERE id = 0").fetchone()
        own.execute("UPDATE account SET balance = ? WHERE id = 0", (balance - amount,))
        own.execute("UPDATE account SET balance = balance + ? WHERE id = 1", (amount,))

    threads = [threading.Thread(target=transfer, args=(amount,)) for amount in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert connection.execute("SELECT balance FROM account ORDER BY id").fetchall() == [(-400,), (600,)]


def test_threads_share_a_connection(auto):
    auto.execute("CREATE TABLE t (id integer PRIMARY KEY)")
    errors = []

    def work(first):
        try:
            for n in range(first, first + 200):
                auto.execute("INSERT INTO t VALUES (?)", (n,))
                assert auto.execute("SELECT id FROM t WHERE id = ?", (n,)).fetchall() == [(n,)]
                auto.execute("SELECT * FROM t").arrow() if n % 50 == 0 else None
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(1000 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert auto.execute("SELECT count(*) FROM t").fetchone() == (800,)


def test_other_threads_run_while_the_engine_works(connection):
    """Another thread of Python can use the engine while a query runs."""
    ticks, running = [], threading.Event()

    def tick():
        running.set()
        while len(ticks) < 50:
            ticks.append(time.monotonic())
            time.sleep(0.001)
        connection.cancel()

    thread = threading.Thread(target=tick)
    thread.start()
    running.wait()
    with pytest.raises(firndb.QueryCanceled) as caught:
        while True:
            connection.execute(ENDLESS).fetchall()
    assert caught.value.sqlstate == "57014" and len(ticks) == 50
    thread.join()
    connection.rollback()
    assert connection.execute("SELECT 1").fetchone() == (1,)


def taken_by_pyarrow(result):
    try:
        pyarrow.table(result)
    except pyarrow.ArrowInvalid:
        # The stream's way to report it. Ctrl-C comes directly after it.
        time.sleep(1)


def interrupt_soon():
    """Sends SIGINT after a short time."""
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    return timer


@pytest.mark.parametrize("way", ["execute", "fetch", "arrow", "pyarrow", "change", "lock", "busy"])
def test_ctrl_c_stops_what_runs(connection, way):
    accounts(connection)
    other = connection.connect()
    thread = None
    if way == "lock":
        other.execute("UPDATE account SET balance = 0 WHERE id = 0")
        work = lambda: connection.execute("UPDATE account SET balance = 1 WHERE id = 0")
    elif way == "change":
        work = lambda: connection.execute(f"INSERT INTO account SELECT a, 0 {CROSS} WHERE a + b + c = 0")
    elif way == "busy":
        # Another thread uses the connection.
        def occupy():
            with pytest.raises(firndb.QueryCanceled):
                connection.execute(ENDLESS)

        thread = threading.Thread(target=occupy)
        thread.start()
        time.sleep(0.1)
        work = lambda: connection.execute("SELECT 1")
    elif way == "execute":
        work = lambda: connection.execute(ENDLESS)
    else:
        # The first rows come at once, the next ones never.
        late = connection.execute(f"SELECT 1 AS a UNION ALL SELECT a {CROSS} WHERE a + b + c = 0")
        work = {"fetch": late.fetchall, "arrow": late.arrow, "pyarrow": lambda: taken_by_pyarrow(late)}[way]
    timer = interrupt_soon()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        work()
    assert time.monotonic() - begun < 20
    timer.join()
    if thread:
        connection.cancel()
        thread.join()
    other.rollback()
    connection.rollback()
    assert connection.execute("SELECT count(*) FROM account").fetchone() == (2,)
    other.close()


@pytest.mark.parametrize("shape", ["aggregate", "sort", "rows", "one row", "insert"])
def test_ctrl_c_is_prompt_for_statements_that_other_threads_run(auto, shape):
    """A statement that takes longer than a millisecond runs on other threads, which do not get signals. The main thread waits."""
    auto.execute("CREATE TABLE t (a bigint)")
    # The handler records the time of the signal.
    pressed = []

    def handler(number, frame):
        pressed.append(time.monotonic())
        raise KeyboardInterrupt

    sql = {
        "aggregate": ENDLESS,
        "sort": f"SELECT a.a {CROSS} ORDER BY a.a * b.b % 7, c.c",
        "rows": f"SELECT a.a {CROSS} WHERE a + b + c = 0",
        "one row": f"SELECT 1 {CROSS} WHERE a + b + c = 0 LIMIT 1",
        "insert": f"INSERT INTO t SELECT a.a {CROSS} WHERE a + b + c = 0",
    }[shape]
    before = signal.signal(signal.SIGINT, handler)
    try:
        timer = interrupt_soon()
        with pytest.raises(KeyboardInterrupt):
            auto.execute(sql).fetchall()
        assert time.monotonic() - pressed[0] < 2
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    # No thread continues the work, and the connection is usable.
    assert auto.execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_a_signal_handler_that_raises_nothing_stops_nothing(auto):
    seen = []

    def handler(number, frame):
        # A handler must not use a database that may be waiting for it.
        try:
            auto.execute("SELECT 1")
        except firndb.InterfaceError:
            seen.append("busy")
        else:
            seen.append("idle")

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        # A fast machine may finish before the signal comes: then it gets more work.
        rows = 7_000_000
        while "busy" not in seen and rows < 10_000_000_000:
            timer = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGUSR1))
            timer.start()
            query = f"SELECT count(*) FROM generate_series(1, {rows}) a(a) WHERE a % 7 = 0"
            (count,) = auto.execute(query).fetchone()
            # Without the handler the signal would end the process.
            timer.join()
            assert count == rows // 7
            rows *= 4
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert "busy" in seen


def test_a_timeout_is_a_cancellation(connection):
    with firndb.connect(statement_timeout="50ms") as hurried:
        with pytest.raises(firndb.QueryCanceled, match="timeout"):
            hurried.execute(ENDLESS)
        hurried.rollback()
    assert connection.execute("SHOW statement_timeout").fetchone() == ("0",)


def test_settings(tmp_path):
    connection = firndb.connect(tmp_path / "db", memory_limit="16MiB", synchronous_commit=False, application_name="x")
    show = lambda name: connection.execute(f"SHOW {name}").fetchone()[0]
    assert (show("memory_limit"), show("synchronous_commit"), show("application_name")) == ("16MB", "off", "x")
    with pytest.raises(firndb.OperationalError, match="memory_limit"):
        firndb.connect(tmp_path / "db", memory_limit="1GiB")
    with pytest.raises(firndb.OperationalError) as caught:
        connection.execute("CREATE TABLE t AS SELECT repeat('x', 1000) || g AS s FROM generate_series(1, 40000) g(g)")
    assert caught.value.sqlstate == "53200"
    connection.rollback()
    connection.close()
    with firndb.connect(tmp_path / "db") as usual, firndb.connect(memory_limit=0) as unlimited:
        assert usual.execute("SELECT value > 0 FROM firn_stat_engine WHERE name = 'memory_limit'").fetchone() == (True,)
        assert unlimited.execute("SHOW memory_limit").fetchone() == ("0",)
    for wrong in ({"nonsense": 1}, {"memory_limit": "much"}, {"statement_timeout": "x"}):
        with pytest.raises(firndb.DatabaseError):
            firndb.connect(**wrong)


def test_when_rows_become_cold(tmp_path):
    def states(connection):
        found = connection.execute("SELECT DISTINCT state FROM firn_blocks WHERE rows > 0 AND relname = 't'").fetchall()
        connection.commit()
        return [state for (state,) in found]

    never = {"freeze_after": "never", "compact_after": "NEVER"}
    for times, expected in [
        ({"freeze_after": "0ms", "compact_after": "never"}, "frozen"),
        ({"freeze_after": datetime.timedelta(0), "compact_after": datetime.timedelta(0)}, "compact"),
    ]:
        with firndb.connect(**times) as connection, firndb.connect(**never) as warm:
            for each in (connection, warm):
                each.execute("CREATE TABLE t AS SELECT g % 7 AS n FROM generate_series(1, 2000) g(g)")
                each.commit()
            until = time.monotonic() + 60
            while expected not in states(connection):
                assert time.monotonic() < until, states(connection)
                time.sleep(0.01)
            assert not {"frozen", "compact"} & set(states(warm))
    with firndb.connect(tmp_path / "db", **never), firndb.connect(tmp_path / "db", freeze_after="never"):
        with pytest.raises(firndb.OperationalError, match="another freeze_after") as caught:
            firndb.connect(tmp_path / "db", freeze_after="5s")
        assert caught.value.sqlstate == "55006"
        with pytest.raises(firndb.OperationalError, match="another compact_after"):
            firndb.connect(tmp_path / "db", compact_after=datetime.timedelta(minutes=1))
    for wrong in ("soon", "5", "-1s", "", datetime.timedelta(-1)):
        with pytest.raises(firndb.DataError, match="freeze_after"):
            firndb.connect(freeze_after=wrong)


def test_a_database_survives_being_closed(tmp_path):
    path = tmp_path / "shop"
    with firndb.connect(path) as connection:
        accounts(connection, 100)
        connection.execute("UPDATE account SET balance = 1 WHERE id = 7")
    uncommitted = firndb.connect(path)
    uncommitted.execute("DELETE FROM account")
    uncommitted.close()
    with firndb.connect(str(path)) as connection:
        assert connection.execute("SELECT count(*), min(balance) FROM account").fetchone() == (100, 1)


def test_connections_of_a_process_share_a_database(tmp_path):
    path = tmp_path / "shop"
    first = firndb.connect(path)
    accounts(first)
    (tmp_path / "link").symlink_to(path)
    second, third = firndb.connect(tmp_path / "link"), first.connect()
    first.close()
    assert second.execute("SELECT count(*) FROM account").fetchone() == (2,)
    second.rollback()
    with second.transaction():
        second.execute("DELETE FROM account")
    assert third.execute("SELECT count(*) FROM account").fetchone() == (0,)
    # Each database in memory is a separate one.
    with firndb.connect() as memory, pytest.raises(firndb.ProgrammingError):
        memory.execute("SELECT * FROM account")
        memory.rollback()
    second.close()
    third.close()


def test_threads_may_open_and_close_one_database_at_once(tmp_path):
    errors = []

    def work(first):
        try:
            for n in range(first, first + 10):
                with firndb.connect(tmp_path / "shop", autocommit=True) as connection:
                    connection.execute("CREATE TABLE IF NOT EXISTS t (id integer PRIMARY KEY)")
                    connection.execute("INSERT INTO t VALUES (?)", (n,))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(100 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with firndb.connect(tmp_path / "shop") as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (40,)


def test_a_second_process_is_refused(tmp_path):
    path = tmp_path / "shop"
    code = """
        import firndb, sys
        try:
            with firndb.connect(sys.argv[1]) as connection:
                print(connection.execute("SELECT count(*) FROM account").fetchone()[0])
        except firndb.OperationalError as error:
            print(error.sqlstate, error.message)
    """
    with firndb.connect(path) as connection:
        accounts(connection)
        ran = python(code, path)
        assert ran.stdout.startswith("55006 "), ran
    assert python(code, path).stdout == "2\n"


def test_the_interpreters_end_closes_databases(tmp_path):
    """Also with a stream that was not read to its end, and a thread that is still running."""
    code = """
        import firndb, sys, threading
        connection = firndb.connect(sys.argv[1], autocommit=True, synchronous_commit=False)
        connection.execute("CREATE TABLE account (id integer)")
        connection.execute("INSERT INTO account VALUES (1)")
        late = connection.connect().execute("SELECT * FROM generate_series(1, 100000000)")
        late.fetchone()
        stream = late.__arrow_c_stream__()
        endless = connection.connect()
        def work():
            endless.execute(sys.argv[2])
        threading.Thread(target=work, daemon=True).start()
        import time
        time.sleep(0.3)
        connection.execute("INSERT INTO account VALUES (2)")
        print("end")
    """
    ran = python(code, tmp_path / "shop", ENDLESS)
    assert (ran.returncode, ran.stdout) == (0, "end\n"), ran
    with firndb.connect(tmp_path / "shop") as connection:
        assert connection.execute("SELECT count(*) FROM account").fetchone() == (2,)


def test_nothing_is_lost_when_the_process_is_killed(tmp_path):
    code = """
        import firndb, os, signal, sys
        connection = firndb.connect(sys.argv[1])
        connection.execute("CREATE TABLE account (id integer)")
        connection.execute("INSERT INTO account VALUES (1)")
        connection.commit()
        connection.execute("INSERT INTO account VALUES (2)")
        os.kill(os.getpid(), signal.SIGKILL)
    """
    assert python(code, tmp_path / "shop").returncode == -signal.SIGKILL
    with firndb.connect(tmp_path / "shop") as connection:
        assert connection.execute("SELECT id FROM account").fetchall() == [(1,)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_gets_an_error_and_changes_nothing(tmp_path):
    code = """
        import firndb, os, sys
        if os.fork() == 0:
            # No database was used yet: a child may use one.
            with firndb.connect() as early:
                print(early.execute("SELECT count(*) FROM generate_series(1, 100000)").fetchone()[0], flush=True)
            os._exit(0)
        os.wait()
        connection = firndb.connect(sys.argv[1])
        connection.execute("CREATE TABLE account (id integer)")
        connection.commit()
        connection.execute("INSERT INTO account VALUES (1)")
        if os.fork() == 0:
            for use in (lambda: connection.execute("SELECT 1"), firndb.connect, connection.commit):
                try:
                    use()
                except firndb.OperationalError as error:
                    print(error.sqlstate, "forked" in error.message, "spawn" in error.hint, flush=True)
            connection.close()
            print(connection)
            del connection
            sys.exit(0)
        print(os.wait()[1], flush=True)
        connection.commit()
        print(connection.execute("SELECT count(*) FROM account").fetchone()[0])
    """
    ran = python(code, tmp_path / "shop")
    refused = "08006 True True\n"
    assert ran.stdout == "100000\n" + 3 * refused + "<firndb.Connection of another process>\n0\n1\n", ran


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_waits_for_no_result_of_its_parent():
    """A thread fetches rows when the process forks; in the child that thread does not exist."""
    code = """
        import firndb, os, sys, threading, time
        connection = firndb.connect()
        late = connection.execute(sys.argv[1])
        def draw():
            try:
                late.fetchall()
            except firndb.QueryCanceled:
                print("canceled", flush=True)
        thread = threading.Thread(target=draw)
        thread.start()
        time.sleep(0.3)
        if os.fork() == 0:
            for use in (lambda: late.rowcount, lambda: late.statusmessage):
                try:
                    use()
                except firndb.OperationalError as error:
                    print(error.sqlstate, flush=True)
            print(late, flush=True)
            late.close()
            print(late, flush=True)
            os._exit(0)
        print(os.wait()[1], flush=True)
        connection.cancel()
        thread.join()
    """
    ran = python(code, f"SELECT 1 AS a UNION ALL SELECT a {CROSS} WHERE a + b + c = 0")
    cursors = "<firndb.Cursor of another process>\n<firndb.Cursor closed>\n"
    assert ran.stdout == "08006\n08006\n" + cursors + "0\ncanceled\n", ran


def test_closing_does_not_deadlock_with_the_interpreters_lock():
    """Freeing the memory of a result needs the interpreter's lock, while other threads create results."""
    code = """
        import firndb, numpy, pyarrow, threading, time, weakref
        class Memory(numpy.ndarray):
            pass
        for _ in range(150):
            connection = firndb.connect(autocommit=True)
            memory = numpy.arange(10_000).view(Memory)
            # Other threads run meanwhile.
            weakref.finalize(memory, time.sleep, 0.005)
            numbers = pyarrow.Array.from_buffers(pyarrow.int64(), 10_000, [None, pyarrow.py_buffer(memory)])
            connection.register("numbers", pyarrow.table({"a": numbers}))
            del memory, numbers
            results = [connection.execute("SELECT a FROM numbers") for _ in range(10)]
            connection.unregister("numbers")
            def work():
                try:
                    while True:
                        connection.execute("SELECT 1")
                except firndb.InterfaceError:
                    pass
            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            connection.close()
            for thread in threads:
                thread.join()
        print("end")
    """
    ran = python(code)
    assert ran.stdout == "end\n", ran


def work_in_a_process(path):
    with firndb.connect(path) as connection:
        return connection.execute("SELECT count(*) FROM generate_series(1, 1000)").fetchone()[0]


def test_processes_that_are_spawned_are_fine(tmp_path, connection):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(work_in_a_process, (str(tmp_path / "db"),)) == 1000
    import pickle

    with pytest.raises(firndb.InterfaceError):
        pickle.dumps(connection._session)
