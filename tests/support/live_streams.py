"""A stream with topics, tables and folders of its own, for one test."""

from __future__ import annotations

import itertools
import json
import random
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
import yaml
from kafka import KafkaAdminClient, KafkaProducer
from kafka import TopicPartition as KafkaTopicPartition
from kafka.errors import KafkaError

from services import control, processes
from services.site import Site
from tests.support import own_readers
from tests.support.claiming import claim_lane
from tests.support.independent import Independent
from tests.support.oracle import EXAMPLES, LEDGERS, Example, Expected, expected, stream_of
from tests.support.servers import free_ports
from tests.support.waiting import until
from tidemark.clients.kafka.clients import python_settings
from tidemark.clients.kafka.endpoint import KafkaEndpoint
from tidemark.clients.kafka.log import KafkaLog
from tidemark.clients.kafka.topics import READ_COMMITTED
from tidemark.commit.protocol import Listener, nobody
from tidemark.ledger.records import INGEST, Head, LaneKind, Record, Window
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.runs.live.open_stream import OpenStream, open_stream
from tidemark.runs.windows import ingest, lanes

_numbers = itertools.count(1)

# Changes to the example's stream file that make any bytes a row.
RAW: dict[str, Any] = {"scheme": {"type": "raw"}, "checks": []}


class Kafka:
    """A Kafka, for making topics and messages."""

    def __init__(self, endpoint: KafkaEndpoint) -> None:
        self.endpoint = endpoint
        self.servers = endpoint.servers
        self.settings = python_settings(endpoint)
        self._admin = KafkaAdminClient(**self.settings)

    @property
    def admin(self) -> KafkaAdminClient:
        """A client that has a connection. After a broker was away, an old client refuses all calls for up to 30 s."""
        try:
            self._admin.describe_cluster()
        except KafkaError:
            self._admin.close()
            self._admin = KafkaAdminClient(**self.settings)
        return self._admin

    def create(self, topic: str, partitions: int, **settings: str) -> None:
        """Messages with a date of long ago stay in it, unless its `settings` say otherwise."""
        configs = {"retention.ms": "-1", **settings}
        self.admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1, "configs": configs}})

    def send(self, messages: Iterable[tuple[str, int, bytes | None, bytes | None]], **settings: Any) -> None:
        """Send (topic, partition, key, value), and return when the broker has all of them."""
        producer = KafkaProducer(**{**self.settings, "linger_ms": 5, **settings})
        try:
            sent = [producer.send(topic, value, key, partition=partition) for topic, partition, key, value in messages]
            producer.flush()
            for one in sent:
                one.get(timeout=120)
        finally:
            producer.close()

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Raise a log's start, as retention does."""
        self.admin.delete_records({KafkaTopicPartition(topic, partition): before})

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Raise a topic's number of partitions, and return when a consumer sees all of them."""
        self.admin.create_partitions({topic: partitions})
        logs = KafkaLog(self.endpoint)

        def seen() -> bool:
            found = logs.topics((topic,), READ_COMMITTED).get(topic)
            return found is not None and len(found.partitions) == partitions

        until(seen, f"{topic} has not {partitions} partitions")

    def wait_for_stable_end(self, topic: str, partition: int, end: int) -> None:
        """Wait until the last stable offset is `end`. It follows a moment after the end of a transaction."""
        logs = KafkaLog(self.endpoint)
        until(
            lambda: logs.topics((topic,), READ_COMMITTED)[topic].partitions[partition].end == end,
            f"the last stable offset of {topic}/{partition} is not {end}",
        )

    def delete(self, topic: str) -> None:
        """Delete a topic, and return when it is gone."""
        self.admin.delete_topics([topic])
        until(lambda: topic not in self.admin.list_topics(), f"{topic} is still there")

    def recreate(self, topic: str, partitions: int) -> None:
        """Delete a topic and create it again under the same name."""
        self.delete(topic)
        self.create(topic, partitions)

    def close(self) -> None:
        self._admin.close()


