#!/usr/bin/env python3
"""Loading files, by FirnDB and other engines, in alternating runs on one machine.

    load.py --firn target/release/firn lineitem.csv [--rounds 3] [--parts load,query,pgbench,dump]

lineitem.csv is TPC-H's, with a header (`tpchgen-cli csv -s 1 -T lineitem`). The parts:

load     Loads the file into a table in memory. With its primary key (l_orderkey, l_linenumber): FirnDB and DuckDB.
         Without a key: FirnDB, DuckDB, Tableau Hyper (which stores a file, and has no keys), Polars and pyarrow. Memory is
         the peak of the process. For FirnDB there is also the peak without the memory before the load and without the table
         and its index (firn_stat_tables). Hyper's memory is that of another process and is not shown.
query    SELECT count(*), sum(l_extendedprice) FROM 'lineitem.csv' WHERE l_shipdate BETWEEN …: the file is read in place,
         after columns and types were found in it. FirnDB and DuckDB.
pgbench  pgbench -i -s 100 (--scale), FirnDB with its log and PostgreSQL.
dump     `firn dump` of a server with lineitem, and `firn restore` into another one, as Arrow and Parquet.

A virtual machine's host reclaims unused memory, and to get it back takes ten times as long as to clear it. So before each
run a process allocates and frees --warm-memory megabytes, and the file is read once. All engines find both in memory.

Each figure is the median of the rounds, each in a process of its own; the answers are compared. An engine that is not
installed is skipped with a message. FirnDB is a server with psql as its client, the others run in a Python process.

Needs psql for FirnDB; pgbench, and PostgreSQL's initdb and postgres (--postgres-bin, else the newest under /usr/lib/postgresql), for
their part; duckdb, tableauhyperapi, polars and pyarrow from PyPI.
"""

import argparse
import importlib.util
import json
import mmap
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import wire

# The other engines, and the names of their packages.
PACKAGES = {"DuckDB": "duckdb", "Hyper": "tableauhyperapi", "Polars": "polars", "pyarrow": "pyarrow"}

PARTS = ["load", "query", "pgbench", "dump"]

TYPES = {
    "l_orderkey": "bigint",
    "l_partkey": "bigint",
    "l_suppkey": "bigint",
    "l_linenumber": "integer",
    "l_quantity": "numeric(15,2)",
    "l_extendedprice": "numeric(15,2)",
    "l_discount": "numeric(15,2)",
    "l_tax": "numeric(15,2)",
    "l_returnflag": "text",
    "l_linestatus": "text",
    "l_shipdate": "date",
    "l_commitdate": "date",
    "l_receiptdate": "date",
    "l_shipinstruct": "text",
    "l_shipmode": "text",
    "l_comment": "text",
}

KEY = ", PRIMARY KEY (l_orderkey, l_linenumber)"

# Checks that all rows were loaded unchanged.
CHECK = "SELECT count(*), sum(l_extendedprice), max(l_shipdate) FROM lineitem"

SIZE = "SELECT total_bytes FROM firn_stat_tables WHERE relname = 'lineitem'"

IN_PLACE = (
    "SELECT count(*), sum(l_extendedprice) FROM '{file}'"
    " WHERE l_shipdate BETWEEN DATE '1994-01-01' AND DATE '1994-12-31'"
)


def create(key):
    columns = ", ".join(f"{name} {kind} NOT NULL" for name, kind in TYPES.items())
    return f"CREATE TABLE lineitem ({columns}{KEY if key else ''})"


