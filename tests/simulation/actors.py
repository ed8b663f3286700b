"""Actors: each operation is a greenlet, which gives up control before an outside effect, dies there, or loses an answer.

Everything that the product asks of a server begins with `effect`. So whatever can happen between two processes can happen
between two effects, and the scheduler decides where.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from greenlet import getcurrent, greenlet
from thriftpy2.transport import TTransportException

from tests.model import transport
from tests.model.transport import Died
from tidemark.errors import OutcomeUnknown, Unreachable

DIES, SLEEPS = "dies", "sleeps"
# Sleeps while others go on, then has so many effects more, and dies: it never finds out that others have gone on.
LATE = {"wakes, and dies after an effect": 1, "wakes, and dies soon": 3, "wakes, and dies later": 7}
# An answer of HBase about rows, which is asked for again.
ROWS_LOST, ROWS_APPLIED = "rows lost", "rows applied, and the answer lost"
# An answer of a Delta table about a commit.
COMMIT_LOST, COMMIT_UNSURE = "a table's commit lost", "a table's commit applied, and the connection lost"
# The client has asked again, and has met its own commit.
COMMIT_APPLIED = "a table's commit applied, and taken for another's"
COMMITS = (COMMIT_LOST, COMMIT_UNSURE, COMMIT_APPLIED)
# Of the ledger's servers: what `tests/model/transport.py` does.
ANSWERS = (*transport.DEATHS, *transport.DOUBTS)
# As these, and others work before the actor looks what has become of its write.
AND_OTHERS = ", and others work"
ANSWERS_AND_OTHERS = tuple(one + AND_OTHERS for one in transport.DOUBTS)
# Kafka refuses a question once: a right was taken away for a moment.
REFUSED = "refused by Kafka"
# Moments between two effects at which an actor may stop, besides the steps of the protocol: a generation was drawn; an
# erasure has read the ledger, and not the cells; an attempt is about to ask which columns are its own; a request that was
# planned is about to claim its offsets, or has just done so.
DRAWN, CLAIMING = "generation drawn", "claiming"
CLAIMED = "claimed, and no work begun"
# An attempt has written some of its rows, and is about to write more.
HALF_WRITTEN = "some rows written"
STOPS = (REFUSED, DIES, SLEEPS, ROWS_LOST, ROWS_APPLIED, *ANSWERS)


@dataclass(frozen=True)
class Stop:
    """What happens to an actor once: at its effect number `at`, counted from 0, or after the protocol's step of that name.

    A lost answer is that of the write number `at`, to the ledger or to HBase.
    """

    how: str
    at: int | str = 0


class Actor(greenlet):
    """One operation of a process. `machine` has its own clock."""

    def __init__(self, act: Callable[[], object], stop: Stop | None, machine: int, name: str) -> None:
        super().__init__(act)
        self.stop = stop
        # Whether the ledger's server loses one of its answers.
        self.loses_answers = stop is not None and stop.how in (*ANSWERS, *ANSWERS_AND_OTHERS)
        self.machine = machine
        self.name = name
        self.effects = 0
        self.rows = 0
        self.commits = 0
        self.questions = 0
        self.asleep = False
        # Whether it has ever slept while others worked.
        self.slept = False
        self.died = False
        # Whether what was to happen to it has happened.
        self.stopped = False
        # Whether it sleeps before its next effect.
        self.waits = False
        # Whether it has gone on after it slept, to die before it finds out what others have done.
        self.late = False
        # What the world keeps for it: its way to the ledger, its own look at the stream.
        self.ledger: Any = None
        self.opened: Any = None
        # Whether it runs an older version of the program, and whether its scheme was mended.
        self.older = self.mended = False
        # What its program was asked for, under which run's name, and the state of the ledger when it began.
        self.request: Any = None
        # Which effect it was about to have when it stopped, in the words of the code.
        self.stopped_at = ""
        self.run_name, self.began = "", 0
        # Whether its program was told to take a window over from whoever holds it; and the error that it has met.
        self.takes_over = False
        self.problem: Exception | None = None

    def pass_on(self) -> None:
        """Let others work, and go on when somebody wakes this one."""
        self.asleep = self.slept = True
        self.parent.switch()
        self.asleep = False

    @property
    def has_ended(self) -> bool:
        """Whether it has come to its end by itself, and nobody has kept an answer from it there."""
        return self.dead and not self.died and not isinstance(self.problem, Unreachable | OutcomeUnknown)

    def meet(self) -> None:
        """What its stop says happens now."""
        self.stopped = True
        self.stopped_at = self.stopped_at or _doing()
        if self.stop is not None and self.stop.how == DIES:
            self.die()
        self.pass_on()
        if self.stop is not None and self.stop.how in LATE:
            self.late = True
            # The effect that it was about to have is the first of them, if it sleeps before one.
            self.stop = Stop(DIES, self.effects + LATE[self.stop.how] - (self.stop.at == self.effects - 1))

    def die(self) -> None:
        self.died = True
        raise Died(self.name)


def _doing() -> str:
    """The product's innermost function, and what it calls: where an actor stops."""
    frame, calls = sys._getframe(1), ""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("tidemark."):
            return f"{calls or 'a step'} in {frame.f_code.co_qualname} of {module}"
        if not module.startswith("tests.simulation.actors"):
            calls = frame.f_code.co_qualname
        frame = frame.f_back
    return calls


