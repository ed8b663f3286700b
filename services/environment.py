"""The environment in which a program finds this site's servers: Airflow Connections and the settings of Airflow and Spark."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
from pathlib import Path

from services import jars
from services.site import REPOSITORY, Site

ADMIN = "admin"
# A database of PostgreSQL and one of MariaDB, and the user that owns both.
DATABASE = "tidemark"
# A bucket, and the id of the key that may do everything there.
BUCKET = "tidemark"
# For many short programs and little data, compiling costs Java more than it gains: a window takes two thirds of the time.
# With one compiler its room for compiled code would be a fifth of the default, and full after some hundreds of queries.
# Checking the classes of Spark and the servers at each start is a fifth of the start; the logging would warn of its absence.
QUICK_JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC "
    "-Xlog:disable -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
_USERS = "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"
_AUTH_MANAGER = "AIRFLOW__CORE__AUTH_MANAGER"
_PAUSED = "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION"
_PARSED_EVERY = "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL"


def connections(site: Site, *, warm: bool = False) -> dict[str, str]:
    """Airflow Connections as environment variables. Programs without Airflow read the same variables.

    `warm`: jobs run in a warm engine, and not each in a Spark of its own.
    """
    values = {
        "KAFKA_DEFAULT": {"conn_type": "kafka", "extra": {"bootstrap.servers": site.address("kafka")}},
        "HBASE_DEFAULT": {
            "conn_type": "generic",
            "host": "127.0.0.1",
            "port": site.port("thrift"),
            "extra": {"thrift2": site.address("thrift2")},
        },
        "ZOOKEEPER_DEFAULT": {
            "conn_type": "generic",
            "host": "127.0.0.1",
            "port": site.port("zookeeper"),
            "login": "tidemark",
            "password": _secret(site.folder("zookeeper") / "password"),
            "extra": {"allow_insecure": True},
        },
        "SQL_DEFAULT": {
            "conn_type": "postgres",
            "host": "127.0.0.1",
            "port": site.port("postgresql"),
            "schema": DATABASE,
            "login": DATABASE,
            "password": database_password(site),
            "extra": {"allow_insecure": True},
        },
        "MYSQL_DEFAULT": {
            "conn_type": "mysql",
            "host": "127.0.0.1",
            "port": site.port("mariadb"),
            "schema": DATABASE,
            "login": DATABASE,
            "password": database_password(site, "mariadb"),
            "extra": {"allow_insecure": True},
        },
        "LAKE_DEFAULT": {"conn_type": "fs", "extra": {"path": str(site.folder("lake"))}},
        "SPARK_DEFAULT": {"conn_type": "spark", "host": "local[2]", "extra": {"engine": warm}},
        "SPARK_CLUSTER": {"conn_type": "spark", "host": spark_master(site), "extra": {"engine": warm}},
    }
    return {f"AIRFLOW_CONN_{name}": json.dumps(value) for name, value in values.items()}


def object_store(site: Site) -> dict[str, str]:
    """The connection of a lake in the bucket of the server `s3`."""
    value = {
        "conn_type": "aws",
        "login": BUCKET,
        "password": object_store_secret(site),
        "extra": {"path": f"s3a://{BUCKET}/lake", "endpoint_url": f"http://{site.address('s3')}"},
    }
    return {"AIRFLOW_CONN_AWS_DEFAULT": json.dumps(value)}


def registry_url(site: Site) -> str:
    """Where the server `registry` speaks Confluent's protocol."""
    return f"http://{site.address('registry')}/apis/ccompat/v7"


def registry(site: Site) -> dict[str, str]:
    """The connection of the server `registry`."""
    return {"AIRFLOW_CONN_SCHEMA_REGISTRY": json.dumps({"conn_type": "http", "host": registry_url(site)})}


def spark(site: Site) -> dict[str, str]:
    """The environment of spark-submit and its Python workers: this interpreter, the connector's jars, loopback only."""
    conf = site.folder("spark", f"conf-{jars.spark_version()}")
    folders = (site.jars / jars.folder_of(profile) for profile in ("spark", "hadoop-aws"))
    connectors = [str(jar) for folder in folders for jar in sorted(folder.glob("*.jar"))]
    settings = {
        "spark.jars": ",".join(connectors),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.warehouse.dir": str(site.folder("spark", "warehouse")),
        "spark.local.dir": str(site.folder("spark", "local")),
        "spark.driver.memory": "1g",
    }
    _write(conf / "spark-defaults.conf", "".join(f"{key} {value}\n" for key, value in settings.items()))
    _write(conf / "log4j2.properties", log4j("warn"))
    return {
        "SPARK_CONF_DIR": str(conf),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    }


def spark_master(site: Site) -> str:
    """The server `spark-master`."""
    return f"spark://{site.address('spark-master')}"


def spark_secret(site: Site) -> dict[str, str]:
    """The secret of the servers `spark-master` and `spark-worker`, made once for a site. Their jobs need it too."""
    return {"_SPARK_AUTH_SECRET": _secret(site.folder("spark-master") / "secret")}


