"""docker-compose.yaml and docker/ are valid and safe, by their text. `./run test compose` starts them for real."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from services.servers import HBASE_OPENS
from tests.support.covering import REPOSITORY
from tidemark.streams.loading import load, stream_files

FILE = REPOSITORY / "docker-compose.yaml"
DOCKER = REPOSITORY / "docker"
TEMPLATES = REPOSITORY / "services" / "templates"
DOCKERFILES = sorted(DOCKER.glob("*.Dockerfile"))
PREPARE = DOCKER / "prepare"

COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ONE_SHOT = {"airflow-init", "first-lines"}


def problems_by_the_specification(file: Path) -> list[str]:
    """By its schema, which comes with check-jsonschema."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, "--output-format", "json", str(file)], capture_output=True, text=True)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert not report.get("parse_errors")
    return [f"{error['path']}: {error['message']}" for error in report.get("errors", [])]


@pytest.mark.slow
def test_it_is_valid_by_the_compose_specification(tmp_path: Path) -> None:
    assert problems_by_the_specification(FILE) == []
    broken = tmp_path / FILE.name
    broken.write_text(FILE.read_text().replace("    healthcheck:", "    healthchecks:", 1))
    assert problems_by_the_specification(broken)


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_may_do_little(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"]
    assert {"max-size", "max-file"} == service["logging"]["options"].keys()
    assert not {"privileged", "cap_add", "network_mode", "pid", "devices"} & service.keys()
    if "dockerfile" in service.get("build", {}):
        last_stage = (REPOSITORY / service["build"]["dockerfile"]).read_text().rpartition("\nFROM ")[2]
        (user,) = re.findall(r"^USER (\S+)$", last_stage, re.MULTILINE)
        assert user not in ("root", "0")
    elif not service["image"].endswith(":local"):
        assert service["user"] not in ("root", "0")


def test_each_image_is_built_by_one_service() -> None:
    """With a second one, `up` starts everything anew although nothing has changed."""
    built = Counter(service["image"] for service in SERVICES.values() if "build" in service)
    assert built == {"tidemark-servers:local": 1, "tidemark-airflow:local": 1}
    assert {one["image"] for one in SERVICES.values() if one["image"].endswith(":local")} == built.keys()


def test_an_image_from_elsewhere_has_a_version() -> None:
    named = [service["image"] for service in SERVICES.values() if not service["image"].endswith(":local")]
    for dockerfile in DOCKERFILES:
        text = dockerfile.read_text()
        named += re.findall(r"^ARG \w+=(\S+:\S+)$", text, re.MULTILINE)
        # Each is an argument, so that whoever knows its digest can give it.
        assert all(one.startswith("${") for one in re.findall(r"^FROM (\S+)", text, re.MULTILINE))
    assert named
    assert all(re.search(r":([0-9][\w.-]*|bookworm-slim)$", one) for one in named)


def test_ports_are_published_on_this_machine_only() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert sorted(ports) == ["127.0.0.1:29092:29092", "127.0.0.1:8080:8080"]


def test_no_secret_stands_in_the_file() -> None:
    """A setting whose name promises a secret, or a URL with a password, has the secret's name in the place of it."""
    for service in SERVICES.values():
        for key, value in service.get("environment", {}).items():
            secrets = [value] if re.search(r"PASSWORD$|SECRET|TOKEN|_KEY$", key) else []
            secrets += re.findall(r"://[^/@:]*:(.*)@\w+:\d", value)
            secrets += re.findall(r'"password": "(.*?)"', value)
            assert all(re.fullmatch(r"@secret:[A-Z_]+@", secret) for secret in secrets), key
            asked = re.findall(r"@secret:([A-Z_]+)@", value)
            assert {*asked} <= {*service.get("secrets", [])}, key
    assert all(how == {"environment": name} for name, how in COMPOSE["secrets"].items())


def test_the_profile_sql_has_neither_hbase_nor_zookeeper() -> None:
    small = {name for name, service in SERVICES.items() if "sql" in service["profiles"]}
    assert small == {
        *("kafka", "postgres", "first-lines", "airflow-init"),
        *("airflow-api", "airflow-scheduler", "airflow-dag-processor", "airflow-triggerer"),
    }
    assert all("full" in service["profiles"] for service in SERVICES.values())
    for name in small:
        for other, how in SERVICES[name].get("depends_on", {}).items():
            assert other in small or how["required"] is False, f"{name} waits for {other}"
    (file,) = stream_files(DOCKER / "streams")
    stream = load(file).stream
    places = (stream.ledger.type, stream.dead_letters.type, *(sink.type for sink in stream.sinks))
    assert places == ("sql", "sql", "parquet", "kafka")


def test_what_runs_long_has_a_health_check_and_comes_back() -> None:
    for name in SERVICES.keys() - ONE_SHOT:
        assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"
        assert SERVICES[name]["restart"] == "unless-stopped"


# .env


def prepared(
    folder: Path, *words: str, env: str | None = None
) -> tuple[subprocess.CompletedProcess[str], dict[str, str]]:
    """What docker/prepare says, and the .env that is there then."""
    (folder / "docker").mkdir(exist_ok=True)
    for file in (PREPARE, DOCKER / "example.env"):
        (folder / "docker" / file.name).write_bytes(file.read_bytes())
    made = folder / ".env"
    if env is not None:
        made.write_text(env)
    command = ["bash", str(folder / "docker" / "prepare"), *words]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True)
    lines = made.read_text().splitlines() if made.exists() else []
    return done, dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def names_of_the_example() -> set[str]:
    return set(re.findall(r"^([A-Z_]+)=$", (DOCKER / "example.env").read_text(), re.MULTILINE))


