"""Compaction without Spark: the value in the ledger, which folders are taken together, what readers see, what is removed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from tests.support.compactions import AT, authority_of, committed
from tests.support.memory import FAULTS, LOST_APPLIED, MemoryStore
from tidemark.errors import Fenced, LedgerContradiction, OwnedByAnother, TooLarge, WrongUse
from tidemark.ledger.ledger import Committed, Ledger
from tidemark.ledger.stores import doubt
from tidemark.ledger.stores.contract import Key
from tidemark.offsets.authority import Authority
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.parquet import compactions
from tidemark.sinks.parquet.compacting import choose, groups, remove_replaced, size
from tidemark.sinks.parquet.compactions import (
    CompactedFolder,
    Compactions,
    StoredCompactions,
    WindowSpan,
    described,
    spans,
)
from tidemark.sinks.parquet.files import attempt_folder, own, tables_that_count
from tidemark.sinks.parquet.parts import FolderPart, parts, steady
from tidemark.sinks.parquet.row_lookup import rows_within


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubt, "_PAUSE_SECONDS", 0.0)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(MemoryStore(), "s", clock=lambda: 1_000_000)


def rows(offsets: range, **more: list[object]) -> pa.Table:
    place = {"_topic": "logs", "_incarnation": 1, "_partition": 0, "_index": 0}
    table = {"_offset": list(offsets), **{name: [value] * len(offsets) for name, value in place.items()}}
    return pa.table({**table, "id": [str(one) for one in offsets], **more})


def write(folder: str, table: pa.Table) -> None:
    path = Path(folder.removeprefix("file://"))
    path.mkdir(parents=True)
    pq.write_table(table, path / "part-0.parquet")


def folder_of(window: Committed) -> str:
    return window.record.places[0].place["folder"]


def compact(base: str, windows: list[Committed], generation: int, number: int = 1) -> CompactedFolder:
    """What the job writes: a row of each window, with the window's columns."""
    names = [(one.record.lane, one.record.seq) for one in windows]
    folder = attempt_folder(base, "compacted", number, generation)
    tables = []
    for one in windows:
        offsets = range(one.record.window.ranges[0].start, one.record.window.ranges[0].until)
        columns = {"_lane": one.record.lane, "_seq": one.record.seq, "_generation": one.generation}
        tables.append(rows(offsets, **{name: [value] * len(offsets) for name, value in columns.items()}))
    write(folder, pa.concat_tables(tables))
    found = CompactedFolder(
        base=base, folder=folder, generation=generation, windows=spans(names), rows=0, run="run", at=1
    )
    return structs.replace(found, rows=sum(table.num_rows for table in tables))


def of(*folders: CompactedFolder) -> Compactions:
    return Compactions(stream="s", sink="parquet", token="t", folders=folders)


def found_in(windows: list[Committed], known: Compactions | None = None) -> list[FolderPart]:
    return parts(windows, authority_of(windows), "parquet", known)


def ids(windows: list[Committed], known: Compactions | None = None) -> list[str]:
    tables = tables_that_count(found_in(windows, known), authority_of(windows))
    return sorted((one for table in tables for one in table["id"].to_pylist()), key=int)


@pytest.fixture
def base(tmp_path: Path) -> str:
    return f"file://{tmp_path}/lake"


def test_times_are_alike_in_files_of_any_age(base: str) -> None:
    """Earlier versions wrote times as INT96, which says nothing of a zone."""
    windows = [committed(base, 1, range(2)), committed(base, 2, range(2, 4))]
    times = [datetime(2026, 11, 21, 7, 10, 0, 120_000, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)]
    for window, offsets, older in zip(windows, (range(2), range(2, 4)), (True, False), strict=True):
        table = rows(offsets, at=pa.array(times if not older else times[:1] * 2, pa.timestamp("us", "UTC")))
        path = Path(folder_of(window).removeprefix("file://"))
        path.mkdir(parents=True)
        pq.write_table(table, path / "part-0.parquet", use_deprecated_int96_timestamps=older)
    tables = list(tables_that_count(found_in(windows), authority_of(windows)))
    assert [table["at"].to_pylist() for table in tables] == [times[:1] * 2, times]
    assert {table.schema.field("at").type for table in tables} == {pa.timestamp("us", "UTC")}


def test_windows_as_spans() -> None:
    names = [("replay-1", 1), ("ingest", 3), ("ingest", 1), ("ingest", 2), ("ingest", 5), ("ingest", 2)]
    found = spans(names)
    assert found == (WindowSpan("ingest", 1, 4), WindowSpan("ingest", 5, 6), WindowSpan("replay-1", 1, 2))
    assert described(found) == "ingest/1 to 3, ingest/5, replay-1/1"
    assert spans([]) == ()


