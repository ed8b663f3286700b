"""Reading again what was read, and reading what was left out: in lanes of their own, beside the ingest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from tests.support.claiming import claim_lane
from tests.support.cuts import Cut, cut_after
from tests.support.live_streams import RAW, LiveStream, Make
from tests.support.oracle import CDN, ORDERS, Fields, Place
from tidemark.audit.comparison import MAX_EXAMPLES, PlaceComparison, ReplayComparison
from tidemark.commit.protocol import Step
from tidemark.errors import AnotherRequest, ClaimOverlap, OffsetsOutOfRange, WrongUse
from tidemark.ledger.records import INGEST, LaneKind, LaneState
from tidemark.ledger.register import close_lane
from tidemark.offsets.coordinates import NamedOffsets, parse_records
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.runs.comparisons import find_comparison
from tidemark.runs.requests import selecting
from tidemark.runs.requests.dead_letters import DeadLetterFilter, redrive
from tidemark.runs.requests.forms import BackfillRequest
from tidemark.runs.requests.plan import plan_request
from tidemark.runs.windows import ingest, lanes
from tidemark.sinks.parquet.settings import FolderSettings
from tidemark.spark.jobs.compare import compare

pytestmark = pytest.mark.usefixtures("spark")


@pytest.mark.full
@pytest.mark.covers("C3")
def test_a_replay_of_single_records_touches_those_alone(live: LiveStream) -> None:
    live.produce(300)
    (first,) = live.ingest()
    live.produce(60)
    live.ingest()
    position = live.positions()
    text = f"{live.topics[0]}/0@3\n{live.topics[0]}/0@4\n{live.topics[-1]}/2@9\n{live.topics[0]},0,30\n"
    chosen = selecting.in_known_incarnations(live.opened, parse_records(text))
    (replayed,) = live.select(LaneKind.REPLAY, chosen)
    assert sum(tally.read.number for tally in replayed.tallies) == 4
    assert live.positions() == position
    generations = live.independent.generations()
    again = {place for place, generation in generations.items() if generation == replayed.attempt.generation}
    assert again == {
        (one.partition.topic, one.partition.partition, one.start + n) for one in chosen for n in range(len(one))
    }
    assert generations[live.topics[0], 0, 2] == first.attempt.generation
    live.assert_exactly_what_was_read()
    assert live.independent.hbase().debris == 0
    assert live.independent.parquet(live.fields).debris == len(again - _dead(live))


def _dead(live: LiveStream) -> set[tuple[str, int, int]]:
    return set(live.expected().dead)


# A parser with bugs: it refuses POST, leaves out HEAD, has another reason for one code of 0 and accepts the others, has sizes
# and hosts wrong, and has a field of which the corrected one knows nothing.
WRONG: dict[str, Any] = {
    "checks": [
        {"invalid_when": "method = 'POST'", "reason": "no posts"},
        {"invalid_when": "code = 0 AND size = 5", "reason": "zero"},
    ],
    "transform": {
        "sql": "SELECT _topic, _incarnation, _partition, _offset, _index, clientip, time, method, IF(code = 304, null, host) "
        "AS host, path, protocol, `protocol-version`, code, IF(code IN (206, 304), size + 1, size) AS size, dltime, "
        "IF(code = 502, 'late', null) AS note FROM messages WHERE coalesce(method, '') != 'HEAD'",
        "fields": {**CDN.stream["scheme"]["fields"], "note": "string"},
    },
}


def compared(live: LiveStream) -> ReplayComparison:
    """A comparison of a replay of everything."""
    opened = live.opened
    selection = opened.ledger.store_selection(opened.ledger.authority().covered())
    found = compare(opened, live.new_run(), selection.digest)
    assert find_comparison(opened, found.run) == found
    return found


def by_hand(
    name: str,
    before: dict[Place, Fields],
    after: dict[Place, Fields],
    names: Sequence[str],
    dead_before: Container[tuple[str, int, int]],
    dead_after: Container[tuple[str, int, int]],
) -> dict[str, Any]:
    """What a comparison has to say, from the rows alone. Examples are the first by coordinate."""
    both = before.keys() & after.keys()
    differing = {
        place: [one for one in names if before[place].get(one) != after[place].get(one)] for place in sorted(both)
    }
    changed = {place: columns for place, columns in differing.items() if columns}
    columns = Counter(name for found in changed.values() for name in found)
    new = {
        place: "its message was a dead letter" if place[:3] in dead_before else "nothing was stored of its message"
        for place in sorted(after.keys() - before.keys())
    }
    gone = dict.fromkeys(sorted(before.keys() - after.keys()), "its message is now a dead letter")
    assert all(place[:3] in dead_after for place in gone)
    return {
        "name": name,
        "before": len(before),
        "after": len(after),
        "same": len(both) - len(changed),
        "changed": len(changed),
        "new": len(new),
        "gone": len(gone),
        "columns": {one: columns[one] for one in names if columns[one]},
        "new_because": Counter(new.values()),
        "gone_because": Counter(gone.values()),
        "changed_at": [(_at(one), found, "") for one, found in changed.items()][:MAX_EXAMPLES],
        "new_at": [(_at(one), [], why) for one, why in new.items()][:MAX_EXAMPLES],
        "gone_at": [(_at(one), [], why) for one, why in gone.items()][:MAX_EXAMPLES],
    }


def _at(place: Place) -> str:
    return f"{place[0]}/{place[1]}@{place[2]}"


def said(place: PlaceComparison) -> dict[str, Any]:
    examples = {
        kind: [(one.at, list(one.columns), one.why) for one in getattr(place, kind)]
        for kind in ("changed_at", "new_at", "gone_at")
    }
    return {**msgspec.structs.asdict(place), **examples}


def everything_stored(live: LiveStream) -> dict[str, Any]:
    """The bytes of the ledger's windows, of the tables and of the files: all but advisory values and selections."""
    store = live.opened.ledger.store
    found: dict[str, Any] = {kind: dict(store.scan((kind,))) for kind in ("head", "history", "closed", "settled")}
    found["register"] = store.read(("register",))
    for table in (live.name, f"{live.name}_dead", f"{live.name}_latest", f"{live.name}_sums"):
        found[table] = live.independent.cells(table)
    for sink in live.opened.stream.sinks:
        if isinstance(sink, FolderSettings):
            folder = Path(sink.base(live.opened.connections).removeprefix("file://"))
            found[sink.name] = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
            assert found[sink.name]
    return found


