"""The themes of programs: what meets rarely by chance, made likely. A seed draws one of all, or two at once."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.simulation.actors import (
    CLAIMING,
    COMMITS,
    DIES,
    DRAWN,
    HALF_WRITTEN,
    LATE,
    REFUSED,
    SLEEPS,
    Stop,
)
from tidemark.commit.protocol import Step as ProtocolStep


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
    # Steps that matter when they follow one another, some with a word of what happens in their middle. `same`: how many of them
    # are about the same messages. `few`: a request names up to so many.
    stories: tuple[Sequence[str], ...] = ()
    same: float = 0.7
    few: int = 6
    # How many messages there are before anything else: `produce` with this number, twice.
    first: int = 8
    # Whether the first window of all ends well, and so has a receipt.
    receipts: bool = True
    # The most stories of a program.
    many: int = 3


def _early(how: str | Iterable[str], until: int) -> tuple[Stop, ...]:
    return tuple(Stop(one, at) for one in _each(how) for at in range(until))


def after(how: str | Iterable[str], *steps: ProtocolStep) -> tuple[Stop, ...]:
    return tuple(Stop(one, step.value) for one in _each(how) for step in steps)


def _each(how: str | Iterable[str]) -> tuple[str, ...]:
    return (how,) if isinstance(how, str) else tuple(how)


_SETTLING = (ProtocolStep.COMMITTED, ProtocolStep.PUBLISHED, ProtocolStep.SWEPT)
WRITING = (ProtocolStep.TAKEN, ProtocolStep.READ, ProtocolStep.DEAD_LETTERS_STORED, ProtocolStep.SINK_STORED)
_WITH_TOTALS: dict[str, tuple[Any, ...]] = {
    "sinks": (("sums", "hbase"), ("hbase", "sums")),
    "guarantee": ("at_least_once",),
}
_OF_LARGE_WINDOWS = {**_WITH_TOTALS, "most": (100,)}
_READS = ("rows", "totals", "newest", "results", "page", "look")
_WRITES = ("replay", "erase", "ingest", "cancel", "backfill", "redrive", "compact files", "take over")
# Steps that matter to sinks of files and messages when they follow one another. A second word says what happens in one.
_OF_FOLDERS = (
    ("compact files",),
    ("replay", "replay"),
    ("replay, dies", "time", "cancel", "compact files"),
    ("replay, dies", "time", "cancel", "erase"),
    ("replay, dies", "time", "cancel", "erase", "erase"),
    ("replay, dies", "again"),
    ("replay, dies", "erase"),
    ("ingest, dies", "ingest"),
    ("replay, unheard", "again"),
    ("ingest, unheard", "ingest"),
    ("compact files, unheard", "compact files"),
    ("compact files, stops", "replay", "compact files"),
    ("replay", "compact files, stops", "erase"),
    ("compact files, sleeps", "compact files", "wake"),
    ("compact files, sleeps", "replay", "compact files", "wake"),
    ("compact files, sleeps", "erase", "wake"),
    ("replay", "compact files, doubts", "compact files", "wake"),
    ("compact files, doubts", "compact files", "wake"),
    ("results, sleeps", "compact files", "wake"),
    ("replay", "results, sleeps", "compact files, half", "wake", "wake"),
    ("replay", "results, early", "compact files, half", "wake", "wake"),
    ("results, early", "replay", "compact files", "wake"),
    ("results, early", "replay", "compact files", "wake"),
    ("compact files, waits", "replay", "compact files", "wake"),
    ("replay", "compact files, waits", "compact files", "wake"),
    ("replay", "results, early", "replay", "compact files", "wake"),
)
# What readers of folders meet.
_OF_READERS = tuple(one for one in _OF_FOLDERS if any(step.startswith("results") for step in one))
# With tables instead of folders.
_OF_TABLES = (
    ("replay", "replay"),
    ("replay, dies", "time", "cancel", "erase"),
    ("replay, dies", "again"),
    ("ingest, dies", "ingest"),
    ("replay, unsure", "again"),
    ("replay, unsure", "erase", "replay"),
    ("erase, unsure", "ingest"),
    ("ingest, unsure", "ingest"),
    ("results, sleeps", "replay", "wake"),
)
# What every seed may have, with a theme or without.
NONE = Theme({})
# Totals are added to, and no window may be added twice.
_TOTALS = Theme(
    {
        "produce": 10,
        "ingest": 12,
        "replay": 12,
        "backfill": 4,
        "erase": 6,
        "compact files": 8,
        "totals": 10,
        "again": 4,
        "take over": 2,
        "cancel": 3,
        "time": 4,
        "wake": 14,
    },
    {**_WITH_TOTALS, "after": ("", "", "restored", "rebuilt")},
    {
        **{
            one: (*after((DIES, SLEEPS), *WRITING, *_SETTLING), *_early((DIES, SLEEPS), 120))
            for one in ("ingest", "replay", "backfill")
        },
        "erase": _early((DIES, SLEEPS), 120),
        "totals": _early(SLEEPS, 40),
        "compact files": _early((DIES, SLEEPS), 160),
    },
    others=0.1,
    stories=(
        ("ingest, commits", "replay", "wake"),
        ("replay, commits", "compact files", "ingest"),
        ("compact files, sleeps", "replay, commits", "wake", "again"),
        ("replay, sleeps", "produce", "ingest", "wake"),
    ),
)

THEMES: Mapping[str, Theme] = {
    "plans": Theme({"plan": 10, "by plan": 10, "replay": 20, "wake": 6}),
    "readers": Theme(
        {"totals": 10, "newest": 10, "erase": 12, "wake": 10},
        {"sinks": (("hbase", "sums"), ("hbase", "sums", "hbase_latest"))},
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
        {"guarantee": ("at_most_once",), "sinks": (("hbase",),)},
        {"ingest": (*after(SLEEPS, *WRITING), *_early(SLEEPS, 60)), "replay": after(SLEEPS, *WRITING)},
        stories=(("produce", "ingest, half writes", "time", "erase", "wake"),),
    ),
    "clocks": Theme(
        {"clock": 10, "ingest": 14, "produce": 10, "replay": 6, "back up": 4},
        {"after": ("", "restored", "restored")},
        {"ingest": after(DIES, *WRITING), "replay": after(DIES, *WRITING)},
    ),
    "transactions": Theme(
        {"begin": 12, "commit": 2, "abort": 3, "isolation": 10, "ingest": 20},
        {"isolation": ("read_uncommitted",)},
    ),
    "cuts": Theme({"cut": 10, "erase key": 10, "produce": 10, "ingest": 10, "lead": 2, "replay": 4}),
    "slow attempts": Theme(
        {"ingest": 12, "produce": 8, "erase": 14, "wake": 24},
        _WITH_TOTALS,
        {"ingest": (Stop(SLEEPS, DRAWN),)},
        others=0.1,
        stories=(("produce", "ingest, draws", "erase", "wake"),),
    ),
    "stale plans": Theme(
        {"plan": 10, "by plan": 14, "replay": 16, "wake": 12},
        {"sinks": (("hbase", "sums"), ("hbase",)), "guarantee": ("at_least_once",)},
        {"by plan": (Stop(SLEEPS, CLAIMING),)},
    ),
    "lower generations": Theme(
        {"back up": 6, "clock": 8, "ingest": 16, "produce": 12, "time": 4},
        {"after": ("restored",), "sinks": (("hbase",),), "guarantee": ("at_least_once",)},
        {"ingest": after(DIES, ProtocolStep.SINK_STORED)},
    ),
    "half closed": Theme(
        {"replay": 12, "cancel": 14, "again": 4, "time": 8},
        {},
        {"cancel": _early(DIES, 20), "replay": after(DIES, ProtocolStep.TAKEN, ProtocolStep.SINK_STORED)},
    ),
    "overtaken": Theme(
        {"ingest": 14, "take over": 8, "produce": 10, "time": 10, "wake": 10},
        {"sinks": (("sums", "hbase"),), "most": (2, 3), "guarantee": ("at_least_once",)},
        {"ingest": after(SLEEPS, *WRITING), "replay": after(SLEEPS, *WRITING)},
    ),
    "aborted": Theme(
        {"begin": 6, "abort": 8, "ingest": 8, "replay": 16},
        {**_OF_LARGE_WINDOWS, "isolation": ("read_committed",)},
        others=0.1,
        stories=(("begin", "abort", "ingest", "isolation", "replay"),),
    ),
    "erased and compacted": Theme(
        {"erase": 8, "compact": 1, "produce": 1, "replay": 12, "ingest": 2, "time": 4},
        {**_OF_LARGE_WINDOWS, "partitions": (2,), "start": (0,)},
        others=0.1,
        stories=(("erase", "compact", "replay", "replay", "replay"),),
        same=0,
        few=3,
        first=4,
    ),
    "one name": Theme(
        {"replay": 24, "wake": 16, "time": 4},
        {"guarantee": ("at_least_once",)},
        names=0.9,
        others=0.1,
        stories=(("replay, claims", "replay, claimed", "wake"), ("replay, claims", "replay", "wake")),
        same=0.2,
    ),
    "given up": Theme(
        {"backfill": 20, "cancel": 12, "erase": 14, "time": 6},
        {**_WITH_TOTALS, "start": (5,), "most": (100,), "partitions": (2,)},
        others=0.1,
        stories=(("backfill, stores", "time", "cancel", "backfill", "erase"),),
    ),
    "expired": Theme(
        {"erase": 20, "retain": 10, "again": 4},
        {**_OF_LARGE_WINDOWS, "out_of_range": ("earliest",)},
        others=0.1,
        stories=(("erase, takes", "retain"),),
        same=0,
        few=3,
        first=4,
    ),
    "older versions": Theme(
        {"back up": 10, "ingest": 14, "produce": 10, "replay": 6, "upgrade": 2},
        {"older": (True,), "after": ("restored",), "guarantee": ("at_least_once",)},
        {
            "ingest": after(DIES, ProtocolStep.PINNED, *WRITING),
            "replay": after(DIES, ProtocolStep.PINNED, *WRITING),
        },
    ),
    "edited by hand": Theme(
        {"replay": 12, "backfill": 4, "again": 10, "edit": 12, "resume": 1},
        {"most": (2, 3, 7), "sinks": (("hbase",), ("hbase", "sums"))},
        {"replay": after(DIES, ProtocolStep.PINNED, *WRITING), "backfill": after(DIES, ProtocolStep.PINNED)},
        others=0.2,
        stories=(("replay, takes", "edit", "again"),),
    ),
    "without a receipt": Theme(
        {"ingest": 6, "erase": 16, "produce": 6, "time": 12},
        {"guarantee": ("at_most_once",), "start": (0,), "sinks": (("hbase",),)},
        {"ingest": after(DIES, *WRITING), "replay": after(DIES, *WRITING)},
        others=0.2,
        receipts=False,
    ),
    "far apart": Theme(
        {"replay apart": 12, "replay": 4, "produce": 12, "ingest": 10, "wake": 4},
        {"most": (100,), "sinks": (("hbase",), ("hbase", "hbase_latest"), ("hbase", "sums"))},
        others=0.2,
    ),
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
                *[("hbase", "hbase_latest")] * 5,
                ("hbase", "kafka"),
            )
        },
        {
            "ingest": (*after(SLEEPS, *WRITING), *_early(SLEEPS, 60)),
            "erase": _early(SLEEPS, 60),
            "newest": _early(SLEEPS, 24),
            "replay": _early(SLEEPS, 60),
        },
        others=0.2,
    ),
    "late writers": Theme(
        {"ingest": 8, "replay": 12, "take over": 4, "erase": 14, "cancel": 8, "major": 4, "time": 10, "wake": 14},
        {
            "sinks": (
                ("hbase", "delta"),
                ("hbase", "sums"),
                ("hbase", "hbase_latest"),
                ("hbase", "parquet"),
                ("hbase", "kafka"),
            )
        },
        {one: (*after(LATE, *WRITING), *_early(LATE, 80)) for one in ("ingest", "replay", "again")},
        others=0.1,
        stories=(
            ("replay, late", "time", "cancel", "erase", "wake"),
            ("replay, late", "time", "cancel", "erase", "major", "wake"),
            ("produce", "ingest, late", "time", "take over", "erase", "wake"),
            ("produce", "ingest, late", "time", "take over", "erase", "major", "wake"),
            ("replay, half writes", "time", "cancel", "erase", "major", "wake"),
            ("produce", "ingest, half writes", "time", "take over", "erase", "major", "wake"),
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
        {one: (*after((DIES, SLEEPS), *_SETTLING), *_early((DIES, SLEEPS), 90)) for one in ("ingest", "replay")},
        others=0.2,
    ),
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
            "sinks": (("hbase",), ("hbase", "sums"), ("hbase", "hbase_latest"), ("hbase", "sums", "hbase_latest")),
        },
        {one: (*_early(SLEEPS, 40), *after(SLEEPS, *WRITING)) for one in ("ingest", "replay", "erase")},
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
            "sinks": (("hbase",), ("hbase", "sums"), ("hbase", "hbase_latest")),
            "guarantee": ("at_least_once",),
        },
        {"audit": (*_early((SLEEPS, SLEEPS, DIES), 70), Stop(SLEEPS, CLAIMING), *after((SLEEPS, DIES), *WRITING))},
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
        {"sinks": (("hbase",), ("hbase", "sums"), ("sums", "hbase"), ("hbase", "hbase_latest"))},
        {
            "redrive": (*_early((SLEEPS, DIES), 60), *after((SLEEPS, DIES), *WRITING)),
            "ingest": after((SLEEPS, DIES), *WRITING),
        },
        others=0.2,
    ),
    # What people look up: one message, dead letters, and what they browse.
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
                ("hbase", "sums", "hbase_latest"),
                ("hbase", "hbase_latest"),
                ("hbase", "hbase_latest"),
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
    # Tables with the newest rows take some times as long as others.
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
                one: (*after((DIES, SLEEPS), *WRITING, *_SETTLING), *_early((DIES, SLEEPS), 120))
                for one in ("ingest", "replay")
            },
            "erase": _early((DIES, SLEEPS), 120),
            "results": _early(SLEEPS, 40),
        },
        others=0.1,
    ),
    # Keys move to a partition that is added, so that offsets say no more which message is newer.
    "added partitions": Theme(
        {
            "add partition": 8,
            "produce": 14,
            "ingest": 14,
            "replay": 6,
            "erase": 4,
            "cut": 2,
            "recreate": 1,
            "newest": 6,
        },
        {
            "sinks": (("hbase", "hbase_latest"), ("hbase", "hbase_latest"), ("hbase", "delta_latest")),
            "guarantee": ("at_least_once",),
            "partitions": (2,),
            "after": ("", "rebuilt"),
        },
        others=0.1,
        stories=(("produce", "ingest", "add partition", "produce", "ingest"),),
    ),
    # The same, and the register is lost then: the history says where the order changed.
    "lost registers": Theme(
        {
            "add partition": 8,
            "produce": 14,
            "ingest": 14,
            "replay": 4,
            "erase": 2,
            "cut": 8,
            "recreate": 2,
            "time": 4,
        },
        {
            "sinks": (("hbase",), ("hbase", "sums")),
            "guarantee": ("at_least_once",),
            "partitions": (2,),
            "most": (2, 3, 7, 100),
            "after": ("rebuilt",),
        },
        others=0.05,
        stories=(("produce", "ingest", "add partition", "produce", "ingest", "cut", "produce", "ingest"),),
        same=0.3,
    ),
    # A ledger that was restored finds tables that know more than it does, and logs that have lost what it would read again.
    "restored tables": Theme(
        {"back up": 6, "produce": 12, "ingest": 14, "replay": 6, "retain": 6, "cut": 3, "recreate": 2, "wake": 6},
        {
            "sinks": (
                ("hbase", "delta_latest"),
                ("delta_latest", "hbase"),
                ("hbase", "iceberg_latest"),
                ("hbase", "delta"),
            ),
            "guarantee": ("at_least_once",),
            "after": ("restored",),
            "out_of_range": ("earliest",),
        },
        {
            "ingest": (*after(DIES, *WRITING, *_SETTLING), *_early(DIES, 120), *_early(COMMITS, 3) * 8),
            "back up": (),
            "replay": (),
        },
        others=0.05,
        stories=(
            ("back up", "produce", "ingest", "retain"),
            ("back up", "produce", "ingest", "replay", "cut", "produce"),
            ("back up", "recreate", "produce", "ingest, unsure", "ingest", "recreate", "produce"),
        ),
    ),
    # Tables that are compacted, or that Iceberg keeps.
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
                one: (*after((DIES, SLEEPS), *WRITING, *_SETTLING), *_early((DIES, SLEEPS), 120))
                for one in ("ingest", "replay")
            },
            "erase": _early((DIES, SLEEPS), 120),
            "results": _early(SLEEPS, 60),
            "compact files": _early((DIES, SLEEPS), 160),
        },
        others=0.1,
        # A table is published when a window is settled: somebody compacts it just before.
        stories=(
            ("compact files, sleeps", "produce", "ingest, commits", "wake", "wake"),
            ("compact files, sleeps", "replay, commits", "wake", "wake"),
        ),
    ),
    # What somebody does while somebody else reads, whole.
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
    # What a ledger, a log and a broker may do besides, and what operators do to an ingest.
    "ledgers that move": Theme(
        {"move": 6, "ingest": 14, "produce": 10, "replay": 10, "erase": 6, "again": 6, "take over": 2, "wake": 14},
        {"guarantee": ("at_least_once", "at_least_once", "at_most_once"), "sinks": (("hbase",), ("hbase", "sums"))},
        {
            **{
                one: (*_early(SLEEPS, 60), *after(SLEEPS, *WRITING, *_SETTLING))
                for one in ("ingest", "replay", "erase", "again")
            },
            "move": _early((DIES, SLEEPS), 40),
        },
        others=0.3,
        stories=(
            ("produce", "ingest, sleeps", "move", "wake"),
            ("replay, sleeps", "move", "again", "wake"),
            ("replay, takes", "move", "again"),
            ("erase, sleeps", "move", "wake", "again"),
        ),
    ),
    "skips": Theme(
        {
            "skip": 10,
            "abandon": 8,
            "retain": 4,
            "produce": 12,
            "ingest": 14,
            "backfill": 8,
            "replay": 4,
            "page": 4,
            "again": 4,
            "wake": 8,
        },
        {"out_of_range": ("latest", "latest", "earliest"), "guarantee": ("at_least_once",), "most": (2, 3, 100)},
        {"ingest": (*_early((SLEEPS, DIES), 40), *after((SLEEPS, DIES), ProtocolStep.PINNED, *WRITING))},
        others=0.3,
    ),
    # Windows that are given up once and again, while others come to the partitions beside them.
    "abandoned": Theme(
        {"abandon": 14, "produce": 14, "ingest": 14, "erase": 4, "take over": 2, "time": 8, "wake": 8},
        {"guarantee": ("at_least_once",), "most": (2, 3, 7), "sinks": (("hbase",), ("hbase", "sums"))},
        {"ingest": (*after((SLEEPS, DIES), ProtocolStep.PINNED, *WRITING), Stop(SLEEPS, HALF_WRITTEN)), "abandon": ()},
        others=0.1,
        stories=(
            ("produce", "ingest, stores", "time", "abandon ingest", "ingest"),
            (
                "produce",
                "ingest, stores",
                "abandon ingest",
                "produce",
                "ingest, stores",
                "abandon ingest",
                "produce",
                "ingest",
            ),
            ("produce", "ingest, half writes", "abandon ingest", "ingest", "wake"),
        ),
        same=0.3,
    ),
    "new leaders": Theme(
        {
            "old ends": 10,
            "produce": 10,
            "ingest": 12,
            "replay since": 8,
            "erase key": 6,
            "replay": 6,
            "cut": 2,
            "audit": 2,
            "wake": 8,
        },
        {"guarantee": ("at_least_once",)},
        {"ingest": (*_early((SLEEPS, DIES), 40), *after((SLEEPS, DIES), ProtocolStep.PINNED, *WRITING))},
        others=0.3,
    ),
    # Sinks of files and messages.
    "folders": Theme(
        {"produce": 8, "ingest": 8, "replay": 8, "compact files": 6, "results": 3, "erase": 5, "again": 4, "wake": 8},
        {
            "sinks": (("hbase", "parquet"), ("parquet", "hbase"), ("hbase", "sums", "parquet")),
            "one_pass": (False, True),
        },
        others=0.3,
        stories=_OF_FOLDERS,
        many=6,
    ),
    "readers of folders": Theme(
        {"produce": 8, "ingest": 8, "replay": 8, "results": 3, "wake": 8},
        {"sinks": (("hbase", "parquet"), ("parquet", "hbase")), "one_pass": (False, True)},
        others=0.3,
        stories=_OF_READERS,
        many=6,
    ),
    "tables of Delta": Theme(
        {"produce": 8, "ingest": 8, "replay": 8, "erase": 5, "results": 3, "again": 4, "wake": 8},
        {"sinks": (("hbase", "delta"), ("delta", "hbase")), "one_pass": (False, True)},
        others=0.3,
        stories=_OF_TABLES,
        many=6,
    ),
    "messages": Theme(
        {"produce": 8, "ingest": 8, "replay": 8, "erase": 5, "results": 3, "again": 4, "wake": 8},
        {"sinks": (("hbase", "kafka"), ("hbase", "kafka", "parquet"))},
        others=0.3,
        stories=_OF_FOLDERS[1:11],
        many=6,
    ),
    "totals": _TOTALS,
    "totals of Delta": replace(
        _TOTALS, settings={**_TOTALS.settings, "sinks": (("lake_sums", "hbase"), ("hbase", "lake_sums"))}
    ),
    "totals of Iceberg": replace(
        _TOTALS, settings={**_TOTALS.settings, "sinks": (("ice_sums", "hbase"), ("hbase", "ice_sums"))}
    ),
}


def both(chance: random.Random, one: Theme, other: Theme) -> Theme:
    """Two themes at once: the steps, stops and stories of both. Where they say different things, chance decides."""
    either = chance.choice((one, other))
    names = {**one.settings, **other.settings}
    return Theme(
        {name: max(one.steps.get(name, 0), other.steps.get(name, 0)) for name in {**one.steps, **other.steps}},
        {name: _choices(chance, name, one, other) for name in names},
        {name: (*one.stops.get(name, ()), *other.stops.get(name, ())) for name in {**one.stops, **other.stops}},
        names=either.names,
        others=min(one.others, other.others),
        stories=(*one.stories, *other.stories),
        same=either.same,
        few=either.few,
        first=either.first,
        receipts=one.receipts and other.receipts,
        many=max(one.many, other.many),
    )


def _choices(chance: random.Random, name: str, one: Theme, other: Theme) -> tuple[Any, ...]:
    """What a setting is drawn from: what both allow, or else what one of them does. The sinks are those of both."""
    first, second = (theme.settings.get(name) for theme in (one, other))
    if first is None or second is None:
        return first or second or ()
    if name == "sinks":
        return (tuple(dict.fromkeys((*chance.choice(first), *chance.choice(second)))),)
    return tuple(value for value in first if value in second) or chance.choice((first, second))
