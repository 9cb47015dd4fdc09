#!/usr/bin/env python3
"""What replicas cost a primary, and how quickly they follow and take over.

    primary    TPC-C in process with 0, 1 and 2 replicas, with one that another one follows, and with one that is stopped (SIGSTOP):
               transactions per second for --seconds, once the replicas have their copies. They have the second core, which the primary may
               use as well; and the same beside a process that only occupies that core, since two cores of a virtual machine may be one
               core's two threads
    cost       TPC-C at a rate: the primary's processor time per transaction, with replicas that follow it and one that follows a replica, and
               the bytes of the log per transaction
    replay     a replica receives the log of a run of TPC-C and replays it afterwards: the time of the run over that of replay
    lag        TPC-C at a rate on the first core, a replica and a client on the second one: how long after its acknowledgement a commit is
               seen on the replica, by a query that waits for it (firn.read_after)
    failover   a handover, and `kill -9` of the primary with a promotion by force, beside a client that commits all the time: the
               time without an acknowledged commit
    commit     commits of one client on a server alone and on one of two voters, and the same statements without waiting for their
               commit, beside a flush of the disk (an appended fdatasync) and a round trip between two sleeping processes
    copy       a new replica of a large database beside TPC-C at a rate: until it shows what the primary had when it was started, over the
               time of `cp` and sync of the bytes, of opening them, and of replaying the log that came meanwhile
    backup     backups, one after another, of a large database beside TPC-C at a rate: their time over that of `cp` and sync of their bytes,
               and how late transactions are on disk, without and with them
    quiet      three voters and eight clients that write and read for so many seconds: how often another one has taken over, which should be
               never

Figures of `primary` are medians of alternating runs.

Before each copy of `copy` and `backup`, the page cache gives up the files that are copied: a server writes most of them past it, so that the
first who copies them would read the disk, and the next one would not.

A latency of TPC-C ends when its client sees that the transaction is on disk. Its clients do not wait for that, so it includes up to two intervals of
the log's flushes, of 5 ms each, and at a rate up to 2 ms of the client's sleep. `backup` therefore also times commits that one client waits for.
"""

import argparse
import atexit
import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

WAREHOUSES = 5

# Of the table that makes a database large, in its files.
ROW_BYTES = 281

# The duration of a run that is ended before.
LONG = 24 * 60 * 60


def main():
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="firn-replication", dir=arguments.directory) as directory:
        arguments.scratch = pathlib.Path(directory)
        for name in arguments.parts:
            PARTS[name](arguments)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--firn", required=True, help="the firn binary")
    parser.add_argument("--seconds", type=int, default=10, help="how long TPC-C runs")
    parser.add_argument("--runs", type=int, default=3, help="how often")
    parser.add_argument("--rate", type=int, default=30000, help="transactions per second for lag and cost")
    parser.add_argument("--size", type=float, default=2, help="gigabytes of a table beside TPC-C's for copy and backup")
    parser.add_argument("--large-rate", type=int, default=10000, help="transactions per second for copy and backup")
    parser.add_argument("--directory", help="where databases are written")
    parser.add_argument("parts", nargs="*", default=[], help="primary, cost, replay, lag, failover, commit, copy, backup, quiet; all by default")
    arguments = parser.parse_args()
    arguments.parts = arguments.parts or list(PARTS)
    return arguments


class Client:
    """One connection of PostgreSQL's protocol, for statements without parameters."""

    def __init__(self, port, timeout=5):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        body = struct.pack("!i", 196608) + b"user\0firn\0database\0firn\0\0"
        self.socket.sendall(struct.pack("!i", len(body) + 4) + body)
        self.input = self.socket.makefile("rb")
        self.answer()

    def answer(self):
        rows, error = [], None
        while True:
            head = self.input.read(5)
            if len(head) < 5:
                raise ConnectionError("the server has gone")
            kind, length = head[:1], struct.unpack("!i", head[1:])[0] - 4
            body = self.input.read(length)
            if kind == b"D":
                rows.append(fields(body))
            elif kind == b"E":
                error = body.decode(errors="replace")
            elif kind == b"Z":
                if error:
                    raise RuntimeError(error)
                return rows

    def query(self, sql):
        body = sql.encode() + b"\0"
        self.socket.sendall(b"Q" + struct.pack("!i", len(body) + 4) + body)
        return self.answer()

    def value(self, sql):
        return self.query(sql)[0][0]


