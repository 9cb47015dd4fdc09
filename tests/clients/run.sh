#!/usr/bin/env bash
# Tests PostgreSQL's clients and those of Arrow Flight SQL with a server: each driver is installed from its registry into a
# scratch directory, and its test is run. A client that cannot be installed fails, after a second attempt.
#
#   tests/clients/run.sh FIRN [CLIENT…]
#
# FIRN is the firn binary. Clients: psql psql_tls pgbench psycopg sqlalchemy node pgx pgjdbc adbc_postgresql adbc_flightsql
# adbc_flightsql_tls flight_jdbc (all if none is named). FIRN_CLIENTS_CACHE names a scratch directory to keep installed drivers in from one run to
# the next. Exits with 1 if a test fails, and with 0 if all pass.
set -u
here=$(cd "$(dirname "$0")" && pwd)
firn=${1:?usage: run.sh FIRN [CLIENT…]}
firn=$(realpath "$firn")
shift
clients=("$@")
[ ${#clients[@]} -eq 0 ] && clients=(psql psql_tls pgbench psycopg sqlalchemy node pgx pgjdbc adbc_postgresql adbc_flightsql adbc_flightsql_tls flight_jdbc)

work=$(mktemp -d)
drivers=${FIRN_CLIENTS_CACHE:-$work/drivers}
mkdir -p "$drivers"
server=
stop_server() {
    [ -n "$server" ] && kill "$server" 2>/dev/null && wait "$server" 2>/dev/null
    server=
}
trap 'stop_server; rm -rf "$work"' EXIT

# A fresh server on a free port of the loopback interface for each client. All but psql, which tries
# trust and the Unix domain socket, authenticate with a password.
start_server() {
    local options=(--data "$work/data-$1" --listen 127.0.0.1:0 --socket-dir "$work" --flight 127.0.0.1:0)
    if [ "$1" = psql ]; then
        unset PGPASSWORD
    else
        export PGPASSWORD="geheim, снег '"
        printf '%s\n' "$PGPASSWORD" >"$work/password"
        options+=(--auth scram --user "tester:$work/password")
    fi
    case $1 in psql_tls | adbc_flightsql_tls)
        options+=(--tls-cert "$work/server.crt" --tls-key "$work/server.key") ;;
    esac
    [ "$1" = psql_tls ] && options+=(--tls-ca "$work/authority.crt")
    : >"$work/server-$1.log"
    "$firn" serve "${options[@]}" >"$work/server-$1.log" 2>&1 &
    server=$!
    port=
    for _ in $(seq 100); do
        port=$(sed -n 's/^listening on 127\.0\.0\.1:\([0-9]*\)$/\1/p' "$work/server-$1.log")
        flight_port=$(sed -n 's/^listening on 127\.0\.0\.1:\([0-9]*\) for Flight SQL\( with TLS\)*$/\1/p' "$work/server-$1.log")
        [ -n "$port" ] && [ -n "$flight_port" ] && break
        sleep 0.1
    done
    if [ -z "$port" ] || [ -z "$flight_port" ]; then
        echo "FAILED: the server does not start"
        cat "$work/server-$1.log"
        exit 1
    fi
    export FIRN_SOCKETS=$work PGHOST=127.0.0.1 PGPORT=$port PGUSER=tester PGDATABASE=firn PGCONNECT_TIMEOUT=10
    export FIRN_FLIGHT_PORT=$flight_port
}

# A registry that does not answer must not block the other tests.
fetch() { timeout --kill-after=5 180 "$@"; }
# Nor may a client that hangs.
try() { timeout --kill-after=5 300 "$@"; }

need() {
    command -v "$1" >/dev/null || { echo "$1 is not installed"; return 1; }
}

# install_CLIENT gets the driver; test_CLIENT runs the test.

install_psql() { need psql; }
test_psql() { try "$here/psql.sh"; }

install_psql_tls() {
    need psql && need openssl && self_sign server && self_sign stranger && self_sign authority &&
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=tester -keyout "$work/client.key" |
        openssl x509 -req -days 2 -set_serial 0x1234 -CA "$work/authority.crt" -CAkey "$work/authority.key" \
            -extfile <(echo basicConstraints=CA:FALSE) -out "$work/client.crt"
}
test_psql_tls() {
    FIRN_CERTIFICATE="$work/server.crt" FIRN_STRANGER="$work/stranger.crt" FIRN_CLIENT="$work/client" \
        try "$here/psql_tls.sh"
}

install_pgbench() { need pgbench && need psql; }
test_pgbench() { try "$here/pgbench.sh"; }

install_python() {
    need python3 || return 1
    [ -f "$drivers/python/ready" ] && return 0
    rm -rf "$drivers/python"
    python3 -m venv "$drivers/python" &&
        fetch "$drivers/python/bin/pip" install --quiet --disable-pip-version-check \
            'psycopg[binary]==3.3.*' 'SQLAlchemy==2.*' &&
        touch "$drivers/python/ready"
}
install_psycopg() { install_python; }
test_psycopg() { try "$drivers/python/bin/python" "$here/psycopg_test.py"; }
install_sqlalchemy() { install_python; }
test_sqlalchemy() { try "$drivers/python/bin/python" "$here/sqlalchemy_test.py"; }

install_node() {
    need node && need npm || return 1
    [ -f "$drivers/node/ready" ] && return 0
    fetch npm install --silent --no-audit --no-fund --prefix "$drivers/node" pg@8 pg-cursor@2 pg-copy-streams@7 &&
        touch "$drivers/node/ready"
}
test_node() { NODE_PATH="$drivers/node/node_modules" try node "$here/node_test.js"; }

install_pgx() {
    need go || return 1
    mkdir -p "$drivers/pgx" && cd "$drivers/pgx" || return 1
    [ -f go.mod ] || go mod init firn/clients || return 1
    fetch go get github.com/jackc/pgx/v5@v5.7.1
}
test_pgx() {
    cp "$here/pgx_test.go.txt" "$drivers/pgx/main.go" && cd "$drivers/pgx" &&
        try go build -o pgx_test . && try ./pgx_test
}

install_pgjdbc() {
    need java && need mvn || return 1
    mkdir -p "$drivers/pgjdbc"
    [ -f "$drivers/pgjdbc/postgresql-42.7.4.jar" ] ||
        fetch mvn --quiet --batch-mode org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy \
            -Dartifact=org.postgresql:postgresql:42.7.4 -DoutputDirectory="$drivers/pgjdbc"
}
test_pgjdbc() { try java -cp "$drivers/pgjdbc/postgresql-42.7.4.jar" "$here/PgjdbcTest.java"; }

install_adbc() {
    need python3 || return 1
    [ -f "$drivers/adbc/ready" ] && return 0
    rm -rf "$drivers/adbc"
    python3 -m venv "$drivers/adbc" &&
        fetch "$drivers/adbc/bin/pip" install --quiet --disable-pip-version-check \
            'adbc-driver-flightsql==1.*' 'adbc-driver-postgresql==1.*' 'pyarrow>=18' &&
        touch "$drivers/adbc/ready"
}
install_adbc_postgresql() { install_adbc; }
test_adbc_postgresql() { try "$drivers/adbc/bin/python" "$here/adbc_postgresql_test.py"; }
install_adbc_flightsql() { install_adbc; }
test_adbc_flightsql() { try "$drivers/adbc/bin/python" "$here/adbc_flightsql_test.py"; }

# A self-signed certificate, and another one that the server does not have.
self_sign() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
        -addext 'subjectAltName=DNS:localhost,IP:127.0.0.1' -keyout "$work/$1.key" -out "$work/$1.crt"
}
install_adbc_flightsql_tls() { need openssl && install_adbc && self_sign server && self_sign stranger; }
test_adbc_flightsql_tls() {
    FIRN_CERTIFICATE="$work/server.crt" FIRN_STRANGER="$work/stranger.crt" \
        try "$drivers/adbc/bin/python" "$here/adbc_flightsql_tls_test.py"
}