def test_who_was_faster_is_said_also_when_it_is_done(ledger: Ledger) -> None:
    late = compactions.claim(ledger, "parquet", "late")
    compactions.finish(ledger, compactions.claim(ledger, "parquet", "newer"))
    with pytest.raises(Fenced, match="begun by another run"):
        compactions.check_held(ledger, late)
    newer = compactions.claim(ledger, "parquet", "newer")
    for seq, run in enumerate(("first", "second", "third"), 1):
        windows = (WindowSpan("ingest", seq, seq + 1),)
        folder = CompactedFolder(base="b", folder=run, generation=7, windows=windows, rows=5, run=run, at=1)
        newer = compactions.replace(ledger, newer, folder)
        assert newer.value.token == newer.value.tokens[-1]
    compactions.finish(ledger, newer)
    with pytest.raises(Fenced, match="begun by run third"):
        compactions.check_held(ledger, late)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("number", range(5))
def test_any_answer_may_get_lost(ledger: Ledger, number: int, fault: str) -> None:
    assert isinstance(ledger.store, MemoryStore)
    ledger.store.faults = ["none"] * number + [fault]
    held = compactions.claim(ledger, "parquet", "run")
    folder = CompactedFolder(
        base="b", folder="f", generation=7, windows=(WindowSpan("ingest", 1, 3),), rows=5, run="run", at=1
    )
    held = compactions.replace(ledger, held, folder)
    compactions.finish(ledger, held)
    known = compactions.find(ledger, "parquet")
    assert known is not None
    assert known.value.claim is None
    assert known.value.located() == {("ingest", 1): folder, ("ingest", 2): folder}


def test_a_newer_claim_fences(ledger: Ledger) -> None:
    older = compactions.claim(ledger, "parquet", "older")
    newer = compactions.claim(ledger, "parquet", "newer")
    assert older.value.claim is not None
    assert newer.value.claim is not None
    assert newer.value.claim.generation > older.value.claim.generation
    folder = CompactedFolder(
        base="b", folder="f", generation=1, windows=(WindowSpan("ingest", 1, 3),), rows=5, run="r", at=1
    )
    with pytest.raises(Fenced, match="begun by run newer"):
        compactions.replace(ledger, older, folder)
    with pytest.raises(Fenced, match="begun by run newer"):
        compactions.check_held(ledger, older)
    compactions.check_held(ledger, newer)
    held = compactions.replace(ledger, newer, folder)
    # A folder that holds all windows of another one takes its place.
    wider = structs.replace(folder, folder="g", windows=(WindowSpan("ingest", 1, 5),))
    assert compactions.replace(ledger, held, wider).value.folders == (wider,)


@pytest.mark.parametrize("others_go_on", ["claim", "replace", "finish"])
def test_an_answer_that_is_lost_is_found_when_others_have_gone_on(others_go_on: str) -> None:
    store = MemoryStore()
    ledger = Ledger(store, "s", clock=lambda: 1_000_000)
    held = compactions.claim(ledger, "parquet", "mine")
    folder = CompactedFolder(
        base="b", folder="f", generation=1, windows=(WindowSpan("ingest", 1, 3),), rows=5, run="r", at=1
    )
    tries: list[Key] = []

    def others(key: Key) -> None:
        """Before the write is repeated."""
        tries.append(key)
        if len(tries) == 2:
            newer = compactions.claim(ledger, "parquet", "other")
            if others_go_on != "claim":
                wider = structs.replace(folder, folder="g", windows=(WindowSpan("ingest", 1, 5),))
                newer = compactions.replace(ledger, newer, wider)
            if others_go_on == "finish":
                compactions.finish(ledger, newer)

    store.faults, store.before_swap = [LOST_APPLIED], others
    held = compactions.replace(ledger, held, folder)
    compactions.finish(ledger, held)
    known = compactions.find(ledger, "parquet")
    assert known is not None
    assert [one.folder for one in known.value.folders] == (["f"] if others_go_on == "claim" else ["g"])
    assert (known.value.claim is None) == (others_go_on == "finish")
    # What was not applied is still refused.
    if others_go_on != "finish":
        with pytest.raises(Fenced, match="begun by run other"):
            compactions.replace(ledger, held, folder)


def test_what_the_ledger_cannot_hold_is_refused_before_the_work() -> None:
    ledger = Ledger(MemoryStore(max_value_bytes=2_000), "s", clock=lambda: 1_000_000)
    held = compactions.claim(ledger, "parquet", "run")
    many = spans((f"replay-{number:012d}", 1) for number in range(100))
    folder = CompactedFolder(base="b", folder="f", generation=1, windows=many, rows=5, run="r", at=1)
    with pytest.raises(TooLarge, match="--again"):
        compactions.check_room(ledger, compactions.replaced(held, folder))