class LiveStream:
    """One stream for one test: its file, its messages, its runs, and their right results."""

    def __init__(self, site: Site, kafka: Kafka, folder: Path, example: Example, **changes: Any) -> None:
        self.site = site
        self.kafka = kafka
        self.example = example
        self.name = f"t{next(_numbers)}_{secrets.token_hex(3)}"
        self.topics = tuple(f"{self.name}-{topic}" for topic in example.topics)
        self.file = folder / f"{self.name}.yaml"
        self._ledger = LEDGERS["hbase"]
        self.rewrite(**changes)
        for topic in self.topics:
            kafka.create(topic, example.partitions)
        self.independent = Independent(site, self.name)
        self._produced = 0
        self._runs = itertools.count(1)

    def rewrite(self, **changes: Any) -> None:
        """Write the stream file again, as after a bug fix. The ledger stays the same unless `changes` names another."""
        self._ledger = changes.pop("ledger", self._ledger)
        stream = stream_of(self.example, self.name, self.topics, ledger=self._ledger, **changes)
        self.file.write_text(yaml.safe_dump(stream, sort_keys=False, allow_unicode=True))

    @property
    def opened(self) -> OpenStream:
        return open_stream(self.file)

    @property
    def fields(self) -> list[str]:
        return list(self.example.stream["scheme"]["fields"])

    def produce(self, count: int) -> None:
        """The example's next messages, over all partitions in turn."""
        places = [(topic, partition) for topic in self.topics for partition in range(self.example.partitions)]
        messages = self.example.generate(count, self._produced)
        self.kafka.send(
            (*places[number % len(places)], key, value) for number, (key, value) in enumerate(messages, self._produced)
        )
        self._produced += count

    def produce_incompressible(self, count: int, size: int) -> None:
        """Random bytes, over the partitions of the first topic in turn."""
        chance = random.Random(1)
        self.kafka.send(
            (self.topics[0], number % self.example.partitions, None, chance.randbytes(size)) for number in range(count)
        )

    def new_run(self) -> str:
        return f"test/{self.name}/{next(self._runs)}"

    def pin(self, run: str) -> Window:
        """Plan the ingest's next window, for a job to process."""
        pending = ingest.plan_ingest(self.opened, run)
        assert pending is not None
        return pending.window

    def job_arguments(self, run: str, seq: int, lane: str = INGEST) -> list[str]:
        """The arguments of the job that processes windows."""
        return ["--stream-file", str(self.file), "--lane", lane, "--seq", str(seq), "--run", run]

    def ingest(
        self,
        run: str | None = None,
        *,
        on_step: Listener = nobody,
        take_over: bool = False,
        opened: OpenStream | None = None,
    ) -> list[Record]:
        """Plan and process in this process, as the ingest DAG does. Without new messages, there are no records."""
        from tidemark.spark.jobs.window import process_windows

        run = run or self.new_run()
        opened = opened or self.opened
        pending = ingest.plan_ingest(opened, run)
        if pending is None:
            return []
        return process_windows(opened, INGEST, pending.window.seq, run, on_step=on_step, take_over=take_over)

    def select(
        self,
        kind: LaneKind,
        selection: RangeSet,
        run: str | None = None,
        *,
        on_step: Listener = nobody,
        opened: OpenStream | None = None,
        wait: Callable[[float], None] = time.sleep,
        sinks: tuple[str, ...] | None = None,
    ) -> list[Record]:
        """Backfill or replay a selection in this process, as those DAGs do."""
        from tidemark.spark.jobs.window import process_windows

        run = run or self.new_run()
        opened = opened or self.opened
        lane = claim_lane(opened, kind, run, selection, "a test", sinks=sinks)
        pending = lanes.plan_lane(opened, lane, run)
        assert pending is not None
        return process_windows(opened, lane, pending.window.seq, run, on_step=on_step, wait=wait)

    def ranges(self, topic: int, partition: int, *intervals: tuple[int, int]) -> RangeSet:
        """Ranges of one of the stream's partitions."""
        at = TopicPartition(self.topics[topic], partition)
        return RangeSet(OffsetRange(at, start, until) for start, until in intervals)

    def head(self, lane: str = INGEST) -> Head:
        found = self.opened.ledger.head(lane)
        assert found is not None
        return found.head

    def positions(self) -> dict[tuple[str, int], int]:
        return {(at.topic, at.partition): offset for at, offset in self.head().offsets().items()}

    def expected(self, until: dict[tuple[str, int], int] | None = None) -> Expected:
        return expected(self.example, self.kafka.settings, self.topics, until or self.positions())

    def assert_exactly_what_was_read(self, *, with_spark: bool = False) -> None:
        """The rows that count are those that an oracle computes from the topics up to the positions, each once.

        Tidemark's own plain readers give the same, and with `with_spark` its readers with Spark do too.
        """
        wanted = self.expected()
        hbase, files = self.independent.hbase(sink="hbase"), self.independent.parquet(self.fields)
        dead = self.independent.hbase(f"{self.name}_dead")
        assert (hbase.twice(), files.twice(), dead.twice()) == (0, 0, 0)
        assert hbase.by_place() == wanted.rows
        assert files.by_place() == wanted.rows
        assert {place[:3]: fields["reason"] for place, fields in dead.rows} == wanted.dead
        self._assert_own_readers_agree(wanted, with_spark=with_spark)

    def _assert_own_readers_agree(self, wanted: Expected, *, with_spark: bool) -> None:
        """Tidemark's readers give the same, for each sink that has had all windows."""
        opened = self.opened
        had = [
            {sink["name"] for sink in one["receipt"]["sinks"]} for one in self.independent.records() if one["receipt"]
        ]
        everywhere = set.intersection(*had) if had else set()
        for reader, rows in own_readers.results_of(opened, everywhere, with_spark=with_spark):
            assert len(rows) == len(wanted.rows), reader
            assert dict(rows) == wanted.rows, reader
        if had:
            dead = own_readers.dead_letters(opened)
            assert len(dead) == len(wanted.dead)
            assert {place[:3]: fields["reason"] for place, fields in dead} == wanted.dead


