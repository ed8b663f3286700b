"""The job that audits a stream: it compares the expected results with the stored ones.

Today's code computes the expected rows again, from the messages that Kafka still holds. Where messages, code and stream
file are as they were, the windows' tallies say the same, and only the digests of the messages are computed. The found rows
are read back from every sink. Where the sums of a block differ, the job compares its rows one by one, so that every
difference has a coordinate. Rows below the log starts can no longer be computed. The job compares them with the windows'
tallies, block by block, and counts the rest as unproven. At the level `sinks` it compares all rows so.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from functools import reduce
from operator import and_
from pathlib import Path

from tidemark.audit.levels import Level
from tidemark.audit.report import AuditReport, forgotten_reports, tombstone_reports
from tidemark.audit.unchanged_data import CountedRange
from tidemark.errors import EXIT_DIFFERENCES, EXIT_DONE
from tidemark.ledger.erasures import erased
from tidemark.ledger.ledger import LedgerSnapshot
from tidemark.ledger.records import INGEST, Head
from tidemark.ledger.recovery.verifying import verify
from tidemark.offsets.blocks import block_size
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.offsets.shares import Share, seed_of
from tidemark.offsets.tallies import check_read
from tidemark.planning import planner
from tidemark.planning.inputs import KafkaState
from tidemark.runs import auditing
from tidemark.runs.live import kafka_now
from tidemark.runs.live.open_stream import OpenStream, open_stream
from tidemark.runs.live.same_logs import check_same
from tidemark.runs.requests import selecting
from tidemark.runs.windows import lanes
from tidemark.sinks.dead_letters import DIGESTED, digested
from tidemark.sinks.kinds import kind_of
from tidemark.spark.audit.deleted_messages import forgotten_blocks
from tidemark.spark.audit.differences import (
    Audit,
    AuditedPlace,
    RowsAt,
    dead_letter_sums,
    read_beforehand,
    rows_of_table,
    sums_of,
)
from tidemark.spark.audit.gaps import gap_reports
from tidemark.spark.audit.unchanged_data import unchanged
from tidemark.spark.jobs.expected_rows import Expected, expected_rows
from tidemark.spark.jobs.steps import Steps, add_try_number
from tidemark.spark.readers.parquet import rows_at_a_time
from tidemark.spark.runtime.session import stream_session
from tidemark.spark.schemes.function import check_function
from tidemark.spark.sinks.contract import audits_by_sums
from tidemark.spark.sinks.dead_letters import with_dead_letter_digest

# The most blocks whose digests are compared: the driver holds those of a whole place.
_MAX_BLOCKS = 20_000


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="process_window audit")
    parser.add_argument("--stream-file", type=Path, required=True)
    parser.add_argument("--run", required=True, help="the name under which the report is stored")
    add_try_number(parser)
    parser.add_argument("--selection", default="", help="digest of a stored selection: audit only these offsets")
    parser.add_argument("--level", choices=[one.value for one in Level if one.needs_spark], default=Level.FULL.value)
    parser.add_argument("--share", default="", help="audit a share of the data, such as 5%%")
    parser.add_argument("--seed", default="", help="chooses the share; without it, the number of the day")
    options = parser.parse_args(arguments)
    opened = open_stream(options.stream_file)
    within = selecting.stored_selection(opened, options.selection) if options.selection else None
    seed = seed_of(int(options.seed) if options.seed else None, opened.ledger.clock())
    share = Share(options.share, seed) if options.share else None
    report = audit(opened, options.run, within, Level(options.level), share, try_number=options.try_number)
    print(f"tidemark: audit of {report.stream}: {report.sentence()}", flush=True)
    return EXIT_DONE if report.clean else EXIT_DIFFERENCES


def audit(
    opened: OpenStream,
    run: str,
    within: RangeSet | None = None,
    level: Level = Level.FULL,
    share: Share | None = None,
    *,
    try_number: int = 0,
) -> AuditReport:
    """Audit a stream, or only some of its offsets, or a share of those. The ledger stores the report under the run's name.

    At the level `sinks`, no message is read: every offset is compared as those are whose messages Kafka has deleted.
    """
    with ExitStack() as kept:
        return _audit(opened, run, within, level, share, try_number, kept)


def _audit(
    opened: OpenStream,
    run: str,
    within: RangeSet | None,
    level: Level,
    share: Share | None,
    try_number: int,
    kept: ExitStack,
) -> AuditReport:
    check_function(opened.stream)
    ledger = auditing.read_ledger(opened)
    view = ledger.view
    spark = stream_session(f"tidemark audit of {opened.ledger.stream}", opened)
    everything, not_finished = view.authority.covered(), _unfinished(view)
    covered = everything if within is None else everything & within
    looked_at = None
    if share is not None:
        covered, looked_at = share.of(covered, level.piece)
    unfinished = not_finished & covered
    # Blocks are compared as a whole, even where `within` ends.
    in_kafka = _known(opened, covered)
    held = planner.offsets_within(in_kafka, everything.only(covered.partitions) - not_finished)
    # Above a cut that no run has met, Kafka has other messages than those that were read.
    held = kafka_now.as_read(opened, view.heads[INGEST], held) if held else held
    to_read = held & covered if level.reads_messages else RangeSet()
    # Nothing is expected there, and its messages are read no more.
    without = erased(view.windows)
    readable = to_read - without

    steps = kept.enter_context(Steps(spark, opened, "audit", run, try_number))
    steps.begin(f"reading {number_of(readable.count(), 'offset')}", readable)
    incarnations = kafka_now.newest_incarnations(ledger.register)
    compacted = opened.log.compacted({at.topic for at in held.partitions})
    not_read = covered - unfinished - to_read - without
    forgotten = forgotten_blocks(opened, view, not_read)
    size = block_size(readable, _MAX_BLOCKS)
    # Where sums of blocks tell whether all is there, no row is kept.
    only_sums = all(audits_by_sums(kind_of(sink.type).make_spark()) for sink in opened.stream.sinks)
    known: tuple[CountedRange, ...] = ()
    lacking = list(forgotten.problems)
    counted = [tally for window in view.windows if window.record.receipt for tally in window.record.receipt.tallies]
    some, uncommitted = None if covered == everything else to_read | forgotten.compared, _uncommitted(opened)
    table = opened.dead_letter_table().only(DIGESTED)
    number = _most_dead_letters(view, covered)
    letters = rows_of_table(spark, opened.ledger, uncommitted, table, None, digested, number)
    with ThreadPoolExecutor(1) as beside, rows_at_a_time(spark, counted):
        if to_read or not_read:
            # Their server sends them while Spark reads the messages.
            letters = read_beforehand(spark, letters, some, beside)
        if level is Level.FULL and only_sums:
            known = unchanged(spark, opened, view, readable, incarnations, size, lacking.append, steps.watch)
            size = max([size, *(one.size for one in known)])
        rows = expected_rows(
            spark, opened, readable, incarnations, size=size, only_sums=only_sums, known=known, watch=steps.watch
        )
        kept.callback(rows.close)
        counts = rows.tallies
        check_read(counts, readable)
        compared = Audit(
            spark,
            opened,
            rows,
            to_read,
            compacted,
            uncommitted,
            forgotten,
            some,
            sums=sums_of(rows.blocks),
            block_size=size,
            view=view,
        )
        places = list(_places(compared, rows, steps, letters, beside)) if to_read or not_read else []
    steps.begin("checking the ledger")
    blocks = [place.by_blocks for place in places]
    by_tallies = reduce(and_, (block.offsets for block in blocks), not_read).count()
    gaps = gap_reports(spark, opened, view.windows, readable, compared, counts, incarnations)
    differing = RangeSet(one for by_block in blocks for one in by_block.differing)
    findings = RangeSet(range_ for place in places for range_ in place.findings)
    gone = differing - held
    if level == Level.SINKS:
        # A replay of a block would take the rows of messages that compaction has removed.
        findings |= RangeSet(one for one in differing & held if one.partition.topic not in compacted)
        gone = differing - findings
    # Spark reads topics by their names: what was compared must not be of others than those that windows have read.
    check_same(opened, in_kafka.logs)
    # A verdict is about the ledger as it is now, whatever was committed meanwhile.
    changed = opened.ledger.covered_since(view)
    windows = opened.ledger.committed() if changed else view.windows
    without = erased(windows)
    findings -= without | changed
    report = AuditReport(
        stream=opened.ledger.stream,
        run=run,
        at=opened.ledger.clock(),
        code_version=lanes.code_version(),
        level=level,
        share=looked_at,
        windows=len(view.windows),
        expected=sum(tally.read.number for tally in counts),
        stored=sum(tally.stored.number for tally in counts),
        dead_letters=sum(tally.dead_letters for tally in counts),
        skipped=sum(tally.skipped.number for tally in counts),
        unchanged=rows.unchanged,
        unproven=not_read.count() - by_tallies,
        by_tallies=by_tallies,
        gone=gone.count(),
        unfinished=unfinished.count(),
        places=tuple(place.report for place in places),
        not_compared=_not_compared(opened, places) if places else (),
        coverage=auditing.coverage_reports(ledger),
        # Two looks may miss the same tallies.
        ledger_problems=(*verify(opened.ledger), *dict.fromkeys(lacking)),
        gaps=gaps,
        findings=opened.ledger.store_selection(findings) if findings else None,
        changed=(covered & changed).count(),
        erased=(covered & without).count(),
        tombstones=tombstone_reports(windows),
        forgotten=forgotten_reports(view.register),
    )
    auditing.store_report(opened, report)
    return report


def _unfinished(view: LedgerSnapshot) -> RangeSet:
    """Offsets that were committed before they were read, by attempts that have not finished."""
    return RangeSet(
        one
        for window in view.windows
        if window.record.receipt is None
        for one in view.authority.held_by(window.generation, window.covers)
    )


def _most_dead_letters(view: LedgerSnapshot, covered: RangeSet) -> int:
    """As many dead letters as the covered offsets have, or more."""
    receipts = [window.record.receipt for window in view.windows]
    if not all(receipt is not None and receipt.tallies for receipt in receipts):
        return covered.count()
    counted = (tally.dead_letters for receipt in receipts if receipt is not None for tally in receipt.tallies)
    return min(covered.count(), sum(counted))


def _known(opened: OpenStream, covered: RangeSet) -> KafkaState:
    """Kafka's part of the covered topics, in the incarnations that it holds."""
    topics = tuple(sorted({at.topic for at in covered.partitions}))
    return kafka_now.known_now(opened, topics, learn=False) if topics else KafkaState({}, {})


