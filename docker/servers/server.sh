#!/usr/bin/env bash
# server.sh NAME: become one of the servers. The flags are those of services/servers.py, where they are explained.
set -euo pipefail

conf=/opt/servers/conf

# HBase reaches into the JDK's insides; from Java 17 on they have to be opened to it.
hbase_opens=(
  --add-opens=java.base/java.lang=ALL-UNNAMED
  --add-opens=java.base/java.nio=ALL-UNNAMED
  --add-opens=java.base/sun.nio.ch=ALL-UNNAMED
  --add-opens=java.base/java.io=ALL-UNNAMED
  --add-opens=java.base/java.util.concurrent=ALL-UNNAMED
  --add-opens=java.base/java.net=ALL-UNNAMED
  --add-exports=java.base/jdk.internal.misc=ALL-UNNAMED
)

# java_for PROFILE HEAP: the beginning of a command line, in `java`.
java_for() {
  java=(java "-Xmx$2" -XX:+UseSerialGC "-Dlog4j2.configurationFile=$conf/log4j2.properties" -cp "$conf:/opt/servers/jars/$1/*")
}

hbase() {
  java_for hbase "$1"
  exec "${java[@]}" "${hbase_opens[@]}" "org.apache.hadoop.hbase.$2" "${@:3}"
}

case "${1:-}" in
  zookeeper)
    java_for zookeeper 256m
    exec "${java[@]}" org.apache.zookeeper.server.ZooKeeperServerMain "$conf/zoo.cfg"
    ;;
  kafka)
    # A new volume has to be formatted, once, for a cluster of its own.
    if [ ! -f /data/kafka/meta.properties ]; then
      java_for kafka 128m
      cluster=$("${java[@]}" kafka.tools.StorageTool random-uuid | tail -n 1)
      "${java[@]}" kafka.tools.StorageTool format -t "$cluster" -c "$conf/kafka.properties"
    fi
    java_for kafka 512m
    exec "${java[@]}" kafka.Kafka "$conf/kafka.properties"
    ;;
  hbase-master) hbase 512m master.HMaster start ;;
  hbase-region) hbase 1g regionserver.HRegionServer start ;;
  hbase-thrift) hbase 512m thrift.ThriftServer start -p 9090 ;;
  hbase-thrift2) hbase 512m thrift2.ThriftServer start -p 9090 ;;
  *)
    echo "server.sh knows: zookeeper, kafka, hbase-master, hbase-region, hbase-thrift, hbase-thrift2" >&2
    exit 2
    ;;
esac