def main():
    arguments = parse()
    if arguments.take:
        return take_memory(arguments.take)
    if arguments.child:
        print(json.dumps(CHILDREN[arguments.child](arguments.file)))
        return
    file = pathlib.Path(arguments.file).resolve()
    arguments.file = str(file)
    megabytes = file.stat().st_size / 1e6
    print(f"{megabytes:.0f} MB of CSV, medians of {arguments.rounds} rounds")
    if "load" in arguments.parts:
        table("into a table with its primary key", "keyed", arguments, megabytes)
        table("into a table without a key", "load", arguments, megabytes)
    if "query" in arguments.parts:
        table("a query in place", "query", arguments, megabytes)
    if "pgbench" in arguments.parts:
        measure_pgbench(arguments)
    if "dump" in arguments.parts:
        measure_dump(arguments)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--firn", default="target/release/firn")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", type=lambda text: text.split(","), default=PARTS)
    parser.add_argument("--scale", type=int, default=100, help="the scale of pgbench (default 100)")
    parser.add_argument("--warm-memory", type=int, default=4096, metavar="MB", help="memory to warm up before each run (default 4096; 0 for none)")
    parser.add_argument("--postgres-bin", default=wire.newest_postgres())
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--take", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    for part in arguments.parts:
        if part not in PARTS:
            parser.error(f"there is no part {part}")
    return arguments


def engines(part):
    """Names of engines and the child processes that run them (none for FirnDB), FirnDB first."""
    found = [("FirnDB", None)]
    for name, package in PACKAGES.items():
        child = f"{part}_{name.lower()}"
        if child not in CHILDREN:
            continue
        if importlib.util.find_spec(package) is None:
            print(f"  {name} is skipped: {package} is not installed")
            continue
        found.append((name, child))
    return found


def table(title, part, arguments, megabytes):
    print(title)
    runs = {}
    wanted = engines(part)
    for _ in range(arguments.rounds):
        for name, child in wanted:
            warm_memory(arguments)
            found = firn(part, arguments) if child is None else in_child(child, arguments)
            runs.setdefault(name, []).append(found)
    answers = {json.dumps(run["answer"]) for of_engine in runs.values() for run in of_engine}
    if len(answers) != 1:
        raise SystemExit(f"the answers differ: {runs}")
    first = None
    for name, of_engine in runs.items():
        seconds = statistics.median(run["seconds"] for run in of_engine)
        first = first or seconds
        line = f"  {name:<20}{seconds:>8.2f} s{megabytes / seconds:>8.0f} MB/s{seconds / first:>7.2f} of FirnDB's time"
        for what, text in (("peak", "MB at most"), ("beyond", "MB beyond the table")):
            if what in of_engine[0]:
                line += f"{statistics.median(run[what] for run in of_engine):>8.0f} {text}"
        print(line, flush=True)


class Memory:
    """A `firn serve` without a directory, for the tables of one round."""

    def __init__(self, binary):
        command = [binary, "serve", "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.port = None
        while self.port is None:
            line = self.process.stdout.readline()
            if not line:
                raise SystemExit(f"the server ended with {self.process.wait()}")
            found = re.match(r"listening on .*:(\d+)$", line.strip())
            self.port = found and found[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def psql(port, *statements):
    """Runs statements. Returns the rows of the last, and its time as psql measures it."""
    command = ["psql", "-X", "-q", "-t", "-A", "-F", "|", "-v", "ON_ERROR_STOP=1", "-c", "\\timing on"]
    command += [part for statement in statements for part in ("-c", statement)]
    output = wire.run([*command, "-h", "127.0.0.1", "-p", str(port), "-U", "firn", "firn"])
    lines = [line for line in output.splitlines() if line and not line.startswith("Timing")]
    times = [float(found[1]) / 1e3 for line in lines if (found := re.match(r"Time: ([0-9.]+) ms", line))]
    rows = [line for line in lines if not line.startswith("Time:")]
    return rows, times[-1]


def firn(part, arguments):
    with Memory(arguments.firn) as server:
        if part == "query":
            rows, seconds = psql(server.port, IN_PLACE.format(file=arguments.file))
            return {"seconds": seconds, "answer": cents(*rows[0].split("|"))}
        before = peak_memory(server.process.pid)
        _, seconds = psql(server.port, create(part == "keyed"), f"COPY lineitem FROM '{arguments.file}' (FORMAT csv, HEADER)")
        peak = peak_memory(server.process.pid)
        size, _ = psql(server.port, SIZE)
        rows, _ = psql(server.port, CHECK)
        beyond = peak - before - int(size[0]) / 1e6
        return {"seconds": seconds, "answer": rows[0].split("|"), "peak": peak, "beyond": beyond}


def warm_memory(arguments):
    """Accesses memory in a child process, so that the host provides it. Then reads the file, of which pages may have been evicted."""
    if arguments.warm_memory:
        wire.run([sys.executable, __file__, arguments.file, "--take", str(arguments.warm_memory)])
    with open(arguments.file, "rb", buffering=0) as file:
        while file.read(1 << 20):
            pass


def take_memory(megabytes):
    with mmap.mmap(-1, megabytes << 20) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        for _ in range(megabytes):
            memory.write(bytes(1 << 20))


def in_child(child, arguments):
    return json.loads(wire.run([sys.executable, __file__, arguments.file, "--child", child]).splitlines()[-1])


def peak_memory(process="self"):
    """The peak memory of a process so far, in MB."""
    status = pathlib.Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"^VmHWM:\s+(\d+) kB", status, re.M)[1]) * 1024 / 1e6


