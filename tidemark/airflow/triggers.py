"""Triggers: what looks at a stream in Airflow's triggerer, so that waiting for it holds no worker slot.

Those of sensors end with what they waited for. `BehindTrigger` is for an AssetWatcher, and goes on for ever.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, BaseTrigger, TriggerEvent

from tidemark.airflow.waiting import Sign, behind, complete, windows_there
from tidemark.errors import TidemarkError, WrongUse

if TYPE_CHECKING:
    from tidemark.runs.live.open_stream import OpenStream

_MINUTE = 60.0


class _WaitsForStream(BaseTrigger):
    """Looks at a stream again and again, until what it waits for is there: then its event is `{}`.

    With an error, its event is `{"error": text, "retried": whether a later try may mend it}`.
    """

    def __init__(self, stream_file: str, poke_interval: float = _MINUTE, **asked: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.stream_file, self.poke_interval, self.asked = stream_file, poke_interval, asked

    def serialize(self) -> tuple[str, dict[str, Any]]:
        kwargs = {"stream_file": self.stream_file, "poke_interval": self.poke_interval, **self.asked}
        return f"{type(self).__module__}.{type(self).__qualname__}", kwargs

    async def run(self) -> AsyncIterator[TriggerEvent]:
        while True:
            try:
                # A server that stands still holds a thread, and never the triggerer's loop.
                there, said = await asyncio.to_thread(self._look)
            except TidemarkError as problem:
                yield TriggerEvent({"error": f"{type(problem).__name__}: {problem}", "retried": problem.retriable})  # type: ignore[no-untyped-call]
                return
            self.log.info("%s", said)
            if there:
                yield TriggerEvent({})  # type: ignore[no-untyped-call]
                return
            await asyncio.sleep(self.poke_interval)

    def _look(self) -> tuple[bool, str]:
        from tidemark.airflow.connections import open_here

        return self._is_there(open_here(self.stream_file))

    def _is_there(self, opened: OpenStream) -> tuple[bool, str]:
        raise NotImplementedError


class WindowsTrigger(_WaitsForStream):
    """Waits until committed windows have read all of `ranges`."""

    def _is_there(self, opened: OpenStream) -> tuple[bool, str]:
        return windows_there(opened, self.asked["ranges"])


class CompleteTrigger(_WaitsForStream):
    """Waits until the event time from `since` to `until` is complete."""

    def _is_there(self, opened: OpenStream) -> tuple[bool, str]:
        return complete(opened, self.asked["since"], self.asked["until"])


@dataclass
class NewSign:
    """Whether a sign is a new one. After one has been given, the next is due when an ingest has committed since, or later."""

    again_seconds: float
    committed: int | None = None
    at: float | None = None

    def is_new(self, sign: Sign, now: float) -> bool:
        """`now` is in seconds. Remembers a sign that is new."""
        if self.at is not None and sign.committed == self.committed and now < self.at + self.again_seconds:
            return False
        self.committed, self.at = sign.committed, now
        return True


class BehindTrigger(BaseEventTrigger):
    """For an AssetWatcher: an event when a stream is behind, by messages or by the age of its oldest unread message.

    :param stream_file: the stream's file, as an absolute path.
    :param messages: this many unread messages are too many; None for any number.
    :param seconds: an unread message of this age is too old; None for any age.
    :param poke_interval: how often it looks, in seconds.
    :param again_seconds: an ingest that has not committed meanwhile is asked for again after so long.
    """

    def __init__(
        self,
        stream_file: str | Path,
        *,
        messages: int | None = None,
        seconds: float | None = None,
        poke_interval: float = _MINUTE,
        again_seconds: float = 15 * _MINUTE,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        if messages is None and seconds is None:
            raise WrongUse("BehindTrigger: say how far behind is too far: messages, seconds, or both")
        for name, given in (("messages", messages), ("seconds", seconds)):
            if given is not None and given < 1:
                raise WrongUse(f"BehindTrigger: {name} is {given}; it is at least 1")
        self.stream_file = str(stream_file)
        self.messages, self.seconds = messages, seconds
        self.poke_interval, self.again_seconds = poke_interval, again_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = ("stream_file", "messages", "seconds", "poke_interval", "again_seconds")
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        passed = NewSign(self.again_seconds)
        while True:
            try:
                sign = await asyncio.to_thread(self._look)
            except Exception as problem:  # Airflow would not start it again, and what is wrong may be mended meanwhile
                self.log.warning("%s: %s", type(problem).__name__, problem)
                sign = None
            if sign is not None and passed.is_new(sign, time.monotonic()):
                self.log.info("%s", sign.said)
                yield TriggerEvent({"stream": sign.stream, "said": sign.said})  # type: ignore[no-untyped-call]
            await asyncio.sleep(self.poke_interval)

    def _look(self) -> Sign | None:
        from tidemark.airflow.connections import open_here

        return behind(open_here(self.stream_file), self.messages, self.seconds)
