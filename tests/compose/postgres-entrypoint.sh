#!/usr/bin/env bash
# What docker-compose.yaml counts on in the image postgres: POSTGRES_USER, _PASSWORD_FILE and _DB make a new cluster in PGDATA,
# which asks for passwords (scram) from other addresses, with a server on the socket alone while it is made.
set -euo pipefail
export PGDATA=${PGDATA:-/var/lib/postgresql/data}
if [ "${1:-}" = postgres ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
  POSTGRES_PASSWORD=${POSTGRES_PASSWORD:-$(<"${POSTGRES_PASSWORD_FILE:?}")}
  user=${POSTGRES_USER:-postgres} database=${POSTGRES_DB:-${POSTGRES_USER:-postgres}}
  initdb --encoding=UTF8 --locale=C.UTF-8 --username="$user" --pwfile=<(printf '%s\n' "$POSTGRES_PASSWORD") --auth-local=trust --auth-host=trust
  printf '\nhost all all all scram-sha-256\n' >>"$PGDATA/pg_hba.conf"
  printf "\nlisten_addresses = '*'\n" >>"$PGDATA/postgresql.conf"
  pg_ctl --wait start --options="-c listen_addresses=''"
  if [ "$database" != postgres ]; then
    psql --username "$user" --dbname postgres --set ON_ERROR_STOP=1 --command "CREATE DATABASE \"$database\""
  fi
  pg_ctl --mode fast --wait stop
fi
exec "$@"
