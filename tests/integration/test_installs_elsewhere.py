"""The wheel, in an Airflow that is not ours: built, installed, and used from another folder, without the repository."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest

from services.site import REPOSITORY
from tests.support import installed
from tests.support.stream_text import MINIMAL

UV = REPOSITORY / ".local" / "uv" / "bin" / "uv"
# What is in the wheel, and from where it comes.
SOURCES = {
    "tidemark": "tidemark",
    "tidemark_spark": "spark_jobs/tidemark_spark",
    "tidemark_dags": "dags/tidemark_dags",
    "tidemark_plugin": "plugins/tidemark_plugin",
}
SCRIPT = "process_window.py"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(folder, UV, "build", "--wheel", "--out-dir", folder, REPOSITORY)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def elsewhere(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel, and with the packages that it needs from this one."""
    folder = tmp_path_factory.mktemp("elsewhere")
    run(folder, UV, "venv", "--python", sys.executable, folder / "venv")
    run(folder, UV, "pip", "install", "--no-deps", "--python", folder / "venv", wheel)
    # A .pth file in a folder that a .pth file adds is not read: the repository itself is not on the path.
    (site_packages(folder) / "needed.pth").write_text(sysconfig.get_path("purelib"))
    return folder


def site_packages(folder: Path) -> Path:
    (found,) = (folder / "venv" / "lib").glob("python3*/site-packages")
    return found


def run(folder: Path, *command: str | Path) -> str:
    """Run a program from another folder, with an environment that knows nothing of this one."""
    ours = ("PYTHON", "VIRTUAL_ENV", "AIRFLOW", "TIDEMARK", "SPARK", "PYSPARK")
    variables = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={**variables, "AIRFLOW_HOME": str(folder / "airflow")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    expected = {f"tidemark_spark/scripts/{SCRIPT}"}
    for package, source in SOURCES.items():
        files = [path for path in (REPOSITORY / source).rglob("*") if path.is_file() and path.suffix != ".pyc"]
        expected |= {f"{package}/{path.relative_to(REPOSITORY / source)}" for path in files}
    with zipfile.ZipFile(wheel) as opened:
        names = {name for name in opened.namelist() if ".dist-info/" not in name}
    assert names == expected
    # The page's files are among them, and what says that there are types.
    assert {"tidemark_plugin/page/streams.html", "tidemark_plugin/routes/streams.py", "tidemark/py.typed"} <= names


def test_installed_it_needs_no_repository(elsewhere: Path) -> None:
    streams = elsewhere / "streams"
    streams.mkdir()
    (streams / "orders.yaml").write_text(MINIMAL)
    python, result = elsewhere / "venv" / "bin" / "python", elsewhere / "result.json"
    run(elsewhere, python, "-I", installed.__file__, streams, result)
    found: dict[str, Any] = json.loads(result.read_text())
    here = site_packages(elsewhere)
    assert found["packages"] == {name: str(here / name / "__init__.py") for name in installed.PACKAGES}
    assert "tidemark" in found["plugins"]
    assert found["dags"] == [f"orders__{kind}" for kind in ("ingest", "backfill", "replay", "audit", "erase")]
    # What spark-submit is told to start: it is there, and it runs there.
    assert set(found["scripts"]) == {str(here / "tidemark_spark" / "scripts" / SCRIPT)}
    for job in ([], ["audit"], ["compare"], ["compact"]):
        assert "--stream-file STREAM_FILE" in run(elsewhere, python, "-I", found["scripts"][0], *job, "--help")
    assert "--socket SOCKET" in run(elsewhere, python, "-I", found["scripts"][0], "engine", "--help")