def _places(
    audit: Audit, expected: Expected, steps: Steps, dead_letters: RowsAt, beside: Executor
) -> Iterator[AuditedPlace]:
    """Every sink that can be audited, and the dead letters, whose sums are computed while Spark reads the sinks."""
    compare_dead_letters = _dead_letters(audit, expected, dead_letters, beside)
    for settings in audit.opened.stream.sinks:
        steps.begin(f"comparing {settings.name}")
        if (audited := kind_of(settings.type).make_spark().audit(audit, settings)) is not None:
            yield audited
    steps.begin("comparing dead letters")
    yield compare_dead_letters()


def _dead_letters(audit: Audit, expected: Expected, rows: RowsAt, beside: Executor) -> Callable[[], AuditedPlace]:
    letters = audit.opened.stream.dead_letters
    # A connection may have another name today.
    place = {name: said for name, said in letters.place(audit.opened.connections).items() if name != "connection"}
    known = None
    if expected.known:
        counted = expected.counted_dead_letters
        others = None if counted is None else with_dead_letter_digest(counted, letters)
        known = dead_letter_sums(expected.known, others, audit.block_size)
    return audit.dead_letters_of(
        place,
        lambda: with_dead_letter_digest(expected.dead_letters, letters),
        rows,
        known,
        beside,
    )


def _not_compared(opened: OpenStream, places: Sequence[AuditedPlace]) -> tuple[str, ...]:
    """The sinks that this audit has not compared."""
    compared = {place.report.name for place in places}
    return tuple(sink.name for sink in opened.stream.sinks if sink.name not in compared)


def _uncommitted(opened: OpenStream) -> RangeSet:
    """The offsets where an uncommitted attempt may have written. The audit looks for debris there too."""
    ranges: list[OffsetRange] = []
    for stored in opened.ledger.heads().values():
        head = stored.head
        if head.pending is not None:
            ranges.extend(head.pending.window.hull())
        if head.abandoned is not None:
            ranges.extend(_beyond(head))
    return RangeSet(ranges)


def _beyond(head: Head) -> Sequence[OffsetRange]:
    """The offsets between a lane's positions and the furthest end of its abandoned windows."""
    offsets = head.offsets()
    until = head.abandoned.until if head.abandoned else ()
    reached = {one.at: offsets.get(one.at, 0) for one in until}
    return [OffsetRange(one.at, reached[one.at], max(reached[one.at], one.offset)) for one in until]
