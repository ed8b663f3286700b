"""docker-compose.yaml and docker/: checked as text, since no container engine is asked for. CI does not start them."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from services import environment, jars
from services.servers import HBASE_OPENS
from services.site import Site
from tests.support.covering import REPOSITORY
from tidemark.clients.connections import from_environment
from tidemark.clients.hbase.endpoint import hbase2_endpoint, hbase_endpoint
from tidemark.clients.kafka.endpoint import kafka_endpoint
from tidemark.clients.lake import lake_folder
from tidemark.clients.zookeeper import zookeeper_endpoint
from tidemark.streams.loading import load, stream_files

FILE = REPOSITORY / "docker-compose.yaml"
DOCKER = REPOSITORY / "docker"
TEMPLATES = REPOSITORY / "services" / "templates"
DOCKERFILES = sorted(DOCKER.glob("*.Dockerfile"))

COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
AIRFLOW = [name for name in SERVICES if name.startswith("airflow-")]

# `${NAME:?why}`: taken from the environment, and an error where it is missing or empty.
FROM_ENVIRONMENT = re.compile(r"\$\{([A-Z_]+):\?[^}]+\}")


def test_each_server_is_a_service_of_its_own() -> None:
    assert set(SERVICES) == {
        *("zookeeper", "kafka", "hbase-master", "hbase-region", "hbase-thrift", "hbase-thrift2"),
        *("spark-master", "spark-worker"),
        *("postgres", "airflow-init", "airflow-api", "airflow-scheduler", "airflow-dag-processor", "airflow-triggerer"),
    }


# The compose specification: its schema comes with check-jsonschema, at the version that is pinned.


def problems_by_the_specification(file: Path) -> list[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, "--output-format", "json", str(file)], capture_output=True, text=True)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert not report.get("parse_errors")
    return [f"{error['path']}: {error['message']}" for error in report.get("errors", [])]


def test_it_is_valid_by_the_compose_specification() -> None:
    assert problems_by_the_specification(FILE) == []


def test_the_specification_refuses_a_misspelt_key(tmp_path: Path) -> None:
    broken = tmp_path / FILE.name
    broken.write_text(FILE.read_text().replace("    healthcheck:", "    healthchecks:", 1))
    (problem, *_) = problems_by_the_specification(broken)
    assert "$.services.zookeeper" in problem


# Images


def stages(dockerfile: Path) -> list[tuple[str, str | None]]:
    """(base image, name) of each stage."""
    found = re.findall(r"^FROM (\S+)(?: AS (\S+))?$", dockerfile.read_text(), re.MULTILINE)
    return [(image, name or None) for image, name in found]


def has_version(image: str) -> bool:
    """An explicit tag that is not `latest`: a number or a release's name."""
    _, _, tag = image.partition(":")
    return bool(re.fullmatch(r"[0-9][\w.-]*|bookworm-slim", tag))


@pytest.mark.parametrize("image", ["postgres", "postgres:latest", "debian:stable", "python:slim"])
def test_an_image_without_a_version_would_be_noticed(image: str) -> None:
    assert not has_version(image)


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_built_from_docker_or_have_a_version(name: str) -> None:
    service = SERVICES[name]
    if "build" not in service:
        assert has_version(service["image"])
        return
    assert service["build"]["context"] == "."
    assert REPOSITORY / service["build"]["dockerfile"] in DOCKERFILES


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_base_images_have_versions(dockerfile: Path) -> None:
    assert stages(dockerfile)
    for image, _ in stages(dockerfile):
        assert has_version(image), image


