"""Records out of files that a form names: where the files may be, and what stands in them."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sys
import tracemalloc
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidemark.errors import PackageMissing, WrongUse
from tidemark.offsets.coordinate_files import lines_of
from tidemark.offsets.coordinates import Coordinate, NamedOffsets, parse_coordinates, parse_records
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.runs.requests import record_files
from tidemark.runs.requests.record_files import FOLDER, records_in

LARGEST = 2**63 - 2
ROWS = [("a.b", 3, 17), ("a.b", 0, LARGEST), ("logs", 3, 0), ("a.b", 3, 18)]
HEADER = "topic,partition,offset\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "selections"
    found.mkdir()
    monkeypatch.setenv(FOLDER, str(found))
    return found


def ranges(rows: list[tuple[str, int, int]]) -> NamedOffsets:
    return NamedOffsets(
        RangeSet(OffsetRange(TopicPartition(topic, at), offset, offset + 1) for topic, at, offset in rows)
    )


def write(path: Path, rows: list[tuple[str, int, int]], prefix: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    names = [f"{prefix}{name}" for name in ("topic", "partition", "offset")]
    if path.suffix == ".csv":
        path.write_text("\n".join([",".join(names), *(",".join(map(str, row)) for row in rows)]))
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in rows))
    else:
        columns = list(zip(*rows, strict=True)) or [[], [], []]
        pq.write_table(pa.table({name: list(found) for name, found in zip(names, columns, strict=True)}), path)


FORMATS = ("records.csv", "below/it/records.jsonl", "records.parquet")


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("prefix", ["", "_"])
def test_each_format_says_the_same(folder: Path, name: str, prefix: str) -> None:
    write(folder / name, ROWS, prefix)
    assert records_in(name) == ranges(ROWS)
    assert records_in(str(folder / name)) == ranges(ROWS)


rows = st.lists(st.tuples(st.sampled_from(["a", "a.b"]), st.integers(0, 3), st.integers(0, LARGEST)), min_size=1)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows, st.sampled_from(FORMATS))
def test_what_was_written_is_read(folder: Path, found: list[tuple[str, int, int]], name: str) -> None:
    write(folder / name, found)
    assert records_in(name) == ranges(found)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("records.csv", '\ufeffmore,offset,topic,partition\r\n"x,\ny",17,a.b,3\r\n\r\n, 18 ,a.b,3\r\n'),
        (
            "records.jsonl",
            '\ufeff{"offset": 17, "topic": "a.b", "partition": 3}\n\n{"_topic": "a.b", "_partition": "3", '
            '"_offset": 18}\n',
        ),
        (
            "records.ndjson",
            '{"topic": "a.b", "partition": 3, "offset": 17, "x": null}\r\n{"topic": "a.b", "partition": 3, '
            '"offset": 18}',
        ),
    ],
)
def test_other_columns_and_empty_lines_do_not_matter(folder: Path, name: str, text: str) -> None:
    (folder / name).write_bytes(text.encode())
    assert records_in(name) == NamedOffsets(RangeSet([OffsetRange(TopicPartition("a.b", 3), 17, 19)]))


def test_a_folder_of_parquet(folder: Path) -> None:
    write(folder / "table" / "day=1" / "a.parquet", ROWS[:2])
    write(folder / "table" / "b.parquet", ROWS[2:])
    (folder / "table" / "_hidden.parquet").write_text("of another program")
    (folder / "table" / "_SUCCESS").touch()
    assert records_in("table") == ranges(ROWS)


def test_what_is_no_data_of_a_folder_is_passed_over(folder: Path) -> None:
    """A job that is writing, and what tools keep beside the data. Tidemark's own Delta tables have such partitions."""
    write(folder / "table" / "_generation=7" / "a.parquet", ROWS)
    for hidden in ("_temporary/0/part-0.parquet", ".spark-staging-1/part-0.parquet", "day=1/_temporary/x.parquet"):
        (folder / "table" / hidden).parent.mkdir(parents=True)
        (folder / "table" / hidden).write_text("half written")
    assert records_in("table") == ranges(ROWS)
    assert set(parse_coordinates(lines_of(folder / "table"))) == {
        Coordinate(TopicPartition(topic, at), offset) for topic, at, offset in ROWS
    }


