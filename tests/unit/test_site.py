"""Where a copy of the servers lives: its folder and its ports, as the environment says."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.errors import ServiceError
from services.site import DEFAULT_PORT_BASE, PORT_NAMES, REPOSITORY, Site


def site(monkeypatch: pytest.MonkeyPatch, **variables: str | Path) -> Site:
    """The site of an environment in which just these variables are set."""
    for name in ("TIDEMARK_STATE", "TIDEMARK_PORT_BASE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, str(value))
    return Site.from_environment()


def ports(of: Site) -> list[int]:
    return [of.port(name) for name in PORT_NAMES]


def test_the_default_is_inside_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    found = site(monkeypatch)
    assert found.state == REPOSITORY / ".local" / "site"
    assert found.jars == REPOSITORY / ".local" / "jars"
    assert found.address("kafka") == f"127.0.0.1:{DEFAULT_PORT_BASE}"


def test_a_variable_that_is_set_to_nothing_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert site(monkeypatch, TIDEMARK_STATE="", TIDEMARK_PORT_BASE="") == site(monkeypatch)


def test_folder_and_ports_follow_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = site(monkeypatch, TIDEMARK_STATE=tmp_path / "mine", TIDEMARK_PORT_BASE="20000")
    assert found.log_file("kafka").is_relative_to(tmp_path / "mine")
    assert found.folder("kafka", "data") == tmp_path / "mine" / "kafka" / "data"
    assert found.folder("kafka", "data").is_dir()
    assert sorted(ports(found)) == list(range(20000, 20000 + len(PORT_NAMES)))
    # The jars are the same for every copy, and are fetched once.
    assert found.jars == site(monkeypatch).jars


def test_a_relative_folder_means_the_same_in_every_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each server is started in a folder of its own: a path has to be the same from there."""
    monkeypatch.chdir(tmp_path)
    assert site(monkeypatch, TIDEMARK_STATE="mine").state == tmp_path / "mine"


def test_two_bases_give_no_common_port(monkeypatch: pytest.MonkeyPatch) -> None:
    one = site(monkeypatch, TIDEMARK_PORT_BASE="20000")
    neighbour = site(monkeypatch, TIDEMARK_PORT_BASE=str(20000 + len(PORT_NAMES)))
    assert len({*ports(one), *ports(neighbour)}) == 2 * len(PORT_NAMES)


def test_the_highest_base_has_room_for_every_port(monkeypatch: pytest.MonkeyPatch) -> None:
    highest = site(monkeypatch, TIDEMARK_PORT_BASE=str(65535 - len(PORT_NAMES)))
    assert max(ports(highest)) <= 65535


@pytest.mark.parametrize("base", ["kafka", "-1", "0", "80", "1023", "26300.0", " 26300", "65530", "1" * 5000])
def test_a_base_that_is_none_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, base: str) -> None:
    expected = f"a whole number from 1024 to {65535 - len(PORT_NAMES)}"
    with pytest.raises(ServiceError, match=rf"TIDEMARK_PORT_BASE='.*: expected {expected}"):
        site(monkeypatch, TIDEMARK_PORT_BASE=base)


def test_a_state_that_is_no_folder_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for state in (file, file / "below"):
        with pytest.raises(ServiceError, match=f"TIDEMARK_STATE='{state}': {file} is not a folder"):
            site(monkeypatch, TIDEMARK_STATE=state)
