"""The cost of the blocks of the sink `hbase_aggregates`: cells and bytes for each block size, and what a replay reads.

    .venv/bin/python -m bench.aggregate_blocks --messages 200000

It counts in memory, without servers: the cells are those that the sink would write for the demo's CDN lines, in one window.
Bytes are those of HBase's cells without compression.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from zlib import crc32

from demo.cdn_lines import HOSTS, STEP, messages
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.sinks.hbase.aggregates.rows import block_qualifier, encode, row_key

PARTITIONS = 4
BLOCKS = (1, 10, 100, 1_000, 10_000, 100_000)
# HBase's cell besides row, qualifier and value: lengths 4, 4, 2 and 1, family 1, timestamp 8, type 1.
_CELL_BYTES = 21

_HOST = re.compile("|".join(map(re.escape, HOSTS)).encode())
_CLIENT = re.compile(rb"203\.0\.113\.\d+")


@dataclass(frozen=True)
class Line:
    at: TopicPartition
    offset: int
    host: bytes
    client: bytes
    minute: bytes


Key = Callable[[Line], Sequence[bytes]]
KEYS: dict[str, Key] = {
    "host, minute": lambda line: (line.host, line.minute),
    "host": lambda line: (line.host,),
    "client, minute": lambda line: (line.client, line.minute),
}


def lines(count: int) -> list[Line]:
    """CDN lines that have a host, at their offsets."""
    since = datetime(2026, 11, 21, 7, 0, tzinfo=UTC)
    ends = [0] * PARTITIONS
    found = []
    for number, one in enumerate(messages(count, since)):
        partition = crc32(one.key or b"%d" % number) % PARTITIONS
        offset, ends[partition] = ends[partition], ends[partition] + 1
        host, client = _HOST.search(one.value or b""), _CLIENT.search(one.value or b"")
        if host and client:
            minute = f"{since + STEP * number:%Y-%m-%d %H:%M:00}".encode()
            found.append(Line(TopicPartition("cdn-logs", partition), offset, host[0], client[0], minute))
    return found


def cost(given: Sequence[Line], key: Key, block: int) -> tuple[int, int]:
    """How many cells, and their bytes."""
    places = {(tuple(key(line)), line.at, line.offset - line.offset % block) for line in given}
    states = [("requests", b"1000"), ("bytes", b"2500000000"), ("slowest", b"2.999")]
    value = len(encode(123_456, "ingest", 1, 1000, 1, states))
    column = len(block_qualifier(TopicPartition("cdn-logs", 0), 0))
    return len(places), sum(_CELL_BYTES + len(row_key(found)) + column + value for found, _, _ in places)


def read(given: Sequence[Line], block: int, chosen: Sequence[Line]) -> int:
    """How many offsets a replay of the chosen lines reads."""
    ends: dict[TopicPartition, int] = {}
    for line in given:
        ends[line.at] = line.offset + 1
    touched = ((line.at, line.offset - line.offset % block) for line in chosen)
    return RangeSet(OffsetRange(at, start, min(start + block, ends[at])) for at, start in touched).count()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=200_000)
    options = parser.parse_args()
    given = lines(options.messages)
    ten = given[len(given) // 20 :: len(given) // 10]
    heads = " | ".join(f"cells by {name}" for name in KEYS)
    print(f"| `block_offsets` | a replay of ten reads | {heads} |")
    print("|---|---|" + "---|" * len(KEYS))
    for block in BLOCKS:
        costs = []
        for key in KEYS.values():
            cells, size = cost(given, key, block)
            costs.append(f"{cells:,} ({size / 1e6:.1f} MB)")
        print(f"| {block} | {read(given, block, ten):,} | {' | '.join(costs)} |")


if __name__ == "__main__":
    main()
