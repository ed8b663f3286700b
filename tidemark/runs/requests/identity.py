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
    """The fields of a request, with a digest of its file's records now: somebody may rewrite the file.

    `before`: the run's request when it began, or None. A run goes on with the records that it has claimed, even if
    their file is gone. Raises WrongUse naming the file and the line, Unreachable.
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