@pytest.mark.parametrize("partitioned", [False, True])
def test_of_a_delta_table_the_newest_version_counts(folder: Path, partitioned: bool) -> None:
    place = folder / "a table"
    columns: list[Any] = [list(found) for found in zip(*ROWS, strict=True)]
    table = pa.table(
        {**dict(zip(("topic", "partition", "offset"), columns, strict=True)), "by": ["x/y %", "z", "z", "z"]}
    )
    write_deltalake(str(place), table, partition_by=["by"] if partitioned else None)
    DeltaTable(str(place)).delete("offset = 17")
    DeltaTable(str(place)).create_checkpoint()
    assert list(place.glob("_delta_log/*.checkpoint.parquet"))
    assert records_in("a table") == ranges(ROWS[1:])
    assert len(parse_coordinates(lines_of(place))) == 3
    # A folder with such a table in it is no table.
    (folder / "above").mkdir()
    place.rename(folder / "above" / "table")
    with pytest.raises(WrongUse, match=r"above/table: is a Delta table within the folder. Name the table itself"):
        records_in("above")


def test_a_delta_table_that_its_files_do_not_show_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder / "table" / "a.parquet", ROWS)
    log = folder / "table" / "_delta_log" / "00000000000000000000.json"
    log.parent.mkdir()
    log.write_text("{what")
    with pytest.raises(WrongUse, match=r"table: the Delta table cannot be read: "):
        records_in("table")
    shutil.rmtree(folder / "table")
    table = pa.table({"topic": ["a"], "partition": [1], "offset": [2]})
    write_deltalake(str(folder / "table"), table, configuration={"delta.enableDeletionVectors": "true"})
    with pytest.raises(WrongUse, match=r"table: is a Delta table with deletionVectors.* plain Parquet files"):
        records_in("table")
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(PackageMissing, match=r"table: is a Delta table, .* pip install 'deltalake>=1\.6,<2'"):
        records_in("table")


@pytest.mark.covers("Q9")
@pytest.mark.parametrize("way", ["_delta_log", "_delta_log/00000000000000000000.json"])
def test_the_log_of_a_delta_table_is_no_symbolic_link(folder: Path, way: str) -> None:
    write_deltalake(str(folder / "table"), pa.table({"topic": ["a"], "partition": [1], "offset": [2]}))
    (folder / "table" / way).rename(folder.parent / "elsewhere")
    (folder / "table" / way).symlink_to(folder.parent / "elsewhere")
    with pytest.raises(WrongUse, match=f"table/{way}: is a symbolic link"):
        records_in("table")


