"""`./run demo`, on servers of its own: each of its claims holds, and DuckDB finds the number of the audit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from services.site import REPOSITORY
from tests.support.servers import free_ports


@pytest.mark.full
def test_the_demonstration_holds(tmp_path: Path) -> None:
    place = {"TIDEMARK_STATE": str(tmp_path / "site"), "TIDEMARK_PORT_BASE": str(free_ports())}
    given = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "TIDEMARK_"))}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", *words]
        return subprocess.run(
            command, cwd=REPOSITORY, env={**given, **place}, capture_output=True, text=True, check=False
        )

    try:
        done = run("demo")
    finally:
        down = run("services", "down")
    assert done.returncode == 0, done.stdout[-5_000:] + done.stderr[-2_000:]
    assert down.returncode == 0, down.stderr
    audit, duckdb = (re.search(rf"^ *{name} +(\d+)  ", done.stdout, re.M) for name in ("tidemark audit", "DuckDB"))
    assert audit is not None
    assert duckdb is not None
    assert audit[1] == duckdb[1]
