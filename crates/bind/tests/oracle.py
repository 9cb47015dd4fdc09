#!/usr/bin/env python3
"""Writes what PostgreSQL 15 says of the statements in cases/*.sql into cases/*.expected.

Usage: oracle.py HOST PORT USER DATABASE. The database is empty, with encoding UTF8 and collation C. For each statement the
answer is one line: the names, types and origins of the columns and the types of the parameters, or SQLSTATE, position,
message, hint and detail. With it stand the rows of statements in files named rows-*.
"""
import glob, os, socket, struct, sys

here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases")


class Connection:
    def __init__(self, host, port, user, database):
        self.socket = socket.create_connection((host, port))
        self.buffer = b""
        body = struct.pack("!i", 196608)
        for key, value in (("user", user), ("database", database), ("client_encoding", "UTF8")):
            body += key.encode() + b"\0" + value.encode() + b"\0"
        body += b"\0"
        self.socket.sendall(struct.pack("!i", len(body) + 4) + body)
        self.until_ready()

    def send(self, kind, body=b""):
        self.socket.sendall(kind + struct.pack("!i", len(body) + 4) + body)

    def message(self):
        while len(self.buffer) < 5 or len(self.buffer) < 1 + struct.unpack("!i", self.buffer[1:5])[0]:
            self.buffer += self.socket.recv(65536)
        length = struct.unpack("!i", self.buffer[1:5])[0]
        kind, body = self.buffer[:1], self.buffer[5 : 1 + length]
        self.buffer = self.buffer[1 + length :]
        return kind, body

    def until_ready(self):
        messages = []
        while True:
            kind, body = self.message()
            messages.append((kind, body))
            if kind == b"Z":
                return messages

    def simple(self, text):
        self.send(b"Q", text.encode() + b"\0")
        rows, error = [], None
        for kind, body in self.until_ready():
            if kind == b"D":
                rows.append(values(body))
            if kind == b"E" and error is None:
                error = fields(body)
        return rows, error

    def describe(self, text):
        self.send(b"P", b"\0" + text.encode() + b"\0" + struct.pack("!h", 0))
        self.send(b"D", b"S\0")
        self.send(b"S")
        parameters, columns, error = [], [], None
        for kind, body in self.until_ready():
            if kind == b"t":
                count = struct.unpack("!h", body[:2])[0]
                parameters = list(struct.unpack("!%di" % count, body[2 : 2 + 4 * count]))
            elif kind == b"T":
                columns = described(body)
            elif kind == b"E" and error is None:
                error = fields(body)
        return parameters, columns, error


def fields(body):
    result = {}
    while body[:1] != b"\0":
        end = body.index(b"\0")
        result[body[:1].decode()] = body[1:end].decode()
        body = body[end + 1 :]
    return result


def values(body):
    count = struct.unpack("!h", body[:2])[0]
    row, at = [], 2
    for _ in range(count):
        length = struct.unpack("!i", body[at : at + 4])[0]
        at += 4
        if length < 0:
            row.append("NULL")
        else:
            row.append(body[at : at + length].decode())
            at += length
    return row


def described(body):
    count, at, columns = struct.unpack("!h", body[:2])[0], 2, []
    for _ in range(count):
        end = body.index(b"\0", at)
        name = body[at:end].decode()
        table, attribute, oid, _, modifier, _ = struct.unpack("!iHihih", body[end + 1 : end + 19])
        columns.append((name, oid, modifier, table, attribute))
        at = end + 19
    return columns


def statements(path):
    """Statements end with a semicolon at the end of a line; -- begins a comment line."""
    text = "".join(line for line in open(path) if not line.startswith("--"))
    return [one.strip() for one in text.split(";\n") if one.strip()]


def main():
    host, port, user, database = sys.argv[1:5]
    connection = Connection(host, int(port), user, database)
    connection.simple("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    for statement in statements(os.path.join(here, "schema.sql")):
        _, error = connection.simple(statement)
        assert error is None, (statement, error)
    names = {int(row[0]): row[1] for row in connection.simple("SELECT oid, relname FROM pg_class")[0]}
    types = {}

    def type_name(oid, modifier):
        if (oid, modifier) not in types:
            rows, _ = connection.simple("SELECT format_type(%d, %s)" % (oid, modifier if modifier >= 0 else "NULL"))
            types[oid, modifier] = rows[0][0]
        return types[oid, modifier]

    for path in sorted(glob.glob(os.path.join(here, "*.sql"))):
        if path.endswith("schema.sql"):
            continue
        with open(path[:-4] + ".expected", "w") as out:
            for statement in statements(path):
                parameters, columns, error = connection.describe(statement)
                if error is not None:
                    parts = [error["C"], error.get("P", "-"), error["M"]]
                    parts += ["HINT: " + error["H"]] if "H" in error else []
                    parts += ["DETAIL: " + error["D"]] if "D" in error else []
                    out.write("error " + " | ".join(parts) + "\n")
                    continue
                shown = []
                for name, oid, modifier, table, attribute in columns:
                    number = attribute if attribute < 32768 else attribute - 65536
                    origin = " from %s.%d" % (names[table], number) if table else ""
                    shown.append("%s %s%s" % (name, type_name(oid, modifier), origin))
                line = "columns " + ", ".join(shown)
                if parameters:
                    line += " parameters " + ", ".join(type_name(oid, -1) for oid in parameters)
                out.write(line + "\n")
                if os.path.basename(path).startswith("rows-"):
                    rows, error = connection.simple(statement)
                    if error is not None:
                        out.write("  error " + error["C"] + "\n")
                    for row in rows:
                        out.write("  " + "|".join(row) + "\n")


main()
