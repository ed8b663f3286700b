"""What docs/adding-a-scheme.md says is so: no scheme lacks a part. Its code is run in tests/integration."""

from __future__ import annotations

from typing import get_args

import pytest

from tests.support.covering import REPOSITORY
from tests.support.oracle import EXAMPLES
from tests.support.scheme_cases import CASES
from tidemark.schemes import union
from tidemark.schemes.kinds import FunctionScheme, SchemePart
from tidemark.spark.schemes import PARSERS

CLASSES: dict[str, type[SchemePart]] = {
    get_args(one.model_fields["type"].annotation)[0]: one for one in get_args(get_args(union.Scheme)[0])
}


@pytest.mark.parametrize("name", CLASSES)
def test_a_scheme_has_a_parser_a_case_and_a_line_in_the_documents(name: str) -> None:
    # A function of one's own is called, not parsed.
    assert CLASSES[name] in PARSERS or CLASSES[name] is FunctionScheme
    tested = {case.scheme["type"] for case in CASES} | {example.stream["scheme"]["type"] for example in EXAMPLES}
    # These have messages of their own: tests/integration/test_avro.py and test_protobuf.py.
    assert name in tested | {"avro", "protobuf"}
    assert f"\n| `{name}` | " in (REPOSITORY / "docs" / "stream-files.md").read_text()
    assert f"`{name}`" in (REPOSITORY / "CHANGELOG.md").read_text()