Make = Callable[..., LiveStream]


@pytest.fixture(scope="session")
def kafka(site: Site) -> Iterator[Kafka]:
    found = Kafka(KafkaEndpoint(site.address("kafka")))
    yield found
    found.close()


@pytest.fixture
def other_kafka(tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Site, Kafka]]:
    """A broker for this test alone, and its connection under the name `kafka_other`."""
    other = Site(tmp_path / "site", free_ports(), site.jars)
    control.up(other, ("kafka",), report=lambda line: None)
    connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": other.address("kafka")}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_OTHER", json.dumps(connection))
    kafka = Kafka(KafkaEndpoint(other.address("kafka")))
    yield other, kafka
    kafka.close()
    processes.kill(other, "kafka")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests marked `both`, and all tests of a full run, take both examples. Other tests take one, always the same one.

    A full run takes both ledgers too; other runs take one of them, see the fixture `ledger`. A test with an example and a
    ledger then runs twice, not four times. Its name decides which ledger goes with which example.
    """
    full = metafunc.config.getoption("--full")
    number = crc32(metafunc.function.__name__.encode())
    ledgers = sorted(LEDGERS) if full and "ledger" in metafunc.fixturenames else []
    if "example" not in metafunc.fixturenames:
        if ledgers:
            metafunc.parametrize("ledger", ledgers)
        return
    both = full or metafunc.definition.get_closest_marker("both")
    examples = EXAMPLES if both else [EXAMPLES[number % len(EXAMPLES)]]
    if not ledgers:
        metafunc.parametrize("example", examples, ids=lambda example: example.name)
        return
    pairs = [(ledgers[(number + place) % len(ledgers)], example) for place, example in enumerate(examples)]
    metafunc.parametrize(("ledger", "example"), pairs, ids=[f"{ledger}-{example.name}" for ledger, example in pairs])


@pytest.fixture
def make(site: Site, kafka: Kafka, tmp_path: Path) -> Make:
    """Makes a stream of its own for an example, the stream file's contents changed as told."""

    def made(example: Example = EXAMPLES[0], **changes: Any) -> LiveStream:
        return LiveStream(site, kafka, tmp_path, example, **changes)

    return made


@pytest.fixture
def ledger(request: pytest.FixtureRequest) -> str:
    """The ledger of a test: always the same for the same test. About half of the tests have each ledger."""
    return sorted(LEDGERS)[crc32(request.node.name.encode()) % len(LEDGERS)]


@pytest.fixture
def live(make: Make, example: Example, ledger: str) -> LiveStream:
    """A stream of its own for an example, with either ledger."""
    return make(example, ledger=LEDGERS[ledger])
