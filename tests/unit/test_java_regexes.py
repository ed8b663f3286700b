"""Regular expressions are shown to Java before a deployment, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import tidemark
from tests.support.stream_text import MINIMAL
from tidemark.errors import EXIT_WRONG_USE
from tidemark.submit.java_regexes import refused_by_java

PATTERNS = """\
scheme:
  type: regex
  fields: {a: string}
  patterns:
    - {name: one, regex: '(?<a>\\p{L}é)'}
    - {name: two, regex: '(?<a>%s)'}
"""


def checked(folder: Path, regex: str, code: int = 0) -> str:
    path = folder / "orders.yaml"
    scheme = MINIMAL[MINIMAL.index("scheme:") : MINIMAL.index("sinks:")]
    path.write_text(MINIMAL.replace(scheme, PATTERNS % regex))
    return tidemark("streams", "check", str(path), code=code)[1]


@pytest.mark.slow
@pytest.mark.covers("N92")
def test_a_check_shows_them_to_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not checked(tmp_path, r"\Q(\E")
    said = checked(tmp_path, r"\p{Nothing}", EXIT_WRONG_USE)
    assert "scheme.patterns.1.regex: Java cannot read it: Unknown character property name {Nothing}" in said
    # Without Java, the check says that it has not looked.
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "scheme.patterns was not checked by Java" in checked(tmp_path, r"\p{Nothing}")


def test_the_whole_syntax_is_javas() -> None:
    assert refused_by_java([r"[a-z&&[^b]]", "\n", "😀", "'\"$x`"]) == {}
    assert refused_by_java(["a", "[b-a]"]) == {1: "Illegal character range near index 3"}
