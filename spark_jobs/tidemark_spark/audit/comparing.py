"""One place of an audit: the rows that should be there, against those that are there, by coordinate and index."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.audit.report import MOST_FINDINGS, SHOWN_COORDINATES, PlaceReport
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.runs.open_stream import OpenStream
from tidemark.sinks.reading import pieces
from tidemark_spark.audit.deleted import ByBlocks, Forgotten, PlaceBlocks
from tidemark_spark.columns import AT, COORDINATE, DIGEST, INDEX
from tidemark_spark.readers.places import COUNTS, FOUND_DIGEST
from tidemark_spark.rows import outcomes
from tidemark_spark.rows.selecting import only

# As many rows are read in the time that a scan takes to begin.
_SCAN_ROWS = 500
_KEY = [*COORDINATE, INDEX]
# Why a row is not there, for a place that deletes rows by itself.
WHY, EXPIRED, REPLACED = "_why", "expired", "replaced"
# Takes rows that are not there (coordinate and INDEX); gives those that the place has deleted by itself, with WHY.
Deleted = Callable[[DataFrame], DataFrame]
_EXPECTED, _FOUND, _SAID, _ROWS = "_expected", "_found", "_said", "_rows"


@dataclass(frozen=True)
class Audited:
    """An audit's report on one place, and the offsets that a replay would repair.

    `by_blocks` is None for a place whose contributions are compared, window by window, instead of rows.
    """

    report: PlaceReport
    findings: list[OffsetRange]
    by_blocks: ByBlocks | None


@dataclass(frozen=True)
class Audit:
    """The expectation that an audit compares every place with.

    `messages` are the rows that Kafka's messages give, at the offsets `in_kafka`. For `compacted` topics, only the remaining
    messages can be compared. At the offsets `uncommitted`, an attempt may have written rows without committing them.
    """

    spark: SparkSession
    opened: OpenStream
    messages: DataFrame
    in_kafka: RangeSet
    compacted: Collection[str]
    uncommitted: RangeSet
    forgotten: Forgotten
    # The offsets whose rows are compared; None for all of them.
    some: RangeSet | None = None

    @property
    def to_scan(self) -> RangeSet | None:
        """The offsets that a table is scanned for: those compared, or more of them where that is cheaper. None: all."""
        return None if self.some is None else cheapest(self.some)

    @property
    def stored(self) -> DataFrame:
        """The rows that a sink should hold, with their fields."""
        return outcomes.stored(self.messages)

    def rows_of(self, sink: str, found: DataFrame, place: Mapping[str, str]) -> Audited:
        """Compare a sink's rows, with the columns of `readers.places`. `place` is the sink's place as receipts name it."""
        return self.compare(sink, self.stored, found, self.forgotten.of_sink(sink, place))

    def compare(
        self, name: str, expected: DataFrame, found: DataFrame, blocks: PlaceBlocks, deleted: Deleted | None = None
    ) -> Audited:
        """Compare rows with their digests, and rows whose messages Kafka has deleted by blocks.

        `deleted` says which rows are not there because the place itself deletes rows.
        """
        if self.some is not None:
            # Debris elsewhere is not counted: the audit has not looked at all of it.
            found = only(found, self.some | self.uncommitted)
        digests = expected.select(*_KEY, F.col(DIGEST).alias(_EXPECTED))
        of_compacted = F.col(AT[0]).isin(list(self.compacted))
        left = self.messages.where(of_compacted).select(*COORDINATE) if self.compacted else None
        return _compare(name, digests, found, self.in_kafka, self.compacted, left, blocks, deleted)


def cheapest(some: RangeSet) -> RangeSet:
    """These offsets or their hull, whichever is read faster: a scan costs as much as reading some hundred rows."""
    return min((some, some.hull()), key=lambda one: one.count() + _SCAN_ROWS * sum(1 for _ in pieces(one)))


def _compare(
    name: str,
    expected: DataFrame,
    found: DataFrame,
    in_kafka: RangeSet,
    compacted: Collection[str],
    left: DataFrame | None,
    blocks: PlaceBlocks,
    deleted: Deleted | None,
) -> Audited:
    """Compare one place: rows expected and rows found, joined by coordinate and index.

    Rows of `compacted` topics count only if their message is among those that are `left`.
    """
    found = found.select(*_KEY, COUNTS, DIGEST, FOUND_DIGEST).persist()
    counting = only(found.where(COUNTS), in_kafka)
    debris = found.where(~F.col(COUNTS)).count()
    gone = 0
    if left is not None:
        removed = counting.where(F.col(AT[0]).isin(list(compacted))).join(left, list(COORDINATE), "left_anti")
        gone = removed.count()
        counting = (
            counting.join(removed.select(*COORDINATE).distinct(), list(COORDINATE), "left_anti") if gone else counting
        )
    held = counting.groupBy(*_KEY).agg(
        F.count("*").alias(_ROWS),
        F.any_value(FOUND_DIGEST).alias(_FOUND),
        F.any_value(DIGEST).alias(_SAID),
    )
    both = expected.join(held, _KEY, "full_outer").persist()
    missing = F.col(_ROWS).isNull()
    extra = F.col(_EXPECTED).isNull()
    different = ~missing & ~extra & ((F.col(_EXPECTED) != F.col(_FOUND)) | (F.col(_SAID) != F.col(_FOUND)))
    twice = ~missing & (F.col(_ROWS) > 1)
    kinds = {"missing": missing, "different": different, "extra": extra, "twice": twice}
    counts = both.agg(
        F.count_if(~extra).alias("expected"),
        F.count_if(~missing).alias("found"),
        *(F.count_if(is_so).alias(kind) for kind, is_so in kinds.items()),
    ).collect()[0]
    numbers = {kind: counts[kind] for kind in kinds}
    wrong = both
    why: dict[str, int] = {}
    if deleted is not None and numbers["missing"]:
        by_itself = deleted(both.where(missing).select(*_KEY)).persist()
        why = {row[WHY]: row["count"] for row in by_itself.groupBy(WHY).count().collect()}
        numbers["missing"] -= sum(why.values())
        wrong = both.join(by_itself.select(*_KEY), _KEY, "left_anti")
    at = {kind: _named(wrong.where(is_so)) if numbers[kind] else () for kind, is_so in kinds.items()}
    differing = wrong.where(missing | extra | different | twice)
    findings = _coordinates(differing, MOST_FINDINGS) if any(at.values()) else []
    both.unpersist()
    by_blocks = blocks.compare(found.where(COUNTS))
    found.unpersist()
    report = PlaceReport(
        name=name,
        expected=counts["expected"],
        found=counts["found"],
        **numbers,
        debris=debris,
        compacted=gone,
        expired=why.get(EXPIRED, 0),
        replaced=why.get(REPLACED, 0),
        missing_at=at["missing"],
        different_at=at["different"],
        extra_at=at["extra"],
        twice_at=at["twice"],
        blocks=len(by_blocks.wrong),
        blocks_at=by_blocks.wrong[:SHOWN_COORDINATES],
    )
    return Audited(report, [one.as_range() for one in findings], by_blocks)


def _named(rows: DataFrame) -> tuple[str, ...]:
    return tuple(str(one) for one in _coordinates(rows, SHOWN_COORDINATES))


def _coordinates(rows: DataFrame, limit: int) -> list[Coordinate]:
    chosen = rows.select(*COORDINATE).distinct().orderBy(*COORDINATE).limit(limit)
    return [
        Coordinate(TopicPartition(row[AT[0]], row[AT[2]], row[AT[1]]), row[COORDINATE[3]]) for row in chosen.collect()
    ]
