"""Looking through messages and dead letters, a bounded part at a time: nothing twice, nothing left out, nothing erased."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.known_streams import KnownStream, tables
from tests.support.streams_in_memory import StreamInMemory, at
from tidemark.clients.kafka.slots import KafkaMessage, OffsetContents, Slot
from tidemark.errors import Conflict, WrongUse
from tidemark.ledger.records import TopicIncarnation
from tidemark.ledger.register import change_topics
from tidemark.offsets.coordinate_files import lines_of
from tidemark.offsets.coordinates import Coordinate, NamedOffsets, parse_records
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests.dead_letters import DeadLetterFilter
from tidemark.runs.requests.record_files import records_in
from tidemark.sinks.contract import SinkAdmin
from tidemark.sinks.reading import rows_of_pieces
from tidemark.sinks.stored_rows import StoredRow
from tidemark.sinks.texts import place
from tidemark.views.browsing import parts, results
from tidemark.views.browsing.dead_letters import dead_letters
from tidemark.views.browsing.exports import exported
from tidemark.views.browsing.filters import parse
from tidemark.views.browsing.items import Item, SearchBudget, SearchResult
from tidemark.views.browsing.matching import Matcher
from tidemark.views.browsing.messages import MessageQuery, messages
from tidemark.views.browsing.page_items import MAX_HEADERS, MAX_SHOWN, SAID, page_of
from tidemark.views.browsing.places import SearchScope
from tidemark.views.dead_letters import dead_letters as in_groups
from tidemark.views.messages.fates import Fate
from tidemark.views.messages.message import as_values, message_shown
from tidemark.views.messages.payloads import Masked, Value
from tidemark.views.messages.rereading import again
from tidemark.views.messages.trace import located as located_at

__all__ = ["tables"]

STORED = Fate.STORED


def found_in(
    world: KnownStream,
    where: str = "orders/0",
    filter_: str = "",
    *,
    bounds: tuple[float, float] = (1e9, 1e9),
    seconds: float = 60,
    **more: object,
) -> SearchResult:
    asked = MessageQuery(SearchScope(where), filter_, **more)  # type: ignore[arg-type]
    return messages(world.opened, asked, SearchBudget.of(*bounds, seconds))


def offsets(found: SearchResult) -> list[int]:
    return [one.at.offset for one in found.items]


@pytest.fixture
def world(tmp_path: Path) -> KnownStream:
    """Twelve offsets: 3 is a marker, 5 and 6 are compacted away; 4 to 11 have JSON, 8 with a negative amount."""
    made = KnownStream(tmp_path, [STORED, STORED, STORED, Slot.MARKER, *[STORED] * 8])
    made.log.gone = {5, 6}
    for offset in range(4, 12):
        amount = -1 if offset == 8 else offset
        value = json.dumps({"amount": amount, "deep": [{"a": "x"}]}).encode()
        made.log.written[offset] = KafkaMessage(
            offset * 1000, False, b"k%d" % (offset % 2), value, (("h", b"v"), ("h", None))
        )
    made.ends((0, 12))
    for _ in range(3):
        made.ingest()
    return made


@pytest.mark.slow
@pytest.mark.covers("U28")
def test_messages_that_fit_are_found_in_a_range_a_time_and_a_window(world: KnownStream) -> None:
    everything = [0, 1, 2, 4, 7, 8, 9, 10, 11]
    assert offsets(found_in(world)) == everything
    assert offsets(found_in(world, "orders")) == everything
    assert offsets(found_in(world, "")) == everything
    assert offsets(found_in(world, "orders/0@2-8")) == [2, 4, 7]
    assert offsets(found_in(world, "orders/0 [2, 8)")) == [2, 4, 7]
    assert offsets(found_in(world, filter_="$.amount < 0")) == [8]
    assert offsets(found_in(world, filter_="$.deep[0].a = 'x' and key = 'k1'")) == [7, 9, 11]
    assert offsets(found_in(world, filter_="$.amount is null")) == [0, 1, 2]
    assert offsets(found_in(world, filter_="header h = 'v' and value contains '\"amount\": 9'")) == [9]
    timed = MessageQuery(SearchScope(since="1970-01-01T00:00:02Z", until="1970-01-01T00:00:05Z"))
    assert offsets(messages(world.opened, timed, SearchBudget.of(1e9, 1e9, 60))) == [2, 4]
    window = MessageQuery(SearchScope(window="ingest/2"))
    assert offsets(messages(world.opened, window, SearchBudget.of(1e9, 1e9, 60))) == [7, 8, 9]
    for where, window_, said in (
        ("elsewhere", "", "the stream reads no topic elsewhere"),
        ("orders/0@5-2", "", "runs backwards"),
        ("orders/0@1-2\norders/0@5-6", "", "expected one topic"),
        ("", "ingest/99", "no committed window"),
        ("orders/0@3\u20137", "", "has a dash"),
    ):
        with pytest.raises(WrongUse, match=said):
            messages(world.opened, MessageQuery(SearchScope(where, window_)), SearchBudget.of(1e9, 1e9, 60))


@pytest.mark.covers("U28")
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("filter_", ["", "value contains '1'"])
def test_questions_that_go_on_find_everything_once(world: KnownStream, backwards: bool, filter_: str) -> None:
    """Whatever a question may look at, and however few it is asked for."""
    whole = offsets(found_in(world, filter_=filter_))
    for count, bounds in ((1, (1e9, 1e9)), (2, (1e9, 1e9)), (50, (1, 1e9)), (50, (1e9, 1)), (3, (2, 40))):
        seen: list[int] = []
        searched = RangeSet()
        looked = 0
        go_on: str | None = ""
        for _ in range(60):
            found = found_in(world, filter_=filter_, count=count, backwards=backwards, go_on=go_on, bounds=bounds)
            assert len(found.items) <= count
            seen += offsets(found)
            assert not searched & RangeSet(found.searched)
            searched |= RangeSet(found.searched)
            looked += found.looked
            assert all((at(0), one.at.offset) in RangeSet(found.searched) for one in found.items)
            go_on = found.go_on
            if go_on is None:
                break
        assert seen == (whole[::-1] if backwards else whole)
        assert searched == RangeSet([OffsetRange(at(0), 0, 12)])
        assert looked == 9


@pytest.mark.covers("U28", "Q17")
def test_a_filter_has_its_time_and_a_question_goes_on_from_there(world: KnownStream) -> None:
    found = found_in(world, filter_="value contains '1'", seconds=0)
    assert found.ended == "time"
    assert found.looked < 9
    assert found.go_on is not None
    rest = found_in(world, filter_="value contains '1'", go_on=found.go_on)
    assert rest.go_on is None
    assert offsets(found) + offsets(rest) == offsets(found_in(world, filter_="value contains '1'"))


@given(
    st.lists(st.sampled_from([True, True, False]), min_size=1, max_size=40),
    st.integers(1, 5),
    st.integers(1, 7),
    st.booleans(),
)
@settings(max_examples=40, deadline=None)
@pytest.mark.covers("U28")
def test_any_log_is_looked_through_once(
    tmp_path_factory: pytest.TempPathFactory, there: list[bool], count: int, bound: int, backwards: bool
) -> None:
    made = KnownStream(tmp_path_factory.mktemp("any"), [STORED if one else Slot.MARKER for one in there])
    made.log.at_once = bound
    made.ends((0, len(there)))
    seen: list[int] = []
    go_on: str | None = ""
    while go_on is not None:
        found = found_in(made, count=count, backwards=backwards, go_on=go_on, bounds=(bound, 1e9))
        seen += offsets(found)
        go_on = found.go_on
    assert all((first < second) != backwards for first, second in pairwise(seen))
    assert sorted(seen) == [offset for offset, one in enumerate(there) if one]


@pytest.mark.covers("U28")
def test_what_was_erased_is_neither_shown_nor_looked_at(world: KnownStream) -> None:
    """Not even by a filter that it alone would fit: how many fit tells nothing of it."""
    erased = RangeSet([OffsetRange(at(0), 8, 9)])
    world.erase(erased)
    found = found_in(world, filter_="$.amount < 0")
    assert (offsets(found), found.erased, found.looked) == ([], 1, 8)
    assert 8 not in offsets(found_in(world))
    # Nor under the number that another incarnation of the same log gives it.
    register = world.opened.ledger.register()
    assert register is not None
    (one,) = register[1].topics["orders"]
    known = (one, TopicIncarnation(topic_id=one.topic_id, incarnation=2, since=2, starts=((0, 2),)))
    change_topics(world.opened.ledger, lambda topics: {**topics, "orders": known})
    found = found_in(world)
    assert [str(item.at) for item in found.items[:3]] == ["orders/0@0", "orders/0@1", "orders#2/0@2"]
    assert (8 in offsets(found), found.erased) == (False, 1)


@pytest.mark.covers("U28")
def test_a_log_that_is_another_one_is_said(world: KnownStream) -> None:
    first = found_in(world, count=2)
    assert first.go_on is not None
    # The answer before was about another one.
    with pytest.raises(Conflict, match="while it was looked at"):
        found_in(world, count=2, go_on=first.go_on.replace(":id:", ":an-earlier-id:"))
    world.log.ids["orders"] = "another id"
    with pytest.raises(Conflict, match="deleted and created again"):
        found_in(world, count=2, go_on=first.go_on)
    with pytest.raises(Conflict, match="does not read the new one yet"):
        found_in(world)
    with pytest.raises(WrongUse, match="go_on: expected what the answer before has given"):
        found_in(world, go_on="0:x")


@pytest.mark.covers("U28")
def test_hostile_values_fit_nothing_and_are_counted_where_nobody_can_tell(world: KnownStream) -> None:
    deep = b"[" * 800 + b"]" * 800
    values = [
        deep,
        b"[" * 200_000,
        b'{"amount": -5' + b" " * 1_000_001 + b"}",
        b"\xff\xfe{}",
        b'{"amount": -5, "amount": 7}',
        b'{"amount": "\\ud800"}',
        b'{"amount": -' + b"9" * 100_000 + b"}",
        b"",
        b'{"amount": -5}',
    ]
    items = [Item(Coordinate(at(0), number), value=value) for number, value in enumerate(values)]
    matcher = Matcher(parse("$.amount < 0"), world.opened.stream, world.opened.connections)
    assert [one.at.offset for one in matcher.matching(items)] == [8]
    assert matcher.not_read == 1
    everything = Matcher(parse("$ is not null"), world.opened.stream, world.opened.connections)
    assert [one.at.offset for one in everything.matching(items)] == [0, 4, 5, 6, 8]


@pytest.mark.covers("U28", "Q16")
def test_values_are_masked_cut_and_never_obeyed() -> None:
    hostile = "<img src=x>\u202e\x1b[31m".encode() + b"\xff" + b"y" * 1_000_000
    item = Item(
        Coordinate(at(0), 1), 5, b"secret", hostile, (("\u202eh", b"secret"),), {"reason": b"r", "detail": b"secret"}
    )
    found = SearchResult((item,), (), None, None, 1, 1)
    hidden, shown = (
        page_of(found, payload=payload, may_see_payload=True, letters=True).lines[0] for payload in (False, True)
    )
    assert "secret" not in str(hidden)
    assert isinstance(hidden.fields["detail"], Masked)
    assert isinstance(hidden.fields["reason"], Value)
    assert isinstance(shown.value, Value)
    assert (shown.value.text[:29], shown.value.more) == ("<img src=x>\\u202e\\x1b[31m\\xff", len(hostile) - MAX_SHOWN)
    assert shown.headers[0].name.text == "\\u202eh"


@pytest.mark.covers("U28", "Q16")
def test_fields_of_rows_are_masked_whatever_they_are_called() -> None:
    """Of a dead letter, Tidemark says the reason. Of a row, `reason` is what its message says."""
    item = Item(Coordinate(at(0), 1), fields=dict.fromkeys((*SAID, "detail", "amount"), b"secret"))
    found = SearchResult((item,), (), None, None, 1, 1)
    (line,) = page_of(found, payload=False, may_see_payload=False).lines
    assert set(map(type, line.fields.values())) == {Masked}
    assert "secret" not in str(line)


@pytest.mark.covers("U28")
def test_an_export_has_everything_and_is_taken_as_records() -> None:
    place = TopicPartition("orders", 0, 2)
    items = [
        Item(Coordinate(place, 2**60), 0, None, b"=cmd()", (("a", b"\xff"),)),
        Item(Coordinate(place, 7), None, b"\xff", b'a "b",\n\xc3\xa9', (), {"reason": b"-5"}),
    ]
    lines = [json.loads(one) for one in exported(items, "jsonl", ("reason",)).splitlines()]
    assert lines[0] == {
        "topic": "orders",
        "partition": 0,
        "offset": 2**60,
        "incarnation": 2,
        "timestamp": "1970-01-01T00:00:00Z",
        "key": None,
        "value": "=cmd()",
        "headers": [["a", {"base64": "/w=="}]],
        "reason": None,
    }
    assert (lines[1]["key"], lines[1]["value"]) == ({"base64": "/w=="}, 'a "b",\né')
    text = exported(items, "csv", ("reason",))
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert (rows[0]["value"], rows[1]["value"], rows[1]["key_base64"], rows[1]["reason"]) == (
        "'=cmd()",
        'a "b",\né',
        "/w==",
        "'-5",
    )
    # In the incarnation of each: a message that is picked is never another one that has its offset now.
    wanted = {"orders#2/0@7-8", f"orders#2/0@{2**60}-{2**60 + 1}"}
    for form in ("csv", "jsonl"):
        named = parse_records(exported(items, form))  # type: ignore[arg-type]
        assert ({str(one) for one in named.exact}, bool(named.open)) == (wanted, False)


@pytest.mark.covers("U28")
@pytest.mark.parametrize(
    "names", [("offset",), ("topic", "partition", "offset"), ("key", "incarnation"), ("key_base64",)]
)
def test_fields_that_are_called_as_a_coordinate_name_no_other_message(
    names: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do they in a file of results, in which Tidemark's own columns have a _ before their names."""
    values = {"topic": "others", "partition": "7", "offset": "999", "incarnation": "3"}
    item = Item(Coordinate(at(0), 5), fields={name: values.get(name, "9").encode() for name in names})
    for form in ("csv", "jsonl"):
        text = exported([item], form, names)  # type: ignore[arg-type]
        assert parse_records(text) == NamedOffsets(exact=RangeSet([OffsetRange(at(0), 5, 6)]))
    row = {"_topic": ["orders"], "_partition": [0], "_offset": [5], "_incarnation": [1]}
    fields = {name: [values[name]] for name in names if name in values}
    pq.write_table(pa.table({**fields, **row}), tmp_path / "results.parquet")
    monkeypatch.setenv("TIDEMARK_SELECTIONS", str(tmp_path))
    assert records_in("results.parquet") == NamedOffsets(exact=RangeSet([OffsetRange(at(0), 5, 6)]))
    assert parse_records(lines_of(tmp_path / "results.parquet")) == records_in("results.parquet")


