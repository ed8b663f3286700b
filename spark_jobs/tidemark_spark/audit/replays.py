"""One place of a replay's comparison: the rows that count now, against those that today's code makes of the messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.audit.comparison import (
    FEWER_ROWS,
    IS_DEAD_LETTER,
    IS_SKIPPED,
    IS_SKIPPED_NOW,
    IS_STORED,
    MESSAGE_NOT_IN_KAFKA,
    MORE_ROWS,
    MOST_EXAMPLES,
    NOT_IN_KAFKA,
    WAS_DEAD_LETTER,
    WAS_NO_ROW,
    WAS_STORED,
    Example,
    PlaceComparison,
)
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.offsets.tallies import Outcome
from tidemark.runs.open_stream import OpenStream
from tidemark.sinks.reading import fewest_scans
from tidemark_spark.columns import AT, COORDINATE, FAILURE, INDEX, OFFSET, OUTCOME, REASON, has, text
from tidemark_spark.readers.places import OTHERS
from tidemark_spark.rows import outcomes
from tidemark_spark.rows.selecting import only

DEAD_LETTERS = "dead letters"
# The columns of a dead letter that are compared. The others are the message itself, or tell when and how often it failed.
DEAD_LETTER_COLUMNS = ("outcome", "reason", "error")

_KEY = [*COORDINATE, INDEX]
_BEFORE, _AFTER, _COLUMNS, _WHY, _HAD = "_before", "_after", "_columns", "_why", "_had"

# Takes the new rows of a place and all its rows; gives the new ones with _WHY.
_WhyNew = Callable[[DataFrame, DataFrame], DataFrame]


@dataclass(frozen=True)
class Comparing:
    """What a replay of `offsets` is compared with: `messages` are all rows that today's code makes, as `outcomes` says.

    `letters` are the dead letters that count now, as `readers.places` gives them, with DEAD_LETTER_COLUMNS as fields.
    """

    spark: SparkSession
    opened: OpenStream
    messages: DataFrame
    letters: DataFrame
    offsets: RangeSet

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
        content = content or {name: text(name) for name in outcomes.field_names(self.opened.stream)}
        fields = (made.alias(f"field_{number}") for number, made in enumerate(content.values()))
        after = outcomes.stored(self.messages).select(*_KEY, *fields)
        why_new = partial(self._why_new, *new)
        return self._compare(sink, only(before, self.offsets), after, [*content], why_new, _why_gone())

    def dead_letters(self) -> PlaceComparison:
        """Compare the dead letters. A message has one at most, with index 0."""
        found = (F.when(has(Outcome.FAILED), "failed").otherwise("invalid"), F.col(REASON), F.col(FAILURE)["error"])
        fields = (one.cast("binary").alias(f"field_{number}") for number, one in enumerate(found))
        after = outcomes.dead_letters(self.messages).select(*_KEY, *fields)
        before = self.letters.withColumn(OTHERS, F.array().cast("array<string>"))
        return self._compare(DEAD_LETTERS, before, after, DEAD_LETTER_COLUMNS, _letters_new, _letters_gone())

    def _compare(
        self,
        name: str,
        before: DataFrame,
        after: DataFrame,
        names: Sequence[str],
        why_new: _WhyNew,
        why_gone: Column,
    ) -> PlaceComparison:
        # A row that is there twice is for an audit to find.
        before = before.dropDuplicates(_KEY).withColumn(_BEFORE, F.lit(True))
        values = (F.col(f"field_{number}").alias(f"after_{number}") for number, _ in enumerate(names))
        after = after.select(*_KEY, *values, F.lit(True).alias(_AFTER))
        both = _joined(before, after, names).persist()
        try:
            return self._counted(name, both, names, why_new, why_gone)
        finally:
            both.unpersist()

    def _counted(
        self, name: str, both: DataFrame, names: Sequence[str], why_new: _WhyNew, why_gone: Column
    ) -> PlaceComparison:
        new, gone = F.col(_BEFORE).isNull(), F.col(_AFTER).isNull()
        changed = ~new & ~gone & (F.size(_COLUMNS) > 0)
        counts = both.agg(
            F.count(_BEFORE).alias("before"),
            F.count(_AFTER).alias("after"),
            F.count_if(~new & ~gone & ~changed).alias("same"),
            F.count_if(changed).alias("changed"),
            F.count_if(new).alias("new"),
            F.count_if(gone).alias("gone"),
        ).collect()[0]
        by_column = {}
        if counts["changed"]:
            exploded = both.where(changed).select(F.explode(_COLUMNS).alias(_COLUMNS)).groupBy(_COLUMNS).count()
            found = {row[_COLUMNS]: row["count"] for row in exploded.collect()}
            # In the order of the stream file; columns that it no longer has at the end.
            by_column = {one: found[one] for one in [*names, *sorted(found.keys() - {*names})] if one in found}
        news = why_new(both.where(new), both).persist() if counts["new"] else None
        goners = self._by_outcome(both.where(gone), why_gone).persist() if counts["gone"] else None
        result = PlaceComparison(
            name=name,
            **counts.asDict(),
            columns=by_column,
            new_because=_by_reason(news),
            gone_because=_by_reason(goners),
            changed_at=_examples(both.where(changed).withColumn(_WHY, F.lit("")) if counts["changed"] else None),
            new_at=_examples(news),
            gone_at=_examples(goners),
        )
        for frame in (news, goners):
            if frame is not None:
                frame.unpersist()
        return result

    def _by_outcome(self, rows: DataFrame, why: Column) -> DataFrame:
        found = outcomes.each_message(self.messages).select(*COORDINATE, OUTCOME)
        return rows.join(found, [*COORDINATE], "left").withColumn(_WHY, why)

    def _why_new(self, more: str, lacking: str, rows: DataFrame, both: DataFrame) -> DataFrame:
        letters = self.letters.select(*COORDINATE, F.lit(WAS_DEAD_LETTER).alias(_WHY)).dropDuplicates([*COORDINATE])
        had = both.where(_BEFORE).select(*COORDINATE, F.lit(True).alias(_HAD)).distinct()
        joined = rows.join(letters, [*COORDINATE], "left").join(had, [*COORDINATE], "left")
        why = F.when(F.col(_HAD), more).otherwise(F.coalesce(F.col(_WHY), F.lit(lacking)))
        return joined.withColumn(_WHY, why)


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
    in_both = F.col(_BEFORE).isNotNull() & F.col(_AFTER).isNotNull()
    nothing = F.array().cast("array<string>")
    return joined.select(*_KEY, _BEFORE, _AFTER, F.when(in_both, columns).otherwise(nothing).alias(_COLUMNS))


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
    return rows.withColumn(_WHY, F.lit(WAS_STORED))


def _by_reason(rows: DataFrame | None) -> dict[str, int]:
    if rows is None:
        return {}
    return {row[_WHY]: row["count"] for row in rows.groupBy(_WHY).count().orderBy(_WHY).collect()}


def _examples(rows: DataFrame | None) -> tuple[Example, ...]:
    """The first rows by coordinate and index."""
    if rows is None:
        return ()
    chosen = rows.select(*_KEY, _COLUMNS, _WHY).orderBy(*_KEY).limit(MOST_EXAMPLES)
    return tuple(
        Example(
            at=str(Coordinate(TopicPartition(row[AT[0]], row[AT[2]], row[AT[1]]), row[OFFSET])),
            index=row[INDEX],
            columns=tuple(row[_COLUMNS]),
            why=row[_WHY],
        )
        for row in chosen.collect()
    )
