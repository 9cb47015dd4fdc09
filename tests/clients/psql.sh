#!/usr/bin/env bash
# psql: its backslash commands, formatting, variables, COPY from and to files, errors and exit codes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
checks=0
ask() { psql -X -q -v ON_ERROR_STOP=1 "$@"; }
# holds WHAT TEXT…: each text is in the output.
holds() {
    local found=$1
    shift
    for text in "$@"; do
        checks=$((checks + 1))
        if ! grep -qF -- "$text" <<<"$found"; then
            printf 'missing: %s\nin:\n%s\n' "$text" "$found"
            exit 1
        fi
    done
}

ask <<'SQL'
CREATE SCHEMA shop;
CREATE TABLE shop.item (id integer PRIMARY KEY, name varchar(20) NOT NULL UNIQUE, price numeric(10,2) DEFAULT 1.50 CHECK (price >= 0));
CREATE TABLE orders (id bigint PRIMARY KEY, item integer REFERENCES shop.item (id), placed timestamptz);
CREATE INDEX orders_placed ON orders (placed);
CREATE VIEW cheap AS SELECT name FROM shop.item WHERE price < 2;
CREATE SEQUENCE numbers;
INSERT INTO shop.item VALUES (1, 'Schaufel', 9.99), (2, 'Seil', DEFAULT), (3, 'Schnee', NULL);
SQL

holds "$(ask -c 'SELECT * FROM shop.item ORDER BY id')" '   name   ' ' 1 | Schaufel |  9.99' ' 3 | Schnee   |' '(3 rows)'
holds "$(ask -x -c "SELECT 1 AS one, 'two' AS two")" '-[ RECORD 1 ]' 'one | 1'
holds "$(ask -At -c "SELECT name FROM cheap")" 'Seil'
holds "$(ask -c '\dt *.item')" 'shop' 'item' 'table'
holds "$(ask -c '\dt')" 'public' 'orders'
holds "$(ask -c '\di')" 'orders_pkey' 'orders_placed' 'index'
holds "$(ask -c '\dv')" 'cheap' 'view'
holds "$(ask -c '\ds')" 'numbers' 'sequence'
holds "$(ask -c '\dn')" 'public' 'shop'
holds "$(ask -c '\l')" 'firn' 'UTF8'
holds "$(ask -c '\d')" 'cheap' 'numbers' 'orders'
holds "$(ask -c '\d+ orders')" 'orders_placed' 'bigint'
holds "$(ask -c '\d cheap')" 'View "public.cheap"' 'name'
holds "$(ask -c '\d orders_pkey')" 'Index "public.orders_pkey"' 'primary key, btree'
holds "$(ask -c '\d numbers')" 'Sequence "public.numbers"'
holds "$(ask -c '\dt+')" 'permanent'
holds "$(ask -c '\du')" 'tester' 'Superuser'
holds "$(ask -c '\df')" '(0 rows)'
holds "$(ask -c '\sv cheap')" 'CREATE OR REPLACE VIEW public.cheap AS'
holds "$(ask -c '\conninfo')" 'user "tester"'
holds "$(ask -c '\d orders')" 'bigint' 'timestamp with time zone' 'not null' 'orders_pkey' 'orders_placed' 'REFERENCES shop.item(id)'
holds "$(ask -c '\d shop.item')" 'character varying(20)' 'numeric(10,2)' '1.50' 'CHECK'

# Over the Unix domain socket.
holds "$(ask -h "$FIRN_SOCKETS" -At -c 'SELECT current_user, current_database()')" 'tester|firn'

# Variables, prepared statements, \gset, conditions.
found=$(ask <<'SQL'
\set name 'Seil'
SELECT id AS found FROM shop.item WHERE name = :'name' \gset
\echo found :found
PREPARE p(integer) AS SELECT name FROM shop.item WHERE id = $1;
EXECUTE p(1);
\timing on
SELECT 1;
SQL
)
holds "$found" 'found 2' 'Schaufel' 'Time: '

# COPY between files and tables.
printf '10,Stock,3.00\n11,"Karte, gross",\n' >"$work/in.csv"
holds "$(psql -X -c "\copy shop.item FROM '$work/in.csv' WITH (FORMAT csv)")" 'COPY 2'
ask -c "\copy (SELECT id, name FROM shop.item WHERE id >= 10 ORDER BY id) TO '$work/out.csv' WITH (FORMAT csv, HEADER)"
holds "$(cat "$work/out.csv")" 'id,name' '11,"Karte, gross"'
ask <<'SQL'
COPY orders FROM stdin;
1	1	2024-02-29 12:00:00+00
2	\N	\N
\.
SQL
holds "$(ask -At -c 'SELECT count(*) FROM orders')" '2'

# Errors: the position, the code, the exit status, and that a script stops.
if found=$(ask -v VERBOSITY=verbose -c 'SELECT id FROM shop.items' 2>&1); then exit 1; fi
holds "$found" 'ERROR:  42P01:' 'shop.items'
if found=$(ask -c 'INSERT INTO orders VALUES (1)' 2>&1); then exit 1; fi
holds "$found" 'duplicate key value violates unique constraint "orders_pkey"'
holds "$found" 'DETAIL:  Key (id)=(1) already exists.'
if found=$(printf '1\tx\t\\N\n' | ask -c '\copy orders FROM pstdin' 2>&1); then exit 1; fi
holds "$found" 'invalid input syntax for type integer: "x"' 'CONTEXT:  COPY orders, line 1, column item: "x"'
if found=$(printf 'SELECT 1;\nSELEC 2;\nSELECT 3;\n' | ask 2>&1); then exit 1; fi
holds "$found" 'syntax error' 'LINE 1: SELEC 2' '        ^'

# A failed script in one transaction leaves nothing.
if ask -1 -c 'INSERT INTO orders VALUES (50)' -c 'SELECT 1/0' 2>/dev/null; then exit 1; fi
holds "$(ask -At -c 'SELECT count(*) FROM orders WHERE id = 50')" '0'
echo "$checks checks"
