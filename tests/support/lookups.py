"""A ledger with several lanes, and the right answers of look-ups."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tidemark.ledger.ledger import Ledger
from tidemark.ledger.newest import newest_windows, open_heads
from tidemark.ledger.records import Gap, LaneKind, Record, WindowRange
from tidemark.offsets.coordinates import Coordinate

LANES, MAX_READS = 50, 20


def places(records: list[Record], chance: random.Random) -> Iterator[Coordinate]:
    """Coordinates inside, at the edges of, and just outside windows of all kinds, and anywhere else."""
    others = [record for record in records if record.kind != LaneKind.INGEST]
    jumping = [record for record in records if record.window.gaps]
    kinds = [kind for kind in (records, others, jumping) if kind]
    while True:
        record = chance.choice(chance.choice(kinds))
        parts: list[WindowRange | Gap] = [*record.window.ranges, *record.window.gaps]
        one = chance.choice(parts).as_range()
        anywhere = chance.randrange(one.start, one.until + 1)
        offset = chance.choice([one.start - 1, one.start, anywhere, one.until - 1, one.until, anywhere * 3 // 2])
        yield Coordinate(one.partition, max(0, offset))


def newest(ledger: Ledger, limit: int) -> list[Record]:
    found = ledger.register()
    return newest_windows(ledger, found[1], open_heads(ledger, found[1]), limit) if found else []
