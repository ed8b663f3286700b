#!/usr/bin/env bash
# install.sh FOLDER: a Docker engine and mmdebstrap of Debian 12's packages, and Compose of Debian 13's (a static Go program,
# unpacked below FOLDER; the machine's own package sources stay as they are).
set -euo pipefail
folder=$1 here=$(dirname "$(readlink -f "$0")")
missing=()
for program in dockerd:docker.io mmdebstrap:mmdebstrap iptables:iptables; do
  command -v "${program%%:*}" >/dev/null || missing+=("${program#*:}")
done
if [ ${#missing[@]} -gt 0 ]; then
  # No engine of the machine's own is to start with its package; whoever has a policy keeps it.
  policy=/usr/sbin/policy-rc.d
  [ -e "$policy" ] || { printf '#!/bin/sh\nexit 101\n' >"$policy"; chmod 755 "$policy"; trap 'rm -f "$policy"' EXIT; }
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi
[ -e "$folder/config/cli-plugins/docker-compose" ] && exit
mirror=$("$here/mirror.sh") apt=$folder/apt
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$folder/config/cli-plugins"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" >"$apt/sources.list"
: >"$apt/status"
cat >"$apt/apt.conf" <<C
Dir::State::lists "$apt/lists";
Dir::Cache "$apt/cache";
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State::status "$apt/status";
C
export APT_CONFIG=$apt/apt.conf
cd "$apt"
apt-get update -qq
apt-get download -qq docker-compose
dpkg -x docker-compose_*.deb unpacked
ln -sf "$apt/unpacked/usr/libexec/docker/cli-plugins/docker-compose" "$folder/config/cli-plugins/docker-compose"