@pytest.mark.covers("Q9")
@pytest.mark.parametrize("file", ["../secret.parquet", "below/../../secret.parquet", "/etc/secret.parquet"])
def test_the_log_of_a_delta_table_leads_nowhere_else(folder: Path, file: str) -> None:
    write(folder / "secret.parquet", ROWS)
    table = pa.table({"topic": ["a"], "partition": [1], "offset": [2]})
    write_deltalake(str(folder / "table"), table)
    log = folder / "table" / "_delta_log" / "00000000000000000000.json"
    (name,) = [one.name for one in (folder / "table").glob("*.parquet")]
    log.write_text(log.read_text().replace(name, file))
    with pytest.raises(WrongUse, match=r"which is not below its folder"):
        records_in("table")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "", r"a.csv:1: expected the columns topic, partition and offset; it has none"),
        ("a.csv", "topic,offset\n", r"a.csv:1: expected the columns .*; it has topic, offset"),
        ("a.csv", HEADER, "records_file a.csv: it has no records"),
        ("a.csv", HEADER + "a,1,2\n\na,1\n", "a.csv:4: the line has fewer columns"),
        ("a.csv", HEADER + "a,1,2\na,1,x\n", r"a.csv:3: expected an offset from 0 to 2\^63-2, found 'x'"),
        ("a.csv", HEADER + "a,1,-2\n", "a.csv:2: expected an offset"),
        ("a.csv", HEADER + "a,1,1.0\n", "a.csv:2: expected an offset"),
        ("a.csv", HEADER + f"a,1,{2**63 - 1}\n", "a.csv:2: expected an offset"),
        ("a.csv", HEADER + f"a,{2**31},1\n", r"a.csv:2: expected a partition from 0 to 2\^31-1, found '2147483648'"),
        ("a.csv", HEADER + "a b,1,1\n", "a.csv:2: expected the name of a topic, found 'a b'"),
        ("a.csv", HEADER + "..,1,1\n", "a.csv:2: expected the name of a topic"),
        ("a.csv", HEADER + f"{'a' * 300},1,1\n", r"a.csv:2: expected the name of a topic, found '(a{99})\.\.\.$"),
        ("a.csv", HEADER + '"a\n\nb",1,1\n', "a.csv:4: expected the name of a topic"),
        ("a.csv", HEADER + '"' + 5 * ("x" * 900_000 + "\n"), "a.csv:6: not CSV: field larger"),
        (
            "a.jsonl",
            '{"topic": "a", "partition": 1, "offset": 2}\n[1]\n',
            r"a.jsonl:2: expected {\"topic\".*, found \[1\]",
        ),
        ("a.jsonl", "\n{", "a.jsonl:2: not JSON"),
        ("a.jsonl", '{"topic": "a", "partition": 1}', "a.jsonl:1: expected the columns .*; it has topic, partition"),
        ("a.jsonl", '{"topic": "a", "partition": true, "offset": 2}', "a.jsonl:1: expected a partition .*, found True"),
        ("a.jsonl", '{"topic": "a", "partition": 1, "offset": 2.0}', "a.jsonl:1: expected an offset .*, found 2.0"),
        (
            "a.jsonl",
            '{"topic": null, "partition": 1, "offset": 2}',
            "a.jsonl:1: expected the name of a topic, found None",
        ),
        ("a.parquet", "PAR1", "a.parquet: not Parquet"),
        (
            "a.txt",
            "a/1@2",
            r"a.txt: expected a file that ends in .csv, .jsonl, .ndjson, .parquet, or a folder of Parquet",
        ),
    ],
)
def test_what_is_wrong_is_told_with_file_and_line(folder: Path, name: str, text: str, said: str) -> None:
    (folder / name).write_text(text)
    with pytest.raises(WrongUse, match=said):
        records_in(name)


def test_text_that_is_not_utf_8_is_refused(folder: Path) -> None:
    (folder / "a.csv").write_bytes(HEADER.encode() + b"\xff,1,2\n")
    with pytest.raises(WrongUse, match=r"a.csv: cannot be read: .*utf-8"):
        records_in("a.csv")


@pytest.mark.parametrize(("offset", "said"), [(None, "found None"), (-1, "found -1"), ("x", "found 'x'")])
def test_a_row_of_parquet_is_named(folder: Path, offset: Any, said: str) -> None:
    offsets = ["1", offset] if isinstance(offset, str) else [1, offset]
    table = pa.table({"topic": ["a", "a"], "partition": [1, 1], "offset": offsets})
    pq.write_table(table, folder / "a.parquet")
    with pytest.raises(WrongUse, match=rf"a.parquet: row 2: expected an offset from .*{said}"):
        records_in("a.parquet")
    pq.write_table(table.drop_columns(["topic"]), folder / "a.parquet")
    with pytest.raises(WrongUse, match=r"a.parquet: expected the columns .*; it has partition, offset"):
        records_in("a.parquet")


