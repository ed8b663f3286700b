"""A comparison's arithmetic, in Spark: every row before and after is in exactly one count."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tidemark.audit.comparison import MAX_EXAMPLES, MORE_IN_TOPICS, NOT_IN_TOPICS, PlaceComparison
from tidemark.ledger.ledger import NOTHING_SEEN
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.offsets.tallies import Outcome
from tidemark.spark.audit.replay_comparison import RowsToCompare
from tidemark.spark.columns import COORDINATE, FAILURE, FAILURE_TYPE, INDEX, OUTCOME, REASON
from tidemark.spark.readers.places import OTHERS

AT = TopicPartition("a", 3, 2)
PLACE = f"{COORDINATE[0]} string, {COORDINATE[1]} int, {COORDINATE[2]} int, {COORDINATE[3]} long, {INDEX} int"
Row = tuple[str | None, str | None]
# Rows and columns of rows that the stream file no longer has, or the reason of a dead letter; None: nothing.
Before = list[tuple[Row, bool]] | str | None
# Rows, an outcome without rows with its reason, or None for a message that Kafka no longer gives.
After = list[Row] | tuple[Outcome, str | None] | None

ROW: st.SearchStrategy[Row] = st.tuples(st.sampled_from([None, "", "x", "y"]), st.sampled_from([None, "1"]))
BEFORE: st.SearchStrategy[Before] = st.one_of(
    st.lists(st.tuples(ROW, st.booleans()), min_size=1, max_size=3), st.sampled_from(["bad", "worse"]), st.none()
)
AFTER: st.SearchStrategy[After] = st.one_of(
    st.lists(ROW, min_size=1, max_size=3),
    st.sampled_from([(Outcome.INVALID, "bad"), (Outcome.FAILED, "bad"), (Outcome.SKIPPED, None)]),
    st.none(),
)


def comparing(
    spark: SparkSession, found: list[tuple[Before, After]], **given: Any
) -> tuple[PlaceComparison, PlaceComparison]:
    """The comparison of a sink, and of the dead letters, where message n was and is `found[n]`. `given`: to `rows_of`."""
    rows, letters = [], []
    messages: list[tuple[Any, ...]] = []
    for offset, (before, after) in enumerate(found):
        place = (AT.topic, AT.incarnation, AT.partition, offset)
        if isinstance(before, str):
            letters.append((*place, 0, b"invalid", before.encode(), None))
        for index, ((one, two), other) in enumerate(before if isinstance(before, list) else ()):
            texts = (None if text is None else text.encode() for text in (one, two))
            rows.append((*place, index, *texts, ["old"] if other else []))
        if isinstance(after, tuple):
            messages.append((*place, 0, after[0].value, after[1], None, None, None))
        for index, one_row in enumerate(after if isinstance(after, list) else ()):
            messages.append((*place, index, Outcome.STORED.value, None, None, *one_row))
    outside = (AT.topic, AT.incarnation, AT.partition, len(found), 0, b"not asked for", None, [])
    kinds = f"{OUTCOME} tinyint, {REASON} string, {FAILURE} {FAILURE_TYPE}, one string, two string"
    fields = "field_0 binary, field_1 binary"
    against = RowsToCompare(
        spark,
        cast("Any", SimpleNamespace(fields={"one": "string", "two": "string"})),
        spark.createDataFrame(messages, f"{PLACE}, {kinds}"),
        spark.createDataFrame(letters, f"{PLACE}, {fields}, field_2 binary"),
        RangeSet([OffsetRange(AT, 0, len(found))]),
        NOTHING_SEEN,
    )
    before_rows = spark.createDataFrame([*rows, outside], f"{PLACE}, {fields}, {OTHERS} array<string>")
    return against.rows_of("sink", before_rows, **given), against.dead_letters()


def differing(old: tuple[Row, bool], new: Row) -> list[str]:
    names = [name for name, one, two in zip(("one", "two"), old[0], new, strict=True) if one != two]
    return names + (["old"] if old[1] else [])


# Each example takes some jobs of Spark: the first that fails is enough.
@settings(max_examples=2, phases=[Phase.explicit, Phase.generate])
@given(found=st.lists(st.tuples(BEFORE, AFTER), min_size=30, max_size=60))
def test_every_row_is_in_one_count_with_its_columns_and_its_reason(
    spark: SparkSession, found: list[tuple[Before, After]]
) -> None:
    place, letters = comparing(spark, found)
    assert place.same + place.changed + place.gone == place.before
    assert place.same + place.changed + place.new == place.after
    assert letters.same + letters.changed + letters.gone == letters.before
    assert letters.same + letters.changed + letters.new == letters.after

    columns, new, gone, letter = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    changed_at = []
    for offset, (before, after) in enumerate(found):
        was, becomes = before if isinstance(before, list) else [], after if isinstance(after, list) else []
        for index, (old, now) in enumerate(zip(was, becomes, strict=False)):
            if names := differing(old, now):
                changed_at.append((f"a#2/3@{offset}", index, tuple(names)))
                columns.update(names)
        new[why_new(before)] += max(0, len(becomes) - len(was))
        gone[why_gone(after)] += max(0, len(was) - len(becomes))
        letter[of_letter(before, after)] += 1
    assert place.changed == len(changed_at)
    assert place.columns == columns
    assert (place.new_because, place.gone_because) == (+new, +gone)
    assert (place.new, place.gone) == (new.total(), gone.total())
    assert [(one.at, one.index, one.columns) for one in place.changed_at] == changed_at[:MAX_EXAMPLES]
    counts = [letters.same, letters.changed, letters.new, letters.gone]
    assert counts == [letter[kind] for kind in ("same", "changed", "new", "gone")]


def why_new(before: Before) -> str:
    if isinstance(before, list):
        return "its message now gives more rows"
    return "its message was a dead letter" if before is not None else "nothing was stored of its message"


def why_gone(after: After) -> str:
    if after is None:
        return "Kafka no longer gives its message"
    if isinstance(after, list):
        return "its message now gives fewer rows"
    return f"its message is now {'skipped' if after[0] == Outcome.SKIPPED else 'a dead letter'}"


def of_letter(before: Before, after: After) -> str:
    """What becomes of a dead letter, before or after; empty if the message is none, neither before nor after."""
    now = after if isinstance(after, tuple) and after[0] != Outcome.SKIPPED else None
    if not isinstance(before, str):
        return "new" if now is not None else ""
    if now is None:
        return "gone"
    return "same" if now == (Outcome.INVALID, before) else "changed"


@pytest.mark.full
@pytest.mark.usefixtures("spark")
def test_nothing_before_and_nothing_after_is_no_difference(spark: SparkSession) -> None:
    place, letters = comparing(spark, [(None, None), (None, (Outcome.SKIPPED, None))])
    assert (place.before, place.after, place.differences) == (0, 0, 0)
    assert (letters.before, letters.after, letters.differences) == (0, 0, 0)


@pytest.mark.full
@pytest.mark.usefixtures("spark")
def test_a_sink_that_deletes_rows_by_itself_has_reasons_of_its_own(spark: SparkSession) -> None:
    one: Row = ("x", "1")
    found: list[tuple[Before, After]] = [([(one, False)], [one, one]), (None, [one]), (None, [one]), ("bad", [one])]
    place, _ = comparing(spark, found, new=(MORE_IN_TOPICS, NOT_IN_TOPICS))
    assert place.new_because == {MORE_IN_TOPICS: 1, NOT_IN_TOPICS: 2, "its message was a dead letter": 1}
