"""Messages of Protocol Buffers for tests, written by Google's library for Python: another than the one that reads them."""

from __future__ import annotations

import struct
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from tidemark.clients.protobuf_files import set_of

ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";

enum Kind { UNKNOWN = 0; OLD = 1; NEW = 2; }

message Refund { int64 id = 1; }

message Order {
  message Line { string sku = 1; double price = 2; repeated Line parts = 3; }
  int64 id = 1;
  string name = 2;
  optional int32 size = 3;
  uint64 large = 4;
  uint32 middle = 5;
  Kind kind = 6;
  repeated Line lines = 7;
  map<string, int64> counts = 8;
  map<uint64, Line> by_number = 9;
  oneof paid_by { string card = 10; int64 voucher = 11; }
  google.protobuf.Timestamp placed = 12;
  google.protobuf.Duration took = 13;
  google.protobuf.Int64Value rank = 14;
  google.protobuf.Struct more = 15;
  bytes raw = 16;
  bool paid = 17;
  float share = 18;
  Line first = 19;
  repeated google.protobuf.StringValue words = 20;
}
"""


class Schema:
    """A .proto file as a program has it that sends its messages."""

    def __init__(self, text: str = ORDER, **imports: str) -> None:
        self.text = text
        self.data = set_of(text, {f"{name}.proto": one for name, one in imports.items()})
        self._pool = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(self.data).file:
            self._pool.Add(file)

    def message(self, kind: str, /, **fields: Any) -> Any:
        """A message with fields as JSON has them."""
        made = message_factory.GetMessageClass(self._pool.FindMessageTypeByName(kind))
        return json_format.ParseDict(fields, made(), descriptor_pool=self._pool)

    def written(self, kind: str = "shop.Order", /, **fields: Any) -> bytes:
        return bytes(self.message(kind, **fields).SerializeToString(deterministic=True))


def framed(number: int, value: bytes, *indexes: int) -> bytes:
    """A value in the wire format of a registry, with the indexes of its message; none stand for the first one."""
    return struct.pack(">bI", 0, number) + (_indexes(indexes) if indexes else b"\0") + value


def _indexes(indexes: tuple[int, ...]) -> bytes:
    return b"".join(map(_zigzag, (len(indexes), *indexes)))


def _zigzag(number: int) -> bytes:
    number, out = number << 1, b""
    while number > 127:
        number, out = number >> 7, out + bytes([number & 127 | 128])
    return out + bytes([number])
