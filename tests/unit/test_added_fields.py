"""Fields added to a stream file: the new lines stand where a person would write them, and all others stay as they are."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.stream_text import MINIMAL
from tests.support.streams_in_memory import KafkaInMemory, StreamInMemory
from tidemark.cli.commands import fields as command
from tidemark.drafts.adding import with_fields
from tidemark.drafts.columns import Column
from tidemark.drafts.json_objects import unnamed
from tidemark.drafts.sampling import SampledMessage
from tidemark.errors import WrongUse
from tidemark.streams.loading import StreamFile, load, stream_files

LINES = "array<struct<sku:string,price:decimal(18,2)>>"
COLUMNS = [Column("paid", "boolean", 3, "true"), Column("on", "string", 2, "x"), Column("lines", LINES, 2, "[]")]
ADDED = {one.name: one for one in COLUMNS}
SCHEMES = {
    "lines": (
        "scheme:\n  type: json\n  fields:\n    id: integer  # the key\n    name: string\n  # all others\n  unknown: keep\n",
        "scheme:\n  type: json\n  fields:\n    id: integer  # the key\n    name: string\n"
        "    paid: boolean  # new\n    'on': string  # new\n    lines: 'LINES'  # new\n  # all others\n  unknown: keep\n",
    ),
    "flow": (
        "scheme: {type: json, fields: {id: integer, name: string}, unknown: keep}  # short\n",
        "scheme: {type: json, fields: {id: integer, name: string, paid: boolean, 'on': string, "
        "lines: 'LINES'}, unknown: keep}  # short\n",
    ),
    "several lines of flow": (
        "scheme:\n  type: json\n  fields: {\n    id: integer,\n    name: string,  # of the customer\n  }\n",
        "scheme:\n  type: json\n  fields: {\n    id: integer,\n    name: string, paid: boolean, 'on': string, "
        "lines: 'LINES',  # of the customer\n  }\n",
    ),
    "plain schema": (
        "scheme:\n  type: json\n  schema: id BIGINT, tags ARRAY<STRING>  # DDL\n",
        "scheme:\n  type: json\n  schema: id BIGINT, tags ARRAY<STRING>, `paid` BOOLEAN, `on` STRING, `lines` LINES  # DDL\n",
    ),
    "quoted schema": (
        'scheme:\n  type: json\n  schema: "id BIGINT, `order` STRING"\n',
        'scheme:\n  type: json\n  schema: "id BIGINT, `order` STRING, `paid` BOOLEAN, `on` STRING, `lines` LINES"\n',
    ),
    "schema in lines": (
        "scheme:\n  type: json\n  schema: |\n    id BIGINT,\n    name STRING\n\n  # all others\n  unknown: keep\n",
        "scheme:\n  type: json\n  schema: |\n    id BIGINT,\n    name STRING,\n    `paid` BOOLEAN,\n    `on` STRING,\n"
        "    `lines` LINES\n\n  # all others\n  unknown: keep\n",
    ),
}
HEAD, _, REST = MINIMAL.partition("scheme:\n")
BEHIND = REST[REST.index("sinks:") :]


@pytest.mark.covers("N111")
@pytest.mark.parametrize("form", SCHEMES)
@pytest.mark.parametrize("last", [False, True])
def test_fields_are_added_and_nothing_else_changes(form: str, last: bool, tmp_path: Path) -> None:
    before, wanted = (one.replace("LINES", LINES) for one in SCHEMES[form])
    # The scheme may end the file, and the file without a line end.
    text, whole = (
        (HEAD + BEHIND + before.rstrip("\n"), HEAD + BEHIND + wanted.rstrip("\n"))
        if last
        else (HEAD + before + BEHIND, HEAD + wanted + BEHIND)
    )
    added = with_fields(text, ADDED, "new")
    assert added.rstrip("\n") == whole.rstrip("\n")
    path = tmp_path / "orders.yaml"
    path.write_text(added)
    fields = load(path).stream.fields
    assert [name for name in fields if name != "unknown"][-3:] == ["paid", "on", "lines"]


@pytest.mark.covers("N111")
def test_what_is_written_otherwise_is_written_by_hand() -> None:
    with pytest.raises(WrongUse, match="neither fields nor a schema of its own in this file: write it by hand"):
        with_fields(HEAD + "scheme: &json\n  type: json\n" + BEHIND, ADDED, "new")
    commented = "scheme:\n  type: json\n  schema: |\n    id BIGINT -- the key\n"
    with pytest.raises(WrongUse, match="the schema has comments of its own: write it by hand"):
        with_fields(HEAD + commented + BEHIND, ADDED, "new")


@pytest.mark.covers("N111")
def test_a_folder_where_nothing_can_be_written_is_named(tmp_path: Path) -> None:
    away = tmp_path / "away" / "orders.yaml"
    path = tmp_path / "orders.yaml"
    path.write_text(MINIMAL)
    stream = load(path).stream
    for write in (lambda: command._check(away, MINIMAL, stream, {}), lambda: command._replace(away, MINIMAL)):
        with pytest.raises(
            WrongUse, match=r"orders\.yaml was left as it is: No such file .* let this user write it, and in .*/away"
        ):
            write()


@pytest.mark.covers("N111")
def test_a_change_of_anything_else_is_refused_and_no_draft_is_a_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fields that stand there for two parts by an anchor; and who reads the folder meanwhile sees one stream."""
    path = tmp_path / "orders.yaml"
    shared = "scheme:\n  type: json\n  fields: &of_all\n    id: integer\n"
    asserted = f"transform:\n  function: nowhere:rows\n  fields: *of_all\n{BEHIND}"
    path.write_text(HEAD + shared + asserted)
    before, seen = load(path).stream, []
    text = with_fields(path.read_text(), ADDED, "new")

    def looking(draft: Path) -> StreamFile:
        seen.append(stream_files(tmp_path))
        return load(draft)

    monkeypatch.setattr(command, "load", looking)
    with pytest.raises(WrongUse, match=r"orders\.yaml: the fields are written in a way .* write them by hand"):
        command._check(path, text, before, {one: one for one in ADDED})
    assert seen == [[path]]