@pytest.mark.full
@pytest.mark.covers("N22")
@pytest.mark.parametrize("pieces", [False, pytest.param(True, marks=pytest.mark.full)], ids=["whole", "in pieces"])
def test_a_replay_after_a_bug_fix_changes_what_its_comparison_said(
    make: Make, monkeypatch: pytest.MonkeyPatch, pieces: bool
) -> None:
    sinks = [
        {"type": "hbase", "table": "-"},
        {"type": "parquet", "folder": "-"},
        {"type": "delta", "folder": "-"},
        {"type": "hbase_latest", "table": "-", "folder": "-", "key": ["protocol", "method"], "regions": 2},
        {
            "type": "hbase_aggregates",
            "table": "-",
            "folder": "-",
            "regions": 2,
            "key": "method",
            "values": {"rows": "count", "all": {"sum": "size"}, "last": {"max": "host"}},
        },
    ]
    live = make(CDN)
    suffix = {"delta": "_delta", "hbase_latest": "_latest", "hbase_aggregates": "_sums"}
    for sink in sinks:
        named = f"{live.name}{suffix.get(str(sink['type']), '')}"
        sink |= {name: named for name in ("table", "folder") if name in sink}
    live.rewrite(sinks=sinks, **WRONG)
    live.produce(300)
    zero = b'1.2.3.4 - - [21/Nov/2026:07:10:00 +0000] "%b http://zzz/a HTTP/1.1" 0 %d 0.1'
    # These alone have the method PUT.
    zeros = [(size, zero % (b"PUT" if size < 7 else b"GET", size)) for size in range(3, 9)]
    live.kafka.send([(live.topics[0], size % 4, None, line) for size, line in zeros])
    live.ingest()
    # Two windows: some of the rows before are a replay's.
    live.select(LaneKind.REPLAY, live.ranges(0, 1, (0, 20)))
    before = live.independent.hbase().by_place()
    letters = live.independent.hbase(f"{live.name}_dead").rows
    dead = {place: {"outcome": "invalid", "reason": one["reason"]} for place, one in letters}

    # The fix. What the broken code stored is still there.
    live.rewrite(sinks=sinks)
    wanted = live.expected()
    dead_after = {(*place, 0): {"outcome": "invalid", "reason": why} for place, why in wanted.dead.items()}
    stored = everything_stored(live)
    if pieces:
        # As of a larger selection, of which it says the same.
        monkeypatch.setattr("tidemark.spark.jobs.compare._AT_LEAST", 1)
        live.rewrite(sinks=sinks, limits={"max_records": 110})
    found = compared(live)
    live.rewrite(sinks=sinks)
    assert everything_stored(live) == stored
    assert (found.offsets, found.messages) == (306, 306)
    assert (found.stored, found.skipped, found.dead_letters) == (len(wanted.rows), 0, len(wanted.dead))
    assert found.not_compared == ()
    assert {one.reason: one.number for one in found.reasons} == Counter(wanted.dead.values())
    coordinates_before, coordinates_after = {place[:3] for place in dead}, set(wanted.dead)
    names = [*live.fields, "note"]
    for place in found.places[:-1]:
        assert said(place) == by_hand(place.name, before, wanted.rows, names, coordinates_before, coordinates_after), (
            place.name
        )
        # Each kind of change is in it.
        assert min(place.same, place.changed, place.new, place.gone, *place.columns.values()) > 0
        assert set(place.columns) == {"host", "size", "note"}
        assert set(place.new_because) == {"its message was a dead letter", "nothing was stored of its message"}
    assert [one.name for one in found.places] == [*(sink["type"] for sink in sinks), "dead letters"]
    of_letters = found.places[-1]
    both = dead.keys() & dead_after.keys()
    changed = sorted(place for place in both if dead[place] != dead_after[place])
    assert {name: getattr(of_letters, name) for name in ("before", "after", "same", "changed", "new", "gone")} == {
        "before": len(dead),
        "after": len(dead_after),
        "same": len(both) - len(changed),
        "changed": len(changed),
        "new": len(dead_after.keys() - dead.keys()),
        "gone": len(dead.keys() - dead_after.keys()),
    }
    assert [(one.at, one.columns) for one in of_letters.changed_at] == [(_at(one), ("reason",)) for one in changed]
    assert len(changed) == 1
    assert of_letters.gone_because == {"the message is now stored": of_letters.gone}
    assert of_letters.new_because == {"the message was no dead letter": of_letters.new}

    live.select(LaneKind.REPLAY, live.opened.ledger.authority().covered())
    live.assert_exactly_what_was_read()
    # The rows that are no longer produced were swept, not only hidden.
    assert live.independent.hbase().debris == 0
    again = compared(live)
    assert again.differences == 0
    assert [one.same for one in again.places] == [len(wanted.rows)] * 5 + [len(wanted.dead)]


