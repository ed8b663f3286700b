"""What docs/adding-a-ledger.md says is so: its package is installed as it stands there, tried, and used."""

from __future__ import annotations

import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path

import psutil
import pytest

from services.site import Site
from tests.support.covering import REPOSITORY
from tests.support.independent import Independent
from tests.support.live_streams import Make
from tests.support.oracle import ORDERS
from tests.support.packages import CommandLine, installed
from tests.support.waiting import until
from tidemark.errors import Unreachable
from tidemark.ledger.stores.contract import WriteInDoubt

pytestmark = pytest.mark.covers("O6")

GUIDE = REPOSITORY / "docs" / "adding-a-ledger.md"
KEY = ("head", "ingest")


class InFile(Independent):
    """Reads the ledger from its file, and results as ever."""

    def __init__(self, site: Site, name: str, database: Path) -> None:
        super().__init__(site, name)
        self._database = database

    def _ledger(self) -> dict[str, bytes]:
        with closing(sqlite3.connect(self._database)) as opened:
            return dict(opened.execute("SELECT key, value FROM ledger WHERE stream = ?", [self._name]))


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    return installed(GUIDE, tmp_path / "site")


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the connection says that the ledger is."""
    file = tmp_path / "ledger.db"
    connection = {"conn_type": "sqlite", "host": str(file)}
    monkeypatch.setenv("AIRFLOW_CONN_SQLITE_DEFAULT", json.dumps(connection))
    return file


def test_the_ledger_of_the_guide_passes_the_contract_tests(packages: Path, database: Path) -> None:
    (command,) = re.findall(r"^python (-m pytest .*)$", GUIDE.read_text(), re.MULTILINE)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (packages, REPOSITORY)))}
    ran = subprocess.run(
        [sys.executable, *shlex.split(command), "-p", "no:cacheprovider"],
        env=environment,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout[-5000:]
    assert re.search(r"= \d+ passed in ", ran.stdout), ran.stdout[-1000:]
    assert database.exists()


@pytest.mark.full
def test_the_ledger_of_the_guide_keeps_a_stream(make: Make, packages: Path, database: Path) -> None:
    live = make(ORDERS)
    live.rewrite(sinks=[{"type": "parquet", "folder": live.name}], ledger={"type": "sqlite"})
    file = str(live.file)
    tidemark = CommandLine(live.site, packages)
    lake = Path(live.site.folder("lake")) / live.name
    live.produce(300)
    places = [(topic, partition) for topic in live.topics for partition in range(live.example.partitions)]
    expected = live.expected({place: len(range(number, 300, len(places))) for number, place in enumerate(places)})
    assert len(expected.rows) > 200
    independent = InFile(live.site, live.name, database)

    # Killed as soon as it writes, when the window is pinned and taken.
    killed = tidemark.start("run", file, "--run", "mine")
    until(lambda: list(lake.glob("lane=*/seq=*/generation=*")), "nothing was written", 300)
    for process in [*psutil.Process(killed.pid).children(recursive=True), psutil.Process(killed.pid)]:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    killed.communicate()
    tidemark("run", file, "--run", "another", "--take-over")
    found = independent.parquet(live.fields)
    assert (found.by_place(), found.twice()) == (expected.rows, 0)
    tidemark("replay", "--yes", file, "--ranges", f"{live.topics[0]}/0@5-15", "--reason", "a bug fix")
    found = independent.parquet(live.fields)
    again = [place for place in expected.rows if place[:2] == (live.topics[0], 0) and 5 <= place[2] < 15]
    assert (found.by_place(), found.twice(), found.debris) == (expected.rows, 0, len(again))
    ingest, replay = independent.records()
    assert (ingest["attempt"]["run"], replay["lane"].partition("-")[0]) == ("another", "replay")
    report = json.loads(tidemark("audit", file, "--json"))
    assert (report["clean"], report["expected"]) == (True, 300)


def test_a_file_that_is_away_or_held_is_named_in_bounded_time(
    packages: Path, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(packages)
    store = import_module("sqlite_ledger.store").SQLiteStore
    away, held = (store(str(file), "s", 1.0) for file in (database.parent / "nowhere" / "ledger.db", database))
    with pytest.raises(Unreachable, match=r"SQLite at .*nowhere/ledger\.db: unable to open"):
        away.read(KEY)
    held.prepare()
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(WriteInDoubt, match=r"SQLite at .*ledger\.db: database is locked"):
            held.swap(KEY, None, b"value")
    assert held.swap(KEY, None, b"value")
