"""The dead letters that count, grouped by reason, error class and window, with examples and how a replay names them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from tidemark.ledger.elsewhere import for_readers
from tidemark.ledger.incarnations import Topics, written
from tidemark.ledger.ledger import Committed, LedgerSnapshot
from tidemark.ledger.records import Record
from tidemark.offsets.coordinates import Coordinate
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests.dead_letters import READ, DeadLetterFilter
from tidemark.sinks.dead_letters import redrives
from tidemark.sinks.reading import fewest_scans, pieces, places_of_pieces
from tidemark.sinks.stored_rows import StoredRow
from tidemark.views.messages.payloads import Value, shown

# What a request for a replay takes as the name of dead letters (`requests.ReplayRequest.dead_letters`).
_MAX_OF_A_NAME = 200
EVERYTHING = "*"
# Examples of each group: enough to see what it is, and the most to pick from.
EXAMPLES, MAX_EXAMPLES = 5, 50
MAX_GROUPS = 200
_MAX_WINDOWS = 50
# Of a reason or an error class, in bytes.
MAX_SHOWN = 1_000


@dataclass(frozen=True)
class WindowOfGroup:
    window: str
    number: int
    committed_at: int
    run: str


@dataclass(frozen=True)
class Group:
    reason: str
    error: str | None
    number: int
    too_often: int
    selects: str | None
    examples: list[str]
    windows: list[WindowOfGroup]
    more_windows: int


@dataclass(frozen=True)
class ReasonShown:
    """The reason and the error class of a group, which others wrote, as people may look at them."""

    reason: Value
    error: Value | None


@dataclass(frozen=True)
class GroupShown(Group):
    """`selects` names the group in a request; None when only coordinates do."""

    shown: ReasonShown


@dataclass(frozen=True)
class LetterCounts:
    counted: int
    windows: int
    windows_counted: int
    complete: bool
    not_counted: int
    max_redrives: int
    more_groups: int


@dataclass(frozen=True)
class InGroups(LetterCounts):
    groups: list[Group]


@dataclass(frozen=True)
class DeadLettersShown(LetterCounts):
    """`not_counted`: what windows wrote that were not counted, or not to their end; some may be redriven since."""

    groups: list[GroupShown]


@dataclass
class _LettersOfReason:
    """The dead letters with one reason and one error class."""

    most_examples: int
    topics: Topics
    numbers: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    too_often: int = 0

    def add(self, row: StoredRow, window: str, most_redrives: int) -> None:
        self.numbers[window] += 1
        self.too_often += redrives(row) >= most_redrives
        if len(self.examples) < self.most_examples:
            self.examples.append(written(self.topics, Coordinate(row.place.partition, row.place.offset)))


def dead_letters(
    opened: OpenStream,
    wanted: DeadLetterFilter,
    *,
    examples: int = EXAMPLES,
    enough: Callable[[int], bool] = lambda counted: False,
) -> InGroups:
    """The dead letters that are asked for, in groups with this many examples, those of the newest windows first.

    `enough` is asked again and again, with how many were counted: True ends the counting, and the answer says how far it
    got. Raises Unreachable and the ledger's errors.
    """
    opened = replace(opened, ledger=for_readers(opened.ledger))
    view, topics = opened.ledger.view(), opened.ledger.topics()
    wanted.check(opened.ledger.stream, view)
    windows = [window for window in _newest_first(view) if wanted.may_be_in(window.record)]
    groups: dict[tuple[str, str | None], _LettersOfReason] = {}
    counted = done = 0
    most = opened.stream.dead_letters.max_redrives
    ended = False
    for window in windows:
        name = f"{window.record.lane}/{window.record.seq}"
        for row in _rows(opened, view, window, wanted):
            if ended := enough(counted):
                break
            if row is not None and wanted.has(row):
                counted += 1
                groups.setdefault(_key(row), _LettersOfReason(examples, topics)).add(row, name, most)
        if ended:
            break
        done += 1
    left = sum(_number(window) for window in windows[done:])
    committed = {f"{window.record.lane}/{window.record.seq}": window.record for window in windows}
    largest = sorted(groups.items(), key=lambda group: (-group[1].numbers.total(), group[0][0], group[0][1] or ""))
    return InGroups(
        counted=counted,
        windows=len(windows),
        windows_counted=done,
        complete=not ended,
        not_counted=left,
        max_redrives=most,
        groups=[_group(reason, error, group, committed) for (reason, error), group in largest[:MAX_GROUPS]],
        more_groups=max(0, len(largest) - MAX_GROUPS),
    )


def _group(reason: str, error: str | None, group: _LettersOfReason, committed: Mapping[str, Record]) -> Group:
    newest = sorted(group.numbers.items(), key=lambda item: -committed[item[0]].attempt.generation)
    return Group(
        reason=reason,
        error=error,
        number=group.numbers.total(),
        too_often=group.too_often,
        selects=selects(reason),
        examples=group.examples,
        windows=[
            WindowOfGroup(name, number, committed[name].committed_at, committed[name].attempt.run)
            for name, number in newest[:_MAX_WINDOWS]
        ],
        more_windows=max(0, len(newest) - _MAX_WINDOWS),
    )


def page_of(grouped: InGroups) -> DeadLettersShown:
    """The same for people in a browser."""
    look = partial(shown, most=MAX_SHOWN)
    groups = [
        GroupShown(
            **vars(group),
            shown=ReasonShown(look(group.reason.encode()), None if group.error is None else look(group.error.encode())),
        )
        for group in grouped.groups
    ]
    return DeadLettersShown(**{**vars(grouped), "groups": groups})


def selects(reason: str) -> str | None:
    """The name by which a replay takes the dead letters with a reason; None when only their coordinates name them."""
    named = reason.strip() and len(reason) <= _MAX_OF_A_NAME and reason != EVERYTHING and "\ufffd" not in reason
    return reason if named else None


def _newest_first(view: LedgerSnapshot) -> list[Committed]:
    """The windows that wrote dead letters, the one that was committed last first."""
    return sorted(
        (window for window in view.windows if _number(window)),
        key=lambda window: -window.generation,
    )


def _number(window: Committed) -> int:
    return sum(tally.dead_letters for tally in window.record.tallies)


def _rows(
    opened: OpenStream, view: LedgerSnapshot, window: Committed, wanted: DeadLetterFilter
) -> Iterator[StoredRow | None]:
    """The window's dead letters that still count; None after each scan, for callers who may have waited long enough."""
    own = view.authority.held_by(window.generation, window.covers.only(wanted.may_be_in(window.record)))
    table = opened.dead_letter_table().only(READ)
    for places in places_of_pieces(opened.ledger, table, view, pieces(fewest_scans(own, own.hull()))):
        yield from (row for _, row in places if row is not None and row.mark.generation == window.generation)
        yield None


def _key(row: StoredRow) -> tuple[str, str | None]:
    reason, error = row.fields.get("reason", b""), row.fields.get("error")
    return reason.decode(errors="replace"), None if error is None else error.decode(errors="replace")
