"""The fields of a request, by which a run's name stands for one request: they are kept with the claim of its lanes."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.runs.open_stream import OpenStream
from tidemark.runs.record_tables import named_records
from tidemark.runs.requests import BackfillRequest, EraseRequest, ReplayRequest


def fields_of(opened: OpenStream, request: BackfillRequest | ReplayRequest | EraseRequest) -> dict[str, str]:
    """What a request asks for, by field, with a digest of the records that its file has now: a file may be written anew.

    Raises WrongUse naming the file and the line, Unreachable.
    """
    fields = request.fields()
    if request.records_file:
        found = named_records(opened, request.records_file)
        fields["records_file"] = f"{request.records_file} with the records {_digest(found.ranges())}"
    return fields


def fields_of_offsets(**named: RangeSet) -> dict[str, str]:
    """The fields of a request that a program makes of offsets. Stores none of them."""
    return {name: _digest((str(one.partition), one) for one in part) for name, part in named.items() if part}


def _digest(ranges: Iterable[tuple[str, OffsetRange]]) -> str:
    found = sha256()
    for partition, one in ranges:
        found.update(f"{partition} {one.start} {one.until}\n".encode())
    return found.hexdigest()
