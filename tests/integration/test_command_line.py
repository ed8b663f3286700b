"""The command line, as a program of its own, on real servers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.claiming import claim_lane
from tests.support.command_line import asked, tidemark
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN, LEDGERS, Example, Outcome
from tidemark.commit.protocol import Step
from tidemark.errors import Fenced, LanePaused
from tidemark.ledger.ledger import record_key
from tidemark.ledger.records import LaneKind
from tidemark.offsets.coordinates import parse_coordinates, parse_ranges
from tidemark.runs.requests import selecting
from tidemark.runs.windows import ingest, lanes
from tidemark.views.messages.message import as_values
from tidemark.views.messages.trace import located
from tidemark.views.values import as_plain


@pytest.fixture
def ingested(live: LiveStream) -> LiveStream:
    live.produce(120)
    live.ingest()
    return live


@pytest.mark.usefixtures("spark")
def test_what_is_where(ingested: LiveStream) -> None:
    live, file = ingested, str(ingested.file)
    live.select(LaneKind.REPLAY, live.ranges(0, 1, (3, 5)))
    live.produce(30)

    partitions = asked("status", file)["partitions"]
    ends = {(one["topic"], one["partition"]): int(one["end"]) for one in partitions}
    assert {(one["topic"], one["partition"]): int(one["position"]) for one in partitions} == live.positions()
    assert sum(int(one["lag"]) for one in partitions) == 30
    assert sum(ends.values()) == 150

    lanes = {one["lane"]: one for one in asked("ledger", "show", file, "--closed")}
    replay = next(name for name in lanes if name != "ingest")
    assert (lanes["ingest"]["windows"], lanes[replay]["windows"], lanes[replay]["state"]) == (1, 1, "closed")

    at = f"{live.topics[0]}/1"
    found = {one["partition"]: one for one in asked("ledger", "coverage", file)}[at]
    position = live.positions()[live.topics[0], 1]
    assert found["lanes"] == {"ingest": [["0", str(position)]], replay: [["3", "5"]]}
    assert (found["holes"], found["again"]) == ([], [["3", "5"]])

    # Of a message that was replayed, the newer window counts; both are named.
    shown = asked("show", file, f"{at}@4")
    assert [(one["lane"], one["counts"]) for one in shown["windows"]] == [(replay, True), ("ingest", False)]
    expected = live.expected()
    place = (live.topics[0], 1, 4, 0)
    stored = {one["place"]: one["fields"] for one in shown["rows"]}
    if place in expected.rows:
        assert stored == {"hbase": expected.rows[place], "parquet": expected.rows[place]}
    else:
        assert {name: row["reason"] for name, row in stored.items()} == {"dead letters": expected.dead[place[:3]]}

    rows = asked("results", file, "--limit", "1000")
    assert len(rows) == len(expected.rows)
    for one in rows:
        coordinate, _, offset = one["coordinate"].rpartition("@")
        topic, _, partition = coordinate.rpartition("/")
        assert one["fields"] == expected.rows[topic, int(partition), int(offset), one["index"]]

    out, _ = tidemark("status", file)
    assert all(topic in out for topic in live.topics)
    out, _ = tidemark("ledger", "verify", file)
    assert out == f"{live.name}: 2 windows, all of them there and unchanged\n"
    out, _ = tidemark("show", file, f"{at}@{position}")
    assert out == f"{at}@{position}: not read yet: the ingest is at {position}\nKafka: Kafka holds the message\n"
    out, _ = tidemark("show", file, f"{at}@{ends[live.topics[0], 1] + 5}")
    assert out.endswith(": not in the topic yet: at or above its end\nKafka: Kafka has not got so far\n")


@pytest.mark.covers("N1")
@pytest.mark.usefixtures("spark")
def test_which_window_stored_a_message_is_known_for_good(make: Make, ledger: str) -> None:
    """Of what was ingested, replayed once and twice, backfilled, lost, skipped, and skipped but backfilled; and of the rest."""
    live = make(CDN)
    file, topic = str(live.file), live.topics[0]
    source = {"topics": [topic], "start": {"offsets": {f"{topic}/0": 4}, "others": "earliest"}}
    live.rewrite(ledger=LEDGERS[ledger], source=source)
    live.produce(60)
    (first,) = live.ingest("the first run")
    live.produce(60)
    live.kafka.delete_records(topic, 1, 18)
    changes = {"source": {**source, "on_out_of_range": "earliest"}, "limits": {"max_behind": 5}}
    live.rewrite(ledger=LEDGERS[ledger], **changes)
    # Positions were 15 in every partition; now 15 to 24 are skipped, and before that 15 to 17 of partition 1 are lost.
    live.ingest("the second run")
    live.select(LaneKind.BACKFILL, live.ranges(0, 0, (0, 2)), "below the start")
    live.select(LaneKind.BACKFILL, live.ranges(0, 2, (15, 17), (19, 25)), "what was skipped")
    live.select(LaneKind.REPLAY, live.ranges(0, 3, (2, 9)), "a replay")
    live.select(LaneKind.REPLAY, live.ranges(0, 3, (4, 5), (8, 10)) | live.ranges(0, 2, (16, 17)), "a replay of some")
    live.produce(20)
    live.ingest("the last run")
    opened, expected = live.opened, live.expected()

    def shown(partition: int, offset: int) -> tuple[list[str], list[str]]:
        """The runs whose windows have read a message, the newest first, and why it was jumped over."""
        found = as_values(located(opened, *parse_coordinates(f"{topic}/{partition}@{offset}")))
        windows = found.windows
        assert [one.counts for one in windows] == [True] * len(windows[:1]) + [False] * len(windows[1:])
        generations = [one.generation for one in windows]
        assert generations == sorted(generations, reverse=True)
        place = (topic, partition, offset)
        row = expected.rows.get((*place, 0))
        rows = [(one.place, one.fields.get("reason") if row is None else one.fields) for one in found.rows]
        if not windows:
            assert rows == []
        elif row is None:
            assert rows == [("dead letters", expected.dead[place])]
        else:
            assert rows == [("hbase", row), ("parquet", row)]
        gaps = [f"{one.kind} by {one.lane} {one.seq}" for one in found.gaps]
        return [one.run for one in windows], gaps

    assert shown(0, 3) == ([], [])
    assert shown(0, 1) == (["below the start"], [])
    assert shown(0, 4) == shown(0, 14) == shown(3, 1) == (["the first run"], [])
    assert shown(1, 17) == ([], ["lost by ingest 2"])
    assert shown(1, 18) == shown(2, 18) == ([], ["skipped by ingest 2"])
    assert shown(2, 19) == (["what was skipped"], ["skipped by ingest 2"])
    assert shown(2, 16) == (["a replay of some", "what was skipped"], ["skipped by ingest 2"])
    assert shown(3, 3) == shown(3, 5) == (["a replay", "the first run"], [])
    assert shown(3, 4) == shown(3, 8) == (["a replay of some", "a replay", "the first run"], [])
    assert shown(3, 9) == (["a replay of some", "the first run"], [])
    assert shown(2, 29) == (["the second run"], [])
    assert shown(2, 30) == shown(2, 34) == (["the last run"], [])
    assert shown(2, 35) == shown(9, 0) == ([], [])
    at = located(opened, *parse_coordinates(f"{topic}/3@4"))
    assert asked("show", file, f"{topic}/3@4") == as_plain(as_values(at))
    out, _ = tidemark("show", file, f"{topic}/2@18")
    assert f"skipped: window 2 of ingest jumped over {topic}/2@15-25 (max_behind: 5)\n" in out

    # The record of the first window is the one that was committed, with all that was known then.
    found = opened.ledger.record("ingest", 1)
    assert found is not None
    assert found[1] == first
    assert {(one.partition, one.start, one.until) for one in first.window.ranges} == {
        (0, 4, 15),
        *((partition, 0, 15) for partition in (1, 2, 3)),
    }
    log = opened.log.topics([topic], "read_committed")[topic]
    assert first.window.topic_ids == {topic: log.topic_id}
    assert all(one.leader_epoch == log.partitions[one.partition].leader_epoch for one in first.window.ranges)
    assert {one.partition: one.read.number for one in first.receipt.tallies} == {0: 11, 1: 15, 2: 15, 3: 15}
    assert len({one.content for one in first.receipt.tallies}) == 4
    assert (first.attempt.run, first.attempt.code_version) == ("the first run", lanes.code_version())
    assert first.attempt.stream_digest != opened.file.digest


def test_a_plan_is_shown_and_nothing_is_pinned(live: LiveStream) -> None:
    file = str(live.file)
    _, said = tidemark("plan", file)
    assert said == "nothing is new\n"
    live.produce(120)
    found = asked("plan", file)
    assert (found["window"], found["pinned"], found["offsets"]) == (1, False, 120)
    assert list(live.opened.ledger.store.scan(())) == []
    pending = ingest.plan_ingest(live.opened, "run")
    assert pending is not None
    pinned = [
        {"partition": str(one.at), "from": str(one.start), "until": str(one.until)} for one in pending.window.ranges
    ]
    assert found["ranges"] == pinned
    live.produce(10)
    found = asked("plan", file)
    assert (found["ranges"], found["pinned"]) == (pinned, True)


@pytest.mark.full
@pytest.mark.usefixtures("spark")
def test_a_changed_record_is_found(live: LiveStream) -> None:
    for _ in range(2):
        live.produce(30)
        live.ingest()
    ledger = live.opened.ledger
    found = ledger.record("ingest", 1)
    assert found is not None
    ledger.store.put(
        record_key("ingest", 1), found[0].replace(b'"isolation":"read_committed"', b'"isolation":"read_uncommitted"')
    )
    _, said = tidemark("ledger", "verify", str(live.file), code=7)
    assert said == "lane ingest: window 1 is not the one that window 2 followed: one was changed\n"


@pytest.mark.full
def test_a_pinned_window_is_given_up(live: LiveStream) -> None:
    live.produce(30)
    assert ingest.plan_ingest(live.opened, "run") is not None
    _, said = tidemark("ledger", "abandon", "--yes", str(live.file), "ingest", "--reason", " ", code=2)
    assert said == "tidemark: WrongUse: abandon needs a reason\n"
    out, _ = tidemark("ledger", "abandon", "--yes", str(live.file), "ingest", "--reason", "a wrong stream file")
    assert out == f"window 1 of {live.name}/ingest is given up; the next run plans again\n"
    abandoned = live.head().abandoned
    assert abandoned is not None
    assert abandoned.reason == "a wrong stream file"
    assert live.head().pending is None


@pytest.mark.full
@pytest.mark.usefixtures("spark")
def test_a_replay_is_given_up(live: LiveStream) -> None:
    file = str(live.file)
    live.produce(30)
    live.ingest()
    chosen = live.ranges(0, 0, (0, 3))
    lane = claim_lane(live.opened, LaneKind.REPLAY, "wrong", chosen, "test")
    assert lanes.plan_lane(live.opened, lane, "wrong") is not None
    out, _ = tidemark("ledger", "abandon", "--yes", file, lane, "--reason", "asked for the wrong hour")
    assert out.endswith(f"To free it: tidemark cancel {live.name} {lane} --reason ...\n")
    _, said = tidemark("cancel", "--yes", file, lane, "--reason", "asked for the wrong hour")
    assert f"{live.name}/{lane} is closed: 0 windows are committed and stay\n" in said
    _, said = tidemark("cancel", "--yes", file, lane, "--reason", "asked for the wrong hour", code=2)
    assert "was closed before it was done: asked for the wrong hour. There is nothing to cancel" in said
    _, said = tidemark("replay", "--yes", file, "--run", "wrong", code=3)
    assert "was closed before it was done: asked for the wrong hour" in said
    claim_lane(live.opened, LaneKind.REPLAY, "right", chosen, "test")


@pytest.mark.full
@pytest.mark.usefixtures("spark")
def test_terminal_codes_in_a_message_stay_text(make: Make) -> None:
    live = make(CDN)
    evil = "\x1b]0;owned\x07\x1b[31m\u202e"
    line = f'203.0.113.9 - - [21/Nov/2026:07:10:00 +0000] "GET http://h/{evil} HTTP/1.1" 200 5321 0.132'
    live.kafka.send([(live.topics[0], 0, b"key", line.encode())])
    live.ingest()
    for command in (["results", str(live.file)], ["show", str(live.file), f"{live.topics[0]}/0@0"]):
        out, _ = tidemark(*command)
        assert "\\x1b]0;owned\\x07\\x1b[31m\\u202e" in out
        assert not {"\x1b", "\x07", "\u202e"} & set(out)


def test_wrong_use_is_named(make: Make) -> None:
    live = make(CDN)
    folder = str(live.file.parent)
    _, said = tidemark("status", "nobody", code=2, TIDEMARK_STREAMS=folder)
    assert f"no stream is called 'nobody' in {folder}; there are: {live.name}" in said
    out, _ = tidemark("streams", "check", TIDEMARK_STREAMS=folder)
    assert out == f"{live.file}: stream {live.name}\n"
    (live.file.parent / "bad.yaml").write_text("stream: bad\nsurprise: 1\n")
    _, said = tidemark("streams", "check", TIDEMARK_STREAMS=folder, code=2)
    assert "bad.yaml:2: surprise: unknown key" in said
    _, said = tidemark("show", str(live.file), "nonsense", code=2)
    assert "'nonsense' is not a coordinate; expected topic/partition@offset" in said
    _, said = tidemark("status", str(live.file.with_name("missing.yaml")), code=2)
    assert "missing.yaml: cannot be read: No such file or directory" in said
    _, said = tidemark("status", str(live.file), code=2, AIRFLOW_CONN_KAFKA_DEFAULT="")
    assert "tidemark: ConnectionMissing: there is no connection kafka_default: set AIRFLOW_CONN_KAFKA_DEFAULT" in said


@pytest.mark.full
@pytest.mark.covers("N17")
@pytest.mark.usefixtures("spark")
def test_a_replay_is_paused_goes_on_and_is_cancelled(make: Make) -> None:
    """As people do it: from a terminal, while the job runs. What is left is replayed later; nothing is missing or twice."""
    live = make(CDN)
    file, run = str(live.file), "mine"
    live.produce(400)
    live.ingest()
    live.rewrite(limits={"max_records": 40})
    chosen = live.ranges(0, 0, (0, 90)) | live.ranges(0, 3, (10, 80))
    lane = lanes.lane_name(LaneKind.REPLAY, run)

    def pausing(step: Step) -> None:
        if step == Step.READ:
            out, _ = tidemark("pause", file, run, "--reason", "the cluster is full")
            assert out.startswith(f"{live.name}/{lane} is paused: no further window begins.")

    with pytest.raises(LanePaused, match="the cluster is full"):
        live.select(LaneKind.REPLAY, chosen, run, on_step=pausing)
    assert live.head(lane).seq == 1
    assert [one["state"] for one in asked("ledger", "show", file) if one["lane"] == lane] == ["paused"]
    _, said = tidemark("replay", "--yes", file, "--run", run, code=3)
    assert "LanePaused" in said
    _, said = tidemark(
        "replay", "--yes", file, "--run", run, "--ranges", f"{live.topics[0]}/0@0-9", "--reason", "test", code=3
    )
    assert "AnotherRequest" in said
    tidemark("resume", file, lane)

    def cancelling(step: Step) -> None:
        # While the second of the windows that follow has stored its rows, and not committed them.
        if step == Step.VERIFIED and live.head(lane).seq == 2:
            found = asked("cancel", "--yes", file, run, "--reason", "asked for the wrong hour")
            assert (found["lane"], found["committed_windows"], found["given_up_window"]) == (lane, 2, 3)
            left.append(found["not_read"])

    left: list[dict[str, Any]] = []
    with pytest.raises(Fenced, match="abandoned"):
        live.select(LaneKind.REPLAY, chosen, run, on_step=cancelling)
    (rest,) = left
    read = sum(one.record.window.hull().count() for one in live.opened.ledger.committed() if one.record.lane == lane)
    assert rest["offsets"] == 160 - read > 0
    live.assert_exactly_what_was_read()
    _, said = tidemark("replay", "--yes", file, "--run", run, code=3)
    assert "was closed before it was done: asked for the wrong hour" in said
    text = "\n".join(f"{one['partition']}@{one['from']}-{one['until']}" for one in rest["ranges"])
    again = live.select(LaneKind.REPLAY, selecting.in_known_incarnations(live.opened, parse_ranges(text)))
    assert sum(tally.read.number for record in again for tally in record.tallies) == rest["offsets"]
    live.assert_exactly_what_was_read()


ITEMS = Example(
    "items",
    {
        "source": {"topics": []},
        "scheme": {"type": "json", "fields": {"id": "integer"}, "unknown": "keep"},
        "sinks": [{"type": "hbase", "table": "-"}],
        "dead_letters": {"type": "hbase", "table": "-"},
    },
    ("items",),
    1,
    lambda count, first: (
        (None, json.dumps({"id": one, "name": f"é{one}", "of": {"a": 1}, "any": [one, "x"]}).encode())
        for one in range(first, first + count)
    ),
    lambda value: Outcome(None, None),
)


@pytest.mark.full
@pytest.mark.covers("N111")
def test_keys_of_the_newest_messages_are_added_to_the_file(make: Make) -> None:
    live = make(ITEMS)
    live.produce(20)
    live.file.write_text("# of the shop\n" + live.file.read_text())
    live.file.chmod(0o640)
    before = live.file.read_text()
    command = ("streams", "add-fields", str(live.file))
    tidemark(*command, code=2)
    shown, said = tidemark(*command, "--dry-run")
    assert live.file.read_text() == before
    assert "+" in shown
    assert "note: no one type fits these, or what is in them; add them by hand: any" in said
    shown, said = tidemark(*command, "--yes")
    assert "looked at 20 messages" in said
    assert live.file.read_text().startswith("# of the shop\n")
    assert live.file.stat().st_mode & 0o777 == 0o640
    assert {**live.opened.fields}.keys() == {"id", "name", "of", "unknown"}
    tidemark("streams", "check", "--against-ledger", str(live.file))
    _, said = tidemark(*command, "--yes")
    assert "by hand: any" in said
