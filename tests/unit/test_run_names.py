"""A run's name stands for one request: another one under it is refused, and a dry run changes nothing, whatever exists."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.support.claiming import claim_lane, claim_lanes, claimed_by
from tests.support.streams_in_memory import TEXT, StreamInMemory, offsets
from tidemark.cli import lanes_of_runs, stream_lookup
from tidemark.cli.commands import erase as erase_command
from tidemark.cli.commands import replay as replay_command
from tidemark.errors import AnotherRequest, LaneClosed, OffsetsOutOfRange, RecordsGone, WrongUse
from tidemark.ledger.codec import encode
from tidemark.ledger.erasures import erased
from tidemark.ledger.ledger import head_key
from tidemark.ledger.records import INGEST, LaneKind
from tidemark.ledger.register import change
from tidemark.offsets.ranges import RangeSet
from tidemark.runs import erasing, steering
from tidemark.runs.requests.forms import BackfillRequest, EraseRequest, ReplayRequest, checked
from tidemark.runs.requests.record_files import FOLDER
from tidemark.runs.windows import lanes

REASON = "bug 17"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StreamInMemory:
    """The ingest has read [0, 50) of 60. The commands meet this stream, and start no jobs."""
    stream = StreamInMemory(tmp_path, text=TEXT.replace("scheme:", "limits: {max_records: 20}\nscheme:", 1))
    stream.ends((0, 50))
    while stream.ingest("run 1"):
        pass
    stream.ends((0, 60))
    monkeypatch.setattr(stream_lookup, "opened", lambda _: stream.opened)
    monkeypatch.setattr(erasing, "remaining", lambda *_: [])
    monkeypatch.setattr(lanes_of_runs, "process", lambda *_, **__: None)
    monkeypatch.setattr(lanes_of_runs, "process_together", lambda *_, **__: None)
    return stream


def replay(**options: Any) -> None:
    replay_command.replay("orders", run_name="r", yes=True, **options)


def backfill(**options: Any) -> None:
    replay_command.backfill(
        "orders", run_name="r", mode="reprocess" if options else "only_missing", yes=True, **options
    )


def erase(**options: Any) -> None:
    erase_command.erase("orders", run_name="r", yes=True, **options)


def gone(made: StreamInMemory) -> RangeSet:
    return erased(made.opened.ledger.committed())


ASKED = {"records": ["orders/0@5"], "reason": REASON}
OTHERS: list[tuple[Callable[..., None], dict[str, Any], str]] = [
    (replay, {"records": ["orders/0@6"]}, "records was orders/0@5, and is orders/0@6"),
    (replay, {"reason": "bug 18"}, "reason was bug 17, and is bug 18"),
    (replay, {"rate": 3}, "rate was left empty, and is 3"),
    (replay, {"lanes": 2}, "lanes was left empty, and is 2"),
    (replay, {"sinks": ["hbase"]}, r"sinks was left empty, and is 'hbase'"),
    (replay, {"records": None, "ranges": ["orders/0@5-9"]}, "records was orders/0@5, and is left empty; ranges was"),
    (replay, {"records": None, "ignore_stored": True}, r".*ignore_stored was left empty, and is True"),
    (backfill, {"records": ["orders/0@6"]}, "records was orders/0@5, and is orders/0@6"),
    (erase, {"records": ["orders/0@7"]}, "records was orders/0@5, and is orders/0@7"),
    (erase, {"reason": "request 2"}, "reason was bug 17, and is request 2"),
]


@pytest.mark.covers("N45")
@pytest.mark.parametrize(("command", "other", "said"), OTHERS)
def test_another_request_under_a_run_that_has_begun_is_refused_by_name(
    made: StreamInMemory, command: Callable[..., None], other: dict[str, Any], said: str
) -> None:
    command(**ASKED)
    before = dict(made.store.values)
    with pytest.raises(AnotherRequest, match=f"run r of orders has begun with another request: {said}"):
        command(**{**ASKED, **other})
    assert {key: value for key, value in made.store.values.items() if key[0] != "selection"} == {
        key: value for key, value in before.items() if key[0] != "selection"
    }
    # The same request goes on, and so does the name alone.
    command(**ASKED)
    command()


@pytest.mark.covers("N45")
def test_another_request_is_refused_also_when_the_run_is_done(made: StreamInMemory) -> None:
    """An erasure that ends well and has erased nothing would be the worst answer."""
    erase(**ASKED)
    assert gone(made) == offsets((0, 5, 6))
    with pytest.raises(AnotherRequest, match="records was orders/0@5, and is orders/0@7"):
        erase(**{**ASKED, "records": ["orders/0@7"]})
    replay(ranges=["orders/0@10-20"], reason=REASON)
    (lane,) = lanes.lanes_of(made.opened, LaneKind.REPLAY, "r")
    made.process(lane, "r")
    lanes.finish(made.opened, lane)
    with pytest.raises(AnotherRequest, match="ranges was orders/0@10-20, and is orders/0@10-30"):
        replay(ranges=["orders/0@10-30"], reason=REASON)
    assert gone(made) == offsets((0, 5, 6))


@pytest.mark.covers("N45")
@pytest.mark.parametrize("again", [{}, {"records": ["orders/0@6"]}])
def test_a_dry_run_under_a_name_that_has_begun_changes_nothing(
    made: StreamInMemory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], again: dict[str, Any]
) -> None:
    """The run has claimed its offsets, and has died. Neither the same request nor another one goes on with it."""
    monkeypatch.setattr(erasing, "erase", lambda *_, **__: None)
    monkeypatch.setattr(erasing, "done", lambda *_: erasing.ErasureResult(RangeSet(), [], {}))
    erase(**ASKED)
    replay(records=["orders/0@15"], reason=REASON)
    monkeypatch.undo()
    monkeypatch.setattr(stream_lookup, "opened", lambda _: made.opened)
    monkeypatch.setattr(erasing, "remaining", lambda *_: [])
    started: list[Any] = []
    monkeypatch.setattr(lanes_of_runs, "process", lambda *given, **_: started.append(given))
    before = dict(made.store.values)
    capsys.readouterr()
    erase(**{**ASKED, **again}, dry_run=True)
    assert "1 offset would be erased; nothing was changed" in capsys.readouterr().err
    replay(**{"records": ["orders/0@15"], "reason": REASON, **again}, dry_run=True)
    said = capsys.readouterr().err
    assert "dry run: 1 offset would be read" in said
    assert ("this would be refused: run r" if again else "would go on with what it has claimed") in said
    assert (started, gone(made)) == ([], RangeSet())
    assert {key for key in made.store.values if made.store.values[key] != before.get(key)} <= {
        key for key in made.store.values if key[0] == "selection"
    }


@pytest.mark.covers("N45")
def test_a_file_of_records_that_was_written_anew_is_another_request(
    made: StreamInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, FOLDER, str(made.folder))
    file = made.folder / "to_erase.csv"

    def write(*found: int) -> None:
        file.write_text("topic,partition,offset\n" + "".join(f"orders,0,{one}\n" for one in found))

    for command in (erase, replay):
        write(5 if command is erase else 6)
        command(records_file="to_erase.csv", reason=REASON)
        command(records_file="to_erase.csv", reason=REASON)
        write(8)
        with pytest.raises(AnotherRequest, match=r"records_file was to_erase\.csv with the records [0-9a-f]{64}"):
            command(records_file="to_erase.csv", reason=REASON)
    assert gone(made) == offsets((0, 5, 6))


@pytest.mark.covers("N45")
def test_a_run_goes_on_when_the_file_of_its_records_is_gone(
    made: StreamInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has claimed the records, and the ledger has the request. A run that begins needs the file."""
    monkeypatch.setitem(os.environ, FOLDER, str(made.folder))
    file = made.folder / "named.csv"
    for command, offset in ((erase, 5), (replay, 6)):
        file.write_text(f"topic,partition,offset\norders,0,{offset}\n")
        command(records_file="named.csv", reason=REASON)
        file.unlink()
        # An erasure is done by now, a replay is not.
        command(records_file="named.csv", reason=REASON)
        with pytest.raises(AnotherRequest, match="reason was bug 17, and is bug 18"):
            command(records_file="named.csv", reason="bug 18")
        with pytest.raises(RecordsGone, match=r"records_file other\.csv: there is no such file"):
            command(records_file="other.csv", reason=REASON)
    with pytest.raises(RecordsGone, match=r"records_file named\.csv: there is no such file"):
        replay_command.replay("orders", run_name="new", records_file="named.csv", reason=REASON, yes=True)
    assert gone(made) == offsets((0, 5, 6))
    assert claimed_by(made.opened, LaneKind.REPLAY, "r").ranges == offsets((0, 6, 7))  # type: ignore[union-attr]


