"""The real Airflow, with its scheduler and workers, for all tests here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.airflow import Airflow
from demo.cdn_lines import produce
from services import control, environment
from services.site import REPOSITORY, Site
from tests.support.both_ledgers import SQL, ledger
from tests.support.browser import closed
from tests.support.evil import EVIL
from tests.support.live_streams import Kafka
from tests.support.servers import free_ports
from tests.support.stream_text import MINIMAL
from tidemark.ledger.records import INGEST
from tidemark.runs.live.open_stream import open_stream

# Users besides the administrator: of a team, of another, of none, operators of none, of whom one has rights by DAG, and one
# without any role, who may see nothing.
USERS = {
    "red_viewer": "viewer:red",
    "blue_viewer": "viewer:blue",
    "viewer": "viewer",
    "operator": "op",
    "replayer": "op",
    "nobody": "",
}
# What each team's stream says of its ledger.
TEAMS = {"red": ledger("zookeeper", "zookeeper_other"), "blue": ledger("hbase")}
# A team's DAGs come from a folder of its own.
TEAM_DAGS = '''"""The DAGs of a team, for Airflow."""
from pathlib import Path
from tidemark.airflow import build_dags
for dag in build_dags(Path(__file__).parent / "streams"):
    globals()[dag.dag_id] = dag
'''


@pytest.fixture(scope="session")
def other_zookeeper(site: Site) -> Iterator[Site]:
    """A ZooKeeper by itself: HBase, which needs the first one, does not survive it."""
    ports = site.folder("other") / "port_base"
    if not ports.exists():
        ports.write_text(str(free_ports()))
    found = Site(site.folder("other"), int(ports.read_text()), site.jars)
    control.up(found, ["zookeeper"])
    yield found
    if not os.environ.get("TIDEMARK_KEEP_SERVERS"):
        control.down(found)


@pytest.fixture(scope="session")
def streams(site: Site) -> dict[str, Path]:
    """The folders of stream files: Airflow's own, those of two teams, and one that only the page knows.

    Airflow's has the example stream, one whose words are hostile, and a file that is none. Red's ledger is
    usually in ZooKeeper.
    """
    # Beside the servers, which may be those of an earlier run.
    found = {name: site.folder("ui", name, "streams") for name in ("everybody", "unknown", *TEAMS)}
    for folder in found.values():
        for file in folder.glob("*.yaml"):
            file.unlink()
    for team, ledger_of_team in TEAMS.items():
        (found[team].parent / "dags.py").write_text(TEAM_DAGS)
        text = MINIMAL.replace("stream: orders", f"stream: {team}_orders")
        (found[team] / "orders.yaml").write_text(text + ledger_of_team)
    (found["unknown"] / "unknown.yaml").write_text(
        MINIMAL.replace("stream: orders", "stream: unknown") + ledger("hbase")
    )
    everybody = found["everybody"]
    example = (REPOSITORY / "dags" / "streams" / "cdn_logs.yaml").read_text()
    (everybody / "cdn_logs.yaml").write_text(example.replace("ledger:\n  type: hbase\n", ledger("hbase")))
    evil = MINIMAL.replace("stream: orders", f"stream: evil\ndescription: '{EVIL}'")
    (everybody / "evil.yaml").write_text(evil + ledger("hbase"))
    (everybody / "broken.yaml").write_text("stream: [")
    return found


@pytest.fixture(scope="session")
def own_dags(site: Site) -> Path:
    """A folder for DAGs that a test writes."""
    found = site.folder("ui", "own-dags")
    for file in found.glob("*.py"):
        file.unlink()
    return found


@pytest.fixture(scope="session")
def provider(site: Site) -> Path:
    """A folder that makes Tidemark a provider, as its wheel does: the rooms are importable here without being installed."""
    about = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    found = site.folder("ui", "provider")
    info = site.folder("ui", "provider", f"{about['name'].replace('-', '_')}-0.0.0.dist-info")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {about['name']}\nVersion: 0.0.0\n")
    (group,) = (name for name in about["entry-points"] if name == "apache_airflow_provider")
    entries = [f"{name} = {place}\n" for name, place in about["entry-points"][group].items()]
    (info / "entry_points.txt").write_text("".join([f"[{group}]\n", *entries]))
    return found


@pytest.fixture(scope="session")
def start_airflow(
    site: Site, other_zookeeper: Site, streams: dict[str, Path], own_dags: Path, provider: Path
) -> Callable[[], None]:
    """Starts what of Airflow does not run. The page knows all folders of stream files, the DAGs of no team only their own.

    Its settings are nobody else's: other tests of this process have another Airflow.
    """
    users = [f"{name}:{role}" for name, role in {environment.ADMIN: "admin", **USERS}.items()]
    bundles = [
        _bundle("dags-folder"),
        _bundle("own-dags", own_dags),
        *(_bundle(team, streams[team].parent, team) for team in TEAMS),
    ]
    settings = {
        **_other_connections(site, other_zookeeper),
        "PYTHONPATH": str(provider),
        "AIRFLOW__CORE__AUTH_MANAGER": "tests.support.rights.RightsByDag",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(users),
        "AIRFLOW__CORE__MULTI_TEAM": "True",
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
        # A file that is new is parsed at once, and others when a test asks for it: else all of them each minute, for nothing.
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
        # For the loss of a worker: a task that gives no sign of life is missed after five minutes otherwise.
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
    }

    # The tests open streams too.
    os.environ.update(_other_connections(site, other_zookeeper))

    def start() -> None:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in settings.items():
                patch.setenv(name, value)
            patch.setenv("TIDEMARK_STREAMS", os.pathsep.join(map(str, streams.values())))
            control.up(site, ["airflow-database", *(["postgresql"] if SQL else [])])
            _create_teams(site)
            control.up(site, ["airflow-api"])
            patch.setenv("TIDEMARK_STREAMS", str(streams["everybody"]))
            control.up(site, control.AIRFLOW)

    return start


def _other_connections(site: Site, other_zookeeper: Site) -> dict[str, str]:
    """Other names than the default ones: of another ZooKeeper, and of the same HBase."""
    return {
        "AIRFLOW_CONN_ZOOKEEPER_OTHER": environment.connections(other_zookeeper)["AIRFLOW_CONN_ZOOKEEPER_DEFAULT"],
        "AIRFLOW_CONN_HBASE_OTHER": environment.connections(site)["AIRFLOW_CONN_HBASE_DEFAULT"],
    }


# One Python for all of them: Airflow's own command is started anew for each, which takes seconds.
_MAKE_TEAMS = """
import sys
from airflow.models.team import Team
from airflow.utils.session import create_session
with create_session() as session:
    session.add_all(Team(name=name) for name in sys.argv[1:] if session.get(Team, name) is None)
