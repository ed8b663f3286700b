"""The message that a user's Python function (the scheme `function`) sees, what it returns, and what it raises.

    from tidemark import Message, PermanentFailure

    def order(message: Message) -> dict[str, object] | None: ...

A mapping of the fields is one row, and a list of mappings is many rows. None or an empty list skips the message.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidemark.errors import WrongUse

# Parts of a module's name, a colon, and the function's name.
FUNCTION_NAME = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*$"


@dataclass(frozen=True, slots=True)
class Message:
    """A message of Kafka. A value of None is a tombstone.

    `headers` keep their order, and names may repeat. `timestamp` has its zone (UTC), and is None where Kafka has no
    timestamp. `timestamp_type` is CreateTime or LogAppendTime.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: datetime | None = None
    timestamp_type: str | None = None
    # Rises when the topic was recreated, and offsets began at 0 again.
    incarnation: int = 1


Row = Mapping[str, object]
Function = Callable[[Message], Row | Iterable[Row] | None]


class PermanentFailure(Exception):
    """A user's function raises this when a retry cannot help. The message becomes a dead letter at once."""


class TimedOut(Exception):
    """The failure of a message whose call took longer than `retry.timeout_ms`."""


class ProcessEnded(Exception):
    """The failure of a message whose call ended its process, or whose process the system ended meanwhile."""


_OF_THE_JOB = "of the Spark job: beside the job's script, in PYTHONPATH, or installed"


def load_function(key: str, name: str, path: str = _OF_THE_JOB) -> Callable[..., Any]:
    """The function `module:name` that a stream file names under `key`. Raises WrongUse when Python finds none.

    `path` is whose Python path the error names.
    """
    module, _, attribute = name.partition(":")
    try:
        function = getattr(importlib.import_module(module), attribute, None)
    except Exception as problem:
        # Whatever the module raises at its import, it is not Tidemark's error.
        raise WrongUse(
            f"{key}: the module {module} cannot be imported ({type(problem).__name__}: {problem}). It has to be on the Python "
            f"path {path}"
        ) from problem
    if not callable(function):
        raise WrongUse(f"{key}: the module {module} has no function {attribute}")
    return function  # type: ignore[no-any-return]


def list_rows(result: Any) -> list[Any]:
    """A function's result as a list of rows, not yet checked. An exception of a generator is raised here."""
    if result is None:
        return []
    if isinstance(result, Mapping | str | bytes) or not isinstance(result, Iterable):
        return [result]
    return list(result)
