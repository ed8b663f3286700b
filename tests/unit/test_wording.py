"""What a person reads of a wrong stream file: line, field, what was found, what is expected, and the nearest key."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.covering import REPOSITORY
from tests.support.stream_text import MINIMAL
from tidemark.errors import InvalidStreamFile
from tidemark.streams.loading import load

EXAMPLES = sorted((REPOSITORY / "dags" / "streams").glob("*.yaml"))
# The words of pydantic, of Python and of YAML's parser, which mean nothing to people who write a stream file.
_FOREIGN = re.compile(
    r"Input should|String should|Extra inputs|Field required|valid (?:tuple|dictionary|string)|Value error|pydantic|"
    r"using _|NoneType|\btuple\b|\bdict\b|byte string|block mapping"
)


def said(folder: Path, text: str) -> str:
    path = folder / "orders.yaml"
    path.write_text(text)
    with pytest.raises(InvalidStreamFile) as raised:
        load(path)
    return str(raised.value).replace(f"{folder}/", "")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("stream: orders", "stream: Orders", "1: stream: expected a name of small letters, digits and _, .*'Orders'"),
        ("stream: orders", "stream: my-orders", "1: stream: expected a name of small letters, .*found 'my-orders'"),
        ("stream: orders\n", "", "1: stream: this key is missing"),
        # The documents' links are words here, or go with the end of the sentence.
        (
            "type: json",
            "type: protobuf",
            "4: scheme.message: this key is missing. The full name of the message, as `shop.Order`. Any other is invalid",
        ),
        (
            "type: json\n  fields:\n    id: integer",
            "type: protobuf",
            r"scheme.fields: this key is missing. Fields of the message by name \(or another\), which it must have in one of "
            "these types. Its other fields are ignored",
        ),
        ("sinks:", "sink:", "this key is missing. Where rows go\n"),
        (
            "dead_letters:",
            "descripton: ours\ndead_letters:",
            r"11: descripton: unknown key \(did you mean description\?\)",
        ),
        ("dead_letters:", "dead_letter:", r"11: dead_letter: unknown key \(did you mean dead_letters\?\)"),
        ("topics:", "topic:", r"3: source.topic: unknown key \(did you mean topics\?\) \(found a list\)"),
        ("topics:", "bootstrap:", "3: source.bootstrap: unknown key; keys here are: kafka, topics, pattern, "),
        (
            "topics: [orders]",
            "topics: orders",
            r"3: source.topics: expected a list, .*found 'orders'\): write \[orders\]",
        ),
        (
            "topics: [orders]",
            "topics: [no]",
            r"3: source.topics.0: expected a text \(found False\): YAML takes yes, no, ",
        ),
        ("topics: [orders]", "topics: [5]", r"3: source.topics.0: expected a text \(found 5\): put it in quotes"),
        ("type: json", "type: thrift", "4: scheme: the type 'thrift' is unknown; types here are: regex, json, "),
        ("type: json", "type: jsn", r"4: scheme: the type 'jsn' is unknown \(did you mean json\?\)"),
        ("type: json", "kind: json", "4: scheme: expected a map with the key `type`, which says what this is"),
        (
            "id: integer",
            "no: integer",
            r"6: scheme.fields: a key: expected a text \(found False\): YAML takes yes, no, ",
        ),
        ("id: integer", "id: intger", r"7: scheme.fields.id: expected one of the types .* \(did you mean integer\?\)"),
        ("id: integer", "a.b: string", "7: scheme.fields.a.b: expected the name of a field: .*found 'a.b'"),
        ("    id: integer", "    - id", r"6: scheme.fields: expected a map of keys and values \(found a list\)"),
        ("    table: orders\n", "    tabel: orders\n", r"10: sinks.0.tabel: unknown key \(did you mean table\?\)"),
        (
            "    table: orders\n",
            "    table: /x\n",
            r"10: sinks.0.table: expected a table of HBase: letters, .*\(found '/x'\)",
        ),
        ("    table: orders\n", "\ttable: orders\n", "10: not YAML: .*YAML indents with spaces, never with tabs"),
        (
            "    table: orders\n",
            "     table: orders\n",
            "10: not YAML: .*begin in the same column|10: not YAML: .*a colon",
        ),
        ("dead_letters:", "ledger: {type: postgres}\ndead_letters:", "11: ledger: the type 'postgres' is unknown; "),
        ("dead_letters:", "ledger: hbase\ndead_letters:", "11: ledger: expected a map with the key `type`, .*'hbase'"),
        (
            "dead_letters:",
            "schedule: '@hourly'\ndead_letters:",
            "schedule: expected a map with keys among cron, timezone",
        ),
        (
            "dead_letters:",
            "guarantee: exactly_once\ndead_letters:",
            "guarantee: expected 'at_least_once', .*'exactly_once'",
        ),
        ("dead_letters:", "limits: {max_records: '5'}\ndead_letters:", "expected a whole number .* without quotes"),
        (
            "dead_letters:",
            "limits: {max_records: 0}\ndead_letters:",
            "limits.max_records: expected a number of at least 1",
        ),
        ("dead_letters:", "description: our: own\ndead_letters:", "a colon and a space in it has to stand in quotes"),
        ("dead_letters:", "description: @ours\ndead_letters:", "A text that begins with .* has to stand in quotes"),
        (
            "dead_letters:",
            "description: off\ndead_letters:",
            r"description: expected a text \(found False\): YAML takes ",
        ),
        # Rules about several parts of the file.
        ("dead_letters:", "retry: {limit: 3}\ndead_letters:", "11: retry: nothing of scheme json is tried again"),
        ("dead_letters:", "was: {x: y}\ndead_letters:", "11: was: the stream has no field x"),
        ("dead_letters:", "  - {type: hbase, table: two}\ndead_letters:", "8: sinks: two have the name 'hbase'"),
        (
            "dead_letters:",
            "  - {type: parquet, folder: a, partition_by: [country]}\ndead_letters:",
            "11: sinks.1: sink parquet names the field country",
        ),
        (
            "dead_letters:",
            "engine: {conf: {spark.x: 4}}\ndead_letters:",
            r"engine.conf.spark.x: .*\(found 4\): put it in ",
        ),
    ],
)
def test_a_mistake_is_said_in_the_words_of_its_field(folder: Path, old: str, new: str, expected: str) -> None:
    assert old in MINIMAL
    told = said(folder, MINIMAL.replace(old, new, 1))
    assert re.search(expected, told), told
    assert re.match(r"orders\.yaml:\d+: ", told)
    assert not _FOREIGN.search(told)


def test_marks_of_direction_and_control_characters_are_shown_by_their_numbers(folder: Path) -> None:
    told = said(folder, MINIMAL + "description: \u202eours: \u2066own\n")
    assert told.isprintable()
    assert not _FOREIGN.search(told)
    told = said(folder, MINIMAL + "\u202edescription: ours\n")
    assert r"\u202edescription: unknown key" in told


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        yield from places(below, (*at, key))


def changed(value: Any, at: tuple[Any, ...], to: Any) -> Any:
    found = copy.deepcopy(value)
    below = found
    for key in at[:-1]:
        below = below[key]
    below[at[-1]] = to
    return found


@pytest.mark.slow
@pytest.mark.parametrize("file", EXAMPLES, ids=lambda path: path.stem)
def test_whatever_stands_at_any_place_is_refused_in_our_words(folder: Path, file: Path) -> None:
    """Each value of the examples is replaced by values of two other kinds, in turn."""
    values = yaml.safe_load(file.read_text())
    refused = 0
    kinds: list[Any] = [None, True, -1, "a b", [None], {"x y": 1}]
    for number, at in enumerate(place for place in places(values) if place):
        for wrong in (kinds[number % 6], kinds[(number + 4) % 6]):
            path = folder / "orders.yaml"
            path.write_text(yaml.safe_dump(changed(values, at, wrong), sort_keys=False))
            try:
                load(path)
            except InvalidStreamFile as problem:
                refused += 1
                for line in str(problem).splitlines():
                    assert re.match(rf"{re.escape(str(path))}:\d+: [^:]", line), line
                    assert not _FOREIGN.search(line), line
    assert refused > 50


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path