def fields(body):
    count, at, cells = struct.unpack("!h", body[:2])[0], 2, []
    for _ in range(count):
        length = struct.unpack("!i", body[at : at + 4])[0]
        at += 4
        cells.append(None if length < 0 else body[at : at + length].decode())
        at += max(length, 0)
    return cells


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A server of a directory, which may follow another one."""

    def __init__(self, arguments, name, follow=None, more=()):
        self.firn, self.port = arguments.firn, free_port()
        self.directory = arguments.scratch / name
        self.start(follow, more)

    def start(self, follow=None, more=()):
        command = [self.firn, "serve", "--data", str(self.directory), "--listen", f"127.0.0.1:{self.port}", *more]
        command += ["--follow", f"127.0.0.1:{follow}"] if follow else []
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        atexit.register(self.process.kill)

    def connect(self, seconds=120):
        def connected():
            if self.process.poll() is not None:
                raise SystemExit("a server has ended early")
            return Client(self.port)

        return wait_for(connected, seconds)

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        self.process.wait()

    def remove(self):
        self.kill()
        subprocess.run(["rm", "-rf", str(self.directory)], check=True)


def wait_for(what, seconds=120):
    until = time.monotonic() + seconds
    while True:
        try:
            result = what()
            if result:
                return result
        except (OSError, RuntimeError):
            pass
        if time.monotonic() > until:
            raise SystemExit("a server does not do what it should")
        time.sleep(0.01)


class Tpcc:
    """A run of TPC-C on one thread, in a process of its own that serves the database meanwhile."""

    def __init__(self, arguments, more=(), seconds=None):
        self.port = free_port()
        command = [arguments.firn, "bench", "tpcc", "--warehouses", str(WAREHOUSES), "--threads", "1"]
        command += ["--seconds", str(seconds or arguments.seconds), "--listen", f"127.0.0.1:{self.port}", *more]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)
        wait_for(self.connect, 3600)

    def connect(self):
        if self.process.poll() is not None:
            raise SystemExit("TPC-C has ended early")
        return Client(self.port)

    def rate(self):
        """Transactions per second of all kinds."""
        return self.report()[0]

    def report(self):
        """Transactions per second of all kinds, and the p99 of latencies by kind, in milliseconds."""
        output = self.process.communicate()[0]
        if self.process.returncode != 0:
            raise SystemExit(output)
        found = re.search(r"^(\d+) tx/s", output, re.M)
        lines = re.findall(r"^(\S+) +\d+ +\d+ +[\d.]+ \S+ +([\d.]+) (\S+)$", output, re.M)
        return float(found.group(1)), {kind: float(number) * {"µs": 1e-3, "ms": 1, "s": 1e3}[unit] for kind, number, unit in lines}


def received(client):
    return client.value("SELECT pg_wal_lsn_diff(pg_last_wal_receive_lsn(), '0/0')")


def primary(arguments):
    rates = {}
    for run in range(arguments.runs):
        for kind in ["alone", "a busy second core", "1 replica", "2 replicas", "1 replica that one follows", "1 replica that is stopped"]:
            directory = arguments.scratch / f"primary-{run}"
            tpcc = Tpcc(arguments, ["--data", str(directory)], LONG)
            count = int(kind[0]) if "replica" in kind else 0
            replicas = [Server(arguments, f"primary-{run}-{at}", tpcc.port) for at in range(count)]
            if "follows" in kind:
                replicas[0].connect()
                replicas.append(Server(arguments, f"primary-{run}-behind", replicas[0].port))
            for replica in replicas:
                replica.connect()
                pin(replica.process.pid, 1)
            busy = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if "busy" in kind else None
            if busy:
                atexit.register(busy.kill)
                pin(busy.pid, 1)
            if "stopped" in kind:
                replicas[0].process.send_signal(signal.SIGSTOP)
            time.sleep(2)
            client = Client(tpcc.port)
            commits = lambda: float(client.value("SELECT value FROM firn_stat_engine WHERE name = 'commits'"))
            before, begun = commits(), time.monotonic()
            time.sleep(arguments.seconds)
            rates.setdefault(kind, []).append((commits() - before) / (time.monotonic() - begun))
            for process in [busy, tpcc.process]:
                if process:
                    process.kill()
                    process.wait()
            shutil.rmtree(directory)
            for replica in replicas:
                replica.remove()
    median = {kind: statistics.median(of_kind) for kind, of_kind in rates.items()}
    print(f"{'':<28}{'':>15}{'of alone':>10}{'of a busy second core':>24}")
    for kind, rate in median.items():
        print(f"{kind:<28}{rate:>10.0f} tx/s{rate / median['alone']:>10.0%}{rate / median['a busy second core']:>24.0%}")


def processor_time(process):
    """Of a process so far, in seconds."""
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cost(arguments):
    seconds, times, sizes = 4, {}, []
    for run in range(arguments.runs):
        for kind in ["alone", "1 replica", "2 replicas", "1 replica that one follows"]:
            tpcc = Tpcc(arguments, ["--rate", str(arguments.rate)], 3 * seconds)
            client, count = Client(tpcc.port), 0 if kind == "alone" else int(kind[0])
            replicas = [Server(arguments, f"cost-{run}-{at}", tpcc.port) for at in range(count)]
            if "follows" in kind:
                replicas[0].connect()
                replicas.append(Server(arguments, f"cost-{run}-behind", replicas[0].port))
            for replica in replicas:
                replica.connect()
            time.sleep(1)
            written = lambda: float(client.value("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')"))
            before, bytes_before = processor_time(tpcc.process), written()
            time.sleep(seconds)
            used, size = processor_time(tpcc.process) - before, written() - bytes_before
            times.setdefault(kind, []).append(used / seconds / arguments.rate * 1e6)
            sizes.append(size / seconds / arguments.rate)
            tpcc.rate()
            for replica in replicas:
                replica.remove()
    for kind, of_kind in times.items():
        median = statistics.median(of_kind)
        print(f"{kind:<28}{median:>8.2f} us of the primary's processor per transaction{median / statistics.median(times['alone']):>8.0%}")
    print(f"{statistics.median(sizes):.0f} bytes of log per transaction")


def replay(arguments):
    ratios = []
    for run in range(arguments.runs):
        tpcc = Tpcc(arguments)
        replica = Server(arguments, f"replay-{run}", tpcc.port)
        client = replica.connect()
        client.query("SELECT pg_wal_replay_pause()")
        time.sleep(0.2)
        before, begun = received(client), time.monotonic()
        tpcc.rate()
        after, made = received(client), time.monotonic() - begun
        begun = time.monotonic()
        client.query("SELECT pg_wal_replay_resume()")
        wait_for(lambda: client.value("SELECT pg_last_wal_replay_lsn() >= pg_last_wal_receive_lsn()") == "t")
        took = time.monotonic() - begun
        ratios.append(made / took)
        print(f"{(float(after) - float(before)) / 1e6:.0f} MB of log, made in {made:.1f} s, replayed in {took:.1f} s")
        replica.remove()
    print(f"replay is {statistics.median(ratios):.2f} times as fast as the run")


def lag(arguments):
    tpcc = Tpcc(arguments, ["--rate", str(arguments.rate)])
    until = time.monotonic() + arguments.seconds - 1
    replica = Server(arguments, "lag", tpcc.port)
    client, seen = replica.connect(), []
    pin(tpcc.process.pid, 0)
    pin(replica.process.pid, 1)
    pin(os.getpid(), 1)
    writer = Client(tpcc.port)
    writer.query("CREATE TABLE probe (a integer)")
    wait_for(lambda: client.query("SELECT count(*) FROM probe"))
    behind = "SELECT coalesce(min(pg_wal_lsn_diff(sent_lsn, replay_lsn)), 1e9) FROM pg_stat_replication"
    wait_for(lambda: float(writer.value(behind)) < 1e6)
    while time.monotonic() < until:
        token = writer.value("BEGIN; INSERT INTO probe VALUES (1); COMMIT; SELECT firn_commit_token()")
        acknowledged = time.monotonic()
        client.query(f"SET firn.read_after = '{token}'")
        assert client.value("SELECT count(*) FROM probe") == str(len(seen) + 1)
        seen.append((time.monotonic() - acknowledged) * 1000)
        time.sleep(0.003)
    print(f"{tpcc.rate():.0f} tx/s")
    if not seen:
        raise SystemExit("the replica has caught up too late for --seconds")
    seen.sort()
    at = lambda part: seen[int(part * (len(seen) - 1))]
    print(f"a commit is seen after: least {at(0):.1f}, p50 {at(0.5):.1f}, p99 {at(0.99):.1f} ms, of {len(seen)}")
    replica.remove()
    pin(os.getpid(), *range(os.cpu_count()))


def pin(process, *cores):
    """Runs the threads of a process on these cores; those that it starts later, too."""
    for thread in os.listdir(f"/proc/{process}/task"):
        try:
            os.sched_setaffinity(int(thread), cores)
        except ProcessLookupError:
            pass  # It has ended.


class Writer(threading.Thread):
    """Commits all the time, at whichever of some servers is the primary, and notes when it was acknowledged."""

    def __init__(self, ports):
        super().__init__(daemon=True)
        self.ports, self.times, self.ended = ports, [], False

    def run(self):
        while not self.ended:
            for port in self.ports:
                try:
                    client = Client(port)
                    while not self.ended:
                        client.query("INSERT INTO t SELECT coalesce(max(a), 0) + 1 FROM t")
                        self.times.append(time.monotonic())
                except (OSError, RuntimeError, ConnectionError):
                    pass

    def gap_after(self, moment):
        """From the last commit before the moment, or from the moment itself, to the first one after it."""
        after = wait_for(lambda: next((at for at in self.times if at > moment + 0.0001), None))
        return after


def failover(arguments):
    first = Server(arguments, "failover-0")
    first.connect().query("CREATE TABLE t (a integer PRIMARY KEY)")
    second = Server(arguments, "failover-1", first.port)
    second.connect()
    servers, gaps = [first, second], {"handover": [], "kill -9 and force": []}
    writer = Writer([server.port for server in servers])
    writer.start()
    for _ in range(max(arguments.runs, 10)):
        for kind, found in gaps.items():
            now, new = servers
            # A former primary may be about to end its sessions.
            wait_for(lambda: Client(new.port).value("SELECT state FROM firn_replication LIMIT 1") == "streaming")
            time.sleep(1)
            begun = time.monotonic()
            if kind == "handover":
                subprocess.run([arguments.firn, "promote", f"127.0.0.1:{new.port}"], check=True, stdout=subprocess.DEVNULL)
            else:
                now.kill()
                subprocess.run([arguments.firn, "promote", "--force", f"127.0.0.1:{new.port}"], check=True, stdout=subprocess.DEVNULL)
            promoted = time.monotonic()
            first_commit = writer.gap_after(promoted)
            before = max(at for at in writer.times if at < first_commit and at <= promoted)
            found.append((first_commit - max(before, begun if kind != "handover" else before)) * 1000)
            if kind != "handover":
                now.start(new.port, ["--rejoin"])
                now.connect()
            servers = [new, now]
    writer.ended = True
    for kind, found in gaps.items():
        found.sort()
        print(f"{kind:<20}p50 {statistics.median(found):.0f} ms, p95 {found[int(0.95 * (len(found) - 1))]:.0f} ms without a commit, of {len(found)}")
    for server in servers:
        server.kill()


def times(count, body):
    """The times of so many calls, in microseconds, sorted."""
    found = []
    for at in range(count):
        begun = time.perf_counter()
        body(at)
        found.append((time.perf_counter() - begun) * 1e6)
    return sorted(found)


def flush_times(arguments, count):
    with open(arguments.scratch / "flushed", "wb") as file:
        def append(_):
            file.write(b"x" * 300)
            file.flush()
            os.fdatasync(file.fileno())

        return times(count, append)


def round_trips(count):
    """Between two processes, each of which sleeps until it hears of the other."""
    here, there = socket.socketpair()
    child = os.fork()
    if child == 0:
        here.close()
        while there.recv(1):
            there.send(b"x")
        os._exit(0)
    there.close()

    def ask(_):
        here.send(b"x")
        here.recv(1)

    found = times(count, ask)
    here.close()
    os.waitpid(child, 0)
    return found


def cluster(arguments, name, count):
    """Servers of which the first is the primary and all are voters; one alone is none."""
    servers = [Server(arguments, f"{name}-0")]
    servers[0].connect()
    for at in range(1, count):
        server = Server(arguments, f"{name}-{at}", servers[0].port)
        client = server.connect()
        wait_for(lambda: client.value("SELECT firn_become_voter()"))
        servers.append(server)
    return servers


def commit(arguments):
    count = 2000
    medians = {"alone": [], "without waiting": [], "one of two voters": [], "flush": [], "round trip": []}
    alone, voters = cluster(arguments, "alone", 1), cluster(arguments, "voters", 2)
    clients = {"alone": alone[0].connect(), "one of two voters": voters[0].connect()}
    for client in clients.values():
        client.query("CREATE TABLE t (a integer PRIMARY KEY)")
    for run in range(max(arguments.runs, 3)):
        for name, client in clients.items():
            for waits in (True, False) if name == "alone" else (True,):
                client.query(f"SET synchronous_commit = {'on' if waits else 'off'}")
                client.query("TRUNCATE t")
                found = times(count, lambda at: client.query(f"INSERT INTO t VALUES ({at})"))
                medians[name if waits else "without waiting"].append(statistics.median(found))
        medians["flush"].append(statistics.median(flush_times(arguments, count)))
        medians["round trip"].append(statistics.median(round_trips(count)))
    found = {name: statistics.median(values) for name, values in medians.items()}
    for name, value in found.items():
        print(f"{name:<20}{value:.0f} us")
    waited = found["one of two voters"] - found["without waiting"]
    ratio = waited / (found["flush"] + found["round trip"])
    print(f"waiting for two voters takes {ratio:.2f} x (a flush + a round trip), {waited:.0f} us; for one {found['alone'] - found['without waiting']:.0f} us")
    for server in alone + voters:
        server.kill()


def large(arguments, name, seconds):
    """A run of TPC-C at the rate beside a large table, and its directory, which has a checkpoint."""
    rows = max(int(arguments.size * 1e9 / ROW_BYTES), 1)
    columns = "g AS id, repeat(md5(g::text), 8) AS wide"
    more = []
    for statement in [
        # It does not become compact in the middle of a run.
        f"CREATE TABLE large WITH (compact_after = 'never') AS SELECT {columns} FROM generate_series(1, {rows}) g",
        "CREATE TABLE probe (a integer)",
        "CHECKPOINT",
    ]:
        more += ["--before", statement]
    directory = arguments.scratch / name
    more += ["--data", str(directory), "--rate", str(arguments.large_rate)]
    return Tpcc(arguments, more, seconds), directory


def files_of(directory):
    """All files, with paths relative to the directory."""
    return [str(path.relative_to(directory)) for path in sorted(directory.rglob("*")) if path.is_file()]


def size_of(directory):
    return sum((directory / file).stat().st_size for file in files_of(directory))


def database_files(directory):
    """Those that an opening needs: the newest segments of the log first, so that a copy of them in this order ends with a whole group or a
    torn one, while the log grows."""
    files = files_of(directory)
    log = sorted((file for file in files if file.startswith("log/") and file.endswith(".redo")), reverse=True)
    return ["MANIFEST", *(file for file in files if file.startswith("checkpoint/")), *log]


def forget(directory):
    """Removes the files of a directory from the page cache."""
    for name in files_of(directory):
        try:
            file = os.open(directory / name, os.O_RDONLY)
        except FileNotFoundError:
            continue
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def copy_files(source, files, target):
    """Copies files with cp, in this order, and syncs them; returns the time."""
    target.mkdir()
    begun = time.monotonic()
    subprocess.run(["cp", "--reflink=never", "--parents", *files, str(target)], cwd=source, check=True)
    for path in [target / file for file in files] + [path for path in target.rglob("*") if path.is_dir()] + [target]:
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.close(file)
    return time.monotonic() - begun


def reach(client, position):
    """Waits until a replica has replayed a position."""
    wait_for(lambda: client.value(f"SELECT pg_last_wal_replay_lsn() >= '{position}'") == "t")


def replay_speed(client):
    """Bytes of the log that a replica replays in a second, beside what it receives meanwhile."""
    client.query("SELECT pg_wal_replay_pause()")
    time.sleep(4)
    end, size = client.query(
        "SELECT pg_last_wal_receive_lsn(), pg_wal_lsn_diff(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())"
    )[0]
    begun = time.monotonic()
    client.query("SELECT pg_wal_replay_resume()")
    reach(client, end)
    return float(size) / (time.monotonic() - begun)


def copy(arguments):
    tpcc, directory = large(arguments, "copy", LONG)
    primary, patient = Client(tpcc.port), Client(tpcc.port, 3600)
    position = lambda: primary.value("SELECT pg_current_wal_lsn()")
    since = lambda start: float(primary.value(f"SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '{start}')"))
    orders = lambda: int(primary.value("SELECT sum(d_next_o_id) FROM district"))
    begun, before = time.monotonic(), orders()
    ratios = []
    for run in range(arguments.runs):
        patient.query("CHECKPOINT")
        forget(directory)
        start, started = position(), time.monotonic()
        replica = Server(arguments, f"copy-{run}-replica", tpcc.port)
        client = replica.connect(3600)
        reach(client, start)
        served, now = time.monotonic() - started, position()
        reach(client, now)
        caught_up = time.monotonic() - started
        speed = replay_speed(client)
        replica.remove()

        patient.query("CHECKPOINT")
        forget(directory)
        start, local = position(), arguments.scratch / f"copy-{run}-cp"
        copied = copy_files(directory, database_files(directory), local)
        size, started = size_of(local), time.monotonic()
        opened = Server(arguments, local.name)
        opened.connect(3600).query("SELECT 1")
        opening = time.monotonic() - started
        came = since(start)
        opened.remove()

        whole = copied + opening + came / speed
        ratios.append((served / whole, caught_up / whole))
        print(f"{size / 1e9:.2f} GB: a replica serves after {served:.2f} s, and has caught up after {caught_up:.2f} s")
        print(f"    cp and sync {copied:.2f} s, opening {opening:.2f} s, replay of {came / 1e6:.1f} MB that came meanwhile {came / speed:.2f} s")
    print(f"{(orders() - before) / (time.monotonic() - begun):.0f} new orders/s, which are 45 % of the transactions")
    serves, catches_up = (statistics.median(of) for of in zip(*ratios))
    print(f"a new replica serves within {serves:.2f} x (cp + opening + replay), and has caught up within {catches_up:.2f} x")
    tpcc.process.kill()
    tpcc.process.wait()
    shutil.rmtree(directory)


class Prober(threading.Thread):
    """Commits now and then, and waits for each commit, until the server ends."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.client, self.times = Client(port, 3600), []
        self.start()

    def run(self):
        try:
            while True:
                begun = time.perf_counter()
                self.client.query("INSERT INTO probe VALUES (1)")
                self.times.append((time.perf_counter() - begun) * 1e3)
                time.sleep(0.005)
        except (OSError, RuntimeError):
            pass


