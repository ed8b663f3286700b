"""A job runs the code of the command that asked for it, or does not begin."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tidemark
from tests.support.stream_text import MINIMAL
from tidemark import errors
from tidemark.clients.connections import Connection
from tidemark.errors import WrongUse
from tidemark.streams.loading import load
from tidemark.submit.command import WINDOW_JOB, job_environment, submit_command
from tidemark.submit.same_code import ASKING, asking_code, check_same_code

PACKAGE = Path(tidemark.__file__).parent


def copied(folder: Path) -> Path:
    """A checkout of the same code elsewhere."""
    copy = folder / "older" / "tidemark"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.mark.slow
@pytest.mark.covers("N15")
def test_the_same_code_elsewhere_is_the_same_and_other_code_is_refused(tmp_path: Path) -> None:
    copy = copied(tmp_path)
    check_same_code(None)
    check_same_code(asking_code())
    check_same_code(f"{tidemark.__version__} {copy}")
    with pytest.raises(
        WrongUse, match=r"has Tidemark 0\.0\.9 in .*older.*, and the job would run Tidemark .*; nothing was"
    ):
        check_same_code(f"0.0.9 {copy}")
    another = tmp_path / "another"
    shutil.copytree(copy, another)
    changed = another / "ledger" / "records.py"
    changed.write_text(changed.read_text() + "\n# of another commit\n")
    with pytest.raises(
        WrongUse, match=r"which is other code; nothing was read\. Have both find the same: take .*another"
    ):
        check_same_code(f"{tidemark.__version__} {another}")
    with pytest.raises(WrongUse, match="which is other code"):
        check_same_code(f"{tidemark.__version__} {tmp_path / 'gone'}")


@pytest.mark.slow
@pytest.mark.covers("N15")
def test_a_job_of_a_checkout_that_finds_an_installed_package_does_not_begin(tmp_path: Path) -> None:
    """As spark-submit and a warm engine start it: without the checkout on the path, or before it."""
    copy = copied(tmp_path)
    (copy / "ledger" / "records.py").write_text((PACKAGE / "ledger" / "records.py").read_text() + "\n# older\n")
    says = "from tidemark.submit.command import job_environment; import json; print(json.dumps(job_environment()))"
    asked = subprocess.run(
        [sys.executable, "-c", says],
        env={**os.environ, "PYTHONPATH": str(copy.parent)},
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )
    assert str(copy) in asked.stdout.decode()
    job = "from tidemark.spark.jobs import entry; entry.run(lambda _: print('begun') or 0)"
    for asking, code in ((f"{tidemark.__version__} {copy}", errors.EXIT_WRONG_USE), (asking_code(), errors.EXIT_DONE)):
        ended = subprocess.run(
            [sys.executable, "-c", job], env={**os.environ, ASKING: asking}, capture_output=True, check=False
        )
        assert ended.returncode == code, ended.stderr.decode()[-2000:]
        assert (b"begun" in ended.stdout) == (code == errors.EXIT_DONE)
        assert (b"tidemark: WrongUse: the command that asked has Tidemark" in ended.stderr) == bool(code)


def test_every_command_says_which_code_it_has(tmp_path: Path) -> None:
    path = tmp_path / "orders.yaml"
    path.write_text(MINIMAL)
    assert submit_command(load(path).stream, Connection("spark_default", "local[2]"), WINDOW_JOB, [])
    assert job_environment()[ASKING] == f"{tidemark.__version__} {PACKAGE.resolve()}"
