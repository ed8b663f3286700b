"""The job that says what a replay will change. It commits nothing, and writes nothing into sinks and dead letters.

Today's code computes the rows again, from the selected messages. The rows that count now are read from every sink that can
be compared. The ledger keeps the comparison under the name of the replay's run.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from pyspark.sql import SparkSession

from tidemark.audit.comparison import MAX_REASONS, DeadLetterReason, PlaceComparison, ReplayComparison, merged
from tidemark.errors import EXIT_DONE, WrongUse
from tidemark.ledger.elsewhere import for_readers
from tidemark.ledger.ledger import LedgerSnapshot
from tidemark.ledger.records import LaneKind
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import RangeSet
from tidemark.offsets.tallies import check_read
from tidemark.planning import checking
from tidemark.planning.dividing import divide_by_size
from tidemark.runs import comparisons
from tidemark.runs.live import kafka_now
from tidemark.runs.live.open_stream import OpenStream, open_stream
from tidemark.runs.live.same_logs import check_same
from tidemark.runs.requests import selecting
from tidemark.runs.windows import chosen_sinks, lanes
from tidemark.runs.windows.chosen_sinks import Sinks
from tidemark.runs.windows.pacing import most_records
from tidemark.sinks.contract import SinkSettings
from tidemark.sinks.kinds import kind_of
from tidemark.sinks.reading import fewest_scans
from tidemark.spark.audit.replay_comparison import DEAD_LETTER_COLUMNS, DEAD_LETTERS, RowsToCompare
from tidemark.spark.jobs.expected_rows import expected_rows
from tidemark.spark.jobs.steps import Steps, add_try_number
from tidemark.spark.readers.places import COUNTS, hbase_places
from tidemark.spark.rows import outcomes
from tidemark.spark.rows.pipeline import check_rows
from tidemark.spark.rows.selecting import only
from tidemark.spark.runtime.session import stream_session
from tidemark.spark.sinks.contract import ComparingSink

# Smaller pieces would cost more in starting jobs than they save in memory and on disk.
_AT_LEAST = 1_000_000
# Those of all pieces are added up, so each gives more than are named.
_REASONS_OF_A_PIECE = 10 * MAX_REASONS


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="process_window compare")
    parser.add_argument("--stream-file", type=Path, required=True)
    parser.add_argument("--run", required=True, help="the run of the replay; the comparison is stored under its name")
    add_try_number(parser)
    parser.add_argument("--selection", required=True, help="digest of the stored selection that the replay reads")
    parser.add_argument("--sinks", default="", help="the sinks that the replay writes alone, with commas; empty: all")
    options = parser.parse_args(arguments)
    opened = open_stream(options.stream_file)
    sinks = chosen_sinks.named(opened, [word for word in options.sinks.split(",") if word])
    if lanes.lanes_of(opened, LaneKind.REPLAY, options.run):
        # A retry: the replay has begun, and what it was going to change can no longer be found out.
        comparison = comparisons.stored_comparison(opened, options.run)
    else:
        comparison = compare(opened, options.run, options.selection, sinks, try_number=options.try_number)
    for line in comparison.lines():
        print(f"tidemark: {line}", flush=True)
    return EXIT_DONE


def compare(
    opened: OpenStream, run: str, selection: str, sinks: Sinks = None, *, try_number: int = 0
) -> ReplayComparison:
    """Compare what a replay of a stored selection would change, and store it under the run's name.

    With `sinks`, it writes only these, so only these are compared. What is selected is compared piece by piece, so that
    Spark keeps the rows of one piece at a time.
    Raises Conflict when another replay has committed some of these offsets meanwhile.
    """
    offsets = selecting.stored_selection(opened, selection)
    view = opened.ledger.view()
    if view.register is None:
        raise WrongUse(f"{opened.ledger.stream} has not been read yet: there is nothing to compare")
    spark = stream_session(f"tidemark comparison of {opened.ledger.stream}", opened)
    check_rows(spark, opened.stream)
    incarnations = kafka_now.newest_incarnations(view.register)
    topics = {at.topic for at in offsets.partitions}
    known = kafka_now.known_now(opened, tuple(sorted(topics)), learn=False)
    checking.check_topics(known, tuple(sorted(topics)), topics)
    # A reason may say what is in a message. What another stream has erased is read here, and not shown.
    hidden = for_readers(opened.ledger).hidden
    parts = []
    size = max(most_records(opened.stream.limits.max_records, None), _AT_LEAST)
    with Steps(spark, opened, "comparison", run, try_number) as steps:
        for piece in divide_by_size(offsets, size):
            steps.begin(f"reading {piece.count()} of {number_of(offsets.count(), 'offset')}", piece)
            parts.append(_of_piece(spark, opened, run, selection, piece, view, hidden, incarnations, sinks, steps))
    # Spark reads topics by their names.
    check_same(opened, known.logs)
    comparisons.check_unchanged(view, opened.ledger.view(), offsets)
    comparison = merged(parts, outcomes.field_names(opened.stream))
    comparisons.store_comparison(opened, comparison)
    return comparison


def _of_piece(
    spark: SparkSession,
    opened: OpenStream,
    run: str,
    selection: str,
    offsets: RangeSet,
    view: LedgerSnapshot,
    hidden: RangeSet,
    incarnations: dict[str, int],
    sinks: Sinks,
    steps: Steps,
) -> ReplayComparison:
    rows = expected_rows(spark, opened, offsets, incarnations, watch=steps.watch)
    try:
        check_read(rows.tallies, offsets)
        letters = hbase_places(
            spark,
            opened.ledger,
            opened.dead_letter_table(),
            None,
            DEAD_LETTER_COLUMNS,
            within=fewest_scans(offsets, offsets.hull()),
        )
        letters = only(letters.where(COUNTS), offsets).persist()
        against = RowsToCompare(spark, opened, rows.frame, letters, offsets, view)
        places = tuple(_places(against, steps, sinks))
        told = only(rows.frame, offsets - hidden) if hidden & offsets else rows.frame
        reasons = outcomes.frequent_reasons(told, _REASONS_OF_A_PIECE)
        letters.unpersist()
    finally:
        rows.close()
    compared = {place.name for place in places}
    return ReplayComparison(
        stream=opened.ledger.stream,
        run=run,
        at=opened.ledger.clock(),
        code_version=lanes.code_version(),
        stream_digest=opened.file.digest,
        selection=selection,
        offsets=offsets.count(),
        messages=sum(tally.read.number for tally in rows.tallies),
        stored=sum(tally.stored.number for tally in rows.tallies),
        skipped=sum(tally.skipped.number for tally in rows.tallies),
        dead_letters=sum(tally.dead_letters for tally in rows.tallies),
        places=places,
        not_compared=tuple(f"{one.name} ({one.type})" for one in _written(opened, sinks) if one.name not in compared),
        reasons=tuple(
            DeadLetterReason(reason=reason.reason, number=reason.number, first=str(reason.example))
            for reason in reasons
        ),
        sinks=sinks,
    )


def _written(opened: OpenStream, sinks: Sinks) -> list[SinkSettings]:
    return [sink for sink in opened.stream.sinks if sinks is None or sink.name in sinks]


def _places(against: RowsToCompare, steps: Steps, sinks: Sinks) -> Iterator[PlaceComparison]:
    """Every written sink that can be compared; and the dead letters, if the replay writes all sinks."""
    opened = against.opened
    for settings in _written(opened, sinks):
        sink = kind_of(settings.type).make_spark()
        if hasattr(sink, "compare"):
            steps.begin(f"comparing {settings.name}")
            if (place := cast("ComparingSink", sink).compare(against, settings)) is not None:
                yield place
    if sinks is None:
        steps.begin(f"comparing {DEAD_LETTERS}")
        yield against.dead_letters()
