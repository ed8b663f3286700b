"""The closed lanes, in the order of their closing: pages of entries that the register no longer has.

Each page is a value of its own. Closings fill a page by compare-and-set until it is full; a full page never changes.
A lane's entry goes into a page before the register drops the entry, so no entry is ever missing from both. A crash in
between may leave the entry in both, or in two pages; all copies mean the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct, structs

from tidemark.errors import LedgerContradiction
from tidemark.ledger.codec import decode, encode
from tidemark.ledger.ledger import REMEDY, Ledger
from tidemark.ledger.limits import check_size
from tidemark.ledger.records import FORMAT, LaneEntry, LaneState, Register
from tidemark.ledger.stores.contract import Key, sortable
from tidemark.ledger.stores.doubt import CompareAndSetFailed, swap_surely

# About two hundred lanes of twelve partitions. Each closing rewrites a page; larger pages mean fewer reads for all lanes.
PAGE_BYTES = 128 * 1024
# Pages read in one request: two megabytes.
_AT_ONCE = 16


class ClosedLanes(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One page. Its lanes were closed at `since` or later; the lanes of later pages, not before the newest of this page."""

    format: int = FORMAT
    stream: str
    since: int
    lanes: dict[str, LaneEntry] = {}
    full: bool = False

    @property
    def newest(self) -> int:
        return max((entry.closed_at or 0 for entry in self.lanes.values()), default=self.since)


def page_key(number: int) -> Key:
    return ("closed", sortable(number))


def given_up(ledger: Ledger, register: Register) -> Register:
    """The register without the lanes that an edit has closed. Their entries go into pages first."""
    closed = {lane: entry for lane, entry in register.lanes.items() if entry.state == LaneState.CLOSED}
    if not closed:
        return register
    page = register.closed_page
    for lane, entry in sorted(closed.items(), key=lambda item: item[1].closed_at or 0):
        page = _put(ledger, register, page, lane, entry)
    open_lanes = {lane: entry for lane, entry in register.lanes.items() if lane not in closed}
    return structs.replace(register, lanes=open_lanes, closed_page=page, closed=register.closed + len(closed))


def fill_pages(stream: str, lanes: Mapping[str, LaneEntry], max_bytes: int) -> Iterator[ClosedLanes]:
    """Pages with these closed lanes, in the order of their closing."""
    page = ClosedLanes(stream=stream, since=0)
    for lane, entry in sorted(lanes.items(), key=lambda item: item[1].closed_at or 0):
        grown = structs.replace(page, lanes={**page.lanes, lane: entry})
        if len(encode(grown)) > min(PAGE_BYTES, max_bytes) and page.lanes:
            yield structs.replace(page, full=True)
            grown = ClosedLanes(stream=stream, since=page.newest, lanes={lane: entry})
        page = grown
    if page.lanes:
        yield page


def closed_lanes(ledger: Ledger, register: Register) -> Iterator[dict[str, LaneEntry]]:
    """The closed lanes in parts, the last closed first. No lane is missing that was closed in this `register`."""
    if not register.closed:
        return
    pages = range(register.closed_page, -1, -1)
    for first in range(0, len(pages), _AT_ONCE):
        numbers = pages[first : first + _AT_ONCE]
        values = ledger.store.read_several([page_key(number) for number in numbers])
        for number, stored in zip(numbers, values, strict=True):
            page = _page(ledger, register, number, stored)
            yield page.lanes if page is not None else {}


def all_lanes(ledger: Ledger) -> dict[str, LaneEntry]:
    """Every lane of a stream, open or closed."""
    stored = ledger.register()
    if stored is None:
        return {}
    # The register was read first, so a page has the newer entry of a lane that was closed meanwhile.
    lanes = dict(stored[1].lanes)
    for part in closed_lanes(ledger, stored[1]):
        lanes |= part
    return lanes


def _put(ledger: Ledger, register: Register, number: int, lane: str, entry: LaneEntry) -> int:
    """Put a lane into the page of this number, or into the next page with room. Returns the page's number."""
    newest = 0
    while True:
        stored = ledger.store.read(page_key(number))
        page = _page(ledger, register, number, stored) or ClosedLanes(stream=ledger.stream, since=newest)
        newest = page.newest
        if lane in page.lanes:
            return number
        if page.full:
            number += 1
            continue
        # Pages are in the order of closing, whatever the clocks say.
        later = structs.replace(entry, closed_at=max(entry.closed_at or 0, newest))
        grown = structs.replace(page, lanes={**page.lanes, lane: later})
        value = encode(grown)
        if len(value) > min(PAGE_BYTES, ledger.store.max_value_bytes) and page.lanes:
            grown = structs.replace(page, full=True)
            value = encode(grown)
        check_size(ledger.store, value, f"the entry of {ledger.stream}/{lane}", "read fewer topics in one stream")
        try:
            swap_surely(ledger.store, page_key(number), stored, value, value.__eq__)
        except CompareAndSetFailed:
            continue


def _page(ledger: Ledger, register: Register, number: int, stored: bytes | None) -> ClosedLanes | None:
    """The page in its stored bytes; None for a page that is not begun yet. Raises LedgerContradiction for a lost page."""
    name = f"{ledger.stream}/{'/'.join(page_key(number))}"
    if stored is not None:
        return decode(stored, ClosedLanes, name)
    if register.closed and number <= register.closed_page:
        raise LedgerContradiction(f"{name} is missing, and the register names it: it was lost. {REMEDY}.")
    return None
