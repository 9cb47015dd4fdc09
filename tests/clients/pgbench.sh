#!/usr/bin/env bash
# pgbench: its initialisation, its three built-in scripts in all protocols, and a check that the sum of the balances is right.
set -eu
checks=0
ask() { psql -X -q -At -v ON_ERROR_STOP=1 -c "$1"; }
pgbench -i -s 1 --foreign-keys -q
[ "$(ask 'SELECT count(*) FROM pgbench_accounts')" = 100000 ]
for protocol in simple extended prepared; do
    for script in tpcb-like simple-update select-only; do
        # Clients that update the same row wait for each other: none fails, and nothing is retried.
        found=$(pgbench -n -b "$script" -M "$protocol" -c 4 -j 2 -t 50 2>&1)
        echo "$found"
        grep -q 'number of failed transactions: 0 (0.000%)' <<<"$found"
        grep -q 'number of transactions actually processed: 200/200' <<<"$found"
        checks=$((checks + 1))
    done
done
[ "$(ask 'SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)')" = t ]
[ "$(ask 'SELECT count(*) FROM pgbench_history')" = 1200 ]
echo "$checks runs"
