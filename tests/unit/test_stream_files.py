"""Stream files: what is refused, and that the message names file, line, field and what was expected."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.command_line import tidemark
from tests.support.covering import REPOSITORY
from tests.support.stream_text import MINIMAL
from tidemark.cli.app import app
from tidemark.errors import InvalidStreamFile, WrongUse
from tidemark.plugin.streams import StreamCache
from tidemark.schemes.kinds import RegexScheme
from tidemark.streams.loading import load, stream_files
from tidemark.streams.source import Source

EXAMPLE = REPOSITORY / "dags" / "streams" / "cdn_logs.yaml"


def loaded(tmp_path: Path, text: str) -> Any:
    path = tmp_path / "orders.yaml"
    path.write_text(text)
    return load(path)


@pytest.mark.parametrize(
    "start",
    [
        "2026-11-21T07:00:00Z",
        "'2026-11-21T08:00:00+01:00'",
        "{time: 2026-11-21 07:00:00Z, if_none: end}",
        "{time: '2026-11-21T07:00:00Z'}",
    ],
)
def test_a_stream_may_start_at_a_time(tmp_path: Path, start: str) -> None:
    source = loaded(tmp_path, MINIMAL.replace("topics: [orders]", f"topics: [orders]\n  start: {start}")).stream.source
    assert source.start.time == datetime(2026, 11, 21, 7, tzinfo=UTC)
    assert source.start.if_none == ("end" if "end" in start else "fail")


def test_a_stream_may_start_at_offsets(tmp_path: Path) -> None:
    start = "{offsets: {orders/10: 0, orders/9: 7}, others: latest}"
    source = loaded(tmp_path, MINIMAL.replace("topics: [orders]", f"topics: [orders]\n  start: {start}")).stream.source
    assert source.start.offsets == {"orders/10": 0, "orders/9": 7}
    assert source.start.others == "latest"


@pytest.mark.covers("N92")
@pytest.mark.parametrize("number", ["010", "-010", "1:30", "1_000", "0x1F", "0b11", "1:30.5", "1_0.5"])
def test_a_number_that_yaml_takes_for_another_one_is_refused(tmp_path: Path, number: str) -> None:
    """YAML 1.1, which PyYAML reads, has octal, sexagesimal and other numbers; in YAML 1.2 and in JSON they are texts."""
    said = rf"orders\.yaml:15: limits\.max_records: {re.escape(number)} is another number in YAML than it looks like"
    with pytest.raises(InvalidStreamFile, match=said):
        loaded(tmp_path, f"{MINIMAL}limits:\n  max_records: {number}\n")
    partitions = MINIMAL.replace("topics: [orders]", f"partitions: {{orders: [1, {number}]}}")
    assert partitions != MINIMAL
    with pytest.raises(InvalidStreamFile, match=r"source\.partitions\.orders\.1: "):
        loaded(tmp_path, partitions)


@pytest.mark.parametrize("number", ["0", "10", "+10", "1000"])
def test_a_plain_number_is_that_number(tmp_path: Path, number: str) -> None:
    partitions = MINIMAL.replace("topics: [orders]", f"partitions: {{orders: [1, {number}]}}")
    assert loaded(tmp_path, partitions).stream.source.partitions == {"orders": (1, int(number))}
    # A text in quotes is a text.
    topic = MINIMAL.replace("topics: [orders]", "topics: ['010']")
    assert loaded(tmp_path, topic).stream.source.topics == ("010",)


def test_the_key_null_needs_no_quotes(tmp_path: Path) -> None:
    """YAML takes it for nothing; in a stream file all keys are texts."""
    old = MINIMAL[MINIMAL.index("scheme:") : MINIMAL.index("sinks:")]
    for null in ("null", "'null'"):
        new = f'scheme:\n  type: delimited\n  fields: {{id: integer}}\n  {null}: ["-", "\\\\N"]\n'
        assert loaded(tmp_path, MINIMAL.replace(old, new)).stream.scheme.nulls == ("-", "\\N")
    with pytest.raises(InvalidStreamFile, match=r"scheme.fields: a key: expected a text \(found nothing\)"):
        loaded(tmp_path, MINIMAL.replace("id: integer", "~: integer"))


@pytest.mark.covers("E24")
@pytest.mark.parametrize(
    ("start", "said"),
    [
        (
            "1795244400",
            "source.start: a number is not taken as a time: 2026-11-21T07:00:00Z if it is seconds "
            "and 1970-01-21T18:40:44Z if it is milliseconds; write the time itself",
        ),
        ("{time: 1795244400000}", "2026-11-21T07:00:00Z if it is milliseconds"),
        ("2026-11-21T07:00:00", "source.start: expected a time with its zone"),
        ("'7 o''clock'", "source.start: expected earliest, latest, a time with its zone"),
        ("{offsets: {orders: 5}}", "source.start.offsets"),
        ("{offsets: {orders/0: -1}}", "at least 0"),
        ("{offsets: {other/0: 1}}", "start.offsets names other, which is not among the topics"),
        ("{offsets: {}}", "source.start.offsets: expected 1 or more entries"),
        ("{until: 3}", "source.start"),
    ],
)
def test_a_start_that_means_nothing_is_refused(tmp_path: Path, start: str, said: str) -> None:
    with pytest.raises(InvalidStreamFile) as caught:
        loaded(tmp_path, MINIMAL.replace("topics: [orders]", f"topics: [orders]\n  start: {start}"))
    assert said in str(caught.value)


def test_the_example_is_valid() -> None:
    stream = load(EXAMPLE).stream
    assert stream.source.topics == ("cdn-logs",)
    assert list(stream.scheme.fields) == [
        *("clientip", "time", "method", "host", "path", "protocol", "protocol-version", "code", "size", "dltime")
    ]
    assert list(stream.fields) == [*stream.scheme.fields, "minute"]
    assert [sink.name for sink in stream.sinks] == ["hbase", "parquet", "hbase_aggregates", "kafka"]


@pytest.mark.covers("S12")
def test_a_minimal_file_has_defaults_and_a_digest(tmp_path: Path) -> None:
    first = loaded(tmp_path, MINIMAL)
    assert first.stream.source.start == "earliest"
    assert first.stream.source.isolation == "read_committed"
    assert first.digest != loaded(tmp_path, MINIMAL + "description: other\n").digest


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("stream: orders", "stream: Orders"), r"orders.yaml:1: stream: .*expected a"),
        (("  topics: [orders]", "  topics: []"), r"orders.yaml:3: source.topics: .*1 or more entries"),
        (("  topics: [orders]", "  topics: [a, a]"), r"orders.yaml:2: source: a topic is named twice"),
        (
            ("  topics: [orders]", "  topics: ['a b']"),
            r"orders.yaml:3: source.topics.0: expected the name of .*'a b'",
        ),
        (("  topics: [orders]", "  topic: orders"), r"orders.yaml:3: source.topic: unknown key"),
        (
            ("  topics: [orders]", "  start: latest"),
            r"orders.yaml:2: source: expected one of .*, found none of them",
        ),
        (
            ("  topics: [orders]", "  topics: [orders]\n  pattern: o.*"),
            r"source: expected one of .*, found topics and pattern",
        ),
        (("  topics: [orders]", "  topics: [orders]\n  exclude: [o.*]"), r"source: exclude goes with pattern"),
        (("  topics: [orders]", "  pattern: '('"), r"orders.yaml:3: source.pattern: not a regular expression"),
        (("  topics: [orders]", "  partitions: {orders: []}"), r"source.partitions.orders: .*1 or more entries"),
        (("  topics: [orders]", "  partitions: {orders: [0, 0]}"), r"source: partitions: one of orders is named twice"),
        (
            ("  topics: [orders]", "  topics: [orders]\n  end: earliest"),
            r"orders.yaml:4: source.end: unknown key",
        ),
        (
            ("  topics: [orders]", "  topics: [orders]\n  by_topic: {other: {on_deleted: leave}}"),
            r"source: by_topic names other, which is not among the topics",
        ),
        (
            ("  topics: [orders]", "  topics: [orders]\n  on_recreated: always"),
            r"orders.yaml:4: source.on_recreated: expected 'fail' or 'accept'",
        ),
        (
            ("  topics: [orders]", "  topics: [orders]\n  start: first"),
            r"orders.yaml:4: source.start: expected earliest, latest, a time with its zone .*'first'",
        ),
        (("    id: integer", "    id: numeral"), r"orders.yaml:7: scheme.fields.id: .*bigint.*'numeral'"),
        (
            ("  type: json", "  type: xml"),
            r"orders.yaml:4: scheme: the type 'xml' is unknown; types here are: regex, json, ",
        ),
        (("    table: orders", "    table: orders_dead"), r"'orders_dead' is named for two purposes"),
        (
            ("    table: orders\ndead", "    table: tidemark_ledger\nledger: {type: hbase}\ndead"),
            r"'tidemark_ledger' is named for two purposes",
        ),
        (
            ("    table: orders\ndead", "    table: stream_kafka_offsets\nledger: {type: hbase}\ndead"),
            r"'stream_kafka_offsets' is named for two purposes",
        ),
        (("dead_letters:", "unknown: 1\ndead_letters:"), r"orders.yaml:11: unknown: unknown key"),
        (("    table: orders\n", "    table: orders\n    table: b\n"), r"orders.yaml:11: table: .*a second time"),
        (("stream: orders", "stream: [1"), r"orders.yaml:2: not YAML: expected .* but got ':'"),
        (("    table: orders\n", "    table: orders\n  - type: hbase\n    table: b\n"), r"two have the name 'hbase'"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    with pytest.raises(InvalidStreamFile, match=said):
        loaded(tmp_path, MINIMAL.replace(*change))


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (r'engine: {conf: {"a\r\x1e\n\0": ""}}', r":14: engine\.conf\.a\\r\\x1e\\n\\x00: expected "),
        (r'"a\nb": 1', r":14: a\\nb: unknown key.*\(found 1\)"),
        ('"a\\nb": 1\n"a\\nb": 2', r":15: a\\nb: the key stands here a second time"),
    ],
)
def test_each_mistake_has_one_line_whatever_characters_its_key_has(tmp_path: Path, part: str, said: str) -> None:
    with pytest.raises(InvalidStreamFile, match=said) as caught:
        loaded(tmp_path, MINIMAL + part)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("schedule:\n  cron: every day", r":16: schedule.cron: expected five columns \(minute, .*found 'every day'"),
        ("schedule:\n  cron: 61 * * * *", r":16: schedule.cron: not a cron expression \(.*out of range"),
        ("schedule:\n  cron: 0 0 30 2 *", r":16: schedule.cron: this time never comes"),
        ("schedule:\n  cron: R * * * *", r":16: schedule.cron: a random time"),
        ("schedule:\n  cron: '@once'", r":16: schedule.cron: expected five columns .*or one of @hourly, "),
        ("schedule:\n  cron: 0 * * * * *", r":16: schedule.cron: expected five columns"),
        ("schedule:\n  timezone: Europe/Atlantis", r":16: schedule.timezone: not a time zone; .*'Europe/Atlantis'"),
        ("schedule:\n  timezone: Europe", r":16: schedule.timezone: not a time zone"),
        ("audit:\n  cron: every night", r":16: audit.cron: expected five columns .*found 'every night'"),
        (
            "audit:\n  after_commit: some",
            r":16: audit.after_commit: .*'ledger', 'source', 'sinks', 'full' or 'recompute'",
        ),
        ("audit:\n  hours: 0", r":16: audit.hours: .*at least 1"),
        ("engine:\n  retry_delay_seconds: 99999999999999", r":16: engine.retry_delay_seconds: .*at most 604800"),
        ("engine:\n  timeout_minutes: 99999999999999", r":16: engine.timeout_minutes: .*at most 44640"),
        ("engine:\n  replay_timeout_minutes: 0", r":16: engine.replay_timeout_minutes: .*at least 1"),
        ("engine:\n  pool: ''", r":16: engine.pool: .*1 or more characters"),
        ("engine:\n  replay_pool: ''", r":16: engine.replay_pool: .*1 or more characters"),
        ('description: "\\0"', r":15: description: .*expected a"),
    ],
)
def test_what_airflow_could_not_build_a_dag_from_is_named_with_its_line(tmp_path: Path, part: str, said: str) -> None:
    with pytest.raises(InvalidStreamFile, match=f"orders.yaml{said}"):
        loaded(tmp_path, f"{MINIMAL}\n{part}\n")


@pytest.mark.parametrize(
    "cron", ["@quarterly", "0 0 29 2 *", "*/5 8-18 * JAN-jun mon-fri", "0 6 L * *", "0 0 * * fri#2"]
)
def test_what_airflow_reads_as_a_schedule_is_one(tmp_path: Path, cron: str) -> None:
    for zone in ("UTC", "utc", "Asia/Kathmandu"):
        schedule = f"schedule: {{cron: '{cron}', timezone: {zone}}}\n"
        assert loaded(tmp_path, MINIMAL + schedule).stream.schedule.cron == cron


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("    table: orders\n", "    table: {{ params.table }}\n"), r"orders.yaml:10: a map stands .*in quotes"),
        (("    table: orders\n", "    ? [a, b]\n    : 1\n"), r"orders.yaml:10: a list stands .*in quotes"),
        (("dead_letters:", "x: &a [*a]\ndead_letters:"), r"orders.yaml:11: x: unknown key"),
        (("  topics: [orders]", "  topics: &a [*a]"), r"orders.yaml:3: source.topics.0: expected a text"),
        (("stream: orders", f"stream: {'[' * 3000}{']' * 3000}"), r"orders.yaml: brackets .*deeper"),
        (("stream: orders", "stream: !!bool orders"), r"orders.yaml:1: not YAML: a value is not what .* in quotes"),
        (
            ("stream: orders", "stream: !!timestamp orders"),
            r"orders.yaml:1: not YAML: a value is not what .* in quotes",
        ),
    ],
)
def test_what_only_yaml_takes_is_refused_too(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    with pytest.raises(InvalidStreamFile, match=said):
        loaded(tmp_path, MINIMAL.replace(*change))


def test_aliases_of_aliases_do_not_hold_up_the_reading(tmp_path: Path) -> None:
    """Each list has the one before it ten times: written out, they would be 10 to the 40th values."""
    lists = "".join(f"x{number}: &x{number} [{', '.join([f'*x{number - 1}'] * 10)}]\n" for number in range(1, 41))
    with pytest.raises(InvalidStreamFile, match="x40: unknown key"):
        loaded(tmp_path, f"x0: &x0 [a]\n{lists}{MINIMAL}")


def test_every_mistake_is_named_at_once(tmp_path: Path) -> None:
    wrong = MINIMAL.replace("stream: orders", "stream: 5").replace("id: integer", "id: numeral")
    with pytest.raises(InvalidStreamFile) as caught:
        loaded(tmp_path, wrong)
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize("text", ["", "- a\n", "5\n"])
def test_what_is_not_a_map_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidStreamFile, match="expected a map"):
        loaded(tmp_path, text)


@pytest.mark.parametrize(
    ("given", "number", "share"),
    [
        ("{number: 0}", 0, None),
        ("{share: 0}", None, 0.0),
        ("{share: 1}", None, 1.0),
        ("{number: 20, share: 0.05}", 20, 0.05),
    ],
)
def test_an_error_budget_is_a_number_a_share_or_both(
    tmp_path: Path, given: str, number: int | None, share: float | None
) -> None:
    limits = loaded(tmp_path, f"{MINIMAL}limits:\n  max_invalid: {given}\n").stream.limits
    assert (limits.max_invalid.number, limits.max_invalid.share) == (number, share)
    assert loaded(tmp_path, MINIMAL).stream.limits.max_invalid is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("{}", "give `number`, `share` or both"),
        ("{number: -1}", "max_invalid.number: .*at least 0"),
        ("{number: 2.5}", "max_invalid.number"),
        ("{share: 1.01}", "max_invalid.share: .*at most 1"),
        ("{share: .nan}", "max_invalid.share: .*finite number"),
        ("{share: 5%}", "max_invalid.share: expected a number"),
        ("20", "limits.max_invalid"),
        ("{percent: 5}", "max_invalid.percent: unknown key"),
    ],
)
def test_an_error_budget_that_means_nothing_is_refused(tmp_path: Path, given: str, said: str) -> None:
    with pytest.raises(InvalidStreamFile, match=said):
        loaded(tmp_path, f"{MINIMAL}limits:\n  max_invalid: {given}\n")


def test_an_error_budget_needs_a_commit_after_the_reading(tmp_path: Path) -> None:
    limited = f"{MINIMAL}limits:\n  max_invalid: {{number: 5}}\n"
    with pytest.raises(
        InvalidStreamFile, match=r"limits\.max_invalid: under at_most_once a window is committed before"
    ):
        loaded(tmp_path, f"{limited}guarantee: at_most_once\n")


def test_the_connection_of_the_ledger_is_one_of_the_streams(tmp_path: Path) -> None:
    said = f"{MINIMAL}ledger: {{type: zookeeper, zookeeper: ours}}\n"
    assert loaded(tmp_path, said).stream.connections() == {"kafka_default", "hbase_default", "ours"}


KAFKA = MINIMAL.replace("    table: orders\n", "    table: orders\n  - {type: kafka, SAID}\n")


def with_kafka(tmp_path: Path, said: str) -> Any:
    return loaded(tmp_path, KAFKA.replace("SAID", said)).stream


def test_a_sink_in_kafka(tmp_path: Path) -> None:
    stream = with_kafka(tmp_path, "topic: out, key: id, settings: {compression.type: gzip, linger.ms: 5, acks: all}")
    assert (stream.sinks[1].name, stream.sinks[1].targets(), stream.sinks[1].value) == ("kafka", ("out",), None)
    assert stream.sinks[1].settings.compression_type == "gzip"
    assert stream.connections() == {"hbase_default", "kafka_default", "sql_default"}
    chosen = with_kafka(tmp_path, "topic_field: id, topics: [a, b], topic: rest, key: _key, kafka: other")
    assert chosen.sinks[1].targets() == ("a", "b", "rest")
    assert "other" in chosen.connections()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("key: id", "expected topic, or topic_field with topics"),
        ("topic_field: id", "topic_field and topics go together"),
        ("topic: a, topics: [b]", "topic_field and topics go together"),
        ("topic_field: id, topics: [a, a]", "topics: one is named twice"),
        ("topic: __consumer_offsets", "__consumer_offsets is not a topic to write to"),
        ("topic: orders", "sink kafka writes to orders, which this stream reads"),
        ("topic_field: id, topics: [a, orders]", "writes to orders, which this stream reads"),
        ("topic: a, key: customer", "names the field customer, which the stream does not have"),
        ("topic: a, value: customer", "names the field customer"),
        ("topic_field: customer, topics: [a]", "names the field customer"),
        ("topic: a, key: _value", "key: expected the name of a field, or _key"),
        ("topic: a}\n  - {type: kafka, name: more, topic: a", "topic a is named by two sinks"),
    ],
)
def test_a_sink_in_kafka_that_cannot_be_is_refused(tmp_path: Path, said: str, why: str) -> None:
    with pytest.raises(InvalidStreamFile, match=why):
        with_kafka(tmp_path, said)


FILES = MINIMAL.replace(
    "    id: integer\n", "    id: integer\n    at: timestamp\n    by_id: string\n    of: double\n"
).replace("    table: orders\n", "    table: orders\n  - {type: parquet, folder: orders, SAID}\n")


def test_a_sink_of_files(tmp_path: Path) -> None:
    said = "partition_by: [by_id, date(at), hour(at)], compression: zstd"
    sink = loaded(tmp_path, FILES.replace("SAID", said)).stream.sinks[1]
    assert [key.column for key in sink.folder_keys()] == ["by_by_id", "by_date_at", "by_hour_at"]
    assert sink.compression == "zstd"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("partition_by: [day(at)]", r"'day\(at\)': expected a field, or date\(field\) or hour\(field\)"),
        ("partition_by: ['a/b']", "expected a field"),
        ("partition_by: [customer]", "names the field customer, which the stream does not have"),
        ("partition_by: [date(by_id)]", r"date\(by_id\) needs a timestamp, and by_id is of type string"),
        ("partition_by: [at]", r"at is of type timestamp; partition_by takes date\(at\) and hour\(at\)"),
        ("partition_by: [of]", "of is of type double; partition_by takes boolean, date, int, integer, string"),
        ("partition_by: [id]", "folders by_id=... would have the name of a field"),
        ("partition_by: [by_id, by_id]", "two of them would be the folders by_by_id=..."),
        ("compression: lzo", "compression"),
        ("name: more}\n  - {type: parquet, folder: orders", "folder 'orders' is named by two sinks"),
        (
            "name: more}\n  - {type: parquet, folder: orders/lane=ingest",
            "folder 'orders/lane=ingest' of sink parquet meets folder 'orders' of sink more: .* within the other",
        ),
        (
            "name: more}\n  - {type: delta, folder: Orders",
            "folder 'Orders' of sink delta meets folder 'orders' of sink more: .* differ in case alone",
        ),
    ],
)
def test_a_sink_of_files_that_cannot_be_is_refused(tmp_path: Path, said: str, why: str) -> None:
    with pytest.raises(InvalidStreamFile, match=why):
        loaded(tmp_path, FILES.replace("SAID", said))


TWO_FIELDS = MINIMAL.replace("    id: integer\n", "    id: integer\n    paid: boolean\n")


@pytest.mark.covers("N87")
def test_what_cannot_be_decompressed_by_its_stream_file(tmp_path: Path) -> None:
    assert loaded(tmp_path, f"{MINIMAL}decompress: gzip\n").stream.decompress == "gzip"
    with pytest.raises(InvalidStreamFile, match=r"decompress: expected .*gzip.*zstd.*snappy.*\(found 'zip'\)"):
        loaded(tmp_path, f"{MINIMAL}decompress: zip\n")
    others = {
        "avro\n  registry: ours": "with a registry",
        "json\n  wire_format: confluent": "with a registry",
        "function\n  function: shop.orders:order": "a function of your own",
    }
    for kind, said in others.items():
        with pytest.raises(InvalidStreamFile, match=f"decompress: {said}"):
            loaded(tmp_path, f"{MINIMAL.replace('type: json', f'type: {kind}')}decompress: gzip\n")


@pytest.mark.slow
@pytest.mark.covers("N110")
def test_a_check_says_that_no_json_schema_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "orders.yaml"
    for scheme, said in (("json", False), ("json\n  wire_format: confluent", True)):
        path.write_text(MINIMAL.replace("type: json", f"type: {scheme}"))
        told = tidemark("streams", "check", str(path))[1]
        assert ("scheme.wire_format: the registry's JSON schemas are not asked for" in told) is said


@pytest.mark.covers("N86")
def test_a_table_in_a_namespace_has_one_name(tmp_path: Path) -> None:
    def in_table(name: str) -> Any:
        return loaded(tmp_path, MINIMAL.replace("table: orders\n", f"table: {name}\n")).stream.sinks[0]

    assert in_table("reports:orders").table == "reports:orders"
    assert in_table("default:orders").table == "orders"
    for name, said in (
        ("hbase:meta", "hbase:meta is one of HBase's own tables"),
        ("default:orders_dead", "'orders_dead' is named for two purposes"),
        ("a:b:c", "with its namespace if it has one: reports:orders"),
        (":orders", "with its namespace if it has one: reports:orders"),
    ):
        with pytest.raises(InvalidStreamFile, match=said):
            in_table(f"'{name}'")


def test_how_a_table_is_made(tmp_path: Path) -> None:
    made = loaded(tmp_path, TWO_FIELDS.replace("table: orders\n", "table: orders\n    columns: {id: number}\n")).stream
    assert (made.sinks[0].columns, made.sinks[0].packed, made.sinks[0].regions) == ({"id": "number"}, False, 1)
    made = loaded(
        tmp_path, TWO_FIELDS.replace("table: orders\n", "table: orders\n    packed: true\n    regions: 8\n")
    ).stream
    assert (made.sinks[0].columns, made.sinks[0].packed, made.sinks[0].regions) == ({}, True, 8)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("columns: {customer: c}", "columns names customer, which the stream does not have"),
        ("columns: {id: paid}", "two fields would be in the column paid"),
        ("columns: {id: _packed}", "columns.id: .*_packed is one of Tidemark's own names"),
        ("columns: {id: n}\n    packed: true", "packed and columns exclude each other"),
        ("regions: 5", "regions: "),
    ],
)
def test_a_table_that_cannot_be_made_is_refused(tmp_path: Path, said: str, why: str) -> None:
    with pytest.raises(InvalidStreamFile, match=why):
        loaded(tmp_path, TWO_FIELDS.replace("table: orders\n", f"table: orders\n    {said}\n"))


LATEST = MINIMAL.replace("    table: orders\n", "    table: orders\n  - {type: hbase_latest, folder: newest, SAID}\n")


def test_a_sink_with_the_newest_value_of_each_key(tmp_path: Path) -> None:
    stream = loaded(tmp_path, LATEST.replace("SAID", "table: state, key: id, hbase: other")).stream
    assert (stream.sinks[1].name, stream.sinks[1].key, stream.sinks[1].regions) == ("hbase_latest", ("id",), 1)
    assert stream.connections() == {"hbase_default", "kafka_default", "lake_default", "other", "sql_default"}
    assert loaded(tmp_path, LATEST.replace("SAID", "table: state, key: [id], regions: 4")).stream.sinks[1].regions == 4


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("table: state", "key: "),
        ("table: state, key: []", "key: .*1 or more entries"),
        ("table: state, key: [id, id]", "a field is named twice"),
        ("table: state, key: customer", "names the field customer, which the stream does not have"),
        ("table: state, key: id, regions: 3", "regions: "),
        ("table: orders, key: id", "table 'orders' is named for two purposes"),
        (
            "table: state, key: id}\nguarantee: none\nlimits: {",
            "with guarantee none, what a window has written is not known",
        ),
    ],
)
def test_a_sink_by_key_that_cannot_be_is_refused(tmp_path: Path, said: str, why: str) -> None:
    with pytest.raises(InvalidStreamFile, match=why):
        loaded(tmp_path, LATEST.replace("SAID", said))


AGGREGATED = TWO_FIELDS.replace(
    "    table: orders\n", "    table: orders\n  - {type: hbase_aggregates, table: sums, folder: sums, SAID}\n"
)


def test_a_sink_with_aggregates(tmp_path: Path) -> None:
    said = "key: [id, paid], values: {orders: count, most: {max: id}, all: {sum: id}}"
    stream = loaded(tmp_path, AGGREGATED.replace("SAID", said)).stream
    sink = stream.sinks[1]
    assert (sink.name, sink.key) == ("hbase_aggregates", ("id", "paid"))
    assert [(one.name, one.function, one.field, one.kind) for one in sink.aggregates(stream.fields)] == [
        ("orders", "count", None, "integer"),
        ("most", "max", "id", "integer"),
        ("all", "sum", "id", "integer"),
    ]
    assert loaded(tmp_path, AGGREGATED.replace("SAID", "key: id, values: {orders: count}")).stream.sinks[1].key == (
        "id",
    )
    cut = loaded(tmp_path, AGGREGATED.replace("SAID", "key: id, values: {orders: count}, regions: 16")).stream.sinks[1]
    assert (sink.regions, cut.regions) == (1, 16)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("key: id", "values: "),
        ("key: id, values: {orders: count}, regions: 3", "regions: "),
        ("key: id, values: {}", "values: .*1 or more entries"),
        ("key: id, values: {orders: count}, block_offsets: 1000", "block_offsets: "),
        ("key: customer, values: {orders: count}", "names the field customer, which the stream does not have"),
        ("key: id, values: {orders: {sum: customer}}", "names the field customer, which the stream does not have"),
        ("key: id, values: {id: count}", "more than one field is named 'id'"),
        ("key: id, values: {orders: {sum: id, max: id}}", "values.orders"),
        ("key: id, values: {orders: number}", "values.orders: expected 'count'"),
        ("key: id, values: {mean: {avg: id}}", "values.mean"),
        (
            "key: id, values: {paid2: {sum: paid}}",
            "paid2 is the sum of paid, which is of type boolean; sum takes double, integer",
        ),
        ("key: id, values: {paid2: {max: paid}}", "max takes double, integer, string, timestamp"),
        (
            "key: id, values: {orders: count}}\nguarantee: none\nlimits: {",
            "with guarantee none, what a window has written is not known",
        ),
    ],
)
def test_aggregates_that_cannot_be_are_refused(tmp_path: Path, said: str, why: str) -> None:
    with pytest.raises(InvalidStreamFile, match=why):
        loaded(tmp_path, AGGREGATED.replace("SAID", said))


def test_a_topic_of_the_same_name_elsewhere_is_not_the_one_that_is_read(tmp_path: Path) -> None:
    assert with_kafka(tmp_path, "topic: orders, kafka: other").sinks[1].topic == "orders"


@pytest.mark.covers("Q2")
@pytest.mark.parametrize(
    "setting",
    [
        "bootstrap.servers: 'elsewhere:9092'",
        "sasl.jaas.config: x",
        "sasl.oauthbearer.token.endpoint.url: 'https://elsewhere/'",
        "sasl.login.callback.handler.class: com.example.Mine",
        "config.providers: file",
        "ssl.keystore.location: /etc/passwd",
        "security.protocol: PLAINTEXT",
        "interceptor.classes: com.example.Spy",
        "key.serializer: com.example.Mine",
        "partitioner.class: com.example.Mine",
        "metric.reporters: com.example.Spy",
        "ssl.truststore.location: /etc/passwd",
        "transactional.id: mine",
        "enable.idempotence: false",
        "compression_type: gzip",
        "retries: 0",
    ],
)
def test_a_producers_setting_that_is_not_among_the_allowed_is_refused_by_name(tmp_path: Path, setting: str) -> None:
    name = setting.partition(":")[0]
    with pytest.raises(InvalidStreamFile, match=rf"settings\.{name}: unknown key"):
        with_kafka(tmp_path, f"topic: out, settings: {{{setting}}}")


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("acks: 1", r"settings\.acks: expected 'all'"),
        ("acks: '0'", r"settings\.acks: expected 'all'"),
        ("compression.type: zstd", r"settings\.compression\.type: expected 'none' or 'gzip'"),
        ("linger.ms: '5'", r"settings\.linger\.ms: expected a whole number"),
        ("linger.ms: -1", r"settings\.linger\.ms: .*at least 0"),
        ("delivery.timeout.ms: 20000", r"has to be at least linger\.ms and request\.timeout\.ms together"),
    ],
)
def test_a_producers_setting_that_loses_messages_or_means_nothing_is_refused(
    tmp_path: Path, setting: str, why: str
) -> None:
    with pytest.raises(InvalidStreamFile, match=why):
        with_kafka(tmp_path, f"topic: out, settings: {{{setting}}}")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidStreamFile, match=r"nowhere.yaml: cannot be read: No such file"):
        load(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"regex": r"(\S+"}, "not a regular expression"),
        ({"fields": ["a", "c"]}, "do not name the same fields"),
        ({"fields": ["a"]}, "has 2 groups, and 1 fields"),
        ({"fields": []}, "has 2 groups, and 0 fields"),
        ({"regex": r"\S+", "fields": []}, "pattern p: the regex has no groups"),
        ({"regex": r"(?<b>\S+) (?<a>\S+)"}, "pattern p: its groups are named b, a, and `fields` says a, b"),
        ({"regex": r"(?<a>\S+) (\S+)"}, "pattern p: 1 of its 2 groups have no name"),
        ({"regex": r"(?<a>\S+) (?<c>\S+)", "fields": []}, r"pattern p and `fields` do not name the same .*'b', 'c'"),
        ({"regex": r"(?<a_1>\S+) (?<b>\S+)"}, "Java has only letters and digits .* 'a_1'"),
        ({"timestamp": None}, "needs `timestamp`"),
    ],
)
def test_a_pattern_that_does_not_fit_its_fields_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    pattern = {"name": "p", "regex": r"(\S+) (\S+)", "fields": ["a", "b"], "timestamp": "yyyy", **change}
    values = yaml.safe_load(MINIMAL)
    values["scheme"] = {"type": "regex", "fields": {"a": "string", "b": "timestamp"}, "patterns": [pattern]}
    with pytest.raises(InvalidStreamFile, match=said):
        loaded(tmp_path, yaml.safe_dump(values))


@pytest.mark.parametrize(
    ("key", "wrong"),
    [("max_line_bytes", 0), ("max_line_bytes", "1 MB"), ("max_match_ms", 0), ("max_match_ms", 600_001)],
)
def test_limits_of_patterns_that_are_none_are_refused(tmp_path: Path, key: str, wrong: Any) -> None:
    pattern = {"name": "p", "regex": r"(\S+)", "fields": ["a"]}
    scheme = {"type": "regex", "fields": {"a": "string"}, "patterns": [pattern]}
    given = loaded(tmp_path, with_scheme(**scheme)).stream.scheme
    assert isinstance(given, RegexScheme)
    assert (given.max_line_bytes, given.max_match_ms) == (16_777_216, 1_000)
    with pytest.raises(InvalidStreamFile, match=rf"scheme\.(regex\.)?{key}: expected .*found {wrong!r}"):
        loaded(tmp_path, with_scheme(**scheme, **{key: wrong}))


def with_scheme(**scheme: Any) -> str:
    return yaml.safe_dump({**yaml.safe_load(MINIMAL), "scheme": scheme}, sort_keys=False)


@pytest.mark.parametrize(
    ("scheme", "fields"),
    [
        ({"type": "raw"}, {"key": "binary", "value": "binary"}),
        ({"type": "string"}, {"value": "string"}),
        ({"type": "key_value"}, {"key": "string", "value": "string"}),
        (
            {"type": "message_metadata", "keep": ["value"]},
            {
                "topic": "string",
                "partition": "integer",
                "offset": "integer",
                "timestamp": "timestamp",
                "value": "binary",
            },
        ),
        ({"type": "delimited", "fields": {"b": "double", "a": "string"}}, {"b": "double", "a": "string"}),
        (
            {
                "type": "json",
                "fields": {"key": "string"},
                "unknown": "keep",
                "keep": {"sent_at": "timestamp", "k": "key"},
            },
            {"key": "string", "unknown": "string", "sent_at": "timestamp", "k": "binary"},
        ),
        (
            {
                "type": "json",
                "schema": "a INT, b ARRAY<INT>, c DECIMAL, d DATE, e FLOAT, f TIMESTAMP, g BINARY, h BOOLEAN",
            },
            {
                "a": "integer",
                "b": "array<int>",
                "c": "decimal(10,0)",
                "d": "date",
                "e": "double",
                "f": "timestamp",
                "g": "binary",
                "h": "boolean",
            },
        ),
        (
            {
                "type": "json",
                "schema": "b ARRAY<INT>, c DECIMAL, d DATE, e TIMESTAMP_NTZ, v VARIANT, w ARRAY<VARIANT>",
                "as_text": ["b", "c", "d", "e"],
            },
            dict.fromkeys("bcdevw", "string"),
        ),
        (
            {
                "type": "json",
                "fields": {
                    "a": "int",
                    "b": "LONG",
                    "c": "Decimal(12, 2)",
                    "d": "array<struct<N: integer, `x-y`: date>>",
                    "e": "float",
                    "f": "map<string, timestamp_ntz>",
                },
            },
            {
                "a": "int",
                "b": "integer",
                "c": "decimal(12,2)",
                "d": "array<struct<N:bigint,`x-y`:date>>",
                "e": "float",
                "f": "map<string,timestamp_ntz>",
            },
        ),
        (
            {"type": "string", "keep": ["headers", "timestamp_type"]},
            {"value": "string", "headers": "string", "timestamp_type": "string"},
        ),
    ],
)
def test_the_fields_of_a_scheme_are_its_own_and_then_what_it_keeps(
    tmp_path: Path, scheme: dict[str, Any], fields: dict[str, str]
) -> None:
    found = loaded(tmp_path, with_scheme(**scheme)).stream.scheme.fields
    assert list(found.items()) == list(fields.items())


@pytest.mark.parametrize(
    ("scheme", "said"),
    [
        ({"type": "raw", "fields": {"a": "string"}}, "scheme.fields: unknown key"),
        ({"type": "raw", "keep": ["key"]}, r"scheme.raw: more than one field is named 'key' \(in whatever case\)"),
        ({"type": "string", "keep": ["size"]}, "scheme.keep: .*'key', 'value', 'headers'.*found 'size'"),
        ({"type": "string", "keep": ["key", "key"]}, "scheme.keep: a part is named twice"),
        ({"type": "string", "keep": {"_key": "key"}}, "scheme.keep._key: .*_key is one of Tidemark's own names"),
        ({"type": "string", "keep": "key"}, "scheme.keep: expected a map"),
        ({"type": "json", "fields": {"id": "integer", "ID": "string"}}, "more than one field is named 'id'"),
        ({"type": "json", "fields": {"id": "variant"}}, "scheme.fields.id: a variant is no type of a field"),
        (
            {"type": "json", "fields": {"id": "decimal"}},
            r"scheme.fields.id: expected the digits, as in decimal\(12,2\)",
        ),
        (
            {"type": "json", "fields": {"id": "array<decimal(39,2)>"}},
            r"scheme.fields.id: .*decimal\(39,2\); expected at most",
        ),
        (
            {"type": "json", "fields": {"id": "map<int,string>"}},
            "scheme.fields.id: the keys of a JSON object are strings",
        ),
        ({"type": "delimited", "fields": {"id": "array<int>"}}, "scheme.fields.id: a text has no array"),
        (
            {"type": "json", "fields": {"id": "string"}, "as_text": ["id"]},
            "as_text: id is of type string; expected one of",
        ),
        ({"type": "json", "fields": {"id": "date"}, "as_text": ["di"]}, "as_text: the field di is not named"),
        (
            {"type": "json", "fields": {"id": "integer"}, "unknown": True},
            "scheme.unknown: expected 'drop', 'keep' or 'fail'",
        ),
        ({"type": "json", "fields": {"unknown": "string"}, "unknown": "keep"}, "makes a field 'unknown'"),
        ({"type": "json"}, "scheme.json: expected one of fields and schema"),
        ({"type": "json", "fields": {"id": "integer"}, "schema": "id INT"}, "expected one of fields and schema"),
        (
            {"type": "json", "schema": "id INT, lines ARRAY<STRNG>"},
            r"scheme.schema: lines\[\]: expected one of the types",
        ),
        ({"type": "json", "schema": "id INT, `a b` INT"}, "scheme.schema: 'a b' cannot be the name of a field"),
        ({"type": "json", "schema": "id INT, key INT", "keep": ["key"]}, "more than one field is named 'key'"),
        ({"type": "json", "schema": "unknown INT", "unknown": "keep"}, "makes a field 'unknown'|is named 'unknown'"),
        ({"type": "delimited", "fields": {}}, "scheme.fields: .*1 or more entries"),
        ({"type": "delimited", "fields": {"a": "string"}, "separator": ""}, "scheme.separator: .*1 or more characters"),
        ({"type": "delimited", "fields": {"a": "string"}, "separator": '","'}, "the separator holds the quote '\"'"),
        ({"type": "delimited", "fields": {"a": "string"}, "quote": "''"}, "scheme.quote: .*no more than 1 characters"),
        ({"type": "delimited", "fields": {"a": "timestamp"}}, "`timestamp` has to say the form of its times"),
    ],
)
def test_a_scheme_that_means_nothing_is_refused(tmp_path: Path, scheme: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidStreamFile, match=said):
        loaded(tmp_path, with_scheme(**scheme))


def test_an_end_cannot_be_configured(tmp_path: Path) -> None:
    with pytest.raises(InvalidStreamFile, match=r"source\.end: unknown key"):
        loaded(tmp_path, MINIMAL.replace("  topics: [orders]", "  topics: [orders]\n  end: earliest"))


def test_a_pattern_takes_whole_names_and_never_kafkas_own_topics() -> None:
    source = Source(pattern="cdn-.*|__.*", exclude=("cdn-test", ".*-tmp"))
    reads = [
        topic
        for topic in ("cdn-logs", "cdn-test", "cdn-a-tmp", "my-cdn-logs", "__consumer_offsets")
        if source.reads(topic)
    ]
    assert reads == ["cdn-logs"]


@pytest.mark.parametrize(
    ("explode", "said"),
    [
        ("{}", "orders.yaml:14: explode: expected one of lines and json_array"),
        ('{lines: "\\n", json_array: true}', "explode: expected one of lines and json_array"),
        ('{lines: ""}', "explode.lines: expected a text of 1 or more characters"),
        ("{json_array: false}", "explode.json_array: expected true .* or the key under which the array stands"),
        ("{json_array: 1}", "explode.json_array"),
        ("{csv: true}", "explode.csv: unknown key"),
    ],
)
def test_a_way_to_explode_that_means_nothing_is_refused(tmp_path: Path, explode: str, said: str) -> None:
    with pytest.raises(InvalidStreamFile, match=said):
        loaded(tmp_path, f"{MINIMAL}explode: {explode}\n")


ROWS = "SELECT _topic, _incarnation, _partition, _offset, _index"


@pytest.mark.parametrize(
    ("transform", "said"),
    [
        ({}, "transform: expected one of sql and function"),
        ({"sql": f"{ROWS}, id FROM messages", "function": "own:rows"}, "transform: expected one of sql and function"),
        ({"sql": "DELETE FROM messages"}, "transform.sql: expected a query that begins with SELECT or WITH"),
        ({"sql": "WITH a AS (SELECT * FROM messages) INSERT INTO t SELECT * FROM a"}, "this is INSERT, which writes"),
        (
            {"sql": "with recursive a max recursion level 5 (table messages), `b )` (x) as (select ')') merge into t"},
            "this is MERGE",
        ),
        (
            {"sql": "WITH a AS (SELECT 1 /* ) insert */), delete AS (SELECT * FROM messages) UPDATE t SET x = 1"},
            "this is UPD",
        ),
        ({"sql": "WITH a(SELECT ((1)), '\\'(' FROM messages)DELETE FROM t"}, "this is DELETE"),
        ({"sql": "SELECT * FROM orders -- not of messages"}, "transform.sql: expected a query of `messages`"),
        ({"sql": "SELECT id FROM messages"}, "the query does not give _topic; it has to give _topic, _incarnation,"),
        ({"sql": f"{ROWS} FROM messages"}, "the query does not give id"),
        ({"function": "own.rows"}, "transform.function: expected "),
        ({"function": "own:rows", "fields": {}}, "transform.fields: expected 1 or more entries"),
        (
            {"function": "own:rows", "fields": {"id": "decimal"}},
            r"transform.fields.id: expected the digits, as in decimal\(12,2\)",
        ),
        ({"function": "own:rows", "fields": {"id": "integer", "ID": "string"}}, "more than one field is named 'id'"),
    ],
)
def test_a_transform_that_cannot_give_rows_is_refused(tmp_path: Path, transform: dict[str, Any], said: str) -> None:
    """What can be known without Spark."""
    with pytest.raises(InvalidStreamFile, match=said):
        loaded(tmp_path, MINIMAL + yaml.safe_dump({"transform": {"fields": {"id": "integer"}, **transform}}))


@pytest.mark.parametrize(
    "sql",
    [
        "WITH insert AS (SELECT * FROM messages) SELECT * FROM insert",
        "WITH a AS (SELECT 'x) insert into t' AS n, * FROM messages) SELECT * FROM a",
        "WITH a AS (SELECT * FROM messages), b (x) AS (SELECT 1) (SELECT * FROM a)",
        "with a as (select * from messages) from a select *",
        "SELECT *, insert(name, 1, 1, 'x') AS delete FROM messages",
        "-- WITH a AS () INSERT\nSELECT * FROM messages",
    ],
)
def test_a_query_is_taken_whatever_words_stand_in_it(tmp_path: Path, sql: str) -> None:
    stream = loaded(tmp_path, MINIMAL + yaml.safe_dump({"transform": {"fields": {"id": "integer"}, "sql": sql}})).stream
    assert stream.transform.sql == sql


def test_the_fields_of_a_stream_are_those_of_its_transform(tmp_path: Path) -> None:
    transform = {"sql": f"{ROWS}, 1.5D AS share FROM messages", "fields": {"share": "double"}}
    stream = loaded(tmp_path, MINIMAL + yaml.safe_dump({"transform": transform})).stream
    assert stream.fields == {"share": "double"}
    sink = "sinks:\n  - {type: kafka, topic: shares, value: id}\n"
    text = MINIMAL.replace("sinks:\n  - type: hbase\n    table: orders\n", sink)
    assert loaded(tmp_path, text).stream.fields == {"id": "integer"}
    with pytest.raises(InvalidStreamFile, match="the field id, which the stream does not have"):
        loaded(tmp_path, text + yaml.safe_dump({"transform": transform}))


FETCH = MINIMAL.replace("source:\n", "source:\n  fetch: {SAID}\n")


def test_fetch_settings_have_kafkas_names(tmp_path: Path) -> None:
    source = loaded(tmp_path, FETCH.replace("SAID", "max.poll.records: 7, fetch.max.bytes: 1048576")).stream.source
    wait = {"fetch.max.wait.ms": "20"}
    assert source.fetch.settings() == wait | {"max.poll.records": "7", "fetch.max.bytes": "1048576"}
    source = loaded(tmp_path, FETCH.replace("SAID", "fetch.max.wait.ms: 500")).stream.source
    assert source.fetch.settings() == {"fetch.max.wait.ms": "500", "max.poll.records": "4000"}


@pytest.mark.parametrize(
    "said", ["group.id: mine", "isolation.level: read_uncommitted", "sasl.jaas.config: x", "max_poll_records: 7"]
)
def test_other_settings_of_the_consumer_are_refused_by_name(tmp_path: Path, said: str) -> None:
    with pytest.raises(InvalidStreamFile, match=f"source.fetch.{said.split(':')[0]}"):
        loaded(tmp_path, FETCH.replace("SAID", said))


def test_tables_of_records(tmp_path: Path) -> None:
    other_columns = "{table: 'a:late', hbase: other, topic: 'm:t', partition: 'm:p', offset: 'm:o'}"
    said = f"record_tables:\n  - table: late\n  - {other_columns}\n"
    plain, other = loaded(tmp_path, MINIMAL + said).stream.record_tables
    assert (plain.hbase, plain.columns) == ("hbase_default", ("d:topic", "d:partition", "d:offset"))
    assert (other.table, other.hbase, other.columns) == ("a:late", "other", ("m:t", "m:p", "m:o"))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("{table: late, offset: offset}", "record_tables.*offset: .*expected a"),
        ("{table: 'a:b:c'}", "record_tables.*table: .*expected a"),
        ("{hbase: other}", "record_tables.*table: "),
        ("{table: late}, {table: late, hbase: other}", "record_tables: two have the table 'late'; name it once"),
    ],
)
def test_a_table_of_records_that_cannot_be_is_refused(tmp_path: Path, said: str, why: str) -> None:
    with pytest.raises(InvalidStreamFile, match=why):
        loaded(tmp_path, f"{MINIMAL}record_tables: [{said}]\n")


@pytest.fixture
def kept_from_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that this user may not read. The tests' own user may read all."""
    folder, iterdir = tmp_path / "kept", Path.iterdir
    folder.mkdir()

    def refuse(path: Path) -> Iterator[Path]:
        if path == folder:
            raise PermissionError(13, "Permission denied", str(path))
        return iterdir(path)

    monkeypatch.setattr(Path, "iterdir", refuse)
    return folder