"""


def _create_teams(site: Site) -> None:
    command = [sys.executable, "-c", _MAKE_TEAMS, *TEAMS]
    env = {**os.environ, **environment.everything(site)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="package", autouse=True)
def _browser() -> Iterator[None]:
    """One for all tests here: each has a context of its own in it."""
    yield
    closed()


@pytest.fixture(scope="package")
def airflow(site: Site, kafka: Kafka, start_airflow: Callable[[], None]) -> Iterator[Airflow]:
    """Airflow with the streams of `streams`, and messages for the example stream. Other tests do not have it beside them."""
    start_airflow()
    for topic in {"cdn-logs", "cdn-logs-normalised"} - set(kafka.admin.list_topics()):
        kafka.create(topic, 4, **{"max.message.bytes": "11000000"})
    produce(site.address("kafka"), "cdn-logs", 500, first=50_000)
    found = Airflow(site)
    for stream in ("cdn_logs", "evil", *(f"{team}_orders" for team in TEAMS)):
        found.wait_for_dag(f"{stream}__ingest")
    yield found
    if not os.environ.get("TIDEMARK_KEEP_SERVERS"):
        control.down(site, control.AIRFLOW)


@pytest.fixture(scope="package")
def ingested(airflow: Airflow, streams: dict[str, Path]) -> Airflow:
    """Airflow, in which an ingest of the example stream has run."""
    found = open_stream(streams["everybody"] / "cdn_logs.yaml").ledger.head(INGEST)
    if found is None or found.head.last is None:
        # A scheduled run may be on its way already; both end well.
        assert airflow.run("cdn_logs__ingest") == "success"
    return airflow


def _bundle(name: str, path: Path | None = None, team: str | None = None) -> dict[str, Any]:
    """A folder of DAGs as Airflow is told of it: its own, another one, or that of a team."""
    given: dict[str, Any] = {"name": name, "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle"}
    where = {} if path is None else {"path": str(path)}
    return {**given, "kwargs": where} if team is None else {**given, "kwargs": where, "team_name": team}
