"""The contract of a type of dead letters' store: its settings, its reader, its writer with Spark, and what clears it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol

from pydantic import Field

from tidemark.clients.connections import Connections
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import SinkReceipt
from tidemark.offsets.authority import Authority
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.settings.parts import ConnectionName, Topic
from tidemark.sinks.contract import OwnedPlace, SinkAdmin, SinkSettings, StoreSettings, check_packages, type_of

if TYPE_CHECKING:
    from tidemark.offsets.coordinates import Coordinate
    from tidemark.sinks.stored_rows import Place, StoredRow

# Their name in receipts, and the name and the type of the place of their copies.
NAME = "dead_letters"
COPIES = "dead_letter_copies"


class DeadLetterSettings(StoreSettings):
    """The settings of a stream's dead letters. Each type of store derives its own settings from this class."""

    # What the page calls the server.
    server: ClassVar[str]

    max_redrives: Annotated[
        int,
        Field(
            ge=0,
            description="A [redrive](dead-letters.md#redrives) by reason leaves out a dead letter that has been redriven "
            "this often.",
        ),
    ] = 3

    copy_to_topic: Topic | None = Field(
        default=None,
        description="A topic for a [copy](dead-letters.md#a-copy-in-a-topic) of each dead letter that counts.",
    )
    copy_kafka: ConnectionName = Field(default="kafka_default", description="The connection of that topic.")

    @classmethod
    def receipts(cls) -> str:
        """The type of their places in receipts: a place of dead letters is cleared in another way than one of a sink."""
        return f"{type_of(cls)}_dead_letters"

    @property
    @abstractmethod
    def most_bytes(self) -> int:
        """The most bytes of one part of a message. What is larger is left out, and the dead letter's `detail` says so."""

    @abstractmethod
    def place(self, connections: Connections) -> dict[str, str]:
        """Where the dead letters are, as receipts say it, without an attempt's own folder."""

    @property
    def database(self) -> str | None:
        """The connection of the database that they are in; None for another server."""
        return None

    @property
    def database_tables(self) -> frozenset[str]:
        """The tables there."""
        return frozenset()

    @property
    def sink(self) -> SinkSettings | None:
        """A sink of the same files, whose folder is looked at as that of any sink; None for a store that keeps no files."""
        return None

    def copies(self) -> SinkReceipt | None:
        """The topic of the copies as a place, to be noted before the first of them; None where there are none."""
        if self.copy_to_topic is None:
            return None
        place = {"connection": self.copy_kafka, "topics": self.copy_to_topic}
        return SinkReceipt(name=COPIES, type=COPIES, place=place)

    def copied(self) -> Iterable[OwnedPlace]:
        """The topic of the copies, which no sink may have: nobody could tell its messages from copies."""
        if self.copy_to_topic is not None:
            said = f"topic {self.copy_to_topic!r}"
            yield OwnedPlace(("topic", self.copy_kafka, self.copy_to_topic), f"{said} is named for two purposes", said)

    def receipt(self, connections: Connections, **more: str) -> SinkReceipt:
        return SinkReceipt(name=NAME, type=self.receipts(), place={**self.place(connections), **more})


class DeadLetters(Protocol):
    """The dead letters of a stream, to read from without Spark. It is pickled for Spark's workers."""

    def only(self, fields: Iterable[str]) -> DeadLetters:
        """The same for readers of these fields alone."""
        ...

    def owner(self) -> Mapping[str, Any]:
        """The stream and the ledger that the store was made for; empty while nobody has prepared it."""
        ...

    def rows(self, authority: Authority, wanted: OffsetRange) -> Iterator[tuple[Place, StoredRow | None]]:
        """Every place in a range with a row, in the order of the offsets, with the row that counts there.

        None where there is only debris. A store may leave such places out. One that nobody has prepared has no rows.
        """
        ...

    def rows_at(self, at: Coordinate, generation: int) -> list[StoredRow]:
        """The rows of one message that carry a generation."""
        wanted = at.as_range()
        rows = self.rows(Authority([(generation, RangeSet([wanted]))]), wanted)
        return [row for _, row in rows if row is not None]


@dataclass(frozen=True)
class DeadLettersType:
    """A type of store, each part as `module:name`, imported when needed.

    `store` is a function of a place, as receipts name it, Ledger and Connections that returns a DeadLetters. `admin` is the
    SinkAdmin that sweeps and erases places. `spark` is a class made of settings, DeadLetters and Connections: see
    `tidemark.spark.sinks.dead_letters.Writer`. `requires` is what pip is given for the packages that only this type needs.
    `refused` says why a package's type cannot be used. `publishes`: as of `tidemark.sinks.contract.SinkType`.
    """

    settings: type[DeadLetterSettings]
    store: str
    admin: str
    spark: str
    requires: tuple[str, ...] = ()
    refused: str = ""
    publishes: bool = False

    def opened(self, place: Mapping[str, str], ledger: Ledger, connections: Connections) -> DeadLetters:
        """The dead letters in a place. Opening them asks no server."""
        self.check_packages()
        return resolve_name(self.store)(place, ledger, connections)  # type: ignore[no-any-return]

    def check_packages(self) -> None:
        """Look for the packages that this store needs, and import none. Raises PackageMissing."""
        check_packages(self.requires, f"a store of dead letters of type {type_of(self.settings)}")

    def make_admin(self) -> SinkAdmin:
        return resolve_name(self.admin)()  # type: ignore[no-any-return]

    def make_spark(self, settings: DeadLetterSettings, letters: DeadLetters, connections: Connections) -> Any:
        return resolve_name(self.spark)(settings, letters, connections)
