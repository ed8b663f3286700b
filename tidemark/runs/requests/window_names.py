"""The offsets of committed windows, by the names that people know windows by: a lane, a window of it, or a run."""

from __future__ import annotations

from tidemark.errors import WrongUse
from tidemark.ledger.ledger import Committed, LedgerSnapshot
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import RangeSet
from tidemark.runs.live.open_stream import OpenStream


def read_by(opened: OpenStream, view: LedgerSnapshot, named: str) -> RangeSet:
    """The offsets that the named committed windows have read: LANE, LANE/NUMBER, or the run that committed them.

    Raises WrongUse for a name of no such window, and for windows that have read nothing.
    """
    windows = [window for window in view.windows if _is(window, named)]
    if not windows:
        raise WrongUse(
            f"window {named}: {opened.ledger.stream} has no committed window of this name. Expected LANE, such as ingest; "
            "LANE/NUMBER, such as ingest/17; or the name of a run that has committed windows. "
            f"`tidemark ledger show {opened.ledger.stream} --closed` lists the lanes; "
            f"`tidemark window {opened.ledger.stream} LANE/NUMBER` names a window's run"
        )
    offsets = RangeSet(range_ for window in windows for range_ in window.covers)
    if not offsets:
        raise WrongUse(f"window {named}: {number_of(len(windows), 'window', 'has', 'have')} read no offsets")
    return offsets


def read_by_one(opened: OpenStream, named: str) -> RangeSet | None:
    """As `read_by`, for the name LANE/NUMBER of one window; None for any other name, and for a window of no such name."""
    lane, _, number = named.rpartition("/")
    if not lane or not number.isascii() or not number.isdigit() or f"{int(number)}" != number or "/" in lane:
        return None
    stored, seq = opened.ledger.head(lane), int(number)
    if stored is None or not 0 < seq <= stored.head.seq:
        return None
    recorded = opened.ledger.record(lane, seq) if seq < stored.head.seq else None
    record = recorded[1] if recorded is not None else stored.head.last
    if record is None or record.seq != seq:
        return None
    return opened.ledger.covers(record.window) or None


def _is(window: Committed, named: str) -> bool:
    record = window.record
    return named in (record.lane, f"{record.lane}/{record.seq}", record.attempt.run)
