"""How people write coordinates and ranges."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable

import pytest
from _pytest.outcomes import Failed
from hypothesis import given
from hypothesis import strategies as st

from tests.model.planting import planted
from tidemark.errors import WrongUse
from tidemark.offsets.coordinates import Coordinate, NamedOffsets, parse_coordinates, parse_ranges, parse_records
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition


def test_records_one_a_line() -> None:
    text = "logs/3@17\n\n# a comment\nlogs.eu_1,0 , 0   # the first\n"
    found = [(one.partition, one.offset) for one in parse_coordinates(text)]
    assert found == [(TopicPartition("logs", 3), 17), (TopicPartition("logs.eu_1", 0), 0)]


def test_ranges_one_a_line() -> None:
    assert parse_ranges("logs/0@5-9") == NamedOffsets(RangeSet([OffsetRange(TopicPartition("logs", 0), 5, 9)]))


def test_an_incarnation_is_said_or_left_to_the_ledger() -> None:
    """As Tidemark prints it, and also the first one."""
    second, first = (RangeSet([OffsetRange(TopicPartition("logs", 3, one), 17, 18)]) for one in (2, 1))
    for said in (
        "logs#2/3@17",
        "  logs#2/3@17#17",
        "logs#2,3,17",
        "topic,partition,offset\nlogs#2,3,17",
        '["logs#2", 3, 17]',
    ):
        assert parse_records(said) == NamedOffsets(exact=second)
    assert parse_records("logs#1/3@17\nlogs/3@17 #2/3@18") == NamedOffsets(first, first)
    assert parse_records("logs/3@17#1/3@18") == NamedOffsets(first)
    assert parse_ranges("logs#2/3@17-18\nlogs/3@17-18") == NamedOffsets(first, second)
    assert parse_ranges("logs/3@17-18, logs#2/3@17-18;logs#2/3@17-18 # logs#3/3@17-18") == NamedOffsets(first, second)
    for wrong in ("logs#0/3@17", "logs#/3@17", "logs#2#2/3@17", "logs#1234567890/3@17"):
        with pytest.raises(WrongUse, match=r"line 1: .* is not a coordinate"):
            parse_records(wrong)
    for number in ("0", "false", '"x"', "[2]"):
        with pytest.raises(WrongUse, match=r"line 1: .* is not a coordinate"):
            parse_records(f'{{"topic": "logs", "partition": 3, "offset": 17, "incarnation": {number}}}')
    for number in ("null", '""'):
        asked = f'{{"topic": "logs", "partition": 3, "offset": 17, "incarnation": {number}}}'
        assert parse_records(asked) == NamedOffsets(first)
    with pytest.raises(WrongUse, match="logs#2/3@17: leave the incarnation out here"):
        parse_coordinates("logs#2/3@17")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # The first incarnation is taken for one that nobody has said.
        ("        parts[exact].append(", "        parts[exact and partition.incarnation > 1].append("),
        # One that was said is left to the ledger.
        ("        parts[exact].append(", "        parts[False].append("),
        # It is dropped where no place for it is.
        ("            if exact:\n", "            if False:\n"),
    ],
)
def test_planted_bugs_of_incarnations_are_found(old: str, new: str) -> None:
    with planted("tidemark.offsets.coordinates", old, new), pytest.raises((AssertionError, Failed)):
        test_an_incarnation_is_said_or_left_to_the_ledger()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("logs/3@17\nlogs/3@", "line 2: 'logs/3@' is not a coordinate"),
        ("logs/-1@5", "line 1"),
        ("logs/0@-5", "line 1"),
        ("logs 0 5", "line 1"),
        ("lo:gs/0@5", "line 1"),
        ("../0@5", "is not a topic name"),
        ("a" * 250 + "/0@5", "line 1"),
        ("logs/0@9223372036854775807", "beyond Kafka's numbers"),
        ("logs/2147483648@0", "beyond Kafka's numbers"),
        ("logs/0@99999999999999999999", "line 1"),
    ],
)
def test_what_is_no_coordinate_is_named_with_its_line(text: str, said: str) -> None:
    with pytest.raises(WrongUse, match=said):
        parse_coordinates(text)


@pytest.mark.covers("A03")
def test_a_range_from_a_negative_offset_is_refused() -> None:
    with pytest.raises(WrongUse, match="line 1: 'logs/0@-99-5' is not a coordinate") as caught:
        parse_ranges("logs/0@-99-5")
    assert caught.value.exit_code == 2


@pytest.mark.covers("A26")
def test_a_range_that_runs_backwards_is_refused() -> None:
    with pytest.raises(WrongUse, match="ranges: line 2: 'logs/0@3-1': from 3 until 1 runs backwards"):
        parse_ranges("\nlogs/0@3-1", "ranges")


GROUP = st.sampled_from(["", " ", "\u00a0", "\u2009", "\u202f"])


@st.composite
def shown_ranges(draw: st.DrawFn) -> tuple[str, NamedOffsets]:
    """Some ranges and coordinates, each in a form in which Tidemark shows them, or has shown them; several on a line or not."""
    lines: list[str] = []
    chosen: list[OffsetRange] = []
    for _ in range(draw(st.integers(1, 5))):
        at = TopicPartition(draw(st.sampled_from(["logs", "a.b-c_1", "7"])), draw(st.integers(0, 2**31 - 1)))
        start, until = sorted(draw(st.tuples(st.integers(0, 2**63 - 2), st.integers(0, 2**63 - 2))))
        between = draw(GROUP)
        one, other = (f"{number:,}".replace(",", between) for number in (start, until))
        form = draw(st.integers(0, 4))
        if form == 4:
            chosen.append(OffsetRange(at, start, start + 1))
            lines.append(f"{at}@{one}")
            continue
        chosen.append(OffsetRange(at, start, until))
        plain = str(chosen[-1])
        lines.append([plain, f"{at}@{one}-{other}", f"{at} [{one}, {other})", f"{at} @ [{one},{other})"][form])
    text = lines[0]
    for line in lines[1:]:
        text += draw(st.sampled_from(["\n", ", ", "; ", " ", ",", "\r\n\n"])) + line
    return text, NamedOffsets(RangeSet(chosen))


@pytest.mark.covers("U20")
@given(shown=shown_ranges())
def test_whatever_is_shown_of_ranges_can_be_pasted_back(shown: tuple[str, NamedOffsets]) -> None:
    text, named = shown
    assert parse_ranges(text) == named


@pytest.mark.covers("U20")
@given(found=st.lists(st.tuples(st.integers(0, 2**63 - 2), GROUP), min_size=1, max_size=4))
def test_coordinates_with_digits_in_groups_can_be_pasted_back(found: list[tuple[int, str]]) -> None:
    shown = ", ".join(
        f"logs/0@{offset:,}".replace(",", between) if between else f"logs/0@{offset}" for offset, between in found
    )
    assert [one.offset for one in parse_coordinates(shown)] == [offset for offset, _ in found]


@pytest.mark.covers("U20")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("logs/0@5\u20139", "may include 9, or not: write logs/0@5-9 for the offsets below 9, or logs/0@5-10 with 9"),
        ("logs/0@5 000\u20149 000", "write logs/0@5000-9000 for the offsets below 9000, or logs/0@5000-9001 with 9000"),
        ("logs/0@1,000-2,000", "is not a coordinate; expected topic/partition@from-until"),
        ("logs/0@1 00-2 00", "is not a coordinate"),
        ("logs/0 [5, 9]", "is not a coordinate"),
    ],
)
def test_a_form_that_has_two_readings_is_refused_with_the_right_one(text: str, said: str) -> None:
    with pytest.raises(WrongUse, match=re.escape(said)):
        parse_ranges(text)


@pytest.mark.covers("U20")
@pytest.mark.parametrize("text", ["logs/0@5-9", "logs/0 [5, 9)", "logs/0@5\nlogs/0@7-9"])
def test_a_range_where_an_offset_is_expected_says_where_it_belongs(text: str) -> None:
    with pytest.raises(WrongUse, match="is a range, and one offset is expected here: a range stands in ranges"):
        parse_coordinates(text)


def test_a_line_of_a_million_spaces_takes_no_longer_than_another_one() -> None:
    """A separator that repeats would be tried from each of them: hours, and not an instant."""
    for text in ("logs/0" + " " * 1_000_000 + "x", "logs/0@5" + " " * 1_000_000 + ",logs/0", "a, " * 300_000):
        with pytest.raises(WrongUse):
            parse_ranges(text)


def as_lines(found: list[Coordinate]) -> str:
    return "".join(f"{one}  # why\n\n" for one in found)


def as_csv(found: list[Coordinate]) -> str:
    made = io.StringIO()
    rows = csv.writer(made)
    rows.writerow(["_offset", "why, or not", "_topic", "_partition"])
    rows.writerows([one.offset, "a, b\nand c", one.partition.topic, one.partition.partition] for one in found)
    return made.getvalue()


def as_objects(found: list[Coordinate]) -> str:
    rows = [
        {"offset": str(one.offset), "partition": one.partition.partition, "topic": one.partition.topic, "more": [{}]}
        for one in found
    ]
    return json.dumps(rows, indent=2)


def as_triples(found: list[Coordinate]) -> str:
    return json.dumps([[one.partition.topic, one.partition.partition, one.offset] for one in found])


def as_json_lines(found: list[Coordinate]) -> str:
    rows: list[object] = [
        [one.partition.topic, one.partition.partition, one.offset]
        if one.offset % 2
        else {"topic": one.partition.topic, "partition": one.partition.partition, "offset": one.offset}
        for one in found
    ]
    return "\ufeff" + "\r\n".join(map(json.dumps, rows))


coordinates = st.builds(
    lambda topic, partition, offset: Coordinate(TopicPartition(topic, partition), offset),
    st.sampled_from(["logs", "topic", "offset", "a.b-c_1", "7"]),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 2),
)


@pytest.mark.parametrize("form", [as_lines, as_csv, as_objects, as_triples, as_json_lines])
@given(found=st.lists(coordinates, max_size=5))
def test_every_form_says_the_same(form: Callable[[list[Coordinate]], str], found: list[Coordinate]) -> None:
    assert parse_coordinates(form(found)) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("topic,partition,offset\nlogs,3,17\nlogs,3,x\n", "line 3: 'logs,3,x' is not a coordinate"),
        ("topic,partition,offset\n\nlogs,3\n", "line 3: has fewer columns than the first line"),
        (
            "topic,partition\nlogs,3\n",
            "line 1: expected the columns topic, partition and offset; it has topic, partition",
        ),
        ('topic,partition,offset\nlogs,3,"17\n' + "x" * 4_100_000, "not CSV: field larger than field limit"),
        (
            '[{"topic": "logs", "partition": 3, "offset": 17},\n {"topic": "logs", "offset": 5}]',
            r"line 2: '\{.topic.: .logs",
        ),
        ('[["logs", 3, 17],\n\n["logs", 3]]', "line 3: .* is not a coordinate; expected"),
        ('["logs", 3, 17]\n["logs", 3, -1]', "line 2: 'logs,3,-1' is not a coordinate"),
        ('["logs", 3, 17.0]', "line 1: 'logs,3,17.0'"),
        ('["logs", true, 17]', "line 1: 'logs,True,17'"),
        ("[[true, 1, 17]]", r"line 1: '\[true, 1, 17\]' is not a coordinate"),
        ('["logs/3@17"]', "line 1: .* is not a coordinate"),
        ('[["logs", 3, 17]\n["logs", 3, 18]]', "line 2: expected a comma or the end of the array"),
        ('[["logs", 3, 17]', "line 1: expected a comma or the end of the array"),
        ('[["logs", 3, 17]]\nlogs/3@18', "line 1: expected nothing after the array, found 'logs/3@18'"),
        ('{"topic": "logs",\n', r"line 1: '\{.topic.: .logs.,' is not JSON"),
        ('["logs", 3, 17]\nlogs/3@18', "line 2: 'logs/3@18' is not JSON"),
        ("[" * 100_000, "line 1: .* is not JSON"),
        ('["logs", 3, ' + "9" * 5_000 + "]", "line 1: .* is not JSON"),
        ("x" * 1_000, "line 1: 'x{100}...' is not a coordinate"),
    ],
)
def test_what_is_wrong_in_csv_or_json_is_named_with_its_line(text: str, said: str) -> None:
    with pytest.raises(WrongUse, match=said) as caught:
        parse_coordinates(text)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "header",
    [
        "Topic,Partition,Offset",
        "topic;partition;offset",
        "topic\tpartition\toffset",
        "kafka_topic,kafka_offset",
        "OFFSET TOPIC",
    ],
)
def test_a_header_that_is_not_understood_is_said_to_be_one(header: str) -> None:
    with pytest.raises(
        WrongUse, match=r"records: line 1: .* is not a coordinate; .* looks like the header of a table: name"
    ):
        parse_records(f"{header}\nlogs,0,5", "records")
    with pytest.raises(WrongUse, match=r"line 1: .*for example logs/3@17$"):
        parse_records("topic-of-partitions@5")
