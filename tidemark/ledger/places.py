"""Places that are gone for good: a person says so, and no erasure or sweep touches them again.

Such a place keeps the erased offsets that it holds. So it stays in the ledger, with the reason and the person, and
nothing is written there again. If it comes back, all erased offsets are cleared there before it is written.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence

from msgspec import structs

from tidemark.errors import WrongUse
from tidemark.ledger.erasures import WrittenPlace, places_written, tombstones
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import ForgottenPlace, Record, Register, SinkReceipt, each_place
from tidemark.ledger.register import change
from tidemark.offsets.ranges import RangeSet

Clear = Callable[[Record, RangeSet, Sequence[WrittenPlace]], None]


def named(ledger: Ledger, words: Sequence[str], others: Iterable[SinkReceipt] = ()) -> SinkReceipt:
    """The place that some words name: its sink, its type, or one of its parts, such as `table=orders`.

    `others`: places of today's stream file, which no attempt has written to. Raises WrongUse unless all words fit one place.
    """
    known = each_place((*(sink.place for sink in places_written(ledger)), *others))
    matching = [place for place in known if {*words} <= {place.type, *place.words}]
    if len(matching) == 1:
        return matching[0]
    several = "names several places; say which" if matching else "names no place where results may be; expected one of"
    listed = "; ".join(shlex.join(place.words) for place in matching or known) or "none: nothing was written yet"
    raise WrongUse(f"{' '.join(words)!r} {several}: {listed}")


def forget(ledger: Ledger, place: SinkReceipt, reason: str, by: str) -> ForgottenPlace:
    """Say that a place is gone for good. A place that was forgotten before stays as it is."""

    def edit(register: Register) -> Register:
        if forgotten := _of(register, place):
            return register if not forgotten.back else _with(register, structs.replace(forgotten, back=False))
        return _with(register, ForgottenPlace(place=place, reason=reason, by=by, at=ledger.clock()))

    forgotten = _of(change(ledger, edit), place)
    assert forgotten is not None  # noqa: S101 - the edit has put it there
    return forgotten


def come_back(ledger: Ledger, place: SinkReceipt, clear: Clear) -> int:
    """Say that a forgotten place is there again, and clear what was erased, whenever that was. Returns the number of erasures.

    Raises WrongUse for a place that was not forgotten, and what `clear` raises: then the place is not written yet.
    """

    def edit(register: Register) -> Register:
        forgotten = _of(register, place)
        if forgotten is None:
            raise WrongUse(f"nobody has said of {place.name} {place.where()} that it is gone")
        return _with(register, structs.replace(forgotten, back=True))

    change(ledger, edit)
    # An erasure that is settled from here on clears the place itself. One that was settled before is among these windows.
    stones = tombstones(ledger.committed())
    written = [sink for sink in places_written(ledger) if sink.place.as_place == place.as_place]
    for stone in stones:
        clear(stone.record, stone.offsets, written)
    change(ledger, lambda register: structs.replace(register, forgotten=_others(register, place)))
    return len(stones)


def _of(register: Register, place: SinkReceipt) -> ForgottenPlace | None:
    return next((forgotten for forgotten in register.forgotten if forgotten.place.as_place == place.as_place), None)


def _others(register: Register, place: SinkReceipt) -> tuple[ForgottenPlace, ...]:
    return tuple(forgotten for forgotten in register.forgotten if forgotten.place.as_place != place.as_place)


def _with(register: Register, place: ForgottenPlace) -> Register:
    return structs.replace(register, forgotten=(*_others(register, place.place), place))
