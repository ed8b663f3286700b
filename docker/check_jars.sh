#!/usr/bin/env bash
# check_jars.sh FOLDER ...: whether each jar is, byte for byte, the one that services/jars.sha256 names.
set -euo pipefail
sums=$(dirname "$(readlink -f "$0")")/jars.sha256
for folder in "$@"; do
  cd "$folder"
  for jar in *.jar; do
    grep "  ${jar//./[.]}\$" "$sums" || { echo "$jar is not in $(basename "$sums")" >&2; exit 1; }
  done | sha256sum --check --quiet
done
