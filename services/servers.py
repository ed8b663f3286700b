"""The servers: which others each waits for, how it is prepared and started, and when it is ready.

Comments explain surprising flags; `docs/services.md` says what was tried.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tarfile
import threading
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

from services import environment, jars
from services.authority import CertificateAuthority, signing_key, write_secret
from services.errors import ServiceError
from services.site import PORT_NAMES, Site

Environment = dict[str, str]

# HBase uses the JDK's internals. From Java 17 on, they have to be opened to it.
HBASE_OPENS = [
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in ("java.lang", "java.nio", "sun.nio.ch", "java.io", "java.util.concurrent", "java.net")
    ),
    "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
]


@dataclass(frozen=True)
class Server:
    """One server: `command` gives its command line, and `ready` raises while it is not ready yet.

    A server without a command is a step that others wait for. It is done when `prepare` has returned.
    """

    name: str
    command: Callable[[Site], list[str]] | None
    ready: Callable[[Site], None] = lambda site: None
    prepare: Callable[[Site], None] = lambda site: None
    environment: Callable[[Site], Environment] = lambda site: {}
    ports: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    # Seconds from start to ready, on a slow machine where all other servers start too.
    patience: float = 120.0


def _render(site: Site, template: str, target: Path, **values: object) -> Path:
    text = (Path(__file__).parent / "templates" / template).read_text()
    ports = {f"{name.replace('-', '_')}_port": site.port(name) for name in PORT_NAMES}
    # Two servers may share a file and start together. With a rename, each reads the whole file.
    whole = target.with_name(f"{target.name}.{threading.get_ident()}")
    whole.write_text(Template(text).substitute(ports, **values))
    return whole.replace(target)


def _java(site: Site, profile: str, heap: str, conf: Path, *flags: str) -> list[str]:
    # `conf` is on the class path, where the servers look for their settings, also for logging.
    class_path = f"{conf}:{site.class_path(profile)}"
    # The servers share a few cores, so none should have threads of its own for garbage collection.
    return ["java", f"-Xmx{heap}", "-XX:+UseSerialGC", *flags, "-cp", class_path]


def _accepts(site: Site, port: str) -> None:
    with socket.create_connection(("127.0.0.1", site.port(port)), timeout=2):
        pass


# ZooKeeper


def _zookeeper_command(site: Site) -> list[str]:
    conf = site.folder("zookeeper", "conf")
    cfg = _render(site, "zoo.cfg", conf / "zoo.cfg", data=site.folder("zookeeper", "data"))
    main = "org.apache.zookeeper.server.ZooKeeperServerMain"
    # ZooKeeper keeps everything in memory: the ledger of the longest test takes some 300 MB.
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
    _format(site, conf, data, properties)


def _format(site: Site, conf: Path, data: Path, properties: Path) -> None:
    if (data / "meta.properties").exists():
        return
    # As the tool's `random-uuid` writes one, without the seconds of another Java. An option must not begin with "-".
    cluster = "T" + base64.urlsafe_b64encode(secrets.token_bytes(16)).decode()[1:22]
    # A short run: to compile its code well takes longer than to run it.
    java = _java(site, "kafka", "128m", conf, "-XX:TieredStopAtLevel=1")
    _output([*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)])


def _kafka_command(site: Site) -> list[str]:
    conf = site.folder("kafka", "conf")
    return [*_java(site, "kafka", "512m", conf), "kafka.Kafka", str(conf / "server.properties")]


def _kafka_ready(site: Site) -> None:
    from kafka import KafkaAdminClient

    # A client that cannot connect at all leaves its sockets open, so first see whether the port accepts.
    _accepts(site, "kafka")
    admin = KafkaAdminClient(bootstrap_servers=site.address("kafka"), request_timeout_ms=3000)
    try:
        if not admin.describe_cluster()["brokers"]:
            raise ServiceError("Kafka has no broker yet")
    finally:
        admin.close()


# Kafka and ZooKeeper with TLS, logins and rules for rights


def _tls(site: Site) -> Path:
    """The certificates of the secure servers and of their clients, made once for a site."""
    folder = site.folder("tls")
    with _making_certificates:
        if not (folder / "jwks.json").exists():
            authority = CertificateAuthority(folder)
            for name in ("broker", "admin", "client"):
                authority.issue(name)
            signing_key(folder)
    return folder


_making_certificates = threading.Lock()


def _kafka_secure_prepare(site: Site) -> None:
    conf, data, tls = site.folder("kafka-secure", "conf"), site.folder("kafka-secure", "data"), _tls(site)
    values = {"data": data, "tls": tls, "plain": plain_users(site)}
    properties = _render(site, "kafka-secure.properties", conf / "server.properties", **values)
    _render(site, "log4j2.properties", conf / "log4j2.properties", level="info")
    _format(site, conf, data, properties)


def plain_users(site: Site) -> str:
    """The options of PLAIN's login module: a user with a password that is made once for a site."""
    path = site.folder("kafka-secure") / "plain"
    if not path.exists():
        write_secret(path, secrets.token_urlsafe(18).encode())
    return f'user_plain="{path.read_text()}"'


