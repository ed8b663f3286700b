"""Coordinates out of files and tables."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.streams_in_memory import TEXT, StreamInMemory
from tidemark.cli import stream_lookup
from tidemark.cli.commands import replay
from tidemark.cli.coordinates import coordinates, ranges, records
from tidemark.errors import WrongUse
from tidemark.offsets.coordinate_files import lines_of
from tidemark.offsets.coordinates import Coordinate, parse_coordinates, parse_ranges, parse_records
from tidemark.offsets.ranges import TopicPartition
from tidemark.runs.requests.forms import MAX_TEXT, ReplayRequest, checked

WANTED = [Coordinate(TopicPartition("a.b", 3), 17), Coordinate(TopicPartition("a.b", 0), 2**62)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("records.txt", f"a.b/3@17 # why\na.b,0,{2**62}\n"),
        ("records.csv", f"a.b,3,17\na.b,0,{2**62}\n"),
        ("records.csv", "a.b/3@17\n" + f"a.b,0,{2**62}\n"),
        ("records.csv", f"offset,what,topic,partition\r\n17,,a.b,3\r\n{2**62},more,a.b,0\r\n"),
        ("records.csv", f"\n\ntopic,partition,offset\na.b,3,17\na.b,0,{2**62}\n"),
        ("records.csv", f"\ufeff_topic,_partition,_offset\na.b,3,17\n\na.b,0,{2**62}\n"),
    ],
)
def test_lines_and_tables(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert parse_coordinates(lines_of(path)) == WANTED


def test_options_keep_the_incarnations_that_are_named(tmp_path: Path) -> None:
    path = tmp_path / "records.txt"
    path.write_text("a.b#1/3@17\na.b/3@18\n")
    said = parse_records(records([f"@{path}", "a.b#2/0@5"]))
    assert said == parse_records("a.b#1/3@17\na.b/3@18\na.b#2/0@5")
    assert said.exact.partitions == (TopicPartition("a.b", 0, 2), TopicPartition("a.b", 3, 1))
    assert parse_ranges(ranges(["a.b#1/3@0-9", "a.b/3@9-12"])) == parse_ranges("a.b#1/3@0-9\na.b/3@9-12")


@pytest.mark.parametrize("prefix", ["", "_"])
def test_a_file_and_a_folder_of_parquet(tmp_path: Path, prefix: str) -> None:
    columns = {"topic": ["a.b", "a.b"], "partition": [3, 0], "offset": [17, 2**62], "more": [None, None]}
    table = pa.table({f"{prefix}{name}": values for name, values in columns.items()})
    (tmp_path / "table" / "day=1").mkdir(parents=True)
    path = tmp_path / "table" / "day=1" / "part.parquet"
    pq.write_table(table, path)
    for place in (path, tmp_path / "table"):
        assert parse_coordinates(lines_of(place)) == WANTED


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "records.csv",
            "topic,partition\na,1\n",
            "expected the columns topic, partition and offset; it has topic, partition",
        ),
        ("records.csv", "", "it has none"),
        ("records.csv", ",".join(["a" * 300] * 30), "it has " + "a" * 100 + "..., a"),
        ("records.csv", "topic,partition,offset,topic\na,1,1,b\n", "the column topic stands there twice"),
        ("records.csv", '"' + "a" * 5_000_000, "not CSV: field larger than field limit"),
        ("records.parquet", "topic", "not Parquet"),
    ],
)
def test_what_is_no_such_table_is_refused(tmp_path: Path, name: str, text: str, said: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(WrongUse, match=said):
        lines_of(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("topic,partition,offset\n\na,1,2\n\na,1,x\n", "line 5: 'a,1,x' is not a coordinate"),
        ("topic,partition,offset\n\na,1\n", "line 3: has fewer columns"),
    ],
)
def test_an_error_names_the_file_and_its_own_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "records.csv"
    path.write_text(text)
    with pytest.raises(WrongUse, match=rf"^{re.escape(str(path))}: {said}"):
        records(["a/1@1", "a/1@2\na/1@3", f"@{path}"])


def test_each_value_of_an_option_is_read_by_itself(tmp_path: Path) -> None:
    (tmp_path / "records.csv").write_text("offset,topic,partition\n7,a,1\n")
    (tmp_path / "ranges.txt").write_text("a/1@5-9 # these\n")
    assert records([f"@{tmp_path}/records.csv", "a,1,8", '["a", 0, 9]']) == "a/1@7\na/1@8\na/0@9"
    assert ranges([f"@{tmp_path}/ranges.txt", "a/0@0-3"]) == "a/1@5-9\na/0@0-3"
    assert (records(None), ranges(None)) == ("", "")
    with pytest.raises(WrongUse, match=r"^--records: line 1: 'a/1@x' is not a coordinate"):
        records([f"@{tmp_path}/records.csv", "a/1@x"])
    with pytest.raises(WrongUse, match=r"^--ranges: line 2: 'a/1@x-5' is not a coordinate"):
        ranges([f"@{tmp_path}/ranges.txt", "a/0@0-3\na/1@x-5"])
    with pytest.raises(WrongUse, match=r"^--until: line 1: 'a/1' is not a coordinate"):
        coordinates("--until", ["a/1"])


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match=r"missing\.txt: cannot be read"):
        lines_of(tmp_path / "missing.txt")


@pytest.mark.slow
@pytest.mark.parametrize("option", ["records", "ranges"])
def test_a_file_of_more_than_a_form_takes_is_read_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    """A form of Airflow takes a million characters. A command reads the file itself."""
    # A long name, so that few lines are as long as many.
    topic = "o" * 240
    made = StreamInMemory(tmp_path, text=TEXT.replace("topics: [orders]", f"topics: [{topic}]"))
    made.kafka.logs = {topic: [(0, 10_000)]}
    while made.ingest("run 1"):
        pass
    monkeypatch.setattr(stream_lookup, "opened", lambda _: made.opened)
    file = tmp_path / "many.txt"
    end = "-{}" if option == "ranges" else ""
    file.write_text("".join(f"{topic}/0@{one}{end.format(one + 1)}\n" for one in range(0, 10_000, 2)))
    assert file.stat().st_size > MAX_TEXT
    given = {option: [f"@{file}"]}
    replay.replay("orders", **given, reason="a test", dry_run=True, as_json=True)
    assert json.loads(capsys.readouterr().out)["offsets"] == 5_000
    with pytest.raises(WrongUse, match="a field takes up to"):
        checked(ReplayRequest, {option: file.read_text(), "reason": "a test"}, {})
