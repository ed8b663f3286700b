"""The numbers that go to a metrics system."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from msgspec import structs

from tests.support.overviews import partition, shown_overview
from tests.support.protocol_world import AT, NoWork, World, hold, plan
from tidemark.commit import protocol
from tidemark.commit.protocol import Run
from tidemark.ledger.records import Gap, GapKind, Head, Receipt, Window
from tidemark.offsets.tallies import Count, PartitionTally
from tidemark.views.latency import Latency
from tidemark.views.metrics import COUNTERS, GAUGES, Metric, counts, gauges, watermark_age
from tidemark.views.overview import Overview, PartitionNow, Status


def row(number: int, **known: Any) -> PartitionNow:
    names = ("position", "lag", "retention_ms", "status")
    return partition(topic="a.b", partition=number, **{**dict.fromkeys(names), **known})


def shown(*partitions: PartitionNow, status: str | None = None, **latency: Any) -> Overview:
    return shown_overview(
        *partitions,
        status=None if status is None else Status(status, "rule", "a.b", 0, "why"),
        latency=replace(Latency(None, None, None, None), **latency),
    )


def test_what_is_unknown_is_not_sent() -> None:
    known = {"log_start": 5, "position": 80, "end": 90, "lag": 10}
    found = list(gauges(shown(row(0, **known), row(1, log_start=5, end=90))))
    assert found == [
        *(Metric(name, value, "a.b", 0) for name, value in known.items()),
        *(Metric(name, value, "a.b", 1) for name, value in {"log_start": 5, "end": 90}.items()),
        Metric("lag", 10),
        # NEW: no window yet.
        Metric("state", 1),
    ]


def test_status_headroom_and_latency_are_sent_for_partitions_and_for_the_stream() -> None:
    words = ("OK", "WARNING", "STALLED", "REWOUND", "STOPPED")
    partitions = [row(number, status=word, retention_ms=(5 - number) * 1_000) for number, word in enumerate(words)]
    found = list(gauges(shown(*partitions, status="STOPPED", last_ms=70, alarm=True)))
    assert [one.value for one in found if one.name == "status"] == [0, 1, 2, 3, 4, 4]
    assert [one.value for one in found if one.name == "retention_ms"] == [5_000, 4_000, 3_000, 2_000, 1_000, 1_000]
    assert found[-2:] == [Metric("latency_ms", 70), Metric("latency_alarm", 1)]
    # What the documents list, and of the partitions what is known.
    found += watermark_age(90, 20)
    assert found[-1] == Metric("watermark_age_ms", 70)
    assert list(watermark_age(90, None)) == []
    assert {one.name for one in found} == GAUGES.keys() - {"position"}


class Counted(NoWork):
    def verify(self) -> Receipt:
        tally = PartitionTally(
            topic=AT.topic,
            incarnation=AT.incarnation,
            partition=AT.partition,
            read=Count(10),
            stored=Count(7),
            invalid=Count(1),
            failed=Count(2),
        )
        return structs.replace(super().verify(), tallies=(tally,))


def test_what_windows_have_done_is_added_up() -> None:
    world = World()
    world.open()

    def window(head: Head) -> Window:
        made = plan(head)
        gaps = (
            Gap(
                kind=GapKind.LOST, policy="on_out_of_range", topic="logs", incarnation=1, partition=0, start=0, until=3
            ),
            Gap(kind=GapKind.SKIPPED, policy="max_behind", topic="logs", incarnation=1, partition=0, start=3, until=7),
        )
        if head.seq:
            return made
        return structs.replace(made, ranges=(structs.replace(made.ranges[0], start=7),), gaps=gaps)

    records = []
    for seq in (1, 2):
        assert protocol.pin(world.ledger, world.sweeps, "ingest", window) is not None
        run = Run("run", "code", "digest")
        records.append(protocol.process(world.ledger, world.sweeps, Counted(), hold, "ingest", seq, run))
    found = {one.name: one.value for one in counts(records)}
    assert (found["windows"], found["read"], found["stored"], found["dead_letters"]) == (2, 20, 14, 6)
    assert (found["offsets_lost"], found["offsets_skipped"]) == (3, 4)
    # What the documents list.
    assert found.keys() == COUNTERS.keys()
