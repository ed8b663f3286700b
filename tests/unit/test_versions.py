"""Which versions of Python and Spark are named where, and that they are the same."""

from __future__ import annotations

import re
import subprocess
import tomllib
from importlib import metadata

import pytest

from services import jars
from tests.support.covering import REPOSITORY

RUN = REPOSITORY / "run"


def text_of(*path: str) -> str:
    return REPOSITORY.joinpath(*path).read_text()


LOCKS = (("constraints.txt",), ("docker", "requirements.lock"), ("docker", "wheel.lock"))


def pins(*path: str) -> dict[str, str]:
    """The versions of a lock, or of a list of requirements, by the names of the packages."""
    return dict(
        re.findall(r"^([\w.-]+)(?:\[[\w-]+\])?==([\w.]+)", text_of(*(path or ("constraints.txt",))), re.MULTILINE)
    )


@pytest.mark.covers("N78")
@pytest.mark.parametrize("lock", LOCKS, ids="/".join)
def test_each_package_of_a_lock_has_the_hashes_of_its_files(lock: tuple[str, ...]) -> None:
    entries = re.split(r"^(?=\S)", text_of(*lock), flags=re.MULTILINE)[1:]
    assert len(entries) == len(pins(*lock))
    assert [one for one in entries if "--hash=sha256:" not in one] == []


def test_the_locks_have_what_is_asked_for() -> None:
    """`./run lock` writes them. What runs in an image has the version that is tested."""
    tested, image = pins(), pins("docker", "requirements.lock")
    for name in ("requirements.txt", "requirements-dev.txt"):
        assert {one.lower(): version for one, version in pins(name).items()}.items() <= tested.items()
    own = pins("docker", "requirements.txt")
    assert own.items() <= image.items()
    assert {name: version for name, version in image.items() if tested.get(name) != version} == own
    (builder,) = tomllib.loads(text_of("pyproject.toml"))["build-system"]["requires"]
    assert builder.split("==")[1] == pins("docker", "wheel.lock")["hatchling"]


def test_no_program_that_checks_is_in_an_image() -> None:
    checks = {one.lower() for one in pins("requirements-dev.txt")} | {"pytest"}
    # The first is needed by SQLAlchemy, the second by Airflow, to run.
    assert checks & pins("docker", "requirements.lock").keys() <= {"greenlet", "pyjwt", "websockets"}


def supported() -> list[str]:
    """The versions of Python that `./run` takes."""
    (bounds,) = re.findall(r"not \(3, (\d+)\) <= sys.version_info\[:2\] <= \(3, (\d+)\)", RUN.read_text())
    return [f"3.{minor}" for minor in range(int(bounds[0]), int(bounds[1]) + 1)]


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md", "docs/engines.md", "run"])
def test_the_documents_name_the_pythons_that_run_takes(page: str) -> None:
    *most, last = supported()
    # Whatever line it breaks over.
    assert f"{', '.join(most)} or {last}" in " ".join(text_of(page).split())


def test_the_image_has_a_python_that_run_takes_and_code_is_checked_for_the_oldest() -> None:
    (image,) = re.findall(r"^ARG PYTHON=python:([\d.]+)-", text_of("docker", "airflow.Dockerfile"), re.MULTILINE)
    assert image in supported()
    settings = tomllib.loads(text_of("pyproject.toml"))
    assert settings["tool"]["mypy"]["python_version"] == supported()[0]
    assert settings["tool"]["ruff"]["target-version"] == f"py{supported()[0].replace('.', '')}"
    oldest, *_, newest = supported()
    major, minor = newest.split(".")
    assert settings["project"]["requires-python"] == f">={oldest},<{major}.{int(minor) + 1}"


@pytest.mark.parametrize("python", ["false", "/no/such/python"])
def test_run_refuses_what_is_no_such_python(python: str) -> None:
    done = subprocess.run([RUN, "env"], env={"PYTHON": python, "PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
    assert done.returncode == 5
    assert f"PYTHON={python} is not Python 3.11, 3.12 or 3.13" in done.stderr


def test_each_package_that_is_installed_is_pinned() -> None:
    """On each Python there may be packages that another one does not need."""
    wanted = pins()
    found = {re.sub(r"[-_.]+", "-", one.name).lower(): one.version for one in metadata.distributions()}
    spark = {"pyspark", "pyspark-client", "py4j"}  # ./run may have been told of another Spark
    assert {name: version for name, version in found.items() if name not in spark and wanted.get(name) != version} == {}


def test_spark_has_one_version_everywhere() -> None:
    version = pins()["pyspark"]
    assert pins()["pyspark-client"] == version
    assert f"<spark.connector.version>{version}</" in jars.POM.read_text()
    extra = tomllib.loads(text_of("pyproject.toml"))["project"]["optional-dependencies"]["spark"]
    assert set(extra) == {f"pyspark=={version}", f"pyspark-client=={version}"}
    connectors = re.findall(r"org\.apache\.spark:[\w-]+_2\.13:([\d.]+)", text_of("docs", "installing.md"))
    assert set(connectors) == {version}
    named = re.findall(
        r"https://spark\.apache\.org/docs/([\d.]+)/", "".join(p.read_text() for p in REPOSITORY.glob("docs/*.md"))
    )
    assert set(named) == {version}
