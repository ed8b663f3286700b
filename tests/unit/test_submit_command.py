"""How a Spark job is started without Airflow."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.memory import MemoryStore
from tests.support.stream_text import MINIMAL
from tidemark.cli.app import app
from tidemark.clients.connections import Connection
from tidemark.clients.environment import from_environment
from tidemark.errors import PackageMissing, WrongUse
from tidemark.ledger.ledger import Ledger
from tidemark.sinks.dead_letters.kinds import KINDS as DEAD_LETTER_KINDS
from tidemark.sinks.kinds import kind_of
from tidemark.streams.loading import load
from tidemark.streams.model import Stream
from tidemark.streams.parsing_limits import OF_A_STREAM, ParsingLimits, warning
from tidemark.submit.address import FOLDER
from tidemark.submit.command import WINDOW_JOB, WarmEngine, engine_command, local_cores, master, submit_command


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    path = tmp_path / "orders.yaml"
    path.write_text(f"{MINIMAL}\nengine: {{conf: {{spark.executor.memory: 2g}}}}\n")
    return load(path).stream


def spark(host: str, port: int | None = None, **extra: str) -> Connection:
    return Connection("spark_default", host, port, extra=extra)


def test_the_master_is_what_the_connection_says() -> None:
    assert master(spark("local[2]")) == "local[2]"
    assert master(spark("spark://head", 7077)) == "spark://head:7077"
    assert master(spark("head", 7077)) == "spark://head:7077"
    assert master(spark("yarn")) == "yarn"
    assert (local_cores("local"), local_cores("local[3]"), local_cores("local[4,2]"), local_cores("yarn")) == (
        1,
        3,
        4,
        None,
    )


def test_the_command_holds_settings_and_no_connection(stream: Stream) -> None:
    secret = Connection("spark_default", "local[2]", password="canary", extra={"queue": "nightly"})
    command = submit_command(stream, secret, WINDOW_JOB, ["--seq", "1"])
    assert Path(command[0]).name == "spark-submit"
    assert command[1:9] == [
        *("--master", "local[2]", "--name", "tidemark orders", "--queue", "nightly"),
        *("--conf", "spark.executor.memory=2g"),
    ]
    assert (Path(command[9]).name, command[10:]) == ("process_window.py", [WINDOW_JOB, "--seq", "1"])
    assert "canary" not in str(command)


@pytest.mark.parametrize(
    ("connection", "expected", "said"),
    [
        (spark("spark://other", 7077), "local[2]", "gives master spark://other:7077; the stream file expects local"),
        (spark("yarn", None, **{"deploy-mode": "cluster"}), None, "jobs run in client mode"),
        (
            spark("local", None, **{"spark-binary": "/bin/sh"}),
            None,
            "spark-binary '/bin/sh'; expected one of spark-submit",
        ),
        (
            spark("sc://head", 15002),
            None,
            "gives sc://head:15002, which asks for Spark Connect; .* Give the connection a master",
        ),
        (spark("yarn"), None, "no folder with a yarn-site.xml is named in HADOOP_CONF_DIR or YARN_CONF_DIR"),
        (spark(""), None, "has no host, which is the Spark master"),
    ],
)
def test_what_is_not_started(stream: Stream, connection: Connection, expected: str | None, said: str) -> None:
    expecting = stream.model_copy(update={"engine": stream.engine.model_copy(update={"master": expected})})
    with pytest.raises(WrongUse, match=said):
        submit_command(expecting, connection, WINDOW_JOB, [])


def test_yarn_with_its_configuration_is_started(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YARN_CONF_DIR", str(tmp_path))
    with pytest.raises(WrongUse, match=r"no folder with a yarn-site\.xml"):
        submit_command(stream, spark("yarn"), WINDOW_JOB, [])
    (tmp_path / "yarn-site.xml").touch()
    assert submit_command(stream, spark("yarn"), WINDOW_JOB, [])


def test_spark_connect_is_refused_by_whatever_asks_for_it(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path / "engines"))
    plain = spark("local[2]")
    for settings, said in (
        ({"spark.remote": "sc://head"}, "spark.remote is set"),
        ({"spark.api.mode": "connect"}, "spark.api.mode is connect"),
    ):
        with pytest.raises(WrongUse, match=f"{said}.*, which asks for Spark Connect"):
            submit_command(stream, plain, WINDOW_JOB, [], settings)
        with pytest.raises(WrongUse, match=f"{said}.*, which asks for Spark Connect"):
            engine_command(plain, WarmEngine(conf=settings), {})
    monkeypatch.setenv("SPARK_REMOTE", "sc://head")
    with pytest.raises(WrongUse, match="SPARK_REMOTE is set in the environment, which asks for Spark Connect"):
        submit_command(stream, plain, WINDOW_JOB, [])


def test_a_machine_without_java_is_told_before_anything_starts(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("JAVA_HOME", "SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WrongUse, match=r"Java was not found.* install Java 17 or 21 .* or set JAVA_HOME"):
        submit_command(stream, spark("local[2]"), WINDOW_JOB, [])
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(WrongUse, match=r"JAVA_HOME=.*: there is no bin/java in it"):
        submit_command(stream, spark("local[2]"), WINDOW_JOB, [])
    # Spark's own file of settings may name a Java.
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-env.sh").touch()
    assert submit_command(stream, spark("local[2]"), WINDOW_JOB, [])
    (tmp_path / "spark-env.sh").unlink()
    monkeypatch.delenv("JAVA_HOME")
    java = tmp_path / "java"
    java.touch(0o755)
    assert submit_command(stream, spark("local[2]"), WINDOW_JOB, [])


@pytest.mark.slow
@pytest.mark.covers("E61")
@pytest.mark.parametrize(
    ("sink", "said"),
    [
        ("table: orders", ["table 'orders' of sink hbase meets table 'orders' of sink hbase in "]),
        ("table: orders_dead", ["table 'orders_dead' of sink hbase", "table 'orders_dead' of the dead letters"]),
        ("table: tidemark_ledger", ["is named for two purposes"]),
        ("table: more\n    hbase: another", []),
        ("table: more\n  - type: kafka\n    topic: sums", []),
        (
            "table: more\n  - type: delta\n    folder: Lake",
            ["folder 'Lake' of sink delta", "folder 'lake/orders' of sink p"],
        ),
        (
            "table: more\n  - type: delta\n    folder: lake/orders/x",
            ["folder 'lake/orders/x' of", "folder 'lake/orders' of"],
        ),
        ("table: more\n  - type: delta\n    folder: lake/orders2", []),
        ("table: more\n  - type: delta\n    folder: lake\n    files: another", []),
    ],
)
def test_streams_of_a_folder_that_would_write_to_one_place(
    tmp_path: Path, sink: str, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Both are named, whether both are asked for, one, or the folder is."""
    first, second = tmp_path / "orders.yaml", tmp_path / "more.yaml"
    minimal = MINIMAL + "ledger:\n  type: hbase\n"
    first.write_text(
        minimal.replace(
            "    table: orders\n",
            "    table: orders\n  - {type: kafka, topic: sums}\n  - {type: parquet, folder: lake/orders}\n",
        )
    )
    (tmp_path / "bad.yml").write_text("stream: [")
    other = minimal.replace("stream: orders\n", "stream: more\n").replace("table: orders_dead", "table: more_dead")
    second.write_text(other.replace("    table: orders\n", f"    {sink}\n"))
    for asked in ([first, second], [second], [second, second]):
        if not said:
            app(["streams", "check", *map(str, asked)], standalone_mode=False)
            continue
        with pytest.raises(WrongUse, match="1 stream file cannot be used"):
            app(["streams", "check", *map(str, asked)], standalone_mode=False)
        shown = capsys.readouterr().err
        assert all(one in shown for one in [*said, str(second), *([str(first)] if "meets" in shown else [])])


