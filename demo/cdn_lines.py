"""CDN access log lines, the same for the same seed: two formats, and everything that real topics contain.

About one message in 200 is invalid: a line that does not parse, a code of 0, bytes that are not UTF-8. One in a thousand
is a tombstone, and one in fifty has no key.

    python -m demo.cdn_lines --count 1000 --rate 100 --topic cdn-logs --bootstrap-servers 127.0.0.1:9092
"""

from __future__ import annotations

import argparse
import random
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

HOSTS = ("img.example.com", "static.example.com", "video.example.net", "dl.example.org")
PATHS = ("/index.html", "/a/b/logo.png", "/v/42/segment-{n}.ts", "/app/{n}.js", "/search?q={n}", "/caf%C3%A9/{n}")
METHODS = ("GET", "GET", "GET", "GET", "HEAD", "POST")
CODES = (200, 200, 200, 200, 206, 304, 404, 502)
# The time between two messages.
STEP = timedelta(milliseconds=20)

# The most messages that may be on their way.
UNANSWERED = 10_000

INVALID_SHARE = 0.005
TOMBSTONE_SHARE = 0.001
NO_KEY_SHARE = 0.02


@dataclass(frozen=True)
class CdnMessage:
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


def messages(count: int, since: datetime, *, seed: int = 1, first: int = 0, formats: int = 2) -> Iterator[CdnMessage]:
    """`count` messages, beginning with number `first` of this seed; number 0 is from the time `since`.

    The same number, seed, time and formats give the same message. With `formats` 1, no line is of the second one.
    """
    for number in range(first, first + count):
        yield message(number, since + STEP * number, seed, formats)


def message(number: int, at: datetime, seed: int = 1, formats: int = 2) -> CdnMessage:
    chance = random.Random(f"{seed}/{number}")
    client = f"203.0.113.{chance.randrange(256)}"
    key = None if chance.random() < NO_KEY_SHARE else client.encode()
    kind = chance.random()
    if kind < TOMBSTONE_SHARE:
        return CdnMessage(key or client.encode(), None, _milliseconds(at))
    tabs = formats > 1 and number % 3 == 0
    line = _line(chance, number, client, at, code=chance.choice(CODES), tabs=tabs)
    if kind < TOMBSTONE_SHARE + INVALID_SHARE:
        line = _spoiled(chance, number, client, at, line, tabs=tabs)
    return CdnMessage(key, line, _milliseconds(at))


def _line(chance: random.Random, number: int, client: str, at: datetime, *, code: int, tabs: bool) -> bytes:
    host, path = chance.choice(HOSTS), chance.choice(PATHS).format(n=number % 1000)
    method, size, seconds = chance.choice(METHODS), chance.randrange(100, 5_000_000), chance.random() * 3
    if tabs:
        when = at.strftime("%Y-%m-%d\t%H:%M:%S")
        parts = [when, "FRA2-C1", str(size), client, method, host, path, str(code), f"{seconds:.3f}", "HTTP/2.0"]
        return "\t".join(parts).encode()
    when = at.strftime("%d/%b/%Y:%H:%M:%S +0000")
    return f'{client} - - [{when}] "{method} http://{host}{path} HTTP/1.1" {code} {size} {seconds:.3f}'.encode()


def _spoiled(chance: random.Random, number: int, client: str, at: datetime, line: bytes, *, tabs: bool) -> bytes:
    """A line made invalid in one of several ways."""
    way = chance.randrange(4)
    if way == 0:
        return line[: len(line) // 2]
    if way == 1:
        return _line(chance, number, client, at, code=0, tabs=tabs)
    if way == 2:
        return line + b"\xff\xfe"
    return b""


def _milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def produce(
    bootstrap_servers: str,
    topic: str,
    count: int,
    *,
    seed: int = 1,
    first: int = 0,
    rate: float | None = None,
    formats: int = 2,
) -> None:
    """Send messages to a topic, the last of them with the present time. `rate`: messages per second, None for all at once.

    Raises Kafka's error for the first message that it refuses.
    """
    from kafka import KafkaProducer
    from kafka.errors import KafkaError

    refused: list[BaseException] = []
    waiting: deque[Any] = deque()

    def settle(left: int) -> None:
        """Wait for the answers to all messages but the last ones."""
        while len(waiting) > left:
            try:
                waiting.popleft().get()
            except KafkaError as problem:
                refused.append(problem)

    since = datetime.now(UTC) - STEP * (first + count)
    producer = KafkaProducer(bootstrap_servers=bootstrap_servers, linger_ms=20, batch_size=256 * 1024, acks="all")
    began = time.monotonic()
    try:
        for sent, one in enumerate(messages(count, since, seed=seed, first=first, formats=formats)):
            if rate is not None:
                time.sleep(max(0.0, began + sent / rate - time.monotonic()))
            waiting.append(producer.send(topic, key=one.key, value=one.value, timestamp_ms=one.timestamp_ms))
            settle(UNANSWERED)
    finally:
        # One by one, and before close(): its flush() fails when Kafka has a batch sent again in smaller parts.
        settle(0)
        producer.close()
    if refused:
        raise refused[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", default="cdn-logs")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first message")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, help="messages per second; without it, as fast as possible")
    options = parser.parse_args()
    produce(
        options.bootstrap_servers,
        options.topic,
        options.count,
        seed=options.seed,
        first=options.first,
        rate=options.rate,
    )


if __name__ == "__main__":
    main()
