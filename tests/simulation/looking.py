"""What people look up: one message, the dead letters in groups, and messages, dead letters and rows that they browse.

The oracle says whether an answer was true at some moment while it was made, and whether it has anything of what was erased.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tests.simulation.kafka import KEYS, Message
from tests.simulation.others import FILES, LATEST, PUBLISHED
from tests.simulation.pages import is_undisturbed, opened_now
from tests.simulation.work import SUMS, Place
from tidemark.clients.kafka.topics import READ_COMMITTED
from tidemark.ledger.incarnations import Topics, assign_incarnations
from tidemark.offsets.coordinates import Coordinate, in_four_parts, parse_records
from tidemark.offsets.ranges import TopicPartition
from tidemark.runs.requests.dead_letters import DeadLetterFilter
from tidemark.views.browsing.dead_letters import dead_letters as browsed_letters
from tidemark.views.browsing.items import Item, SearchBudget, SearchResult
from tidemark.views.browsing.messages import MessageQuery, messages
from tidemark.views.browsing.places import SearchScope
from tidemark.views.browsing.results import results
from tidemark.views.dead_letters import dead_letters
from tidemark.views.messages.fates import Fate
from tidemark.views.messages.message import page_of
from tidemark.views.messages.trace import DEAD_LETTERS, LocatedRecord, coordinate, located

if TYPE_CHECKING:
    from tests.simulation.oracle import Oracle

# Of a question that goes on from answer to answer.
_MAX_QUESTIONS = 60
_PLENTY = 1e9
# A window has the offset, and the outcome of its message.
_OUTCOMES = {Fate.STORED, Fate.DEAD_LETTER, Fate.NO_MESSAGE, Fate.SKIPPED, Fate.READ, Fate.MISSING}
# No window has it.
_UNREAD = {Fate.NOT_READ_YET, Fate.HOLE, Fate.BEFORE, Fate.EXPIRED, Fate.NOT_YET, Fate.LOST, Fate.PASSED_OVER}
# A place without its incarnation: topic, partition, offset.
Spot = tuple[str, int, int]


@dataclass(frozen=True)
class _Before:
    """What was so when somebody began to ask."""

    state: int
    erased: frozenset[Place]
    # The messages that a reader of Kafka saw.
    seen: Mapping[Spot, Message]


class Looks:
    """The questions of people who look something up."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle

    def ask(self, which: int, a: int) -> Callable[[], object] | None:
        """One of the questions, as an act of the current actor; None where there is nothing to ask."""
        ledger = self._oracle.ledger
        if ledger.head("ingest") is None:
            return None
        places = sorted({*self._oracle.identity, *self._oracle.erased})
        questions: list[Callable[[], object]] = [
            lambda: self._message(self._named(places, a)),
            lambda: self._letters(),
            lambda: self._messages(a),
            lambda: self._browsed_letters(a),
            lambda: self._rows(a),
            lambda: self._message(self._named(places, 7 * a + 3)),
        ]
        return questions[which % len(questions)]

    def _begun(self) -> _Before:
        return _Before(len(self._oracle.states) - 1, frozenset(self._oracle.erased), dict(self._seen()))

    def _seen(self) -> Iterator[tuple[Spot, Message]]:
        """The messages that Kafka gives at the isolation level of today."""
        committed = self._oracle.world.isolation == READ_COMMITTED
        for topic, number, log in self._oracle.world.kafka.parts():
            for offset, one in log.slots.items():
                hidden = committed and one is not None and (one.transaction in log.aborted or offset >= log.stable)
                if one is not None and not hidden:
                    yield (topic, number, offset), one

    # one message

    def _named(self, places: list[Place], a: int) -> str:
        """A message that a window has read, or any offset of Kafka; by its incarnation, or without."""
        if places and a % 4:
            at, offset = places[a * a % len(places)]
            return in_four_parts(Coordinate(at, offset)) if a % 3 else f"{at.topic}/{at.partition}@{offset}"
        parts = list(self._oracle.world.kafka.parts())
        if not parts:
            return "orders/0@0"
        topic, number, log = parts[a % len(parts)]
        return f"{topic}/{number}@{max(0, log.end - 3 + a % 5)}"

    def _message(self, named: str) -> None:
        before, opened = self._begun(), opened_now()
        found = located(opened, coordinate(opened, named))
        page = page_of(found, payload=True)
        self._oracle.learn()
        self._oracle.met["a message was looked up"] += 1
        self._has_nothing_erased(before, found, page)
        self._is_the_message(before, found)
        if not self._is_sure():
            return
        self._had_its_fate(before, found)
        self._has_its_rows(before, found)
        self._has_its_keys(before, found)

    def _has_nothing_erased(self, before: _Before, found: LocatedRecord, page: Any) -> None:
        from tests.simulation.oracle import check

        place = _place(found)
        if place not in before.erased:
            return
        check(found.fate == Fate.ERASED, f"{found.at} was erased, and is said to be {found.fate}")
        check(page.message is None, f"{found.at} was erased, and its message is shown")
        check(not any(found.rows.values()), f"{found.at} was erased, and rows of it are shown: {found.rows}")

    def _is_the_message(self, before: _Before, found: LocatedRecord) -> None:
        """What is shown of Kafka is the message that windows have read there, and none that was erased."""
        if found.message is None:
            return
        self._check_shown(before, _place(found), int(found.message.value or b"-1"))

    def _check_shown(self, before: _Before, place: Place, number: int) -> None:
        from tests.simulation.oracle import check, said

        world, known = self._oracle.world, self._oracle.identity.get(place)
        at, offset = place
        check(
            world.kafka.written.get(number, ())[:3] == (at.topic, at.partition, offset),
            f"message {number} is shown at {said([place])}, where it never was",
        )
        check(known in (None, number), f"message {number} is shown at {said([place])}, where windows have read {known}")
        gone = {self._oracle.identity.get(one) for one in before.erased}
        check(number not in gone, f"message {number}, which was erased, is shown at {said([place])}")

    def _had_its_fate(self, before: _Before, found: LocatedRecord) -> None:
        from tests.simulation.oracle import check

        place, oracle = _place(found), self._oracle
        if found.fate == Fate.ERASED:
            spots = {(at.topic, at.partition, offset) for at, offset in oracle.erased}
            check((*place[0][:2], place[1]) in spots, f"{found.at} is said to be erased, and nobody has erased it")
            return
        record = found.counting
        if found.fate in _OUTCOMES and record is not None:
            read = oracle.world.read_by.get(record.attempt.generation, {}).get(place)
            truth = Fate.NO_MESSAGE if read is None else Fate.DEAD_LETTER if read.bad else Fate.STORED
            if place not in oracle.ever_damaged:
                check(truth in found.may_be, f"{found.at} is said to be {found.fate}, and it is {truth}")
        if found.fate in _UNREAD and is_undisturbed():
            covered = place in oracle.ledger.authority().covered()
            check(not covered, f"{found.at} is said to be {found.fate}, and a window has read it")

    def _has_its_rows(self, before: _Before, found: LocatedRecord) -> None:
        """The rows of each sink are those of some moment."""
        from tests.simulation.oracle import check

        place, oracle = _place(found), self._oracle
        if place in oracle.ever_damaged:
            return
        for name, rows in found.rows.items():
            sink = None if name == DEAD_LETTERS else name
            if sink in PUBLISHED:
                continue
            fields = ("key", "value") if sink is None else ("id", "number")
            shown = [tuple(int(row.fields.get(one, b"-1")) for one in fields) for row in rows]
            states = [state.of[sink].get(place) for state in oracle.states[before.state :]]
            wanted = [[] if one is None else [(one.key, one.number)] for one in states]
            check(shown in wanted, f"{found.at} is said to have the rows {shown} in {name}, where there were {wanted}")

    def _has_its_keys(self, before: _Before, found: LocatedRecord) -> None:
        """What sinks by key hold for its key was so at some moment."""
        from tests.simulation.oracle import check, newest_of

        at, oracle = found.at.partition, self._oracle
        for name, row, under in found.under_keys:
            if name != LATEST or not under.fields:
                continue
            key = int(row.fields.get("id", b"-1"))
            wanted = [newest_of(state.of[LATEST]).get((at.topic, key)) for state in oracle.states[before.state :]]
            number = int(under.fields.get("number", b"-1"))
            check(number in wanted, f"{number} is said to be the newest value of key {key}, and it was {wanted}")
        self._oracle.met["what is under a key"] += sum(name in (LATEST, SUMS) for name, _, _ in found.under_keys)

    # dead letters in groups

    def _letters(self) -> None:
        from tests.simulation.oracle import check, said

        before, opened, oracle = self._begun(), opened_now(), self._oracle
        topics = oracle.ledger.topics()
        found = dead_letters(opened, DeadLetterFilter(), examples=50)
        oracle.learn()
        if not self._is_sure():
            return
        states = [state.of[None] for state in oracle.states[before.state :]]
        ever = {place for state in states for place in state} | oracle.damaged[None]
        given = {_place_of(topics, one) for group in found.groups for one in group.examples}
        check(given <= ever, f"the page of dead letters has what was none: {said(given - ever)}")
        check(not given & before.erased, f"the page of dead letters has what was erased: {said(given & before.erased)}")
        check(found.complete, "dead letters were counted without a limit, and not all of them")
        if is_undisturbed() and not oracle.ever_damaged:
            want = len(oracle.expected[None])
            check(found.counted == want, f"{found.counted} dead letters are counted, and there are {want}")
        oracle.met["dead letters counted"] += found.counted

    # browsing

    def _browsed(
        self, asked: MessageQuery, a: int, look: Callable[[MessageQuery, SearchBudget], SearchResult]
    ) -> tuple[list[Item], set[Place], int]:
        """All answers of a question that goes on to its end: the items, what was looked through, and how many were erased."""
        from tests.simulation.oracle import check

        items: list[Item] = []
        searched: set[Place] = set()
        erased = 0
        for _ in range(_MAX_QUESTIONS):
            found = look(asked, SearchBudget(3 + a % 7, _PLENTY, _PLENTY))
            items += found.items
            erased += found.erased
            searched |= {(one.partition, at) for one in found.searched for at in range(one.start, one.until)}
            check(len(found.items) <= asked.count, f"{len(found.items)} were found, and {asked.count} asked for")
            if found.go_on is None:
                return items, searched, erased
            asked = replace(asked, go_on=found.go_on)
        check(False, f"a question goes on for ever: {asked}")
        raise AssertionError

    def _messages(self, a: int) -> None:
        """Every message that Kafka had all the time is there, once, but what was erased."""
        from tests.simulation.oracle import check, said

        kafka = self._oracle.world.kafka
        if not kafka.held:
            return
        topic = sorted(kafka.held)[a % len(kafka.held)]
        number = a % len(kafka.held[topic].logs)
        backwards = a % 3 == 0
        key = a % KEYS if a % 2 else None
        where = f"{topic}/{number}" if backwards or a % 5 == 0 else topic
        asked = MessageQuery(SearchScope(where), "" if key is None else f'key = "{key}"', 2 + a % 5, backwards)
        before, opened = self._begun(), opened_now()
        items, searched, _ = self._browsed(asked, a, lambda asked, meter: messages(opened, asked, meter))
        self._oracle.learn()
        self._oracle.met["messages browsed"] += len(items)
        for one in items:
            shown = int(one.value or b"-1")
            self._check_shown(before, (one.at.partition, one.at.offset), shown)
            check(key is None or one.key == b"%d" % key, f"{one.at} has the key {one.key!r}, and {key} was asked for")
        numbers = [int(one.value or b"-1") for one in items]
        check(len({*numbers}) == len(numbers), f"browsing has given a message twice: {numbers}")
        there = {(*at[:2], offset) for at, offset in searched}
        gone = {self._oracle.identity.get(one) for one in self._oracle.erased}
        spots = {(at.topic, at.partition, offset) for at, offset in self._oracle.erased}
        now = dict(self._seen())
        lost = {
            (TopicPartition(*spot[:2]), spot[2])
            for spot, one in before.seen.items()
            if now.get(spot) == one and spot[0] == topic and (where == topic or spot[1] == number)
            if one.number not in (*numbers, *gone) and spot not in spots and key in (None, one.key)
        }
        # A page believes what Kafka says now.
        check(
            not lost or kafka.gave_old_ends,
            f"browsing {where} has not shown {said(lost)}, and has looked through {sorted(there)}",
        )

    def _browsed_letters(self, a: int) -> None:
        before, opened = self._begun(), opened_now()
        asked = MessageQuery(count=1 + a % 4, backwards=a % 3 == 0)
        items, _, _ = self._browsed(asked, a, lambda asked, meter: browsed_letters(opened, asked, meter))
        self._saw(before, None, {_of_item(one): _numbers(one.key, one.value) for one in items}, asked, len(items))

    def _rows(self, a: int) -> None:
        names = [one for one in ("hbase", *FILES) if one in self._oracle.expected]
        if not names:
            return
        sink, opened = names[a % len(names)], opened_now()
        before, asked = self._begun(), MessageQuery(count=1 + a % 4, backwards=a % 3 == 0)
        items, _, _ = self._browsed(asked, a, lambda asked, meter: results(opened, asked, meter, sink))
        rows = {_of_item(one): _numbers(one.fields.get("id"), one.fields.get("number")) for one in items}
        self._saw(before, sink, rows, asked, len(items))

    def _saw(
        self, before: _Before, sink: str | None, rows: Mapping[Place, tuple[int, int]], asked: MessageQuery, number: int
    ) -> None:
        """Each row, or dead letter, was right at some moment, also one that is not there; none was there twice."""
        from tests.simulation.oracle import check, said

        oracle = self._oracle
        oracle.learn()
        if asked.backwards and not is_undisturbed():
            # What a newer window has written meanwhile comes before what was asked for.
            return
        check(not rows.keys() & before.erased, f"erased, and found by browsing: {said(rows.keys() & before.erased)}")
        check(len(rows) == number, f"browsing {sink} has given {number} items of {len(rows)} messages")
        oracle.saw_rows(rows, before.state, sink)
        oracle.met["rows browsed"] += number

    def _is_sure(self) -> bool:
        """Whether what was committed is there, and means what it meant when it was committed."""
        oracle = self._oracle
        return not (oracle.is_damaged() or oracle.commits_first or oracle.world.was_mended)


def _place(found: LocatedRecord) -> Place:
    return found.at.partition, found.at.offset


def _of_item(item: Item) -> Place:
    return item.at.partition, item.at.offset


def _numbers(*values: bytes | None) -> tuple[int, int]:
    key, number = (int(one or b"-1") for one in values)
    return key, number


def _place_of(topics: Topics, named: str) -> Place:
    """The message that a text names to somebody who knows these topics."""
    asked = parse_records(named)
    (found,) = assign_incarnations(topics, asked.open) | asked.exact
    return found.partition, found.start


__all__: Iterable[str] = ["Looks"]
