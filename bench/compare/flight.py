#!/usr/bin/env python3
"""Export of a table to a Python client as Arrow: FirnDB over Flight SQL and a bare Flight server, in alternating runs.

    flight.py --firn target/release/firn [--scale 1] [--rounds 5] [--postgres-bin /usr/lib/postgresql/15/bin]

The table is TPC-H's lineitem (tpchgen-cli), ingested over Flight SQL. The bare server (pyarrow's) stores the batches that
FirnDB has sent and sends them repeatedly, so that both send the same bytes. Both are processes of their own; the client
of both is pyarrow's. The difference between them is the time in which FirnDB reads blocks and makes batches. Strings are sent
as Utf8 and, on a line of its own, as views, each with a bare server that sends the same type. ADBC's drivers come last: for
Flight SQL, and for PostgreSQL's binary COPY, from FirnDB and from PostgreSQL, with the driver's processor time in this
process. The same COPY with psql, which discards the data, measures the servers. The figures are medians of the rounds, in GB
of Arrow data per second. All of FirnDB's blocks are frozen. At the end a row in some, in half and in all blocks is updated, to
measure the throughput by the share of hot blocks.

Needs pyarrow, adbc-driver-flightsql, adbc-driver-postgresql and tpchgen-cli from PyPI, and PostgreSQL's initdb and postgres.
"""

import argparse
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import wire

import adbc_driver_flightsql.dbapi
import adbc_driver_postgresql.dbapi
import pyarrow.flight
import pyarrow.parquet

QUERY = "SELECT * FROM lineitem"

# The option that makes this program the bare server.
BARE = "--bare"

# Blocks are frozen, and never encoded.
COLD = ["--freeze-after", "10", "--compact-after", "0"]


def field(number, data):
    """A field of bytes in a protobuf message."""
    length, size = len(data), b""
    while length > 127:
        size, length = size + bytes([length & 127 | 128]), length >> 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + data


def command(query):
    """CommandStatementQuery, encoded as Flight SQL requires."""
    url = b"type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery"
    return pyarrow.flight.FlightDescriptor.for_command(field(1, url) + field(2, field(1, query.encode())))


def fetched(client, strings):
    """The table as FirnDB sends it."""
    options = pyarrow.flight.FlightCallOptions(headers=[(b"x-firn-strings", strings.encode())])
    info = client.get_flight_info(command(QUERY), options)
    return client.do_get(info.endpoints[0].ticket, options).read_all()


class Bare(pyarrow.flight.FlightServerBase):
    """Sends batches from memory."""

    def __init__(self, tables):
        super().__init__("grpc://127.0.0.1:0")
        self.tables = tables

    def do_get(self, context, ticket):
        return pyarrow.flight.RecordBatchStream(self.tables[ticket.ticket.decode()])


def serve_bare(firn):
    """Serves the batches that FirnDB at a port has sent, and prints its own port."""
    client = pyarrow.flight.connect(f"grpc://127.0.0.1:{firn}")
    bare = Bare({strings: fetched(client, strings) for strings in ("plain", "view")})
    print(bare.port, flush=True)
    bare.serve()


class Firn:
    """A new server with a database in memory."""

    def __init__(self, binary, log):
        self.process = subprocess.Popen(
            [binary, "serve", *COLD, "--listen", "127.0.0.1:0", "--flight", "127.0.0.1:0"], stdout=open(log, "w")
        )
        self.flight = self.postgres = None
        until = time.monotonic() + 30
        while not (self.flight and self.postgres):
            assert time.monotonic() < until, "the server does not start"
            time.sleep(0.05)
            said = pathlib.Path(log).read_text()
            self.postgres = re.search(r"listening on 127\.0\.0\.1:(\d+)\n", said)
            self.flight = re.search(r"listening on 127\.0\.0\.1:(\d+) for Flight SQL", said)
        self.flight, self.postgres = self.flight[1], self.postgres[1]

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--firn", required=True)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--postgres-bin", default=wire.newest_postgres())
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        generate = ["tpchgen-cli", "parquet", "-s", str(arguments.scale), "--tables", "lineitem"]
        subprocess.run([*generate, "--output-dir", directory], check=True)
        lineitem = pyarrow.parquet.read_table(pathlib.Path(directory, "lineitem.parquet"))
        pathlib.Path(directory).chmod(0o755)
        postgres = wire.PostgreSQL(arguments, pathlib.Path(directory))
        firn = Firn(arguments.firn, pathlib.Path(directory, "log"))
        try:
            postgres.start()
            measure(firn, postgres, lineitem, arguments)
        finally:
            firn.stop()
            postgres.stop()


