#!/usr/bin/env bash
# healthy.sh NAME: whether this container's server answers. A request of its own protocol is sent as bytes, because a
# client in Java would take more than the server has: a second of a core, every few seconds.
set -euo pipefail

# ask HOST PORT REQUEST COUNT: the first COUNT bytes of the answer, in hexadecimal digits.
ask() {
  exec 3<>"/dev/tcp/$1/$2"
  # shellcheck disable=SC2059 # the request is written as a format
  printf "$3" >&3
  head -c "$4" <&3 | od --address-radix=n --format=x1 --width="$4" | tr -d ' \n'
}

case "${1:-}" in
  zookeeper)
    exec 3<>/dev/tcp/zookeeper/2181
    printf srvr >&3
    grep --quiet 'Mode: standalone' <&3
    ;;
  # ApiVersions 0 with correlation id 1; after the length come the id and error code 0.
  kafka) [[ $(ask kafka 9092 '\0\0\0\012\0\022\0\0\0\0\0\001\377\377' 10) == ????????000000010000 ]] ;;
  hbase-master) exec 3<>/dev/tcp/hbase-master/16000 ;;
  hbase-region) exec 3<>/dev/tcp/hbase-region/16020 ;;
  # getTableNames(): the master answers it, so that a reply (2, where an exception is 3) means that HBase is up.
  hbase-thrift)
    [[ $(ask hbase-thrift 9090 '\200\001\0\001\0\0\0\015getTableNames\0\0\0\0\0' 4) == 80010002 ]]
    ;;
  # getTableNamesByPattern(2: false), of which the same holds.
  hbase-thrift2)
    [[ $(ask hbase-thrift2 9090 '\200\001\0\001\0\0\0\026getTableNamesByPattern\0\0\0\0\002\0\002\0\0' 4) == 80010002 ]]
    ;;
  *) exit 2 ;;
esac