@pytest.mark.covers("N45")
def test_a_lane_that_another_version_has_opened_says_how_to_go_on(
    made: StreamInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not say what it was asked for."""
    lane = claim_lane(made.opened, LaneKind.REPLAY, "r", offsets((0, 5, 6)), REASON)
    without_asked(made, lane)
    said = r"another version of Tidemark has opened its lane, or the ledger was rebuilt.*\(--run r\); in Airflow, clear"
    with pytest.raises(AnotherRequest, match=said):
        replay(**ASKED)
    started: list[str] = []
    monkeypatch.setattr(lanes_of_runs, "process", lambda _, __, lane, *___, **____: started.append(lane))
    replay()
    assert started == [lane]


def without_asked(made: StreamInMemory, lane: str) -> None:
    """As a version that did not know of `asked` has left a lane."""
    change(
        made.opened.ledger,
        lambda register: structs.replace(
            register, lanes={**register.lanes, lane: structs.replace(register.lanes[lane], asked=None)}
        ),
    )
    found = made.opened.ledger.head(lane)
    assert found is not None
    made.store.values[head_key(lane)] = encode(structs.replace(found.head, asked=None))


@pytest.mark.covers("N45")
def test_bounds_with_an_open_end_stay_the_same_request(made: StreamInMemory) -> None:
    replay(from_=["orders/0@30"], reason=REASON)
    # The ingest reads on, where `--from` alone ends.
    made.ingest("run 2")
    replay(from_=["orders/0@30"], reason=REASON)
    with pytest.raises(AnotherRequest, match=r"ranges was from orders/0@30, and is from orders/0@31"):
        replay(from_=["orders/0@31"], reason=REASON)


def test_a_part_of_a_request_under_a_name_that_has_begun_says_how_to_go_on(made: StreamInMemory) -> None:
    replay(**ASKED)
    with pytest.raises(WrongUse, match="Run r has begun: to go on with it, name the run and nothing else"):
        replay(rate=5)


@pytest.mark.covers("N45")
def test_a_key_with_newer_messages_is_not_erased_by_a_run_that_is_done(
    made: StreamInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is the same, and means more than before."""
    found = [offsets((0, 5, 6))]
    monkeypatch.setattr(erasing, "wanted", lambda *_: (found[0], ""))
    erase(key="ann@example.org", reason=REASON)
    erase(key="ann@example.org", reason=REASON)
    found[0] = offsets((0, 5, 6), (0, 9, 10))
    with pytest.raises(AnotherRequest, match="1 offset that the request means now is not erased"):
        erase(key="ann@example.org", reason=REASON)
    assert gone(made) == offsets((0, 5, 6))
    # A key may be a person's name: the ledger does not keep it.
    assert not any(b"ann@example.org" in value for value in made.store.values.values())


@pytest.mark.covers("N45")
def test_the_lanes_of_a_run_go_on_when_one_of_them_cannot(made: StreamInMemory) -> None:
    """Kafka has deleted what the first lane had not begun. The whole run is asked for again: its claim is as it was."""
    asked = {"ranges": ["orders/0@0-60"], "reason": REASON, "lanes": 3}
    replay(**{**asked, "ranges": ["orders/0@0-50"]})
    first, second, third = lanes.lanes_of(made.opened, LaneKind.REPLAY, "r")
    lanes.plan_lane(made.opened, second, "r")
    made.process(second, "r")
    made.ends((10, 60))
    with pytest.raises(OffsetsOutOfRange):
        lanes.plan_lane(made.opened, first, "r")
    found = claimed_by(made.opened, LaneKind.REPLAY, "r")
    assert found is not None
    assert found.ranges == offsets((0, 0, 50))
    fields = checked(ReplayRequest, {"ranges": "orders/0@0-50", "reason": REASON, "lanes": 3}, {}).fields()
    again = claim_lanes(
        made.opened, LaneKind.REPLAY, "r", found.ranges - offsets((0, 0, 10)), REASON, lanes=3, asked=fields
    )
    assert again == [first, second, third]
    for lane in (second, third):
        while lanes.plan_lane(made.opened, lane, "r") is not None:
            made.process(lane, "r")
        lanes.finish(made.opened, lane)
    assert set(made.opened.ledger.register()[1].lanes) == {INGEST}  # type: ignore[index]
    with pytest.raises(LaneClosed):
        claim_lanes(made.opened, LaneKind.REPLAY, "r", found.ranges, REASON, lanes=3, asked=fields)


def test_a_program_that_opens_lanes_without_a_form_is_held_to_its_arguments(made: StreamInMemory) -> None:
    """As the repair of an audit's findings does."""
    claim_lane(made.opened, LaneKind.REPLAY, "r", offsets((0, 5, 9)), REASON)
    claim_lane(made.opened, LaneKind.REPLAY, "r", offsets((0, 5, 9)), REASON)
    with pytest.raises(AnotherRequest, match="selection was"):
        claim_lane(made.opened, LaneKind.REPLAY, "r", offsets((0, 5, 8)), REASON)
    erasing.open_erasure(made.opened, "r", erasing.choose(made.opened, offsets((0, 20, 21))), REASON)
    with pytest.raises(AnotherRequest, match="erases was"):
        erasing.open_erasure(made.opened, "r", erasing.choose(made.opened, offsets((0, 22, 23))), REASON)


def test_a_cancelled_run_is_told_so_and_not_that_its_request_is_another(made: StreamInMemory) -> None:
    replay(**ASKED)
    (lane,) = lanes.lanes_of(made.opened, LaneKind.REPLAY, "r")
    steering.cancel(made.opened, lane, "the wrong one")
    with pytest.raises(LaneClosed, match="the wrong one"):
        replay(**ASKED)
    with pytest.raises(AnotherRequest):
        replay(**{**ASKED, "reason": "bug 18"})


@pytest.mark.parametrize(
    ("kind", "values", "fields"),
    [
        (
            ReplayRequest,
            {"records": "orders/0@5", "dry_run": False, "compare": True, "strict": True},
            {"records": "orders/0@5"},
        ),
        (BackfillRequest, {"holes": True, "lanes": 1, "order": "oldest"}, {"holes": "True"}),
        (ReplayRequest, {"ignore_stored": True, "sinks": ["b", "a"]}, {"ignore_stored": "True", "sinks": "'a','b'"}),
    ],
)
def test_a_request_is_what_was_filled_in_to_ask_for_something(
    kind: Any, values: dict[str, Any], fields: dict[str, str]
) -> None:
    assert checked(kind, {**values, "reason": REASON}, {}).fields() == {**fields, "reason": REASON}
    assert kind.asks(values)
    assert not kind.asks({"dry_run": True, "compare": True, "strict": True, "plan": "", "records": "", "lanes": 1})


def test_long_and_private_texts_are_kept_as_digests() -> None:
    long = checked(EraseRequest, {"records": "orders/0@5\n" * 50, "reason": REASON}, {}).fields()["records"]
    assert long.startswith("550 characters with SHA-256 ")
    key = checked(EraseRequest, {"key": "ann", "reason": REASON}, {}).fields()["key"]
    assert key.startswith("3 characters with SHA-256 ")