def _kafka_secure_command(site: Site) -> list[str]:
    conf = site.folder("kafka-secure", "conf")
    keys = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://{site.folder('tls')}/jwks.json"
    return [*_java(site, "kafka", "512m", conf, keys), "kafka.Kafka", str(conf / "server.properties")]


def _kafka_secure_ready(site: Site) -> None:
    from kafka import KafkaAdminClient

    _accepts(site, "kafka-secure")
    tls = site.folder("tls")
    admin = KafkaAdminClient(
        bootstrap_servers=site.address("kafka-secure-certificates"),
        request_timeout_ms=3000,
        security_protocol="SSL",
        ssl_cafile=str(tls / "ca.pem"),
        ssl_certfile=str(tls / "admin.pem"),
    )
    try:
        if not admin.describe_cluster()["brokers"]:
            raise ServiceError("Kafka has no broker yet")
    finally:
        admin.close()


def _zookeeper_secure_command(site: Site) -> list[str]:
    conf = site.folder("zookeeper-secure", "conf")
    values = {"data": site.folder("zookeeper-secure", "data"), "tls": _tls(site)}
    cfg = _render(site, "zoo-secure.cfg", conf / "zoo.cfg", **values)
    main = "org.apache.zookeeper.server.ZooKeeperServerMain"
    return [*_java(site, "zookeeper", "256m", conf), main, str(cfg)]


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


def gateway_command(site: Site, port: int) -> list[str]:
    """A Thrift gateway of the site's HBase."""
    return _hbase_command("thrift.ThriftServer", "512m", "start", "-p", str(port), "--bind", "127.0.0.1")(site)


def _thrift_command(site: Site) -> list[str]:
    return gateway_command(site, site.port("thrift"))


def _thrift2_command(site: Site) -> list[str]:
    port = str(site.port("thrift2"))
    return _hbase_command("thrift2.ThriftServer", "512m", "start", "-p", port, "--bind", "127.0.0.1")(site)


def _thrift2_ready(site: Site) -> None:
    """Raises unless the gateway listens. `thrift` waits until HBase answers."""
    _accepts(site, "thrift2")


def _thrift_ready(site: Site) -> None:
    """Raises unless HBase answers through the gateway: the master is initialised, and the meta table is served."""
    import happybase

    connection = happybase.Connection("127.0.0.1", site.port("thrift"), timeout=10_000)
    try:
        connection.tables()
        next(connection.table("hbase:meta").scan(limit=1), None)
    finally:
        connection.close()


# PostgreSQL, of Debian's package. It refuses to run as root.

# Where no namespace of users can be made: the user that Debian's package makes, who then owns the files.
_AS_POSTGRES = ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups")


def _postgresql(program: str) -> list[str]:
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda place: int(place.parent.name))
    found = shutil.which(
        program, path=os.pathsep.join([*map(str, reversed(places)), os.environ.get("PATH", os.defpath)])
    )
    if found is None:
        raise ServiceError(f"{program} was not found: install PostgreSQL (Debian: apt-get install postgresql)")
    return [*_not_as_root(), found]


@cache
def _not_as_root() -> tuple[str, ...]:
    """Words before a command that lets it see another user's number, and still own the site's files as root does."""
    if os.geteuid() != 0:
        return ()
    for words in (("unshare", "--user", "--map-user=1000", "--map-group=1000"), _AS_POSTGRES):
        if (
            shutil.which(words[0])
            and subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0
        ):
            return words
    raise ServiceError(
        "PostgreSQL refuses to run as root, and neither unshare nor setpriv works here: use another user"
    )


def _postgresql_prepare(site: Site) -> None:
    data = site.folder("postgresql") / "data"
    if (data / "PG_VERSION").exists():
        return
    environment.database_password(site)
    if _not_as_root() == _AS_POSTGRES:
        for path in (data.parent, data.parent / "password"):
            shutil.chown(path, "postgres", "postgres")
    options = [
        "--username",
        environment.DATABASE,
        "--auth",
        "scram-sha-256",
        "--encoding",
        "UTF8",
        "--locale",
        "C.UTF-8",
    ]
    password = ["--pwfile", str(site.folder("postgresql") / "password")]
    _output([*_postgresql("initdb"), "--pgdata", str(data), "--no-sync", *options, *password])


