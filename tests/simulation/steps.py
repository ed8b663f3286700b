"""What happens in a program of steps, drawn by a seed. A program is data: any step may be left out."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tests.simulation.actors import (
    ANSWERS,
    ANSWERS_AND_OTHERS,
    CLAIMED,
    CLAIMING,
    COMMITS,
    DIES,
    DRAWN,
    HALF_WRITTEN,
    LATE,
    REFUSED,
    ROWS_APPLIED,
    ROWS_LOST,
    SLEEPS,
    Stop,
)
from tests.simulation.lake import HALF_REMOVED
from tests.simulation.others import PUBLISHED
from tests.simulation.themes import NONE, THEMES, WRITING, Theme, after, both
from tests.simulation.world import Setting
from tidemark.commit.protocol import Step as ProtocolStep
from tidemark.sinks.parquet.steps import CompactionStep as CompactionStep

# How often each is on the menu; a theme may have others.
MENU = {
    "produce": 5, "ingest": 7, "replay": 6, "backfill": 3, "erase": 4, "erase key": 1, "again": 4, "wake": 6,
    "compact": 3, "retain": 1, "cancel": 1, "pause": 1, "resume": 2, "rows": 2, "totals": 3, "newest": 2,
    "begin": 2, "commit": 1, "abort": 1, "cut": 2, "recreate": 1, "add partition": 1, "lead": 1,
    "plan": 2, "by plan": 2, "back up": 2, "isolation": 1, "time": 2, "clock": 1, "major": 1, "take over": 1,
}  # fmt: skip

_SINKS = (
    ("hbase", "sums"),
    ("hbase", "sums"),
    ("sums", "hbase"),
    ("hbase",),
    ("hbase", "sums", "hbase_latest"),
    ("hbase", "hbase_latest"),
)
# Without these, nothing else means anything.
_ALWAYS = ("produce", "ingest", "wake")
_MAX_STEPS = 30


@dataclass(frozen=True)
class Step:
    """`run` names the run, and the machine; `a` and `b` are resolved against the state. `stop`: what happens in its middle."""

    name: str
    run: int = 0
    a: int = 0
    b: int = 0
    stop: Stop | None = None


@dataclass(frozen=True)
class Program:
    setting: Setting
    steps: tuple[Step, ...]

    def as_data(self) -> dict[str, Any]:
        return {"setting": asdict(self.setting), "steps": [_said(one) for one in self.steps]}

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> Program:
        setting = {**data["setting"], "sinks": tuple(data["setting"]["sinks"])}
        steps = (Step(**{**one, "stop": Stop(*one["stop"]) if "stop" in one else None}) for one in data["steps"])
        return cls(Setting(**setting), tuple(steps))

    def __str__(self) -> str:
        plain = Setting()
        setting = {name: value for name, value in asdict(self.setting).items() if value != getattr(plain, name)}
        return "\n".join([f"    {setting}", *(f"    {_line(one)}" for one in self.steps)])


def _said(step: Step) -> dict[str, Any]:
    found = {name: value for name, value in asdict(step).items() if value and name != "stop"}
    return {**found, **({"stop": [step.stop.how, step.stop.at]} if step.stop is not None else {})}


def _line(step: Step) -> str:
    stop = f"; {step.stop.how} at {step.stop.at!r}" if step.stop is not None else ""
    return f"{step.name} (run {step.run}, {step.a}, {step.b}{stop})"


def _about(chance: random.Random, theme: str | None) -> Theme:
    """That of a name. Otherwise nine of ten seeds have one of all themes, and four of ten of these two at once."""
    if theme is not None:
        return THEMES[theme]
    if chance.random() < 0.1:
        return NONE
    names = [*THEMES]
    one, other = chance.choice(names), chance.choice(names)
    return both(chance, THEMES[one], THEMES[other]) if chance.random() < 0.4 and one != other else THEMES[one]


def drawn(seed: int, menu: Mapping[str, int] | None = None, theme: str | None = None) -> Program:
    """The program of a seed. Each leaves out a random half of the menu, so that what is left meets more often."""
    chance = random.Random(seed)
    whole = menu or MENU
    about = _about(chance, theme)
    names = [one for one in whole if one in _ALWAYS or one in about.steps or chance.random() < about.others]
    names += [one for one in about.steps if one not in whole]
    weights = [about.steps.get(one) or whole[one] for one in names]
    chosen = chance.choices(names, weights, k=chance.randint(6, _MAX_STEPS))
    steps = tuple(
        Step(
            name,
            _run(chance, at, about.names),
            chance.randrange(40),
            chance.randrange(6),
            _stop(chance, about.stops.get(name)),
        )
        for at, name in enumerate(chosen)
    )
    setting, first = _setting(chance), Step("produce", 8, about.first, chance.randrange(5))
    setting = replace(setting, **{name: chance.choice(choices) for name, choices in about.settings.items()})
    if not set(PUBLISHED).isdisjoint(setting.sinks):
        # No other guarantee is taken there.
        setting = replace(setting, guarantee="at_least_once")
    if about.stories:
        steps = _with_stories(chance, about, steps)
    # Mostly there is something to work on.
    if chance.random() < 0.9:
        dies = None if about.receipts else chance.choice(after(DIES, *WRITING))
        return Program(setting, (first, first, Step("ingest", 9, stop=dies), *steps))
    return Program(replace(setting, start=0), steps)


def _with_stories(chance: random.Random, theme: Theme, steps: Sequence[Step]) -> tuple[Step, ...]:
    """The stories of a theme, early, among its other steps. Nothing stops in them but what they say."""
    found = [*steps]
    for story in chance.choices(theme.stories, k=chance.randint(1, theme.many)):
        at = chance.randint(0, min(6, len(found)))
        found[at:at] = _of_a_story(chance, story, 50 + 10 * at, theme)
    return tuple(found)


def _of_a_story(chance: random.Random, story: Sequence[str], run: int, theme: Theme) -> list[Step]:
    """Most of its steps are about the same messages."""
    names, same, few = theme.names, theme.same, theme.few
    a, b, found = chance.randrange(40), chance.randrange(few), []
    for at, said in enumerate(story):
        name, _, how = said.partition(", ")
        other = (chance.randrange(40), chance.randrange(few)) if chance.random() < 1 - same else (a, b)
        name_of_run = _run(chance, run + at, names)
        found.append(Step(name, name_of_run, *other, _stop_of(chance, how) if how else None))
    return found


# Where an actor of a story stops.
_STOPS = {
    "claims": Stop(SLEEPS, CLAIMING),
    "draws": Stop(SLEEPS, DRAWN),
    "claimed": Stop(DIES, CLAIMED),
    "takes": Stop(DIES, ProtocolStep.TAKEN.value),
    "stores": Stop(DIES, ProtocolStep.SINK_STORED.value),
    "half writes": Stop(SLEEPS, HALF_WRITTEN),
    "commits": Stop(SLEEPS, ProtocolStep.COMMITTED.value),
}


# Those that are drawn.
_DRAWN_STOPS: dict[str, Callable[[random.Random], Stop]] = {
    "dies": lambda chance: Stop(DIES, chance.choice((ProtocolStep.SINK_STORED.value, chance.randrange(80)))),
    "stops": lambda chance: Stop(DIES, chance.choice((HALF_REMOVED, *(one.value for one in CompactionStep)))),
    "waits": lambda chance: Stop(SLEEPS, chance.choice((CompactionStep.CLAIMED.value, CompactionStep.WRITTEN.value))),
    "half": lambda chance: Stop(SLEEPS, HALF_REMOVED),
    "early": lambda chance: Stop(SLEEPS, chance.randrange(12)),
    "sleeps": lambda chance: Stop(SLEEPS, chance.choice((CompactionStep.WRITTEN.value, chance.randrange(60)))),
    "late": lambda chance: Stop(
        chance.choice([*LATE]), chance.choice((*(one.value for one in WRITING), *range(0, 80, 2)))
    ),
    # Its third write makes a folder count.
    "doubts": lambda chance: Stop(chance.choice(ANSWERS_AND_OTHERS), chance.choice((1, 2, 2, 3))),
    "unheard": lambda chance: Stop(chance.choice((ROWS_LOST, ROWS_APPLIED)), chance.randrange(12)),
    "unsure": lambda chance: Stop(chance.choice(COMMITS), chance.randrange(2)),
}


def _stop_of(chance: random.Random, how: str) -> Stop | None:
    stop = _STOPS.get(how, _stop(chance))
    return _DRAWN_STOPS[how](chance) if how in _DRAWN_STOPS else stop


def _run(chance: random.Random, at: int, names: float = 0.3) -> int:
    """A name of its own, or one of a few that come again."""
    return chance.randrange(3) if chance.random() < names else 10 + at


def _stop(chance: random.Random, likely: tuple[Stop, ...] | None = None) -> Stop | None:
    if likely == ():
        # A theme may have steps that nothing disturbs.
        return None
    if likely and chance.random() < 0.6:
        return chance.choice(likely)
    if chance.random() >= 0.4:
        return None
    how = chance.choice((DIES, SLEEPS, SLEEPS, SLEEPS, "answer", REFUSED))
    if how == REFUSED:
        return Stop(how, chance.randrange(3))
    if how == "answer":
        return Stop(chance.choice((ROWS_LOST, ROWS_APPLIED, *ANSWERS)), chance.randrange(14))
    if chance.random() < 0.5:
        return Stop(how, chance.choice([one.value for one in ProtocolStep]))
    return Stop(how, chance.randrange(80))


def _setting(chance: random.Random) -> Setting:
    sinks = chance.choice(_SINKS)
    return Setting(
        most=chance.choice((2, 3, 7, 100, 100)),
        guarantee=chance.choice(("at_least_once",) * 4 + ("at_most_once",)),
        isolation=chance.choice(("read_committed", "read_committed", "read_uncommitted")),
        start=chance.choice((0, 0, 2)),
        sinks=sinks,
        partitions=chance.choice((2, 2, 3)),
        zookeeper=chance.random() < 0.3,
        out_of_range=chance.choice(("earliest", "fail")),
        after=chance.choice(("", "", "", "rebuilt", "restored")),
    )
