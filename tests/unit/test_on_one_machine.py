"""What stands in for connections on one machine, and where it does not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from _pytest.outcomes import Failed

from tests.model.planting import planted
from tests.support.stream_text import MINIMAL
from tidemark.cli import stream_lookup
from tidemark.cli.app import app
from tidemark.clients import on_one_machine
from tidemark.clients.environment import from_environment
from tidemark.clients.lake import lake_folder
from tidemark.clients.sql import database
from tidemark.errors import ConnectionMissing, WrongUse
from tidemark.streams.loading import load
from tidemark.submit.command import master, submit_command

NAMES = ("sql_default", "lake_default", "spark_default")


@pytest.fixture(autouse=True)
def nothing_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person with a folder, and no connection."""
    # Other tests of this process may have set any.
    for name in [one for one in os.environ if one.startswith("AIRFLOW_CONN_")]:
        monkeypatch.delenv(name)
    for name in ("TIDEMARK_HOME", "TIDEMARK_STREAMS", "SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.mark.covers("N71")
@pytest.mark.parametrize("name", NAMES)
def test_a_missing_connection_begins_no_second_ledger(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConnectionMissing, match="run `tidemark init`"):
        from_environment(name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.covers("N71")
@pytest.mark.parametrize("disk", ["missing", "empty"])
def test_a_disk_that_is_not_mounted_begins_no_second_ledger(
    disk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whatever the variable says. Whoever runs `tidemark init` begins one, and reads where."""
    mounted = tmp_path / "disk"
    monkeypatch.setenv("TIDEMARK_HOME", str(mounted))
    app(["init"], standalone_mode=False)
    assert f"a new ledger and new results begin below {mounted}\n" in capfd.readouterr().err
    app(["init"], standalone_mode=False)
    assert "begin" not in capfd.readouterr().err
    assert stream_lookup.folders() == [Path("dags/streams"), mounted / "streams"]
    mounted.rename(tmp_path / "elsewhere")
    if disk == "empty":
        mounted.mkdir()
    for name in NAMES:
        with pytest.raises(
            ConnectionMissing, match=rf"TIDEMARK_HOME is {mounted}, .* is its disk mounted\? .*`tidemark init`"
        ):
            from_environment(name)
    assert on_one_machine.describe_stand_ins(NAMES, from_environment) is None
    assert [*mounted.iterdir()] == [] if disk == "empty" else not mounted.exists()
    assert stream_lookup.folders() == [Path("dags/streams")]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # The folder stands in before anybody has begun it.
        (
            '    if not begun():\n        raise ConnectionMissing(f"{missing}.',
            '    if False:\n        raise ConnectionMissing(f"{missing}.',
        ),
        # The user's own home takes the place of a disk that is away.
        ("Path(os.environ.get(HOME) or Path.home()", "Path(Path.home()"),
        # Nobody says that a disk may be away.
        ("    if os.environ.get(HOME):\n", "    if False:\n"),
    ],
)
def test_planted_bugs_of_the_home_are_found(
    old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def check() -> None:
        test_a_missing_connection_begins_no_second_ledger("sql_default", tmp_path)
        test_a_disk_that_is_not_mounted_begins_no_second_ledger("missing", tmp_path, monkeypatch, capfd)

    with planted("tidemark.clients.on_one_machine", old, new), pytest.raises((AssertionError, Failed)):
        check()


@pytest.mark.covers("N71")
def test_what_stands_in_is_below_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_one_machine.begin()
    assert database(from_environment("sql_default")).host == str(tmp_path / ".tidemark" / "ledger.db")
    assert lake_folder(from_environment("lake_default")) == str(tmp_path / ".tidemark" / "lake")
    assert master(from_environment("spark_default")) == "local[*]"
    assert (tmp_path / ".tidemark").stat().st_mode & 0o077 == 0
    # Nothing else stands in for anything.
    for other in ("hbase_default", "kafka_default", "sql_other", "lake_other"):
        with pytest.raises(
            ConnectionMissing, match=f"^there is no connection {other}: set AIRFLOW_CONN_[A-Z_]+ to JSON such as"
        ):
            from_environment(other)
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "mine"))
    on_one_machine.begin()
    assert database(from_environment("sql_default")).host == str(tmp_path / "mine" / "ledger.db")


@pytest.mark.covers("N71")
@pytest.mark.parametrize(
    ("variables", "said"),
    [
        (
            {"TIDEMARK_HOME": "{}/file/mine"},
            r"the folder \S+/file/mine cannot be made: Not a directory\. .*set TIDEMARK_HOME",
        ),
        ({"HOME": "{}/file"}, r"the folder \S+/file/\.tidemark cannot be made: Not a directory"),
        ({"TIDEMARK_HOME": "{}/file"}, r"the folder \S+/file cannot be made: File exists\. .*kept below \S+/file: let"),
    ],
)
def test_a_folder_that_cannot_be_made_is_named(
    variables: dict[str, str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(tmp_path))
    with pytest.raises(WrongUse, match=said):
        app(["init"], standalone_mode=False)


@pytest.mark.covers("N71")
def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(WrongUse, match=r"no home folder.*: set TIDEMARK_HOME"):
        app(["init"], standalone_mode=False)
    # Who has all connections needs none.
    assert stream_lookup.folders() == [Path("dags/streams")]
    with pytest.raises(ConnectionMissing, match="there is no connection sql_default"):
        from_environment("sql_default")


@pytest.mark.covers("N71")
def test_a_connection_that_is_there_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_one_machine.begin()
    monkeypatch.setenv("AIRFLOW_CONN_LAKE_DEFAULT", json.dumps({"conn_type": "fs", "extra": {"path": "/data/lake"}}))
    assert lake_folder(from_environment("lake_default")) == "/data/lake"
    names = {"sql_default", "lake_default", "kafka_default"}
    assert on_one_machine.describe_stand_ins(names, from_environment) == (
        f"on this machine alone: the ledger is {tmp_path}/.tidemark/ledger.db"
    )
    assert on_one_machine.describe_stand_ins({"lake_default"}, from_environment) is None


@pytest.mark.covers("N71")
@pytest.mark.parametrize("host", ["spark://spark-master:7077", "yarn", "k8s://https://cluster"])
def test_nothing_stands_in_on_a_cluster(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on_one_machine.begin()
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": host}))
    for name in ("sql_default", "lake_default"):
        with pytest.raises(ConnectionMissing, match=f"Spark's master is {host}, whose machines do not see that folder"):
            from_environment(name)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    assert from_environment("sql_default").kind == "sqlite"


@pytest.mark.covers("N71")
def test_a_local_spark_brings_the_connector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_one_machine.begin()
    (tmp_path / "orders.yaml").write_text(MINIMAL)
    stream = load(tmp_path / "orders.yaml").stream

    def settings() -> str:
        return " ".join(submit_command(stream, from_environment("spark_default"), "window", []))

    assert "spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:" in settings()
    assert "spark.log.level=WARN" in settings()
    # Whoever has settings of Spark on this machine has the jars that they name.
    (tmp_path / "spark-defaults.conf").write_text("spark.jars /jars/connector.jar\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert "spark.jars.packages" not in settings()
    assert "spark.log.level" not in settings()
    # A local Spark of a connection needs the jars too. All else is as its owner set it up.
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    monkeypatch.delenv("SPARK_CONF_DIR")
    assert "spark.jars.packages" in settings()
    assert "spark.driver.bindAddress" not in settings()
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "spark://here:7077"}))
    assert "spark.jars.packages" not in settings()


@pytest.mark.covers("N71")
def test_streams_of_this_machine_are_found_by_name(tmp_path: Path) -> None:
    assert stream_lookup.folders() == [Path("dags/streams")]
    on_one_machine.begin()
    assert stream_lookup.folders() == [Path("dags/streams"), tmp_path / ".tidemark" / "streams"]


@pytest.mark.covers("N70")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["Orders"], "'Orders' cannot be the name of a stream: expected a name of small letters"),
        (["orders", "--topic", "a b"], "'a b' cannot be the name of a topic: expected the name of a topic"),
        (["known"], "other.yaml describes known already, and is not replaced"),
        (["orders"], "there is no connection kafka_default"),
    ],
)
def test_a_draft_that_cannot_be_made_leaves_nothing(tmp_path: Path, words: list[str], said: str) -> None:
    (tmp_path / "dags" / "streams").mkdir(parents=True)
    (tmp_path / "dags" / "streams" / "other.yaml").write_text(MINIMAL.replace("orders", "known"))
    with pytest.raises(WrongUse, match=said):
        app(["init", *words], standalone_mode=False)
    assert sorted(one.name for one in tmp_path.rglob("*")) == ["dags", "other.yaml", "streams"]
