"""How a run is handed to a warm engine: the command, where the engine listens, and what goes over its socket."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stream_text import MINIMAL
from tidemark.clients.connections import Connection
from tidemark.errors import WrongUse
from tidemark.streams.loading import load
from tidemark.streams.model import Stream
from tidemark.submit import client
from tidemark.submit.address import FOLDER, SUFFIX, folder, socket_path, sockets
from tidemark.submit.command import WINDOW_JOB, submit_command, warm_engine


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    # A socket's path has at most 107 bytes, and pytest's own folders are named after the tests.
    with tempfile.TemporaryDirectory(prefix="engines-") as short:
        found = Path(short).resolve() / "engines"
        monkeypatch.setenv(FOLDER, str(found))
        yield found


def stream(folder: Path, text: str = "") -> Stream:
    path = folder / "orders.yaml"
    path.write_text(f"{MINIMAL}\n{text}")
    return load(path).stream


def spark(engine: object = True, host: str = "local[2]") -> Connection:
    return Connection("spark_default", host, extra={"engine": engine})


def test_a_warm_command_starts_an_engine_with_what_is_of_the_engine(tmp_path: Path, engines: Path) -> None:
    orders = stream(tmp_path, "engine: {conf: {spark.sql.shuffle.partitions: '7'}}")
    connection = spark({"runs": 3, "conf": {"spark.driver.memory": "2g"}})
    command = submit_command(orders, connection, WINDOW_JOB, ["--seq", "1"], {"spark.ui.showConsoleProgress": "true"})
    path = Path(command[4])
    assert command[:4] == [sys.executable, "-I", "-S", client.__file__]
    assert (path.parent, path.suffix) == (engines, SUFFIX)
    # What is of the stream goes with its run.
    assert command[5:9] == ["--conf", "spark.sql.shuffle.partitions=7", "--conf", "spark.ui.showConsoleProgress=true"]
    start = command[command.index("--start") + 1 : command.index("--")]
    assert Path(start[0]).name == "spark-submit"
    assert start[1:7] == [
        *("--master", "local[2]", "--name", "tidemark engine spark_default", "--conf", "spark.driver.memory=2g")
    ]
    assert (Path(start[7]).name, start[8]) == ("process_window.py", "engine")
    assert start[9:] == ["--socket", str(path), "--runs", "3", "--idle-minutes", "90"]
    script, *arguments = command[command.index("--") + 1 :]
    assert (Path(script).name, arguments) == ("process_window.py", [WINDOW_JOB, "--seq", "1"])


@pytest.mark.usefixtures("engines")
def test_a_user_may_want_the_page_of_an_engine(tmp_path: Path) -> None:
    connection = spark({"conf": {"spark.ui.enabled": "true"}})
    command = submit_command(stream(tmp_path), connection, WINDOW_JOB, [])
    assert [word for word in command if word.startswith("spark.ui.enabled")] == ["spark.ui.enabled=true"]


@pytest.mark.usefixtures("engines")
def test_another_engine_has_another_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = stream(tmp_path)

    def path(connection: Connection) -> str:
        return submit_command(orders, connection, WINDOW_JOB, [])[4]

    first = path(spark())
    assert path(spark()) == path(spark({})) == first
    others = [spark(host="local[4]"), spark({"runs": 3}), spark({"conf": {"spark.driver.memory": "2g"}})]
    assert len({first, *map(path, others)}) == 4
    # Spark's own settings have changed.
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text("")
    monkeypatch.setenv("SPARK_CONF_DIR", str(conf))
    second = path(spark())
    os.utime(conf / "spark-defaults.conf", ns=(1, 1))
    assert len({first, second, path(spark())}) == 3


def test_without_the_extra_spark_submit_starts_the_job(tmp_path: Path) -> None:
    for engine in (None, False):
        command = submit_command(stream(tmp_path), spark(engine), WINDOW_JOB, [])
        assert Path(command[0]).name == "spark-submit"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"run": 3}, "run: unknown key"),
        ({"runs": 0}, "runs: expected a number of at least 1"),
        ("yes", "engine: expected a map with keys among runs"),
        ({"conf": {"spark.ssl.keyPassword": "canary"}}, "spark.ssl.keyPassword holds a secret"),
        ({"conf": {"spark.submit.deployMode": "cluster"}}, "expected client"),
    ],
)
def test_settings_of_an_engine_are_checked(given: object, said: str) -> None:
    with pytest.raises(WrongUse, match="connection spark_default: engine among its extras") as caught:
        warm_engine(spark(given))
    assert said in str(caught.value)
    assert "canary" not in str(caught.value)


@pytest.mark.usefixtures("engines")
def test_a_folder_that_others_can_enter_is_refused(engines: Path, tmp_path: Path) -> None:
    assert sockets() == []
    assert folder() == engines
    assert engines.stat().st_mode & 0o777 == 0o700
    path = socket_path("spark_default", [])
    path.touch()
    assert sockets() == [path]
    engines.chmod(0o750)
    assert sockets() == []
    with pytest.raises(WrongUse, match="not a folder that only this user can enter"):
        folder()
    engines.rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").chmod(0o700)
    # A link may lead to a folder of another user's choice.
    engines.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WrongUse, match="not a folder that only this user can enter"):
        folder()
    # Anybody can make a link that leads nowhere, or a file, in a folder that all share.
    shutil.rmtree(tmp_path / "elsewhere")
    for _ in ("a link", "a file"):
        assert sockets() == []
        with pytest.raises(
            WrongUse, match=r"not a folder that only this user can enter.*another folder in TIDEMARK_ENGINES"
        ):
            folder()
        engines.unlink()
        engines.touch()


@pytest.mark.usefixtures("engines")
def test_another_name_of_the_same_python_finds_the_same_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task of Airflow may run as `python3`, and a person types `python`."""
    orders = stream(tmp_path)

    def engine() -> str:
        return submit_command(orders, spark(), WINDOW_JOB, [], {})[4]

    first = engine()
    monkeypatch.setattr(sys, "executable", str(Path(sys.executable).with_name("python3.x")))
    assert engine() == first
    monkeypatch.setattr(sys, "prefix", "/another")
    assert engine() != first


