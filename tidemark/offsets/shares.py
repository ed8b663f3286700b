"""A share of the data: the blocks of offsets that an audit of a share looks at. Pure.

Each block has a place on a circle of a million parts: the hash of its partition and number. A share is an arc of the circle,
and the seed says where it begins: the arc of seed n + 1 begins where that of seed n ends. So the choice depends on seed,
partition and block alone. Audits with consecutive seeds look at other blocks, until 20 audits of 5% each have seen them all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from msgspec import Struct

from tidemark.offsets.blocks import in_blocks
from tidemark.offsets.counting import number_of
from tidemark.offsets.hashing import offset_hash, partition_seed
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition

# A percentage with at most four digits behind the point; or nothing.
PATTERN = r"^((100|[0-9]{1,2}(\.[0-9]{1,4})?)%)?$"
MAX_SEED = 1_000_000_000

_CIRCLE = 1_000_000
# With more blocks to look at than that, the blocks are larger: the driver holds a range for each.
_MAX_BLOCKS = 50_000
_DAY_MS = 86_400_000


class ShareReport(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The share that an audit covered: `offsets` of the `among` that it would cover without a share."""

    share: str
    seed: int
    block: int
    offsets: int
    among: int

    def __str__(self) -> str:
        return f"a share of {self.share} with seed {self.seed}: {self.offsets} of {number_of(self.among, 'offset')}"


def parts(text: str) -> int:
    """The parts of a million in a percentage. Raises ValueError with what was expected."""
    if not text or re.fullmatch(PATTERN, text) is None:
        raise ValueError(f"expected a percentage such as 5% or 0.5%, found {text!r}")
    whole, _, fraction = text.removesuffix("%").partition(".")
    number = int(whole) * 10_000 + int(fraction.ljust(4, "0"))
    if number == 0:
        raise ValueError("expected more than 0%: leave share out to look at everything")
    return number


def share_or_none(text: str) -> str:
    """For fields that may be empty. Raises ValueError."""
    if text:
        parts(text)
    return text


def seed_of(given: int | None, now_ms: int) -> int:
    """The given seed, or the number of the day (UTC), so that each day covers other blocks."""
    return now_ms // _DAY_MS if given is None else given


@dataclass(frozen=True)
class Share:
    """The choice of blocks."""

    text: str
    seed: int

    def of(self, offsets: RangeSet, size: int) -> tuple[RangeSet, ShareReport]:
        """The offsets in the chosen blocks of `size`, and what a report says of the choice. Never nothing of something."""
        arc = parts(self.text)
        while offsets.count() // size * arc > _MAX_BLOCKS * _CIRCLE:
            size *= 2
        begins = self.seed * arc % _CIRCLE
        chosen = RangeSet(range_ for place, range_ in _places(offsets, size) if (place - begins) % _CIRCLE < arc)
        if not chosen and offsets:
            # With few blocks, the arc may hold none. Then take the next block in the seed's order.
            first = min((place - begins) % _CIRCLE for place, _ in _places(offsets, size))
            chosen = RangeSet(range_ for place, range_ in _places(offsets, size) if (place - begins) % _CIRCLE == first)
        said = ShareReport(share=self.text, seed=self.seed, block=size, offsets=chosen.count(), among=offsets.count())
        return chosen, said


def _places(offsets: RangeSet, size: int) -> Iterator[tuple[int, OffsetRange]]:
    """The parts of blocks that have some of the offsets, with the block's place on the circle."""
    seeds: dict[TopicPartition, int] = {}
    for at, block, start, until in in_blocks(offsets, size):
        if at not in seeds:
            seeds[at] = partition_seed(at)
        yield offset_hash(seeds[at], block) % _CIRCLE, OffsetRange(at, start, until)
