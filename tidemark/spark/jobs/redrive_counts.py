"""How often each dead letter that a replay reads was redriven."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.ledger.records import Window
from tidemark.offsets.ranges import RangeSet
from tidemark.runs.live.open_stream import OpenStream
from tidemark.sinks.reading import fewest_scans
from tidemark.spark.columns import COORDINATE, REDRIVES
from tidemark.spark.readers.places import COUNTS, hbase_places


def dead_letters_so_far(
    spark: SparkSession, opened: OpenStream, window: Window, covers: RangeSet, more: int
) -> DataFrame:
    """The coordinates of a window with a dead letter that counts now, with REDRIVES, which rises by `more`: 1 for a replay."""
    within = fewest_scans(covers, RangeSet(window.hull()))
    letters = hbase_places(spark, opened.ledger, opened.dead_letter_table(), None, ("redrives",), within=within)
    before = F.col("field_0").cast("string").cast("int")
    return letters.where(COUNTS).select(*COORDINATE, (before + more).alias(REDRIVES))