def remove_slowly(directory):
    """Removes files one by one: all at once would occupy the disk for seconds."""
    for name in files_of(directory):
        (directory / name).unlink()
        time.sleep(0.02)
    shutil.rmtree(directory)


def repeat_until(deadline, body):
    """The results of a call that is repeated until then; that of one which has not ended by then is left out."""
    found, at = [], 0
    while time.monotonic() < deadline:
        result = body(at)
        if time.monotonic() < deadline:
            found.append(result)
        at += 1
    return found


def backup(arguments):
    rates, latencies, backups, copies, kept = {}, {}, [], [], arguments.scratch / "backup-kept"
    for run in range(arguments.runs):
        for kind in ["alone", "backups", "cp"]:
            tpcc, directory = large(arguments, f"backup-{run}-{kind}", arguments.seconds)
            prober = Prober(tpcc.port)
            # Time enough for the process to start its clients, and to end them.
            deadline = time.monotonic() + arguments.seconds - 1

            def back_up(at):
                made = arguments.scratch / f"backup-{run}-{at}"
                forget(directory)
                begun = time.monotonic()
                command = [arguments.firn, "backup", "create", f"127.0.0.1:{tpcc.port}", str(made)]
                ended = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                took = time.monotonic() - begun
                if ended.returncode == 0:
                    if kept.exists():
                        remove_slowly(kept)
                    made.rename(kept)
                    return took
                shutil.rmtree(made, ignore_errors=True)
                if time.monotonic() < deadline:
                    raise SystemExit(ended.stderr)

            def cp(at):
                target = arguments.scratch / f"backup-{run}-copied"
                forget(kept)
                took = copy_files(kept, files_of(kept), target)
                remove_slowly(target)
                return took

            if kind != "alone":
                found = repeat_until(deadline, back_up if kind == "backups" else cp)
                if not found:
                    raise SystemExit("none has ended within --seconds")
                (backups if kind == "backups" else copies).extend(found)
            rate, by_kind = tpcc.report()
            rates.setdefault(kind, []).append(rate)
            prober.join()
            by_kind["a commit with wait"] = sorted(prober.times)[int(0.99 * (len(prober.times) - 1))]
            for name, p99 in by_kind.items():
                latencies.setdefault(name, {}).setdefault(kind, []).append(p99)
            shutil.rmtree(directory)
    size = size_of(kept)
    shutil.rmtree(kept)
    median = statistics.median
    print(f"{size / 1e9:.2f} GB: a backup takes {median(backups):.2f} s, of {len(backups)}; cp and sync {median(copies):.2f} s, of {len(copies)}")
    print(f"a backup takes {median(backups) / median(copies):.2f} x the time of cp")
    print(f"{'':<26}{'alone':>10}{'beside backups':>24}{'beside cp':>24}")
    print(f"{'tx/s':<26}{median(rates['alone']):>10.0f}{median(rates['backups']):>14.0f}{median(rates['cp']):>24.0f}")
    for name, by_kind in latencies.items():
        alone = median(by_kind["alone"])
        beside = [f"{median(by_kind[kind]):>11.2f} ms{median(by_kind[kind]) / alone:>8.2f} x" for kind in ["backups", "cp"]]
        print(f"{name + ', p99':<26}{alone:>7.2f} ms" + "".join(beside))


