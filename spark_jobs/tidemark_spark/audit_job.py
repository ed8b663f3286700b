"""The job that audits a stream: what Kafka and the ledger say should be there, against what is there.

Expected is computed anew from the messages that Kafka still holds, by today's code; found is read back from every sink.
Both are compared row by row, so that every difference has a coordinate. What lies below the log starts can no longer be
computed: it is compared with what the windows have counted, block by block, and what cannot be is counted as unproven.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark import runs
from tidemark.audit import (
    SHOWN_COORDINATES,
    AuditReport,
    CoverageReport,
    PlaceReport,
    prove_coverage,
    shown,
)
from tidemark.authority import Authority
from tidemark.coordinates import Coordinate
from tidemark.errors import EXIT_DIFFERENCES, EXIT_DONE, WrongUse
from tidemark.ledger.book import View
from tidemark.ledger.codec import encode
from tidemark.ledger.limits import beginning_that_fits
from tidemark.ledger.records import INGEST, Head
from tidemark.ledger.verifying import verify
from tidemark.planning import discovery, planner
from tidemark.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.results.dead_letters import digested
from tidemark.results.parquet_parts import Part, steady
from tidemark.streams.aggregates_sink import HBaseAggregatesSink
from tidemark.streams.delta_sink import DeltaSink
from tidemark.streams.kafka_sink import KafkaSink
from tidemark.streams.latest_sink import HBaseLatestSink
from tidemark.streams.model import HBaseSink
from tidemark.streams.opened import OpenStream, open_stream
from tidemark_spark import outcomes, readers
from tidemark_spark.aggregates_audit import compare_aggregates
from tidemark_spark.columns import AT, COORDINATE, DIGEST, INDEX
from tidemark_spark.forgotten import ByBlocks, Forgotten, PlaceBlocks, forgotten_blocks
from tidemark_spark.gaps import gap_reports
from tidemark_spark.latest_reader import all_values
from tidemark_spark.reading import read_offsets
from tidemark_spark.rows import Rows, rows_of
from tidemark_spark.schemes.function import check_function
from tidemark_spark.selecting import only
from tidemark_spark.session import open_session
from tidemark_spark.sinks import make_sinks, refusals
from tidemark_spark.sinks.hbase import with_dead_letter_digest
from tidemark_spark.tallying import tallies

log = logging.getLogger(__name__)

_KEY = [*COORDINATE, INDEX]
_EXPECTED, _FOUND, _SAID, _ROWS = "_expected", "_found", "_said", "_rows"

# As many coordinates as a report hands over to a replay; more differences than this want a replay of whole ranges.
MOST_FINDINGS = 100_000


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="audit_stream")
    parser.add_argument("--stream-file", type=Path, required=True)
    parser.add_argument("--run", required=True, help="the name under which the report is stored")
    parser.add_argument("--selection", default="", help="digest of a stored selection: audit only these offsets")
    options = parser.parse_args(arguments)
    opened = open_stream(options.stream_file)
    within = runs.stored_selection(opened, options.selection) if options.selection else None
    report = audit(opened, options.run, within)
    print(f"tidemark: audit of {report.stream}: {report.sentence()}", flush=True)
    return EXIT_DONE if report.clean else EXIT_DIFFERENCES


def audit(opened: OpenStream, run: str, within: RangeSet | None = None) -> AuditReport:
    """Audit a stream, or only some of its offsets; the report is stored in the ledger under the run's name."""
    check_function(opened.stream)
    spark = open_session(f"tidemark audit of {opened.book.stream}")
    found = opened.book.register()
    ingest = opened.book.head(INGEST)
    if found is None or ingest is None:
        raise WrongUse(f"{opened.book.stream} has not been read yet: there is nothing to audit")
    register = found[1]
    view = opened.book.view()
    covered = view.authority.covered() if within is None else view.authority.covered() & within
    unfinished = _unfinished(view) & covered
    in_kafka = _in_kafka(opened, covered - unfinished)

    incarnations = discovery.newest_incarnations(register)
    compacted = opened.log.compacted({at.topic for at in in_kafka.partitions})
    gone = covered - unfinished - in_kafka
    forgotten = forgotten_blocks(opened, view, gone)
    rows = _expected(spark, opened, in_kafka, incarnations)
    expected = rows.frame
    counts = tallies(expected, rows.read) if in_kafka else ()
    places = _sinks(spark, opened, in_kafka, expected, compacted, forgotten) if in_kafka or gone else []
    by_tallies = reduce(
        and_, (place.by_blocks.offsets for place in places if place.by_blocks is not None), gone
    ).count()
    messages = outcomes.each_message(expected)
    gaps = gap_reports(spark, opened, view.windows, in_kafka, messages, counts, compacted, incarnations)
    coverage = prove_coverage(
        view.windows, {one.at: one.offset for one in register.lanes[INGEST].start}, ingest.head.offsets()
    )
    findings = RangeSet(one for place in places for one in place.findings)
    kept = beginning_that_fits(opened.book.store, findings)
    report = AuditReport(
        stream=opened.book.stream,
        run=run,
        at=opened.book.clock(),
        code_version=runs.code_version(),
        expected=sum(tally.read.number for tally in counts),
        stored=sum(tally.stored.number for tally in counts),
        set_aside=sum(tally.invalid.number + tally.failed.number for tally in counts),
        skipped=sum(tally.skipped.number for tally in counts),
        unproven=gone.count() - by_tallies,
        by_tallies=by_tallies,
        unfinished=unfinished.count(),
        places=tuple(place.report for place in places),
        coverage=tuple(
            CoverageReport(
                partition=str(one.partition),
                start=one.start,
                position=one.position,
                covered=one.covered.count(),
                holes=shown(one.holes),
                overlaps=shown(one.overlaps),
                lost=shown(one.lost),
                skipped=shown(one.skipped),
            )
            for one in coverage
        ),
        ledger_problems=(*verify(opened.book), *forgotten.problems),
        gaps=gaps,
        findings=opened.book.store_selection(kept) if kept else None,
        left_out=findings.count() - kept.count(),
    )
    _store(opened, run, report)
    rows.close()
    return report