@pytest.mark.full
@pytest.mark.covers("C3")
def test_dead_letters_are_replayed_by_their_reason(make: Make) -> None:
    live = make(ORDERS, checks=[{"invalid_when": "amount < 0", "reason": "negative amount"}])
    live.produce(600)
    live.ingest()
    wanted = {place for place, reason in live.expected().dead.items() if reason == "negative amount"}
    found = redrive(live.opened, DeadLetterFilter("negative amount")).ranges
    assert {(one.partition.topic, one.partition.partition, one.start) for one in found} == wanted
    with pytest.raises(
        WrongUse, match=r"no dead letter of .* has the reason 'no such'; reasons are: .*'not one JSON value, "
    ):
        redrive(live.opened, DeadLetterFilter("no such"))
    everything = redrive(live.opened, DeadLetterFilter()).ranges
    assert everything.count() == len(live.expected().dead)
    # Without the check they are good messages.
    live.rewrite(checks=[])
    (again,) = live.select(LaneKind.REPLAY, found)
    # They alone are read and written again.
    assert sum(tally.read.number for tally in again.tallies) == len(wanted)
    assert sum(tally.rows.number for tally in again.tallies) == len(wanted)
    generations = live.independent.generations()
    assert {place for place, one in generations.items() if one == again.attempt.generation} == wanted
    left = {place[:3] for place, _ in live.independent.hbase(f"{live.name}_dead").rows}
    assert left == set(live.expected().dead) - wanted
    assert wanted <= {place[:3] for place, _ in live.independent.hbase().rows}
    assert live.independent.hbase(f"{live.name}_dead").debris == 0