@pytest.mark.parametrize("name", SERVICES)
def test_nothing_runs_as_root(name: str) -> None:
    service = SERVICES[name]
    if "build" in service:
        last_stage = (REPOSITORY / service["build"]["dockerfile"]).read_text().rpartition("\nFROM ")[2]
        (user,) = re.findall(r"^USER (\S+)$", last_stage, re.MULTILINE)
    else:
        user = service["user"]
    assert user not in ("root", "0")


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_what_is_copied_is_there_and_is_sent_to_the_builder(dockerfile: Path) -> None:
    ignore = Path(f"{dockerfile}.dockerignore").read_text().splitlines()
    assert "*" in ignore
    sent = [line.removeprefix("!") for line in ignore if line.startswith("!")]
    copied = []
    for line in re.findall(r"^COPY (?!--from)(.+)$", dockerfile.read_text(), re.MULTILINE):
        copied += [word for word in line.split()[:-1] if not word.startswith("--")]
    assert copied
    for source in copied:
        assert (REPOSITORY / source).exists(), source
        assert any(Path(source).is_relative_to(folder) for folder in sent), f"{source} is not sent"
    for folder in sent:
        assert any(Path(source).is_relative_to(folder) for source in copied), f"{folder} is sent for nothing"


# Versions


def texts() -> dict[str, str]:
    """Everything in which a version could stand again; the pins of docker/requirements.txt are pins themselves."""
    files = [path for path in DOCKER.rglob("*") if path.is_file() and path != DOCKER / "requirements.txt"]
    return {str(path.relative_to(REPOSITORY)): path.read_text() for path in [FILE, *files]}


def test_java_is_the_one_that_run_installs() -> None:
    (wanted, *_) = re.findall(r"openjdk-(\d+)-jdk-headless", (REPOSITORY / "run").read_text())
    for dockerfile in DOCKERFILES:
        named = re.findall(r"openjdk-(\d+)", dockerfile.read_text())
        assert named, dockerfile.name
        assert set(named) == {wanted}, dockerfile.name


def versions_named(text: str) -> list[str]:
    return re.findall(r"(?<![\d.])(?!127\.0\.0\.1)\d+\.\d+\.\d+[\w.-]*", text)


@pytest.mark.parametrize("text", ["kafka_2.13-4.3.1.jar", "pyspark==4.2.0", "hbase 2.6.4-hadoop3", "postgres:17.6.1"])
def test_a_version_named_again_would_be_noticed(text: str) -> None:
    assert versions_named(text)


def test_no_server_or_package_has_a_second_version() -> None:
    for name, text in texts().items():
        assert versions_named(text) == [], name


def test_packages_are_those_of_requirements_and_constraints() -> None:
    dockerfile = (DOCKER / "airflow.Dockerfile").read_text().replace("\\\n", " ")
    (install,) = re.findall(r"^RUN pip install (.+)$", dockerfile, re.MULTILINE)
    assert re.findall(r"(-[rc]) /build/(\S+)", install) == [
        ("-r", "requirements.txt"),
        ("-r", "docker/requirements.txt"),
        ("-c", "constraints.txt"),
    ]
    assert "==" not in install
    assert not any("_PIP_ADDITIONAL_REQUIREMENTS" in text for text in texts().values())


def pins(file: str) -> dict[str, str]:
    lines = [line.partition("#")[0].strip() for line in (REPOSITORY / file).read_text().splitlines()]
    return dict(line.split("==") for line in lines if line)


