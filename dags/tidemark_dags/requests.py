"""The forms of the manual DAGs. What may be asked, and the rules over several fields, are `tidemark.runs.requests`.

Airflow checks each field against its JSON schema when a run is triggered. It adds keys that it does not know, and knows
no rules over several fields: both are checked by the first task of a run.

A field that may stay empty has the type `null` too: Airflow's form sends null for it, and takes any other field that is
empty for missing. Fields without a section are open at first, each section is closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import Param

from tidemark.offsets.order import Order
from tidemark.offsets.shares import MOST_SEED, PATTERN
from tidemark.runs.requests import (
    DIGEST_PATTERN,
    LEAST_REASON,
    MOST_KEY,
    MOST_LANES,
    MOST_PATH,
    MOST_RATE,
    MOST_REASON,
    MOST_SINK,
    MOST_SINKS,
    MOST_TEXT,
    MOST_TIME,
    MOST_WINDOW,
    WINDOW_PATTERN,
)

_RANGES = "Half-open offset ranges, one a line: topic/partition@from-until"
_RECORDS = (
    "Single records, one a line: topic/partition@offset or topic,partition,offset; or CSV with a header, or JSON, with "
    "topic, partition and offset"
)
_FILE = (
    "A file below the folder TIDEMARK_SELECTIONS, with any number of records: CSV, JSON lines or Parquet with the columns "
    "topic, partition and offset. Or hbase:TABLE: an HBase table that record_tables of the stream file names"
)
_FINDINGS = "The findings of an audit, by the digest that its report names"
_WINDOW = (
    "What committed windows have read: a lane, such as ingest; a window of it, such as ingest/17; or the name of the run that "
    "committed them"
)

OTHER_WAYS = "What: other ways to choose offsets"
INTO = "Where: into some sinks alone"
TIMES = "When: offsets between two times"
PACE = "How: order, rate and lanes"


def backfill_params(approve_above: int | None = None, sinks: Sequence[str] = ()) -> dict[str, Param]:
    return {
        "ranges": _lines(
            "Ranges", f"{_RANGES}. Only offsets that no window has read yet, unless the mode says otherwise."
        ),
        "reason": _reason(approve_above),
        "dry_run": _switch("Dry run", "Only show what would be read", on=False),
        "strict": _strict(),
        "records": _lines("Records", f"{_RECORDS}. Only those that no window has read yet.", section=OTHER_WAYS),
        "records_file": _records_file(section=OTHER_WAYS),
        "everything_before": _switch(
            "Everything before",
            "Everything that Kafka still holds below the offsets that the ingest began with",
            section=OTHER_WAYS,
        ),
        "holes": _switch("Holes", "Offsets that the ingest is past, and that are in no window", section=OTHER_WAYS),
        "mode": _choice(
            "Mode",
            "only_missing: read only what no window has read yet, and leave the rest as it is. reprocess: after that, also "
            "read again what windows have read. reprocess takes ranges, records, a records file or times.",
            ["only_missing", "reprocess"],
            section=OTHER_WAYS,
        ),
        **_into(sinks, "It takes mode reprocess, and reads only what windows have read before."),
        **_times("Only offsets that no window has read yet, unless the mode says otherwise."),
        **_pace(),
    }


def replay_params(approve_above: int | None = None, sinks: Sequence[str] = ()) -> dict[str, Param]:
    return {
        "records": _lines("Records", f"{_RECORDS}. Choose offsets in one way only."),
        "ranges": _lines("Ranges", f"{_RANGES}. Only offsets that a window has read before."),
        "reason": _reason(approve_above),
        "dry_run": _switch("Dry run", "Only show what would be read again. Switch it off to replay.", on=True),
        "compare": _switch(
            "Compare",
            "Before anything is committed, say what will be the same, changed, new and gone. Spark computes the rows for it.",
        ),
        "strict": _strict(),
        "window": _text("Window", f"{_WINDOW}.", section=OTHER_WAYS, maxLength=MOST_WINDOW),
        "dead_letters": _text(
            "Dead letters",
            "Dead letters with exactly this reason or this error class; * for all of them. Since and Until time, below, may "
            "be filled in too: then only dead letters whose message has such a time.",
            section=OTHER_WAYS,
            maxLength=200,
        ),
        "dead_letters_window": _text(
            "Dead letters window",
            "Only the dead letters of this lane, such as ingest, or of one window of it, such as ingest/17",
            section=OTHER_WAYS,
            pattern=WINDOW_PATTERN,
        ),
        "records_file": _records_file(section=OTHER_WAYS),
        "selection": _text(
            "Selection",
            _FINDINGS,
            section=OTHER_WAYS,
            pattern=DIGEST_PATTERN,
        ),
        "ignore_stored": _switch(
            "Ignore stored",
            "Everything from the start of the stream file. The ingest keeps its position.",
            section=OTHER_WAYS,
        ),
        **_into(sinks, "For a sink or a column that was added to the stream."),
        **_times(
            "Only offsets that a window has read before. With dead letters, the two times look at the messages of the dead "
            "letters instead, and If none has no effect."
        ),
        **_pace(),
    }


def erase_params(approve_above: int | None = None) -> dict[str, Param]:
    return {
        "records": _lines("Records", f"{_RECORDS}. Choose offsets in one way only."),
        "key": _text(
            "Key",
            "Every message with this key: its text, or hex: and its bytes as hexadecimal digits. Reads all that Kafka still "
            "holds of the stream. Airflow keeps the key with the run.",
            maxLength=MOST_KEY,
        ),
        "records_file": _records_file(),
        "reason": _reason(approve_above),
        "dry_run": _switch(
            "Dry run", "Only show what would be erased, and where it is. Switch it off to erase.", on=True
        ),
    }


def audit_params() -> dict[str, Param]:
    return {
        "ranges": _lines("Ranges", f"{_RANGES}. Without a choice of offsets, the audit covers everything."),
        "records": _lines("Records", f"{_RECORDS}."),
        "records_file": _records_file(),
        "window": _text("Window", f"{_WINDOW}.", maxLength=MOST_WINDOW),
        "selection": _text("Selection", _FINDINGS, pattern=DIGEST_PATTERN),
        "level": _choice(
            "Level",
            "How deep to look. ledger: are the ledger's records whole, without holes or overlaps? Takes seconds. source: "
            "also, was no log cut, and nothing deleted unread? Asks Kafka once a topic. sinks: does each block of 10,000 "
            "offsets have the rows that its window counted? Reads the sinks. full: does each message have its rows, and no "
            "others? Reads Kafka and the sinks. recompute: the same, and trusts no counts of windows. Takes about twice as "
            "long as full. ledger and source take no choice of offsets.",
            ["full", "recompute", "sinks", "source", "ledger"],
        ),
        "repair": _choice(
            "Repair",
            "plan: say what a replay of the findings would read. execute: replay them, then audit the same offsets again.",
            ["none", "plan", "execute"],
        ),
        "reason": _text(
            "Reason",
            "Why the findings are replayed. The ledger keeps it. Without one: repair of what this run found.",
            pattern=rf"^([\s\S]{{{LEAST_REASON},}})?$",
            maxLength=MOST_REASON,
        ),
        "share": _text(
            "Share",
            "Look at a share of the data, such as 5%. For the levels sinks, full and recompute.",
            pattern=PATTERN,
            maxLength=10,
        ),
        "seed": _number(
            "Seed",
            "Which share: the next number takes the next share. Without a seed, the number of the day.",
            0,
            MOST_SEED,
        ),
        **_times("Only offsets that a window has read and Kafka still holds."),
    }


def _lines(title: str, description: str, **schema: Any) -> Param:
    return _text(title, description, format="multiline", maxLength=MOST_TEXT, **schema)


def _text(title: str, description: str, **schema: Any) -> Param:
    return Param(None, description, type=["null", "string"], title=title, **schema)


def _number(title: str, description: str, least: int, most: int, **schema: Any) -> Param:
    return Param(None, description, type=["null", "integer"], minimum=least, maximum=most, title=title, **schema)


def _records_file(**schema: Any) -> Param:
    return _text("Records file", f"{_FILE}.", maxLength=MOST_PATH, **schema)


def _switch(title: str, description: str, *, on: bool = False, **schema: Any) -> Param:
    return Param(on, description, type="boolean", title=title, **schema)


def _choice(title: str, description: str, values: list[str], **schema: Any) -> Param:
    """One of some values; the first one is the default."""
    return Param(values[0], description, type="string", enum=values, title=title, **schema)


def _strict() -> Param:
    return _switch(
        "Strict",
        "Fail when any of the offsets cannot be read. Otherwise the others are read, and the answers say which were not.",
    )


def _times(which: str) -> dict[str, Param]:
    """Bounds in time. They are texts, so that a number is not taken for a time."""
    form = "ISO 8601 with a zone, like 2026-11-21T07:00:00Z"
    return {
        "since": _text(
            "Since",
            f"From the first message at or after this time, per partition: {form}. {which}",
            section=TIMES,
            maxLength=MOST_TIME,
        ),
        "until_time": _text(
            "Until time",
            "Up to the first message at or after this time, which is not read. Without such a message, up to the end.",
            section=TIMES,
            maxLength=MOST_TIME,
        ),
        "if_none": _choice(
            "If none",
            "When a partition has no message at or after since: fail, or end to take nothing of that partition",
            ["fail", "end"],
            section=TIMES,
        ),
    }


def _into(sinks: Sequence[str], more: str) -> dict[str, Param]:
    return {
        "sinks": Param(
            None,
            f"Write only these sinks: the others, and the dead letters, stay as they are. Empty: all. {more}",
            type=["null", "array"],
            # The form offers these. A list of an older form may name a sink that is gone: the first task refuses it.
            examples=[*sinks],
            items={"type": "string", "maxLength": MOST_SINK},
            maxItems=MOST_SINKS,
            title="Sinks",
            section=INTO,
        )
    }


def _pace() -> dict[str, Param]:
    return {
        "order": _choice(
            "Order",
            "Which windows come first in each partition: those of the oldest offsets, or of the newest",
            [one.value for one in Order],
            section=PACE,
        ),
        "rate": _number(
            "Rate",
            "The most records a second, on average. It overrides max_records_per_second of the stream file for this run.",
            1,
            MOST_RATE,
            section=PACE,
        ),
        "lanes": _number(
            "Lanes",
            "Divide the offsets among so many lanes, which work at the same time. Each is a mapped task of process, in a Spark "
            "job of its own. Empty: one.",
            1,
            MOST_LANES,
            section=PACE,
        ),
        "plan": _text(
            "Plan",
            "The digest of a plan, as a dry run and the page Plan give it. A run that would read or replace anything else "
            "than that plan is refused.",
            section=PACE,
            pattern=DIGEST_PATTERN,
        ),
    }


def _reason(approve_above: int | None) -> Param:
    read = f" Above {approve_above} offsets, another person reads it and approves." if approve_above is not None else ""
    # Without a default and without the type null: the one field that the form asks for.
    return Param(
        description=f"Why. It is kept in the ledger.{read}",
        type="string",
        minLength=LEAST_REASON,
        maxLength=MOST_REASON,
        title="Reason",
    )
