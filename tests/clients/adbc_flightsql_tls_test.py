"""ADBC over Flight SQL with TLS: clients that trust the server's certificate can do everything, others cannot connect."""

import os

import adbc_driver_flightsql.dbapi
import adbc_driver_manager
import pyarrow

checks = 0


def same(found, expected):
    global checks
    checks += 1
    assert found == expected, f"{found!r} instead of {expected!r}"


def is_refused(because, scheme="grpc+tls", **options):
    global checks
    checks += 1
    try:
        with connect(scheme, **options) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except adbc_driver_manager.Error as error:
        assert because in str(error), str(error)
        return
    raise AssertionError(f"no error of {because}")


port = os.environ["FIRN_FLIGHT_PORT"]
user = {"username": os.environ["PGUSER"], "password": os.environ["PGPASSWORD"]}
with open(os.environ["FIRN_CERTIFICATE"]) as file:
    certificate = file.read()
with open(os.environ["FIRN_STRANGER"]) as file:
    stranger = file.read()
ROOT = "adbc.flight.sql.client_option.tls_root_certs"
HOST = "adbc.flight.sql.client_option.tls_override_hostname"
UNCHECKED = "adbc.flight.sql.client_option.tls_skip_verify"


def connect(scheme="grpc+tls", **options):
    return adbc_driver_flightsql.dbapi.connect(
        f"{scheme}://127.0.0.1:{port}", db_kwargs={**user, **options}, autocommit=True
    )


# The certificate is self-signed and in no system's list.
is_refused("certificate")
is_refused("certificate", **{ROOT: stranger})
is_refused("certificate", **{ROOT: certificate, HOST: "elsewhere.example"})
is_refused("", scheme="grpc")
is_refused("28P01", **{ROOT: certificate, "password": "wrong"})

with connect(**{ROOT: certificate}) as connection, connection.cursor() as cursor:
    # More than one record of TLS and one message of gRPC.
    rows = 200_000
    data = pyarrow.table({"id": range(rows), "name": [f"the name of row {row}" for row in range(rows)]})
    same(cursor.adbc_ingest("encrypted", data, mode="create"), rows)
    cursor.execute("SELECT id, name FROM encrypted ORDER BY id")
    same(cursor.fetch_arrow_table().to_pydict(), data.to_pydict())
    cursor.execute("SELECT name FROM encrypted WHERE id = ?", (77,))
    same(cursor.fetchone(), ("the name of row 77",))
    same(connection.adbc_get_info()["vendor_name"], "FirnDB")

# Another name of the certificate, and a client that does not check it.
for options in ({ROOT: certificate, HOST: "localhost"}, {UNCHECKED: "true"}):
    with connect(**options) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM encrypted")
        same(cursor.fetchone(), (rows,))
print(f"{checks} checks")