@pytest.mark.covers("Q9")
@pytest.mark.parametrize(
    "name", ["../secret.csv", "/etc/passwd", "below/../../secret.csv", "..", ".", "below/..", "no\0name.csv"]
)
def test_nothing_outside_the_folder_is_read(folder: Path, name: str) -> None:
    (folder.parent / "secret.csv").write_text(HEADER + "a,1,2\n")
    (folder / "below").mkdir()
    with pytest.raises(WrongUse, match=r"below the folder of TIDEMARK_SELECTIONS|cannot be read") as caught:
        records_in(name)
    assert "a,1,2" not in str(caught.value)


@pytest.mark.covers("Q9")
def test_a_symbolic_link_is_refused_wherever_it_leads(folder: Path) -> None:
    write(folder.parent / "elsewhere" / "secret.csv", ROWS)
    write(folder.parent / "elsewhere" / "secret.parquet", ROWS)
    write(folder / "mine.csv", ROWS)
    write(folder / "table" / "mine.parquet", ROWS)
    (folder / "file.csv").symlink_to(folder.parent / "elsewhere" / "secret.csv")
    (folder / "inside.csv").symlink_to(folder / "mine.csv")
    (folder / "way").symlink_to(folder.parent / "elsewhere")
    for name in ("file.csv", "inside.csv", "way/secret.csv", "way"):
        with pytest.raises(WrongUse, match=f"records_file {name}: a symbolic link is on the way"):
            records_in(name)
    (folder / "table" / "theirs.parquet").symlink_to(folder.parent / "elsewhere" / "secret.parquet")
    with pytest.raises(WrongUse, match=r"theirs.parquet: is a symbolic link"):
        records_in("table")


@pytest.mark.covers("Q9")
def test_the_folder_itself_may_be_a_link(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder / "mine.csv", ROWS)
    (folder.parent / "link").symlink_to(folder)
    monkeypatch.setenv(FOLDER, str(folder.parent / "link"))
    assert records_in("mine.csv") == ranges(ROWS)


