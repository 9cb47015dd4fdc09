#!/usr/bin/env python3
"""FirnDB and PostgreSQL over the wire, under pgbench, in alternating runs on one machine.

    wire.py --firn target/release/firn --compare bench/compare/target/release/firn-compare [--seconds 10] [--rounds 3]

For each load it prints transactions per second (for pipelines: selects), and the server's processor time for each
from /proc/<pid>/stat, children included. With one client, client and server are also pinned to one core:
on two cores such a figure mostly measures how long a virtual core takes to wake up. The figures of an echo server
show what socket and client cost alone. Pipelines are also sent by a client that does almost no
work (firn-compare pipeline), as pgbench is the limit otherwise.

The last measurement is what commits cost readers: the throughput and latency of readers, alone and
with concurrent writers.

--only runs the loads whose names contain a text. Needs pgbench, and PostgreSQL's initdb and postgres
(--postgres-bin, else the newest under /usr/lib/postgresql). Run as root, PostgreSQL is started as the user
postgres.
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

# The number of selects in a pipeline.
PIPELINED = 50


class Load:
    """The work of clients. `over` is tcp, or unix for a socket in the file system."""

    def __init__(self, name, options, clients, pinned=False, over="tcp", client="pgbench", selects=1):
        self.name, self.options, self.clients = name, options, clients
        self.pinned, self.over, self.client, self.selects = pinned, over, client, selects

    def command(self, server, arguments, seconds):
        if self.client == "pipeline":
            command = [arguments.compare, "pipeline", "--address", f"127.0.0.1:{server.port}"]
            command += ["--user", server.user, "--database", server.database, "--scale", str(arguments.scale)]
            command += ["--clients", str(self.clients), "--seconds", str(seconds), *self.options]
        else:
            command = ["pgbench", "-n", "-T", str(seconds), "-c", str(self.clients)]
            command += ["-j", str(min(self.clients, 2)), "-M", "prepared", *self.options]
            command += server.address(self.over)
        return (["taskset", "-c", "0"] if self.pinned else []) + command


def loads(script):
    select, pipeline = ["-S"], ["-f", str(script)]
    one_core, unix = {"pinned": True}, {"over": "unix"}
    pipelined = {"selects": PIPELINED}
    return [
        Load("select-only, 1 client", select, 1),
        Load("select-only, 1 client, one core", select, 1, **one_core),
        Load("select-only, 1 client, one core, Unix socket", select, 1, **one_core, **unix),
        Load("select-only, 2 clients", select, 2),
        Load("select-only pipelined, 1 client", pipeline, 1, **pipelined),
        Load("select-only pipelined, 1 client, one core", pipeline, 1, **one_core, **pipelined),
        Load("select-only pipelined, 4 clients", pipeline, 4, **pipelined),
        Load("select-only pipelined, 1 light client", ["--reads", str(PIPELINED)], 1, client="pipeline"),
        Load("select-only pipelined, 4 light clients", ["--reads", str(PIPELINED)], 4, client="pipeline"),
        Load("TPC-B-like durable, 1 client", [], 1),
        Load("TPC-B-like durable, 1 client, one core", [], 1, **one_core),
        Load("TPC-B-like durable, 16 clients", [], 16),
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
                run(["pgbench", "-i", "-q", "-s", str(arguments.scale), *server.address("tcp")])
            for pinned in (False, True):
                command = [arguments.compare, "echo"] + (["--one-core"] if pinned else [])
                print(run(command).strip() + (" (one core)" if pinned else ""))
            script = directory / "pipeline.sql"
            script.write_text(pipeline_script(arguments.scale))
            for load in loads(script):
                if arguments.only in load.name:
                    measure(load, servers, arguments)
            if arguments.only in BESIDE:
                measure_readers_beside_writers(servers, arguments)
        finally:
            for server in servers:
                server.stop()


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--firn", required=True)
    parser.add_argument("--compare", required=True)
    parser.add_argument("--postgres-bin", default=newest_postgres())
    parser.add_argument("--scale", type=int, default=20)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    return parser.parse_args()


def newest_postgres():
    """The directory of PostgreSQL's programs, if they are where Debian installs them."""
    versions = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))
    return str(versions[-1]) if versions else ""