def test_the_containers_own_packages_are_pinned_here_only() -> None:
    own = pins("docker/requirements.txt")
    # Airflow asks for the database twice: with psycopg2 as the URL says, and asynchronously with asyncpg.
    assert set(own) == {"psycopg2-binary", "asyncpg"}
    assert not own.keys() & (pins("requirements.txt").keys() | pins("constraints.txt").keys())
    assert all("+psycopg2://" in settings_of(name)["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] for name in AIRFLOW)


def test_the_jars_are_those_of_the_pom() -> None:
    fetched = []
    for dockerfile in DOCKERFILES:
        text = dockerfile.read_text().replace("\\\n", " ")
        assert "COPY services/pom.xml /build/pom.xml" in text
        (profile,) = re.findall(r"mvn .*--file /build/pom.xml --activate-profiles (\S+)", text)
        loop = re.search(r"for profile in ([\w ]+);", text)
        fetched += loop[1].split() if loop and profile == '"$profile"' else [profile]
    # No container stands in for a bucket. Who has one brings Hadoop's part for it.
    assert sorted([*fetched, "hadoop-aws", "s3proxy"]) == sorted(jars.profiles())


def test_postgres_is_one_that_airflow_supports() -> None:
    (image,) = [service["image"] for service in SERVICES.values() if "build" not in service]
    name, _, tag = image.partition(":")
    assert name == "postgres"
    assert int(re.match(r"\d+", tag)[0]) in range(14, 19)  # type: ignore[index]  # Airflow's "Set up a Database Backend"


# Secrets


def settings_of(name: str) -> dict[str, str]:
    return SERVICES[name].get("environment", {})


def literal_secrets(settings: dict[str, str]) -> list[str]:
    """The settings whose name promises a secret, or whose value is a URL with a password, and which hold it as text."""
    found = []
    for key, value in settings.items():
        secrets = [value] if re.search(r"PASSWORD$|SECRET|TOKEN|_KEY$", key) else []
        secrets += re.findall(r"://[^/@:]*:(.*)@", value)
        if not all(FROM_ENVIRONMENT.fullmatch(secret) for secret in secrets):
            found.append(key)
    return found


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("POSTGRES_PASSWORD", "airflow"),
        ("AIRFLOW__CORE__FERNET_KEY", ""),
        ("AIRFLOW__API_AUTH__JWT_SECRET", "${TIDEMARK_JWT_SECRET:-changeme}"),
        ("AIRFLOW__API__SECRET_KEY", "${TIDEMARK_API_SECRET_KEY}"),
        ("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "postgresql+psycopg2://airflow:airflow@postgres/airflow"),
    ],
)
def test_a_literal_secret_would_be_noticed(key: str, value: str) -> None:
    assert literal_secrets({key: value}) == [key]


@pytest.mark.parametrize("name", SERVICES)
def test_no_secret_stands_in_the_file(name: str) -> None:
    assert literal_secrets(settings_of(name)) == []


def example() -> dict[str, str]:
    lines = (DOCKER / "example.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_the_example_names_everything_that_is_asked_for_and_holds_nothing() -> None:
    asked = re.findall(r"\$\{([A-Z_]+)", FILE.read_text())
    assert len(set(asked)) == 6
    assert asked == FROM_ENVIRONMENT.findall(FILE.read_text()), "a variable has a default, or may be empty"
    assert example() == dict.fromkeys(asked, "")


def test_the_line_in_the_example_makes_the_secrets(tmp_path: Path) -> None:
    (line,) = re.findall(r"^#   (\(umask .+)$", (DOCKER / "example.env").read_text(), re.MULTILINE)
    assert line in (REPOSITORY / "docs" / "compose.md").read_text()
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "example.env").write_bytes((DOCKER / "example.env").read_bytes())
    subprocess.run(["bash", "-c", line], cwd=tmp_path, check=True)
    made = tmp_path / ".env"
    assert made.stat().st_mode & 0o077 == 0
    values = dict(text.split("=", 1) for text in made.read_text().splitlines())
    assert values.keys() == example().keys()
    assert len(set(values.values())) == len(values)
    # As Fernet asks for its key, and safe in a URL.
    assert all(len(base64.urlsafe_b64decode(value)) == 32 for value in values.values())
    assert not any(set(value) & set("/+@:#%") for value in values.values())


def test_git_passes_over_the_secrets() -> None:
    assert "/.env" in (REPOSITORY / ".gitignore").read_text().splitlines()


def test_only_airflow_knows_airflows_secrets() -> None:
    others = set(SERVICES) - set(AIRFLOW)
    assert [name for name in others if FROM_ENVIRONMENT.search(str(SERVICES[name]))] == ["postgres"]
    assert [name for name in AIRFLOW if "TIDEMARK_ADMIN_PASSWORD" in str(SERVICES[name])] == ["airflow-api"]
    shared = ("AIRFLOW__API_AUTH__JWT_SECRET", "AIRFLOW__API__SECRET_KEY", "AIRFLOW__CORE__FERNET_KEY")
    for setting in (*shared, "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"):
        assert len({settings_of(name)[setting] for name in AIRFLOW}) == 1, setting


# Ports


def open_to_others(ports: list[Any]) -> list[Any]:
    """The published ports that are not on 127.0.0.1, in either way of writing them."""
    addresses = [port.get("host_ip") if isinstance(port, dict) else str(port).rpartition(":")[0] for port in ports]
    return [
        port
        for port, address in zip(ports, addresses, strict=True)
        if not re.fullmatch(r"127\.0\.0\.1(:\d+)?", address or "")
    ]


@pytest.mark.parametrize(
    "port", ["8080", "8080:8080", 8080, "0.0.0.0:8080:8080", {"target": 8080, "published": "8080"}]
)
def test_a_port_that_is_open_to_others_would_be_noticed(port: Any) -> None:
    assert open_to_others([port]) == [port]


def test_ports_are_published_on_this_machine_only() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published.keys() == {"airflow-api", "kafka"}
    for name, ports in published.items():
        assert open_to_others(ports) == [], name
    assert not any("network_mode" in service for service in SERVICES.values())


def test_kafka_advertises_the_port_that_is_published() -> None:
    settings = properties(DOCKER / "servers" / "kafka.properties")
    advertised = dict(one.split("://") for one in settings["advertised.listeners"].split(","))
    (published,) = SERVICES["kafka"]["ports"]
    assert published == f"{advertised['HOST']}:{advertised['HOST'].rpartition(':')[2]}"


# Order and health


def waits_for(name: str) -> dict[str, str]:
    return {other: how["condition"] for other, how in SERVICES[name].get("depends_on", {}).items()}


def one_shot() -> set[str]:
    conditions = [pair for name in SERVICES for pair in waits_for(name).items()]
    return {name for name, condition in conditions if condition == "service_completed_successfully"}


def test_the_database_is_migrated_once_before_the_rest_of_airflow() -> None:
    assert one_shot() == {"airflow-init"}
    assert SERVICES["airflow-init"]["command"] == ["airflow", "db", "migrate"]
    assert SERVICES["airflow-init"]["restart"] == "no"
    for name in set(AIRFLOW) - one_shot():
        assert "airflow-init" in everything_before(name), name


def everything_before(name: str) -> set[str]:
    return set(waits_for(name)).union(*(everything_before(other) for other in waits_for(name)))


@pytest.mark.parametrize("name", SERVICES)
def test_whoever_is_waited_for_is_a_service_that_can_say_it_is_ready(name: str) -> None:
    for other, condition in waits_for(name).items():
        assert other in SERVICES
        assert condition != "service_started"
        assert (condition == "service_healthy") == ("healthcheck" in SERVICES[other])
    assert name not in everything_before(name)


def test_a_task_finds_all_its_servers_ready() -> None:
    assert set(SERVICES) - set(AIRFLOW) <= everything_before("airflow-scheduler")


@pytest.mark.parametrize("name", SERVICES)
def test_what_runs_long_has_a_health_check_and_comes_back(name: str) -> None:
    if name in one_shot():
        return
    check = SERVICES[name]["healthcheck"]
    assert check["test"][0] == "CMD"
    assert not check.get("disable")
    assert {"interval", "timeout", "retries", "start_period"} <= check.keys()
    assert SERVICES[name]["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", [name for name in SERVICES if "servers" in str(SERVICES[name].get("build"))])
def test_the_scripts_know_each_server(name: str) -> None:
    assert SERVICES[name]["command"] == [name]
    assert SERVICES[name]["healthcheck"]["test"] == ["CMD", "/opt/servers/healthy.sh", name]
    for script in ("server.sh", "healthy.sh"):
        assert re.search(rf"^  {name}\)", (DOCKER / "servers" / script).read_text(), re.MULTILINE), script


def test_every_script_that_is_named_is_in_the_image() -> None:
    named = set(re.findall(r"/opt/tidemark/docker/(\w+\.py)", FILE.read_text()))
    assert named == {path.name for path in (DOCKER / "airflow").glob("*.py")}
    dockerfile = (DOCKER / "airflow.Dockerfile").read_text()
    (copied,) = re.findall(r"^COPY (.+) /opt/tidemark/docker/$", dockerfile, re.MULTILINE)
    assert {Path(source).name for source in copied.split()} == named


def test_the_documentation_names_services_that_there_are() -> None:
    text = (REPOSITORY / "docs" / "compose.md").read_text()
    named = re.findall(r"docker compose (?:exec|logs) (\S+)", text)
    assert named
    assert set(named) <= set(SERVICES)
    table = re.findall(r"^\| (`.+`) \|", text, re.MULTILINE)
    assert {name for row in table for name in re.findall(r"`(.+?)`", row)} == set(SERVICES)


def test_volumes_are_named_and_each_is_used() -> None:
    mounted = [volume.partition(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])]
    assert set(mounted) == set(COMPOSE["volumes"])