install_flight_jdbc() {
    need java && need mvn || return 1
    mkdir -p "$drivers/flight_jdbc"
    [ -f "$drivers/flight_jdbc/flight-sql-jdbc-driver-18.3.0.jar" ] ||
        fetch mvn --quiet --batch-mode org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy \
            -Dartifact=org.apache.arrow:flight-sql-jdbc-driver:18.3.0 -DoutputDirectory="$drivers/flight_jdbc"
}
test_flight_jdbc() {
    try java --add-opens=java.base/java.nio=ALL-UNNAMED \
        -cp "$drivers/flight_jdbc/flight-sql-jdbc-driver-18.3.0.jar" "$here/FlightJdbcTest.java"
}

failed=0
for client in "${clients[@]}"; do
    # A registry may fail once.
    if ! (install_"$client" || install_"$client") >"$work/install-$client.log" 2>&1; then
        echo "FAILED $client: it cannot be installed here:"
        tail -n 10 "$work/install-$client.log" | sed 's/^/    /'
        failed=1
        continue
    fi
    start_server "$client"
    if (test_"$client") >"$work/test-$client.log" 2>&1; then
        echo "ok $client: $(tail -n 1 "$work/test-$client.log")"
    else
        echo "FAILED $client:"
        tail -n 40 "$work/test-$client.log" | sed 's/^/    /'
        tail -n 5 "$work/server-$client.log" | sed 's/^/    server: /'
        failed=1
    fi
    stop_server
done
exit $failed