def _store(opened: OpenStream, run: str, report: AuditReport) -> None:
    """With fewer names, where a value of the ledger has no room for all of them."""
    for most in (SHOWN_COORDINATES, 10, 1, 0):
        value = encode(report.naming(most))
        if len(value) <= opened.book.store.max_value_bytes:
            break
    opened.book.store_report(run, value)


@dataclass(frozen=True)
class _Place:
    report: PlaceReport
    findings: list[OffsetRange]
    # None where contributions are compared, window by window, and not rows.
    by_blocks: ByBlocks | None


def _unfinished(view: View) -> RangeSet:
    """Offsets that were committed before they were read, by attempts that have not finished."""
    return RangeSet(
        one
        for window in view.windows
        if window.record.receipt is None
        for one in view.authority.held_by(window.generation, window.covers)
    )


def _in_kafka(opened: OpenStream, covered: RangeSet) -> RangeSet:
    """The covered offsets that Kafka still holds, in the incarnations that it holds."""
    topics = tuple(sorted({at.topic for at in covered.partitions}))
    return planner.offsets_within(discovery.known_now(opened, topics), covered) if topics else RangeSet()


def _expected(spark: SparkSession, opened: OpenStream, in_kafka: RangeSet, incarnations: dict[str, int]) -> Rows:
    """The rows of the messages, as today's code gives them."""
    source = opened.stream.source
    messages = read_offsets(spark, opened.log.bootstrap_servers, source.isolation, in_kafka, incarnations, source.fetch)
    limits = refusals(make_sinks(opened), opened.stream.fields)
    return rows_of(messages, opened.stream, limits, connections=opened.connections)


def _sinks(
    spark: SparkSession,
    opened: OpenStream,
    in_kafka: RangeSet,
    expected: DataFrame,
    compacted: Collection[str],
    forgotten: Forgotten,
) -> list[_Place]:
    names = outcomes.field_names(opened.stream)
    rows = outcomes.stored(expected).select(*_KEY, F.col(DIGEST).alias(_EXPECTED))
    more = _uncommitted(opened)
    # Of topics that are compacted, the messages that are left: other rows can no longer be compared.
    left = expected.where(F.col(AT[0]).isin(list(compacted))).select(*COORDINATE) if compacted else None
    places = []
    for sink in opened.stream.sinks:
        if isinstance(sink, HBaseSink):
            table = opened.result_table(sink.hbase, sink.table)
            found = readers.hbase_places(spark, opened.book, table, (), more, digested=readers.contents_of(names))
            blocks = forgotten.of_sink(sink.name, {"table": sink.table})
            places.append(_compare(sink.name, rows, found, in_kafka, compacted, left, blocks))
        elif isinstance(sink, HBaseLatestSink):
            latest = opened.latest_table(sink.hbase, sink.table)
            found = all_values(spark, opened.book, latest, names)
            blocks = forgotten.of_sink(sink.name, {"table": sink.table})
            places.append(_compare(sink.name, rows, found, in_kafka, compacted, left, blocks))
        elif isinstance(sink, HBaseAggregatesSink):
            known = in_kafka - RangeSet(one for one in in_kafka if one.partition.topic in compacted)
            report, findings = compare_aggregates(spark, opened, sink, outcomes.stored(expected), known)
            places.append(_Place(report, findings, None))
        elif isinstance(sink, KafkaSink):
            log.warning("sink %s is in Kafka, and is not audited", sink.name)
        else:

            def compared(parts: list[Part], _: Authority, name: str = sink.name) -> _Place:
                files = readers.parquet_rows(spark, parts, opened.stream.fields, gone=True)
                found = readers.parquet_found_digest(files, names).withColumn(readers.COUNTS, F.lit(True))
                return _compare(name, rows, found, in_kafka, compacted, left, forgotten.of_sink(name, {}))

            if isinstance(sink, DeltaSink):
                from tidemark.results.delta_table import parts_that_count

                authority, found_parts = parts_that_count(opened.book, sink.name, gone=True)
                places.append(compared(found_parts, authority))
                continue
            # All of the comparison: a compaction may remove the folders behind its beginning.
            places.append(steady(opened.book, sink.name, compared))
    dead = with_dead_letter_digest(outcomes.set_aside(expected), opened.stream.dead_letters)
    dead = dead.select(*_KEY, F.col(DIGEST).alias(_EXPECTED))
    table = opened.dead_letter_table()
    found = readers.hbase_places(spark, opened.book, table, (), more, digested=digested)
    blocks = forgotten.of_dead_letters(opened.stream.dead_letters.table)
    places.append(_compare("dead letters", dead, found, in_kafka, compacted, left, blocks))
    return places