def test_the_folder_may_be_in_a_lake(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's own file system stands for a lake's: a copy is read, and an error names the file in the lake."""
    monkeypatch.setattr(record_files, "_LOCAL", "none://")
    monkeypatch.setenv(FOLDER, f"{folder.as_uri()}/")
    write(folder / "night" / "mine.csv", ROWS)
    write(folder / "mine.jsonl", ROWS)
    write(folder / "table" / "_day=1" / "mine.parquet", ROWS)
    write(folder / "table" / "_temporary" / "half.parquet", [("a", 1, 99)])
    for name in ("night/mine.csv", "mine.jsonl", "./table", "table/_day=1/mine.parquet"):
        assert records_in(name) == ranges(ROWS), name
    (folder / "wrong.csv").write_text(HEADER + "a,1,x\n")
    with pytest.raises(WrongUse, match=rf"^{re.escape(folder.as_uri())}/wrong.csv:2: expected an offset"):
        records_in("wrong.csv")
    (folder.parent / "secret.csv").write_text(HEADER + "a,1,2\n")
    for name in ("../secret.csv", "night/../../secret.csv", "/etc/passwd", ".", ".."):
        with pytest.raises(WrongUse, match="expected a file below the folder of TIDEMARK_SELECTIONS"):
            records_in(name)
    with pytest.raises(WrongUse, match="there is no such file"):
        records_in("none.csv")
    monkeypatch.setattr(record_files, "_MAX_COPIED", 50)
    for name in ("mine.jsonl", "table"):
        with pytest.raises(
            WrongUse, match=rf"records_file (\./)?{name}: has \d+ bytes, and up to 50 are copied from a lake"
        ):
            records_in(name)


def test_a_uri_of_this_machine_is_a_folder_of_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, folder.as_uri())
    write(folder / "mine.csv", ROWS)
    assert records_in("mine.csv") == ranges(ROWS)
    (folder / "link.csv").symlink_to(folder / "mine.csv")
    with pytest.raises(WrongUse, match="a symbolic link is on the way"):
        records_in("link.csv")


def test_what_is_no_file_is_refused(folder: Path) -> None:
    os.mkfifo(folder / "pipe.csv")
    (folder / "empty").mkdir()
    for name, said in {
        "none.csv": "there is no such file",
        "pipe.csv": "there is no such file",
        "empty": "the folder has no file that ends in .parquet",
    }.items():
        with pytest.raises(WrongUse, match=said):
            records_in(name)


def test_without_a_folder_no_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER, raising=False)
    with pytest.raises(WrongUse, match=r"records_file a.csv: no folder is set .* Set TIDEMARK_SELECTIONS where"):
        records_in("a.csv")


@pytest.mark.covers("U28", "Q26")
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("prefix", ["", "_"])
def test_a_table_says_which_incarnation_is_meant(folder: Path, name: str, prefix: str) -> None:
    """Tidemark's own files and exports have it: without it, another message of the same offset would be taken."""
    columns = {"topic": ["a", "a", "a"], "partition": [0, 0, 0], "offset": [5, 6, 7], "incarnation": [1, 2, None]}
    named = {f"{prefix}{column}": values for column, values in columns.items()}
    rows = [dict(zip(named, row, strict=True)) for row in zip(*named.values(), strict=True)]
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".csv":
        lines = [",".join("" if cell is None else str(cell) for cell in row.values()) for row in rows]
        path.write_text("\n".join([",".join(named), *lines]))
    elif path.suffix == ".parquet":
        pq.write_table(pa.table(named), path)
    else:
        path.write_text("\n".join(map(json.dumps, rows)))
    exact = [OffsetRange(TopicPartition("a", 0, 1), 5, 6), OffsetRange(TopicPartition("a", 0, 2), 6, 7)]
    wanted = NamedOffsets(RangeSet([OffsetRange(TopicPartition("a", 0), 7, 8)]), RangeSet(exact))
    assert records_in(name) == wanted
    assert parse_records(lines_of(path)) == wanted


@pytest.mark.parametrize("wrong", ["0", "x", "-1", "1.5", "99999999999"])
def test_a_wrong_incarnation_is_told_with_its_line(folder: Path, wrong: str) -> None:
    text = f"topic,partition,offset,incarnation\na,0,5,{wrong}\n"
    (folder / "a.csv").write_text(text)
    with pytest.raises(WrongUse, match=r"a\.csv:2: expected an incarnation of a topic"):
        records_in("a.csv")
    with pytest.raises(WrongUse, match=r"line 2: .* is not a coordinate"):
        parse_records(text)


# files that were made to do harm


def parquet(folder: Path, **columns: Any) -> str:
    pq.write_table(pa.table(columns), folder / "a.parquet", compression="zstd")
    return "a.parquet"


@pytest.mark.covers("Q29")
def test_a_small_file_that_repeats_a_large_text_is_not_read_whole(folder: Path) -> None:
    """6 KB, which would be 2 GB as Python's texts."""
    topics = pa.DictionaryArray.from_arrays(pa.array([0] * 2_000), pa.array(["a" * 1_000_000]))
    name = parquet(folder, topic=topics, partition=[0] * 2_000, offset=list(range(2_000)))
    assert (folder / name).stat().st_size < 50_000
    tracemalloc.start()
    with pytest.raises(
        WrongUse, match=r"a.parquet: column topic, after row 0: a text of 1000000 bytes, which is no name"
    ):
        records_in(name)
    assert tracemalloc.get_traced_memory()[1] < 20_000_000
    tracemalloc.stop()


@pytest.mark.covers("Q29")
def test_a_column_that_is_too_large_is_refused_by_the_footer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_files, "_MAX_OF_A_COLUMN", 1_000)
    name = parquet(folder, topic=["a"] * 2_000, partition=[0] * 2_000, offset=list(range(2_000)))
    with pytest.raises(
        WrongUse, match=r"a.parquet: the column offset has \d+ bytes in one row group, and may have 1000"
    ):
        records_in(name)