def yarn(site: Site) -> dict[str, str]:
    """Where the servers `yarn-...` and `hdfs-...` are, for whoever starts Spark on them."""
    return {"HADOOP_CONF_DIR": str(site.folder("yarn", "conf"))}


def yarn_page(site: Site) -> str:
    """Where YARN's resource manager answers in JSON."""
    return f"http://{site.address('yarn-page')}/ws/v1/cluster"


def java_home() -> str:
    """The folder of Java, which YARN's containers have to be told."""
    java = shutil.which("java")
    return os.environ.get("JAVA_HOME") or str(Path(java or "/usr/bin/java").resolve().parent.parent)


def airflow(site: Site) -> dict[str, str]:
    """Airflow's settings: this repository's DAGs and plugins, its own port, nothing on other interfaces."""
    home = site.folder("airflow")
    port = site.port("airflow")
    passwords = home / "passwords.json"
    if not passwords.exists():
        passwords.touch(mode=0o600)
        passwords.write_text(json.dumps({ADMIN: secrets.token_urlsafe(12)}))
    return {
        "AIRFLOW_HOME": str(home),
        "TIDEMARK_STREAMS": os.environ.get("TIDEMARK_STREAMS") or _stream_folders(site),
        "TIDEMARK_SELECTIONS": os.environ.get("TIDEMARK_SELECTIONS") or str(site.folder("selections")),
        "AIRFLOW__CORE__DAGS_FOLDER": str(REPOSITORY / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(REPOSITORY / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        _AUTH_MANAGER: os.environ.get(_AUTH_MANAGER)
        or "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager",
        _USERS: os.environ.get(_USERS) or f"{ADMIN}:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        _PAUSED: os.environ.get(_PAUSED) or "False",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
        "AIRFLOW__API__SECRET_KEY": _secret(home / "api-secret"),
        "AIRFLOW__API_AUTH__JWT_SECRET": _secret(home / "jwt-secret"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}?timeout=60",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
        _PARSED_EVERY: os.environ.get(_PARSED_EVERY) or "10",
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(site.port("airflow-worker-logs")),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(site.port("airflow-triggerer-logs")),
    }


def _stream_folders(site: Site) -> str:
    """The folders of stream files: that of `home`, if it has begun, the repository's, and one beside the servers' state."""
    own = [home(site) / "streams"] if has_begun(site) else []
    return os.pathsep.join(map(str, [*own, REPOSITORY / "dags" / "streams", site.folder("streams")]))


def password(site: Site, user: str = ADMIN) -> str:
    """The password of one of Airflow's users. Airflow generates the passwords of all but the administrator."""
    passwords: dict[str, str] = json.loads((site.state / "airflow" / "passwords.json").read_text())
    return passwords[user]


def engines(site: Site) -> dict[str, str]:
    """Where this site's warm engines listen: in a folder that only their owner can enter."""
    folder = site.folder("engines")
    folder.chmod(0o700)
    return {"TIDEMARK_ENGINES": str(folder)}


def home(site: Site) -> Path:
    """The TIDEMARK_HOME of this site: the ledger and the results that need no server."""
    return site.state / "home"


def begin_on_one_machine(site: Site) -> Path:
    """Make the folders of `home`. From then on, `sql_default` and `lake_default` are what they are on one machine."""
    home(site).mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in ("lake", "streams"):
        (home(site) / folder).mkdir(exist_ok=True)
    return home(site)


def on_one_machine(site: Site) -> dict[str, str]:
    """The connections to what is in `home`; none before it has begun."""
    if not has_begun(site):
        return {}
    ledger = {"conn_type": "sqlite", "host": str(home(site) / "ledger.db")}
    lake = {"conn_type": "fs", "extra": {"path": str(home(site) / "lake")}}
    return {
        "TIDEMARK_HOME": str(home(site)),
        "AIRFLOW_CONN_SQL_DEFAULT": json.dumps(ledger),
        "AIRFLOW_CONN_LAKE_DEFAULT": json.dumps(lake),
    }


def has_begun(site: Site) -> bool:
    """Whether `home` is there: a demonstration has begun before."""
    return (home(site) / "lake").is_dir()


def everything(site: Site) -> dict[str, str]:
    return {
        **connections(site, warm=True),
        **spark(site),
        **spark_secret(site),
        **engines(site),
        **airflow(site),
        **on_one_machine(site),
    }


def log4j(level: str) -> str:
    template = (Path(__file__).parent / "templates" / "log4j2.properties").read_text()
    return template.replace("${level}", level)


def database_password(site: Site, server: str = "postgresql") -> str:
    """The password of the user of PostgreSQL or of MariaDB, made once for a site."""
    return _secret(site.folder(server) / "password")


def object_store_secret(site: Site) -> str:
    """The secret key of the server `s3`, made once for a site."""
    return _secret(site.folder("s3") / "secret")


def _secret(path: Path) -> str:
    """A random secret that stays the same for this site, so that a restart logs nobody out."""
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(32))
    return path.read_text()


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