# Connections


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in settings_of("airflow-scheduler").items():
        if key.startswith("AIRFLOW_CONN_"):
            monkeypatch.setenv(key, value)


def test_the_connections_are_those_of_the_local_servers(tmp_path: Path) -> None:
    local = environment.connections(Site(tmp_path, 26300, tmp_path))
    for name in AIRFLOW:
        here = {key: value for key, value in settings_of(name).items() if key.startswith("AIRFLOW_CONN_")}
        # No database is a part of this stack: its ledger is in HBase.
        assert here.keys() == local.keys() - {"AIRFLOW_CONN_SQL_DEFAULT", "AIRFLOW_CONN_MYSQL_DEFAULT"}
        for key, value in here.items():
            assert json.loads(value)["conn_type"] == json.loads(local[key])["conn_type"]


@pytest.mark.usefixtures("connected")
def test_kafka_is_where_its_connection_says() -> None:
    inside = properties(DOCKER / "servers" / "kafka.properties")["advertised.listeners"]
    assert f"INSIDE://{kafka_endpoint(from_environment('kafka_default'))}" in inside.split(",")
    assert kafka_endpoint(from_environment("kafka_default")).servers.partition(":")[0] in SERVICES


@pytest.mark.usefixtures("connected")
def test_hbase_is_where_its_connection_says() -> None:
    endpoint = hbase_endpoint(from_environment("hbase_default"))
    assert endpoint.host == "hbase-thrift"
    assert hbase2_endpoint(from_environment("hbase_default")).gateways == (("hbase-thrift2", 9090),)
    assert f"thrift.ThriftServer start -p {endpoint.port}" in (DOCKER / "servers" / "server.sh").read_text()