def current() -> Actor | None:
    """Who acts now; None for the oracle, whose questions are no effects."""
    found = getcurrent()
    return found if isinstance(found, Actor) else None


def effect() -> Actor | None:
    """An outside effect begins. A killed actor raises at every further one: its `finally` blocks do nothing outside."""
    actor = current()
    if actor is None:
        return None
    if actor.died:
        raise Died(actor.name)
    if actor.waits:
        actor.waits = False
        actor.pass_on()
    stop = actor.stop
    if stop is not None and stop.how in (DIES, SLEEPS, *LATE) and stop.at == actor.effects:
        actor.effects += 1
        actor.meet()
        return actor
    actor.effects += 1
    return actor


def reached(step: str) -> None:
    """A step of the protocol was just done."""
    actor = current()
    if actor is not None and not actor.stopped and actor.stop is not None and actor.stop.at == step:
        actor.meet()


def _lost(applied: bool) -> Exception:
    return TTransportException(message="the connection was lost")


def questioned() -> bool:
    """A question to Kafka; whether it is refused."""
    actor = effect()
    if actor is None or actor.stop is None or actor.stop.how != REFUSED:
        return False
    actor.questions += 1
    refused = actor.stop.at == actor.questions - 1
    actor.stopped = actor.stopped or refused
    return refused


def written(apply: Callable[[], object], lost: Callable[[bool], Exception] = _lost) -> None:
    """A write of rows, which HBase's clients repeat when its answer is lost. `lost`: the error, where it was applied or not."""
    actor = effect()
    if actor is not None and actor.stop is not None and actor.stop.how in (ROWS_LOST, ROWS_APPLIED):
        actor.rows += 1
        if actor.stop.at == actor.rows - 1:
            actor.stopped = True
            applied = actor.stop.how == ROWS_APPLIED
            if applied:
                apply()
            raise lost(applied)
    apply()


class Scheduler:
    """Runs actors, one at a time, until each has ended, died or gone to sleep."""

    def __init__(self) -> None:
        self.asleep: list[Actor] = []

    def run(self, actor: Actor) -> None:
        with suppress(Died):
            actor.switch()
        if not actor.dead:
            self.asleep.append(actor)

    def wake(self, number: int) -> Actor | None:
        """Let one of those that sleep go on."""
        if not self.asleep:
            return None
        actor = self.asleep.pop(number % len(self.asleep))
        self.run(actor)
        return actor
