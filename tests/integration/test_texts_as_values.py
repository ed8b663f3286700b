"""What text is a number, a boolean, a time: one table for all schemes, at its edges, and against Spark's own answers."""

from __future__ import annotations

import json
import math
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.support.digests import expected_digest, kept_way, one_way
from tests.support.rows import messages_of, stream_of
from tidemark.schemes.time_forms import problem
from tidemark.spark.columns import OFFSET, REASON
from tidemark.spark.rows.explode import in_pieces
from tidemark.spark.rows.pipeline import rows_of
from tidemark.spark.schemes import parse
from tidemark.streams.explode import Explode

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
    "0e-400": 0.0,
    "1.7976931348623157e308": 1.7976931348623157e308,
    # As programs write a double: with all its digits, or with 17 of them.
    "0.10000000000000001": 0.1,
    "0.1000000000000000055511151231257827021181583404541015625": 0.1,
    "9.9999999999999992e+22": 1e23,
    "1e23": 1e23,
    "1" + "0" * 300: 1e300,
    str(2**70): 2.0**70,
    # A double would be another number.
    **dict.fromkeys(("1e-400", str(2**53 + 1), str(2**53 + 1) + ".0", "9007199254740993e0", str(2**64 - 1))),
    **dict.fromkeys(("0.12345678901234567890123", "1.0000000000000000001", "0." + "1" * 2_000, "1" * 300)),
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
    "integer": {
        "5": 5,
        "-0": 0,
        str(2**63 - 1): 2**63 - 1,
        str(-(2**63)): -(2**63),
        str(2**63): None,
        "5.0": None,
        **dict.fromkeys(("1e3", '"5"', "-0.0", "9" * 2_000, "05", "+5", "5.")),
    },
    "double": {
        "1.5": 1.5,
        "1e3": 1000.0,
        "5": 5.0,
        "-0": -0.0,
        "-0.0": -0.0,
        "-0e7": -0.0,
        "0": 0.0,
        "1.50": 1.5,
        "1e-400": None,
        "4.9e-324": 5e-324,
        "1.7976931348623157e308": 1.7976931348623157e308,
        "1." + "0" * 2_000: 1.0,
        "0.1234567890123456789012345678901234567890123": None,
        "0.12345678901234568": 0.12345678901234568,
        str(2**53 + 1): None,
        str(2**53 + 2): 2.0**53 + 2,
        str(2**63 - 1): None,
        str(2**64 - 1): None,
        "1.0000000000000000001": None,
        "0.10000000000000001": 0.1,
        str(2**63): 2.0**63,
        **dict.fromkeys(("1e400", "-1e400", "9" * 400, '"NaN"', "NaN", "-Infinity", ".5", "1e", "01.5", "1.5.2")),
    },
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


# What JSON itself refuses, whatever the field.
NO_JSON = ("05", "+5", "5.", "NaN", "-Infinity", ".5", "1e", "01.5", "1.5.2")


def assert_read(spark: SparkSession, scheme: dict[str, Any], kind: str, wanted: dict[bytes, Any]) -> None:
    for (value, expected), found in zip(wanted.items(), read(spark, scheme, [*wanted]), strict=True):
        assert found == ((None, f"v is not {WORDS[kind]}") if expected is None else (expected, None)), value
        if expected == 0 and found[0] is not None:
            assert math.copysign(1, float(found[0])) == math.copysign(1, expected), value


SCHEMES: dict[str, dict[str, Any]] = {
    "delimited": {"type": "delimited", "quote": None, "separator": "|"},
    "regex": {"type": "regex", "patterns": [{"name": "all", "regex": "(?s)(.*)", "fields": ["v"]}]},
}


@pytest.mark.full
@pytest.mark.covers("S7")
@pytest.mark.parametrize("kind", TABLE)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_texts_at_the_edges_of_a_type(spark: SparkSession, scheme: str, kind: str) -> None:
    wanted = dict(TABLE[kind])
    first = next(iter(wanted))
    wanted |= {f"{before}{first}{after}": wanted[first] for before in AROUND for after in AROUND}
    given = {**SCHEMES[scheme], "fields": {"v": kind}}
    assert_read(spark, given, kind, {text.encode(): value for text, value in wanted.items()})


