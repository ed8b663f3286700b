"""What each server needs: what it waits for, how it is prepared and started, and when it is ready.

The flags are explained where they are surprising; see `docs/services.md` for what was tried.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from string import Template

from services import environment
from services.errors import ServiceError
from services.site import PORT_NAMES, Site

Environment = dict[str, str]

# HBase reaches into the JDK's insides; from Java 17 on they have to be opened to it.
HBASE_OPENS = [
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in ("java.lang", "java.nio", "sun.nio.ch", "java.io", "java.util.concurrent", "java.net")
    ),
    "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
]


@dataclass(frozen=True)
class Server:
    """One server: `command` gives its command line, `ready` raises while it is not ready yet.

    Without a command it is a step that others wait for, done once `prepare` has returned.
    """

    name: str
    command: Callable[[Site], list[str]] | None
    ready: Callable[[Site], None] = lambda site: None
    prepare: Callable[[Site], None] = lambda site: None
    environment: Callable[[Site], Environment] = lambda site: {}
    ports: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    # Seconds from start to ready on a slow machine with everything else starting too.
    patience: float = 120.0


def _render(site: Site, template: str, target: Path, **values: object) -> Path:
    text = (Path(__file__).parent / "templates" / template).read_text()
    ports = {f"{name.replace('-', '_')}_port": site.port(name) for name in PORT_NAMES}
    # Two servers may share a file and start together: whoever reads it sees all of it.
    whole = target.with_name(f"{target.name}.{threading.get_ident()}")
    whole.write_text(Template(text).substitute(ports, **values))
    return whole.replace(target)


def _java(site: Site, profile: str, heap: str, conf: Path, *flags: str) -> list[str]:
    # `conf` is on the class path: there the servers look for their settings, those of their logging among them.
    class_path = f"{conf}:{site.class_path(profile)}"
    # The servers share a few cores: none of them needs threads of its own to collect garbage.
    return ["java", f"-Xmx{heap}", "-XX:+UseSerialGC", *flags, "-cp", class_path]


def _accepts(site: Site, port: str) -> None:
    with socket.create_connection(("127.0.0.1", site.port(port)), timeout=2):
        pass


# ZooKeeper


def _zookeeper_command(site: Site) -> list[str]:
    conf = site.folder("zookeeper", "conf")
    cfg = _render(site, "zoo.cfg", conf / "zoo.cfg", data=site.folder("zookeeper", "data"))
    main = "org.apache.zookeeper.server.ZooKeeperServerMain"
    # It keeps everything in memory: the ledger of the longest test takes some 300 MB.
    return [*_java(site, "zookeeper", "768m", conf), main, str(cfg)]


def _zookeeper_ready(site: Site) -> None:
    with socket.create_connection(("127.0.0.1", site.port("zookeeper")), timeout=2) as connection:
        connection.sendall(b"srvr")
        answer = connection.recv(4096)
    if b"Mode: standalone" not in answer:
        raise ServiceError(f"ZooKeeper answers {answer!r}")


# Kafka


def _kafka_prepare(site: Site) -> None:
    conf = site.folder("kafka", "conf")
    data = site.folder("kafka", "data")
    properties = _render(site, "kafka.properties", conf / "server.properties", data=data)
    _render(site, "log4j2.properties", conf / "log4j2.properties", level="info")
    if (data / "meta.properties").exists():
        return
    java = _java(site, "kafka", "128m", conf)
    storage = [*java, "kafka.tools.StorageTool"]
    cluster = _output([*storage, "random-uuid"]).split()[-1]
    _output([*storage, "format", "-t", cluster, "-c", str(properties)])


def _kafka_command(site: Site) -> list[str]:
    conf = site.folder("kafka", "conf")
    return [*_java(site, "kafka", "512m", conf), "kafka.Kafka", str(conf / "server.properties")]


def _kafka_ready(site: Site) -> None:
    from kafka import KafkaAdminClient

    # A client that cannot connect at all leaves its sockets open; only one that can is worth making.
    _accepts(site, "kafka")
    admin = KafkaAdminClient(bootstrap_servers=site.address("kafka"), request_timeout_ms=3000)
    try:
        if not admin.describe_cluster()["brokers"]:
            raise ServiceError("Kafka has no broker yet")
    finally:
        admin.close()


# HBase


def _hbase_prepare(site: Site) -> None:
    conf = site.folder("hbase", "conf")
    values = {"data": site.folder("hbase", "data"), "tmp": site.folder("hbase", "tmp")}
    _render(site, "hbase-site.xml", conf / "hbase-site.xml", **values)
    _render(site, "log4j.properties", conf / "log4j.properties")


def _hbase_command(main: str, heap: str, *arguments: str) -> Callable[[Site], list[str]]:
    def command(site: Site) -> list[str]:
        conf = site.folder("hbase", "conf")
        return [*_java(site, "hbase", heap, conf, *HBASE_OPENS), f"org.apache.hadoop.hbase.{main}", *arguments]

    return command


def _thrift_command(site: Site) -> list[str]:
    port = str(site.port("thrift"))
    return _hbase_command("thrift.ThriftServer", "512m", "start", "-p", port, "--bind", "127.0.0.1")(site)


def _thrift2_command(site: Site) -> list[str]:
    port = str(site.port("thrift2"))
    return _hbase_command("thrift2.ThriftServer", "512m", "start", "-p", port, "--bind", "127.0.0.1")(site)


def _thrift2_ready(site: Site) -> None:
    """It listens; that HBase answers is what `thrift` waits for."""
    _accepts(site, "thrift2")


def _thrift_ready(site: Site) -> None:
    """Ready is when HBase answers through it: the master is initialised and the meta table is being served."""
    import happybase

    connection = happybase.Connection("127.0.0.1", site.port("thrift"), timeout=10_000)
    try:
        connection.tables()
        next(connection.table("hbase:meta").scan(limit=1), None)
    finally:
        connection.close()


# Airflow


def _airflow_prepare(site: Site) -> None:
    _output([*_airflow("db", "migrate")], environment.everything(site))


def _airflow(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "airflow", *arguments]


def _airflow_ready(*components: str) -> Callable[[Site], None]:
    def ready(site: Site) -> None:
        with urllib.request.urlopen(f"http://{site.address('airflow')}/api/v2/monitor/health", timeout=5) as answer:
            health = json.load(answer)
        for component in components:
            if health[component]["status"] != "healthy":
                raise ServiceError(f"{component} is {health[component]['status']}")

    return ready


def _output(command: list[str], more: Environment | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(more or {})})
    if done.returncode != 0:
        shown = (done.stdout + done.stderr).strip()[-2000:]
        raise ServiceError(f"`{' '.join(command[-4:])}` ended with code {done.returncode}:\n{shown}")
    return done.stdout


# Only the components' own log servers listen on every interface; here all of them share one disk and need none.
_NO_LOG_SERVER = "--skip-serve-logs"

SERVERS: dict[str, Server] = {
    server.name: server
    for server in (
        Server("zookeeper", _zookeeper_command, _zookeeper_ready, ports=("zookeeper",)),
        Server(
            "hbase-master",
            _hbase_command("master.HMaster", "512m", "start"),
            lambda site: _accepts(site, "hbase-master"),
            prepare=_hbase_prepare,
            ports=("hbase-master",),
            after=("zookeeper",),
        ),
        Server(
            "hbase-region",
            _hbase_command("regionserver.HRegionServer", "1g", "start"),
            lambda site: _accepts(site, "hbase-region"),
            prepare=_hbase_prepare,
            ports=("hbase-region",),
            after=("zookeeper",),
        ),
        Server(
            "thrift", _thrift_command, _thrift_ready, prepare=_hbase_prepare, ports=("thrift",), after=("zookeeper",)
        ),
        Server(
            "thrift2",
            _thrift2_command,
            _thrift2_ready,
            prepare=_hbase_prepare,
            ports=("thrift2",),
            after=("zookeeper",),
        ),
        Server(
            "kafka",
            _kafka_command,
            _kafka_ready,
            prepare=_kafka_prepare,
            ports=("kafka", "kafka-controller"),
        ),
        Server("airflow-database", None, prepare=_airflow_prepare),
        Server(
            "airflow-api",
            lambda site: _airflow("api-server"),
            _airflow_ready("metadatabase"),
            environment=environment.everything,
            ports=("airflow",),
            after=("airflow-database",),
        ),
        Server(
            "airflow-scheduler",
            lambda site: _airflow("scheduler", _NO_LOG_SERVER),
            _airflow_ready("scheduler"),
            environment=environment.everything,
            after=("airflow-database",),
        ),
        Server(
            "airflow-dag-processor",
            lambda site: _airflow("dag-processor"),
            _airflow_ready("dag_processor"),
            environment=environment.everything,
            after=("airflow-database",),
        ),
        Server(
            "airflow-triggerer",
            lambda site: _airflow("triggerer", _NO_LOG_SERVER),
            _airflow_ready("triggerer"),
            environment=environment.everything,
            after=("airflow-database",),
        ),
    )
}