@pytest.mark.parametrize("profile", ["sql", "full"])
def test_prepare_writes_what_the_file_asks_for(tmp_path: Path, profile: str) -> None:
    done, values = prepared(tmp_path, profile)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / ".env").stat().st_mode & 0o077 == 0
    asked = {*re.findall(r"\$\{([A-Z_]+)", FILE.read_text()), *COMPOSE["secrets"], "COMPOSE_PROFILES"}
    assert values.keys() == asked == names_of_the_example()
    assert values["COMPOSE_PROFILES"] == profile
    assert stream_files(REPOSITORY / values["TIDEMARK_STREAM_FILES"])
    secrets = [values[name] for name in COMPOSE["secrets"]]
    assert len(set(secrets)) == len(secrets)
    # As Fernet asks for its key, and safe in a URL.
    assert all(len(base64.urlsafe_b64decode(one)) == 32 and not set(one) & set("/+@:#%") for one in secrets)


@pytest.mark.parametrize("end", ["", "\n"])
def test_prepare_changes_nothing_that_is_there(tmp_path: Path, end: str) -> None:
    mine = f"# ours\nTIDEMARK_FERNET_KEY=kept\nTIDEMARK_JWT_SECRET=\nTIDEMARK_SQL_PASSWORD=also kept{end}"
    done, values = prepared(tmp_path, "sql", env=mine)
    assert done.returncode == 0, done.stderr
    assert "kept" not in done.stdout, "it shows secrets"
    assert (tmp_path / ".env").read_text().startswith("# ours\nTIDEMARK_FERNET_KEY=kept\n")
    assert (values["TIDEMARK_FERNET_KEY"], values["TIDEMARK_SQL_PASSWORD"]) == ("kept", "also kept")
    assert values["TIDEMARK_JWT_SECRET"]
    assert values.keys() == names_of_the_example()
    again, same = prepared(tmp_path, "sql")
    assert (again.returncode, same) == (0, values)
    other, same = prepared(tmp_path, "full")
    assert (other.returncode, same) == (2, values)
    assert "COMPOSE_PROFILES=sql" in other.stderr


@pytest.mark.parametrize("words", [[], ["hbase"]])
def test_prepare_asks_for_a_profile_that_there_is(tmp_path: Path, words: list[str]) -> None:
    done, values = prepared(tmp_path, *words)
    assert (done.returncode, values) == (2, {})
    assert "sql|full" in done.stderr


# Images


@pytest.mark.covers("N78")
def test_images_have_hashes_for_all_they_install() -> None:
    text = (DOCKER / "airflow.Dockerfile").read_text().replace("\\\n", " ")
    from_index = [line for line in re.findall(r"pip[^&\n]* install [^&\n]*", text) if "--no-index" not in line]
    assert from_index
    assert all("--require-hashes" in line for line in from_index)
    for dockerfile in DOCKERFILES:
        assert re.search(r"mvn .*\n?.*check_jars\.sh", dockerfile.read_text().replace("\\\n", " "), re.DOTALL)


