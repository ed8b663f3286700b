"""Files of dead letters, as Spark leaves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support import lakes
from tidemark.offsets.ranges import TopicPartition
from tidemark.sinks.dead_letters import FIELDS
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
    folder = Path(files.attempt_folder(base, lane, seq, generation).removeprefix("file://"))
    folder.mkdir(parents=True, exist_ok=True)
    place = {"_topic": at.topic, "_incarnation": at.incarnation, "_partition": at.partition, "_index": 0}
    marked = {**place, "_tombstone": False, "_digest": -generation, "redrives": "0", **fields}
    path = folder / f"part-{part:05}.snappy.parquet"
    pq.write_table(pa.Table.from_pylist([{**marked, "_offset": one} for one in offsets], SCHEMA), path)
    path.with_name(f".{path.name}.crc").write_bytes(b"crc")
    return path