@pytest.mark.usefixtures("connected")
def test_zookeeper_is_where_its_connection_says() -> None:
    endpoint = zookeeper_endpoint(from_environment("zookeeper_default"))
    assert endpoint.hosts == f"zookeeper:{properties(DOCKER / 'servers' / 'zoo.cfg')['clientPort']}"
    assert endpoint.login


@pytest.mark.usefixtures("connected")
def test_driver_and_executors_share_the_lake_of_the_connection() -> None:
    folder = lake_folder(from_environment("lake_default"))
    for name in ("airflow-scheduler", "spark-worker"):
        assert f"lake:{folder}" in SERVICES[name]["volumes"], name
    assert f" {folder} " in (DOCKER / "airflow.Dockerfile").read_text(), "the folder has to belong to the user"


@pytest.mark.usefixtures("connected")
def test_spark_is_where_its_connection_says() -> None:
    connection = from_environment("spark_default")
    # With a port of its own or as a URI, the provider would make another master of it.
    assert connection.port is None
    command = SERVICES["spark-master"]["command"]
    host, port = command[command.index("--host") + 1], command[command.index("--port") + 1]
    assert connection.host == f"spark://{host}:{port}"
    assert host in SERVICES
    assert SERVICES["spark-worker"]["command"][-1] == connection.host
    assert "deploy-mode" not in connection.extra