def _postgresql_command(site: Site) -> list[str]:
    # No socket in the file system: its path could be too long.
    settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "max_connections": "200"}
    words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    return [
        *_postgresql("postgres"),
        "-D",
        str(site.folder("postgresql", "data")),
        "-p",
        str(site.port("postgresql")),
        *words,
    ]


def _postgresql_ready(site: Site) -> None:
    """Raises unless PostgreSQL answers. Its first start makes the database."""
    import psycopg

    with psycopg.connect(
        host="127.0.0.1",
        port=site.port("postgresql"),
        user=environment.DATABASE,
        password=environment.database_password(site),
        dbname="postgres",
        autocommit=True,
        connect_timeout=2,
    ) as connection:
        found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [environment.DATABASE])
        if found.fetchone() is None:
            connection.execute(f'CREATE DATABASE "{environment.DATABASE}"')


# MariaDB, of Debian's package


def _mariadb(program: str) -> str:
    found = shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/bin"]))
    if found is None:
        raise ServiceError(f"{program} was not found: install MariaDB (Debian: apt-get install mariadb-server)")
    return found


def _mariadb_prepare(site: Site) -> None:
    data = site.folder("mariadb") / "data"
    login, password = environment.DATABASE, environment.database_password(site, "mariadb")
    # Read at each start. Its root has no password: it comes in by the socket alone.
    write_secret(
        site.folder("mariadb") / "init.sql",
        f"CREATE DATABASE IF NOT EXISTS `{login}`;\n"
        f"CREATE USER IF NOT EXISTS `{login}`@`127.0.0.1` IDENTIFIED BY '{password}';\n"
        f"GRANT ALL ON *.* TO `{login}`@`127.0.0.1` WITH GRANT OPTION;\n".encode(),
    )
    if (data / "mysql").exists():
        return
    # Half of it would be taken for all of it.
    made = data.with_name("new")
    shutil.rmtree(made, ignore_errors=True)
    options = ["--no-defaults", f"--datadir={made}", "--auth-root-authentication-method=socket", "--skip-test-db"]
    _output([_mariadb("mariadb-install-db"), *options, *_as_who_it_is()])
    made.rename(data)


def _as_who_it_is() -> list[str]:
    return ["--user=root"] if os.geteuid() == 0 else []


def _mariadb_command(site: Site) -> list[str]:
    folder, tls = site.folder("mariadb"), _tls(site)
    return [
        _mariadb("mariadbd"),
        "--no-defaults",
        *_as_who_it_is(),
        f"--datadir={folder / 'data'}",
        f"--init-file={folder / 'init.sql'}",
        f"--port={site.port('mariadb')}",
        "--bind-address=127.0.0.1",
        "--skip-name-resolve",
        # In the folder of the data: a whole path could be too long.
        "--socket=server.sock",
        "--pid-file=server.pid",
        "--innodb-buffer-pool-size=64M",
        "--performance-schema=OFF",
        # For clients that ask for it.
        f"--ssl-ca={tls / 'ca.pem'}",
        f"--ssl-cert={tls / 'broker.pem'}",
        f"--ssl-key={tls / 'broker.pem'}",
    ]


def _mariadb_ready(site: Site) -> None:
    import pymysql

    pymysql.connect(
        host="127.0.0.1",
        port=site.port("mariadb"),
        user=environment.DATABASE,
        password=environment.database_password(site, "mariadb"),
        database=environment.DATABASE,
        connect_timeout=2,
    ).close()


# An object store that speaks S3's protocol


def _s3_command(site: Site) -> list[str]:
    conf = site.folder("s3", "conf")
    key = {"identity": environment.BUCKET, "credential": environment.object_store_secret(site)}
    conf.chmod(0o700)
    properties = _render(site, "s3proxy.properties", conf / "s3proxy.properties", **key)
    return [*_java(site, "s3proxy", "512m", conf), "org.gaul.s3proxy.Main", "--properties", str(properties)]


def _s3_ready(site: Site) -> None:
    """Answers, and has the bucket."""
    from pyarrow import fs

    fs.S3FileSystem(
        access_key=environment.BUCKET,
        secret_key=environment.object_store_secret(site),
        region="us-east-1",
        endpoint_override=f"http://{site.address('s3')}",
        allow_bucket_creation=True,
        connect_timeout=2,
        request_timeout=5,
    ).create_dir(environment.BUCKET)


# A schema registry with Confluent's protocol. It keeps its schemas in memory.


