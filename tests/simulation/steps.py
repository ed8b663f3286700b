"""What happens in a program of steps, drawn by a seed. A program is data: any step may be left out."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tests.simulation.actors import (
    ANSWERS,
    ANSWERS_AND_OTHERS,
    CLAIMED,
    CLAIMING,
    COMMITS,
    DIES,
    DRAWN,
    ERASING,
    LATE,
    NAMING,
    REFUSED,
    ROWS_APPLIED,
    ROWS_LOST,
    SLEEPS,
    Stop,
)
from tests.simulation.lake import HALF_REMOVED
from tests.simulation.others import DELTA
from tests.simulation.stories import OF_TABLES, READERS_STORIES, SHARE, SINKS, STORIES
from tests.simulation.world import Setting
from tidemark.commit.protocol import Step as ProtocolStep
from tidemark.sinks.parquet.steps import CompactionStep as CompactionStep

# A block wider than any log here: units are what a window has read of a partition.
WIDE = 1_000

# How often each is on the menu; a theme may have others.
MENU = {
    "produce": 5, "ingest": 7, "replay": 6, "backfill": 3, "erase": 4, "erase key": 1, "again": 4, "wake": 6,
    "compact": 3, "retain": 1, "cancel": 1, "pause": 1, "resume": 2, "rows": 2, "totals": 3, "newest": 2,
    "begin": 2, "commit": 1, "abort": 1, "cut": 2, "recreate": 1, "add partition": 1, "lead": 1,
    "plan": 2, "by plan": 2, "back up": 2, "isolation": 1, "time": 2, "clock": 1, "major": 1, "take over": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Theme:
    """What meets rarely by chance. A seed with a theme has much of some `steps`, some settings, and stops at some places.

    It says what may meet, never in which order: the rest of the program is drawn as that of any other seed.
    """

    # How often each is on the menu, instead of what the menu says.
    steps: Mapping[str, int]
    # By the name of a setting, and of a step: what is drawn from, each the more often the more often it stands there.
    settings: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    stops: Mapping[str, tuple[Stop, ...]] = field(default_factory=dict)
    # How many of its runs have one of a few names, which come again.
    names: float = 0.3
    # How likely each other step of the menu is left in.
    others: float = 0.5
    # Steps that matter when they follow one another: as in `stories.py`. `same`: how many of them are about the same
    # messages. `few`: a request names up to so many.
    stories: tuple[Sequence[str], ...] = ()
    same: float = 0.7
    few: int = 6
    # How many messages there are before anything else: `produce` with this number, twice.
    first: int = 8
    # Whether the first window of all ends well, and so has a receipt.
    receipts: bool = True


def _early(how: str | Iterable[str], until: int) -> tuple[Stop, ...]:
    return tuple(Stop(one, at) for one in _each(how) for at in range(until))


def _after(how: str | Iterable[str], *steps: ProtocolStep) -> tuple[Stop, ...]:
    return tuple(Stop(one, step.value) for one in _each(how) for step in steps)


def _each(how: str | Iterable[str]) -> tuple[str, ...]:
    return (how,) if isinstance(how, str) else tuple(how)


_SETTLING = (ProtocolStep.COMMITTED, ProtocolStep.PUBLISHED, ProtocolStep.SWEPT)
_WRITING = (ProtocolStep.TAKEN, ProtocolStep.READ, ProtocolStep.DEAD_LETTERS_STORED, ProtocolStep.SINK_STORED)
THEMES = {
    "plans": Theme({"plan": 10, "by plan": 10, "replay": 20, "wake": 6}),
    "readers": Theme(
        {"totals": 10, "newest": 10, "erase": 12, "wake": 10},
        {"sinks": (("hbase", "sums"), ("hbase", "sums", "latest")), "block": (WIDE, 4, 8)},
        {"totals": _early(SLEEPS, 24), "newest": _early(SLEEPS, 24)},
    ),
    "erasures": Theme({"erase": 16, "erase key": 4, "wake": 20, "time": 8}),
    "backups": Theme(
        {"back up": 12, "recreate": 10, "ingest": 14, "wake": 5},
        {"after": ("restored",)},
        {"back up": _early(SLEEPS, 5)},
    ),
    "committed first": Theme(
        {"ingest": 12, "produce": 10, "erase": 12, "time": 8, "major": 6, "wake": 4},
        {"guarantee": ("at_most_once",)},
        {"ingest": (*_after(SLEEPS, *_WRITING), *_early(SLEEPS, 60)), "replay": _after(SLEEPS, *_WRITING)},
    ),
    "clocks": Theme(
        {"clock": 10, "ingest": 14, "produce": 10, "replay": 6, "back up": 4},
        {"after": ("", "restored", "restored")},
        {"ingest": _after(DIES, *_WRITING), "replay": _after(DIES, *_WRITING)},
    ),
    "transactions": Theme(
        {"begin": 12, "commit": 2, "abort": 3, "isolation": 10, "ingest": 20},
        {"isolation": ("read_uncommitted",)},
    ),
    "cuts": Theme({"cut": 10, "erase key": 10, "produce": 10, "ingest": 10, "lead": 2, "replay": 4}),
    "ordinals": Theme(
        {"ingest": 16, "produce": 12, "replay": 6, "newest": 4},
        {"sinks": (("hbase", "latest"), ("hbase", "sums", "latest"))},
        {"ingest": _early(REFUSED, 4), "replay": _early(REFUSED, 4)},
    ),
}
_OF_WIDE_BLOCKS: dict[str, tuple[Any, ...]] = {
    "block": (WIDE,),
    "sinks": (("sums", "hbase"), ("hbase", "sums")),
    "guarantee": ("at_least_once",),
}
# Of one seed of five. They came later, and so the programs of all other seeds stay what they are.
LATER_THEMES = {
    "slow attempts": Theme(
        {"ingest": 12, "produce": 8, "erase": 14, "wake": 24},
        _OF_WIDE_BLOCKS,
        {"ingest": (Stop(SLEEPS, DRAWN),), "erase": (Stop(SLEEPS, ERASING),)},
        others=0.1,
        stories=(("produce", "ingest, draws", "erase, looks", "wake", "wake"),),
    ),
    "stale plans": Theme(
        {"plan": 10, "by plan": 14, "replay": 16, "wake": 12},
        {"sinks": (("hbase", "sums"), ("hbase",)), "guarantee": ("at_least_once",)},
        {"by plan": (Stop(SLEEPS, CLAIMING),)},
    ),
    "lower generations": Theme(
        {"back up": 6, "clock": 8, "ingest": 16, "produce": 12, "time": 4},
        {"after": ("restored",), "sinks": (("hbase",),), "guarantee": ("at_least_once",)},
        {"ingest": _after(DIES, ProtocolStep.SINK_STORED)},
    ),
    "half closed": Theme(
        {"replay": 12, "cancel": 14, "again": 4, "time": 8},
        {},
        {"cancel": _early(DIES, 20), "replay": _after(DIES, ProtocolStep.TAKEN, ProtocolStep.SINK_STORED)},
    ),
    "overtaken": Theme(
        {"ingest": 14, "take over": 8, "produce": 10, "time": 10, "wake": 10},
        {"sinks": (("sums", "hbase"),), "most": (2, 3), "guarantee": ("at_least_once",)},
        {"ingest": (Stop(SLEEPS, NAMING),), "replay": (Stop(SLEEPS, NAMING),)},
    ),
}
_OF_BLOCKS = {**_OF_WIDE_BLOCKS, "block": (4, 8), "most": (100,)}
# Of one seed of ten, for the same reason.
LATEST_THEMES = {
    "aborted": Theme(
        {"begin": 6, "abort": 8, "ingest": 8, "replay": 16},
        {**_OF_BLOCKS, "isolation": ("read_committed",)},
        others=0.1,
        stories=(("begin", "abort", "ingest", "isolation", "replay"),),
    ),
    "erased and compacted": Theme(
        {"erase": 8, "compact": 1, "produce": 1, "replay": 12, "ingest": 2, "time": 4},
        {**_OF_BLOCKS, "block": (3, 4), "partitions": (2,), "start": (0,)},
        others=0.1,
        stories=(("erase", "compact", "replay", "replay", "replay"),),
        same=0,
        few=3,
        first=4,
    ),
    "one name": Theme(
        {"replay": 24, "wake": 16, "time": 4},
        {"block": (1,), "guarantee": ("at_least_once",)},
        names=0.9,
        others=0.1,
        stories=(("replay, claims", "replay, claimed", "wake"),),
        same=0.2,
    ),
    "given up": Theme(
        {"backfill": 20, "cancel": 12, "erase": 14, "time": 6},
        {**_OF_WIDE_BLOCKS, "start": (5,), "most": (100,), "partitions": (2,)},
        others=0.1,
        stories=(("backfill, stores", "time", "cancel", "backfill", "erase"),),
    ),
    "expired": Theme(
        {"erase": 20, "retain": 10, "again": 4},
        {**_OF_BLOCKS, "out_of_range": ("earliest",)},
        others=0.1,
        stories=(("erase, takes", "retain"),),
        same=0,
        few=3,
        first=4,
    ),
}
# Of another seed of ten.
NEWEST_THEMES = {
    "older versions": Theme(
        {"back up": 10, "ingest": 14, "produce": 10, "replay": 6, "upgrade": 2},
        {"older": (True,), "after": ("restored",), "guarantee": ("at_least_once",)},
        {
            "ingest": _after(DIES, ProtocolStep.PINNED, *_WRITING),
            "replay": _after(DIES, ProtocolStep.PINNED, *_WRITING),
        },
    ),
    "edited by hand": Theme(
        {"replay": 12, "backfill": 4, "again": 10, "edit": 12, "resume": 1},
        {"most": (2, 3, 7), "sinks": (("hbase",), ("hbase", "sums"))},
        {"replay": _after(DIES, ProtocolStep.PINNED, *_WRITING), "backfill": _after(DIES, ProtocolStep.PINNED)},
        others=0.2,
        stories=(("replay, takes", "edit", "again"),),
    ),
    "without a receipt": Theme(
        {"ingest": 6, "erase": 16, "produce": 6, "time": 12},
        {"guarantee": ("at_most_once",), "start": (0,)},
        {"ingest": _after(DIES, *_WRITING), "replay": _after(DIES, *_WRITING)},
        others=0.2,
        receipts=False,
    ),
    "far apart": Theme(
        {"replay apart": 12, "replay": 4, "produce": 12, "ingest": 10, "wake": 4},
        {"most": (100,), "sinks": (("hbase",), ("hbase", "latest"), ("hbase", "sums"))},
        others=0.2,
    ),
}
# Of the last seed of ten.
LAST_THEMES = {
    "pages": Theme(
        {"page": 24, "ingest": 10, "replay": 8, "erase": 4, "wake": 12},
        {},
        {"page": _early(SLEEPS, 30)},
        others=0.3,
    ),
    "places away": Theme(
        {
            "away": 8,
            "back": 8,
            "ingest": 12,
            "replay": 8,
            "erase": 10,
            "newest": 8,
            "again": 6,
            "wake": 12,
            "produce": 8,
            "cancel": 3,
        },
        {
            "sinks": (
                ("hbase", "sums", "parquet"),
                ("hbase", "delta"),
                ("parquet", "hbase"),
                *[("hbase", "latest")] * 5,
                ("hbase", "kafka"),
            )
        },
        {
            "ingest": (*_after(SLEEPS, *_WRITING), *_early(SLEEPS, 60)),
            "erase": _early(SLEEPS, 60),
            "newest": _early(SLEEPS, 24),
            "replay": _early(SLEEPS, 60),
        },
        others=0.2,
    ),
}
# Of one seed of ten.
FURTHER_THEMES = {
    "late writers": Theme(
        {"ingest": 8, "replay": 12, "take over": 4, "erase": 14, "cancel": 8, "major": 4, "time": 10, "wake": 14},
        {
            "sinks": (
                ("hbase", "delta"),
                ("hbase", "sums"),
                ("hbase", "latest"),
                ("hbase", "parquet"),
                ("hbase", "kafka"),
            )
        },
        {one: (*_after(LATE, *_WRITING), *_early(LATE, 80)) for one in ("ingest", "replay", "again")},
        others=0.1,
        stories=(
            ("replay, late", "time", "cancel", "erase", "wake"),
            ("replay, late", "time", "cancel", "erase", "major", "wake"),
            ("produce", "ingest, late", "time", "take over", "erase", "wake"),
            ("produce", "ingest, late", "time", "take over", "erase", "major", "wake"),
        ),
    ),
    "times": Theme(
        {
            "produce": 14,
            "replay since": 20,
            "ingest": 12,
            "compact": 4,
            "retain": 4,
            "cut": 2,
            "recreate": 2,
            "wake": 10,
        },
        {"guarantee": ("at_least_once",), "sinks": (("hbase",), ("hbase", "sums"))},
        {"replay since": _early((SLEEPS, REFUSED), 30)},
        others=0.2,
    ),
    "copies": Theme(
        {"produce": 12, "ingest": 14, "replay": 8, "erase": 4, "take over": 4, "time": 6, "wake": 10},
        {"copies": (True,), "guarantee": ("at_least_once",), "sinks": (("hbase",), ("hbase", "sums"))},
        {one: (*_after((DIES, SLEEPS), *_SETTLING), *_early((DIES, SLEEPS), 90)) for one in ("ingest", "replay")},
        others=0.2,
    ),
}
# What came later still.
NEW_THEMES = {
    "several topics": Theme(
        {
            "produce": 14,
            "ingest": 14,
            "recreate": 4,
            "delete topic": 4,
            "create topic": 6,
            "cut": 4,
            "add partition": 2,
            "replay": 8,
            "erase": 5,
            "erase key": 3,
            "page": 6,
            "again": 4,
            "wake": 10,
        },
        {
            "topics": ("two", "pattern", "pattern"),
            "on_deleted": ("leave", "leave", "fail"),
            "sinks": (("hbase",), ("hbase", "sums"), ("hbase", "latest"), ("hbase", "sums", "latest")),
        },
        {one: (*_early(SLEEPS, 40), *_after(SLEEPS, *_WRITING)) for one in ("ingest", "replay", "erase")},
        names=0.1,
        others=0.2,
    ),
    "times to begin": Theme(
        {
            "produce": 12,
            "produce late": 10,
            "ingest": 16,
            "cut": 3,
            "recreate": 3,
            "retain": 4,
            "replay since": 6,
            "add partition": 2,
            "begin": 3,
            "commit": 3,
            "wake": 6,
        },
        {
            "since": (-7_000, 0, 2, 4, 6_999, 7_003, 7_005, 10_000, 20_000, 40_000),
            "if_none": ("end", "fail"),
            "start": (0,),
            "sinks": (("hbase",), ("hbase", "sums")),
        },
        {"ingest": _early((SLEEPS, REFUSED), 20)},
        others=0.3,
    ),
    "audits": Theme(
        {
            "damage": 12,
            "audit": 16,
            "ingest": 10,
            "produce": 8,
            "produce bad": 4,
            "replay": 8,
            "erase": 10,
            "cut": 2,
            "compact": 2,
            "retain": 2,
            "recreate": 1,
            "again": 6,
            "cancel": 2,
            "wake": 14,
        },
        {
            "sinks": (("hbase",), ("hbase", "sums"), ("hbase", "latest")),
            "guarantee": ("at_least_once",),
        },
        {"audit": (*_early((SLEEPS, SLEEPS, DIES), 70), Stop(SLEEPS, CLAIMING), *_after((SLEEPS, DIES), *_WRITING))},
        others=0.1,
    ),
    "redrives": Theme(
        {
            "produce bad": 10,
            "produce": 4,
            "redrive": 18,
            "mend": 6,
            "ingest": 12,
            "replay": 6,
            "erase": 6,
            "compact": 3,
            "retain": 2,
            "cancel": 3,
            "again": 5,
            "wake": 12,
        },
        {"sinks": (("hbase",), ("hbase", "sums"), ("sums", "hbase"), ("hbase", "latest"))},
        {
            "redrive": (*_early((SLEEPS, DIES), 60), *_after((SLEEPS, DIES), *_WRITING)),
            "ingest": _after((SLEEPS, DIES), *_WRITING),
        },
        others=0.2,
    ),
}
# What people look up: one message, dead letters, and what they browse.
LOOK_THEMES = {
    "looks": Theme(
        {
            "look": 24,
            "produce": 12,
            "produce bad": 6,
            "ingest": 12,
            "replay": 6,
            "redrive": 2,
            "erase": 10,
            "cut": 5,
            "recreate": 2,
            "compact": 2,
            "retain": 2,
            "begin": 3,
            "abort": 2,
            "again": 3,
            "wake": 14,
        },
        {
            "sinks": (
                ("hbase",),
                ("hbase", "sums", "latest"),
                ("hbase", "latest"),
                ("hbase", "latest"),
                ("sums", "hbase"),
                ("hbase", "sums"),
                ("hbase", "parquet"),
            ),
            "guarantee": ("at_least_once",),
            "topics": ("", "", "two"),
        },
        {"look": _early(SLEEPS, 40)},
        others=0.1,
    ),
}
# Tables with the newest rows take some times as long as others.
LAKE_THEMES = {
    "newest in lakes": Theme(
        {
            "produce": 10,
            "ingest": 12,
            "replay": 10,
            "erase": 8,
            "results": 8,
            "again": 4,
            "take over": 2,
            "cut": 2,
            "cancel": 3,
            "time": 4,
            "wake": 12,
        },
        {
            "sinks": (("hbase", "delta_latest"), ("delta_latest", "hbase"), ("hbase", "iceberg_latest")),
            "guarantee": ("at_least_once",),
        },
        {
            **{
                one: (*_after((DIES, SLEEPS), *_WRITING, *_SETTLING), *_early((DIES, SLEEPS), 120))
                for one in ("ingest", "replay")
            },
            "erase": _early((DIES, SLEEPS), 120),
            "results": _early(SLEEPS, 40),
        },
        others=0.1,
    ),
}
# Tables that are compacted, or that Iceberg keeps.
TABLE_THEMES = {
    "compacted tables": Theme(
        {
            "produce": 10,
            "ingest": 12,
            "replay": 12,
            "erase": 8,
            "compact files": 14,
            "results": 8,
            "again": 4,
            "take over": 2,
            "cancel": 3,
            "time": 4,
            "wake": 14,
        },
        {
            "sinks": (
                *[("hbase", "iceberg"), ("iceberg", "hbase")] * 2,
                ("hbase", "delta_latest"),
                ("hbase", "iceberg_latest"),
            ),
            "guarantee": ("at_least_once",),
        },
        {
            **{
                one: (*_after((DIES, SLEEPS), *_WRITING, *_SETTLING), *_early((DIES, SLEEPS), 120))
                for one in ("ingest", "replay")
            },
            "erase": _early((DIES, SLEEPS), 120),
            "results": _early(SLEEPS, 60),
            "compact files": _early((DIES, SLEEPS), 160),
        },
        others=0.1,
    ),
}
# What somebody does while somebody else reads, whole. These have no seeds of their own: they are asked for by name, and have
# their share of a night.
_READS = ("rows", "totals", "newest", "results", "page", "look")
_WRITES = ("replay", "erase", "ingest", "cancel", "backfill", "redrive", "compact files", "take over")
BESIDE_THEMES = {
    "beside readers": Theme(
        {"produce": 10, "ingest": 10, "replay": 8, "erase": 3, "rows": 6, "page": 4, "look": 4, "wake": 8},
        {"guarantee": ("at_least_once",), "after": ("",)},
        {one: _early(SLEEPS, 16) for one in _READS},
        others=0.2,
        stories=tuple((f"{reads}, early", "produce", writes, "wake") for reads in _READS for writes in _WRITES),
        same=0.3,
    ),
    "readers of files": Theme(
        {"produce": 10, "ingest": 10, "replay": 8, "results": 8, "compact files": 4, "wake": 8},
        {
            "sinks": tuple(("hbase", one) for one in ("parquet", "delta", "iceberg", "delta_latest", "iceberg_latest")),
            "guarantee": ("at_least_once",),
        },
        {"results": _early(SLEEPS, 30)},
        others=0.1,
        stories=tuple(("results, early", "produce", writes, "wake") for writes in _WRITES),
        same=0.3,
    ),
    "pauses": Theme(
        {
            "produce": 8,
            "ingest": 6,
            "replay": 10,
            "backfill": 4,
            "pause": 10,
            "again": 12,
            "resume": 3,
            "cancel": 2,
            "time": 4,
        },
        {"guarantee": ("at_least_once",), "most": (2, 3), "sinks": (("hbase",), ("hbase", "sums"))},
        {"pause": (), "again": (), "resume": ()},
        others=0.1,
        stories=(
            ("replay, stores", "time", "pause", "again", "resume", "again"),
            ("backfill, stores", "time", "pause", "again"),
        ),
    ),
    "refusals": Theme(
        {
            "produce": 8,
            "ingest": 8,
            "replay": 10,
            "backfill": 6,
            "erase": 6,
            "plan": 6,
            "by plan": 6,
            "replay since": 4,
        },
        {"guarantee": ("at_least_once",), "most": (2, 3, 7, 100)},
        dict.fromkeys(("ingest", "replay", "backfill", "erase", "plan", "by plan"), ()),
        others=0.05,
    ),
}
# Which of them one seed of thirty has.
_FURTHER = {23: ["times"], 14: ["copies"], 24: ["late writers"]}
# Which seeds have one of the newest: those that no planted bug of an older theme needs.
_PERIOD, _NEW = 90, frozenset((10, 11, 15, 20, 25, 31, 33, 35, 41, 45, 51, 60, 61, 63, 70, 80))
_OF_LAKES = frozenset((17, 77))
_OF_TABLES = frozenset((52, 142))
_OF_LOOKS = frozenset((2, 8, 22, 49, 66, 72))
_ALL_THEMES = {
    **THEMES,
    **LATER_THEMES,
    **LATEST_THEMES,
    **NEWEST_THEMES,
    **LAST_THEMES,
    **FURTHER_THEMES,
    **NEW_THEMES,
    **LOOK_THEMES,
    **LAKE_THEMES,
    **TABLE_THEMES,
    **BESIDE_THEMES,
}
THEME_NAMES = tuple(_ALL_THEMES)
_SINKS = (
    ("hbase", "sums"),
    ("hbase", "sums"),
    ("sums", "hbase"),
    ("hbase",),
    ("hbase", "sums", "latest"),
    ("hbase", "latest"),
)
_NONE = Theme({})
# Of the seeds with sinks of files and messages, which have stories instead of a theme.
_FOCI = (
    ("plan", "by plan", "replay"),
    ("totals", "newest", "erase", "wake"),
    ("erase", "erase key", "wake", "time"),
    ("back up", "recreate", "cut", "clock"),
)
# Without these, nothing else means anything.
_ALWAYS = ("produce", "ingest", "wake")
_MOST_STEPS = 30


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


def _about(seed: int, chance: random.Random, whole: Mapping[str, int], theme: str | None) -> Theme:
    """The theme of a seed, or that of a name."""
    if theme is None and (late := _late_themes(seed)):
        theme = chance.choice([*late])
    if theme is not None:
        return _ALL_THEMES[theme]
    if _has_others(seed):
        focus = chance.choice(_FOCI) if chance.random() < 0.5 else ()
        return Theme({one: 4 * whole[one] for one in focus})
    if _is_latest(seed):
        return LATEST_THEMES[chance.choice([*LATEST_THEMES])]
    if _is_newest(seed):
        return NEWEST_THEMES[chance.choice([*NEWEST_THEMES])]
    if _is_last(seed):
        return LAST_THEMES[chance.choice([*LAST_THEMES])]
    if further := _FURTHER.get(seed % 30):
        return FURTHER_THEMES[chance.choice(further)]
    if _is_later(seed):
        return LATER_THEMES[chance.choice([*LATER_THEMES])]
    return _NONE if chance.random() < 0.25 else THEMES[chance.choice([*THEMES])]


def _late_themes(seed: int) -> Mapping[str, Theme]:
    """Those that came last have some seeds for themselves."""
    if seed % _PERIOD in _NEW:
        return NEW_THEMES
    if seed % _PERIOD in _OF_LOOKS:
        return LOOK_THEMES
    if seed % (2 * _PERIOD) in _OF_TABLES:
        return TABLE_THEMES
    return LAKE_THEMES if seed % (2 * _PERIOD) in _OF_LAKES else {}


def drawn(seed: int, menu: Mapping[str, int] | None = None, theme: str | None = None) -> Program:
    """The program of a seed. Each leaves out a random half of the menu, so that what is left meets more often."""
    chance = random.Random(seed)
    whole = menu or MENU
    about = _about(seed, chance, whole, theme)
    names = [one for one in whole if one in _ALWAYS or one in about.steps or chance.random() < about.others]
    names += [one for one in about.steps if one not in whole]
    weights = [about.steps.get(one) or whole[one] for one in names]
    chosen = chance.choices(names, weights, k=chance.randint(6, _MOST_STEPS))
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
    if about.stories:
        steps = _with_stories(chance, about, steps)
    # Mostly there is something to work on.
    if chance.random() < 0.9:
        dies = None if about.receipts else chance.choice(_after(DIES, *_WRITING))
        return _with_others(seed, Program(setting, (first, first, Step("ingest", 9, stop=dies), *steps)))
    return Program(replace(setting, start=0), steps)


def _is_later(seed: int) -> bool:
    return seed % 5 == 2


def _is_latest(seed: int) -> bool:
    return seed % 10 == 8


def _is_newest(seed: int) -> bool:
    return seed % 10 == 9


def _is_last(seed: int) -> bool:
    return seed % 10 == 6


def _has_others(seed: int) -> bool:
    return random.Random(f"others {seed}").random() < SHARE


def _with_others(seed: int, program: Program) -> Program:
    """Some seeds have sinks of files or messages too, and more of what matters for these. No other seed changes with that."""
    chance = random.Random(f"others {seed}")
    if chance.random() >= SHARE:
        return program
    steps = [*program.steps]
    sinks = chance.choice(SINKS)
    stories = OF_TABLES if DELTA in sinks else READERS_STORIES if seed % 10 == 7 else STORIES
    for story in chance.choices(stories, k=chance.randint(2, 6)):
        at = chance.randint(3, len(steps))
        steps[at:at] = _of_a_story(chance, story, 50 + 10 * at)
    return Program(replace(program.setting, sinks=sinks, one_pass=chance.random() < 0.5), tuple(steps))


def _with_stories(chance: random.Random, theme: Theme, steps: Sequence[Step]) -> tuple[Step, ...]:
    """The stories of a theme, early, among its other steps. Nothing stops in them but what they say."""
    found = [*steps]
    for story in chance.choices(theme.stories, k=chance.randint(1, 3)):
        at = chance.randint(0, min(6, len(found)))
        found[at:at] = _of_a_story(chance, story, 50 + 10 * at, theme)
    return tuple(found)


def _of_a_story(chance: random.Random, story: Sequence[str], run: int, theme: Theme | None = None) -> list[Step]:
    """Most of its steps are about the same messages."""
    names, same, few = (theme.names, theme.same, theme.few) if theme is not None else (0.3, 0.7, 6)
    a, b, found = chance.randrange(40), chance.randrange(few), []
    for at, said in enumerate(story):
        name, _, how = said.partition(", ")
        other = (chance.randrange(40), chance.randrange(few)) if chance.random() < 1 - same else (a, b)
        name_of_run = _run(chance, run + at, names)
        found.append(Step(name, name_of_run, *other, _stop_of(chance, how) if how or theme is None else None))
    return found


# Where an actor of a story stops.
_STOPS = {
    "claims": Stop(SLEEPS, CLAIMING),
    "draws": Stop(SLEEPS, DRAWN),
    "looks": Stop(SLEEPS, ERASING),
    "claimed": Stop(DIES, CLAIMED),
    "takes": Stop(DIES, ProtocolStep.TAKEN.value),
    "stores": Stop(DIES, ProtocolStep.SINK_STORED.value),
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
        chance.choice([*LATE]), chance.choice((*(one.value for one in _WRITING), *range(0, 80, 2)))
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
        block=chance.choice((WIDE, 1, 3, 4, 8)),
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
