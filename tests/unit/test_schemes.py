"""What docs/adding-a-scheme.md says is so: its code stands in the files, and no scheme lacks a part."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from tests.covering import REPOSITORY
from tests.oracle import EXAMPLES
from tests.scheme_cases import CASES
from tidemark.streams.schemes import FunctionScheme, Scheme, SchemePart
from tidemark_spark.schemes import PARSERS

GUIDE = REPOSITORY / "docs" / "adding-a-scheme.md"
BLOCKS = re.findall(r"`([^`\s]+\.py)`:\n\n```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
CLASSES: dict[str, type[SchemePart]] = {
    get_args(one.model_fields["type"].annotation)[0]: one for one in get_args(get_args(Scheme)[0])
}


def test_the_guide_is_one_screen_and_has_code() -> None:
    assert len(GUIDE.read_text().splitlines()) <= 60
    assert len(BLOCKS) == GUIDE.read_text().count("```python") == 4


@pytest.mark.parametrize(("file", "code"), BLOCKS, ids=[file for file, _ in BLOCKS])
def test_the_code_of_the_guide_stands_in_the_file(file: str, code: str) -> None:
    assert code in (REPOSITORY / file).read_text()


@pytest.mark.parametrize("name", CLASSES)
def test_a_scheme_has_a_parser_a_case_and_a_line_in_the_documents(name: str) -> None:
    # A function of one's own is called, not parsed.
    assert CLASSES[name] in PARSERS or CLASSES[name] is FunctionScheme
    tested = {case.scheme["type"] for case in CASES} | {example.stream["scheme"]["type"] for example in EXAMPLES}
    # Avro's has messages of its own: tests/integration/test_avro.py.
    assert name in tested | {"avro"}
    assert f"\n| `{name}` | " in (REPOSITORY / "docs" / "stream-files.md").read_text()
    assert f"`{name}`" in (REPOSITORY / "CHANGELOG.md").read_text()