@pytest.mark.covers("A18")
def test_a_window_replayed_gives_exactly_its_offsets_in_order(make: Make) -> None:
    live = make(CDN, **RAW)
    live.kafka.send((live.topics[0], 0, None, b"%d" % number) for number in range(100))
    live.ingest()
    (record,) = live.select(LaneKind.REPLAY, live.ranges(0, 0, (50, 60)))
    assert record.receipt is not None
    (folder,) = (sink.place["folder"] for sink in record.receipt.sinks if sink.type == "parquet")
    (file,) = Path(folder.removeprefix("file://")).rglob("*.parquet")
    assert pq.read_table(file, columns=["_offset"], partitioning=None)["_offset"].to_pylist() == list(range(50, 60))


@pytest.mark.full
@pytest.mark.covers("E48")
def test_a_lane_takes_only_what_is_its_kind_and_nobody_elses(live: LiveStream) -> None:
    live.produce(120)
    live.ingest()
    opened = live.opened
    with pytest.raises(WrongUse, match="committed already; a replay reads it again"):
        claim_lane(opened, LaneKind.BACKFILL, "a", live.ranges(0, 0, (0, 2)), "test")
    with pytest.raises(ClaimOverlap, match="at or above the ingest position"):
        claim_lane(opened, LaneKind.REPLAY, "b", live.ranges(0, 0, (0, 1000)), "test")
    with pytest.raises(WrongUse, match=r"nothing to replay: .*or the selection is empty"):
        claim_lane(opened, LaneKind.REPLAY, "c", RangeSet(), "test")
    with pytest.raises(WrongUse, match="never read this topic"):
        selecting.in_known_incarnations(
            opened, NamedOffsets(RangeSet([OffsetRange(TopicPartition("elsewhere", 0), 0, 1)]))
        )
    lane = claim_lane(opened, LaneKind.REPLAY, "d", live.ranges(0, 0, (0, 5)), "test")
    with pytest.raises(ClaimOverlap, match=rf"claimed by the open lane {lane} \(run d\)") as caught:
        claim_lane(opened, LaneKind.REPLAY, "e", live.ranges(0, 0, (4, 6)), "test")
    assert caught.value.exit_code == 3
    # The same run finds its lane again; another selection under the same name is refused.
    assert claim_lane(opened, LaneKind.REPLAY, "d", live.ranges(0, 0, (0, 5)), "test") == lane
    with pytest.raises(AnotherRequest, match=r"run d of .* has begun with another request: selection was"):
        claim_lane(opened, LaneKind.REPLAY, "d", live.ranges(0, 0, (0, 4)), "test")
    # Given up, it is free for the other one.
    close_lane(opened.ledger, lane, because="a test")
    claim_lane(opened, LaneKind.REPLAY, "e", live.ranges(0, 0, (4, 6)), "test")


@pytest.mark.full
def test_what_is_done_stays_done_when_it_is_tried_again(live: LiveStream) -> None:
    """As when the one who waited was killed, and the job went on: plan and job are asked for once more, in every lane."""
    from tidemark.spark.jobs.window import process_windows

    live.produce(60)
    run = live.new_run()
    first = live.ingest(run)
    live.produce(30)
    assert [one.seq for one in lanes.committed_before(live.opened, INGEST, run)] == [1]
    assert ingest.plan_ingest(live.opened, run, again=True) is None
    assert process_windows(live.opened, INGEST, 1, run) == first
    other = live.new_run()
    pending = ingest.plan_ingest(live.opened, other)
    assert pending is not None
    # Another run's window stays its own.
    assert process_windows(live.opened, INGEST, 1, run) == first
    assert live.head().pending == pending
    live.ingest(other)

    chosen = live.ranges(0, 0, (0, 3))
    replayed = live.select(LaneKind.REPLAY, chosen, run)
    lane = claim_lane(live.opened, LaneKind.REPLAY, run, chosen, "a test")
    assert lanes.plan_lane(live.opened, lane, run) is None
    assert process_windows(live.opened, lane, 1, run) == replayed
    assert lanes.committed_before(live.opened, lane, run) == replayed
    live.assert_exactly_what_was_read()


@pytest.mark.full
def test_a_closed_lane_is_never_used_again(live: LiveStream) -> None:
    live.produce(60)
    live.ingest()
    run = live.new_run()
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (0, 3)), run)
    lane = lanes.lane_name(LaneKind.REPLAY, run)
    assert live.head(lane).state == LaneState.CLOSED
    with pytest.raises(AnotherRequest, match="selection was"):
        claim_lane(live.opened, LaneKind.REPLAY, run, live.ranges(0, 0, (0, 4)), "a test")
    # Its claim is released: another run may replay the same offsets.
    live.select(LaneKind.REPLAY, live.ranges(0, 0, (0, 3)))
    live.assert_exactly_what_was_read()