@pytest.mark.covers("Q29")
def test_a_damaged_footer_is_told_and_ends_no_process(folder: Path) -> None:
    """Arrow described a column of such a file with an exception in C++ that nobody caught: it ended Airflow's API."""
    path = folder / parquet(folder, topic=["a", "b"], partition=[0, 1], offset=[5, 6])
    whole = path.read_bytes()
    # The column is required now, and its sizes are those of an optional one.
    path.write_bytes(whole.replace(b"\x25\x02\x18\x06offset", b"\x25\x00\x18\x06offset"))
    with pytest.raises(WrongUse, match=r"a\.parquet: cannot be read: Definition level histogram size mismatch"):
        records_in(path.name)
    first = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    answers: Counter[str] = Counter()
    for at in range(first, len(whole)):
        for byte in {0, whole[at] ^ 1, 255}:
            path.write_bytes(whole[:at] + bytes([byte]) + whole[at + 1 :])
            try:
                records_in(path.name)
                answers["read"] += 1
            except WrongUse:
                answers["refused"] += 1
    assert answers["refused"] > 500


ONE = pa.array([1])


@pytest.mark.covers("Q29")
@pytest.mark.parametrize(
    "partition",
    [
        pa.array([2**62], pa.timestamp("us")),
        pa.array([2**62], pa.duration("us")),
        pa.array([2**30], pa.date32()),
        pa.array([2**62], pa.date64()),
        pa.array([1], pa.time32("s")),
        pa.array([b"1"]),
        pa.array([[1]]),
        pa.array([{"x": 1}]),
        pa.array([Decimal(1)]),
    ],
    ids=lambda one: str(one.type),
)
def test_a_column_of_another_type_is_refused_unread(folder: Path, partition: pa.Array) -> None:
    name = parquet(folder, topic=["a"], partition=partition, offset=ONE)
    with pytest.raises(WrongUse, match=r"a.parquet: the column partition is of the type .*; expected texts for topics"):
        records_in(name)


@pytest.mark.covers("Q29")
@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "topic,topic,partition,offset\na,b,0,1\n", "a.csv:1: the column topic stands there twice"),
        ("a.jsonl", '{"topic":"a","topic":"b","partition":0,"offset":1}', "a.jsonl:1: not JSON: the key topic stands"),
        ("a.jsonl", "[" * 200_000, "a.jsonl:1: not JSON: "),
        ("a.jsonl", '{"a":' * 50_000, "a.jsonl:1: not JSON: "),
        ("a.jsonl", '{"topic":"a","x":' + "[" * 900 + "]" * 900 + "}", "a.jsonl:1: "),
        ("a.jsonl", "[" * 900 + "]" * 900, "a.jsonl:1: "),
        ("a.jsonl", '{"topic":"a","partition":0,"offset":' + "9" * 6_000 + "}", "a.jsonl:1: not JSON: "),
        ("a.jsonl", " " * 4_000_001, "a.jsonl:1: the line has more than 4000000 characters"),
        ("a.csv", "topic,partition,offset\n\n" + "a" * 4_000_001 + ",0,1\n", "a.csv:3: the line has more than"),
        ("a.csv", ",".join(f"c{one}" for one in range(5_000)) + "\n", r"it has c0, .*, c19 and 4980 more$"),
        ("a.jsonl", '{"\\u001b[31m":1,"\\u202e":2}', r"it has \\x1b\[31m, \\u202e$"),
        ("a.csv", "c" * 300 + "\n", r"it has c{100}\.\.\.$"),
    ],
)
def test_a_file_that_was_made_to_do_harm_is_refused(folder: Path, name: str, text: str, said: str) -> None:
    (folder / name).write_text(text)
    with pytest.raises(WrongUse, match=said) as caught:
        records_in(name)
    assert len(str(caught.value)) < 3_000
    assert all(one.isprintable() for one in str(caught.value))


