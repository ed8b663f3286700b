"""One place of a replay's comparison: the rows that count now, against those that today's code makes of the messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.audit.comparison import (
    FEWER_ROWS,
    IS_DEAD_LETTER,
    IS_SKIPPED,
    IS_SKIPPED_NOW,
    IS_STORED,
    MAX_EXAMPLES,
    MESSAGE_NOT_IN_KAFKA,
    MORE_ROWS,
    NOT_IN_KAFKA,
    WAS_DEAD_LETTER,
    WAS_NO_ROW,
    WAS_STORED,
    Example,
    PlaceComparison,
)
from tidemark.ledger.ledger import LedgerSnapshot
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.offsets.tallies import Outcome
from tidemark.runs.live.open_stream import OpenStream
from tidemark.sinks.reading import fewest_scans
from tidemark.spark.columns import AT, COORDINATE, FAILURE, INDEX, OFFSET, OUTCOME, REASON, has, text
from tidemark.spark.readers.places import OTHERS
from tidemark.spark.rows import outcomes
from tidemark.spark.rows.selecting import only

DEAD_LETTERS = "dead letters"
# The columns of a dead letter that are compared. The others are the message itself, or tell when and how often it failed.
DEAD_LETTER_COLUMNS = ("outcome", "reason", "error")

_KEY = [*COORDINATE, INDEX]
# Whether a row is there before and after the replay, and the columns in which it changes.
_BEFORE, _AFTER, _COLUMNS = "_before", "_after", "_columns"
# Why a row is new or gone.
_BECAUSE = "_because"
_HAD = "_had"

# Takes the new or gone rows of a place, and all its rows; returns the former with _BECAUSE.
_Why = Callable[[DataFrame, DataFrame], DataFrame]


@dataclass(frozen=True)
class RowsToCompare:
    """The rows to compare with a replay of `offsets`: `messages` are all rows that today's code makes, as `outcomes` says.

    `letters` are the dead letters that count now, as `readers.places` returns them, with DEAD_LETTER_COLUMNS as fields.
    """

    spark: SparkSession
    opened: OpenStream
    messages: DataFrame
    letters: DataFrame
    offsets: RangeSet
    # The ledger as the comparison has read it.
    view: LedgerSnapshot

    @property
    def to_scan(self) -> RangeSet:
        """The offsets that a table is scanned for: the selected ones, or more of them in fewer scans."""
        return fewest_scans(self.offsets, self.offsets.hull())

    def rows_of(
        self,
        sink: str,
        before: DataFrame,
        content: Mapping[str, Column] | None = None,
        new: tuple[str, str] = (MORE_ROWS, WAS_NO_ROW),
    ) -> PlaceComparison:
        """Compare the rows of a sink that count now.

        `content` has what a sink makes of a stored row, by the names in the comparison; without it, the stream's fields.
        `before`: coordinate, INDEX, the same as text or bytes (`field_0`, `field_1`, ...), and OTHERS. `new` says why a row is
        new whose message has others there, and why one whose message has none and was no dead letter.
        """
        content = content or {name: text(name, kind) for name, kind in self.opened.fields.items()}
        fields = (made.alias(f"field_{number}") for number, made in enumerate(content.values()))
        after = outcomes.stored(self.messages).select(*_KEY, *fields)
        why_new = partial(self._why_new, *new)
        return self._compare(sink, only(before, self.offsets), after, [*content], why_new, _why_gone())

    def dead_letters(self) -> PlaceComparison:
        """Compare the dead letters. A message has one at most, with index 0."""
        values = (F.when(has(Outcome.FAILED), "failed").otherwise("invalid"), F.col(REASON), F.col(FAILURE)["error"])
        fields = (one.cast("binary").alias(f"field_{number}") for number, one in enumerate(values))
        after = outcomes.dead_letters(self.messages).select(*_KEY, *fields)
        before = self.letters.withColumn(OTHERS, F.array().cast("array<string>"))
        return self._compare(DEAD_LETTERS, before, after, DEAD_LETTER_COLUMNS, _letters_new, _letters_gone())

    def _compare(
        self, name: str, before: DataFrame, after: DataFrame, names: Sequence[str], why_new: _Why, why_gone: Column
    ) -> PlaceComparison:
        # A row that is there twice is for an audit to find.
        before = before.dropDuplicates(_KEY).withColumn(_BEFORE, F.lit(True))
        values = (F.col(f"field_{number}").alias(f"after_{number}") for number, _ in enumerate(names))
        after = after.select(*_KEY, *values, F.lit(True).alias(_AFTER))
        both = _joined(before, after, names)
        return _counted(name, both, names, why_new, partial(self._why_gone, why_gone))

    def _why_gone(self, why: Column, rows: DataFrame, _: DataFrame) -> DataFrame:
        became = outcomes.each_message(self.messages).select(*COORDINATE, OUTCOME)
        return rows.join(became, [*COORDINATE], "left").withColumn(_BECAUSE, why)

    def _why_new(self, more: str, lacking: str, rows: DataFrame, both: DataFrame) -> DataFrame:
        letters = self.letters.select(*COORDINATE, F.lit(WAS_DEAD_LETTER).alias(_BECAUSE)).dropDuplicates([*COORDINATE])
        had = both.where(_BEFORE).select(*COORDINATE, F.lit(True).alias(_HAD)).distinct()
        joined = rows.join(letters, [*COORDINATE], "left").join(had, [*COORDINATE], "left")
        why = F.when(F.col(_HAD), more).otherwise(F.coalesce(F.col(_BECAUSE), F.lit(lacking)))
        return joined.withColumn(_BECAUSE, why)


def _counted(name: str, both: DataFrame, names: Sequence[str], why_new: _Why, why_gone: _Why) -> PlaceComparison:
    """The change of each row of a place: `both` has _BEFORE, _AFTER (null: not there) and _COLUMNS, and is computed once.

    _COLUMNS matters only for rows that are there before and after. Columns are counted in the order of `names`, then those
    that the stream file no longer has.
    """
    both = both.persist()
    new, gone = F.col(_BEFORE).isNull(), F.col(_AFTER).isNull()
    changed = ~new & ~gone & (F.size(_COLUMNS) > 0)
    nothing = F.array().cast("array<string>")
    try:
        counts = both.agg(
            F.count(_BEFORE).alias("before"),
            F.count(_AFTER).alias("after"),
            F.count_if(~new & ~gone & ~changed).alias("same"),
            F.count_if(changed).alias("changed"),
            F.count_if(new).alias("new"),
            F.count_if(gone).alias("gone"),
        ).collect()[0]
        numbers: dict[str, Any] = {}
        if counts["changed"]:
            rows = both.where(changed).withColumn(_BECAUSE, F.lit(""))
            by_column = _numbers(rows.select(F.explode(_COLUMNS).alias(_COLUMNS)), _COLUMNS)
            ordered = [*names, *sorted(by_column.keys() - {*names})]
            numbers["columns"] = {one: by_column[one] for one in ordered if one in by_column}
            numbers["changed_at"] = _examples(rows)
        for kind, which, why in (("new", new, why_new), ("gone", gone, why_gone)):
            if counts[kind]:
                rows = why(both.where(which).withColumn(_COLUMNS, nothing), both).persist()
                numbers |= {f"{kind}_because": _numbers(rows, _BECAUSE), f"{kind}_at": _examples(rows)}
                rows.unpersist()
    finally:
        both.unpersist()
    return PlaceComparison(name=name, **counts.asDict(), **numbers)


def _joined(before: DataFrame, after: DataFrame, names: Sequence[str]) -> DataFrame:
    """Rows before and after by coordinate and index, with the names of the columns in which they differ."""
    joined = before.join(after, _KEY, "full_outer")
    differing = F.array(
        *(
            F.when(~F.col(f"field_{number}").eqNullSafe(F.col(f"after_{number}")), F.lit(name))
            for number, name in enumerate(names)
        )
    )
    columns = F.concat(F.array_compact(differing.cast("array<string>")), F.col(OTHERS))
    return joined.select(*_KEY, _BEFORE, _AFTER, columns.alias(_COLUMNS))


def _why_gone() -> Column:
    """Why a row is gone, by the OUTCOME of its message; null: Kafka did not give the message."""
    return (
        F.when(F.col(OUTCOME).isNull(), NOT_IN_KAFKA)
        .when(has(Outcome.STORED), FEWER_ROWS)
        .when(has(Outcome.SKIPPED), IS_SKIPPED)
        .otherwise(IS_DEAD_LETTER)
    )


def _letters_gone() -> Column:
    return (
        F.when(F.col(OUTCOME).isNull(), MESSAGE_NOT_IN_KAFKA)
        .when(has(Outcome.SKIPPED), IS_SKIPPED_NOW)
        .otherwise(IS_STORED)
    )


def _letters_new(rows: DataFrame, _: DataFrame) -> DataFrame:
    return rows.withColumn(_BECAUSE, F.lit(WAS_STORED))


def _numbers(rows: DataFrame, column: str) -> dict[str, int]:
    """How many rows have each value."""
    return {row[column]: row["count"] for row in rows.groupBy(column).count().orderBy(column).collect()}


def _examples(rows: DataFrame) -> tuple[Example, ...]:
    """The first rows by coordinate and index."""
    chosen = rows.select(*_KEY, _COLUMNS, _BECAUSE).orderBy(*_KEY).limit(MAX_EXAMPLES)
    return tuple(
        Example(
            at=str(Coordinate(TopicPartition(row[AT[0]], row[AT[2]], row[AT[1]]), row[OFFSET])),
            index=row[INDEX],
            columns=tuple(row[_COLUMNS]),
            why=row[_BECAUSE],
        )
        for row in chosen.collect()
    )
