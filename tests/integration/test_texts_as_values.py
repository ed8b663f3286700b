"""What text is a number, a boolean, a time: one table for all schemes, at its edges, and against Spark's own answers."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.support.rows import messages_of, stream_of
from tidemark.schemes.time_forms import problem
from tidemark.streams.explode import Explode
from tidemark_spark.rows.explode import in_pieces
from tidemark_spark.schemes import parse

AROUND = (" ", "\t", "\r", "\n", " \r\n")
NOTHING = object()
INTEGERS: dict[str, Any] = {
    "5": 5,
    "+5": 5,
    "-5": -5,
    "05": 5,
    "-0": 0,
    str(2**63 - 1): 2**63 - 1,
    str(-(2**63)): -(2**63),
    **dict.fromkeys((str(2**63), str(-(2**63) - 1), "9" * 2_000, "5.", "5.0", "1e3", "5L", "1_0", "0x5", "--5", "5 5")),
    **dict.fromkeys(
        ("\x001", "1\x00", "\x1f7\x1f", "\x017", "7\x0b", "\xa07", "\u20097", "\uff15", "\u0665", "five", "+")
    ),
}
DOUBLES: dict[str, Any] = {
    "1.5": 1.5,
    "1e3": 1000.0,
    ".5": 0.5,
    "-0.25": -0.25,
    "5.": 5.0,
    "+5": 5.0,
    "-0": -0.0,
    "1E-3": 0.001,
    "1e-400": 0.0,
    "1.7976931348623157e308": 1.7976931348623157e308,
    "0" * 2_000 + "1": 1.0,
    "1." + "0" * 2_000: 1.0,
    **dict.fromkeys(
        ("3d", "12F", "5f", "0x1p4", "0x10", "1e400", "-1e400", "1.8e308", "9" * 400, "NaN", "nan", "-NaN")
    ),
    **dict.fromkeys(
        ("Infinity", "-Infinity", "+Infinity", "inf", "-inf", ".", "e5", "1e", "1e+", "1e1.5", "1,5", "1_0.0")
    ),
    **dict.fromkeys(("1.5.2", "\x003.5", "\x013.5\x02", "\xa01", "\uff11", "\u0661.5", "1 .5", "- 1")),
}
BOOLEANS: dict[str, Any] = {
    "true": True,
    "false": False,
    "TRUE": True,
    "False": False,
    **dict.fromkeys(
        ("t", "T", "f", "y", "Y", "yes", "no", "n", "1", "0", "on", "off", "\x01true", "true\x00", "tru\u00e9")
    ),
}
# As JSON writes values of the same types: what is not of the type there.
IN_JSON: dict[str, dict[str, Any]] = {
    "integer": {"5": 5, "-0": 0, str(2**63 - 1): 2**63 - 1, str(2**63): None, "5.0": None, "1e3": None, '"5"': None},
    "double": {"1.5": 1.5, "1e3": 1000.0, "5": 5.0, "1e400": None, "-1e400": None, "9" * 400: None, '"NaN"': None},
    "boolean": {"true": True, "false": False, '"true"': None, "1": None, '"y"': None},
}
WORDS = {"integer": "an integer", "double": "a number", "boolean": "a boolean", "timestamp": "a time"}
TABLE = {"integer": INTEGERS, "double": DOUBLES, "boolean": BOOLEANS}


def read(spark: SparkSession, scheme: dict[str, Any], values: list[bytes]) -> list[tuple[Any, str | None]]:
    """The field `v` of each value, and why the value is invalid."""
    stream = stream_of(scheme=scheme)
    frame = parse(messages_of(spark, [*values]), stream.scheme)
    rows = sorted(frame.select("_offset", "v", "_reason").collect(), key=lambda row: row["_offset"])
    return [(row["v"], row["_reason"]) for row in rows]


def assert_read(spark: SparkSession, scheme: dict[str, Any], kind: str, wanted: dict[bytes, Any]) -> None:
    for (value, expected), found in zip(wanted.items(), read(spark, scheme, [*wanted]), strict=True):
        assert found == ((None, f"v is not {WORDS[kind]}") if expected is None else (expected, None)), value
        if expected == 0 and found[0] is not None:
            assert math.copysign(1, float(found[0])) == math.copysign(1, expected), value


SCHEMES: dict[str, dict[str, Any]] = {
    "delimited": {"type": "delimited", "quote": None, "separator": "|"},
    "regex": {"type": "regex", "patterns": [{"name": "all", "regex": "(?s)(.*)", "fields": ["v"]}]},
}


@pytest.mark.covers("S7")
@pytest.mark.parametrize("kind", TABLE)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_texts_at_the_edges_of_a_type(spark: SparkSession, scheme: str, kind: str) -> None:
    wanted = dict(TABLE[kind])
    first = next(iter(wanted))
    wanted |= {f"{before}{first}{after}": wanted[first] for before in AROUND for after in AROUND}
    if scheme == "regex":
        # Lines with these two are of no pattern.
        wanted = {text: value for text, value in wanted.items() if not {"\x01", "\x02"} & set(text)}
    given = {**SCHEMES[scheme], "fields": {"v": kind}}
    assert_read(spark, given, kind, {text.encode(): value for text, value in wanted.items()})


@pytest.mark.covers("S7")
@pytest.mark.parametrize("kind", IN_JSON)
def test_json_at_the_edges_of_a_type(spark: SparkSession, kind: str) -> None:
    given = {"type": "json", "fields": {"v": kind}}
    assert_read(spark, given, kind, {b'{"v": %s}' % text.encode(): value for text, value in IN_JSON[kind].items()})


@pytest.mark.covers("S7")
def test_times_with_something_around_them_are_none(spark: SparkSession) -> None:
    at = datetime(2026, 11, 21, 7, 10, tzinfo=UTC).replace(tzinfo=None)
    text = "2026-11-21T07:10:00"
    others = [f"{text}\n", f"\n{text}", f" {text}", f"{text}Z\r\n", f"{text}\x00"]
    in_form = {"timestamp": "yyyy-MM-dd'T'HH:mm:ss"}
    for scheme in ({"type": "json"}, {"type": "json", **in_form}):
        wanted = {json.dumps({"v": one}).encode(): None for one in others} | {json.dumps({"v": text}).encode(): at}
        assert_read(spark, {**scheme, "fields": {"v": "timestamp"}}, "timestamp", wanted)
    wanted = {one.encode(): None for one in others} | {text.encode(): at}
    assert_read(spark, {**SCHEMES["delimited"], **in_form, "fields": {"v": "timestamp"}}, "timestamp", wanted)


@pytest.mark.covers("S7")
def test_a_group_that_took_no_part_is_null(spark: SparkSession) -> None:
    pattern = {"name": "one", "regex": r"(?:-|(\d+)) (.*)", "fields": ["v", "s"]}
    scheme = {"type": "regex", "fields": {"v": "integer", "s": "string"}, "patterns": [pattern]}
    assert read(spark, scheme, [b"5 a", b"- a", b"x a"]) == [(5, None), (None, None), (None, "matches no pattern")]
    frame = parse(messages_of(spark, [b"5 "]), stream_of(scheme=scheme).scheme)
    # An empty text is what a group has matched.
    assert [row["s"] for row in frame.collect()] == [""]


@pytest.mark.covers("S7")
@pytest.mark.parametrize(
    ("lines", "value", "pieces"),
    [
        ("\n", b"a\r\nb\r\n", [b"a", b"b"]),
        ("\n", b"a\nb\r\n\r\nc\r", [b"a", b"b", b"", b"c\r"]),
        ("\n", b"\r\n", [b""]),
        ("\n", b"a\r\r\n\rb\n", [b"a\r", b"\rb"]),
        ("\r\n", b"a\nb\r\nc", [b"a\nb", b"c"]),
        ("|", b"a\r|b", [b"a\r", b"b"]),
    ],
)
def test_lines_may_end_as_on_windows(spark: SparkSession, lines: str, value: bytes, pieces: list[bytes]) -> None:
    rows = in_pieces(messages_of(spark, [value]), Explode(lines=lines)).orderBy("_index").collect()
    assert [bytes(row["_value"]) for row in rows] == pieces


FORMS = [
    *(
        "yyyy-MM-dd HH:mm:ss",
        "yyyy-MM-dd'T'HH:mm:ss[.SSS][XXX]",
        "dd/MMM/yyyy:HH:mm:ss Z",
        "yyyyMMdd",
        "HH:mm",
        "G yyyy",
    ),
    *(
        "yyyy-MM-ddTHH:mm:ss",
        "YYYY-MM-dd HH:mm:ss",
        "yyyy]",
        "[yyyy",
        "yyyy'T",
        "yyyy''MM",
        "'",
        "{",
        "#",
        "VV",
        "é yyyy",
    ),
    *(
        "hh:mm a",
        "EEE yyyy",
        "yyyy-'Q'Q",
        "yyyy 'o''clock'",
        "[[yyyy]-MM]",
        "yyyy-MM-dd HH:mm:ss,SSS",
        "yyyy-MM-dd e",
        "p",
    ),
    *(
        letter * times
        for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
        for times in (1, 2, 4, 5, 6, 10)
        # A year of more digits fails at texts that are years for older versions of Spark, and not at all.
        if letter * times not in ("y" * 10,)
    ),
]


@pytest.mark.covers("S7")
def test_forms_of_times_are_refused_as_spark_refuses_them(spark: SparkSession) -> None:
    """With whatever Spark version runs: the check of a stream file knows its rules by heart."""
    text = F.concat(F.lit("x"), F.col("id").cast("string"))
    for form in FORMS:
        try:
            spark.range(1).select(F.try_to_timestamp(text, F.lit(form))).collect()
            refused = False
        except PySparkException:
            refused = True
        assert refused == bool(problem(form)), (form, problem(form))
