"""What docs/adding-a-scheme.md says is so: its package is installed as it stands there, and used from the command line."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.covering import REPOSITORY
from tests.support.live_streams import Make
from tests.support.oracle import Example, Outcome
from tests.support.packages import CommandLine, installed

GUIDE = REPOSITORY / "docs" / "adding-a-scheme.md"
STREAM = {
    "source": {"topics": []},
    "scheme": {"type": "long"},
    "checks": [{"invalid_when": "value = 1", "reason": "one"}],
    "sinks": [{"type": "hbase", "table": "-"}, {"type": "parquet", "folder": "-"}],
    "dead_letters": {"type": "hbase", "table": "-"},
}


def outcome(value: bytes | None) -> Outcome:
    """By the description of the scheme alone."""
    if value is None:
        return Outcome({}, None)
    if len(value) != 8:
        return Outcome(None, "not eight bytes")
    number = int.from_bytes(value, "big", signed=True)
    return Outcome(None, "one") if number == 1 else Outcome({"value": str(number)}, None)


def longs(count: int, first: int) -> Iterator[tuple[bytes | None, bytes | None]]:
    edges = [0, 1, -1, 2**63 - 1, -(2**63)]
    for number in range(first, first + count):
        chance = random.Random(number)
        size = 8 if number < len(edges) else chance.choice([8, 8, 8, 8, 0, 7, 9])
        value = edges[number] if number < len(edges) else chance.randrange(-(2**63), 2**63)
        yield b"key", None if number % 10 == 9 else value.to_bytes(9, "big", signed=True)[-8:].ljust(size, b"0")[:size]


@pytest.mark.full
def test_the_scheme_of_the_guide_is_ingested(make: Make, tmp_path: Path) -> None:
    live = make(Example("longs", STREAM, ("longs",), 2, longs, outcome))
    tidemark = CommandLine(live.site, installed(GUIDE, tmp_path / "site"))
    file = str(live.file)
    live.produce(200)
    tidemark("run", file)
    expected = live.expected({(live.topics[0], 0): 100, (live.topics[0], 1): 100})
    assert {"not eight bytes", "one"} == set(expected.dead.values())
    assert {"-1", str(2**63 - 1), str(-(2**63))} <= {row.get("value") for row in expected.rows.values()}
    assert live.independent.hbase().by_place() == expected.rows
    assert live.independent.parquet(["value"]).by_place() == expected.rows
    dead = {place[:3]: fields["reason"] for place, fields in live.independent.hbase(f"{live.name}_dead").rows}
    assert dead == expected.dead
    report = json.loads(tidemark("audit", file, "--json"))
    # Nobody knows whether the package has changed since: the rows are made again.
    assert (report["clean"], report["expected"], report["unchanged"]) == (True, 200, 0)


def test_without_its_package_only_the_streams_of_the_scheme_are_refused(make: Make, tmp_path: Path) -> None:
    live, other = make(Example("longs", STREAM, ("longs",), 1, longs, outcome)), make()
    packages = installed(GUIDE, tmp_path / "site")
    (packages / "long_scheme" / "settings.py").write_text("KIND = None\n")
    ran = CommandLine(live.site, packages).start("streams", "check", str(live.file), str(other.file))
    out, said = ran.communicate(timeout=300)
    assert ran.returncode == 2, said
    why = "the type long: long_scheme.settings:KIND cannot be loaded: expected a tidemark.schemes.kinds.SchemeType"
    assert why in said
    assert f"{other.file}: stream {other.name}" in out