@pytest.mark.covers("Q29")
def test_a_column_of_a_parquet_file_stands_there_once(folder: Path) -> None:
    table = pa.Table.from_arrays(
        [pa.array(["a"]), pa.array(["b"]), ONE, ONE], ["topic", "topic", "partition", "offset"]
    )
    pq.write_table(table, folder / "a.parquet")
    with pytest.raises(WrongUse, match="the column topic stands there twice"):
        records_in("a.parquet")
    # A column within another one, and one that is called so.
    dotted = pa.Table.from_arrays(
        [pa.array([{"topic": "x"}]), pa.array(["y"]), pa.array(["a"]), ONE, ONE],
        ["s", "topic.x", "topic", "partition", "offset"],
    )
    pq.write_table(dotted, folder / "a.parquet")
    assert records_in("a.parquet") == ranges([("a", 1, 1)])


@pytest.mark.covers("Q29")
def test_a_damaged_parquet_file_is_records_or_refused(folder: Path) -> None:
    """Bytes that were changed, left out and cut off, most of them in the footer."""
    write(folder / "a.parquet", [(f"t{one % 7}", one % 3, one) for one in range(500)])
    good, draw, seen = (folder / "a.parquet").read_bytes(), random.Random(1), Counter[str]()
    for _ in range(400):
        made = bytearray(good)
        for _ in range(draw.randint(1, 6)):
            at, kind = draw.randrange(len(made)), draw.random()
            if kind < 0.5:
                made[at] = draw.randrange(256)
            elif kind < 0.7:
                del made[at : at + draw.randint(1, 50)]
            elif kind < 0.8:
                made = made[: at + 1]
            else:
                made[max(0, len(made) - draw.randint(1, 300))] = draw.randrange(256)
            made = made or bytearray(b"x")
        (folder / "a.parquet").write_bytes(made)
        try:
            records_in("a.parquet")
            seen["read"] += 1
        except WrongUse as problem:
            seen["refused" if len(str(problem)) < 3_000 else "long"] += 1
    assert seen["refused"] > 200
    assert not seen["long"]


@pytest.mark.covers("Q29")
@pytest.mark.parametrize(
    "log", ["[" * 100_000, '{"add":5}\n{"remove":[]}\n', "\x00", '{"add":{"path":"/etc/passwd"}}\n']
)
def test_a_delta_log_that_is_none_is_refused(folder: Path, log: str) -> None:
    (folder / "table" / "_delta_log").mkdir(parents=True)
    (folder / "table" / "_delta_log" / f"{0:020d}.json").write_text(log)
    with pytest.raises(WrongUse, match="the Delta table cannot be read"):
        records_in("table")


@pytest.mark.covers("Q29")
@pytest.mark.parametrize(
    "text",
    [
        "[" * 900 + "]" * 900,
        '["a",0,' + "[" * 900 + "]" * 900 + "]",
        '{"topic":"a","partition":0,"offset":' + '{"x":' * 900 + "1" + "}" * 901,
        '{"topic":"a","topic":"b","partition":0,"offset":1}',
        '{"a":' * 50_000,
        "topic,topic,partition,offset\na,b,0,1",
        '["a",0,' + "9" * 5_000 + "]",
        '["a",0,{}]',
        "[null]",
    ],
)
def test_records_of_a_form_that_were_made_to_do_harm_are_refused(text: str) -> None:
    with pytest.raises(WrongUse) as caught:
        parse_records(text)
    assert len(str(caught.value)) < 1_000
