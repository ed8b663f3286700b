"""Jars are those that were looked at once, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from services import jars
from services.errors import ServiceError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "jars" / "kafka"
    found.mkdir(parents=True)
    (found / "a-1.jar").write_bytes(b"a jar")
    monkeypatch.setattr(jars, "SUMS", tmp_path / "jars.sha256")
    jars.main(found.parent)
    return found


def test_a_jar_with_another_byte_is_refused(folder: Path) -> None:
    jars.check(folder)
    (folder / "a-1.jar").write_bytes(b"a_jar")
    with pytest.raises(ServiceError, match=r"^a-1.jar has the SHA-256 [0-9a-f]{64}, and expected was [0-9a-f]{64}"):
        jars.check(folder)


def test_a_jar_that_nobody_has_looked_at_is_refused(folder: Path) -> None:
    (folder / "b-1.jar").write_bytes(b"another")
    with pytest.raises(ServiceError, match=r"expected was nothing: jars.sha256 does not name it"):
        jars.check(folder)
    jars.main(folder.parent)
    jars.check(folder)


def test_each_line_is_as_sha256sum_has_it() -> None:
    for line in jars.SUMS.read_text().splitlines():
        digest, name = line.split("  ")
        assert len(digest) == 64
        assert name.endswith((".jar", ".tar.gz"))