@pytest.mark.covers("N111")
def test_a_linked_file_keeps_its_link_its_owner_and_its_line_ends(tmp_path: Path) -> None:
    kept, path = tmp_path / "kept" / "orders.yaml", tmp_path / "orders.yaml"
    kept.parent.mkdir()
    before, wanted = (one.replace("LINES", LINES) for one in SCHEMES["lines"])
    kept.write_bytes((HEAD + before + BEHIND).replace("\n", "\r\n").encode())
    if os.geteuid() == 0:
        os.chown(kept, 1234, 1235)
    known = kept.stat()
    path.symlink_to(kept)
    # The folder of the link may be on another disk, or one that nobody writes in.
    command._replace(path, with_fields(path.read_bytes().decode(), ADDED, "new"))
    assert path.is_symlink()
    assert kept.read_bytes().decode() == (HEAD + wanted + BEHIND).replace("\n", "\r\n")
    assert (kept.stat().st_uid, kept.stat().st_gid, kept.stat().st_mode) == (known.st_uid, known.st_gid, known.st_mode)
    assert [one.name for one in kept.parent.iterdir()] == ["orders.yaml"]


@pytest.mark.covers("N111")
def test_a_topic_that_is_empty_or_gone_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = {"empty": [(3, 3)], "orders": [(3, 3), (3, 9)]}
    made = StreamInMemory(tmp_path, kafka=KafkaInMemory(logs))
    monkeypatch.setattr(command, "topics_now", lambda opened: ("empty", "gone", "orders"))
    monkeypatch.setattr(command, "newest", lambda log, topic, most: [SampledMessage(f"{topic} of {most}", b"{}")])
    assert command._values(made.opened, 10) == [b"{}"]
    del logs["orders"]
    with pytest.raises(WrongUse, match="the stream's topics have no messages: produce some"):
        command._values(made.opened, 10)


@pytest.mark.covers("N111")
def test_keys_that_few_messages_have_are_not_shown() -> None:
    values = [b'{"id": 1}'] * 150 + [b'{"id": 1, "once": 1, "ID": 2}', *[b'{"id": 1, "twice": 1}'] * 2]
    assert [*unnamed(values, ["id"], ["id"])] == ["twice"]


@pytest.mark.covers("N111")
def test_keys_that_are_not_named_have_the_type_that_fits() -> None:
    values = [{"id": 1, "Name": "a", "paid": True, "more": {"a": 1}, "a b": 1}, {"id": 2, "on": "x", "no": None}]
    found = unnamed([*(json.dumps(one).encode() for one in values), b"no JSON"], ["id", "name"], ["id", "name"])
    assert [(key, one.name, one.type, one.values) for key, one in found.items()] == [
        ("Name", "Name_2", "string", 1),
        ("paid", "paid", "boolean", 1),
        ("more", "more", "struct<a:bigint>", 1),
        ("a b", "a_b", "integer", 1),
        ("on", "on", "string", 1),
    ]


@pytest.mark.covers("N111")
@pytest.mark.parametrize("form", ["lines", "flow"])
def test_a_key_that_no_field_can_be_named_as_has_another_name(form: str, tmp_path: Path) -> None:
    """Also one that differs from a field in case alone."""
    before, _ = SCHEMES[form]
    path = tmp_path / "orders.yaml"
    path.write_text(HEAD + before + BEHIND)
    stream = load(path).stream
    value = json.dumps({"id": 1, "ID": 2, "@at": "2026-11-21T07:10:00Z", "a, b": {"c": 1}}).encode()
    found = unnamed([value] * 3, ["id", "name"], stream.scheme.fields)
    text = with_fields(path.read_text(), found, "new")
    named = {"ID_2": "ID", "at": "@at", "a_b": "a, b"}
    command._check(path, text, stream, named)
    path.write_text(text)
    scheme = load(path).stream.scheme
    assert {name: scheme.source_of(name) for name in [*scheme.own_fields()][2:5]} == named
    assert [*scheme.own_fields().values()][2:5] == ["integer", "timestamp", "struct<c:bigint>"]
