"""What the error of a failed attempt says of the ledger: only what the attempt has left there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.protocol_world import NoWork, hold
from tests.support.streams_in_memory import TEXT, StreamInMemory
from tidemark.commit import protocol
from tidemark.commit.protocol import Fence, HeldWindow
from tidemark.errors import StaleLedger, TidemarkError, VerificationFailed
from tidemark.ledger.records import INGEST, Receipt
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.processing import process_windows
from tidemark.runs.windows import ingest

NOTHING = "Nothing was committed"


@dataclass
class _Fails(NoWork):
    """Rows are lost on their way."""

    progress: Any = field(default_factory=lambda: SimpleNamespace(step=""))

    def verify(self) -> Receipt:
        raise VerificationFailed("a row is missing.")

    def close(self) -> None: ...


@dataclass
class _Ready:
    """`meanwhile`: what others do before an attempt takes its window."""

    opened: OpenStream
    meanwhile: Callable[[], object] = lambda: None
    lane: str = INGEST

    def work(self, *_: object, **__: object) -> Any:
        self.meanwhile()
        return _Fails()

    def hold(self, _: object, taken: HeldWindow) -> AbstractContextManager[Fence]:
        return hold(taken)

    def translate(self, problem: Exception) -> TidemarkError | None:
        return problem if isinstance(problem, TidemarkError) else None


def pinned(folder: Path, text: str = TEXT) -> OpenStream:
    made = StreamInMemory(folder, text=text)
    made.ends((0, 10))
    assert ingest.plan_ingest(made.opened, "run 1") is not None
    return made.opened


def test_a_window_that_stays_pinned_is_said_to(tmp_path: Path) -> None:
    with pytest.raises(VerificationFailed, match=r"^a row is missing\. Nothing was committed: the window stays pinned"):
        process_windows(_Ready(pinned(tmp_path)), 1, "run 1")


def test_one_that_was_committed_before_it_was_read_is_said_to_be(tmp_path: Path) -> None:
    opened = pinned(tmp_path, f"{TEXT}guarantee: at_most_once\n")
    with pytest.raises(
        VerificationFailed, match=r"^a row is missing\. The window was committed before it was read"
    ) as caught:
        process_windows(_Ready(opened), 1, "run 1")
    assert NOTHING not in str(caught.value)
    assert [one.record.receipt for one in opened.ledger.committed()] == [None]


def test_nothing_is_said_of_a_window_that_others_gave_up(tmp_path: Path) -> None:
    """It was never taken, and is not pinned any more."""
    opened = pinned(tmp_path)
    ready = _Ready(opened, lambda: protocol.abandon(opened.ledger, INGEST, "not needed"))
    with pytest.raises(StaleLedger, match="no longer pending") as caught:
        process_windows(ready, 1, "run 1")
    assert NOTHING not in str(caught.value)
