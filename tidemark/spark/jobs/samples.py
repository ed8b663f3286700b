"""The job that shows what a stream makes of some messages in files. It asks neither Kafka nor a ledger, and writes no table."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidemark.errors import EXIT_DONE, WrongUse
from tidemark.offsets.counting import number_of
from tidemark.offsets.tallies import Outcome
from tidemark.sinks.column_texts import with_texts
from tidemark.sinks.texts import of_file
from tidemark.spark.columns import COORDINATE, FAILURE, INDEX, OFFSET, OUTCOME, REASON
from tidemark.spark.rows.pipeline import check_rows, rows_of
from tidemark.spark.rows.reading import no_messages
from tidemark.spark.runtime.session import open_session
from tidemark.streams.loading import load
from tidemark.streams.model import Stream

# The driver holds all of them, and their rows.
MAX_MESSAGES = 10_000


def main(arguments: list[str]) -> int:
    """Write the rows, dead letters and skipped messages as JSON to a file. Raises WrongUse."""
    parser = argparse.ArgumentParser(prog="process_window samples")
    parser.add_argument("--stream-file", type=Path, required=True)
    parser.add_argument("--messages", type=Path, required=True, help="a file with a message in each line, or a folder")
    parser.add_argument("--out", type=Path, required=True, help="the file for the answer")
    options = parser.parse_args(arguments)
    stream = load(options.stream_file).stream
    options.out.write_text(json.dumps(became(stream, messages_in(options.messages))))
    return EXIT_DONE


def messages_in(path: Path) -> list[bytes]:
    """The values of the messages in a text file, one in each line, or in the files of a folder, by their names.

    Raises WrongUse where there are none, or too many.
    """
    try:
        if path.is_dir():
            found = [file.read_bytes() for file in sorted(path.iterdir()) if file.is_file()]
        else:
            found = path.read_bytes().removesuffix(b"\n").split(b"\n") if path.stat().st_size else []
    except OSError as problem:
        raise WrongUse(
            f"{path}: {problem.strerror}: name a file with a message in each line, or a folder of them"
        ) from None
    if not 0 < len(found) <= MAX_MESSAGES:
        raise WrongUse(f"{path} has {number_of(len(found), 'message')}; expected 1 to {MAX_MESSAGES:,}")
    return found


def became(stream: Stream, values: list[bytes]) -> dict[str, Any]:
    """What the stream makes of messages with these values. They are counted from 1. Raises WrongUse as a window does."""
    spark = open_session(f"tidemark try {stream.name}", own_code=stream.has_own_code)
    check_rows(spark, stream)
    topic = next(iter(stream.source.topics or ()), stream.name)
    messages = [(topic, 1, 0, number, None, value, None, 0, None, None) for number, value in enumerate(values, 1)]
    made = rows_of(spark.createDataFrame(messages, no_messages(spark).schema), stream)
    try:
        rows = made.frame.persist()
        stored = rows.where(rows[OUTCOME] == Outcome.STORED.value).orderBy(OFFSET, INDEX)
        table = with_texts(stored.select(*COORDINATE, INDEX, *stream.fields).toArrow())
        others = (
            rows.where(rows[OUTCOME] != Outcome.STORED.value).orderBy(OFFSET).select(OFFSET, OUTCOME, REASON, FAILURE)
        )
        others_found = others.collect()
    finally:
        made.close()
    return {
        "messages": len(values),
        "fields": {name: str(kind) for name, kind in stream.fields.items()},
        "rows": [
            {"message": row[OFFSET], "index": row[INDEX], "fields": of_file(row)["fields"]} for row in table.to_pylist()
        ],
        "dead_letters": list(_dead(row for row in others_found if row[OUTCOME] != Outcome.SKIPPED.value)),
        "skipped": [row[OFFSET] for row in others_found if row[OUTCOME] == Outcome.SKIPPED.value],
    }


def _dead(rows: Iterator[Any]) -> Iterator[dict[str, Any]]:
    for row in rows:
        detail = row[FAILURE]["detail"] if row[FAILURE] is not None else None
        yield {"message": row[OFFSET], "reason": row[REASON], **({"detail": detail} if detail else {})}
