"""The forms of the manual DAGs. What may be asked, and the rules over several fields, are `tidemark.planning.requests`.

Airflow checks each field against its JSON schema when a run is triggered. It adds keys that it does not know, and knows
no rules over several fields: both are checked by the first task of a run.
"""

from __future__ import annotations

from airflow.sdk import Param

from tidemark.planning.requests import MOST_TEXT, MOST_TIME

_RANGES = "Half-open offset ranges, one a line: `topic/partition@from-until`"
_RECORDS = "Records, one a line: `topic/partition@offset` or `topic,partition,offset`"


def backfill_params() -> dict[str, Param]:
    return {
        "ranges": _text(f"{_RANGES}. Only what no window has read yet.", title="Ranges"),
        "everything_before": Param(
            False,
            "Everything that Kafka still holds below what the ingest began with",
            type="boolean",
            title="All before",
        ),
        "holes": Param(False, "What lies between windows and is in none", type="boolean", title="Holes"),
        **_times("no window has read"),
        "reason": _reason(),
        "dry_run": Param(False, "Only show what would be read", type="boolean", title="Dry run"),
    }


def replay_params() -> dict[str, Param]:
    return {
        "records": _text(f"{_RECORDS}.", title="Records"),
        "ranges": _text(f"{_RANGES}. Only what a window has read before.", title="Ranges"),
        "dead_letters": Param(
            "",
            "Dead letters with exactly this reason, or this error class; `*` for all of them",
            type="string",
            maxLength=200,
            title="Dead letters by reason",
        ),
        "selection": Param(
            "",
            "The findings of an audit, by their digest",
            type="string",
            pattern="^([0-9a-f]{64})?$",
            title="Selection",
        ),
        "ignore_stored": Param(
            False,
            "Everything from where `start` in the stream file says; the ingest stays where it is",
            type="boolean",
            title="All from the start",
        ),
        **_times("a window has read before"),
        "reason": _reason(),
        "dry_run": Param(True, "Only show what would be read again", type="boolean", title="Dry run"),
    }


def audit_params() -> dict[str, Param]:
    return {
        "ranges": _text(f"{_RANGES}. Without ranges and records: everything.", title="Ranges"),
        "records": _text(f"{_RECORDS}.", title="Records"),
        "repair": Param(False, "Replay what the audit finds", type="boolean", title="Repair"),
    }


def _text(description: str, title: str) -> Param:
    return Param("", description, type="string", format="multiline", maxLength=MOST_TEXT, title=title)


def _times(which: str) -> dict[str, Param]:
    """Bounds in time. They are texts, so that a number is not taken for a time."""
    form = "ISO 8601 with a zone, like `2026-11-21T07:00:00Z`"
    since = f"From the first message at or after this time, per partition: {form}. Only what {which}."
    until = "Up to the first message at or after this time, which is not read; where there is none, to the end"
    return {
        "since": Param("", since, type="string", maxLength=MOST_TIME, title="Since"),
        "until_time": Param("", until, type="string", maxLength=MOST_TIME, title="Until (time)"),
        "if_none": Param(
            "fail",
            "Where no message is at or after `since`: fail, or take nothing of that partition (end)",
            type="string",
            enum=["fail", "end"],
            title="If there is none",
        ),
    }


def _reason() -> Param:
    # Without a default, so that the form asks for it.
    return Param(description="Why; it is kept in the ledger", type="string", minLength=3, maxLength=500, title="Reason")
