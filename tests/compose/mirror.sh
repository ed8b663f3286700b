#!/usr/bin/env bash
# mirror.sh: the address of the machine's own mirror of Debian.
set -euo pipefail
found=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | grep -v '^#' | grep -oE 'https?://[^ ]+/debian/?( |$)' | head -n 1 | tr -d ' ') || true
[ -n "$found" ] || { echo "the sources of apt name no mirror of Debian" >&2; exit 1; }
echo "${found%/}"
