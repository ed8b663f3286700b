"""The parts of the demonstration, what it starts for them, and where its ledger and its results are."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from demo import on_one_machine
from demo.cdn_lines import messages
from demo.stage import Stage
from demo.story import parts
from services import control, environment, processes
from services.errors import ServiceError
from services.servers import Server
from services.site import Site
from tidemark.clients.environment import from_environment
from tidemark.clients.on_one_machine import is_stand_in
from tidemark.drafts.access_logs import access_log_format
from tidemark.drafts.drafting import outcome, text_of
from tidemark.streams.loading import load

SINCE = datetime(2026, 11, 21, 7, 10, tzinfo=UTC)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A site of which nothing runs, whose connections are in the environment."""
    found = Site(tmp_path / "site", 20_000, tmp_path / "jars")
    found.state.mkdir()
    for name, value in environment.connections(found).items():
        monkeypatch.setenv(name, value)
    return found


def told(site: Site, *, everything: bool) -> tuple[list[str], list[str]]:
    """The titles of the chapters, and the servers."""
    found = parts(Stage(site, Console()), everything=everything)
    chapters = [chapter.__name__ for part in found for chapter in part.chapters]
    return chapters, [server for part in found for server in part.servers]


def test_the_short_story_needs_kafka_alone_and_ends_in_airflow(site: Site) -> None:
    chapters, servers = told(site, everything=False)
    assert chapters == ["first_commands", "killed_run", "fixed_parser", "proof", "in_airflow"]
    assert servers == ["kafka", *control.AIRFLOW]


def test_the_long_story_goes_on_where_the_short_one_ends(site: Site) -> None:
    chapters, servers = told(site, everything=False)
    more_chapters, more_servers = told(site, everything=True)
    assert more_chapters[: len(chapters)] == chapters
    assert more_servers[: len(servers)] == servers
    assert {"zookeeper", "hbase-master", "thrift", "spark-worker"} <= {*more_servers[len(servers) :]} <= {*control.ALL}


def test_a_site_has_a_ledger_in_a_file_once_a_demo_has_begun_one(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assert json.loads(environment.everything(site)["AIRFLOW_CONN_SQL_DEFAULT"])["conn_type"] == "postgres"
    home = environment.begin_on_one_machine(site)
    found = environment.everything(site)
    for name in ("AIRFLOW_CONN_SQL_DEFAULT", "AIRFLOW_CONN_LAKE_DEFAULT", "TIDEMARK_HOME"):
        monkeypatch.setenv(name, found[name])
    # The same that `tidemark init` begins without connections: its commands say where that is.
    assert is_stand_in(from_environment("sql_default"))
    assert is_stand_in(from_environment("lake_default"))
    assert str(home / "streams") in found["TIDEMARK_STREAMS"].split(os.pathsep)


def test_the_second_format_fits_the_file_that_init_drafts(site: Site) -> None:
    """It has the fields of the draft, and takes all lines of that format."""
    lines = [one.value for one in messages(300, SINCE) if one.value]
    drafted = access_log_format([line.decode(errors="replace") for line in lines if b"\t" not in line])
    chapter = on_one_machine.OnOneMachine(Stage(site, Console(quiet=True)))
    chapter.file.parent.mkdir(parents=True)
    chapter.file.write_text(
        text_of(
            on_one_machine.STREAM, on_one_machine.TOPIC, "kafka_default", drafted, outcome(drafted, []), SINCE.date()
        )
    )
    chapter._add_second_format()
    stream = load(chapter.file).stream
    text = chapter.file.read_text()
    assert "\n\n# One row a message" in text
    first, second = yaml.safe_load(text)["scheme"]["patterns"]
    assert first == drafted.scheme["patterns"][0]
    assert {*second["fields"]} == {*stream.fields}
    whole = [line for line in lines if line.count(b"\t") == 10 and line.isascii() and b"\t0\t" not in line]
    assert len(whole) > 80
    assert all(re.fullmatch(second["regex"], line.decode()) for line in whole)


# Servers that start while others are used


def step(name: str, until: threading.Event, *after: str) -> Server:
    """A step that is done when something has happened."""

    def prepare(_: Site) -> None:
        until.wait(60)

    return Server(name, None, prepare=prepare, after=after)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Lets `slow` be done; `quick` is at once, and `next` comes after `slow`."""
    done, at_once = threading.Event(), threading.Event()
    at_once.set()
    servers = [step("quick", at_once), step("slow", done), step("next", at_once, "slow")]
    monkeypatch.setattr(control, "ALL", {server.name: server for server in servers})
    return done


def test_a_block_waits_for_the_servers_that_it_needs(site: Site, slow: threading.Event) -> None:
    ready: list[str] = []
    with control.starting(site, ("quick", "slow", "next"), report=ready.append) as started:
        started.wait("quick")
        assert [line.split()[0] for line in ready] == ["quick"]
        slow.set()
    # At the end of the block, all are.
    assert [line.split()[0] for line in ready] == ["quick", "slow", "next"]


def test_a_block_that_fails_starts_nothing_more(site: Site, slow: threading.Event) -> None:
    ready: list[str] = []

    def fail() -> None:
        with control.starting(site, ("slow", "next"), report=ready.append):
            threading.Timer(0.2, slow.set).start()
            raise ServiceError("a claim does not hold")

    with pytest.raises(ServiceError, match="does not hold"):
        fail()
    assert "next" not in "".join(ready)
    assert not [thread for thread in threading.enumerate() if thread.name == "next"]


def test_servers_of_other_ports_are_not_taken_for_those_of_now(site: Site) -> None:
    """On the ports of now may be the Kafka of somebody else, whose topics the demonstration would make anew."""
    marks = {
        processes.SITE_MARK: str(site.state),
        processes.SERVER_MARK: "kafka",
        processes.PORT_MARK: str(site.port_base + 1_000),
    }
    with subprocess.Popen(["sleep", "600"], env={**os.environ, **marks}) as kafka:
        try:
            with pytest.raises(ServiceError, match="run with TIDEMARK_PORT_BASE=21000, and it is 20000 now"):
                control.up(site, ("kafka",))
        finally:
            kafka.kill()
