"""The archive of Spark's classes, which makes the tests quicker and which none of them needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from services.site import Site
from tests.support import quick_java

WRITES = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text('classes'); {then}"


@pytest.mark.parametrize(
    ("then", "there"), [("pass", True), ("import time; time.sleep(600)", False)], ids=["made", "late"]
)
def test_an_archive_that_is_late_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str, there: bool
) -> None:
    """On a busy machine it took more than five minutes, and the first test failed."""
    local = tmp_path / ".local"
    local.mkdir()

    def make(site: Site, home: Path) -> subprocess.Popen[bytes]:
        new = next(word for word in (home / "bin" / "java").read_text().split('"') if "ArchiveClassesAtExit=" in word)
        return subprocess.Popen([sys.executable, "-c", WRITES.format(then=then), new.partition("=")[2]])

    monkeypatch.setattr(quick_java, "REPOSITORY", tmp_path)
    monkeypatch.setattr(quick_java, "_make", make)
    monkeypatch.setattr(quick_java, "_PATIENCE_SECONDS", 60.0 if there else 3.0)
    for name in ("JAVA_TOOL_OPTIONS", "JAVA_HOME"):
        monkeypatch.setenv(name, "")
    with quick_java.quick_java(Site(tmp_path / "site", 20_000, tmp_path / "jars")):
        # Java reads the options of this variable, and of none with a name like it.
        assert os.environ["JAVA_TOOL_OPTIONS"] == quick_java.OPTIONS
    assert bool(list(local.glob("*.jsa"))) is there