def measure(firn, postgres, lineitem, arguments):
    connect = adbc_driver_postgresql.dbapi.connect
    adbc = adbc_driver_flightsql.dbapi.connect(f"grpc://127.0.0.1:{firn.flight}", autocommit=True)
    copy = connect(f"postgresql://postgres@127.0.0.1:{firn.postgres}/firn", autocommit=True)
    copy_of_postgres = connect(f"postgresql://postgres@127.0.0.1:{postgres.port}/postgres", autocommit=True)
    cursor, copy_cursor, postgres_cursor = adbc.cursor(), copy.cursor(), copy_of_postgres.cursor()
    began = time.monotonic()
    # ADBC sends messages of at most 16 MiB.
    rows = cursor.adbc_ingest("lineitem", lineitem.to_reader(max_chunksize=20_000), mode="create")
    print(f"{rows} rows ingested in {time.monotonic() - began:.2f} s")
    began = time.monotonic()
    postgres_cursor.adbc_ingest("lineitem", lineitem, mode="create")
    postgres_cursor.execute("VACUUM ANALYZE lineitem")
    print(f"by PostgreSQL in {time.monotonic() - began:.2f} s")
    wait_until_frozen(copy_cursor)

    client = pyarrow.flight.connect(f"grpc://127.0.0.1:{firn.flight}")

    def from_firn(strings):
        return fetched(client, strings)

    bare = subprocess.Popen([sys.executable, __file__, BARE, firn.flight], stdout=subprocess.PIPE, text=True)
    try:
        bare_client = pyarrow.flight.connect(f"grpc://127.0.0.1:{int(bare.stdout.readline())}")
        compare(firn, postgres, arguments, rows, (cursor, copy_cursor, postgres_cursor), from_firn, bare_client)
    finally:
        bare.terminate()
        bare.wait(30)


def compare(firn, postgres, arguments, rows, cursors, from_firn, bare_client):
    cursor, copy_cursor, postgres_cursor = cursors
    size = from_firn("plain").nbytes

    def from_bare(strings):
        return bare_client.do_get(pyarrow.flight.Ticket(strings.encode())).read_all()

    def from_cursor(cursor):
        cursor.execute(QUERY)
        return cursor.fetch_arrow_table()

    psql = str(pathlib.Path(arguments.postgres_bin, "psql"))
    copy_out = f"COPY ({QUERY}) TO STDOUT (FORMAT binary)"

    def drained(port, database):
        address = ["-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "-d", database]
        subprocess.run([psql, *address, "-c", copy_out], stdout=subprocess.DEVNULL, check=True)

    ways = {
        "FirnDB, Utf8": lambda: from_firn("plain"),
        "bare, the same": lambda: from_bare("plain"),
        "FirnDB, views": lambda: from_firn("view"),
        "bare, the same views": lambda: from_bare("view"),
        "FirnDB, ADBC Flight SQL": lambda: from_cursor(cursor),
        "FirnDB, ADBC PostgreSQL": lambda: from_cursor(copy_cursor),
        "PostgreSQL, the same": lambda: from_cursor(postgres_cursor),
        "FirnDB, psql": lambda: drained(firn.postgres, "firn"),
        "PostgreSQL, psql": lambda: drained(postgres.port, "postgres"),
    }
    seconds = {way: [] for way in ways}
    busy = {way: [] for way in ways}
    for _ in range(arguments.rounds):
        for way, fetch in ways.items():
            began, busy_before = time.monotonic(), time.process_time()
            table = fetch()
            seconds[way].append(time.monotonic() - began)
            busy[way].append(time.process_time() - busy_before)
            assert table is None or table.num_rows == rows, way
            del table
    for way, taken in seconds.items():
        median = statistics.median(taken)
        its_own = f"  client busy {statistics.median(busy[way]):6.3f} s" if "psql" not in way else ""
        print(f"{way:24} {median:7.3f} s {size / median / 1e9:6.2f} GB/s{its_own}")
    ratio = statistics.median(seconds["bare, the same"]) / statistics.median(seconds["FirnDB, Utf8"])
    views = statistics.median(seconds["bare, the same views"]) / statistics.median(seconds["FirnDB, views"])
    print(f"FirnDB relative to the bare server: {ratio:.0%}; with views {views:.0%}")
    copies = statistics.median(seconds["PostgreSQL, the same"]) / statistics.median(seconds["FirnDB, ADBC PostgreSQL"])
    print(f"FirnDB compared with PostgreSQL, by binary COPY: {copies:.2f} times as fast")
    servers = statistics.median(seconds["PostgreSQL, psql"]) / statistics.median(seconds["FirnDB, psql"])
    print(f"the same with psql, which discards the data: {servers:.2f} times as fast")
    for share in (0, 0.1, 0.25, 0.5, 1):
        wait_until_frozen(copy_cursor)
        taken = []
        for _ in range(arguments.rounds):
            heat(copy_cursor, share)
            began = time.monotonic()
            from_firn("view")
            taken.append(time.monotonic() - began)
        median = statistics.median(taken)
        print(f"{hot_share(copy_cursor):4.0%} of the blocks hot: {median:7.3f} s {size / median / 1e9:6.2f} GB/s, views")


def heat(cursor, share):
    """Makes blocks hot, by updates of one row in some thousand."""
    cursor.execute(
        "UPDATE lineitem SET l_linenumber = l_linenumber WHERE l_orderkey % 1000 < 2 AND l_orderkey <= "
        f"(SELECT max(l_orderkey) FROM lineitem) * {share}"
    )
    cursor.fetchall()


def hot_share(cursor):
    cursor.execute("SELECT avg(CASE WHEN state = 'hot' THEN 1.0 ELSE 0 END) FROM firn_blocks WHERE relname = 'lineitem'")
    return float(cursor.fetchone()[0])


def wait_until_frozen(cursor):
    """All blocks except the one that is being filled."""
    until = time.monotonic() + 60
    while True:
        cursor.execute("SELECT count(*) FROM firn_blocks WHERE relname = 'lineitem' AND state <> 'frozen'")
        if cursor.fetchone()[0] <= 1:
            return
        assert time.monotonic() < until, "the table does not cool down"
        time.sleep(0.2)


if sys.argv[1:2] == [BARE]:
    serve_bare(sys.argv[2])
else:
    main()