@pytest.mark.covers("U31")
def test_a_stream_is_checked_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in every other command. A name that nothing has is an error that says which there are."""
    (tmp_path / "file.yaml").write_text(MINIMAL)
    monkeypatch.setenv("TIDEMARK_STREAMS", str(tmp_path))
    app(["streams", "check", "orders"], standalone_mode=False)
    assert capsys.readouterr().out == f"{tmp_path / 'file.yaml'}: stream orders\n"
    with pytest.raises(WrongUse, match=r"no stream is called 'order' \(did you mean orders"):
        app(["streams", "check", "order"], standalone_mode=False)


@pytest.mark.covers("N42")
def test_a_folder_with_so_many_streams_that_airflow_may_drop_their_dags(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word before it happens, and no error. With Airflow's usual limits, some hundred files are too many."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(MINIMAL.replace("orders", name))
    app(["streams", "check", str(tmp_path / "b.yaml")], standalone_mode=False)
    assert "warning" not in capsys.readouterr().err
    monkeypatch.setenv("AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT", "0.1")
    app(["streams", "check", str(tmp_path / "b.yaml")], standalone_mode=False)
    said = capsys.readouterr().err
    assert f"warning: {tmp_path}: The DAGs of 2 stream files in one DAG file would take about 0.1 of the 0.1 s" in said
    assert "build_dags(..., shard=(1, 2))" in said
    assert warning(300, 300 * OF_A_STREAM, ParsingLimits()) is None
    assert warning(400, 400 * OF_A_STREAM, ParsingLimits()) is not None


def test_streams_of_a_folder_with_one_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(MINIMAL)
    with pytest.raises(WrongUse, match="1 stream file cannot be used"):
        app(["streams", "check", str(tmp_path / "b.yaml")], standalone_mode=False)
    shown = capsys.readouterr().err
    assert f"{tmp_path / 'a.yaml'}: stream orders is described by {tmp_path / 'b.yaml'} already" in shown


def test_a_package_that_a_sink_needs_is_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "orders.yaml"
    path.write_text(MINIMAL.replace("type: hbase\n    table: orders", "type: delta\n    folder: orders"))
    stream = load(path).stream
    assert submit_command(stream, spark("local[2]"), WINDOW_JOB, [])
    monkeypatch.setitem(sys.modules, "deltalake", None)
    for asked in (
        lambda: submit_command(stream, spark("local[2]"), WINDOW_JOB, []),
        # And whoever reads: the page, an erasure, `tidemark results`.
        lambda: kind_of("delta").make_admin(),
    ):
        with pytest.raises(PackageMissing, match=r"type delta needs the package deltalake: pip install 'deltalake>=1"):
            asked()
    with pytest.raises(WrongUse, match="1 stream file cannot be used"):
        app(["streams", "check", str(path)], standalone_mode=False)
    assert f"{path}: a sink of type delta needs the package deltalake: pip install" in capsys.readouterr().err
    path.write_text(MINIMAL.replace("  type: hbase\n  table: orders_dead", "  type: delta\n  folder: dead"))
    lacking = r"a store of dead letters of type delta needs the package deltalake: pip install"
    for asked in (
        lambda: submit_command(load(path).stream, spark("local[2]"), WINDOW_JOB, []),
        lambda: DEAD_LETTER_KINDS["delta"].opened(
            {"base": "file:///dead"}, Ledger(MemoryStore(), "orders"), from_environment
        ),
    ):
        with pytest.raises(PackageMissing, match=lacking):
            asked()
    with pytest.raises(WrongUse, match="1 stream file cannot be used"):
        app(["streams", "check", str(path)], standalone_mode=False)
    assert f"{path}: {lacking}" in capsys.readouterr().err