@pytest.mark.full
@pytest.mark.covers("N23")
def test_a_backfill_fills_what_a_start_at_the_end_left_out(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = make(CDN, source={"start": "latest"})
    live.produce(200)
    # The first run pins the position; there is nothing to read yet.
    assert live.ingest() == []
    start = live.positions()
    live.produce(80)
    live.ingest()
    before = selecting.before_the_first_window(live.opened)
    assert {(one.partition.topic, one.partition.partition): (one.start, one.until) for one in before} == {
        place: (0, offset) for place, offset in start.items()
    }
    # Scattered records out of a file, then the rest.
    monkeypatch.setenv("TIDEMARK_SELECTIONS", str(tmp_path))
    lines = [f"{live.topics[0]},1,{offset}" for offset in range(2, 20, 3)]
    (tmp_path / "some.csv").write_text("\n".join(["topic,partition,offset", *lines]))
    some = plan_request(live.opened, BackfillRequest(records_file="some.csv", reason="a test")).ranges
    assert (some.count(), some - before) == (6, RangeSet())
    (stored,) = live.select(LaneKind.BACKFILL, some)
    assert (live.opened.ledger.covers(stored.window), sum(one.read.number for one in stored.tallies)) == (some, 6)
    rest = selecting.before_the_first_window(live.opened)
    assert rest == before - some
    # Killed while it writes the second of three windows, and taken over by another process.
    position, run = live.positions(), live.new_run()
    live.rewrite(limits={"max_records": 80})
    second = cut_after(Step.SINK_STORED, times=len(live.opened.stream.sinks) + 1)
    with pytest.raises(Cut):
        live.select(LaneKind.BACKFILL, rest, run, on_step=second)
    lane = lanes.lane_name(LaneKind.BACKFILL, run)
    cut = live.head(lane)
    assert (cut.seq, cut.pending is None) == (1, False)
    records = live.select(LaneKind.BACKFILL, rest, run)
    assert len(records) == 2
    left = rest
    for record in [cut.last, *records]:
        assert record is not None
        covers = live.opened.ledger.covers(record.window)
        assert covers.count() <= 80
        for at in left.partitions:
            assert covers.only([at]) == left.only([at]).first(covers.count(at))
        left -= covers
    assert not left
    assert live.positions() == position
    live.assert_exactly_what_was_read()
    assert not selecting.before_the_first_window(live.opened)


@pytest.mark.covers("A30", "N18")
@pytest.mark.parametrize("limits", [{"max_records": 60}, {"max_records_per_second": 1}])
def test_a_capped_replay_goes_on_to_the_end_of_its_selection(make: Make, limits: dict[str, int]) -> None:
    live = make(CDN)
    live.produce(400)
    live.ingest()
    live.rewrite(limits=limits)
    waits: list[float] = []
    # By this clock, nothing takes any time.
    opened = live.opened
    now = opened.ledger.clock()
    opened.ledger.clock = lambda: now
    chosen = live.ranges(0, 0, (0, 90)) | live.ranges(0, 3, (7, 8), (50, 80))
    records = live.select(LaneKind.REPLAY, chosen, opened=opened, wait=waits.append)
    assert len(records) == 3
    # Between the windows, and not after the last one: a second for each message.
    read = [sum(tally.read.number for tally in record.tallies) for record in records]
    assert max(read) <= 60
    assert waits == (read[:2] if "max_records_per_second" in limits else [0, 0])
    assert sum(tally.read.number for record in records for tally in record.tallies) == 121
    live.assert_exactly_what_was_read()


@pytest.mark.full
@pytest.mark.covers("E19")
def test_what_kafka_has_forgotten_is_named_and_nothing_is_pinned(live: LiveStream) -> None:
    live.produce(200)
    live.ingest()
    live.kafka.delete_records(live.topics[0], 0, 12)
    run = live.new_run()
    with pytest.raises(OffsetsOutOfRange, match=rf"{live.topics[0]}/0@10-12 is no longer in Kafka"):
        live.select(LaneKind.REPLAY, live.ranges(0, 0, (10, 15)), run)
    assert live.head(lanes.lane_name(LaneKind.REPLAY, run)).pending is None