def _registry_prepare(site: Site) -> None:
    jars.fetch(site.jars, "registry")
    (archive,) = jars.packages(site.jars / "registry")
    unpacked = site.folder("registry", "program")
    if not (unpacked / "lib").exists():
        with tarfile.open(archive) as opened:
            opened.extractall(unpacked, filter="data")


def _registry_command(site: Site) -> list[str]:
    (program,) = site.folder("registry", "program").glob("*-runner.jar")
    address = ["-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={site.port('registry')}"]
    return ["java", "-Xmx256m", "-XX:+UseSerialGC", *address, "-jar", str(program)]


def _registry_ready(site: Site) -> None:
    urllib.request.urlopen(f"{environment.registry_url(site)}/subjects", timeout=5).close()


# Iceberg's own REST catalog, over a database of SQLite. It writes the tables' metadata itself, on this machine or in `s3`.


def _iceberg_prepare(site: Site) -> None:
    jars.fetch(site.jars, "iceberg")
    _render(
        site,
        "iceberg-core-site.xml",
        site.folder("iceberg", "conf") / "core-site.xml",
        identity=environment.BUCKET,
        credential=environment.object_store_secret(site),
    )
    site.folder("iceberg", "conf").chmod(0o700)


def _iceberg_command(site: Site) -> list[str]:
    # Among Iceberg's tests is a class of hadoop-aws that does nothing: the real one has to be found first.
    profiles = [site.class_path(profile) for profile in ("hadoop-aws", "iceberg")]
    class_path = ":".join([str(site.folder("iceberg", "conf")), *profiles, f"{jars.of_pyspark()}/*"])
    # Compiled as it starts: its own main class listens on all interfaces.
    program = Path(__file__).parent / "templates" / "IcebergCatalog.java"
    arguments = [str(program), str(site.folder("iceberg", "data")), str(site.port("iceberg"))]
    return ["java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", class_path, *arguments]


def _iceberg_ready(site: Site) -> None:
    urllib.request.urlopen(f"http://{site.address('iceberg')}/v1/config", timeout=5).close()


# A Spark cluster of one worker, of the pyspark that is installed. It lets nobody in who does not know its secret.


def _spark_daemon(site: Site, what: str, *options: str) -> list[str]:
    program = [str(jars.of_pyspark().parent / "bin" / "spark-class")]
    program += [f"org.apache.spark.deploy.{what}.{what.capitalize()}", "--host", "127.0.0.1"]
    return [*program, "--webui-port", str(site.port(f"spark-{what}-page")), *options]


def _spark_master_command(site: Site) -> list[str]:
    return _spark_daemon(site, "master", "--port", str(site.port("spark-master")))


def _spark_worker_command(site: Site) -> list[str]:
    options = ("--cores", "2", "--memory", "2g", "--work-dir", str(site.folder("spark-worker", "work")))
    return _spark_daemon(site, "worker", *options, environment.spark_master(site))


def _spark_environment(site: Site) -> Environment:
    guarded = "-Dspark.authenticate=true -Dspark.network.crypto.enabled=true"
    daemon = {"SPARK_DAEMON_JAVA_OPTS": guarded, "SPARK_DAEMON_MEMORY": "256m"}
    return {**environment.spark(site), **environment.spark_secret(site), **daemon}


def _spark_ready(workers: int) -> Callable[[Site], None]:
    def ready(site: Site) -> None:
        with urllib.request.urlopen(f"http://{site.address('spark-master-page')}/json", timeout=5) as answer:
            alive = json.load(answer)["aliveworkers"]
        if alive < workers:
            raise ServiceError(f"Spark's master has {alive} of {workers} workers")

    return ready


# YARN with two node managers, over an HDFS of one data node: what takes no login, and listens on loopback alone.


def _yarn_prepare(site: Site) -> None:
    with _fetching_yarn:
        jars.fetch(site.jars, "yarn")
    conf = site.folder("yarn", "conf")
    for name in ("core-site.xml", "hdfs-site.xml", "yarn-site.xml", "capacity-scheduler.xml"):
        _render(site, f"yarn/{name}", conf / name, folder=site.folder("yarn"))
    _render(site, "log4j.properties", conf / "log4j.properties")


_fetching_yarn = threading.Lock()


def _yarn(site: Site, main: str, *flags: str) -> list[str]:
    # All that they do is short: to compile its code well takes longer than to run it.
    java = _java(site, "yarn", "256m", site.folder("yarn", "conf"), "-XX:TieredStopAtLevel=1", *flags)
    return [*java, f"org.apache.hadoop.{main}"]


