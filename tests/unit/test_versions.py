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


def pins() -> dict[str, str]:
    lines = [
        line.partition("#")[0] for name in ("requirements.txt", "constraints.txt") for line in text_of(name).split("\n")
    ]
    return {name: version.strip() for name, _, version in (line.partition("==") for line in lines) if version}


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
    (image,) = re.findall(r"^FROM python:([\d.]+)-", text_of("docker", "airflow.Dockerfile"), re.MULTILINE)
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
