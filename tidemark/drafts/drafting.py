"""The text of a stream file for a topic, drafted from some of its messages."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import yaml

from tidemark.drafts.format import Format
from tidemark.drafts.sampling import SampledMessage
from tidemark.offsets.counting import number_of

_KAFKA = "kafka_default"
# A draft that fewer messages fit, or that is made of fewer, says so.
_SURE, _ENOUGH = 0.98, 10
# Wider than any line: YAML breaks none.
_WIDTH = 1_000_000


@dataclass(frozen=True)
class DraftOutcome:
    """The result of a draft for the messages that were looked at. `dead`: each that would be a dead letter, and why."""

    rows: int
    dead: tuple[tuple[SampledMessage, str], ...]

    def reasons(self) -> list[tuple[str, int]]:
        return Counter(why for _, why in self.dead).most_common()


def outcome(format_: Format, seen: Sequence[SampledMessage]) -> DraftOutcome:
    """A message without a value is a row that says so: a tombstone."""
    dead = tuple(
        (message, why)
        for message in seen
        if message.value is not None and (why := format_.refusal(message.value)) is not None
    )
    return DraftOutcome(len(seen) - len(dead), dead)


def doubts(made: DraftOutcome) -> tuple[str, ...]:
    """How sure a draft is, where it is not: how many messages fit, and whether these are enough to tell."""
    number = made.rows + len(made.dead)
    found = []
    if made.rows < _SURE * number:
        found.append(
            f"not sure: {made.rows * 100 // number} % of the messages fit this file; look at the others before you run it"
        )
    if number < _ENOUGH:
        found.append(
            f"not sure: {number_of(number, 'message')} may not show all that comes; draft again when there are more"
        )
    return tuple(found)


def text_of(stream: str, topic: str, kafka: str, format_: Format, made: DraftOutcome, today: date) -> str:
    """A stream file with comments, which reads the topic into a Delta table and has its ledger in SQL."""
    number = made.rows + len(made.dead)
    source: dict[str, Any] = {"topics": [topic], "start": "earliest"}
    if kafka != _KAFKA:
        source = {"kafka": kafka, **source}
    why = ", ".join(f"{reason}: {count}" for reason, count in made.reasons()[:3])
    dead = f"; {len(made.dead)} as dead letters ({why})" if made.dead else ""
    comments = [
        f"Drafted by `tidemark init` on {today} from {number_of(number, 'message')} of {topic}: {format_.what}{dead}.",
        "docs/stream-files.md explains every key, and many more.",
        *doubts(made),
        *format_.notes,
    ]
    lines = [f"# {comment}" for comment in comments]
    lines += [
        *_block("stream", stream),
        "",
        "# start: earliest, latest, a time, or offsets; it counts until the first run.",
        *_block("source", source),
        "",
        *_scheme(format_),
    ]
    if format_.decompress:
        lines += ["", "# Each value was compressed by itself.", *_block("decompress", format_.decompress)]
    if format_.explode:
        lines += ["", "# Each piece of a message is a row.", *_block("explode", dict(format_.explode))]
    lines += [
        "",
        "# One row a message, in a Delta table below the path of the connection lake_default. Every reader sees what is",
        "# committed, each row once: docs/readers.md has queries for DuckDB, polars, pandas, Spark and Trino.",
        *_block("sinks", [{"type": "delta", "folder": stream}]),
        "",
        "# What does not fit is kept, with the reason, and can be read again.",
        *_block("dead_letters", {"type": "delta", "folder": f"{stream}_dead"}),
        "",
        "# Where positions and windows are kept: the connection sql_default, or a file on this machine.",
        *_block("ledger", {"type": "sql"}),
    ]
    return "\n".join(lines) + "\n"


def _scheme(format_: Format) -> list[str]:
    """The scheme, with the number of messages that have a value next to each field that is not in all."""
    scheme = dict(format_.scheme)
    fields: Mapping[str, str] = scheme.pop("fields", {})
    lines = ["scheme:", *(f"  {line}" for line in _block("type", scheme.pop("type")))]
    if fields:
        counts = {column.name: column.values for column in format_.columns}
        most = max(counts.values(), default=0)
        lines.append("  fields:")
        named = [(f"    {_in_one_line(name)}: {_in_one_line(kind)}", name) for name, kind in fields.items()]
        width = max(len(text) for text, _ in named)
        for text, name in named:
            some = "" if counts.get(name, most) >= most else f"  # in {counts[name]} of them"
            lines.append(f"{text:<{width if some else 0}}{some}")
    if schema := scheme.pop("schema", None):
        lines += ["  schema: |", *(f"    {line}" for line in schema.splitlines())]
    if not scheme:
        return lines
    more = yaml.safe_dump(scheme, sort_keys=False, allow_unicode=True, width=_WIDTH, default_flow_style=False)
    return [*lines, *(f"  {line}" for line in more.splitlines())]


def _block(key: str, value: Any) -> list[str]:
    """A key with its value in one line."""
    return [f"{key}: {_in_one_line(value)}"]


def _in_one_line(value: Any) -> str:
    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=_WIDTH, default_flow_style=True)
    first, *others = text.splitlines()
    # A scalar alone has a mark of its end behind it. JSON, which is YAML too, has a line end in one line.
    return first if others in ([], ["..."]) else json.dumps(value, ensure_ascii=False)
