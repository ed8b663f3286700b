"""What gives the same answer for the same question is asked once in a program: most of what the product does is read again.

A planted bug changes what a function does, and no answer is kept from one program to the next.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from tidemark.ledger import codec, ledger, records
from tidemark.ledger.ledger import Committed, Ledger, LedgerSnapshot, StoredHead
from tidemark.ledger.records import Window
from tidemark.ledger.stores.contract import LedgerStore
from tidemark.offsets.ranges import RangeSet

_decoded: dict[type, _Decoder] = {}
# By the identity of a window, which is kept, so that no other one gets it: with its selection, and what it covers.
_covered: dict[int, tuple[Window, RangeSet | None, RangeSet]] = {}


class _Decoder:
    """The decoder of a type, which gives one value for the same bytes. Values never change."""

    def __init__(self, decode: Callable[[bytes], Any]) -> None:
        self._decode = decode
        self.known: dict[bytes, Any] = {}

    def decode(self, stored: bytes) -> Any:
        found = self.known.get(stored)
        if found is None:
            found = self.known[stored] = self._decode(stored)
        return found


_really_decoder, _really_covers = codec.decoder, records.covers


def _decoder(kind: type[Any]) -> Any:
    found = _decoded.get(kind)
    if found is None:
        found = _decoded[kind] = _Decoder(_really_decoder(kind).decode)
    return found


def _covers(window: Window, selection: RangeSet | None) -> RangeSet:
    known = _covered.get(id(window))
    if known is not None and known[1] == selection:
        return known[2]
    found = _really_covers(window, selection)
    _covered[id(window)] = window, selection, found
    return found


def forget() -> None:
    """A new program begins."""
    for one in _decoded.values():
        one.known.clear()
    _covered.clear()


@contextmanager
def remembered() -> Iterator[None]:
    """While the block runs, the product decodes the same bytes once. A world makes many small values, and one thread."""
    with ExitStack() as stack:
        stack.callback(gc.set_threshold, *gc.get_threshold())
        gc.set_threshold(50_000, 20, 100)
        stack.callback(pa.set_cpu_count, pa.cpu_count())
        pa.set_cpu_count(1)
        stack.enter_context(patch.object(codec, "decoder", _decoder))
        stack.enter_context(patch.object(ledger, "covers", _covers))
        yield


class Steady(Ledger):
    """The oracle's look at the ledger, which is no effect. `state` is another one after each change: it reads each once."""

    def __init__(self, store: LedgerStore, stream: str, state: Callable[[], int]) -> None:
        super().__init__(store, stream)
        self._state = state
        self._of_state = -1
        self._windows: list[Committed] | None = None
        self._views: dict[tuple[str | None, bool], LedgerSnapshot] = {}

    def _look(self) -> None:
        if (now := self._state()) != self._of_state:
            self._of_state, self._windows, self._views = now, None, {}

    def _committed(self, heads: Mapping[str, StoredHead]) -> list[Committed]:
        self._look()
        if self._windows is None:
            self._windows = super()._committed(heads)
        return [*self._windows]

    def view(self, sink: str | None = None, *, closed: bool = False) -> LedgerSnapshot:
        self._look()
        if (sink, closed) not in self._views:
            self._views[sink, closed] = super().view(sink, closed=closed)
        return self._views[sink, closed]

    def changed_since(self, view: LedgerSnapshot) -> bool:
        self._look()
        return not any(view is one for one in self._views.values()) and super().changed_since(view)
