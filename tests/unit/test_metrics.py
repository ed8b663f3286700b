"""The numbers that go to a metrics system."""

from __future__ import annotations

from msgspec import structs

from tests.support.protocol_world import AT, NoWork, World, hold, plan
from tidemark.commit import protocol
from tidemark.commit.protocol import Run
from tidemark.ledger.records import Gap, GapKind, Head, Receipt, Window
from tidemark.offsets.tallies import Count, PartitionTally
from tidemark.views.metrics import COUNTERS, Metric, counts, gauges


def partition(number: int, position: str | None, lag: str | None) -> dict[str, object]:
    return {"topic": "a.b", "partition": number, "log_start": "5", "position": position, "end": "90", "lag": lag}


def test_what_is_unknown_is_not_sent() -> None:
    found = list(gauges([partition(0, "80", "10"), partition(1, None, None)]))
    of_the_first = {"log_start": 5, "position": 80, "end": 90, "lag": 10}
    assert found == [
        *(Metric(name, value, "a.b", 0) for name, value in of_the_first.items()),
        *(Metric(name, value, "a.b", 1) for name, value in {"log_start": 5, "end": 90}.items()),
        Metric("lag", 10),
    ]


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
        assert protocol.pin(world.book, world.sweeps, "ingest", window) is not None
        run = Run("run", "code", "digest")
        records.append(protocol.process(world.book, world.sweeps, Counted(), hold, "ingest", seq, run))
    found = {one.name: one.value for one in counts(records)}
    assert (found["windows"], found["read"], found["stored"], found["dead_letters"]) == (2, 20, 14, 6)
    assert (found["offsets_lost"], found["offsets_skipped"]) == (3, 4)
    # What the documents list.
    assert found.keys() == COUNTERS.keys()
