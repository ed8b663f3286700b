"""The changes that a replay will make: the rows that the sinks hold now, against those that today's code makes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from msgspec import Struct, structs

from tidemark.ledger.incarnations import At
from tidemark.ledger.records import FORMAT
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import FIRST_INCARNATION

# How many rows of each kind a comparison names. The counts are of all.
MAX_EXAMPLES = 20
# How many reasons of dead letters it names.
MAX_REASONS = 10

_NUMBERS = ("offsets", "messages", "stored", "skipped", "dead_letters")
_ROWS = ("before", "after", "same", "changed", "new", "gone")
_BECAUSE = ("new_because", "gone_because")
_NAMED = ("changed_at", "new_at", "gone_at")

# Why a row is new or gone, as people read it.
WAS_DEAD_LETTER = "its message was a dead letter"
MORE_ROWS = "its message now gives more rows"
WAS_NO_ROW = "nothing was stored of its message"
# The same for a sink in Kafka, whose topics delete messages by themselves.
MORE_IN_TOPICS = "its message now gives more rows, or the sink's topics no longer have this one"
NOT_IN_TOPICS = "the sink's topics have no row of its message"
IS_DEAD_LETTER = "its message is now a dead letter"
IS_SKIPPED = "its message is now skipped"
FEWER_ROWS = "its message now gives fewer rows"
NOT_IN_KAFKA = "Kafka no longer gives its message"
# The same for a dead letter.
WAS_STORED = "the message was no dead letter"
IS_STORED = "the message is now stored"
IS_SKIPPED_NOW = "the message is now skipped"
MESSAGE_NOT_IN_KAFKA = "Kafka no longer gives the message"

_AT = re.compile(r"(.*?)(?:#(\d+))?/(\d+)(?:@(\d+))?")


class Example(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One row that a replay would change: `columns` names what changes in it, `why` says why it is new or gone."""

    at: At
    index: int
    columns: tuple[str, ...] = ()
    why: str = ""

    def described(self) -> str:
        return f"{self.at} index {self.index}: {', '.join(self.columns) or self.why}"


