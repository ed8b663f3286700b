"""The fields of a request, by which a run's name stands for one request: they are kept with the claim of its lanes."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from tidemark.errors import RecordsGone
from tidemark.ledger.records import RunRequest
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests.forms import BackfillRequest, EraseRequest, ReplayRequest
from tidemark.runs.requests.record_tables import named_records


def fields_of(
    opened: OpenStream, request: BackfillRequest | ReplayRequest | EraseRequest, before: RunRequest | None
) -> dict[str, str]:
    """What a request asks for, by field, with a digest of the records that its file has now: a file may be written anew.

    `before`: what the run has asked for when it began, None for one that begins. It goes on with the records that it has
    claimed, also where their file is gone. Raises WrongUse naming the file and the line, Unreachable.
    """
    fields = request.fields()
    if request.records_file:
        begins = f"{request.records_file} with the records "
        claimed = before.fields.get("records_file", "") if before is not None else ""
        try:
            fields["records_file"] = begins + _digest(named_records(opened, request.records_file).ranges())
        except RecordsGone:
            if not claimed.startswith(begins):
                raise
            fields["records_file"] = claimed
    return fields


def fields_of_offsets(**named: RangeSet) -> dict[str, str]:
    """The fields of a request that a program makes of offsets. Stores none of them."""
    return {name: _digest((str(range_.partition), range_) for range_ in part) for name, part in named.items() if part}


def _digest(ranges: Iterable[tuple[str, OffsetRange]]) -> str:
    digest = sha256()
    for partition, range_ in ranges:
        digest.update(f"{partition} {range_.start} {range_.until}\n".encode())
    return digest.hexdigest()
