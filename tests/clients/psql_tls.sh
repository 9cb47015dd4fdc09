#!/usr/bin/env bash
# psql over TLS: the server is checked, passwords are bound to the channel, and clients show certificates.
#
# FIRN_CERTIFICATE is the server's, FIRN_STRANGER one that it knows nothing of, FIRN_CLIENT a client's without its suffix.
set -eu
checks=0

HOW="SELECT ssl, version, bits, client_dn, client_serial FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
own="sslcert=$FIRN_CLIENT.crt sslkey=$FIRN_CLIENT.key"

ask() {
    psql --no-psqlrc --tuples-only --no-align --command "$HOW" "hostaddr=127.0.0.1 $*"
}

equal() {
    checks=$((checks + 1))
    [ "$1" = "$2" ] || { echo "expected $2, got $1"; exit 1; }
}

refused() {
    local because=$1 answer
    checks=$((checks + 1))
    shift
    if answer=$(ask "$@" 2>&1); then
        echo "not refused: $*"
        exit 1
    fi
    case $answer in *"$because"*) ;; *) echo "$*: expected $because, got $answer"; exit 1 ;; esac
}

full="host=localhost sslmode=verify-full sslrootcert=$FIRN_CERTIFICATE"
equal "$(ask "$full $own channel_binding=require")" "t|TLSv1.3|256|/CN=tester|4660"
equal "$(ask "$full $own ssl_max_protocol_version=TLSv1.2 channel_binding=require")" "t|TLSv1.2|256|/CN=tester|4660"
equal "$(ask "host=localhost sslmode=prefer $own")" "t|TLSv1.3|256|/CN=tester|4660"

refused "does not match host name" "host=elsewhere sslmode=verify-full sslrootcert=$FIRN_CERTIFICATE $own"
refused "certificate verify failed" "host=localhost sslmode=verify-full sslrootcert=$FIRN_STRANGER $own"
refused "certificate required" "$full sslcert=none"
refused "only encrypted connections" "host=localhost sslmode=disable"
PGPASSWORD=wrong refused "password authentication failed" "$full $own"

# Much in either direction.
count=$(seq 300000 | psql --no-psqlrc --quiet --tuples-only --no-align "hostaddr=127.0.0.1 $full $own" \
    --command "CREATE TABLE numbers (number int)" --command "\\copy numbers FROM STDIN" \
    --command "\\copy numbers TO STDOUT" | awk '{ sum += $1 } END { printf "%d %.0f\n", NR, sum }')
equal "$count" "300000 45000150000"
echo "$checks checks"
