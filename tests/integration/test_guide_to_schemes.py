"""What docs/adding-a-scheme.md says is so: its code is run as it stands there."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
from pydantic import Field

from tests.covering import REPOSITORY
from tests.oracle import Example
from tests.playground import Make
from tests.scheme_cases import CREATE_TIME, NO_TIME, Message
from tidemark.streams.model import Stream
from tidemark.streams.schemes import Scheme
from tidemark_spark.audit_job import audit
from tidemark_spark.schemes import PARSERS

GUIDE = REPOSITORY / "docs" / "adding-a-scheme.md"
IMPORTS = """
from typing import Literal
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from tests.oracle import Outcome
from tests.scheme_cases import Message, _row
from tidemark.streams.schemes import Fields, SchemePart
from tidemark_spark.columns import REASON, VALUE
"""


@pytest.fixture
def guide(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The names that the guide's code defines, while its scheme stands where the guide says."""
    scheme, parser, line, case = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    defined: dict[str, Any] = {"__name__": "guide"}
    # As in a file of its own, where annotations are not texts: pydantic looks for their names in modules.
    exec(compile(IMPORTS + scheme + parser + case, str(GUIDE), "exec", dont_inherit=True), defined)
    defined["long_value"] = SimpleNamespace(parse=defined["parse"])
    for made, parse in eval(f"{{{line}}}", defined).items():
        monkeypatch.setitem(PARSERS, made, parse)
    added: Any = defined["LongScheme"]
    field = Stream.model_fields["scheme"]
    before = field.annotation
    field.annotation = Annotated[Scheme | added, Field(discriminator="type")]  # type: ignore[assignment]
    try:
        Stream.model_rebuild(force=True)
        yield defined
    finally:
        field.annotation = before
        Stream.model_rebuild(force=True)


def longs(count: int, first: int) -> Iterator[tuple[bytes | None, bytes | None]]:
    edges = [0, 1, -1, 2**63 - 1, -(2**63)]
    for number in range(first, first + count):
        chance = random.Random(number)
        size = 8 if number < len(edges) else chance.choice([8, 8, 8, 8, 0, 7, 9])
        value = edges[number] if number < len(edges) else chance.randrange(-(2**63), 2**63)
        yield b"key", None if number % 10 == 9 else value.to_bytes(9, "big", signed=True)[-8:].ljust(size, b"0")[:size]


@pytest.mark.usefixtures("spark")
def test_the_scheme_of_the_guide_is_ingested(make: Make, guide: dict[str, Any]) -> None:
    assert len(GUIDE.read_text().splitlines()) <= 60
    stream = {
        "source": {"topics": []},
        "scheme": {"type": "long"},
        "checks": [{"invalid_when": "value = 1", "reason": "one"}],
        "sinks": [{"type": "hbase", "table": "-"}, {"type": "parquet", "folder": "-"}],
        "dead_letters": {"table": "-"},
    }

    def outcome(value: bytes | None) -> Any:
        found = guide["long"](Message("", 0, 0, None, value, (), NO_TIME, CREATE_TIME))
        return found if found.fields != {"value": "1"} else type(found)(None, "one")

    play = make(Example("longs", stream, ("longs",), 2, longs, outcome))
    play.produce(200)
    play.ingest()
    expected = play.expected()
    assert {"not eight bytes", "one"} == set(expected.dead.values())
    assert {"-1", str(2**63 - 1), str(-(2**63))} <= {row.get("value") for row in expected.rows.values()}
    assert play.independent.hbase().by_place() == expected.rows
    assert play.independent.parquet(["value"]).by_place() == expected.rows
    dead = {place[:3]: fields["reason"] for place, fields in play.independent.hbase(f"{play.name}_dead").rows}
    assert dead == expected.dead
    report = audit(play.opened, "an audit")
    assert report.clean, report.sentence()
