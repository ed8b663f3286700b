"""Positions go out as other programs keep them, and come in again the same; shifted, they stay within the log."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import happybase
import pytest

from tests.support.command_line import asked, tidemark
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN
from tidemark.runs.windows import ingest

WIDE = replace(CDN, partitions=3)
# What a spreadsheet would take for a formula.
GROUP = "=cmd"


def csv(live: LiveStream, folder: Path) -> str:
    return f"csv:{folder / 'out.csv'}"


def kafka_group(live: LiveStream, folder: Path) -> str:
    return "kafka-group"


def hbase(live: LiveStream, folder: Path) -> str:
    connection = happybase.Connection("127.0.0.1", live.site.port("thrift"))
    connection.create_table(f"{live.name}_theirs", {"offsets": {}})
    connection.close()
    return f"hbase:{live.name}_theirs"


def consumers(live: LiveStream, folder: Path) -> str:
    return f"consumers:/{live.name}/consumers"


def storm(live: LiveStream, folder: Path) -> str:
    return f"storm:/{live.name}/storm"


def begun(make: Make, offsets: dict[int, int], messages: int) -> LiveStream:
    """A stream whose ingest has these positions."""
    live = make(WIDE)
    live.kafka.send((live.topics[0], partition, None, b"x") for partition in range(3) for _ in range(messages))
    topic = live.topics[0]
    live.rewrite(
        source={"start": {"offsets": {f"{topic}/{partition}": offset for partition, offset in offsets.items()}}}
    )
    assert ingest.plan_ingest(live.opened, "begin") is not None
    return live


def beside(make: Make, live: LiveStream) -> LiveStream:
    """A new stream over the same topics."""
    other = make(WIDE)
    other.rewrite(source={"topics": list(live.topics)})
    return other


@pytest.mark.covers("A48")
@pytest.mark.parametrize(
    "layout",
    [csv, hbase, *(pytest.param(one, marks=pytest.mark.full) for one in (kafka_group, consumers, storm))],
    ids=lambda one: one.__name__,
)
def test_what_is_exported_is_what_is_imported(
    make: Make, tmp_path: Path, layout: Callable[[LiveStream, Path], str]
) -> None:
    live = begun(make, {0: 50, 1: 7, 2: 0}, 60)
    file, place = str(live.file), layout(live, tmp_path)
    arguments = ["ledger", "export", file, "--to", place, "--group", GROUP, "--json"]
    shown, said = tidemark(*arguments, "--dry-run")
    assert "dry run, nothing was changed" in said
    other = beside(make, live)
    imported = ["ledger", "import", str(other.file), "--from", place, "--group", GROUP]
    _, said = tidemark(*imported, "--dry-run", code=2)
    assert "--from csv:" in said or f"there is no offset of {live.topics[0]}" in said
    assert tidemark(*arguments, "--yes")[0] == shown
    # As a dry run, the import changes nothing; written, it is what was exported.
    tidemark(*imported, "--dry-run")
    assert list(other.opened.ledger.store.scan(())) == []
    tidemark(*imported, "--yes")
    assert other.positions() == live.positions()
    assert {int(one["partition"][-1]): int(one["offset"]) for one in json.loads(shown)} == {0: 50, 1: 7, 2: 0}


@pytest.mark.covers("A48", "Q15")
def test_a_plan_to_an_offset_and_a_shift_beyond_the_log(make: Make, tmp_path: Path) -> None:
    live = begun(make, {0: 50, 1: 150, 2: 200}, 200)
    topic, file = live.topics[0], str(live.file)
    # A plan to offset 50 is shown, and changes nothing.
    before = list(live.opened.ledger.store.scan(()))
    shown = asked("plan", file, "--until", f"{topic}/0@50")
    assert shown["ranges"] == [{"partition": f"{topic}/0", "from": "0", "until": "50"}]
    assert list(live.opened.ledger.store.scan(())) == before

    place = f"csv:{tmp_path / 'out.csv'}"
    tidemark("ledger", "export", file, "--to", place, "--group", GROUP, "--yes")
    assert (tmp_path / "out.csv").read_text().splitlines()[1] == f"'=cmd,{topic},0,50"
    _, said = tidemark("ledger", "export", file, "--to", place, "--group", GROUP, "--yes", code=2)
    assert "cannot be written: File exists" in said
    for shift, offsets, cut in (
        ("-150", [0, 0, 50], [f"{topic}/0: 50-150 is outside the log: cut to its beginning, 0"]),
        (
            "150",
            [200, 200, 200],
            [
                f"{topic}/{at}: {offset}+150 is outside the log: cut to its end, 200"
                for at, offset in ((1, 150), (2, 200))
            ],
        ),
    ):
        other = beside(make, live)
        arguments = ["ledger", "import", str(other.file), "--from", place, "--group", GROUP, "--shift", shift]
        _, said = tidemark(*arguments, "--dry-run")
        assert [line for line in said.splitlines() if "cut to" in line] == cut
        assert list(other.opened.ledger.store.scan(())) == []
        tidemark(*arguments, "--yes")
        assert [offset for _, offset in sorted(other.positions().items())] == offsets


def test_what_cannot_be_exported_is_named(make: Make) -> None:
    live = make(CDN)
    _, said = tidemark("ledger", "export", "--dry-run", str(live.file), "--to", "kafka-group", "--group", GROUP, code=2)
    assert f"{live.name} has no positions yet" in said
    for to in ("csv:", "checkpoint:x", "storm:", "nonsense"):
        _, said = tidemark("ledger", "export", "--dry-run", str(live.file), "--to", to, "--group", GROUP, code=2)
        assert f"--to {to}: expected csv:FILE, kafka-group" in said