def test_a_folder_that_cannot_be_read_is_named(
    tmp_path: Path, kept_from_us: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = rf"the folder of stream files {kept_from_us} cannot be read: Permission denied\. .* in TIDEMARK_STREAMS"
    with pytest.raises(WrongUse, match=said):
        stream_files(kept_from_us)
    # The pages show the streams of other folders, and what is wrong with this one.
    other = tmp_path / "other"
    other.mkdir()
    (other / "orders.yaml").write_text(MINIMAL)
    monkeypatch.setenv("TIDEMARK_STREAMS", os.pathsep.join(map(str, (kept_from_us, other))))
    found, (problem,) = StreamCache().now()
    assert list(found) == ["orders"]
    assert re.search(said, problem.problem)


def test_a_folder_that_is_named_and_not_there_is_no_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its disk may not be mounted, or its name may be misspelt: its streams would stand still in silence."""
    missing, other = tmp_path / "missing", tmp_path / "other"
    other.mkdir()
    (other / "orders.yaml").write_text(MINIMAL)
    assert stream_files(missing) == []
    monkeypatch.setenv("TIDEMARK_STREAMS", os.pathsep.join(map(str, (missing, other))))
    said = f"TIDEMARK_STREAMS names the folder {missing}, which is not there"
    with pytest.raises(WrongUse, match=said):
        stream_files(missing, other)
    found, (problem,) = StreamCache().now()
    assert list(found) == ["orders"]
    assert said in problem.problem


def test_a_command_says_why_the_file_of_its_stream_is_not_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_STREAMS", str(tmp_path))
    (tmp_path / "of_orders.yaml").write_text(f"{MINIMAL}guarante: none\n")
    (tmp_path / "clicks.yaml").write_text("source: {topics: [clicks\n")
    for stream, said in (
        ("orders", r"of_orders\.yaml:\d+: guarante: "),
        # By the name of the file, where it says no other.
        ("clicks", r"clicks\.yaml:\d+: "),
        (
            "others",
            r"no stream is called 'others' in .*; there are: none\. .* Not valid: \S+/clicks\.yaml, \S+of_orders",
        ),
    ):
        with pytest.raises(WrongUse, match=said):
            app(["offsets", stream], standalone_mode=False)


def test_a_wrong_name_of_a_stream_has_the_nearest_one_and_some_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_STREAMS", str(tmp_path))
    for name in ("orders", *(f"clicks_{number}" for number in range(24))):
        (tmp_path / f"{name}.yaml").write_text(MINIMAL.replace("stream: orders", f"stream: {name}"))
    said = r"no stream is called 'odrers' \(did you mean orders\?\) in \S+; there are: clicks_0, "
    with pytest.raises(WrongUse, match=said) as ended:
        app(["status", "odrers"], standalone_mode=False)
    assert " and 5 more. Name a stream file" in str(ended.value)
