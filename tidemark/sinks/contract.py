"""The contract of a type of sink without Spark: its settings, its sweep, and its reader."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, get_args, runtime_checkable
from urllib.parse import urlsplit

from tidemark.clients.connections import Connections
from tidemark.errors import PackageMissing, WrongUse, install
from tidemark.ledger.ledger import CommittedSnapshot, Ledger
from tidemark.ledger.records import Record
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.schemes.kinds import Fields
from tidemark.settings.parts import Name, Part
from tidemark.types.fields import is_nested
from tidemark.types.renamed_fields import Names

if TYPE_CHECKING:
    from tidemark.ledger.lookup import CoveringWindows
    from tidemark.sinks.stored_rows import StoredRow

T = TypeVar("T")


@dataclass(frozen=True)
class SettingsContext:
    """The parts of the stream file that a sink's settings have to fit.

    `reads` says whether the stream reads a topic over a connection.
    """

    fields: Fields
    guarantee: str
    reads: Callable[[str, str], bool]

    def no_key(self, sink: str, names: Iterable[str]) -> str | None:
        """Why one of these fields can be no key: an array, map or struct has several texts."""
        for name in names:
            if is_nested(self.fields[name]):
                return f"sink {sink}: {name} is of type {self.fields[name]}, and a key has a flat type"
        return None


@dataclass(frozen=True)
class OwnedPlace:
    """A place that no other sink may write to, nor to what is around it or within it.

    `place` is a path: what begins with all of it lies within it. What of a name does not count, such as its case, is left out.
    `problem` is the error for a second sink of the stream that names it, `said` its name as the stream file has it.
    """

    place: tuple[str, ...]
    problem: str
    said: str = ""


def owned_table(table: str) -> OwnedPlace:
    """A table of HBase."""
    return OwnedPlace(("table", table), f"table {table!r} is named for two purposes", f"table {table!r}")


class StoreSettings(Part):
    """The settings of a store that a stream writes to."""

    type: str

    @property
    @abstractmethod
    def connection(self) -> str:
        """The connection that the store uses."""

    @property
    def file_system(self) -> str | None:
        """The connection with the settings of the file system that Spark writes to, if the store is files."""
        return None

    @property
    def own_folder(self) -> str | None:
        """The folder below that connection's path that is the store's own."""
        return None

    @property
    def other_connections(self) -> frozenset[str]:
        """Further connections that it uses, such as that of a catalog."""
        return frozenset()

    def owned(self) -> Iterable[OwnedPlace]:
        """The places that no other store of the stream may have."""
        return ()


class SinkSettings(StoreSettings):
    """The settings of one sink in a stream file. Each type of sink derives its own settings from this class."""

    name: Name

    @property
    def needs_avro(self) -> bool:
        """Whether Spark needs its Avro package for the sink."""
        return False

    def problem_with(self, others: SettingsContext) -> str | None:
        """Why the settings do not fit the rest of the stream file, in words that name the sink."""
        return None


class SinkContext(Protocol):
    """The parts of an open stream that a sink needs."""

    @property
    def ledger(self) -> Ledger: ...

    @property
    def connections(self) -> Connections: ...

    @property
    def fields(self) -> Fields: ...

    @property
    def was(self) -> Names: ...


@dataclass(frozen=True)
class Erasing:
    """The offsets that a committed window has erased, for a place that attempts have written to.

    `standing` says which windows counted there before, and which attempts may still commit.
    """

    record: Record
    erased: RangeSet
    standing: CommittedSnapshot

    @property
    def generation(self) -> int:
        return self.record.attempt.generation


def gone_of_dead(done: Iterable[Erasing], generation: int) -> RangeSet:
    """The offsets that erasures have taken of an attempt of which nothing counts any more; empty of one that may count."""
    return RangeSet(part for one in done if one.standing.is_dead(generation, one.generation) for part in one.erased)


class SinkAdmin:
    """The work without Spark on one type of sink. A sink overrides what it needs."""

    def sweep(self, connections: Connections, place: Mapping[str, str], record: Record, covers: RangeSet) -> None:
        """Remove what older attempts have left at the offsets that a committed window covers.

        `place` comes from the window's receipt, because today's stream file may name another place.
        By default nothing is removed: readers leave out rows that do not count.
        """

    def reach(self, connections: Connections, place: Mapping[str, str], standing: CommittedSnapshot) -> None:
        """Ask the server of a place whether `erase` will find it; before an erasure is committed. Raises what `erase` would.

        After the commit, no run goes on until all places are cleared. A table that its server knows to be gone holds nothing.
        `standing` says which windows have named the place. By default nothing is asked.
        """

    def publish(self, ledger: Ledger, connections: Connections, place: Mapping[str, str], record: Record) -> None:
        """Let readers who know nothing of the ledger see a committed window, as its receipt's `place` has it. Repeatable.

        Called if the Kind says `publishes`, after `sweep`, and until it has come to its end: no run goes on before. A window is
        published before a later one that covers its offsets is pinned. By default they see what attempts write.
        """

    def check_unused(self, opened: SinkContext, settings: Any) -> None:
        """Raises LedgerContradiction where a stream that is about to begin has written to the sink's place before.

        Its ledger was lost then, or a connection leads to another one. By default nothing is looked at: most places carry the
        mark of their stream and its ledger.
        """

    def owner(self, connections: Connections, place: Mapping[str, str], stream: str) -> Mapping[str, str]:
        """The mark of a place: its stream, and that stream's ledger. Empty without one, as for a type that makes no marks.

        `stream`: the one that asks. A place may have a mark for each of several streams.
        """
        return {}

    # Whether the owner is looked at once more before a window is settled: for places where that costs little beside the rest.
    owner_asked: ClassVar[bool] = False

    def take_over(self, connections: Connections, place: Mapping[str, str], stream: str, ledger: str) -> None:
        """Write another ledger of its stream into the mark of a place. See `owners.check_owner`."""

    def shown(self, ledger: Ledger, connections: Connections, place: Mapping[str, str]) -> Iterable[tuple[str, int]]:
        """The newest windows that a place says it has shown for this ledger: their lanes and generations.

        A window is shown after its commit. So a ledger that does not know it has gone back. By default a place says nothing.
        """
        return ()

    # What a person still has to do, or to know, after an erasure. Empty: the sink holds nothing of it any more.
    left_by_erasing: ClassVar[str] = "this type of sink does not say whether it removes what is erased"

    # Whether its rows have versions by the order of a topic's messages, as `Epochs` says it. Only the ledger knows that order.
    versions_by_order: ClassVar[bool] = False

    def erase(self, connections: Connections, place: Mapping[str, str], erasing: Erasing) -> None:
        """Remove what attempts have written of offsets that a committed window has erased. Repeatable.

        `place` is any place of this type that an attempt of the stream may have written to, whatever its offsets. By default
        this is the sweep.
        """
        self.sweep(connections, place, erasing.record, erasing.erased)

    def remains(self, opened: SinkContext, sink: str, erased: RangeSet) -> str:
        """The remains of erased offsets in the sink of this name, for people; empty for none."""
        return self.left_by_erasing

    def late(self, connections: Connections, place: Mapping[str, str], done: Sequence[Erasing]) -> int:
        """How many rows, cells or files `erase` would find there now: erasures are done, and what it finds came later.

        `done`: of one moment, at offsets that no two of them share. A place is looked through once for all of them.

        An attempt looks at its fence between two writes. One that was paused writes once more when it wakes, and removes that
        itself, unless it is killed first. By default none is looked for.
        """
        return 0

    def place(self, opened: SinkContext, settings: Any, lane: str, seq: int, generation: int) -> dict[str, str]:
        """Where an attempt has written, as the sink's receipt of it said."""
        return {}

    # Whether an attempt makes a folder of its own even where it has no row to write.
    always_makes_folder: ClassVar[bool] = False
    # Whether the folder of a published attempt may be gone: the table has what counts of it.
    folder_may_go: ClassVar[bool] = False

    def data_sets(self, connections: Connections, place: Mapping[str, str]) -> Iterable[tuple[str, str]]:
        """Where a place of a receipt is, as OpenLineage names data sets: pairs of a namespace and a name.

        By default its folder: `location`, of a table that is made of what windows write elsewhere, or `base`.
        """
        if folder := place.get("location", place.get("base")):
            address = urlsplit(folder)
            yield f"{address.scheme}://{address.netloc}" if address.netloc else address.scheme or "file", address.path

    # Whether looking for one message asks only the servers that the ledger or the dead letters are in, and reads little.
    looks_quickly: ClassVar[bool] = False
    # Whether the rows of `rows_at` have the fields of the stream.
    keeps_fields: ClassVar[bool] = True
    # Whether the sink has `rows_within`.
    rows_by_coordinate: ClassVar[bool] = False

    def check_fields(self, opened: SinkContext, settings: Any) -> None:
        """Raises WrongUse where the sink's place has a field of the stream in a type that cannot become the stream file's.

        For `tidemark streams check --against-ledger`. By default a sink has no types of its own.
        """

    def rows_at(self, opened: SinkContext, settings: Any, at: Coordinate, record: Record) -> list[StoredRow] | str:
        """The rows of one message that count, for `tidemark show`; or, in a sentence, why they are not said.

        `record` is the committed window that counts at the coordinate in this sink. Raises TidemarkError, OSError.
        """
        return f"a sink of type {settings.type} is not searched for one message"

    def under_key(
        self, opened: SinkContext, settings: Any, row: StoredRow, windows: CoveringWindows
    ) -> KeyedRowFound | None:
        """The row of a sink by key under the key of a message's `row`, which another sink has; None for other layouts.

        `windows` has the windows that cover the message. Raises TidemarkError.
        """
        return None

    def rows(self, opened: SinkContext, settings: Any, limit: int) -> Iterator[dict[str, Any]]:
        """The rows that count, for `tidemark results`, ready for JSON. The caller takes at most `limit`."""
        raise WrongUse(f"a sink of type {settings.type} has no reader without Spark")

    def rows_within(
        self,
        opened: SinkContext,
        settings: Any,
        within: OffsetRange,
        take: Callable[[Iterator[dict[str, Any]]], T],
    ) -> T:
        """The result of `take` for the rows that count at some offsets, as `rows` gives them, in any order.

        Of what `take` leaves, little is read. It is called again where files were replaced meanwhile. Raises TidemarkError.
        """
        raise WrongUse(f"the rows of a sink of type {settings.type} are not found by offsets")

    def in_columns(self, settings: Any, fields: Sequence[str], rows: Sequence[dict[str, Any]]) -> Columns:
        """The same rows as a table for the terminal."""
        return in_columns(fields, rows)