def result(began, answer):
    """The result of a child. `answer` is computed after time and memory were measured."""
    seconds, peak = time.monotonic() - began, peak_memory()
    return {"seconds": seconds, "answer": [str(value) for value in answer()], "peak": peak}


def keyed_duckdb(file):
    return load_duckdb(file, key=True)


def load_duckdb(file, key=False):
    import duckdb

    connection = duckdb.connect()
    connection.execute(create(key))
    began = time.monotonic()
    connection.execute(f"COPY lineitem FROM '{file}' (FORMAT csv, HEADER)")
    return result(began, lambda: connection.execute(CHECK).fetchone())


def load_hyper(file):
    import tableauhyperapi as hyper

    with tempfile.TemporaryDirectory(prefix="firn-load") as directory:
        telemetry = hyper.Telemetry.DO_NOT_SEND_USAGE_DATA_TO_TABLEAU
        with hyper.HyperProcess(telemetry, parameters={"log_dir": directory}) as process:
            path, mode = pathlib.Path(directory, "load.hyper"), hyper.CreateMode.CREATE
            with hyper.Connection(process.endpoint, path, mode) as connection:
                connection.execute_command(create(False))
                began = time.monotonic()
                connection.execute_command(f"COPY lineitem FROM '{file}' WITH (FORMAT csv, HEADER)")
                seconds = time.monotonic() - began
                count, price, day = connection.execute_list_query(CHECK)[0]
                answer = [str(count), str(price), str(day)]
                return {"seconds": seconds, "answer": answer}


def load_polars(file):
    import polars

    of = {"bigint": polars.Int64, "integer": polars.Int32, "text": polars.String, "date": polars.Date}
    schema = {name: of.get(kind, polars.Decimal(15, 2)) for name, kind in TYPES.items()}
    began = time.monotonic()
    frame = polars.read_csv(file, schema=schema)
    return result(began, lambda: (len(frame), frame["l_extendedprice"].sum(), frame["l_shipdate"].max()))


def load_pyarrow(file):
    import pyarrow
    import pyarrow.compute
    import pyarrow.csv

    of = {"bigint": pyarrow.int64(), "integer": pyarrow.int32(), "text": pyarrow.string(), "date": pyarrow.date32()}
    types = {name: of.get(kind, pyarrow.decimal128(15, 2)) for name, kind in TYPES.items()}
    began = time.monotonic()
    rows = pyarrow.csv.read_csv(file, convert_options=pyarrow.csv.ConvertOptions(column_types=types))
    add, latest = pyarrow.compute.sum, pyarrow.compute.max
    return result(began, lambda: (len(rows), add(rows["l_extendedprice"]), latest(rows["l_shipdate"])))


