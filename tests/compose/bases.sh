#!/usr/bin/env bash
# bases.sh FOLDER: tar files of root file systems that stand in for debian:bookworm-slim, python:3.13-slim-bookworm and
# postgres:17-bookworm, made of Debian's packages, since no image registry can be reached here. Needs root and mmdebstrap.
set -euo pipefail
out=$1
mkdir -p "$out"
mirror=$("$(dirname "$(readlink -f "$0")")/mirror.sh")
slim=(
  --variant=minbase --mode=root --quiet
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*'
  --dpkgopt='path-include=/usr/share/doc/*/copyright'
  # The official slim images keep these folders: without them openjdk's update-alternatives fails.
  --customize-hook='mkdir -p "$1"/usr/share/man/man1 "$1"/usr/share/man/man3 "$1"/usr/share/man/man5 "$1"/usr/share/man/man7 "$1"/usr/share/man/man8'
  --aptopt='APT::Install-Recommends "false"'
  # Where HTTPS goes through a proxy of the machine's own, its certificate has to be trusted in the builds too.
  --customize-hook='mkdir -p "$1/usr/local/share/ca-certificates"; cp /usr/local/share/ca-certificates/*.crt "$1/usr/local/share/ca-certificates/" 2>/dev/null || true'
)
bookworm="deb $mirror bookworm main"
security="deb $mirror-security bookworm-security main"
trixie="deb $mirror trixie main"
key=/usr/share/keyrings/debian-archive-keyring.gpg

# debian:bookworm-slim
[ -f "$out/debian.tar" ] || nice -n 10 mmdebstrap "${slim[@]}" --keyring=$key bookworm "$out/debian.tar" "$bookworm" "$security"

# python:3.13-slim-bookworm: bookworm with the Python 3.13 (and libc) of trixie; /usr/local is an environment of its own,
# so that python3, pip and site-packages are where the official image has them.
[ -f "$out/python.tar" ] || nice -n 10 mmdebstrap "${slim[@]}" --keyring=$key --include=ca-certificates \
  --customize-hook='echo "'"$trixie"'" >"$1/etc/apt/sources.list.d/trixie.list"' \
  --customize-hook='chroot "$1" apt-get update -qq' \
  --customize-hook='chroot "$1" env DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends -t trixie python3.13 python3.13-venv' \
  --customize-hook='rm "$1/etc/apt/sources.list.d/trixie.list"' \
  --customize-hook='chroot "$1" update-ca-certificates' \
  --customize-hook='chroot "$1" python3.13 -m venv /usr/local' \
  --customize-hook='chroot "$1" apt-get clean; rm -rf "$1"/var/lib/apt/lists/*' \
  bookworm "$out/python.tar" "$bookworm" "$security"

# postgres:17-bookworm: trixie with its PostgreSQL 17, and an entry point that does what the compose file counts on.
[ -f "$out/postgres.tar" ] || nice -n 10 mmdebstrap "${slim[@]}" --keyring=$key --include=postgresql-17,libnss-wrapper,locales \
  --setup-hook='mkdir -p "$1/etc/postgresql-common"; echo "create_main_cluster = false" >"$1/etc/postgresql-common/createcluster.conf"' \
  --customize-hook='chroot "$1" install --directory --owner postgres --group postgres --mode 1777 /var/lib/postgresql/data' \
  --customize-hook='chroot "$1" install --directory --owner postgres --group postgres --mode 3777 /var/run/postgresql' \
  trixie "$out/postgres.tar" "$trixie"
ls -la "$out"
