"""Tasks in Spark's Python workers."""

from __future__ import annotations

import importlib
import sys
import zipimport
from pathlib import Path
from zipfile import ZipFile

import pyarrow as pa
import pytest

from tidemark.spark.runtime.workers import FastTaskRunner


def test_archives_are_not_read_again_after_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Spark does before each task; and what was not imported yet is still found."""
    archive = tmp_path / "code.zip"
    with ZipFile(archive, "w") as packed:
        packed.writestr("tidemark_zipped/__init__.py", "")
        packed.writestr("tidemark_zipped/later.py", "found = True")
    monkeypatch.syspath_prepend(archive)
    importlib.import_module("tidemark_zipped")
    batch = pa.RecordBatch.from_pydict({"number": [1, 2]})
    assert list(FastTaskRunner(iter)([batch])) == [batch]

    def read_again(path: str) -> None:
        raise AssertionError(f"{path} was read again")

    monkeypatch.setattr(zipimport, "_read_directory", read_again)
    importlib.invalidate_caches()
    assert importlib.import_module("tidemark_zipped.later").found
    del sys.modules["tidemark_zipped"], sys.modules["tidemark_zipped.later"]
