"""Crashes after a step of the commit protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.live_streams import LiveStream
from tidemark.commit.protocol import Step
from tidemark.ledger.records import Record


class Cut(BaseException):
    """A crash."""


def cut_after(step: Step, times: int = 1) -> Callable[[Step], None]:
    """A listener that crashes after the `times`-th time of a step."""
    left = times

    def listen(done: Step) -> None:
        nonlocal left
        left -= done == step
        if left == 0:
            raise Cut

    return listen


def cuts(stored: int) -> list[Any]:
    """Steps with the number of times until a crash: after rows were stored once, and in a full run also later ones."""
    more = [(Step.SINK_STORED, stored), (Step.VERIFIED, 1), (Step.COMMITTED, 1)]
    return [(Step.SINK_STORED, 1), *(pytest.param(*one, marks=pytest.mark.full) for one in more)]


def crash(live: LiveStream, run: str, **how: Any) -> None:
    with pytest.raises(Cut):
        live.ingest(run, **how)


def read_by(records: list[Record]) -> int:
    return sum(tally.read.number for record in records for tally in record.tallies)