@pytest.mark.full
@pytest.mark.covers("S7")
@pytest.mark.parametrize("kind", IN_JSON)
def test_json_at_the_edges_of_a_type(spark: SparkSession, kind: str) -> None:
    given = {"type": "json", "fields": {"v": kind}}
    wanted = {b'{"v": %s}' % text.encode(): value for text, value in IN_JSON[kind].items() if text not in NO_JSON}
    assert_read(spark, given, kind, wanted)
    # In a schema, too, where it is of a type of as many bits.
    schema = {"type": "json", "schema": f"v {'BIGINT' if kind == 'integer' else kind}"}
    assert_read(spark, schema, kind, wanted)
    for value in read(spark, given, [b'{"v": %s}' % text.encode() for text in NO_JSON]):
        assert value == (None, "not one JSON value, or a key stands twice in it")


NUMBERS = [
    *(
        "0",
        "-0",
        "5",
        "-5",
        "0.0",
        "-0.0",
        "1.0",
        "1.10",
        "1e3",
        "1E+03",
        "-1e-7",
        "1e400",
        "-1e400",
        "1e-400",
        "5e-324",
    ),
    *(str(2**63 - 1), str(2**63), str(-(2**63)), "9" * 18, "9" * 19, "9" * 38, "9" * 39, "1" + "0" * 400),
    *("0." + "1" * 18, "0." + "1" * 19, "9" * 18 + "." + "9" * 18, "0." + "0" * 60 + "1", "1.7976931348623157e308"),
]
TEXTS = ["", "é", "1e3", "null", 'a"b\\', "x\ty", "[1.0,", "{", "\U0001f600"]


def drawn_json(chance: random.Random, depth: int = 3) -> str:
    """A JSON text, with white space of any kind, and with escapes."""
    around = chance.choice(("", "", " ", "\n\t", "\r\n"))
    kind = chance.randrange(8 if depth else 5)
    if kind < 3:
        found = chance.choice(NUMBERS)
    elif kind == 3:
        found = json.dumps(chance.choice(TEXTS), ensure_ascii=chance.random() < 0.5)
    elif kind == 4:
        found = chance.choice(("null", "true", "false"))
    elif kind == 5:
        found = f"[{','.join(drawn_json(chance, depth - 1) for _ in range(chance.randrange(4)))}]"
    else:
        names = chance.sample(("v", "w", "n", "1.0", "\\u0061"), chance.randrange(4))
        found = "{" + ",".join(f'{around}"{name}"{around}:{drawn_json(chance, depth - 1)}' for name in names) + "}"
    return f"{around}{found}{around}"


