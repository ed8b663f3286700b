"""Whether a ledger is whole: no record is missing or changed since the next was written, and heads agree with history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from tidemark.ledger.closed_lanes import all_lanes
from tidemark.ledger.codec import digest, encode
from tidemark.ledger.covered import SummaryCheck
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import Head, LaneState, Record
from tidemark.offsets.counting import number_of


def verify(ledger: Ledger) -> list[str]:
    """The problems of a stream's ledger, in words; empty when the ledger is whole. Reads all of the history.

    Reads the heads first. A window that is committed meanwhile is then in the history, or left for the next check.
    """
    heads = {lane: stored.head for lane, stored in ledger.heads().items()}
    for head in heads.values():
        ledger.check_pending(head)
    # The next check covers lanes that are opened from now on.
    records = (
        (stored, record)
        for stored, record in ledger.records_with_bytes()
        if record.lane in heads or _is_lost(ledger, record.lane)
    )
    kept = SummaryCheck(ledger)
    problems = _check_history(heads, records, kept, history_has_last=ledger.store.commits_records)
    problems += kept.problems()
    lanes = all_lanes(ledger)
    problems += [f"lane {lane} has a head, and the register does not know it" for lane in heads.keys() - lanes.keys()]
    problems += [
        f"lane {name} has no head, and the register says that it is {lane.state.value}"
        for name, lane in lanes.items()
        if name not in heads and lane.state != LaneState.OPENING and _is_lost(ledger, name)
    ]
    return problems


def _is_lost(ledger: Ledger, lane: str) -> bool:
    """Whether a lane that had no head a moment ago has none now."""
    return ledger.head(lane) is None


def _check_history(
    heads: Mapping[str, Head], records: Iterable[tuple[bytes, Record]], kept: SummaryCheck, *, history_has_last: bool
) -> list[str]:
    """The problems of the history of some lanes, in words. Looks at each record once, and remembers none.

    `records` come by lane and number, each with its stored bytes. The last window of a head may be missing there until that
    window is settled, unless `history_has_last`.
    """
    problems: dict[str, list[str]] = {lane: [] for lane in heads}
    found = set[str]()
    for lane, chain in groupby(records, key=lambda link: link[1].lane):
        found.add(lane)
        problems[lane] = _check_lane(lane, heads.get(lane), chain, kept, history_has_last)
    for lane in heads.keys() - found:
        problems[lane] = _check_lane(lane, heads[lane], iter(()), kept, history_has_last)
    return [problem for some in problems.values() for problem in some]


def _check_lane(
    lane: str, head: Head | None, chain: Iterator[tuple[bytes, Record]], kept: SummaryCheck, history_has_last: bool
) -> list[str]:
    if head is None:
        return [f"lane {lane} has {number_of(sum(1 for _ in chain), 'window')} in the history, and no head"]
    problems = list[str]()
    # The window before, with the digest of its bytes.
    before: tuple[int, str] = (0, "")
    last: Record | None = None
    for stored, record in _with_last(head, chain, history_has_last):
        kept.take(stored, record)
        problems += _missing(lane, before[0] + 1, record.seq)
        if before[0] and before[0] == record.seq - 1 and record.previous != before[1]:
            problems.append(
                f"lane {lane}: window {before[0]} is not the one that window {record.seq} followed: one was changed"
            )
        if record.seq == 1 and record.previous is not None:
            problems.append(f"lane {lane}: window 1 says that there was one before it")
        before, last = (record.seq, digest(stored)), record
    problems += _missing(lane, before[0] + 1, head.seq + 1)
    if last is not None and last.seq == head.seq and last != head.last:
        problems.append(f"lane {lane}: window {head.seq} is another one in the head than in the history")
    return problems


def _with_last(
    head: Head, chain: Iterator[tuple[bytes, Record]], history_has_last: bool
) -> Iterator[tuple[bytes, Record]]:
    """The windows up to the last one of a head, which the history may not have yet."""
    seq = 0
    for stored, record in chain:
        # The next check covers windows that were committed after the head was read.
        if record.seq <= head.seq:
            seq = record.seq
            yield stored, record
    if head.last is not None and not history_has_last and seq < head.seq:
        yield encode(head.last), head.last


def _missing(lane: str, first: int, until: int) -> list[str]:
    return [f"lane {lane}: window {seq} is missing in the history" for seq in range(first, until)]