@pytest.mark.usefixtures("connected")
@pytest.mark.parametrize("file", stream_files(REPOSITORY / "dags" / "streams"), ids=lambda path: path.stem)
def test_no_stream_file_expects_another_master(file: Path) -> None:
    stream = load(file).stream
    assert stream.engine.master in (None, from_environment(stream.engine.spark).host)


@pytest.mark.parametrize("name", ["airflow-scheduler", "spark-worker"])
def test_driver_and_executors_have_names_that_the_others_can_find(name: str) -> None:
    assert settings_of(name)["SPARK_LOCAL_HOSTNAME"] == name


def test_driver_and_executors_have_one_image() -> None:
    built = {name: service["build"]["dockerfile"] for name, service in SERVICES.items() if "build" in service}
    python = {name for name, dockerfile in built.items() if dockerfile == "docker/airflow.Dockerfile"}
    assert python == {*AIRFLOW, "spark-master", "spark-worker"}
    assert len({SERVICES[name]["image"] for name in python}) == 1


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
                *("log.retention.check.interval.ms", "log.cleaner.backoff.ms", "log.initial.task.delay.ms"),
            },
        ),
        ("zoo.cfg", properties, {"dataDir", "clientPort", "clientPortAddress"}),
        (
            "hbase-site.xml",
            site_xml,
            {
                *("hbase.rootdir", "hbase.tmp.dir", "hbase.zookeeper.quorum", "hbase.zookeeper.property.clientPort"),
                *("hbase.master.port", "hbase.regionserver.port", "hbase.master.ipc.address"),
                *(
                    "hbase.regionserver.ipc.address",
                    "hbase.unsafe.master.hostname",
                    "hbase.unsafe.regionserver.hostname",
                ),
            },
        ),
    ],
)
def test_servers_are_set_as_without_containers(file: str, read: Any, other: set[str]) -> None:
    here, there = read(DOCKER / "servers" / file), read(TEMPLATES / file)
    assert other <= here.keys() | there.keys()
    assert {key: here[key] for key in here.keys() - other} == {key: there[key] for key in there.keys() - other}


def test_servers_keep_their_data_on_volumes() -> None:
    folders = {
        "kafka": properties(DOCKER / "servers" / "kafka.properties")["log.dirs"],
        "zookeeper": properties(DOCKER / "servers" / "zoo.cfg")["dataDir"],
        "hbase-master": site_xml(DOCKER / "servers" / "hbase-site.xml")["hbase.rootdir"].removeprefix("file://"),
        "hbase-region": site_xml(DOCKER / "servers" / "hbase-site.xml")["hbase.rootdir"].removeprefix("file://"),
    }
    for name, folder in folders.items():
        (volume,) = SERVICES[name]["volumes"]
        assert Path(folder).is_relative_to(volume.partition(":")[2]), name
    assert SERVICES["hbase-master"]["volumes"] == SERVICES["hbase-region"]["volumes"]


def test_hbase_processes_have_the_names_that_they_tell_each_other() -> None:
    site = site_xml(DOCKER / "servers" / "hbase-site.xml")
    assert SERVICES["hbase-master"]["hostname"] == site["hbase.unsafe.master.hostname"] == "hbase-master"
    assert SERVICES["hbase-region"]["hostname"] == site["hbase.unsafe.regionserver.hostname"] == "hbase-region"
    health = (DOCKER / "servers" / "healthy.sh").read_text()
    assert f"/dev/tcp/hbase-master/{site['hbase.master.port']} " in health
    assert f"/dev/tcp/hbase-region/{site['hbase.regionserver.port']} " in health


def test_hbase_has_the_java_flags_that_it_has_without_containers() -> None:
    script = (DOCKER / "servers" / "server.sh").read_text()
    assert re.findall(r"^  (--add-\S+)$", script, re.MULTILINE) == HBASE_OPENS
