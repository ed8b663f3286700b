#!/usr/bin/env bash
# with-secrets PROGRAM ...: become a program that finds secrets in its environment, each where `@secret:NAME@` stands.
# They are files in the container, so neither `docker inspect` nor the compose file shows them.
# Under the name of a program (`tidemark`, `airflow`), it becomes that one: for `docker compose exec`.
set -euo pipefail
called=$(basename "$0")
[ "$called" = with-secrets ] || set -- "/opt/venv/bin/$called" "$@"
for name in $(compgen -e); do
  value=${!name}
  while [[ $value =~ @secret:([A-Z_]+)@ ]]; do
    secret=$(<"/run/secrets/${BASH_REMATCH[1]}")
    [ -n "$secret" ] || { echo "the secret ${BASH_REMATCH[1]} is empty; docker/prepare gives it a value in .env" >&2; exit 2; }
    value=${value/"${BASH_REMATCH[0]}"/"$secret"}
  done
  export "$name=$value"
done
exec "$@"
