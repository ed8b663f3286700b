"""Values that were not sent, in the three sinks with the newest row of each key: a dead letter names the field."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.command_line import asked
from tests.support.live_streams import Make
from tests.support.oracle import Example, Outcome
from tests.support.rows import messages_of, stream_of
from tidemark.schemes.kinds import Fields
from tidemark.sinks.delta.latest.settings import DeltaLatestSink
from tidemark.sinks.hbase.latest.settings import HBaseLatestSink
from tidemark.sinks.keys import UNSENT
from tidemark.sinks.latest.settings import LatestSettings
from tidemark.spark.columns import OFFSET, REASON
from tidemark.spark.jobs.audit import audit
from tidemark.spark.rows.one_pass import one_pass
from tidemark.spark.sinks.hbase.latest.writer import HBaseLatestResults
from tidemark.spark.sinks.latest.writer import LatestResults
from tidemark.streams.model import Stream

FIELDS = {
    "id": "integer",
    "op": "string",
    "name": "string",
    "doc": "binary",
    "tags": "array<string>",
    "of": "map<string,struct<a:string,n:int>>",
}
SENT = {"id": 1, "op": "u", "name": "a", "doc": "YQ==", "tags": ["a"], "of": {"k": {"a": "x", "n": 1}}}
NOT_SENT: dict[str, Any] = {
    "name": UNSENT,
    "doc": base64.b64encode(UNSENT.encode()).decode(),
    "tags": ["a", None, UNSENT],
    "of": {"k": {"a": "x", "n": 1}, "l": {"a": UNSENT, "n": None}},
}


class Lake(LatestResults):
    """A sink of newest rows, as far as it refuses rows."""

    def __init__(self, settings: LatestSettings) -> None:
        self._settings = self._latest = settings
        self._config = settings  # type: ignore[assignment]

    def stored(self) -> dict[str, str]:
        return FIELDS

    def check_unchanged(self, written: Fields) -> None: ...


class InHBase(HBaseLatestResults):
    """The one in HBase, as far as it refuses rows."""

    def __init__(self, settings: HBaseLatestSink) -> None:
        self._sink = self._settings = self._latest = settings
        self._config = settings  # type: ignore[assignment]


def reasons(spark: SparkSession, stream: Stream, values: Sequence[dict[str, Any]]) -> list[str | None]:
    """Why each message is a dead letter."""
    given = [json.dumps(one).encode() for one in values]
    (settings,) = stream.sinks
    if isinstance(settings, HBaseLatestSink):
        refusal = InHBase(settings).refusal(stream.fields)
    else:
        assert isinstance(settings, LatestSettings)
        refusal = Lake(settings).refusal(stream.fields)
    refusals = [] if refusal is None else [refusal]
    passed = one_pass(spark, lambda counted: messages_of(spark, [*given]), stream, refusals, 10)
    assert passed is not None
    passed.stored.write.format("noop").mode("overwrite").save()
    dead = {row[OFFSET]: row[REASON] for row in passed.dead_letters.collect()}
    passed.close()
    return [dead.get(offset) for offset in range(len(values))]


@pytest.mark.covers("N83")
@pytest.mark.parametrize(
    "sink",
    [
        {"type": "delta_latest", "folder": "orders", "key": "id", "op": "op"},
        {"type": "hbase_latest", "table": "orders", "folder": "orders", "key": "id"},
    ],
    ids=["lakes", "hbase"],
)
def test_a_value_that_was_not_sent_is_a_dead_letter_that_names_its_field(
    spark: SparkSession, sink: dict[str, Any]
) -> None:
    scheme = {"type": "json", "fields": FIELDS}
    values = [SENT, *({**SENT, name: value} for name, value in NOT_SENT.items()), {**SENT, "name": f"{UNSENT}."}]
    found = reasons(spark, stream_of(scheme=scheme, sinks=[sink]), values)
    named = [f"sink {sink['type']}: {name} was not sent ({UNSENT})" for name in NOT_SENT]
    assert found == [None, *named, None]
    # Of what is gone no value is read. Another program may have another text.
    gone = {**SENT, "op": "d", "name": "?"}
    stream = stream_of(scheme=scheme, sinks=[{**sink, "unsent": "?"}])
    refused = f"sink {sink['type']}: name was not sent (?)"
    found = reasons(spark, stream, [values[1], {**SENT, "name": "?"}, gone])
    assert found == [None, refused, None if "op" in sink else refused]


@pytest.mark.full
@pytest.mark.covers("N83")
def test_a_stream_may_say_that_no_text_stands_for_a_value() -> None:
    sink = DeltaLatestSink.model_validate({"type": "delta_latest", "folder": "orders", "key": "id", "unsent": None})
    assert Lake(sink).refusal(FIELDS) is None


@pytest.mark.full
@pytest.mark.covers("N83")
def test_the_table_keeps_the_row_before_a_value_that_was_not_sent(make: Make) -> None:
    """With a real HBase, by the commands alone: the text never stands in the place of the value before it."""
    sent = [
        {"id": 1, "name": "a", "doc": "a long text"},
        {"id": 2, "name": "b", "doc": None},
        # The row's name was changed, and its long text was not sent with it.
        {"id": 1, "name": "changed", "doc": UNSENT},
        {"id": 2, "name": "changed", "doc": "sent"},
    ]
    fields = {"id": "integer", "name": "string", "doc": "string"}
    changes = Example(
        "changes",
        {"source": {"topics": []}, "scheme": {"type": "json", "fields": fields}, "sinks": []},
        ("changes",),
        1,
        lambda count, first: iter(()),
        lambda value: Outcome(None, None),
    )
    live = make(changes)
    live.rewrite(
        sinks=[{"type": "hbase_latest", "table": f"{live.name}_newest", "folder": f"{live.name}_newest", "key": "id"}]
    )
    live.kafka.send((live.topics[0], 0, None, json.dumps(one).encode()) for one in sent)
    live.ingest()
    file = str(live.file)

    def newest() -> dict[str, Any]:
        return {one["fields"]["id"]: one["fields"]["doc"] for one in asked("results", file, "--sink", "hbase_latest")}

    assert newest() == {"1": "a long text", "2": "sent"}
    (letter,) = asked("results", file, "--dead-letters")
    assert letter["coordinate"] == f"{live.topics[0]}/0@2"
    assert letter["fields"]["reason"] == f"sink hbase_latest: doc was not sent ({UNSENT})"
    assert audit(live.opened, live.new_run()).clean
    # The sender sends the whole row, as Debezium does where the table has REPLICA IDENTITY FULL.
    whole = json.dumps({**sent[2], "doc": "a long text"}).encode()
    live.kafka.send([(live.topics[0], 0, None, whole)])
    live.ingest()
    assert newest() == {"1": "a long text", "2": "sent"}