def _hdfs_prepare(site: Site) -> None:
    _yarn_prepare(site)
    if not (site.folder("yarn") / "name" / "current" / "VERSION").exists():
        _output([*_yarn(site, "hdfs.server.namenode.NameNode"), "-format", "-force", "-nonInteractive"])


def _hdfs_ready(site: Site) -> None:
    """Raises unless files can be written."""
    with urllib.request.urlopen(f"http://{site.address('hdfs-page')}{_STATE_OF_HDFS}", timeout=5) as answer:
        (state,) = json.load(answer)["beans"]
    if state["FSState"] != "Operational" or state["NumLiveDataNodes"] < 1:
        raise ServiceError(f"HDFS is {state['FSState']}, with {state['NumLiveDataNodes']} data nodes")


_STATE_OF_HDFS = "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"


def put_on_hdfs(site: Site, file: Path) -> None:
    """Copy a file to the folder `/` of the server `hdfs-name`."""
    _output([*_yarn(site, "fs.FsShell"), "-put", "-f", str(file), "/"])


def _yarn_manager_ready(site: Site) -> None:
    _of_yarn(site, "info")


def _yarn_node(port: str) -> Server:
    """A node manager. All that it starts has its marks, and ends with it."""

    def command(site: Site) -> list[str]:
        return _yarn(site, "yarn.server.nodemanager.NodeManager", f"-Dnode={port}", f"-Dnode.port={site.port(port)}")

    def ready(site: Site) -> None:
        nodes = (_of_yarn(site, "nodes")["nodes"] or {}).get("node", [])
        states = {node["state"] for node in nodes if node["id"].endswith(f":{site.port(port)}")}
        if "RUNNING" not in states:
            raise ServiceError(f"YARN says of {port}: {', '.join(states) or 'nothing'}")

    return Server(
        port,
        command,
        ready,
        prepare=_yarn_prepare,
        environment=lambda site: {"JAVA_HOME": environment.java_home(), "SPARK_LOCAL_IP": "127.0.0.1"},
        ports=(port,),
        after=("yarn-manager",),
    )


def _of_yarn(site: Site, what: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{environment.yarn_page(site)}/{what}", timeout=5) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


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


# Only the components' own log servers listen on every interface. Here all components share one disk and need none.
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

# Started only by name, by the tests that need them.
ON_DEMAND: dict[str, Server] = {
    server.name: server
    for server in (
        Server(
            "kafka-secure",
            _kafka_secure_command,
            _kafka_secure_ready,
            prepare=_kafka_secure_prepare,
            ports=("kafka-secure", "kafka-secure-certificates", "kafka-secure-controller"),
        ),
        Server(
            "zookeeper-secure",
            _zookeeper_secure_command,
            lambda site: _accepts(site, "zookeeper-secure"),
            ports=("zookeeper-secure",),
        ),
        Server(
            "postgresql",
            _postgresql_command,
            _postgresql_ready,
            prepare=_postgresql_prepare,
            ports=("postgresql",),
        ),
        Server("mariadb", _mariadb_command, _mariadb_ready, prepare=_mariadb_prepare, ports=("mariadb",)),
        Server("s3", _s3_command, _s3_ready, ports=("s3",)),
        Server("registry", _registry_command, _registry_ready, prepare=_registry_prepare, ports=("registry",)),
        Server("iceberg", _iceberg_command, _iceberg_ready, prepare=_iceberg_prepare, ports=("iceberg",)),
        Server(
            "spark-master",
            _spark_master_command,
            _spark_ready(0),
            environment=_spark_environment,
            ports=("spark-master", "spark-master-page"),
        ),
        Server(
            "spark-worker",
            _spark_worker_command,
            _spark_ready(1),
            environment=_spark_environment,
            ports=("spark-worker-page",),
            after=("spark-master",),
        ),
        Server(
            "hdfs-name",
            lambda site: _yarn(site, "hdfs.server.namenode.NameNode"),
            lambda site: _accepts(site, "hdfs"),
            prepare=_hdfs_prepare,
            ports=("hdfs", "hdfs-page"),
        ),
        Server(
            "hdfs-data",
            lambda site: _yarn(site, "hdfs.server.datanode.DataNode"),
            _hdfs_ready,
            prepare=_yarn_prepare,
            after=("hdfs-name",),
        ),
        Server(
            "yarn-manager",
            lambda site: _yarn(site, "yarn.server.resourcemanager.ResourceManager"),
            _yarn_manager_ready,
            prepare=_yarn_prepare,
            ports=("yarn", "yarn-scheduler", "yarn-nodes", "yarn-page"),
        ),
        _yarn_node("yarn-node-1"),
        _yarn_node("yarn-node-2"),
    )
}