def test_a_path_that_no_socket_can_have_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path / ("long" * 30)))
    with pytest.raises(WrongUse, match="longer than 107 bytes"):
        socket_path("spark_default", [])


def test_values_and_open_files_go_over_a_socket() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, Path(os.devnull).open() as file:
        large = {"do": "run", "environment": {"A": "x" * 200_000}}
        data, received = bytearray(), []
        theirs.setblocking(False)
        ours.setblocking(True)
        client.send(ours, {"do": "status"}, (file.fileno(),))
        body, (right,), _, _ = theirs.recvmsg(1 << 20, socket.CMSG_SPACE(4))
        data += body
        received.append(client.taken(data))
        assert received == [{"do": "status"}]
        assert client.taken(data) is None
        assert len(right[2]) == 4
        os.close(int.from_bytes(right[2], sys.byteorder))
        sending = json.dumps(large).encode()
        data += len(sending).to_bytes(4, "big") + sending[:100_000]
        assert client.taken(data) is None
        data += sending[100_000:] + b"\0\0"
        assert client.taken(data) == large
        assert data == b"\0\0"
    with pytest.raises(ValueError, match="4294967295 bytes"):
        client.taken(bytearray(b"\xff" * 8))


def test_an_engine_gets_nothing_of_the_stream_that_starts_it() -> None:
    given = {
        "PATH": "/bin",
        "AIRFLOW_CONN_KAFKA_DEFAULT": "canary",
        "AIRFLOW__CORE__FERNET_KEY": "canary",
        "AIRFLOW_CTX_DAG_ID": "orders",
        "PYTHONPATH": "/orders",
        "PYSPARK_PYTHON": "/bin/python",
        "TZ": "UTC",
    }
    assert client.environment_of_engine(given) == {"PATH": "/bin", "PYSPARK_PYTHON": "/bin/python", "TZ": "UTC"}


def test_an_engine_that_does_not_start_says_why(tmp_path: Path) -> None:
    start = [sys.executable, "-c", "import sys; print('no such queue'); sys.exit(3)"]
    command = [sys.executable, "-I", "-S", client.__file__, str(tmp_path / "a.sock"), "--start", *start, "--", "job.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 5
    assert "tidemark: EngineEnded: the engine did not start: it ended with code 3" in done.stderr
    assert done.stderr.rstrip().endswith("no such queue")
    log = tmp_path / "a.sock.log"
    assert log.stat().st_mode & 0o777 == 0o600


def test_which_streams_have_code_of_their_own(tmp_path: Path) -> None:
    assert not stream(tmp_path).has_own_code
    transform = "transform: {function: 'mine:work', fields: {a: string}}"
    assert stream(tmp_path, transform).has_own_code