@runtime_checkable
class SupportsMounts(Protocol):
    """The part of an admin whose sink writes files: whether they are where they were, or an empty mount point is there.

    Of a sink of files without it, the mark of Tidemark in its folder is looked at.
    """

    def folder_mark(self, connections: Connections, settings: Any) -> str | None:
        """What tells the sink's folder from one that is made in its place; None for one that nobody has prepared."""
        ...

    def check_mounted(self, connections: Connections, settings: Any, records: Callable[[], Iterable[Record]]) -> None:
        """Raises Unreachable for a folder or table without its mark, although one of the committed `records` named it."""
        ...


@dataclass(frozen=True)
class KeyedRowFound:
    """The row that a sink holds under a key. `said`: whose it is, in words. Fields that are null are absent."""

    key: Mapping[str, bytes | None]
    said: str
    fields: Mapping[str, bytes]


@dataclass(frozen=True)
class Columns:
    names: Sequence[str]
    rows: Sequence[Sequence[Any]]


def in_columns(fields: Sequence[str], rows: Sequence[dict[str, Any]]) -> Columns:
    """Rows with their coordinate and their fields."""
    return Columns(
        ("coordinate", *fields), [[row["coordinate"], *(row["fields"].get(name) for name in fields)] for row in rows]
    )


@dataclass(frozen=True)
class CompactionRequest:
    """The windows to compact: those committed `before` a time (milliseconds since 1970), at most this many `windows`.

    `again`: also windows that a compaction has taken already.
    """

    before: int | None = None
    windows: int | None = None
    again: bool = False


