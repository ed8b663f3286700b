"""Airflow for the tests of this folder: its home is decided before anything imports it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
import yaml

from services import environment
from services.site import REPOSITORY, Site
from tests.support.dag_streams import HOME, LINEAGE, STREAM, STREAM_FILE
from tests.support.oracle import CDN, stream_of

_SETTINGS = {
    "AIRFLOW_HOME": str(HOME),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__DAGS_FOLDER": str(HOME / "dags"),
    "AIRFLOW__CORE__PLUGINS_FOLDER": str(REPOSITORY / "plugins"),
    "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME / 'airflow.db'}",
    # Events of lineage go to a file: those of Spark's tasks, which have something to say.
    "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps({"type": "file", "log_file_path": str(LINEAGE), "append": True}),
    "AIRFLOW__OPENLINEAGE__DISABLED_FOR_OPERATORS": ";".join(
        f"airflow.providers.standard.decorators.{name}"
        for name in (
            "python._PythonDecoratedOperator",
            "branch_python._BranchPythonDecoratedOperator",
            "short_circuit._ShortCircuitDecoratedOperator",
        )
    ),
    # A DAG whose definition changes from one parse to the next is an error here.
    "AIRFLOW__DAG_PROCESSOR__DAG_VERSION_INFLATION_CHECK_LEVEL": "error",
}
# In each run, the pages meet a ledger in ZooKeeper in tests/ui.
_PAGE_LEDGERS = ("hbase", "zookeeper", "sql")
shutil.rmtree(HOME, ignore_errors=True)
STREAM_FILE.parent.mkdir(parents=True)
shutil.copy(REPOSITORY / "dags" / "tidemark_streams.py", HOME / "dags")
STREAM_FILE.write_text(yaml.safe_dump({**stream_of(CDN, STREAM, (STREAM,)), "engine": CDN.stream["engine"]}))
os.environ.update(_SETTINGS)


@pytest.fixture(scope="session")
def airflow_home() -> Path:
    """Airflow's home, with a migrated database: one process of the run makes it, and the others take a copy."""
    versions = sha256((REPOSITORY / "constraints.txt").read_bytes()).hexdigest()[:16]
    made, place = HOME / "airflow.db", REPOSITORY / ".local" / f"airflow-{versions}.db"
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            migrate = [sys.executable, "-m", "airflow", "db", "migrate"]
            done = subprocess.run(migrate, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            shutil.copy(made, place.with_suffix(".new"))
            place.with_suffix(".new").rename(place)
    shutil.copy(place, made)
    return HOME


@pytest.fixture
def submitting(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """What spark-submit needs, in the environment."""
    for key, value in {**environment.spark(site), **environment.connections(site)}.items():
        monkeypatch.setenv(key, value)
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "page_ledger" in metafunc.fixturenames:
        kinds = _PAGE_LEDGERS if metafunc.config.getoption("--full") else _PAGE_LEDGERS[:1]
        metafunc.parametrize("page_ledger", kinds, indirect=True)