@pytest.mark.covers("N78")
def test_a_jar_that_is_another_ends_the_build(tmp_path: Path) -> None:
    script = tmp_path / "check_jars.sh"
    script.write_bytes((DOCKER / "check_jars.sh").read_bytes())
    folder = tmp_path / "jars"
    folder.mkdir()
    (folder / "a-1.jar").write_bytes(b"a")
    sum_of = subprocess.run(["sha256sum", "a-1.jar"], cwd=folder, capture_output=True, check=True).stdout
    (tmp_path / "jars.sha256").write_bytes(sum_of)

    def checked() -> tuple[int, str]:
        done = subprocess.run(["bash", str(script), str(folder)], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    assert checked() == (0, "")
    (folder / "b-1.jar").write_bytes(b"b")
    code, says = checked()
    assert code
    assert "b-1.jar is not in jars.sha256" in says
    (folder / "b-1.jar").unlink()
    (folder / "a-1.jar").write_bytes(b"b")
    code, says = checked()
    assert code
    assert "a-1.jar: FAILED" in says


def test_what_is_copied_is_there_and_is_sent_to_the_builder() -> None:
    for dockerfile in DOCKERFILES:
        sent = [
            line.removeprefix("!")
            for line in Path(f"{dockerfile}.dockerignore").read_text().splitlines()
            if line.startswith("!")
        ]
        copied = re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile.read_text(), re.MULTILINE)
        sources = [word for line in copied for word in line.split() if not word.startswith("--")]
        assert sources
        for source in sources:
            assert (REPOSITORY / source).exists(), source
            assert any(Path(source).is_relative_to(folder) for folder in sent), f"{source} is not sent"
        for folder in sent:
            assert any(Path(source).is_relative_to(folder) for source in sources), f"{folder} is sent for nothing"


def test_the_document_names_services_that_there_are() -> None:
    text = (REPOSITORY / "docs" / "compose.md").read_text()
    named = re.findall(r"docker compose (?:exec|logs)(?: -T)? (\S+)", text)
    assert named
    assert set(named) <= set(SERVICES)
    table = re.findall(r"^\| (`.+?`) \|", text.partition("## What runs")[2], re.MULTILINE)
    assert {name for row in table for name in re.findall(r"`(.+?)`", row)} == set(SERVICES)


# The servers' settings are those that the tests run with; only addresses and folders differ.


def properties(file: Path) -> dict[str, str]:
    lines = [line.strip() for line in file.read_text().splitlines()]
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def site_xml(file: Path) -> dict[str, str]:
    found = ET.parse(file).getroot().iter("property")
    return {entry.findtext("name", ""): entry.findtext("value", "") for entry in found}


@pytest.mark.parametrize(
    ("file", "read", "other"),
    [
        (
            "kafka.properties",
            properties,
            # Addresses and folders, and what makes tests quicker.
            {
                *("controller.quorum.voters", "listeners", "advertised.listeners", "log.dirs"),
                *("listener.security.protocol.map", "inter.broker.listener.name"),
                *(
                    "log.retention.check.interval.ms",
                    "log.cleaner.backoff.ms",
                    "log.initial.task.delay.ms",
                    "metadata.max.idle.interval.ms",
                ),
            },
        ),
        ("zoo.cfg", properties, {"dataDir", "clientPort", "clientPortAddress"}),
        (
            "hbase-site.xml",
            site_xml,
            {
                *("hbase.rootdir", "hbase.tmp.dir", "hbase.zookeeper.quorum", "hbase.zookeeper.property.clientPort"),
                *("hbase.master.port", "hbase.regionserver.port", "hbase.master.ipc.address"),
                *("hbase.regionserver.ipc.address", "hbase.unsafe.master.hostname"),
                *("hbase.unsafe.regionserver.hostname", "hbase.hfile.compaction.discharger.interval"),
            },
        ),
    ],
)
def test_servers_are_set_as_without_containers(file: str, read: Any, other: set[str]) -> None:
    here, there = read(DOCKER / "servers" / file), read(TEMPLATES / file)
    assert other <= here.keys() | there.keys()
    assert {key: here[key] for key in here.keys() - other} == {key: there[key] for key in there.keys() - other}


def test_hbase_has_the_java_flags_that_it_has_without_containers() -> None:
    script = (DOCKER / "servers" / "server.sh").read_text()
    assert re.findall(r"^  (--add-\S+)$", script, re.MULTILINE) == HBASE_OPENS
