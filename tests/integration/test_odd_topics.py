"""`tidemark init` on topics that are unlike most: a valid stream file for each, and words that fit."""

from __future__ import annotations

import gzip
import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from tests.support.live_streams import Kafka
from tidemark.cli.app import app
from tidemark.errors import WrongUse
from tidemark.streams.loading import load
from tidemark.streams.model import Stream

Draft = Callable[[str], tuple[Stream, str]]


@pytest.fixture
def topic(kafka: Kafka) -> str:
    name = f"odd-{secrets.token_hex(3)}"
    kafka.create(name, 2, **{"max.message.bytes": str(16 << 20)})
    return name


@pytest.fixture
def draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Draft:
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TIDEMARK_STREAMS", str(tmp_path))

    def drafted(topic: str) -> tuple[Stream, str]:
        app(["init", "odd", "--topic", topic, "--dry-run"], standalone_mode=False)
        shown = capfd.readouterr().out
        app(["init", "odd", "--topic", topic], standalone_mode=False)
        # Into a file, it is the stream file.
        assert shown == (tmp_path / "odd.yaml").read_text()
        return load(tmp_path / "odd.yaml").stream, capfd.readouterr().err

    return drafted


def order(number: int, **more: Any) -> bytes:
    return json.dumps({"id": number, **more}).encode()


@pytest.mark.covers("N70")
@pytest.mark.parametrize(
    ("messages", "said", "fields"),
    [
        ([(b"k", None)] * 3, "looked at 3 messages of {}: no value: tombstones, or keys alone", {"key", "value"}),
        ([(b"k", gzip.compress(order(1)))], "looked at 1 message of {}: JSON objects, compressed with gzip", {"id"}),
        ([(None, order(1, text="x" * (12 << 20)))], "1 of them would be rows, 0 dead letters", {"id", "text"}),
        (
            [(None, order(1, **{f"field_{one}": one for one in range(500)}))],
            "301 keys have no field of their own",
            None,
        ),
    ],
    ids=["tombstones", "gzip", "giant", "500 fields"],
)
def test_messages_that_are_unlike_most(
    kafka: Kafka,
    topic: str,
    draft: Draft,
    messages: list[tuple[bytes | None, bytes | None]],
    said: str,
    fields: set[str] | None,
) -> None:
    kafka.send([(topic, 0, key, value) for key, value in messages], max_request_size=16 << 20)
    stream, words = draft(topic)
    assert said.format(topic) in words
    assert len(stream.fields) == 201 if fields is None else set(stream.fields) == fields


@pytest.mark.covers("N70")
def test_logs_that_are_unlike_most(kafka: Kafka, topic: str, draft: Draft, tmp_path: Path) -> None:
    """An empty one, and one of which the start was deleted, whose batches are compressed, and whose end was aborted."""
    with pytest.raises(WrongUse, match=f"{topic} has no messages, and a stream file is drafted from them"):
        draft(topic)
    assert not (tmp_path / "odd.yaml").exists()
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        kafka.send([(topic, 0, None, order(number)) for number in range(20)], compression_type=codec)
    kafka.delete_records(topic, 0, 75)
    producer = KafkaProducer(**kafka.settings, transactional_id=topic)
    producer.init_transactions()
    for number, end in ((2, producer.commit_transaction), (300, producer.abort_transaction)):
        producer.begin_transaction()
        for _ in range(number):
            producer.send(topic, order(1), partition=1)
        producer.flush()
        end()
    producer.close()
    stream, words = draft(topic)
    assert "looked at 7 messages" in words
    assert "7 of them would be rows, 0 dead letters" in words
    assert stream.fields == {"id": "integer"}
