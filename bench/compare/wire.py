#!/usr/bin/env python3
"""FirnDB and PostgreSQL over the wire, under pgbench, in alternating runs on one machine.

    wire.py --firn target/release/firn --compare target/release/firn-compare [--seconds 10] [--rounds 3]

For each load: transactions a second, and the server's processor time per transaction from
/proc/<pid>/stat, children included. With one client, pgbench and server are also pinned to one core:
on two cores such a figure mostly measures how long a virtual core takes to wake up. An echo
server's figures stand beside, for what socket and client cost alone.

Needs pgbench, and PostgreSQL's initdb and postgres (--postgres-bin, else the newest under
/usr/lib/postgresql). Run as root, PostgreSQL is started as the user postgres.
"""

import argparse
import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import time

LOADS = [
    # name, pgbench arguments, clients, pinned to one core
    ("select-only, 1 client", ["-S", "-M", "prepared"], 1, False),
    ("select-only, 1 client, one core", ["-S", "-M", "prepared"], 1, True),
    ("select-only, 2 clients", ["-S", "-M", "prepared"], 2, False),
    ("TPC-B-like durable, 1 client", ["-M", "prepared"], 1, False),
    ("TPC-B-like durable, 1 client, one core", ["-M", "prepared"], 1, True),
    ("TPC-B-like durable, 16 clients", ["-M", "prepared"], 16, False),
]
TICKS = os.sysconf("SC_CLK_TCK")


def main():
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="firn-wire") as directory:
        directory = pathlib.Path(directory)
        directory.chmod(0o755)
        servers = [Firn(arguments, directory), PostgreSQL(arguments, directory)]
        try:
            for server in servers:
                server.start()
                run(["pgbench", "-i", "-q", "-s", str(arguments.scale), *server.address()])
            for pinned in (False, True):
                command = [arguments.compare, "echo"] + (["--one-core"] if pinned else [])
                print(run(command).strip() + (" (one core)" if pinned else ""))
            for load in LOADS:
                measure(load, servers, arguments)
        finally:
            for server in servers:
                server.stop()


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--firn", required=True)
    parser.add_argument("--compare", required=True)
    parser.add_argument("--postgres-bin")
    parser.add_argument("--scale", type=int, default=20)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.postgres_bin is None:
        versions = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))
        arguments.postgres_bin = str(versions[-1]) if versions else ""
    return arguments


def measure(load, servers, arguments):
    name, options, clients, pinned = load
    rates = {server.name: [] for server in servers}
    costs = {server.name: [] for server in servers}
    for _ in range(arguments.rounds):
        for server in servers:
            server.pin("0" if pinned else "0-63")
            command = ["pgbench", "-n", "-T", str(arguments.seconds), "-c", str(clients)]
            command += ["-j", str(min(clients, 2)), *options, *server.address()]
            before = server.processor_seconds()
            output = run((["taskset", "-c", "0"] if pinned else []) + command)
            used = server.processor_seconds() - before
            count = int(re.search(r"actually processed: (\d+)", output)[1])
            rates[server.name].append(float(re.search(r"^tps = ([0-9.]+)", output, re.M)[1]))
            costs[server.name].append(used / count)
    print(name)
    for server in servers:
        rate = statistics.median(rates[server.name])
        cost = statistics.median(costs[server.name]) * 1e6
        print(f"  {server.name:<12}{rate:>10.0f} tx/s{cost:>10.1f} µs of server processor a transaction")
    firn, other = servers
    rate = statistics.median(rates[firn.name]) / statistics.median(rates[other.name])
    cost = statistics.median(costs[firn.name]) / statistics.median(costs[other.name])
    print(f"  {rate:.2f} times the throughput, {cost:.2f} times the processor time")


class Server:
    """A server process; `process` is the one whose family's time counts."""

    def __init__(self, directory):
        self.directory = directory / self.name
        self.port = free_port()
        self.process = None
        self.pinned = None

    def address(self):
        return ["-h", "127.0.0.1", "-p", str(self.port), "-U", self.user, self.database]

    def family(self):
        """The server's processes: the first one and all that descend from it."""
        parents = {}
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    parents[int(entry.name)] = int(stat_fields(entry.name)[1])
                except OSError:
                    continue
        family = {self.root()}
        while True:
            more = {pid for pid, parent in parents.items() if parent in family} - family
            if not more:
                return family
            family |= more

    def processor_seconds(self):
        """User and system time of the family, of those that have ended included."""
        ticks = 0
        for pid in self.family():
            try:
                fields = stat_fields(pid)
            except OSError:
                continue
            ticks += sum(int(fields[field]) for field in range(11, 15))
        return ticks / TICKS

    def pin(self, cores):
        if self.pinned != cores:
            for pid in self.family():
                subprocess.run(["taskset", "-a", "-p", "-c", cores, str(pid)], stdout=subprocess.DEVNULL)
            self.pinned = cores

    def root(self):
        return self.process.pid

    def wait_until_it_listens(self):
        for _ in range(300):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.1)
        raise SystemExit(f"{self.name} does not listen")


class Firn(Server):
    name, user, database = "FirnDB", "firn", "firn"

    def __init__(self, arguments, directory):
        super().__init__(directory)
        self.binary = arguments.firn

    def start(self):
        command = [self.binary, "serve", "--data", str(self.directory)]
        command += ["--listen", f"127.0.0.1:{self.port}"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.wait_until_it_listens()

    def stop(self):
        if self.process:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait()


class PostgreSQL(Server):
    name, user, database = "PostgreSQL", "postgres", "postgres"

    def __init__(self, arguments, directory):
        super().__init__(directory)
        self.binaries = pathlib.Path(arguments.postgres_bin)

    def start(self):
        self.directory.mkdir()
        if os.geteuid() == 0:
            shutil.chown(self.directory, "postgres", "postgres")
        self.run([str(self.binaries / "initdb"), "-D", str(self.directory), "-U", "postgres", "-A", "trust"])
        options = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "shared_buffers": "4GB",
            "max_wal_size": "8GB",
        }
        settings = [text for name, value in options.items() for text in ("-c", f"{name}={value}")]
        command = as_postgres([str(self.binaries / "postgres"), "-D", str(self.directory), *settings])
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        self.wait_until_it_listens()

    def run(self, command):
        subprocess.run(as_postgres(command), check=True, stdout=subprocess.DEVNULL)

    def root(self):
        # The process that was started may be the one that only changes the user.
        return int((self.directory / "postmaster.pid").read_text().splitlines()[0])

    def stop(self):
        if self.process:
            os.kill(self.root(), signal.SIGINT)
            self.process.wait()


def as_postgres(command):
    return ["runuser", "-u", "postgres", "--", *command] if os.geteuid() == 0 else command


def run(command):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{result.stdout}{result.stderr}")
    return result.stdout


def stat_fields(pid):
    """/proc/<pid>/stat after the command's name, which may hold blanks: state, parent, …"""
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


main()
