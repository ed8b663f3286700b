"""Topics that Kafka compacts."""

from __future__ import annotations

import time

from tests.support.live_streams import LiveStream
from tests.support.oracle import consume

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "200",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "100",
}


def wait_until_left(live: LiveStream, offsets: list[int], end: int) -> None:
    """Wait until Kafka has compacted the log to these offsets. Kafka never compacts the last segment."""
    deadline = time.monotonic() + 300
    while True:
        left = [offset for _, _, offset, _ in consume(live.kafka.settings, live.topics, {(live.topics[0], 0): end})]
        if left == offsets:
            return
        assert time.monotonic() < deadline, left
        time.sleep(0.3)
