"""Offsets that another stream has chosen and stored as a table: they drive a replay and an audit."""

from __future__ import annotations

import json

import pytest

from services import environment
from tests.support.command_line import asked, tidemark
from tests.support.oracle import CDN
from tests.support.playground import Make
from tests.support.scheme_cases import CASES
from tidemark.offsets.coordinate_files import lines_of

pytestmark = pytest.mark.usefixtures("spark")

# Every fifth message, whatever it says.
CHOSEN = {
    "sql": "SELECT * FROM messages WHERE offset % 5 = 0",
    "fields": {"topic": "string", "partition": "integer", "offset": "integer"},
}


@pytest.mark.covers("S8")
def test_the_coordinates_that_a_stream_stores_drive_a_replay_and_an_audit(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Few bytes at a time, and the same messages.
    play = make(CDN, source={"fetch": {"max.partition.fetch.bytes": 512, "max.poll.records": 7}})
    play.produce(200)
    play.ingest()
    play.assert_exactly_what_was_read()

    (metadata,) = (case.scheme for case in CASES if case.name == "message_metadata")
    chooser = make(CDN, scheme=metadata, checks=[], transform=CHOSEN, source={"topics": list(play.topics)})
    chooser.ingest()
    folder = chooser.site.folder("lake") / chooser.name
    ends = play.positions().items()
    fifth = {f"{topic},{partition},{offset}" for (topic, partition), end in ends for offset in range(0, end, 5)}
    # No transform sees a tombstone.
    rows = play.expected().rows.items()
    wanted = fifth | {",".join(map(str, place[:3])) for place, fields in rows if not fields}
    assert set(lines_of(folder).splitlines()) == wanted

    monkeypatch.setenv("TIDEMARK_SELECTIONS", str(folder.parent))
    for said in (("--records", f"@{folder}"), ("--records-file", folder.name)):
        found = asked("replay", str(play.file), *said, "--reason", "chosen elsewhere", "--dry-run")
        assert (found["offsets"], found["left_out"]) == (len(wanted), {})

    for name, value in {**environment.spark(play.site), **environment.connections(play.site)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    out, _ = tidemark("audit", str(play.file), "--records", f"@{folder}", "--json")
    report = json.loads(out)
    assert (report["clean"], report["expected"]) == (True, len(wanted))
