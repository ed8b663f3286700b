"""The servers of a copy: started in order or not at all, found again after any crash, and ended without a neighbour."""

from __future__ import annotations

import ipaddress
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from services import control, processes
from services.errors import ServiceError
from services.servers import SERVERS
from services.site import REPOSITORY, Site
from tests.support.servers import free_ports

MakeSite = Callable[[str], Site]
Command = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def make_site(tmp_path: Path) -> Iterator[MakeSite]:
    """Makes copies of the servers with folders and ports of their own; what runs of them ends with the test."""
    made: list[Site] = []

    def make(name: str) -> Site:
        base = next(base for base in iter(free_ports, None) if base not in [site.port_base for site in made])
        made.append(Site(tmp_path / name, base, REPOSITORY / ".local" / "jars"))
        return made[-1]

    yield make
    for site in made:
        control.down(site)


@pytest.fixture
def own(make_site: MakeSite) -> Site:
    return make_site("site")


@pytest.fixture
def command(own: Site) -> Iterator[Command]:
    """Starts `python -m services ...` for this test's copy; it does not outlive the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        place = {"TIDEMARK_STATE": str(own.state), "TIDEMARK_PORT_BASE": str(own.port_base)}
        process = subprocess.Popen(
            [sys.executable, "-m", "services", *arguments],
            cwd=REPOSITORY,
            env={**os.environ, **place},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for a command's end; gives its exit code, output and errors."""
    out, errors = process.communicate(timeout=120)
    return process.returncode, out, errors


def until_running(site: Site, server: str) -> list[psutil.Process]:
    """Wait for the moment at which a server has a process; it is far from ready then."""
    deadline = time.monotonic() + 60
    while not (found := processes.running(site, server)):
        assert time.monotonic() < deadline, f"{server} was not started"
        time.sleep(0.01)
    return found


def gone(process: psutil.Process) -> bool:
    """Whether a process has ended; one that nobody has asked for its exit code has ended too."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address; one of IPv4 that is written as one of IPv6, as Java does, is that of IPv4."""
    found = ipaddress.ip_address(text)
    return (found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None) or found


# What is said when servers cannot start


def test_a_port_in_use_is_said_before_anything_is_started(own: Site) -> None:
    taken = own.port("kafka-controller")
    with (
        socket.create_server(("127.0.0.1", taken)),
        pytest.raises(ServiceError, match=rf"^kafka needs port {taken} .*uses.*set TIDEMARK_PORT_BASE"),
    ):
        control.up(own, ("zookeeper", "kafka"))
    assert processes.running(own) == []
    assert not own.log_file("zookeeper").exists()


def test_a_server_that_dies_while_starting_shows_why(own: Site) -> None:
    # ZooKeeper keeps its data in a folder of this name; here a file is in its place.
    (own.folder("zookeeper", "data") / "version-2").touch()
    with pytest.raises(ServiceError) as caught:
        control.up(own, ("zookeeper", "hbase-master"))
    first, *end_of_log = str(caught.value).splitlines()
    log = own.log_file("zookeeper")
    assert re.fullmatch(rf"zookeeper ended with code \d+ while starting\. The end of its log {log}:", first)
    assert end_of_log == log.read_text().splitlines()[-len(end_of_log) :]
    assert f"{own.state}/zookeeper/data/version-2/snapshot.0 (Not a directory)" in str(caught.value)
    # What waits for it was not started.
    assert processes.running(own) == []
    assert not own.log_file("hbase-master").exists()


def test_a_server_that_cannot_be_started_at_all(own: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServiceError, match=r"^zookeeper could not be started: .*'java'"):
        control.up(own, ("zookeeper", "hbase-master"))
    assert not own.log_file("hbase-master").exists()


def test_too_little_disk_is_said_before_anything_is_started(own: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "NEEDED_DISK_BYTES", 10**18)
    message = rf"^{own.state} has \d+\.\d GB free; the servers need 1000000000\.0 GB\. .*TIDEMARK_STATE"
    with pytest.raises(ServiceError, match=message):
        control.up(own, ("zookeeper",))
    assert processes.running(own) == []


# Up and down, also after a crash


