"""Names of headers that are no UTF-8: a message with one is read, and so are those beside it."""

from __future__ import annotations

import pytest
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder

from tidemark.clients.kafka.header_names import take_any_names
from tidemark.clients.kafka.slots import Slot, at_offset


class Wrong(str):
    """A name as a producer of another language may write it."""

    __slots__ = ()

    def encode(self, *_: object) -> bytes:
        return b"\xff\xfe\xc3"


@pytest.mark.covers("U28", "U14")
@pytest.mark.parametrize("compression", [0, 1])
def test_a_message_whose_header_has_a_wrong_name_stops_no_reader(compression: int) -> None:
    take_any_names()
    builder = DefaultRecordBatchBuilder(2, compression, False, -1, -1, -1, 1_000_000)
    names = ["a", Wrong("x"), "é", Wrong("y")]
    for offset, name in enumerate(names):
        builder.append(offset, 1_000 + offset, b"k%d" % offset, b"v", [(name, b"\xff"), (name, None)])
    data = bytes(builder.build())
    found = [record for batch in MemoryRecords(data) for record in batch]
    assert [(record.offset, record.key, record.timestamp) for record in found] == [
        (offset, b"k%d" % offset, 1_000 + offset) for offset in range(4)
    ]
    shown = ["a", "\ufffd\ufffd\ufffd", "é", "\ufffd\ufffd\ufffd"]
    assert [record.headers for record in found] == [[(name, b"\xff"), (name, None)] for name in shown]
    batches = MemoryRecords(data)
    slot, message = at_offset(iter(batches.next_batch, None), 3, (), 10)
    assert slot == Slot.MESSAGE
    assert message is not None
    assert message.headers == (("\ufffd\ufffd\ufffd", b"\xff"), ("\ufffd\ufffd\ufffd", None))
