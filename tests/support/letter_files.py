"""Files of dead letters, as Spark leaves them: in folders of attempts, and in a Delta table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support import lakes
from tests.support.delta_in_memory import add
from tidemark.offsets.ranges import TopicPartition
from tidemark.sinks.dead_letters import FIELDS
from tidemark.sinks.dead_letters.delta.letters import COLUMNS, WINDOW
from tidemark.sinks.delta import table as delta_table
from tidemark.sinks.parquet import files

SCHEMA = pa.schema(
    [*lakes.SCHEMA, *((name, pa.binary() if name in ("key", "value") else pa.string()) for name in FIELDS)]
)


def write_file(
    base: str,
    generation: int,
    *offsets: int,
    at: TopicPartition,
    part: int = 0,
    lane: str = "ingest",
    seq: int = 7,
    **fields: Any,
) -> Path:
    """A file of an attempt, with the checksum that Hadoop writes beside it."""
    folder = files.attempt_folder(base, lane, seq, generation)
    return _written(folder, generation, offsets, at, part, SCHEMA, fields)


def prepare_table(base: str, stream: str, ledger: str) -> None:
    delta_table.prepare(base, delta_table.columns(COLUMNS), stream, ledger)


def add_file(
    base: str,
    generation: int,
    *offsets: int,
    at: TopicPartition,
    part: int = 0,
    lane: str = "ingest",
    seq: int = 7,
    **fields: Any,
) -> Path:
    """A file of an attempt in a table, which has it. Each is a transaction by itself, in any order."""
    schema = SCHEMA.append(pa.field(WINDOW, pa.string()))
    folder = delta_table.partition_folder(base, generation)
    path = _written(folder, generation, offsets, at, part, schema, {WINDOW: f"{lane}/{seq}", **fields})
    add(base, f"orders/{generation}/{part}", generation, f"{lane}/{seq}")
    return path


def _written(
    folder: str,
    generation: int,
    offsets: Sequence[int],
    at: TopicPartition,
    part: int,
    schema: pa.Schema,
    fields: Mapping[str, Any],
) -> Path:
    there = Path(folder.removeprefix("file://"))
    there.mkdir(parents=True, exist_ok=True)
    place = {"_topic": at.topic, "_incarnation": at.incarnation, "_partition": at.partition, "_index": 0}
    marked = {**place, "_tombstone": False, "_digest": -generation, "redrives": "0", **fields}
    path = there / f"part-{part:05}.snappy.parquet"
    pq.write_table(pa.Table.from_pylist([{**marked, "_offset": one} for one in offsets], schema), path)
    path.with_name(f".{path.name}.crc").write_bytes(b"crc")
    return path
