"""Files of Protobuf that programs import without sending them to a schema registry: its serializers leave them out.

They have fields and numbers alone, as their makers have published them: Confluent's for Kafka Connect, and the most usual of
Google's common types. Google's `google/protobuf` comes with `protoc`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final


def _confluent() -> str:
    of = {
        "FileOptions": "file",
        "MessageOptions": "message",
        "FieldOptions": "field",
        "EnumOptions": "enum",
        "EnumValueOptions": "enum_value",
    }
    options = " ".join(f"extend google.protobuf.{one} {{ Meta {name}_meta = 1088; }}" for one, name in of.items())
    fields = "string doc = 1; map<string, string> params = 2; repeated string tags = 3;"
    return _file("confluent", f"message Meta {{ {fields} }} {options}", "descriptor")


def _file(package: str, text: str, *imports: str) -> str:
    needs = "".join(f'import "google/protobuf/{one}.proto"; ' for one in imports)
    return f'syntax = "proto3"; package {package}; {needs}{text}\n'


def _google(text: str, *imports: str) -> str:
    return _file("google.type", text, *imports)


def _enum(name: str, first: str, words: Sequence[str]) -> str:
    values = " ".join(f"{word} = {number};" for number, word in enumerate([first, *words]))
    return _google(f"enum {name} {{ {values} }}")


_DAYS = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")
_MONTHS = (
    *("JANUARY", "FEBRUARY", "MARCH", "APRIL", "MAY", "JUNE"),
    *("JULY", "AUGUST", "SEPTEMBER", "OCTOBER", "NOVEMBER", "DECEMBER"),
)
_DATE = "int32 year = 1; int32 month = 2; int32 day = 3;"

# By the names that they are imported by.
KNOWN: Final[Mapping[str, str]] = {
    "confluent/meta.proto": _confluent(),
    "confluent/type/decimal.proto": _file(
        "confluent.type", "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }"
    ),
    "google/type/date.proto": _google(f"message Date {{ {_DATE} }}"),
    "google/type/timeofday.proto": _google(
        "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }"
    ),
    "google/type/datetime.proto": _google(
        f"message DateTime {{ {_DATE} int32 hours = 4; int32 minutes = 5; int32 seconds = 6; int32 nanos = 7; "
        "oneof time_offset { google.protobuf.Duration utc_offset = 8; TimeZone time_zone = 9; } } "
        "message TimeZone { string id = 1; string version = 2; }",
        "duration",
    ),
    "google/type/interval.proto": _google(
        "message Interval { google.protobuf.Timestamp start_time = 1; google.protobuf.Timestamp end_time = 2; }",
        "timestamp",
    ),
    "google/type/money.proto": _google("message Money { string currency_code = 1; int64 units = 2; int32 nanos = 3; }"),
    "google/type/decimal.proto": _google("message Decimal { string value = 1; }"),
    "google/type/latlng.proto": _google("message LatLng { double latitude = 1; double longitude = 2; }"),
    "google/type/dayofweek.proto": _enum("DayOfWeek", "DAY_OF_WEEK_UNSPECIFIED", _DAYS),
    "google/type/month.proto": _enum("Month", "MONTH_UNSPECIFIED", _MONTHS),
}
