"""Rows that Spark kept and has lost are computed anew where they surely come out the same; otherwise the attempt ends."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.support.live_streams import RAW, LiveStream, Make
from tests.support.oracle import Example
from tidemark.commit.protocol import Step
from tidemark.errors import RowsRecomputed, VerificationFailed
from tidemark.spark.jobs.audit import audit
from tidemark.spark.runtime.failures import translate

FIELDS = {"number": "integer", "word": "string"}
STREAM: dict[str, Any] = {
    "source": {},
    **RAW,
    "sinks": [{"type": "hbase", "table": "-"}, {"type": "parquet", "folder": "-"}],
    "dead_letters": {"type": "hbase", "table": "-"},
}
EXAMPLE = Example("any", STREAM, ("calls",), 2, lambda count, first: iter(()), lambda value: None)  # type: ignore[arg-type,return-value]
OWN = {"type": "function", "function": "tests.support.own_functions:drawn", "fields": FIELDS}


def by_sql(columns: str, of: str = "messages") -> dict[str, Any]:
    given_back = "_topic, _incarnation, _partition, _offset, _index"
    return {"transform": {"sql": f"SELECT {given_back}, {columns} FROM {of}", "fields": FIELDS}}


MAY_DIFFER: dict[str, dict[str, Any]] = {
    "function": {"scheme": OWN},
    "function and then SQL": {"scheme": OWN, **by_sql("number, word")},
    "transform by a function": {
        "transform": {"function": "tests.support.own_functions:drawn_beside", "fields": {"word": "string"}}
    },
    "random SQL": by_sql("_offset AS number, uuid() AS word"),
    "SQL that depends on an order": by_sql("row_number() OVER (ORDER BY _partition) AS number, 'same' AS word"),
    "random check": {"checks": [{"invalid_when": "rand() < 0.5", "reason": "unlucky"}]},
}
# These go the ways of others.
LONGER = dict.fromkeys(
    (
        *("function and then SQL", "transform by a function", "random SQL", "SQL that depends on an order"),
        *("pieces", "scheme"),
    ),
    pytest.mark.full,
)
THE_SAME: dict[str, dict[str, Any]] = {
    "pieces": {"explode": {"lines": " "}},
    "SQL": by_sql(
        "_offset AS number, upper(cast(value AS string)) AS word",
        "(SELECT * FROM messages WHERE _partition = 0 UNION ALL SELECT * FROM messages WHERE _partition = 1)",
    ),
}
# Spark keeps nothing of these: what the first sink has written is what the next one gets.
IN_ONE_PASS: dict[str, dict[str, Any]] = {
    "scheme": {},
    "SQL of single rows": by_sql("_offset AS number, upper(cast(value AS string)) AS word"),
}


def made(make: Make, **changes: Any) -> LiveStream:
    live = make(EXAMPLE, **changes)
    live.kafka.send((live.topics[0], number % 2, None, f"a {number}".encode()) for number in range(40))
    return live


class Loss:
    """All that Spark keeps is lost, once, behind a step. Dead letters of one pass are kept always, and not counted."""

    def __init__(self, spark: SparkSession, behind: Step = Step.SINK_STORED) -> None:
        self.behind = behind
        self.java: Any = spark.sparkContext._jvm
        self.kept: Any = spark.sparkContext._jsc
        # Other tests' results may wait for Java's garbage collection.
        self.before = {*self._kept()}
        self.lost = 0

    def _kept(self) -> list[int]:
        return list(self.kept.getPersistentRDDs().keySet().toArray())

    def __call__(self, step: Step) -> None:
        if step != self.behind or self.lost:
            return
        blocks = self.java.org.apache.spark.SparkEnv.get().blockManager().master()
        for number in {*self._kept()} - self.before:
            blocks.removeRdd(number, True)
            self.lost += self.kept.getPersistentRDDs()[number].name() != "dead letters"


@pytest.mark.full
@pytest.mark.parametrize(
    "changes",
    [pytest.param(changes, id=name, marks=LONGER.get(name, ())) for name, changes in MAY_DIFFER.items()],
)
def test_what_may_come_out_otherwise_is_not_committed(make: Make, spark: SparkSession, changes: dict[str, Any]) -> None:
    live = made(make, **changes)
    run, loss = live.new_run(), Loss(spark)
    with pytest.raises(PySparkException) as ended:
        live.ingest(run, on_step=loss)
    known = translate(ended.value)
    assert isinstance(known, RowsRecomputed)
    assert "Nothing was committed" in str(known)
    assert loss.lost
    assert live.head().last is None

    (record,) = live.ingest(run)
    assert record.window.seq == 1
    fields = list(live.opened.stream.fields)
    hbase, files = live.independent.hbase(), live.independent.parquet(fields)
    assert (hbase.twice(), files.twice(), hbase.debris) == (0, 0, 0)
    assert hbase.by_place() == files.by_place()
    assert len(hbase.rows) == sum(one.rows.number for one in record.tallies) > 0


SINKS: dict[str, dict[str, Any]] = {
    "hbase": {"table": "{name}"},
    "parquet": {"folder": "{name}"},
    "delta": {"folder": "{name}"},
    "hbase_latest": {"table": "{name}", "folder": "{name}", "key": "word"},
    "hbase_aggregates": {"table": "{name}", "folder": "{name}", "key": "word", "values": {"calls": "count"}},
    "kafka": {"topic": "{name}-results"},
}


@pytest.mark.full
@pytest.mark.parametrize("kind", SINKS)
def test_a_sink_with_other_contents_than_were_counted_is_refused(
    make: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """As where Spark takes for repeatable what is not."""
    monkeypatch.setattr("tidemark.spark.rows.pipeline._may_differ", lambda rows, stream: False)
    live = made(make)
    live.kafka.create(f"{live.name}-results", 1)
    sink = {
        key: value.format(name=live.name) if isinstance(value, str) else value for key, value in SINKS[kind].items()
    }
    live.rewrite(scheme=OWN, checks=[], sinks=[{"type": kind, **sink}])
    loss = Loss(spark, Step.DEAD_LETTERS_STORED)
    with pytest.raises(VerificationFailed, match=f"acknowledged by sink {kind} have other contents"):
        live.ingest(on_step=loss)
    assert loss.lost
    assert live.head().last is None


@pytest.mark.full
@pytest.mark.covers("F3")
@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        pytest.param(changes, kept, id=name, marks=LONGER.get(name, ()))
        for kept, all_changes in ((True, THE_SAME), (False, IN_ONE_PASS))
        for name, changes in all_changes.items()
    ],
)
def test_what_comes_out_the_same_survives_a_loss(
    make: Make, spark: SparkSession, changes: dict[str, Any], kept: bool
) -> None:
    live = made(make, **changes)
    loss = Loss(spark)
    (record,) = live.ingest(on_step=loss)
    assert (loss.lost > 0) == kept
    fields = list(live.opened.stream.fields)
    hbase, files = live.independent.hbase().by_place(), live.independent.parquet(fields).by_place()
    assert hbase == files
    assert len(hbase) == sum(one.rows.number for one in record.tallies) > 0
    report = audit(live.opened, "an audit")
    assert report.clean, report.sentence()