def test_up_leaves_alone_what_runs(own: Site) -> None:
    reports: list[str] = []
    control.up(own, ("zookeeper",), reports.append)
    before = processes.running(own)
    assert len(before) == len(reports) == 1
    control.up(own, ("zookeeper",), reports.append)
    # Equal are processes with the same pid and the same time of their start.
    assert processes.running(own) == before
    assert len(reports) == 1


@pytest.mark.full
def test_down_ends_what_a_killed_up_has_started_and_nothing_else(
    own: Site, make_site: MakeSite, command: Command
) -> None:
    neighbour = make_site("site-2")
    control.up(neighbour, ("zookeeper",))
    bystanders = processes.running(neighbour)
    marks = {processes.SITE_MARK: str(neighbour.state), processes.SERVER_MARK: "zookeeper"}
    with subprocess.Popen(["sleep", "600"], env={**os.environ, **marks}) as sleep, ExitStack() as ends:
        # Also when this test fails: nobody waits for ten minutes then.
        ends.callback(sleep.kill)
        bystanders.append(psutil.Process(sleep.pid))
        # Kafka and HBase take long enough to be ready that it is still at work below.
        up = command("up", *control.DATA_SERVERS)
        started = [*until_running(own, "hbase-master"), *until_running(own, "zookeeper")]
        # While it is at work, nobody takes its servers away.
        code, _, errors = said(command("down"))
        assert (code, errors) == (5, f"another up or down is at work in {own.state}; wait for it, then try again\n")
        assert up.poll() is None
        up.kill()
        up.wait()
        assert not any(gone(process) for process in started)
        assert said(command("down"))[0] == 0
        assert all(gone(process) for process in started)
        assert not any(gone(process) for process in bystanders)
    SERVERS["zookeeper"].ready(neighbour)


def test_up_waits_for_what_a_killed_up_has_started(own: Site, command: Command) -> None:
    up = command("up", "zookeeper")
    started = until_running(own, "zookeeper")
    up.kill()
    up.wait()
    control.up(own, ("zookeeper",))
    SERVERS["zookeeper"].ready(own)
    assert processes.running(own) == started


def test_an_interrupted_up_starts_nothing_more(own: Site, command: Command) -> None:
    # A program that is started by one that ignores this signal would ignore it too, as in a shell's background.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        up = command("up", "zookeeper", "hbase-master")
    finally:
        signal.signal(signal.SIGINT, before)
    started = until_running(own, "zookeeper")
    up.send_signal(signal.SIGINT)
    code, _, errors = said(up)
    assert (code, errors) == (130, "\nInterrupted. Still running: zookeeper. `./run down` ends it.\n")
    assert processes.running(own) == started
    assert not own.log_file("hbase-master").exists()


# What can be asked


@pytest.mark.parametrize("server", control.DATA_SERVERS)
def test_servers_listen_on_this_machine_only(site: Site, server: str) -> None:
    connections = [one for process in processes.running(site, server) for one in process.net_connections("tcp")]
    addresses = {address(one.laddr.ip) for one in connections if one.status == psutil.CONN_LISTEN}
    assert addresses
    assert {one for one in addresses if not one.is_loopback} == set()


def test_status_has_a_line_for_each_server(own: Site, command: Command) -> None:
    control.up(own, ("zookeeper",))
    code, out, _ = said(command("status"))
    lines = {line.split()[0]: line.split()[1:] for line in out.splitlines()}
    assert code == 0
    # All but the one that is a step and not a process.
    assert set(lines) == set(SERVERS) - {"airflow-database"}
    assert lines.pop("zookeeper") == ["ready", own.address("zookeeper")]
    assert lines["kafka"] == ["stopped", f"{own.address('kafka')},", own.address("kafka-controller")]
    assert {state for state, *_ in lines.values()} == {"stopped"}


def test_logs_shows_a_servers_log_and_knows_the_names(own: Site, command: Command) -> None:
    assert said(command("logs", "zookeeper")) == (5, "", f"zookeeper has no log yet ({own.log_file('zookeeper')})\n")
    own.log_file("zookeeper").write_text("all is well\n")
    assert said(command("logs", "zookeeper")) == (0, "all is well\n", "")
    names = ", ".join(control.ALL)
    assert said(command("logs", "nosuch")) == (5, "", f"no server is called 'nosuch'; there are: {names}\n")