def quiet(arguments):
    servers = cluster(arguments, "quiet", 3)
    client = servers[0].connect()
    client.query("CREATE TABLE t (a integer PRIMARY KEY, b integer, c text)")
    begun, epoch = time.monotonic(), client.value("SELECT epoch FROM firn_voters LIMIT 1")
    client.query("INSERT INTO t SELECT g, 0, repeat('x', 200) FROM generate_series(1, 100000) g")
    commits = [0] * 8

    def work(at):
        own = servers[0].connect()
        while time.monotonic() < begun + arguments.seconds:
            row = (commits[at] * 8 + at) % 100000 + 1
            own.query(f"BEGIN ISOLATION LEVEL READ COMMITTED; UPDATE t SET b = b + 1 WHERE a = {row}; SELECT sum(b) FROM t WHERE a BETWEEN {row} AND {row + 50}; COMMIT")
            commits[at] += 1

    threads = [threading.Thread(target=work, args=(at,)) for at in range(len(commits))]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    after = servers[0].connect().value("SELECT epoch FROM firn_voters LIMIT 1")
    print(f"{sum(commits)} commits in {arguments.seconds} s; another server has taken over {int(after) - int(epoch)} times")
    for server in servers:
        server.kill()


PARTS = {
    "primary": primary,
    "cost": cost,
    "replay": replay,
    "lag": lag,
    "failover": failover,
    "commit": commit,
    "copy": copy,
    "backup": backup,
    "quiet": quiet,
}

if __name__ == "__main__":
    main()
