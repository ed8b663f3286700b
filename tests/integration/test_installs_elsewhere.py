"""The wheel, in an Airflow that is not ours: built, installed, and used from another folder, without the repository."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest

from services import environment
from services.site import REPOSITORY, Site
from tests.support import installed
from tests.support.live_streams import Kafka
from tests.support.stream_text import MINIMAL
from tidemark import __version__, errors

UV = REPOSITORY / ".local" / "uv" / "bin" / "uv"
SCRIPT = "process_window.py"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(folder, UV, "build", "--wheel", "--out-dir", folder, REPOSITORY)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def elsewhere(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel, and with the packages that it needs from this one."""
    folder = tmp_path_factory.mktemp("elsewhere")
    run(folder, UV, "venv", "--python", sys.executable, folder / "venv")
    run(folder, UV, "pip", "install", "--no-deps", "--python", folder / "venv", wheel)
    # A .pth file in a folder that a .pth file adds is not read: the repository itself is not on the path.
    (site_packages(folder) / "needed.pth").write_text(sysconfig.get_path("purelib"))
    return folder


def site_packages(folder: Path) -> Path:
    (found,) = (folder / "venv" / "lib").glob("python3*/site-packages")
    return found


def run(folder: Path, *command: str | Path, **variables: str) -> str:
    """Run a program from another folder, with an environment that knows nothing of this one."""
    done = ended(folder, *command, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ended(folder: Path, *command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    ours = ("PYTHON", "VIRTUAL_ENV", "AIRFLOW", "TIDEMARK", "SPARK", "PYSPARK")
    # What Python has compiled of the packages may lie where that of the tests lies.
    kept = "PYTHONPYCACHEPREFIX"
    known = {key: value for key, value in os.environ.items() if key == kept or not key.startswith(ours)}
    return subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={**known, "AIRFLOW_HOME": str(folder / "airflow"), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    expected = {f"tidemark/spark/scripts/{SCRIPT}"}
    files = [path for path in (REPOSITORY / "tidemark").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    expected |= {str(path.relative_to(REPOSITORY)) for path in files}
    with zipfile.ZipFile(wheel) as opened:
        names = {name for name in opened.namelist() if ".dist-info/" not in name}
    assert names == expected
    # The page's files are among them, and what says that there are types.
    assert {"tidemark/plugin/page/streams.html", "tidemark/plugin/routes/streams.py"} <= names
    assert "tidemark/py.typed" in names


def test_installed_it_needs_no_repository(elsewhere: Path) -> None:
    streams = elsewhere / "streams"
    streams.mkdir()
    (streams / "orders.yaml").write_text(MINIMAL)
    python, result = elsewhere / "venv" / "bin" / "python", elsewhere / "result.json"
    run(elsewhere, python, "-I", installed.__file__, streams, result)
    found: dict[str, Any] = json.loads(result.read_text())
    here = site_packages(elsewhere)
    assert found["package"] == str(here / "tidemark" / "__init__.py")
    assert "tidemark" in found["plugins"]
    assert found["dags"] == [f"orders__{kind}" for kind in ("ingest", "backfill", "replay", "audit", "erase")]
    # Airflow knows it as a provider, with a form for each of its connections, whose fields are those that it reads.
    assert found["provider"] == __version__
    assert {name: one["name"] for name, one in found["types"].items()} == {
        "tidemark_kafka": "Tidemark: Kafka",
        "tidemark_hbase": "Tidemark: HBase",
        "tidemark_zookeeper": "Tidemark: ZooKeeper",
        "tidemark_postgres": "Tidemark: PostgreSQL",
        "tidemark_mysql": "Tidemark: MySQL or MariaDB",
        "tidemark_registry": "Tidemark: schema registry",
        "tidemark_iceberg": "Tidemark: Iceberg REST catalog",
        "tidemark_lake": "Tidemark: lake of files",
    }
    assert {"bootstrap.servers", "sasl.password", "allow_insecure"} <= set(found["types"]["tidemark_kafka"]["fields"])
    assert found["types"]["tidemark_lake"]["fields"] == ["path"]
    # What spark-submit is told to start: it is there, and it runs there.
    assert set(found["scripts"]) == {str(here / "tidemark" / "spark" / "scripts" / SCRIPT)}
    for job in ([], ["audit"], ["compare"], ["compact"]):
        assert "--stream-file STREAM_FILE" in run(elsewhere, python, "-I", found["scripts"][0], *job, "--help")
    assert "--socket SOCKET" in run(elsewhere, python, "-I", found["scripts"][0], "engine", "--help")


@pytest.mark.full
@pytest.mark.covers("N70", "N71")
@pytest.mark.parametrize("jars", ["named", pytest.param("fetched", marks=pytest.mark.full)])
def test_five_commands_from_nothing(elsewhere: Path, site: Site, kafka: Kafka, tmp_path: Path, jars: str) -> None:
    """Kafka alone, and no file edited: `pip install`, `export`, `init`, `run`, `results`. Then it is proved."""
    topic = f"orders-{secrets.token_hex(3)}"
    kafka.create(topic, 2)
    good = [json.dumps({"id": number, "customer": f"c{number % 7}", "paid": True}).encode() for number in range(400)]
    values = [*good, b"no order", b'{"id": "x"}']
    kafka.send((topic, number % 2, None, value) for number, value in enumerate(values))
    tool = elsewhere / "venv" / "bin" / "tidemark"
    variables = {
        "AIRFLOW_CONN_KAFKA_DEFAULT": os.environ["AIRFLOW_CONN_KAFKA_DEFAULT"],
        "HOME": str(tmp_path),
        # pyspark is in this environment.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        **({"SPARK_CONF_DIR": environment.spark(site)["SPARK_CONF_DIR"]} if jars == "named" else {}),
    }
    refused = ended(tmp_path, tool, "status", "orders", **variables)
    assert refused.returncode == errors.EXIT_WRONG_USE
    drafted = ended(tmp_path, tool, "init", "orders", "--topic", topic, **variables)
    assert drafted.returncode == 0, drafted.stderr
    assert "400 of them would be rows, 2 dead letters" in drafted.stderr
    home = tmp_path / ".tidemark"
    assert drafted.stderr.endswith(
        f"on this machine alone: the ledger is {home}/ledger.db, results are below {home}/lake\nnext: tidemark run orders\n"
    )
    assert run(tmp_path, tool, "streams", "check", **variables) == f"{home}/streams/orders.yaml: stream orders\n"
    done = ended(tmp_path, tool, "run", "orders", "--json", **variables)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(f"on this machine alone: the ledger is {home}/ledger.db")
    (window,) = json.loads(done.stdout)["windows"]
    assert (window["read"], window["stored"], window["dead_letters"]) == (402, 400, 2)
    rows = json.loads(run(tmp_path, tool, "results", "orders", "--limit", "1000", "--json", **variables))
    assert sorted(int(one["fields"]["id"]) for one in rows) == list(range(400))
    assert "missing 0, different 0" in run(tmp_path, tool, "audit", "orders", **variables)
    # It is never written over, and a second stream begins beside it.
    again = ended(tmp_path, tool, "init", "orders", "--topic", topic, **variables)
    assert (again.returncode, "describes orders already" in again.stderr) == (errors.EXIT_WRONG_USE, True)
