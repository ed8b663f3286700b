"""The tables of the reference are those that the code gives: `./run docs --write` writes them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.covering import REPOSITORY


@pytest.mark.slow
def test_the_tables_of_the_reference_are_what_the_code_says(tmp_path: Path) -> None:
    # In a process of its own: the forms need Airflow, which makes its home when it is imported.
    environment = os.environ | {"AIRFLOW_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "docs.reference"]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