def _uncommitted(opened: OpenStream) -> RangeSet:
    """Where an attempt may have written that nobody has committed: debris is looked for there too."""
    ranges: list[OffsetRange] = []
    for stored in opened.book.heads().values():
        head = stored.head
        if head.pending is not None:
            ranges.extend(head.pending.window.hull())
        if head.abandoned is not None:
            ranges.extend(_beyond(head))
    return RangeSet(ranges)


def _beyond(head: Head) -> Sequence[OffsetRange]:
    """What lies between a lane's positions and the furthest that an abandoned window of it went."""
    offsets = head.offsets()
    until = head.abandoned.until if head.abandoned else ()
    return [
        OffsetRange(one.at, offsets.get(one.at, 0), one.offset) for one in until if one.offset > offsets.get(one.at, 0)
    ]


def _compare(
    name: str,
    expected: DataFrame,
    found: DataFrame,
    in_kafka: RangeSet,
    compacted: Collection[str],
    left: DataFrame | None,
    blocks: PlaceBlocks,
) -> _Place:
    """One place: rows expected and rows found, joined by coordinate and index.

    Rows of `compacted` topics count only where their message is among those that are `left`.
    """
    found = found.select(*_KEY, readers.COUNTS, DIGEST, readers.FOUND_DIGEST).persist()
    counting = only(found.where(readers.COUNTS), in_kafka)
    debris = found.where(~F.col(readers.COUNTS)).count()
    gone = 0
    if left is not None:
        removed = counting.where(F.col(AT[0]).isin(list(compacted))).join(left, list(COORDINATE), "left_anti")
        gone = removed.count()
        counting = (
            counting.join(removed.select(*COORDINATE).distinct(), list(COORDINATE), "left_anti") if gone else counting
        )
    held = counting.groupBy(*_KEY).agg(
        F.count("*").alias(_ROWS),
        F.any_value(readers.FOUND_DIGEST).alias(_FOUND),
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
    at = {kind: _named(both.where(is_so)) if counts[kind] else () for kind, is_so in kinds.items()}
    wrong = _coordinates(both.where(missing | extra | different | twice), MOST_FINDINGS) if any(at.values()) else []
    both.unpersist()
    by_blocks = blocks.compare(found.where(readers.COUNTS))
    found.unpersist()
    report = PlaceReport(
        name=name,
        expected=counts["expected"],
        found=counts["found"],
        missing=counts["missing"],
        different=counts["different"],
        extra=counts["extra"],
        twice=counts["twice"],
        debris=debris,
        compacted=gone,
        missing_at=at["missing"],
        different_at=at["different"],
        extra_at=at["extra"],
        twice_at=at["twice"],
        blocks=len(by_blocks.wrong),
        blocks_at=by_blocks.wrong[:SHOWN_COORDINATES],
    )
    return _Place(report, [one.as_range() for one in wrong], by_blocks)


def _named(rows: DataFrame) -> tuple[str, ...]:
    return tuple(str(one) for one in _coordinates(rows, SHOWN_COORDINATES))


def _coordinates(rows: DataFrame, limit: int) -> list[Coordinate]:
    chosen = rows.select(*COORDINATE).distinct().orderBy(*COORDINATE).limit(limit)
    return [
        Coordinate(TopicPartition(row[AT[0]], row[AT[2]], row[AT[1]]), row[COORDINATE[3]]) for row in chosen.collect()
    ]