def pipeline_script(scale):
    keys = [f"\\set aid{key} random(1, {100_000 * scale})" for key in range(PIPELINED)]
    selects = [f"SELECT abalance FROM pgbench_accounts WHERE aid = :aid{key};" for key in range(PIPELINED)]
    return "\n".join([*keys, "\\startpipeline", *selects, "\\endpipeline", ""])


def measure(load, servers, arguments):
    rates = {server.name: [] for server in servers}
    costs = {server.name: [] for server in servers}
    for _ in range(arguments.rounds):
        for server in servers:
            server.pin("0" if load.pinned else "0-63")
            before = server.processor_seconds()
            output = run(load.command(server, arguments, arguments.seconds))
            used = server.processor_seconds() - before
            count = int(re.search(r"actually processed: (\d+)", output)[1]) * load.selects
            rate = float(re.search(r"^(?:tps|reads a second) = ([0-9.]+)", output, re.M)[1]) * load.selects
            rates[server.name].append(rate)
            costs[server.name].append(used / count)
    print(load.name)
    for server in servers:
        rate = statistics.median(rates[server.name])
        cost = statistics.median(costs[server.name]) * 1e6
        print(f"  {server.name:<12}{rate:>10.0f} a second{cost:>10.2f} µs of server processor each")
    firn, other = servers
    rate = statistics.median(rates[firn.name]) / statistics.median(rates[other.name])
    cost = statistics.median(costs[firn.name]) / statistics.median(costs[other.name])
    print(f"  {rate:.2f} times the throughput, {cost:.3f} times the processor time", flush=True)


BESIDE = "4 readers beside 4 writers"


def measure_readers_beside_writers(servers, arguments):
    """Runs readers and writers. The writers begin before the readers and end after them."""
    readers = Load("select-only", ["-S"], 4)
    writers = Load("TPC-B-like", [], 4)
    found = {(server.name, beside): [] for server in servers for beside in (False, True)}
    for _ in range(arguments.rounds):
        for server in servers:
            server.pin("0-63")
            for beside in (False, True):
                others = None
                if beside:
                    command = writers.command(server, arguments, arguments.seconds + 2)
                    others = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                    time.sleep(1)
                output = run(readers.command(server, arguments, arguments.seconds))
                rate = float(re.search(r"^tps = ([0-9.]+)", output, re.M)[1])
                latency = float(re.search(r"latency average = ([0-9.]+)", output)[1])
                written = 0.0
                if others:
                    written = float(re.search(r"^tps = ([0-9.]+)", others.communicate()[0], re.M)[1])
                found[server.name, beside].append((rate, latency, written))
    print(BESIDE)
    for (name, beside), runs in found.items():
        rate, latency, written = (statistics.median(column) for column in zip(*runs))
        writing = f" beside {written:.0f} transactions a second" if beside else " alone"
        print(f"  {name:<12}{rate:>10.0f} reads a second, {latency:.3f} ms each,{writing}", flush=True)


class Server:
    """A server process. The time of `process` and its descendants is measured."""

    def __init__(self, directory):
        self.directory = directory / self.name
        self.socket_directory = directory / f"{self.name}-socket"
        self.socket_directory.mkdir()
        self.socket_directory.chmod(0o777)
        self.port = free_port()
        self.process = None
        self.pinned = None

    def address(self, over):
        host = "127.0.0.1" if over == "tcp" else str(self.socket_directory)
        return ["-h", host, "-p", str(self.port), "-U", self.user, self.database]

    def family(self):
        """The server's processes: the first one and its descendants."""
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
        """User and system time of these processes, including those that have ended."""
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
        command += ["--listen", f"127.0.0.1:{self.port}", "--socket-dir", str(self.socket_directory)]
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
            "unix_socket_directories": str(self.socket_directory),
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
        # The started process may be the wrapper that only changes the user.
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
    """/proc/<pid>/stat after the command's name, which may contain blanks: state, parent, …"""
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    main()