@dataclass(frozen=True)
class Replaceable:
    """Folders that a compaction would merge into one, and the names of the windows whose rows they hold."""

    windows: list[str]
    folders: int
    files: int
    bytes: int


@dataclass(frozen=True)
class Replacement:
    """A folder into which a compaction has merged the folders of some windows."""

    windows: list[str]
    rows: int
    folder: str


class Compaction(Protocol):
    """The description of a type of sink's compaction. `tidemark.spark.sinks.contract.CompactingSink` does the work."""

    def planned(self, opened: SinkContext, settings: Any, asked: CompactionRequest) -> Sequence[Replaceable]:
        """The folders or files that a compaction would take now. This call changes nothing."""
        ...

    def at_work(self, opened: SinkContext, settings: Any) -> str | None:
        """The run that is compacting the sink, or that died before it was done."""
        ...

    def made(self, opened: SinkContext, settings: Any, run: str) -> Sequence[Replacement]:
        """The folders that a run has made."""
        ...


@dataclass(frozen=True)
class SinkType:
    """A type of sink: the class of its settings, and its other classes as `module:Class`, imported when needed.

    `admin` names a SinkAdmin, `spark` a `tidemark.spark.sinks.contract.SparkSink`. `refused` says why a package's type
    cannot be used. `compaction` names a Compaction if `tidemark compact` takes sinks of this type. `requires` is what pip
    is given for the packages that only sinks of this type need. `publishes`: others see a window once `SinkAdmin.publish` was
    called for it. `workers` names the modules that its Python workers run: a warm engine loads them before it forks workers.
    """

    settings: type[SinkSettings]
    admin: str
    spark: str
    refused: str = ""
    compaction: str = ""
    requires: tuple[str, ...] = ()
    publishes: bool = False
    workers: tuple[str, ...] = ()

    def make_admin(self) -> SinkAdmin:
        return self._made(self.admin)  # type: ignore[no-any-return]

    def make_compaction(self) -> Compaction:
        return self._made(self.compaction)  # type: ignore[no-any-return]

    def make_spark(self) -> Any:
        return self._made(self.spark)

    def _made(self, name: str) -> Any:
        self.check_packages()
        return resolve_name(name)()

    def check_packages(self) -> None:
        """Look for the packages that these sinks need, and import none. Raises PackageMissing."""
        check_packages(self.requires, f"a sink of type {type_of(self.settings)}")


def type_of(settings: type[StoreSettings]) -> str:
    """The type of a store, as stream files name it."""
    return str(get_args(settings.model_fields["type"].annotation)[0])


def check_packages(requires: Iterable[str], who: str) -> None:
    """Raises PackageMissing for what pip is given for a package that is not here."""
    for requirement in requires:
        package = requirement.partition(">")[0].partition("=")[0]
        if find_spec(package) is None:
            raise PackageMissing(f"{who} needs the package {package}: {install(requirement)}")
