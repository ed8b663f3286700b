"""The status of a stream on real servers, as its command says it."""

from __future__ import annotations

import json

import pytest

from tests.support.command_line import tidemark
from tests.support.live_streams import Make
from tests.support.oracle import CDN
from tests.support.protocol_world import NoWork, Sweeps, hold
from tidemark.commit import protocol
from tidemark.commit.protocol import Run
from tidemark.ledger.records import INGEST
from tidemark.runs.windows import ingest


def test_a_stream_that_reads_less_than_comes_is_a_warning_with_its_numbers(make: Make) -> None:
    live = make(CDN)
    live.rewrite(limits={"max_records": 4})
    topic, file = live.topics[0], str(live.file)
    shown, said = tidemark("status", file, "--json")
    assert json.loads(shown)["status"] is None
    assert said.startswith("NEW: no window of the ingest has been committed yet")
    for number in range(1, 4):
        live.kafka.send((topic, 2, None, b"x") for _ in range(10))
        run = f"run {number}"
        assert ingest.plan_ingest(live.opened, run) is not None
        # What a window has read is of no matter here: nothing is read.
        protocol.process(live.opened.ledger, Sweeps(), NoWork(), hold, INGEST, number, Run(run, "v", "d"))
    shown, said = tidemark("status", file, "--json")
    assert json.loads(shown)["status"] == {
        "word": "WARNING",
        "rule": "the lag does not fall",
        "topic": topic,
        "partition": 2,
        "sentence": f"{topic}/2: over the last 3 windows the lag went from 6 to 18, and is now 18",
    }
    assert {one["partition"]: one["status"] for one in json.loads(shown)["partitions"]} == {
        **dict.fromkeys(range(4), "OK"),
        2: "WARNING",
    }
    assert said.startswith(f"WARNING: {json.loads(shown)['status']['sentence']}. Let the ingest run more often")
    out, _ = tidemark("status", file)
    assert (out.count("WARNING"), out.count("OK")) == (1, 3)
    live.rewrite(limits={"max_records": 4}, alarm={"allowed_lag": 18})
    shown, said = tidemark("status", file, "--json")
    assert (json.loads(shown)["status"]["word"], said) == ("OK", "")


@pytest.mark.covers("A01")
def test_the_status_of_a_topic_that_is_not_there_has_the_code_of_the_next_plan(make: Make) -> None:
    unknown = make(CDN, source={"topics": ["not-there"]})
    shown, said = tidemark("status", str(unknown.file), "--json", code=2)
    assert json.loads(shown)["missing_topics"] == ["not-there"]
    assert "TopicUnknown: topic not-there does not exist; create it" in said
