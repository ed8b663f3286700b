"""Requests for a backfill, a replay, an erasure and an audit: the fields, and the rules over several fields.

A form in Airflow and the command line have the same fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from tidemark.audit.levels import Level
from tidemark.errors import WrongUse
from tidemark.ledger.records import LaneKind
from tidemark.offsets.coordinates import Named, parse_ranges, parse_records
from tidemark.offsets.shares import MOST_SEED, share_or_none
from tidemark.offsets.times import read_time
from tidemark.schemes import wording
from tidemark.schemes.parts import form
from tidemark.streams.audits import LevelName


def _fits(text: str) -> str:
    if len(text) > MOST_TEXT:
        raise ValueError(
            f"{len(text)} characters, and a field takes up to {MOST_TEXT}; write records to a file and name it as records_file"
        )
    return text


# The longest accepted text: about 30,000 records pasted as lines.
MOST_TEXT = 1_000_000
MOST_TIME = 40
# Records a second. Far more than any cluster has, and small enough to multiply.
MOST_RATE = 1_000_000_000
# Lanes that read at the same time. Each has a Spark job of its own.
MOST_LANES = 8
LEAST_REASON, MOST_REASON = 3, 500

# A longer text is kept with a claim by its digest alone.
_MOST_SHOWN = 100

MOST_PATH = 1_000
MOST_KEY = 10_000
# A run of Airflow is `DAG/RUN`, of up to 250 characters each.
MOST_WINDOW = 501
MOST_SINK = 200
MOST_SINKS = 100
DIGEST_PATTERN = r"^([0-9a-f]{64})?$"
# A lane, or one of its windows, as `show` and `results --dead-letters` name it.
WINDOW_PATTERN = r"^([A-Za-z0-9-]{1,60}(/[0-9]{1,19})?)?$"

_Lines = Annotated[str, AfterValidator(_fits)]
_Path = Annotated[str, Field(max_length=MOST_PATH)]
_Reason = Annotated[str, Field(min_length=LEAST_REASON, max_length=MOST_REASON)]
_Digest = Annotated[str, form(DIGEST_PATTERN, "the 64 hexadecimal digits that a plan or a stored selection has")]
_Share = Annotated[str, Field(max_length=10), AfterValidator(share_or_none)]
_Seed = Annotated[int, Field(ge=0, le=MOST_SEED)]
_IfNone = Literal["fail", "end"]
_OrderName = Literal["oldest", "newest"]
# Names of sinks; those of the stream file are known to `into_sinks`.
_Sinks = Annotated[list[Annotated[str, Field(max_length=MOST_SINK)]], Field(max_length=MOST_SINKS)]
_Rate = Annotated[int, Field(ge=1, le=MOST_RATE)]
_Lanes = Annotated[int, Field(ge=1, le=MOST_LANES)]
_Window = Annotated[str, Field(max_length=MOST_WINDOW)]


def _time(text: str) -> str:
    if text:
        try:
            read_time(text)
        except WrongUse as problem:
            raise ValueError(str(problem)) from None
    return text


def _reason_or_none(text: str) -> str:
    if text and len(text) < LEAST_REASON:
        raise ValueError(f"{text!r} is too short; expected at least {LEAST_REASON} characters, or none")
    return text


_Time = Annotated[str, Field(max_length=MOST_TIME), AfterValidator(_time)]


def _shown(value: object, most: int) -> str:
    """A value as a text that is the same for the same value only: its own, or with more than `most` characters a digest."""
    text = ",".join(map(repr, sorted(value))) if isinstance(value, list) else str(value)
    if len(text) <= most:
        return text
    return f"{len(text)} characters with SHA-256 {sha256(text.encode()).hexdigest()}"


class _Request(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    # The ways to name offsets, each with its fields. A request uses exactly one of them.
    _ways: ClassVar[tuple[tuple[str, ...], ...]] = ()
    # Fields that say how a request is looked at, and not what is asked for.
    _about: ClassVar[frozenset[str]] = frozenset({"dry_run", "compare", "strict", "plan"})
    # Fields whose values may be personal data: the ledger keeps digests of them, whatever their length.
    _private: ClassVar[frozenset[str]] = frozenset({"key"})
    # Two ways that may be used together.
    _together: ClassVar[frozenset[tuple[str, ...]]] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def _left_empty(cls, values: Any) -> Any:
        """For an empty field, a form sends null or an empty list, a command line an empty text. All mean absent."""
        if not isinstance(values, Mapping):
            return values
        return {name: value for name, value in values.items() if value not in (None, []) and str(value).strip()}

    @classmethod
    def asks(cls, values: Mapping[str, Any]) -> bool:
        """Whether some values, which may be no whole request, ask for anything."""
        return any(
            value not in (None, [], "", field.default)
            for name, field in cls.model_fields.items()
            if name not in cls._about and (value := values.get(name)) is not None
        )

    def fields(self) -> dict[str, str]:
        """What is asked for, by field: those that are not left as they are. A long text by its digest."""
        return {
            name: _shown(value, 0 if name in self._private else _MOST_SHOWN)
            for name, field in type(self).model_fields.items()
            if name not in self._about and (value := getattr(self, name)) != field.default
        }

    @model_validator(mode="after")
    def _exactly_one(self) -> _Request:
        given = [way for way in self._ways if any(getattr(self, name) for name in way)]
        together = bool(given) and set(given) == self._together
        if self._ways and len(given) != 1 and not together:
            ways, found = (["/".join(way) for way in some] for some in (self._ways, given))
            raise ValueError(f"fill in exactly one of {', '.join(ways)}; found {' and '.join(found) or 'none of them'}")
        return self


class BackfillRequest(_Request):
    """What a backfill reads: ranges, records, all before the first window, the holes, or the unread part of a time.

    With `mode` reprocess it also reads again what windows have read of the ranges, the records or the time. With `sinks` it
    reads only that, into these sinks alone.
    """

    ranges: _Lines = ""
    records: _Lines = ""
    records_file: _Path = ""
    everything_before: bool = False
    holes: bool = False
    mode: Literal["only_missing", "reprocess"] = "only_missing"
    sinks: _Sinks = []
    since: _Time = ""
    until_time: _Time = ""
    if_none: _IfNone = "fail"
    order: _OrderName = "oldest"
    # Records a second, on average; None: as the stream file says.
    rate: _Rate | None = None
    # Among so many lanes the offsets are divided.
    lanes: _Lanes = 1
    reason: _Reason
    dry_run: bool = False
    # Refuse the whole request when any of its offsets cannot be read.
    strict: bool = False
    # Refuse it unless it does what the plan of this digest says, as a dry run has given it.
    plan: _Digest = ""

    kind: ClassVar[LaneKind] = LaneKind.BACKFILL
    _ways = (
        ("ranges",),
        ("records",),
        ("records_file",),
        ("everything_before",),
        ("holes",),
        ("since", "until_time"),
    )

    @model_validator(mode="after")
    def _something_to_read_again(self) -> BackfillRequest:
        if self.reprocess and (self.everything_before or self.holes):
            raise ValueError(
                "mode reprocess needs ranges, records, records_file, or since/until_time: everything_before and holes name "
                "offsets that no window has read, so nothing of them can be read again"
            )
        if self.sinks and not self.reprocess:
            raise ValueError(
                "sinks needs mode reprocess: only what windows have read is read into some sinks alone. What no window has "
                "read goes into all sinks: leave sinks empty"
            )
        return self

    @property
    def reprocess(self) -> bool:
        """Whether offsets of the request that windows have read are read again."""
        return self.mode == "reprocess"


class ReplayRequest(_Request):
    """What a replay reads again."""

    records: _Lines = ""
    records_file: _Path = ""
    ranges: _Lines = ""
    # What committed windows have read: LANE, LANE/NUMBER, or the name of the run that committed them.
    window: _Window = ""
    dead_letters: Annotated[str, Field(max_length=200)] = ""
    # Only with `dead_letters`, as are the two times if both are given: of those that this lane or window made.
    dead_letters_window: Annotated[str, form(WINDOW_PATTERN, "a lane, or one of its windows as LANE/NUMBER")] = ""
    selection: _Digest = ""
    ignore_stored: bool = False
    # Write these sinks alone; the others, and the dead letters, stay as they are. Empty: all.
    sinks: _Sinks = []
    since: _Time = ""
    until_time: _Time = ""
    if_none: _IfNone = "fail"
    order: _OrderName = "oldest"
    # Records a second, on average; None: as the stream file says.
    rate: _Rate | None = None
    # Among so many lanes the offsets are divided.
    lanes: _Lanes = 1
    reason: _Reason
    dry_run: bool = True
    # Say what will change, with Spark, before anything is committed.
    compare: bool = False
    strict: bool = False
    plan: _Digest = ""

    kind: ClassVar[LaneKind] = LaneKind.REPLAY
    _ways = (
        ("records",),
        ("records_file",),
        ("ranges",),
        ("window",),
        ("dead_letters",),
        ("selection",),
        ("ignore_stored",),
        ("since", "until_time"),
    )
    # Times choose among dead letters.
    _together = frozenset({("dead_letters",), ("since", "until_time")})

    @model_validator(mode="after")
    def _window_of_dead_letters(self) -> ReplayRequest:
        if self.dead_letters_window and not self.dead_letters:
            raise ValueError(
                "dead_letters_window chooses among dead letters: fill in dead_letters too, * for all of them"
            )
        return self

    @model_validator(mode="after")
    def _resolves_no_dead_letters(self) -> ReplayRequest:
        if self.sinks and self.dead_letters:
            raise ValueError(
                "dead_letters and sinks: a replay into some sinks alone resolves no dead letters. Leave sinks empty to redrive "
                "them, or name the messages in another way"
            )
        return self


class EraseRequest(_Request):
    """What is erased: single messages, or all with a key."""

    records: _Lines = ""
    records_file: _Path = ""
    # Text, or `hex:` and hexadecimal digits.
    key: Annotated[str, Field(max_length=MOST_KEY)] = ""
    reason: _Reason
    dry_run: bool = True

    kind: ClassVar[LaneKind] = LaneKind.ERASE
    _ways = (("records",), ("records_file",), ("key",))


class AuditRequest(_Request):
    """What an audit looks at, how deep, and whether a replay repairs its findings."""

    ranges: _Lines = ""
    records: _Lines = ""
    records_file: _Path = ""
    window: _Window = ""
    # The findings of another audit.
    selection: _Digest = ""
    since: _Time = ""
    until_time: _Time = ""
    if_none: _IfNone = "fail"
    level: LevelName = "full"
    repair: Literal["none", "plan", "execute"] = "none"
    # Of the replay that repairs. Without it, the audit's run is the reason.
    reason: Annotated[str, Field(max_length=MOST_REASON), AfterValidator(_reason_or_none)] = ""
    share: _Share = ""
    seed: _Seed | None = None

    @model_validator(mode="after")
    def _possible_at_this_level(self) -> AuditRequest:
        if not self.depth.needs_spark:
            if self.times or self._other_ways:
                raise ValueError(
                    f"level {self.level} looks at the whole ledger: leave ranges, records, records_file, window, selection "
                    "and since/until_time empty"
                )
            if self.share:
                raise ValueError(
                    f"share: level {self.level} looks at the whole ledger; use level sinks, full or recompute"
                )
            if self.repair != "none":
                raise ValueError(
                    f"repair: level {self.level} reads no rows, so it has no findings to replay; use level sinks, full "
                    "or recompute"
                )
        if self.times and self._other_ways:
            raise ValueError(
                "since/until_time: an audit takes times or other offsets, not both; leave ranges, records, records_file, "
                "window and selection empty, or start a second audit"
            )
        if self.seed is not None and not self.share:
            raise ValueError("seed: it chooses the blocks of a share; give a share too, such as 5%")
        return self

    @property
    def times(self) -> bool:
        """Whether the offsets between two times are asked for."""
        return bool(self.since or self.until_time)

    @property
    def _other_ways(self) -> bool:
        return bool(self.ranges or self.records or self.records_file or self.window or self.selection)

    @property
    def depth(self) -> Level:
        return Level(self.level)

    def offsets(self) -> Named:
        """The offsets that are written out; empty where none are. Raises WrongUse naming the line."""
        return parse_ranges(self.ranges, "ranges") | parse_records(self.records, "records")


Request = TypeVar("Request", bound=_Request)


def checked(kind: type[Request], values: Mapping[str, Any], sent: Mapping[str, Any]) -> Request:
    """The request in some values. `sent` has the values as they were sent, with unknown keys.

    Raises WrongUse naming each wrong field and what was expected.
    """
    unknown = sorted(set(sent) - set(kind.model_fields))
    if unknown:
        raise WrongUse(f"unknown: {', '.join(unknown)}; known are {', '.join(kind.model_fields)}")
    try:
        return kind.model_validate({name: values[name] for name in kind.model_fields if name in values})
    except ValidationError as problem:
        lines = [
            f"{'.'.join(map(str, error['loc'])) or 'request'}: {wording.said(error, kind)}"
            for error in wording.errors(problem)
        ]
        raise WrongUse("; ".join(lines)) from None