def written_again(text: str) -> str:
    """Compact JSON with keys by name, and numbers as they were written."""
    found = json.loads(text, parse_int="<<{}>>".format, parse_float="<<{}>>".format)
    compact = json.dumps(found, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return compact.replace('"<<', "").replace('>>"', "")


OF_JSON: list[dict[str, Any]] = [
    {"type": "string"},
    {"type": "json", "fields": {"v": "double", "w": "integer"}, "unknown": "keep"},
    {"type": "json", "schema": "v VARIANT, w ARRAY<VARIANT>, n STRUCT<v: DECIMAL(20, 2), w: VARIANT>"},
    {"type": "delimited", "fields": {"v": "double"}},
]


@pytest.mark.covers("S7", "E60")
@pytest.mark.parametrize("scheme", OF_JSON, ids=["string", "json", "schema", "delimited"])
@pytest.mark.parametrize("key", [True, "\u00e9\\"], ids=["an array", "under a key"])
def test_an_element_of_an_array_is_read_as_its_own_text(
    spark: SparkSession, scheme: dict[str, Any], key: bool | str
) -> None:
    """And the page that shows a message says the same."""
    chance = random.Random(7)
    arrays = [[drawn_json(chance) for _ in range(chance.randrange(1, 6))] for _ in range(60)]
    values = [f"[{','.join(one)}]" for one in arrays]
    if isinstance(key, str):
        values = [f'{{"a": {one}, {json.dumps(key)} :{one}, "z": [1.0]}}' for one in values]
    # Of a string, the piece is the text.
    own = [json.loads(one) if one.strip().startswith('"') else one.strip(" \t\r\n") for two in arrays for one in two]
    how = Explode(json_array=key)
    described = stream_of(scheme=scheme, explode={"json_array": key})
    names = [*described.scheme.fields]
    pieces = parse(in_pieces(messages_of(spark, [one.encode() for one in values]), how), described.scheme)
    alone = parse(messages_of(spark, [one.encode() for one in own]), described.scheme)
    found = [(row["_reason"], *(row[name] for name in names)) for row in pieces.orderBy("_offset", "_index").collect()]
    wanted = [(row["_reason"], *(row[name] for name in names)) for row in alone.orderBy("_offset").collect()]
    assert list(map(repr, found)) == list(map(repr, wanted))
    if scheme["type"] == "string":
        assert [one[1] for one in found] == own


@pytest.mark.full
@pytest.mark.covers("S7", "E60")
def test_numbers_that_are_kept_as_json_keep_their_text(spark: SparkSession) -> None:
    chance = random.Random(11)
    given = [*NUMBERS, *(drawn_json(chance) for _ in range(300))]
    values = [f'{{"v": {one}, "more": [{one}], "w": [[{one}]]}}'.encode() for one in given]
    for scheme in (
        {"type": "json", "fields": {"x": "string"}},
        {"type": "json", "schema": "w ARRAY<VARIANT>, v VARIANT"},
    ):
        stream = stream_of(scheme={**scheme, "unknown": "keep"})
        rows = parse(messages_of(spark, [*values]), stream.scheme).orderBy("_offset").collect()
        for one, row in zip(map(written_again, given), rows, strict=True):
            if "fields" in scheme:
                assert (row["_reason"], row["unknown"]) == (None, f'{{"more":[{one}],"v":{one},"w":[[{one}]]}}')
            else:
                wanted = (None, None if one == "null" else one, f"[[{one}]]", f'{{"more":[{one}]}}')
                assert (row["_reason"], row["v"], row["w"], row["unknown"]) == wanted


@pytest.mark.full
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


_DIGITS = "9" * 38
# The other types, with what each text is there; None where it is none.
OF_ALL: dict[str, dict[str, Any]] = {
    "tinyint": {"127": 127, " -128\t": -128, **dict.fromkeys(("128", "-129", "1.0", "1e1", "\uff11", "1_0", "NaN"))},
    "smallint": {"32767": 32767, "-32768": -32768, **dict.fromkeys(("32768", "-32769", str(2**64)))},
    "int": {str(2**31 - 1): 2**31 - 1, "-0": 0, **dict.fromkeys((str(2**31), str(-(2**31) - 1), "-0.0", "null"))},
    "float": {
        "0.1": 0.10000000149011612,
        "3.4028235e38": 3.4028234663852886e38,
        "-0.0": -0.0,
        **dict.fromkeys(("16777217", "1e-46", "3.4028236e38", "1e39", "1e400", "NaN", "-inf", "1,5", "5f")),
    },
    "decimal(38,0)": {
        _DIGITS: Decimal(_DIGITS),
        f"-{_DIGITS}.000": Decimal(f"-{_DIGITS}"),
        "0" * 60 + "7": Decimal(7),
        "-0.0": Decimal(0),
        **dict.fromkeys((f"{_DIGITS}9", f"{_DIGITS}.5", "1e2", "1E+2", "1_0", "1 0", "\uff11", ".", "+", "NaN", "0x1")),
    },
    "decimal(38,38)": {
        f".{_DIGITS}": Decimal(f"0.{_DIGITS}"),
        f"-00.{_DIGITS}000": Decimal(f"-0.{_DIGITS}"),
        **dict.fromkeys((f"0.{_DIGITS}9", "1", "1e-10", "-1.0")),
    },
    "date": {
        "0001-01-01": date(1, 1, 1),
        "9999-12-31": date(9999, 12, 31),
        "1582-10-10": date(1582, 10, 10),
        **dict.fromkeys(("300000-01-01", "+300000-01-01", "-0001-01-01", "2026-02-29", "2026-1-1", "\uff12026-01-01")),
        **dict.fromkeys(("2026-01-01 ", "2026-01-01\n", "2026-01-01T00:00:00", "now", "epoch", "null")),
    },
    "timestamp_ntz": {
        "0001-01-01T00:00:00": datetime(1, 1, 1),
        "9999-12-31 23:59:59.999999000": datetime(9999, 12, 31, 23, 59, 59, 999_999),
        "1582-10-10 02:30:00.1": datetime(1582, 10, 10, 2, 30, 0, 100_000),
        **dict.fromkeys(
            ("2026-01-01T00:00:00.0000001", "2026-01-01T24:00:00", "2016-12-31T23:59:60", "2026-01-01 00:00")
        ),
        **dict.fromkeys(("2026-01-01T00:00:00Z", "2026-01-01T00:00:00+01:00", "+10000-01-01T00:00:00", "today")),
    },
    # Without its end, too; spaces within it are passed over.
    "binary": {
        **dict.fromkeys(("AP8=", "AP8", "A P8="), b"\x00\xff"),
        **dict.fromkeys(("A", "====", "AP8=\n", "_-8=", "\u00e9")),
    },
    "string": {
        one: one
        for one in ("\x00", "\r", "a\rb\n", "\u2028\u2029\x85", "\ufeff", "\ufffe", "\U0010ffff", "null", "\\N")
    },
}
_SEPARATOR = "\x01"
_GROUP = f"(?:([^{_SEPARATOR}]+)|)"


@pytest.mark.full
@pytest.mark.covers("S7", "N82", "N83")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_odd_texts_of_all_types(spark: SparkSession, scheme: str) -> None:
    """A message with an odd text in one of its fields is a row with one digest by all ways, or alone a dead letter."""
    fields = {f"f{at}": kind for at, kind in enumerate(OF_ALL)}
    of = {"delimited": {"type": "delimited", "separator": _SEPARATOR, "quote": None}}
    pattern = {"name": "all", "regex": _SEPARATOR.join([_GROUP] * len(fields)), "fields": [*fields]}
    of["regex"] = {"type": "regex", "patterns": [pattern]}
    cases = [(name, text, value) for name, kind in fields.items() for text, value in OF_ALL[kind].items()]
    lines = [_SEPARATOR.join(text if one == name else "" for one in fields).encode() for name, text, _ in cases]
    # Half of a pair of surrogates, a character in more bytes than it needs, and one beyond the last.
    broken = [
        _SEPARATOR.encode() * (len(fields) - 1) + one for one in (b"\xed\xa0\xbd", b"\xc0\x80", b"\xf4\x90\x80\x80")
    ]
    stream = stream_of(scheme={**of[scheme], "fields": fields})
    messages = messages_of(spark, [*lines, *broken])
    rows = rows_of(messages, stream)
    reasons = {row[OFFSET]: row[REASON] for row in rows.frame.select(OFFSET, REASON).collect()}
    rows.close()
    wanted = {at: f"{name} is not " for at, (name, _, value) in enumerate(cases) if value is None}
    found = {at: reason[: len(wanted.get(at, reason))] for at, reason in reasons.items() if reason is not None}
    assert found == {**wanted, **{len(lines) + at: "not UTF-8" for at in range(len(broken))}}
    expected = {
        at: expected_digest(at, fields, {**dict.fromkeys(fields), name: value})
        for at, (name, _, value) in enumerate(cases)
        if value is not None
    }
    assert one_way(messages, stream) == expected
    kept = kept_way(messages, stream)
    assert {at: kept[at] for at in expected} == expected


@pytest.mark.full
@pytest.mark.covers("S7")
def test_a_group_that_took_no_part_is_null(spark: SparkSession) -> None:
    pattern = {"name": "one", "regex": r"(?:-|(\d+)) (.*)", "fields": ["v", "s"]}
    scheme = {"type": "regex", "fields": {"v": "integer", "s": "string"}, "patterns": [pattern]}
    assert read(spark, scheme, [b"5 a", b"- a", b"x a"]) == [(5, None), (None, None), (None, "matches no pattern")]
    frame = parse(messages_of(spark, [b"5 "]), stream_of(scheme=scheme).scheme)
    # An empty text is what a group has matched.
    assert [row["s"] for row in frame.collect()] == [""]


@pytest.mark.full
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


@pytest.mark.full
@pytest.mark.covers("S7")
@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.full)])
def test_forms_of_times_are_refused_as_spark_refuses_them(spark: SparkSession, every: int) -> None:
    """With whatever Spark version runs: the check of a stream file knows its rules by heart."""
    text = F.concat(F.lit("x"), F.col("id").cast("string"))
    for form in FORMS[::every]:
        try:
            spark.range(1).select(F.try_to_timestamp(text, F.lit(form))).collect()
            refused = False
        except PySparkException:
            refused = True
        assert refused == bool(problem(form)), (form, problem(form))