def query_duckdb(file):
    import duckdb

    connection = duckdb.connect()
    began = time.monotonic()
    count, price = connection.execute(IN_PLACE.format(file=file)).fetchone()
    seconds = time.monotonic() - began
    return {"seconds": seconds, "answer": cents(count, price)}


def cents(count, price):
    """Prices without a declared type are doubles, and their sum depends on the order."""
    return [str(count), f"{float(price):.2f}"]


CHILDREN = {
    function.__name__: function
    for function in (keyed_duckdb, load_duckdb, load_hyper, load_polars, load_pyarrow, query_duckdb)
}


def measure_pgbench(arguments):
    programs = pathlib.Path(arguments.postgres_bin)
    if not shutil.which("pgbench") or not arguments.postgres_bin or not (programs / "initdb").exists():
        print("pgbench is skipped: it needs pgbench, and PostgreSQL's initdb and postgres")
        return
    print(f"pgbench -i -s {arguments.scale}")
    found = {}
    for _ in range(arguments.rounds):
        for kind in (wire.Firn, wire.PostgreSQL):
            with tempfile.TemporaryDirectory(prefix="firn-load") as directory:
                directory = pathlib.Path(directory)
                directory.chmod(0o755)
                warm_memory(arguments)
                server = kind(arguments, directory)
                try:
                    server.start()
                    command = ["pgbench", "-i", "-q", "-s", str(arguments.scale), *server.address("tcp")]
                    # pgbench prints the times on standard error.
                    said = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=True).stderr
                finally:
                    server.stop()
            whole, parts = re.search(r"^done in ([0-9.]+) s \((.*)\)", said, re.M).groups()
            steps = re.findall(r"([a-z -]+) ([0-9.]+) s", parts)
            found.setdefault(server.name, []).append((float(whole), {name.strip(): float(took) for name, took in steps}))
    first = None
    for name, runs in found.items():
        whole = statistics.median(seconds for seconds, _ in runs)
        first = first or whole
        steps = ", ".join(f"{step} {statistics.median(of[step] for _, of in runs):.2f} s" for step in runs[0][1])
        print(f"  {name:<20}{whole:>8.2f} s{whole / first:>7.2f} of FirnDB's time   {steps}", flush=True)


def measure_dump(arguments):
    print("firn dump and restore of lineitem, from and into servers with a log")
    found = {}
    with tempfile.TemporaryDirectory(prefix="firn-load") as directory:
        directory = pathlib.Path(directory)
        source = wire.Firn(arguments, directory)
        try:
            source.start()
            psql(source.port, create(True), f"COPY lineitem FROM '{arguments.file}' (FORMAT csv, HEADER)")
            expected, _ = psql(source.port, CHECK)
            for _ in range(arguments.rounds):
                for form in ("arrow", "parquet"):
                    folder = directory / "dump"
                    warm_memory(arguments)
                    took = timed([arguments.firn, "dump", "--format", form, url(source), str(folder)])
                    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6
                    into = directory / "restored"
                    into.mkdir()
                    warm_memory(arguments)
                    target = wire.Firn(arguments, into)
                    try:
                        target.start()
                        took_back = timed([arguments.firn, "restore", str(folder), url(target)])
                        if psql(target.port, CHECK)[0] != expected:
                            raise SystemExit("the restored table differs from the dumped one")
                    finally:
                        target.stop()
                    found.setdefault(form, []).append((size, took, took_back))
                    shutil.rmtree(folder)
                    shutil.rmtree(into)
        finally:
            source.stop()
    for form, runs in found.items():
        size, out, back = (statistics.median(column) for column in zip(*runs))
        print(
            f"  {form:<10}{size:>7.0f} MB, dump {out:.2f} s ({size / out:.0f} MB/s),"
            f" restore {back:.2f} s ({size / back:.0f} MB/s)",
            flush=True,
        )


def url(server):
    return f"postgres://{server.user}@127.0.0.1:{server.port}/{server.database}"


def timed(command):
    began = time.monotonic()
    wire.run(command)
    return time.monotonic() - began


if __name__ == "__main__":
    main()
