"""The parts of a type of ledger: its settings, and how its store is opened."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import ClassVar, Protocol, runtime_checkable

from tidemark.clients.connections import Connections
from tidemark.ledger.stores.contract import Leaders, LedgerStore
from tidemark.settings.parts import Part


@dataclass(frozen=True)
class RequestTimeouts:
    """How long one request to a server may take, and for how long a failed request is retried."""

    question_seconds: float
    patience_seconds: float


class LedgerSettings(Part):
    """The settings of a ledger in a stream file. Each type of ledger derives its own settings from this class."""

    type: str

    # The server's name on the pages.
    server: ClassVar[str] = "the ledger"

    @property
    @abstractmethod
    def connection(self) -> str:
        """The connection that the ledger uses."""

    @property
    def database(self) -> str | None:
        """The connection of the database that the ledger is in; None for another server."""
        return None

    @property
    def database_tables(self) -> frozenset[str]:
        """The tables there."""
        return frozenset()

    def tables(self) -> Iterable[str]:
        """The tables of HBase that no sink of the stream may write to."""
        return ()


@runtime_checkable
class SupportsLeaders(Protocol):
    """A store whose layouts for other tools name the leader of each partition."""

    def name_leaders(self, leaders: Callable[[Iterable[str]], Leaders]) -> None:
        """Take the function that gives the leaders of some topics' partitions. It asks Kafka, and raises TidemarkError."""
        ...


@runtime_checkable
class SupportsStreamList(Protocol):
    """A store that knows the other streams of its ledger: what these have erased, readers of this stream do not show."""

    def streams(self) -> list[str]:
        """The names of all streams that have values in the ledger, this one included. Raises Unreachable."""
        ...

    def of_stream(self, name: str) -> LedgerStore:
        """The store of another stream, to read from. Opening it asks no server."""
        ...


@dataclass(frozen=True)
class LedgerType:
    """A type of ledger: its settings class, and the `module:function` that opens its store, imported when needed.

    The function takes settings, the stream's name, Connections, and Waits. Without Waits, the store waits as suits a job.
    """

    settings: type[LedgerSettings]
    store: str

    def opened(
        self, settings: LedgerSettings, stream: str, connections: Connections, waits: RequestTimeouts | None
    ) -> LedgerStore:
        return resolve_name(self.store)(settings, stream, connections, waits)  # type: ignore[no-any-return]