class PlaceComparison(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One sink, or the dead letters: how many rows stay the same, change, are new and are gone.

    `before` rows count now, `after` rows would count after the replay. `columns` has, for each column, the number of rows in
    which it changes. `new_because` and `gone_because` have the numbers of rows by reason. Values are never in a comparison.
    """

    name: str
    before: int
    after: int
    same: int
    changed: int
    new: int
    gone: int
    columns: dict[str, int] = {}
    new_because: dict[str, int] = {}
    gone_because: dict[str, int] = {}
    changed_at: tuple[Example, ...] = ()
    new_at: tuple[Example, ...] = ()
    gone_at: tuple[Example, ...] = ()

    @property
    def differences(self) -> int:
        return self.changed + self.new + self.gone

    def examples(self) -> Iterator[tuple[str, Example]]:
        for kind, at in (("changed", self.changed_at), ("new", self.new_at), ("gone", self.gone_at)):
            for example in at:
                yield kind, example

    def unnamed(self) -> dict[str, int]:
        """How many rows of each kind have no example."""
        left = {"changed": self.changed, "new": self.new, "gone": self.gone}
        for kind, _ in self.examples():
            left[kind] -= 1
        return {kind: number for kind, number in left.items() if number}

    def sentence(self) -> str:
        text = f"{self.name}: {self.same} the same, {self.changed} changed"
        if self.columns:
            text += f" ({_numbers(self.columns)})"
        text += f", {self.new} new"
        if self.new_because:
            text += f" ({_numbers(self.new_because)})"
        text += f", {self.gone} gone"
        if self.gone_because:
            text += f" ({_numbers(self.gone_because)})"
        return text


class DeadLetterReason(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A reason for which messages would be dead letters after the replay, with their number and the first of them."""

    reason: str
    number: int
    first: At


class ReplayComparison(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The changes that the replay of a run would make, before anything is committed.

    Of `offsets` selected, `messages` were read; today's code would make them `stored`, `skipped` or `dead_letters`.
    `reasons` are the most frequent ones of those dead letters. `not_compared` are the sinks that cannot be compared.
    With `sinks`, the replay writes these alone: the other places are not compared, since they stay as they are.
    """

    format: int = FORMAT
    stream: str
    run: str
    at: int
    code_version: str
    stream_digest: str
    selection: str
    offsets: int
    messages: int
    stored: int
    skipped: int
    dead_letters: int
    places: tuple[PlaceComparison, ...]
    not_compared: tuple[str, ...] = ()
    reasons: tuple[DeadLetterReason, ...] = ()
    sinks: tuple[str, ...] | None = None

    @property
    def differences(self) -> int:
        return sum(place.differences for place in self.places)

    def sentence(self) -> str:
        """The outcome in one line, for people."""
        text = (
            f"{number_of(self.offsets, 'offset')} compared, {number_of(self.messages, 'message')}: "
            f"stored {self.stored}, skipped {self.skipped}, dead letters {self.dead_letters}"
        )
        parts = [text, *(place.sentence() for place in self.places)]
        if self.sinks is not None:
            parts.append(f"written alone: {', '.join(self.sinks)}; other sinks and dead letters stay as they are")
        if self.not_compared:
            parts.append(f"not compared: {', '.join(self.not_compared)}")
        return "; ".join(parts)

    def naming(self, most: int) -> ReplayComparison:
        """The same with at most this many examples of each kind, for a ledger that takes no larger value."""
        return structs.replace(
            self,
            reasons=self.reasons[:most],
            places=tuple(
                structs.replace(
                    place, changed_at=place.changed_at[:most], new_at=place.new_at[:most], gone_at=place.gone_at[:most]
                )
                for place in self.places
            ),
        )

    def lines(self) -> Iterator[str]:
        """The comparison as people read it in a log: what changes in each place, examples, and what is left out."""
        yield self.sentence()
        yield from chain.from_iterable(map(_lines, self.places))
        for reason in self.reasons:
            what = "dead letters after the replay" if self.sinks is None else "invalid or failed, without a row"
            yield f"{reason.number} {what}: {reason.reason!r}, such as {reason.first}"


def merged(parts: Sequence[ReplayComparison], columns: Sequence[str]) -> ReplayComparison:
    """Join the comparisons of a selection's pieces.

    `columns` is the order in which columns are named; others follow. A place that one of the pieces did not compare is
    not compared.
    """
    first = parts[0]
    if len(parts) == 1:
        return structs.replace(first, reasons=first.reasons[:MAX_REASONS])
    reasons: dict[str, DeadLetterReason] = {}
    for reason in chain.from_iterable(part.reasons for part in parts):
        known = reasons.setdefault(reason.reason, structs.replace(reason, number=0))
        first_at = min(known.first, reason.first, key=_place)
        reasons[reason.reason] = structs.replace(known, number=known.number + reason.number, first=first_at)
    places: dict[str, list[PlaceComparison]] = {}
    for place in chain.from_iterable(part.places for part in parts):
        places.setdefault(place.name, []).append(place)
    return structs.replace(
        first,
        **{name: sum(getattr(part, name) for part in parts) for name in _NUMBERS},
        places=tuple(_place_of(reports, columns) for reports in places.values() if len(reports) == len(parts)),
        not_compared=tuple(dict.fromkeys(chain.from_iterable(part.not_compared for part in parts))),
        reasons=tuple(sorted(reasons.values(), key=lambda reason: (-reason.number, reason.reason))[:MAX_REASONS]),
    )


def _place_of(parts: Sequence[PlaceComparison], columns: Sequence[str]) -> PlaceComparison:
    by_column = _added(part.columns for part in parts)
    ordered = [*(column for column in columns if column in by_column), *sorted(by_column.keys() - {*columns})]
    return structs.replace(
        parts[0],
        **{name: sum(getattr(part, name) for part in parts) for name in _ROWS},
        columns={name: by_column[name] for name in ordered},
        **{name: dict(sorted(_added(getattr(part, name) for part in parts).items())) for name in _BECAUSE},
        **{name: _first(chain.from_iterable(getattr(part, name) for part in parts)) for name in _NAMED},
    )


def _first(examples: Iterable[Example]) -> tuple[Example, ...]:
    """The first of all, if each piece has given its own first ones."""
    return tuple(sorted(examples, key=lambda example: (_place(example.at), example.index)))[:MAX_EXAMPLES]


def _place(at: str) -> tuple[str, *tuple[int, ...]]:
    """The sort key of coordinates, blocks and windows: the name, then numbers as numbers."""
    match = _AT.fullmatch(at)
    if match is None:
        raise ValueError(f"{at!r} is no coordinate and no window")
    return match[1], *(int(number or FIRST_INCARNATION) for number in match.groups()[1:])


def _added(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for count in counts:
        for name, number in count.items():
            totals[name] = totals.get(name, 0) + number
    return totals


def _lines(place: PlaceComparison) -> Iterator[str]:
    for kind, example in place.examples():
        yield f"{place.name}: {kind} {example.described()}"
    for kind, number in place.unnamed().items():
        yield f"{place.name}: {number} more {kind}"


def _numbers(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in counts.items())


def name_of_comparison(run: str) -> str:
    """The name under which the ledger keeps the comparison of a run."""
    return f"{run}/comparison"
