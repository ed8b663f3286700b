"""What people may ask of the manual DAGs: the form's fields, and the rules over several of them.

Airflow checks each field against its JSON schema when a run is triggered. It adds keys that it does not know, and knows
no rules over several fields: both are checked here, by the first task of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeVar

from airflow.sdk import Param
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tidemark.errors import WrongUse

# The longest text that a form takes: about 30,000 records pasted as lines.
_MOST_TEXT = 1_000_000
_Lines = Annotated[str, Field(max_length=_MOST_TEXT)]
_Reason = Annotated[str, Field(min_length=3, max_length=500)]
_Digest = Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]

_RANGES = "Half-open offset ranges, one a line: `topic/partition@from-until`"
_RECORDS = "Records, one a line: `topic/partition@offset` or `topic,partition,offset`"


class _Request(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    # The fields of which exactly one has to be filled in.
    _one_of: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="after")
    def _exactly_one(self) -> _Request:
        given = [name for name in self._one_of if getattr(self, name)]
        if self._one_of and len(given) != 1:
            found = " and ".join(given) or "none of them"
            raise ValueError(f"fill in exactly one of {', '.join(self._one_of)}; found {found}")
        return self


class BackfillRequest(_Request):
    """What a backfill reads: ranges, or all that lies before the first window."""

    ranges: _Lines = ""
    everything_before: bool = False
    reason: _Reason
    dry_run: bool = False

    _one_of = ("ranges", "everything_before")


class ReplayRequest(_Request):
    """What a replay reads again."""

    records: _Lines = ""
    ranges: _Lines = ""
    dead_letters: Annotated[str, Field(max_length=200)] = ""
    selection: _Digest = ""
    reason: _Reason
    dry_run: bool = True

    _one_of = ("records", "ranges", "dead_letters", "selection")


class AuditRequest(_Request):
    """What an audit looks at, and whether it hands its findings to a replay."""

    ranges: _Lines = ""
    repair: bool = False


Request = TypeVar("Request", bound=_Request)


def backfill_params() -> dict[str, Param]:
    return {
        "ranges": _text(f"{_RANGES}. Only what no window has read yet.", title="Ranges"),
        "everything_before": Param(
            False,
            "Everything that Kafka still holds below what the ingest began with",
            type="boolean",
            title="All before",
        ),
        "reason": _reason(),
        "dry_run": Param(False, "Only show what would be read", type="boolean", title="Dry run"),
    }


def replay_params() -> dict[str, Param]:
    return {
        "records": _text(f"{_RECORDS}.", title="Records"),
        "ranges": _text(f"{_RANGES}. Only what a window has read before.", title="Ranges"),
        "dead_letters": Param(
            "",
            "Dead letters with exactly this reason; `*` for all of them",
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
        "reason": _reason(),
        "dry_run": Param(True, "Only show what would be read again", type="boolean", title="Dry run"),
    }


def audit_params() -> dict[str, Param]:
    return {
        "ranges": _text(f"{_RANGES}. Empty: everything.", title="Ranges"),
        "repair": Param(False, "Replay what the audit finds", type="boolean", title="Repair"),
    }


def checked(kind: type[Request], values: Mapping[str, Any], sent: Mapping[str, Any]) -> Request:
    """The request in a run's params. `sent` is the run's conf, whose unknown keys Airflow would add in silence.

    Raises WrongUse naming each field and what was expected of it.
    """
    unknown = sorted(set(sent) - set(kind.model_fields))
    if unknown:
        raise WrongUse(f"unknown: {', '.join(unknown)}; known are {', '.join(kind.model_fields)}")
    try:
        return kind.model_validate({name: values[name] for name in kind.model_fields if name in values})
    except ValidationError as problem:
        lines = [
            f"{'.'.join(map(str, error['loc'])) or 'request'}: {error['msg'].removeprefix('Value error, ')}"
            for error in problem.errors()
        ]
        raise WrongUse("; ".join(lines)) from None


def _text(description: str, title: str) -> Param:
    return Param("", description, type="string", format="multiline", maxLength=_MOST_TEXT, title=title)


def _reason() -> Param:
    # Without a default, so that the form asks for it.
    return Param(description="Why; it is kept in the ledger", type="string", minLength=3, maxLength=500, title="Reason")