@pytest.mark.covers("U28")
@pytest.mark.parametrize("end", ["\u2028", "\x85", "\x0b", "\x0c", "\x1c", "\r", "\n", "\r\n"])
def test_no_message_names_another_one_in_an_export(end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever takes the export for records would replay or erase the other one."""
    fields = {"a": f"x{end}orders", "b": "0", "c": "999", "d": "1", "e": "z" * 1_000_000}
    coordinate = Coordinate(TopicPartition("-orders", 0), 5)
    item = Item(coordinate, value=f"{end}orders,0,999".encode(), fields={one: fields[one].encode() for one in fields})
    monkeypatch.setenv("TIDEMARK_SELECTIONS", str(tmp_path))
    for form in ("csv", "jsonl"):
        text = exported([item], form, tuple(fields))  # type: ignore[arg-type]
        assert parse_records(text).exact == RangeSet([coordinate.as_range()])
        if form == "csv":
            (tmp_path / "records.csv").write_text(text, encoding="utf-8", newline="")
            assert parse_records(lines_of(tmp_path / "records.csv")).exact == RangeSet([coordinate.as_range()])
            assert records_in("records.csv").exact == RangeSet([coordinate.as_range()])


@pytest.mark.covers("U28", "U8")
def test_dead_letters_are_found_by_what_is_in_them(tmp_path: Path) -> None:
    world = KnownStream(tmp_path, [Fate.DEAD_LETTER if offset % 2 else STORED for offset in range(12)])
    world.ends((0, 12))
    for _ in range(3):
        world.ingest()
    for offset, row in world.dead.held.items():
        row.fields["value"] = json.dumps({"amount": 5 - offset}).encode()  # type: ignore[index]

    def asked(filter_: str = "", count: int = 50, go_on: str = "", bounds: float = 1e9, **where: str) -> SearchResult:
        return dead_letters(
            world.opened,
            MessageQuery(SearchScope(**where), filter_, count, go_on=go_on),
            SearchBudget.of(bounds, 1e9, 60),
        )

    assert offsets(asked()) == [1, 3, 5, 7, 9, 11]
    assert offsets(asked("$.amount < 0")) == [7, 9, 11]
    assert offsets(asked("$.amount < 0", since="1970-01-01T00:00:08Z", until="1970-01-01T00:00:11Z")) == [9]
    assert offsets(asked("reason = 'bad 1' and $.amount >= 0", window="ingest/1")) == [1, 3]
    assert offsets(asked(where="orders/0@3-8")) == [3, 5, 7]
    seen, go_on = [], ""
    while go_on is not None:
        found = asked(count=2, go_on=go_on)
        seen += offsets(found)
        go_on = found.go_on  # type: ignore[assignment]
    assert seen == [1, 3, 5, 7, 9, 11]
    with pytest.raises(WrongUse, match="no committed window"):
        asked(window="ingest/99")
    # From the newest window back: first those that a replay has read once more, and made dead letters again.
    world.replay("run 2", (0, 4))
    back: list[int] = []
    go_on = ""
    while go_on is not None:
        found = dead_letters(
            world.opened, MessageQuery(count=2, backwards=True, go_on=go_on), SearchBudget.of(1e9, 1e9, 60)
        )
        back += offsets(found)
        go_on = found.go_on  # type: ignore[assignment]
    assert back == [3, 1, 11, 9, 7, 5]


@pytest.mark.covers("U28")
def test_rows_are_found_by_their_fields_in_a_window_or_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only of what is asked for is anything read."""
    world = KnownStream(tmp_path, [STORED] * 12)
    world.ends((0, 12))
    for _ in range(3):
        world.ingest()

    class ByCoordinate(SinkAdmin):
        rows_by_coordinate = True

        def rows_within(self, opened: Any, settings: Any, within: OffsetRange, take: Any) -> Any:
            view = opened.ledger.view(settings.name)
            found = rows_of_pieces(opened.ledger, world.results, view, [within])
            made = (
                {**place(row.place), "fields": {"amount": str(row.place.offset - 6), "state": "open"}} for row in found
            )
            return take(made)

    kind = ByCoordinate()
    monkeypatch.setattr(results, "kind_of", lambda type_: SimpleNamespace(make_admin=lambda: kind))
    monkeypatch.setattr(OpenStream, "fields", {"amount": "integer", "state": "string"})

    def asked(filter_: str = "", count: int = 50, go_on: str = "", **where: str) -> SearchResult:
        world.results.read.clear()
        return results.results(
            world.opened, MessageQuery(SearchScope(**where), filter_, count, go_on=go_on), SearchBudget.of(1e9, 1e9, 60)
        )

    assert offsets(asked("amount < 0 and state = 'open'")) == [0, 1, 2, 3, 4, 5]
    assert offsets(asked(window="ingest/2")) == [5, 6, 7, 8, 9]
    assert {offset for _, offset in world.results.read} == {5, 6, 7, 8, 9}
    assert offsets(asked(since="1970-01-01T00:00:05Z", until="1970-01-01T00:00:09Z")) == [5, 6, 7, 8, 9]
    assert offsets(asked(where="orders/0@3-5")) == [3, 4]
    seen, go_on = [], ""
    while go_on is not None:
        found = asked("amount < 3", count=4, go_on=go_on)
        seen += offsets(found)
        go_on = found.go_on  # type: ignore[assignment]
    assert seen == list(range(9))
    world.erase(RangeSet([OffsetRange(at(0), 2, 3)]))
    assert 2 not in offsets(asked())
    # Nor what another stream of the ledger has erased.
    monkeypatch.setattr(results, "for_readers", lambda ledger: ledger.hiding(RangeSet([OffsetRange(at(0), 4, 5)])))
    assert offsets(asked()) == [0, 1, 3, *range(5, 12)]
    for filter_, said in (
        ("$.a = 1", "rows have fields"),
        ("key = 'a'", "rows have fields"),
        ("colour = 'a'", "not known"),
    ):
        with pytest.raises(WrongUse, match=said):
            asked(filter_)
    kind.rows_by_coordinate = False  # type: ignore[misc]
    with pytest.raises(WrongUse, match="orders has no sink with rows by coordinate"):
        asked()


@pytest.mark.covers("U28", "Q27")
def test_a_stream_that_has_never_run_does_not_show_what_another_has_erased(tmp_path: Path) -> None:
    new = KnownStream(tmp_path, [STORED] * 4)
    new.ends((0, 4))
    other = StreamInMemory(tmp_path, kafka=new.log, name="other")
    other.ingest()
    other.erase(RangeSet([OffsetRange(at(0), 2, 3)]))
    new.store.beside["other"] = other.store
    assert new.opened.ledger.register() is None
    found = found_in(new)
    assert (offsets(found), found.erased) == ([0, 1, 3], 1)


@pytest.mark.covers("U28")
def test_a_message_of_a_megabyte_of_headers_is_shown_as_quickly_as_others() -> None:
    """All of Airflow's API waits while an answer is made."""
    headers = tuple(("a" * 500, b"b" * 500) for _ in range(1_000))
    items = tuple(Item(Coordinate(at(0), offset), headers=headers) for offset in range(100))
    for payload in (False, True):
        page = page_of(SearchResult(items, (), None, None, 100, 1), payload=payload, may_see_payload=True)
        assert {(len(one.headers), one.more_headers) for one in page.lines} == {(MAX_HEADERS, 1_000 - MAX_HEADERS)}
        assert len(json.dumps(asdict(page))) < 8_000_000
    assert items[0].bytes >= 1_000_000
    assert Item(Coordinate(at(0), 0), headers=(("a", b""),) * 300_000).bytes > 10_000_000
    shown = message_shown(KafkaMessage(0, False, None, None, headers))
    assert shown is not None
    assert (len(shown.headers), shown.more_headers) == (100, 900)


@pytest.mark.covers("U28")
def test_a_message_of_very_many_rows_is_cut_and_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = KnownStream(tmp_path, [STORED] * 4)
    world.ends((0, 4))
    world.ingest()
    given = 0

    class OfMany(SinkAdmin):
        rows_by_coordinate = True

        def made(self, found: Iterator[StoredRow]) -> Iterator[dict[str, Any]]:
            nonlocal given
            for row in found:
                for index in range(5_000 if row.place.offset == 1 else 1):
                    given += 1
                    yield {**place(replace(row.place, index=index)), "fields": {"text": "x" * 100}}

        def rows_within(self, opened: Any, settings: Any, within: OffsetRange, take: Any) -> Any:
            view = opened.ledger.view(settings.name)
            return take(self.made(rows_of_pieces(opened.ledger, world.results, view, [within])))

    kind = OfMany()
    monkeypatch.setattr(results, "kind_of", lambda type_: SimpleNamespace(make_admin=lambda: kind))
    monkeypatch.setattr(OpenStream, "fields", {"text": "string"})

    def asked(go_on: str = "") -> SearchResult:
        return results.results(world.opened, MessageQuery(count=3, go_on=go_on), SearchBudget.of(1e9, 1e9, 60))

    first = asked()
    assert (len(first.items), first.left_out, first.ended) == (1_003, 3_998, "count")
    assert first.go_on is not None
    assert offsets(asked(first.go_on)) == [2, 3]
    # Nor are more rows held at once than there is room for.
    monkeypatch.setattr(parts, "_MAX_BYTES", 10_000)
    given = 0
    first = asked()
    assert (offsets(first)[0], {*offsets(first)[1:]}, first.left_out) == (0, {1}, 1)
    assert given < 1_000
    assert offsets(asked(first.go_on or "")) == [2, 3]


@pytest.mark.covers("U28", "Q26")
def test_what_is_picked_is_never_the_message_that_has_its_offset_now(tmp_path: Path) -> None:
    """A topic was made anew, and dead letters of the old one are shown: who picks one erases that one."""
    world = KnownStream(tmp_path, [Fate.DEAD_LETTER] * 3)
    world.ends((0, 3))
    world.ingest()

    def shown() -> set[str]:
        listed = page_of(
            dead_letters(world.opened, MessageQuery(), SearchBudget.of(1e9, 1e9, 60)),
            payload=False,
            may_see_payload=True,
        )
        groups = in_groups(world.opened, DeadLetterFilter()).groups
        located = located_at(world.opened, Coordinate(at(0), 1))
        again_ = again(replace(located, kafka=OffsetContents(Slot.MESSAGE, 0, 3)))
        picked = {
            *(line.coordinate for line in listed.lines if line.offset == 1),
            *(one for group in groups for one in group.examples if one.endswith("@1")),
            as_values(located).coordinate,
            again_.fields["records"],
        }
        assert all(parse_records(one) for one in picked)
        return picked

    assert shown() == {"orders/0@1"}
    change_topics(
        world.opened.ledger,
        lambda topics: {"orders": (*topics["orders"], TopicIncarnation(topic_id="new", incarnation=2, since=2))},
    )
    assert shown() == {"orders#1/0@1"}