def test_what_is_chosen(base: str) -> None:
    windows = [committed(base, seq, range(seq * 10, seq * 10 + 10)) for seq in range(1, 6)]
    elsewhere = committed("file:///elsewhere", 6, range(60, 70))
    known = of(
        CompactedFolder(
            base=base, folder=f"{base}/c", generation=9, windows=(WindowSpan("ingest", 1, 3),), rows=20, run="r", at=1
        )
    )
    found = found_in([*windows, elsewhere], known)

    def names(asked: CompactionRequest) -> list[str]:
        return [described(spans(part.names)) for part in choose(found, base, asked)]

    assert names(CompactionRequest()) == ["ingest/3", "ingest/4", "ingest/5"]
    assert names(CompactionRequest(again=True)) == ["ingest/1 to 2", "ingest/3", "ingest/4", "ingest/5"]
    assert names(CompactionRequest(before=5)) == ["ingest/3", "ingest/4"]
    assert names(CompactionRequest(windows=2)) == ["ingest/3", "ingest/4"]
    assert names(CompactionRequest(windows=3, again=True)) == ["ingest/1 to 2", "ingest/3"]
    assert names(CompactionRequest(before=2, again=True)) == []


def test_a_claim_that_somebody_else_was_faster_with_is_made_after_theirs(ledger: Ledger) -> None:
    store = cast("MemoryStore", ledger.store)
    overtaken: list[StoredCompactions] = []

    def overtake(key: tuple[str, ...]) -> None:
        if key[0] == "compacted" and not overtaken:
            store.before_swap = lambda key: None
            overtaken.append(compactions.claim(ledger, "parquet", "theirs"))

    store.before_swap = overtake
    mine = compactions.claim(ledger, "parquet", "mine")
    assert mine.value.claim is not None
    assert mine.value.claim.run == "mine"
    assert overtaken[0].value.claim is not None
    assert mine.value.claim.generation > overtaken[0].value.claim.generation


def test_folders_with_the_same_columns_go_together(base: str) -> None:
    windows = [committed(base, seq, range(seq * 10, seq * 10 + 10)) for seq in range(1, 7)]
    # Window 5 was replayed as a whole: nothing of its folder counts, and it need not even be there.
    windows.append(committed(base, 1, range(50, 60), lane="replay-1", generation=9))
    for window in windows:
        more: dict[str, list[object]] = {"also": [1] * 10} if window.record.seq in (3, 4) else {}
        if (window.record.lane, window.record.seq) not in (("ingest", 5), ("ingest", 6)):
            write(folder_of(window), rows(range(window.covers.of(AT)[0][0], window.covers.of(AT)[0][1]), **more))
    chosen = choose(found_in(windows), base, CompactionRequest())
    with pytest.raises(LedgerContradiction, match=r"seq=000000006.* has no files, and ingest/6"):
        groups(chosen)
    write(folder_of(windows[5]), rows(range(60, 70), alone=[1] * 10))
    found = groups(chosen)
    assert [described(spans(name for part in group for name in part.names)) for group in found] == [
        "ingest/1 to 2, ingest/5, replay-1/1",
        "ingest/3 to 4",
    ]
    assert size(found[0]).files == 3


def test_what_readers_see_before_and_behind(ledger: Ledger, base: str) -> None:
    first, second = committed(base, 1, range(10)), committed(base, 2, range(10, 20))
    for window in (first, second):
        write(folder_of(window), rows(range(*window.covers.of(AT)[0])))
    whole = [str(one) for one in range(20)]
    assert ids([first, second]) == whole
    folder = compact(base, [first, second], 5)
    # What nobody has named counts for nobody.
    assert ids([first, second]) == whole
    assert ids([first, second], of(folder)) == whole
    # A replay's rows count in place of those in the compacted folder.
    replayed = committed(base, 1, range(8, 12), lane="replay-1", generation=9)
    write(folder_of(replayed), rows(range(8, 11)))
    assert ids([first, second, replayed], of(folder)) == [*whole[:11], *whole[12:]]
    remove_replaced(ledger, of(folder), base, 8)
    assert ids([first, second, replayed], of(folder)) == [*whole[:11], *whole[12:]]
    with pytest.raises(LedgerContradiction, match="seq=000000001/generation=1 is gone, and ingest/1 have"):
        ids([first, second])


