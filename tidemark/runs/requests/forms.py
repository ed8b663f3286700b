"""Requests for a backfill, a replay, an erasure and an audit: the fields, and the rules over several fields.

Each field is declared here once, with its title, its text, its bounds and its section. Airflow's forms, the options of the
command line and docs/params.md are made of that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import ErrorDetails

from tidemark.audit.levels import Level
from tidemark.errors import WrongUse
from tidemark.ledger.records import LaneKind
from tidemark.offsets.coordinates import NamedOffsets, parse_ranges, parse_records
from tidemark.offsets.shares import MAX_SEED, PATTERN, share_or_none
from tidemark.offsets.times import read_time
from tidemark.planning.dividing import MAX_LANES
from tidemark.settings import wording
from tidemark.settings.parts import form
from tidemark.streams.audits import LevelName


def _fits(text: str, info: ValidationInfo) -> str:
    # A command has read the text from a file or an option, and sends it nowhere.
    if len(text) > MAX_TEXT and not (info.context or {}).get("here"):
        raise ValueError(
            f"{len(text)} characters, and a field takes up to {MAX_TEXT}; write records to a file and name it as records_file"
        )
    return text


# The longest accepted text: about 30,000 records pasted as lines.
MAX_TEXT = 1_000_000
MAX_TIME = 40
# Records a second. Far more than any cluster has, and small enough to multiply.
MAX_RATE = 1_000_000_000
LEAST_REASON, MAX_REASON = 3, 500

# A longer text is kept with a claim by its digest alone.
_MAX_SHOWN = 100

MAX_PATH = 1_000
MAX_KEY = 10_000
# A run of Airflow is `DAG/RUN`, of up to 250 characters each.
MAX_WINDOW = 501
MAX_SINK = 200
MAX_SINKS = 100
DIGEST_PATTERN = r"^([0-9a-f]{64})?$"
# A lane, or one of its windows, as `show` and `results --dead-letters` name it.
WINDOW_PATTERN = r"^([A-Za-z0-9-]{1,60}(/[0-9]{1,19})?)?$"


def _as_form(most: int, **more: str) -> WithJsonSchema:
    """How a form checks a text that a function checks here."""
    return WithJsonSchema({"type": "string", "maxLength": most, **more})


_Lines = Annotated[str, AfterValidator(_fits), _as_form(MAX_TEXT, format="multiline")]
_Path = Annotated[str, Field(max_length=MAX_PATH)]
_Reason = Annotated[str, Field(min_length=LEAST_REASON, max_length=MAX_REASON)]
_Digest = Annotated[str, form(DIGEST_PATTERN, "the 64 hexadecimal digits that a plan or a stored selection has")]
_Share = Annotated[str, Field(max_length=10), AfterValidator(share_or_none), _as_form(10, pattern=PATTERN)]
_Seed = Annotated[int, Field(ge=0, le=MAX_SEED)]
_IfNone = Literal["fail", "end"]
# Names of sinks; those of the stream file are known to `into_sinks`.
_Sinks = Annotated[list[Annotated[str, Field(max_length=MAX_SINK)]], Field(max_length=MAX_SINKS)]
_Rate = Annotated[int, Field(ge=1, le=MAX_RATE)]
_Lanes = Annotated[int, Field(ge=1, le=MAX_LANES)]
_Window = Annotated[str, Field(max_length=MAX_WINDOW)]


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


_ReasonOrNone = Annotated[
    str,
    Field(max_length=MAX_REASON),
    AfterValidator(_reason_or_none),
    _as_form(MAX_REASON, pattern=rf"^([\s\S]{{{LEAST_REASON},}})?$"),
]
_Time = Annotated[str, Field(max_length=MAX_TIME), AfterValidator(_time)]


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
        """The fields of the request that differ from their defaults. A long text by its digest."""
        return {
            name: _shown(value, 0 if name in self._private else _MAX_SHOWN)
            for name, field in type(self).model_fields.items()
            if name not in self._about and (value := getattr(self, name)) != field.default
        }

    @model_validator(mode="after")
    def _exactly_one(self) -> _Request:
        given = [way for way in self._ways if any(getattr(self, name) for name in way)]
        together = bool(given) and set(given) == self._together
        if self._ways and len(given) != 1 and not together:
            ways, used = (["/".join(way) for way in some] for some in (self._ways, given))
            raise ValueError(f"fill in exactly one of {', '.join(ways)}; found {' and '.join(used) or 'none of them'}")
        return self


# The sections of a form. Fields without one are open at first, each section is closed.
OTHER_WAYS = "What: other ways to choose offsets"
INTO = "Where: into some sinks alone"
TIMES = "When: offsets between two times"
PACE = "How: rate and lanes"
A_SHARE = "How: only a share"
AS_SEEN = "How: only as a dry run has shown it"

_RANGES = "Half-open offset ranges, one a line: topic/partition@from-until"
_RECORDS = (
    "Single records, one per line: topic/partition@offset or topic,partition,offset; or CSV with a header, or JSON, with "
    "topic, partition and offset"
)
_FILE = (
    "A file below the folder TIDEMARK_SELECTIONS with any number of records: CSV, JSON lines or Parquet with the columns "
    "topic, partition and offset. Or hbase:TABLE, an HBase table that record_tables of the stream file lists."
)
_FINDINGS = "The findings of an audit, by the digest in its report"
_OF_WINDOWS = (
    "The offsets of committed windows: a lane, such as ingest; a window of it, such as ingest/17; or the name of the run that "
    "committed them."
)
_WHY = "Say why; the ledger stores the reason."
_STRICT = (
    "Fail if any of the offsets cannot be read. Otherwise the others are read, and the answers show which were not."
)
_UNTIL = "Up to the first message at or after this time, which is not read; without such a message, up to the end."
_NONE = "When a partition has no message at or after since: fail, or end to take nothing of that partition"
_SPEED = "The most records per second, on average. Overrides max_records_per_second of the stream file for this run."
_AT_ONCE = "Divide the offsets among this many parallel lanes (one by default), each in its own Spark job."
_SEEN = (
    "The digest of a plan, from a dry run or the page Plan. A run that would read or replace anything else is refused."
)
_SEEN_TO_ERASE = (
    "The digest from a dry run or the page Plan. A run that would erase anything else, or in other places, is refused."
)


def _since(which: str) -> str:
    return (
        "From the first message at or after this time, per partition: ISO 8601 with a zone, like 2026-11-21T07:00:00Z. "
        f"{which}"
    )


def _alone(more: str) -> str:
    return f"Write only these sinks: the others, and the dead letters, stay as they are. All by default. {more}"


def _asks(default: Any, title: str, text: str, section: str = "") -> Any:
    """A field: `text` is what people read of it, in a form, in `--help` and in the documents."""
    return Field(default, title=title, description=text, json_schema_extra={"section": section} if section else None)


class BackfillRequest(_Request):
    """The offsets of a backfill: ranges, records, all before the first window, the holes, or the unread part of a time.

    With `mode` reprocess it also reads again the offsets of the ranges, the records or the time that windows have read.
    With `sinks` it reads only those, into these sinks alone.
    """

    dry_run: bool = _asks(True, "Dry run", "Only show what would be read. Switch this off to backfill.")
    ranges: _Lines = _asks(
        "", "Ranges", f"{_RANGES}. Only offsets that no window has read yet, unless the mode says otherwise."
    )
    reason: _Reason = _asks(..., "Reason", _WHY)
    strict: bool = _asks(False, "Strict", _STRICT)
    records: _Lines = _asks("", "Records", f"{_RECORDS}. Only those that no window has read yet.", OTHER_WAYS)
    records_file: _Path = _asks("", "Records file", _FILE, OTHER_WAYS)
    everything_before: bool = _asks(
        False,
        "Everything before",
        "Everything that Kafka still holds below the offsets at which the ingest began",
        OTHER_WAYS,
    )
    holes: bool = _asks(False, "Holes", "Offsets below the ingest's position that are in no window", OTHER_WAYS)
    mode: Literal["only_missing", "reprocess"] = _asks(
        "only_missing",
        "Mode",
        "only_missing: read only what no window has read yet. reprocess: then also read again what windows have read; it "
        "works with ranges, records, a records file or times.",
        OTHER_WAYS,
    )
    sinks: _Sinks = _asks(
        [], "Sinks", _alone("It takes mode reprocess, and reads only what windows have read before."), INTO
    )
    since: _Time = _asks(
        "", "Since", _since("Only offsets that no window has read yet, unless the mode says otherwise."), TIMES
    )
    until_time: _Time = _asks("", "Until time", _UNTIL, TIMES)
    if_none: _IfNone = _asks("fail", "If none", _NONE, TIMES)
    rate: _Rate | None = _asks(None, "Rate", _SPEED, PACE)
    lanes: _Lanes = _asks(1, "Lanes", _AT_ONCE, PACE)
    plan: _Digest = _asks("", "Plan", _SEEN, PACE)

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
    """The offsets of a replay."""

    dry_run: bool = _asks(True, "Dry run", "Only show what would be read again. Switch this off to replay.")
    records: _Lines = _asks("", "Records", f"{_RECORDS}. Choose offsets in one way only.")
    ranges: _Lines = _asks("", "Ranges", f"{_RANGES}. Only offsets that a window has read before.")
    reason: _Reason = _asks(..., "Reason", _WHY)
    compare: bool = _asks(
        False,
        "Compare",
        "Before anything is committed, count the rows that will be the same, changed, new and gone. Spark computes these rows.",
    )
    strict: bool = _asks(False, "Strict", _STRICT)
    window: _Window = _asks("", "Window", _OF_WINDOWS, OTHER_WAYS)
    dead_letters: Annotated[str, Field(max_length=200)] = _asks(
        "",
        "Dead letters",
        "Dead letters with exactly this reason or error class; * for all. With since or until_time, only those whose message "
        "has such a timestamp.",
        OTHER_WAYS,
    )
    dead_letters_window: Annotated[str, form(WINDOW_PATTERN, "a lane, or one of its windows as LANE/NUMBER")] = _asks(
        "",
        "Dead letters window",
        "Only the dead letters of this lane, such as ingest, or of one window of it, such as ingest/17",
        OTHER_WAYS,
    )
    records_file: _Path = _asks("", "Records file", _FILE, OTHER_WAYS)
    selection: _Digest = _asks("", "Selection", _FINDINGS, OTHER_WAYS)
    ignore_stored: bool = _asks(
        False,
        "Ignore stored",
        "Everything from `start` of the stream file on. The ingest keeps its position.",
        OTHER_WAYS,
    )
    sinks: _Sinks = _asks([], "Sinks", _alone("For a sink or a column that was added to the stream."), INTO)
    since: _Time = _asks(
        "",
        "Since",
        _since(
            "Only offsets that a window has read before. With dead letters, the two times apply to the messages of the dead "
            "letters instead, and if_none has no effect."
        ),
        TIMES,
    )
    until_time: _Time = _asks("", "Until time", _UNTIL, TIMES)
    if_none: _IfNone = _asks("fail", "If none", _NONE, TIMES)
    rate: _Rate | None = _asks(None, "Rate", _SPEED, PACE)
    lanes: _Lanes = _asks(1, "Lanes", _AT_ONCE, PACE)
    plan: _Digest = _asks("", "Plan", _SEEN, PACE)

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
    """The messages to erase: single ones, or all with a key."""

    dry_run: bool = _asks(True, "Dry run", "Only show what would be erased, and where it is. Switch this off to erase.")
    records: _Lines = _asks("", "Records", f"{_RECORDS}. Choose offsets in one way only.")
    key: Annotated[str, Field(max_length=MAX_KEY)] = _asks(
        "",
        "Key",
        "Every message with this key: its text, or hex: and its bytes as hexadecimal digits. Reads everything that Kafka "
        "still holds of the stream. Airflow stores the key with the run.",
    )
    records_file: _Path = _asks("", "Records file", _FILE)
    reason: _Reason = _asks(..., "Reason", _WHY)
    plan: _Digest = _asks("", "Plan", _SEEN_TO_ERASE, AS_SEEN)

    kind: ClassVar[LaneKind] = LaneKind.ERASE
    _ways = (("records",), ("records_file",), ("key",))


class AuditRequest(_Request):
    """The scope and depth of an audit, and whether a replay repairs its findings."""

    level: LevelName = _asks(
        "full",
        "Level",
        "How thoroughly to check. ledger: are the ledger's records complete, without holes or overlaps? Takes seconds. "
        "source: also, was no log truncated, and nothing deleted unread? Asks Kafka once per topic. sinks: does each block "
        "of 10,000 offsets have the rows that its window counted? Reads the sinks. full: does each message have its rows, "
        "and no others? Reads Kafka and the sinks. recompute: the same, without trusting the windows' counts. Takes about "
        "twice as long as full. ledger and source always check everything.",
    )
    ranges: _Lines = _asks("", "Ranges", f"{_RANGES}. Without a choice of offsets, the audit covers everything.")
    records: _Lines = _asks("", "Records", f"{_RECORDS}.")
    repair: Literal["none", "plan", "execute"] = _asks(
        "none",
        "Repair",
        "plan: show what a replay of the findings would read. execute: replay them, then audit the same offsets again.",
    )
    reason: _ReasonOrNone = _asks(
        "",
        "Reason",
        "The reason for the repair, which the ledger stores. By default: repair of what this run found.",
    )
    window: _Window = _asks("", "Window", _OF_WINDOWS, OTHER_WAYS)
    records_file: _Path = _asks("", "Records file", _FILE, OTHER_WAYS)
    selection: _Digest = _asks("", "Selection", _FINDINGS, OTHER_WAYS)
    since: _Time = _asks("", "Since", _since("Only offsets that a window has read and Kafka still holds."), TIMES)
    until_time: _Time = _asks("", "Until time", _UNTIL, TIMES)
    if_none: _IfNone = _asks("fail", "If none", _NONE, TIMES)
    share: _Share = _asks(
        "", "Share", "Check a share of the data, such as 5%. For the levels sinks, full and recompute.", A_SHARE
    )
    seed: _Seed | None = _asks(
        None,
        "Seed",
        "Which share: the next number selects the next share. By default, the number of the day.",
        A_SHARE,
    )

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

    def offsets(self) -> NamedOffsets:
        """The offsets that are written out; empty where none are. Raises WrongUse naming the line."""
        return parse_ranges(self.ranges, "ranges") | parse_records(self.records, "records")


Request = TypeVar("Request", bound=_Request)


def checked(
    kind: type[Request],
    values: Mapping[str, Any],
    sent: Mapping[str, Any],
    *,
    here: bool = False,
    called: Callable[[str], str] = str,
) -> Request:
    """The request with some values. `sent` has the values as they were sent, with unknown keys.

    `here`: the program that acts on the request has read them itself, so they may be of any length. `called`: what the
    person who reads an error calls a field.

    Raises WrongUse naming each wrong field and what was expected.
    """
    unknown = sorted(set(sent) - set(kind.model_fields))
    if unknown:
        raise WrongUse(f"unknown: {', '.join(unknown)}; known are {', '.join(kind.model_fields)}")
    try:
        fields = {name: values[name] for name in kind.model_fields if name in values}
        return kind.model_validate(fields, context={"here": here})
    except ValidationError as problem:
        raise WrongUse("; ".join(_said(error, kind, called) for error in wording.errors(problem))) from None


def _said(error: ErrorDetails, kind: type[_Request], called: Callable[[str], str]) -> str:
    """The error in one field."""
    field, *within = map(str, error["loc"] or ("request",))
    name = ".".join([called(field) if field in kind.model_fields else field, *within])
    if error["type"] == "missing":
        return f"{name}: missing. {kind.model_fields[field].description or ''}".rstrip()
    return f"{name}: {wording.describe_error(error, kind)}"
