#!/usr/bin/env bash
# possible.sh: say why docker-compose.yaml cannot be started here, and fail; or say nothing.
set -euo pipefail
no() { echo "$*"; exit 1; }
[ "$(id -u)" = 0 ] || no "it needs root, to start an engine of its own"
debian=$(. /etc/os-release && echo "$ID ${VERSION_ID:-}")
[ "$debian" = "debian 12" ] || no "it needs Debian 12, of whose packages it takes the engine, and this is $debian"
memory=$(awk '/^MemTotal/ {print int($2 / 1024 / 1024)}' /proc/meminfo)
[ "$memory" -ge 8 ] || no "it needs 9 GB of memory, and here are $memory GB"
free=$(df --output=avail --block-size=1G "$(dirname "$0")" | tail -n 1 | tr -d ' ')
[ "$free" -ge 12 ] || no "it needs 12 GB of disk, and $free GB are free"
[ -d /sys/fs/cgroup ] && [ -w /sys/fs/cgroup ] || no "it needs control groups, and may not write below /sys/fs/cgroup"
ip netns list >/dev/null 2>&1 || no "it needs network namespaces, and ip netns refuses"
