"""Messages that a replay reads and that are dead letters so far: how often each was read again."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.ledger.records import Window
from tidemark.ranges import RangeSet
from tidemark.results.reading import pieces
from tidemark.streams.opened import OpenStream
from tidemark_spark.columns import COORDINATE, REDRIVES
from tidemark_spark.readers import COUNTS, hbase_places


def dead_letters_so_far(spark: SparkSession, opened: OpenStream, window: Window, covers: RangeSet) -> DataFrame:
    """The coordinates of a replay's window whose dead letter counts until it commits, with REDRIVES: this time is one more."""
    # Dead letters lie far apart: one scan over what is between two offsets is cheaper than one for each, unless they do too.
    hull = RangeSet(window.hull())
    within = min((covers, hull), key=lambda ranges: sum(1 for _ in pieces(ranges)))
    found = hbase_places(spark, opened.book, opened.dead_letter_table(), ("redrives",), within=within)
    before = F.coalesce(F.col("field_0").cast("string").cast("int"), F.lit(0))
    return found.where(COUNTS).select(*COORDINATE, (before + 1).alias(REDRIVES))