def test_only_what_was_replaced_is_removed(ledger: Ledger, base: str) -> None:
    windows = [committed(base, seq, range(seq * 10, seq * 10 + 10)) for seq in range(1, 4)]
    for window in windows:
        write(folder_of(window), rows(range(*window.covers.of(AT)[0])))
    late = attempt_folder(base, "ingest", 2, 1)
    write(late, rows(range(20, 30)))
    named = compact(base, windows[:2], 5)
    killed, running = compact(base, windows[:2], 6), compact(base, windows[:2], 8, 2)
    for _ in range(2):
        remove_replaced(ledger, of(named), base, 8)
        there = sorted(
            str(one.parent.relative_to(base.removeprefix("file://"))) for one in Path(base[7:]).rglob("*.parquet")
        )
        assert there == [
            "lane=compacted/seq=000000001/generation=5",
            "lane=compacted/seq=000000002/generation=8",
            "lane=ingest/seq=000000003/generation=3",
        ]
    assert killed.folder != running.folder


def test_what_a_sink_of_another_name_has_compacted_is_not_removed(ledger: Ledger, base: str) -> None:
    """The name of a sink was changed, and its folder not."""
    windows = [committed(base, seq, range(seq * 10, seq * 10 + 10)) for seq in (1, 2)]
    named, unfinished = compact(base, windows, 5), compact(base, windows, 6, 2)
    older = compactions.replace(ledger, compactions.claim(ledger, "parquet", "run"), named)
    newer = compactions.claim(ledger, "files", "run")
    remove_replaced(ledger, newer.value, base, 2_000_000)
    assert Path(named.folder[7:]).is_dir()
    assert not Path(unfinished.folder[7:]).exists()
    # One that is at work under the older name: what it writes may come to count.
    assert older.value.claim is not None
    running = compact(base, windows, older.value.claim.generation, 3)
    remove_replaced(ledger, newer.value, base, 2_000_000)
    assert ids(windows, of(named)) == ids(windows, of(running)) == [str(one) for one in range(10, 30)]


def test_a_folder_belongs_to_a_sink_by_its_name(tmp_path: Path) -> None:
    base = f"file://{tmp_path}/lake"
    for _ in range(2):
        own(base, "orders", "ledger", "parquet")
    with pytest.raises(WrongUse, match=r"has the results of sink parquet, .* for sink files"):
        own(base, "orders", "ledger", "files")
    with pytest.raises(OwnedByAnother, match="belongs to stream orders"):
        own(base, "others", "ledger", "parquet")


def test_a_reader_reads_again_when_folders_were_replaced(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    held = [compactions.claim(ledger, "parquet", "run")]
    folder = CompactedFolder(
        base="b", folder="f", generation=1, windows=(WindowSpan("ingest", 1, 3),), rows=5, run="r", at=1
    )
    looks: list[int] = []

    def look(seen: list[FolderPart], authority: Authority) -> int:
        looks.append(len(looks))
        if len(looks) == 1:
            # A claim alone changes nothing for a reader.
            held.append(compactions.claim(ledger, "parquet", "run"))
        if len(looks) == 2:
            raise AssertionError("nothing was replaced: an error is an error")
        if len(looks) == 3:
            held.append(compactions.replace(ledger, held[-1], folder))
            raise FileNotFoundError("the folder is gone")
        return len(looks)

    assert steady(ledger, "parquet", look) == 1
    with pytest.raises(AssertionError, match="an error is an error"):
        steady(ledger, "parquet", look)
    assert steady(ledger, "parquet", look) == 4
    assert isinstance(held[-1], StoredCompactions)


def test_a_window_without_offsets_of_its_own_holds_nothing() -> None:
    older, newer = committed("b", 1, range(10)), committed("b", 2, range(10))
    first, second = found_in([older, newer])
    assert (first.holds, second.holds) == (False, True)
    assert first.lost == {1: RangeSet(newer.covers)}


@pytest.mark.covers("U28")
def test_only_the_folders_with_the_offsets_are_looked_through(base: str) -> None:
    """Of a folder that a compaction has made, the rows of these windows; what counts no more is not among them."""
    windows = [committed(base, number, range(number * 10 - 10, number * 10)) for number in range(1, 5)]
    replay = committed(base, 1, range(5, 7), lane="replay-1", generation=20)
    for one in (windows[0], windows[3], replay):
        (range_,) = one.record.window.ranges
        write(folder_of(one), rows(range(range_.start, range_.until)))
    known = of(compact(base, windows[1:3], 9))
    everything = [*windows, replay]
    authority = authority_of(everything)
    there = parts(everything, authority, "parquet", known)

    def ids(start: int, until: int) -> list[int]:
        return sorted(int(row["fields"]["id"]) for row in rows_within(there, authority, OffsetRange(AT, start, until)))

    assert ids(4, 12) == [4, 5, 6, 7, 8, 9, 10, 11]
    assert ids(19, 21) == [19, 20]
    damaged = Path(folder_of(windows[3]).removeprefix("file://")) / "part-0.parquet"
    damaged.write_bytes(b"PAR1 damaged PAR1")
    assert ids(0, 30) == list(range(30))
    with pytest.raises(LedgerContradiction, match="cannot be read"):
        ids(29, 31)
