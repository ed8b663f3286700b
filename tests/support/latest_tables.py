"""A stream whose ledger is in memory, with a real table of newest rows: its work writes the files that Spark would write.

Beside it, a small model says what the table has to show.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from deltalake import DeltaTable
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table

from tests.support.claiming import claim_lane
from tests.support.hbase_in_memory import CLUSTERS
from tests.support.memory import MemoryStore
from tests.support.protocol_world import hold
from tests.support.streams_in_memory import StreamInMemory, at
from tidemark.clients.connections import Connection
from tidemark.commit import protocol
from tidemark.commit.protocol import Fence, Listener, Run, Step
from tidemark.ledger.ledger import Ledger, now_ms
from tidemark.ledger.ordering import Epochs
from tidemark.ledger.records import INGEST, Attempt, LaneKind, Receipt, Record, SinkReceipt, Window
from tidemark.ledger.recovery import backup as backups
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.offsets.tallies import Count, PartitionTally
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.windows import ingest as ingests
from tidemark.runs.windows import lanes
from tidemark.schemes.kinds import Fields
from tidemark.sinks.aggregates import fold as totals_fold
from tidemark.sinks.aggregates.settings import AggregatesSettings
from tidemark.sinks.aggregates.sink import LakeTotalsAdmin
from tidemark.sinks.contract import CompactionRequest, Replaceable
from tidemark.sinks.delta.aggregates.compacting import DeltaAggregatesCompaction
from tidemark.sinks.delta.aggregates.sink import DeltaAggregatesAdmin
from tidemark.sinks.delta.aggregates.table import prepare as prepare_delta_totals
from tidemark.sinks.delta.latest import table as delta_latest
from tidemark.sinks.delta.latest.compacting import DeltaLatestCompaction, vacuum
from tidemark.sinks.delta.latest.sink import DeltaLatestAdmin
from tidemark.sinks.hbase.aggregates import publishing as aggregated_rows
from tidemark.sinks.hbase.aggregates.sink import HBaseAggregatesAdmin
from tidemark.sinks.hbase.keyed import rows as hbase_rows
from tidemark.sinks.hbase.keyed import table as hbase_latest
from tidemark.sinks.hbase.latest import publishing as newest_rows
from tidemark.sinks.hbase.latest.sink import HBaseLatestAdmin
from tidemark.sinks.iceberg import catalog
from tidemark.sinks.iceberg.aggregates.compacting import IcebergAggregatesCompaction
from tidemark.sinks.iceberg.aggregates.sink import IcebergAggregatesAdmin
from tidemark.sinks.iceberg.aggregates.table import prepare as prepare_iceberg_totals
from tidemark.sinks.iceberg.latest import table as iceberg_latest
from tidemark.sinks.iceberg.latest.compacting import IcebergLatestCompaction, expire, where_of
from tidemark.sinks.iceberg.latest.settings import IcebergTableSettings
from tidemark.sinks.iceberg.latest.sink import IcebergLatestAdmin
from tidemark.sinks.latest import table as latest_table
from tidemark.sinks.latest.compacting import HistoryCompaction
from tidemark.sinks.latest.rows import BUCKET, DELETED, GENERATION, KEY_HASH, columns, history_of
from tidemark.sinks.latest.settings import HistorySettings, VersionedTable
from tidemark.sinks.latest.sink import LakeTableAdmin, PublishedAdmin
from tidemark.sinks.parquet import files, steps, types
from tidemark.sinks.parquet.parts import FolderPart
from tidemark.sinks.sweeping import SinkSweeper
from tidemark.sinks.taking_over import take_over
from tidemark.streams.loading import load
from tidemark.types.renamed_fields import Names

BUCKETS = 3
# Its types do not say which arguments it takes.
EQUAL: Any = EqualTo


# What the keys of the model stand for where a table's key has two columns. Two floats are one key if they are written in
# two ways (-0.0 and 0.0), and NaN is a key; null is one in each column.
WIDE_KEYS: tuple[tuple[tuple[float | None, str | None], ...], ...] = (
    ((0.0, "a"), (-0.0, "a")),
    ((0.0, None), (-0.0, None)),
    ((float("nan"), "a"), (-float("nan"), "a")),
    ((float("nan"), None),),
    ((None, "a"),),
    ((None, None),),
    ((1.5, ""),),
    ((1.5, "NaN"),),
)


class Change(NamedTuple):
    """What a code makes of a message. Rows of the key None have no key."""

    key: int | None
    value: str
    deleted: bool = False


# The number of the key whose columns are all null.
NULLS = 5

# A message: the partition with its incarnation, and the offset.
Message = tuple[TopicPartition, int]
# A code gives the rows of a message, by its partition and offset.
Code = Callable[[int, int], Sequence[Change]]


class Killed(Exception):
    """Raised where a process is killed."""


@dataclass
class LatestInMemory(StreamInMemory):
    """A stream with one sink of newest rows."""

    kind: str = ""
    more: str = ""
    # What a compaction says of the older versions, after one erasure, and what remains.
    expiring: str = ""
    older: str = ""
    # Whether the key has two columns, see WIDE_KEYS.
    wide: bool = False
    # Whether rows without a key are of the key null.
    null_keys: bool = False
    code: Code = field(default=lambda partition, offset: [Change(offset, f"{partition}@{offset}")])

    def __post_init__(self) -> None:
        key, fields = ("[id, part]", "id: double\n    part: string") if self.wide else ("id", "id: integer")
        sink = f"  - type: {self.kind}\n    folder: orders_latest\n    key: {key}\n    buckets: {BUCKETS}\n{self.more}"
        self.text = (
            self.text.replace("  - type: hbase\n    table: orders\n", sink)
            .replace("    id: integer\n", f"    {fields}\n    value: string\n")
            .replace(
                "dead_letters:\n  type: hbase\n  table: orders_dead\n",
                "dead_letters:\n  type: parquet\n  folder: orders_dead\n",
            )
        )
        super().__post_init__()
        before = self.opened
        self.opened = OpenStream(
            before.file, before.ledger, before.log, SinkSweeper(self._connection), self._connection
        )
        # The rows of the newest committed attempt at each message.
        self.committed: dict[Message, Sequence[Change]] = {}

    def _connection(self, name: str) -> Connection:
        return super()._connection(name)

    @property
    def sink(self) -> HistorySettings:
        (found,) = (one for one in self.opened.stream.sinks if isinstance(one, HistorySettings))
        return found

    @property
    def ledger(self) -> str:
        found = self.opened.ledger.register()
        assert found is not None
        return found[1].ledger

    @property
    def base(self) -> str:
        return self.sink.base(self.opened.connections)

    @property
    @abstractmethod
    def admin(self) -> PublishedAdmin: ...

    @abstractmethod
    def prepare(self, key: Sequence[str] = (), buckets: int = BUCKETS, stream: str = "orders") -> None: ...

    @abstractmethod
    def planned(self) -> Sequence[Replaceable]:
        """What a compaction would take."""

    @abstractmethod
    def vacuum(self, hours: int = 24) -> None:
        """What a compaction does with the table."""

    @abstractmethod
    def table_files(self) -> int:
        """How many files of rows there are, of all versions."""

    @abstractmethod
    def seen(self) -> list[dict[str, Any]]:
        """The rows that others see."""

    @abstractmethod
    def found(self, column: str, value: object) -> set[int]:
        """How many rows other programs find by the value of a column."""

    @abstractmethod
    def versions(self) -> int:
        """How many versions the table has had."""

    @property
    @abstractmethod
    def looking(self) -> Sequence[tuple[Any, str]]:
        """The functions before or after which a process may fall asleep that publishes: where they are, and their names."""

    def check(self, *, published: bool) -> None:
        """Compare with the model what Tidemark's reader gives, and what others see once all is published."""
        wanted = self.wanted()
        assert self.counting() == wanted
        if published:
            assert self.shown() == wanted

    @property
    @abstractmethod
    def publishing(self) -> Sequence[tuple[str, object]]:
        """The functions after which a process may die that publishes: their names, and where they are."""

    def process(self, lane: str, run: str = "run 1", *, until: Step | None = None) -> Record:
        """Process the lane's pending window; a process that is killed after a step raises Killed."""
        ledger = self.opened.ledger
        found = ledger.head(lane)
        assert found is not None
        files.own(history_of(self.base), "orders", self.ledger, self.sink.name)
        self.prepare()
        work = _Work(self, lane, found.head.seq + 1, run)

        def heard(step: Step) -> None:
            if step == Step.COMMITTED:
                self.committed |= work.rows
            if step == until:
                raise Killed(step)

        self.now += 1
        this = Run(run, "v1", "d")
        return protocol.process(
            ledger, self.opened.sweeper, work, hold, lane, work.seq, this, on_step=heard, take_over=True
        )

    def ingest(self, run: str = "run 1", *, until: Step | None = None) -> Record | None:
        self.now += 1
        return self.process(INGEST, run, until=until) if ingests.plan_ingest(self.opened, run) is not None else None

    def replay(self, wanted: RangeSet, run: str, *, until: Step | None = None) -> Record:
        self.now += 1
        lane = claim_lane(self.opened, LaneKind.REPLAY, run, wanted, "a test")
        return self.finish(lane, run, until=until)

    def backfill(self, wanted: RangeSet, run: str, *, until: Step | None = None) -> Record:
        self.now += 1
        lane = claim_lane(self.opened, LaneKind.BACKFILL, run, wanted, "a test")
        return self.finish(lane, run, until=until)

    def finish(self, lane: str, run: str, *, until: Step | None = None) -> Record:
        """Work off a lane with one window, also one that was killed."""
        if lanes.plan_lane(self.opened, lane, run) is not None:
            self.process(lane, run, until=until)
        lanes.finish(self.opened, lane)
        found = self.opened.ledger.head(lane)
        assert found is not None
        assert found.head.last is not None
        return found.head.last

    def erase(self, wanted: RangeSet, run: str = "erasure") -> Record:
        record = super().erase(wanted, run)
        self.committed = {one: rows for one, rows in self.committed.items() if one not in wanted}
        return record

    def compact(self, run: str, on_step: steps.Listener = steps.nobody) -> None:
        """The history, as Spark does it."""
        history = self.sink.history(self.opened.connections)
        steps.compact(self.opened, history, run, CompactionRequest(), rewritten, on_step=on_step)

    def rewrite(self, *changes: str) -> None:
        """Change the stream file: each old text is followed by the new one."""
        path = self.opened.file.path
        text = path.read_text()
        for old, new in zip(changes[::2], changes[1::2], strict=True):
            assert old in text
            text = text.replace(old, new)
        path.write_text(text)
        self.opened = replace(self.opened, file=load(path))

    def restore(self, backup: Path) -> None:
        """Go on with a ledger that is made of a backup, in another place."""
        ledger = Ledger(MemoryStore(), self.name, clock=lambda: self.now)
        backups.restore(ledger, backup)
        self.opened = replace(self.opened, ledger=ledger)
        assert take_over(ledger, self.opened.connections) == []

    def wanted(self) -> dict[int, tuple[tuple[int, int, int], str | None, bool]]:
        """By key what the model says: offset, partition and index of its newest row, the value, and whether it is deleted."""
        register = self.opened.ledger.register()
        assert register is not None
        epochs = Epochs(register[1].topics)
        newest: dict[int, tuple[int, int, int, int]] = {}
        found: dict[int, tuple[tuple[int, int, int], str | None, bool]] = {}
        for (log, offset), rows in self.committed.items():
            for index, row in enumerate(rows):
                if row.key is None:
                    continue
                place = (epochs.of(log, offset), offset, log.partition, index)
                if row.key not in newest or place > newest[row.key]:
                    newest[row.key] = place
                    found[row.key] = (place[1:], row.value, row.deleted)
        return found

    def shown(self) -> dict[int, tuple[tuple[int, int, int], str | None, bool]]:
        """By key what others see; no key is there twice."""
        rows = self.seen()
        found = {
            self._key(row["id"], row.get("part")): (
                (row["_offset"], row["_partition"], row["_index"]),
                row.get("value"),
                row["_deleted"],
            )
            for row in rows
        }
        assert len(found) == len(rows)
        return found

    def counting(self) -> dict[int, tuple[tuple[int, int, int], str | None, bool]]:
        """By key what Tidemark's reader gives."""
        found = {}
        for row in self.admin.rows(self.opened, self.sink, 1_000_000):
            place, _, offset = row["coordinate"].rpartition("@")
            fields = row["fields"]
            named = None if fields.get("id") is None else float(fields["id"])
            key, value = self._key(named, fields.get("part")), fields.get("value")
            assert key not in found
            found[key] = ((int(offset), int(place.rpartition("/")[2]), row["index"]), value, row["deleted"])
        return found

    def _key(self, id_: float | None, part: str | None) -> int:
        """The key of the model that a row has."""
        if not self.wide:
            assert id_ is not None
            return int(id_)
        # NaN equals nothing.
        (found,) = (number for number, keys in enumerate(WIDE_KEYS) if repr((id_, part)) in map(repr, keys))
        return found


@dataclass
class DeltaLatestInMemory(LatestInMemory):
    """The sink `delta_latest`."""

    kind: str = "delta_latest"
    expiring: str = "1 file of older versions"
    older: str = "1 file of older versions holds it (_bucket="

    @property
    def admin(self) -> LakeTableAdmin:
        return DeltaLatestAdmin()

    def prepare(self, key: Sequence[str] = (), buckets: int = BUCKETS, stream: str = "orders") -> None:
        fields, was = self.opened.fields, self.opened.was
        delta_latest.prepare(self.base, fields, stream, self.ledger, key or self.sink.key, buckets, "snappy", was)

    def planned(self) -> Sequence[Replaceable]:
        return DeltaLatestCompaction().planned(self.opened, self._sink, CompactionRequest())

    def vacuum(self, hours: int = 24) -> None:
        vacuum(self.opened, self._sink.model_copy(update={"keep_hours": hours}), self.admin)

    def table_files(self) -> int:
        return len([*Path(self.base.removeprefix("file://")).glob("_bucket=*/*.parquet")])

    @property
    def _sink(self) -> VersionedTable:
        found = self.sink
        assert isinstance(found, VersionedTable)
        return found

    def seen(self) -> list[dict[str, Any]]:
        made = DeltaTable.is_deltatable(self.base)
        return DeltaTable(self.base).to_pyarrow_table().to_pylist() if made else []

    def found(self, column: str, value: object) -> set[int]:
        polars = pl.scan_delta(self.base.removeprefix("file://")).filter(pl.col(column) == value).collect()
        return {polars.height, DeltaTable(self.base).to_pyarrow_table(filters=[(column, "=", value)]).num_rows}

    def versions(self) -> int:
        return DeltaTable(self.base).version()

    @property
    def looking(self) -> Sequence[tuple[Any, str]]:
        return ((latest_table, "steady"),)

    @property
    def publishing(self) -> Sequence[tuple[str, object]]:
        return ("_written", delta_latest), ("change", delta_latest.DeltaLatest)


@dataclass
class IcebergLatestInMemory(LatestInMemory):
    """The sink `iceberg_latest`."""

    kind: str = "iceberg_latest"
    more: str = "    table: lake.orders\n"
    expiring: str = "1 snapshot expires"
    # And the manifest that names it.
    older: str = "2 files of older snapshots hold it until they expire (data/bucket-"

    def _connection(self, name: str) -> Connection:
        if name == "iceberg_default":
            return Connection(name, host=str(self.folder / "catalog.db"), kind="sqlite")
        return super()._connection(name)

    @property
    def admin(self) -> LakeTableAdmin:
        return IcebergLatestAdmin()

    def prepare(self, key: Sequence[str] = (), buckets: int = BUCKETS, stream: str = "orders") -> None:
        where = where_of(self.opened, self._sink)
        fields, was = self.opened.fields, self.opened.was
        iceberg_latest.prepare(where, fields, stream, self.ledger, key or self.sink.key, buckets, "snappy", was)

    def planned(self) -> Sequence[Replaceable]:
        return IcebergLatestCompaction().planned(self.opened, self._sink, CompactionRequest())

    def vacuum(self, hours: int = 24) -> None:
        # The ledger's clock is far behind that of the snapshots.
        before = self.now
        self.now = now_ms() + 1000
        expire(self.opened, self._sink.model_copy(update={"keep_hours": hours}), "run", self.admin)
        self.now = before

    def table_files(self) -> int:
        return len([*Path(self.base.removeprefix("file://")).glob("data/**/*.parquet")])

    @property
    def _sink(self) -> IcebergTableSettings:
        found = self.sink
        assert isinstance(found, IcebergTableSettings)
        return found

    def seen(self) -> list[dict[str, Any]]:
        found = catalog.opened(where_of(self.opened, self._sink))
        return [] if found is None else found.scan().to_arrow().to_pylist()

    def found(self, column: str, value: object) -> set[int]:
        table = catalog.opened(where_of(self.opened, self._sink))
        assert table is not None
        polars = pl.scan_iceberg(table).filter(pl.col(column) == value).collect()
        return {polars.height, table.scan(row_filter=EQUAL(column, value)).to_arrow().num_rows}

    def versions(self) -> int:
        found = catalog.opened(where_of(self.opened, self._sink))
        assert found is not None
        return len(found.snapshots())

    @property
    def looking(self) -> Sequence[tuple[Any, str]]:
        return ((latest_table, "steady"),)

    @property
    def publishing(self) -> Sequence[tuple[str, object]]:
        return ("_written", iceberg_latest), ("change", iceberg_latest.IcebergLatest)


@dataclass
class HBaseLatestInMemory(LatestInMemory):
    """The sink `hbase_latest`. Its table is in memory: see `tests.support.hbase_in_memory`."""

    kind: str = "hbase_latest"
    more: str = "    table: orders_latest\n"

    def _connection(self, name: str) -> Connection:
        return Connection(name, host=self._host, port=9090) if name == "hbase_default" else super()._connection(name)

    @property
    def _host(self) -> str:
        return f"h{xxhash.xxh64_hexdigest(str(self.folder).encode())}"

    def wanted(self) -> dict[int, tuple[tuple[int, int, int], str | None, bool]]:
        """Of a key that is gone, the table has no values."""
        return {key: (at, None if gone else value, gone) for key, (at, value, gone) in super().wanted().items()}

    @property
    def admin(self) -> PublishedAdmin:
        return HBaseLatestAdmin()

    def prepare(self, key: Sequence[str] = (), buckets: int = BUCKETS, stream: str = "orders") -> None:
        types.keep(history_of(self.base), self.opened.fields, self.opened.was)
        self.table.prepare(stream, self.ledger, key or self.sink.key, buckets)

    @property
    def table(self) -> hbase_latest.KeyedTable:
        return hbase_latest.keyed_table(self.opened.connections, "hbase_default", "orders_latest")

    def planned(self) -> Sequence[Replaceable]:
        return HistoryCompaction().planned(self.opened, self.sink, CompactionRequest())

    def vacuum(self, hours: int = 24) -> None:
        """HBase compacts its tables itself."""
        CLUSTERS[self._host].compact()

    def table_files(self) -> int:
        return 0

    def seen(self) -> list[dict[str, Any]]:
        """The cells that others see, without those of Tidemark but the message and whether the key is gone."""
        cluster, rows = CLUSTERS[self._host], []
        kinds = types.check(history_of(self.base), {})
        for key in cluster.rows("orders_latest", b"", b"\x10"):
            cells = {column: value for column, (value, _) in cluster.newest("orders_latest", key).items()}
            if not cells:
                continue
            row = hbase_rows.KeyedRow(key, cells)
            # Of a key that is gone, others see no field.
            assert any(column.startswith(b"d:") for column in cells) != row.mark.gone
            at = {"_offset": row.place.offset, "_partition": row.place.partition.partition, "_index": row.place.index}
            named = {**dict.fromkeys(kinds), **row.key_fields(self.sink.key), **row.fields}
            typed = {name: _typed(kinds[name], value) for name, value in named.items()}
            rows.append({**at, "_deleted": row.mark.gone, **typed})
        return rows

    def found(self, column: str, value: object) -> set[int]:
        return {sum(row.get(column) == value for row in self.seen())}

    def versions(self) -> int:
        return self.table.published().number

    @property
    def looking(self) -> Sequence[tuple[Any, str]]:
        return ((newest_rows, "steady"),)

    @property
    def publishing(self) -> Sequence[tuple[str, object]]:
        return tuple((name, hbase_latest.KeyedTable) for name in ("begin", "put", "put_again", "remove"))


# By key: the number of its rows, the least and the greatest of their values, the sum of their numbers, and that of their
# ratios, with the greatest of these.
Totals = tuple[int, str, str, int, float | None, float | None]
VALUES = """\
    values:
      rows_of_it: count
      least: {min: value}
      greatest: {max: value}
      numbers: {sum: number}
      ratios: {sum: ratio}
      top: {max: ratio}
"""


@dataclass
class TotalsInMemory(LatestInMemory):
    """A stream with one sink of totals. Here the key None is one like any other."""

    null_keys: bool = True
    # Whether the ingest begins at the ends, so that a backfill has something to read.
    late: bool = False

    def __post_init__(self) -> None:
        if self.late:
            self.text = self.text.replace("start: earliest", "start: latest")
        self.text = self.text.replace("    id: integer\n", "    id: integer\n    number: integer\n    ratio: double\n")
        super().__post_init__()

    @property
    def settings(self) -> AggregatesSettings:
        found = self.sink
        assert isinstance(found, AggregatesSettings)
        return found

    @abstractmethod
    def totals_shown(self) -> dict[int | None, Totals]:
        """By key what others see; no key is there twice."""

    def check(self, *, published: bool) -> None:
        wanted = self.totals()
        assert self.totals_counting() == wanted
        if published:
            assert self.totals_shown() == wanted

    def totals(self) -> dict[int | None, Totals]:
        """By key what the model says."""
        rows: dict[int | None, list[tuple[str, int, float | None]]] = {}
        for (_, offset), changes in self.committed.items():
            for one in changes:
                rows.setdefault(NULLS if self.wide and one.key is None else one.key, []).append(
                    (one.value, offset, ratio_of(offset))
                )
        found = {}
        for key, some in rows.items():
            values, numbers, ratios = zip(*some, strict=True)
            known = [one for one in ratios if one is not None]
            ratio = (sum(known), max(known)) if known else (None, None)
            found[key] = len(some), min(values), max(values), sum(numbers), *ratio
        return found

    def totals_counting(self) -> dict[int | None, Totals]:
        """By key what Tidemark's reader gives."""
        rows = [*self.admin.rows(self.opened, self.sink, 1_000_000)]
        found = {self._key_of(one["key"]): self._totals(one["values"]) for one in rows}
        assert len(found) == len(rows)
        return found

    def _key_of(self, texts: Mapping[str, str | None]) -> int | None:
        id_ = texts.get("id")
        if self.wide:
            return self._key(None if id_ is None else float(id_), texts.get("part"))
        return None if id_ is None else int(id_)

    def _seen_totals(self) -> dict[int | None, Totals]:
        """By key what others see in a lake; no key is there twice. Nothing is there but the key, the totals and the bucket."""
        rows, names = self.seen(), {*self.sink.key, *self.settings.values, BUCKET}
        assert all({*row} == names for row in rows)
        found: dict[int | None, Totals] = {}
        for row in rows:
            key = self._key(row["id"], row.get("part")) if self.wide else row["id"]
            assert key not in found
            found[key] = tuple(row[name] for name in self.settings.values)  # type: ignore[assignment]
        return found

    @staticmethod
    def _totals(texts: Mapping[str, str | None]) -> Totals:
        ratios, top = texts.get("ratios"), texts.get("top")
        return (
            int(str(texts["rows_of_it"])),
            str(texts["least"]),
            str(texts["greatest"]),
            int(str(texts["numbers"])),
            None if ratios is None else float(ratios),
            None if top is None else float(top),
        )


@dataclass
class HBaseAggregatesInMemory(TotalsInMemory, HBaseLatestInMemory):
    """The sink `hbase_aggregates`. Here the key None is one like any other."""

    kind: str = "hbase_aggregates"
    more: str = f"    table: orders_latest\n{VALUES}"

    @property
    def admin(self) -> PublishedAdmin:
        return HBaseAggregatesAdmin()

    def prepare(self, key: Sequence[str] = (), buckets: int = BUCKETS, stream: str = "orders") -> None:
        types.keep(history_of(self.base), self.opened.fields, self.opened.was)
        values = self.settings.described(self.opened.fields)
        names = types.names_of(history_of(self.base), self.opened.was)
        self.table.prepare(stream, self.ledger, key or self.sink.key, buckets, names, values)

    @property
    def looking(self) -> Sequence[tuple[Any, str]]:
        table = ((hbase_latest.KeyedTable, name) for name in ("begin", "rows", "put"))
        return (aggregated_rows, "steady"), (aggregated_rows, "all_count"), *table

    def totals_shown(self) -> dict[int | None, Totals]:
        """By key what others see; no key is there twice."""
        cluster, found = CLUSTERS[self._host], {}
        for name in cluster.rows("orders_latest", b"", b"\x10"):
            cells = {column: value for column, (value, _) in cluster.newest("orders_latest", name).items()}
            if cells:
                row = hbase_rows.KeyedRow(name, cells)
                texts = {one: value.decode() for one, value in row.fields.items()}
                key = self._key_of(texts)
                assert key not in found
                found[key] = self._totals(texts)
        return found


@dataclass
class LakeTotalsInMemory(TotalsInMemory):
    """A stream with one sink of totals in a lake."""

    @abstractmethod
    def prepare_table(self, settings: AggregatesSettings, stream: str, fields: Fields, names: Names) -> None: ...

    @abstractmethod
    def rewrite_table(self, more: int = 0) -> None:
        """As another program does it: the same rows in other files, or with that many rows more of the key 3."""

    @abstractmethod
    def set_back(self) -> None:
        """As another program does it: the version before is the newest one again."""

    def prepare(self, key: Sequence[str] = (), buckets: int = BUCKETS, stream: str = "orders") -> None:
        settings = self.settings.model_copy(update={"key": key or self.sink.key, "buckets": buckets})
        history, fields, was = history_of(self.base), self.opened.fields, self.opened.was
        self.prepare_table(settings, stream, types.as_stored(history, fields, was), types.names_of(history, was))
        types.keep(history, fields, was)

    def totals_shown(self) -> dict[int | None, Totals]:
        return self._seen_totals()

    @property
    def looking(self) -> Sequence[tuple[Any, str]]:
        return (latest_table, "steady"), (latest_table, "all_count"), (totals_fold, "unsettled")


@dataclass
class DeltaAggregatesInMemory(LakeTotalsInMemory, DeltaLatestInMemory):
    """The sink `delta_aggregates`."""

    kind: str = "delta_aggregates"
    more: str = VALUES

    @property
    def admin(self) -> LakeTotalsAdmin:
        return DeltaAggregatesAdmin()

    def prepare_table(self, settings: AggregatesSettings, stream: str, fields: Fields, names: Names) -> None:
        prepare_delta_totals(self.base, settings, fields, stream, self.ledger, names)

    def rewrite_table(self, more: int = 0) -> None:
        table = DeltaTable(self.base)
        if more:
            table.update({"rows_of_it": f"rows_of_it + {more}"}, predicate="id = 3")
        else:
            table.optimize.compact()

    def set_back(self) -> None:
        table = DeltaTable(self.base)
        table.restore(table.version() - 1)

    def planned(self) -> Sequence[Replaceable]:
        return DeltaAggregatesCompaction().planned(self.opened, self._sink, CompactionRequest())


@dataclass
class IcebergAggregatesInMemory(LakeTotalsInMemory, IcebergLatestInMemory):
    """The sink `iceberg_aggregates`."""

    kind: str = "iceberg_aggregates"
    more: str = f"    table: lake.orders\n{VALUES}"

    @property
    def admin(self) -> LakeTotalsAdmin:
        return IcebergAggregatesAdmin()

    def prepare_table(self, settings: AggregatesSettings, stream: str, fields: Fields, names: Names) -> None:
        prepare_iceberg_totals(where_of(self.opened, self._sink), settings, fields, stream, self.ledger, names)

    def _table(self) -> Table:
        found = catalog.opened(where_of(self.opened, self._sink))
        assert found is not None
        return found

    def set_back(self) -> None:
        newest = self._table().current_snapshot()
        assert newest is not None
        assert newest.parent_snapshot_id is not None
        self._table().manage_snapshots().rollback_to_snapshot(newest.parent_snapshot_id).commit()

    def rewrite_table(self, more: int = 0) -> None:
        table = self._table()
        rows = table.scan().to_arrow()
        changed = [{**row, "rows_of_it": row["rows_of_it"] + more * (row["id"] == 3)} for row in rows.to_pylist()]
        table.overwrite(pa.Table.from_pylist(changed, rows.schema))

    def planned(self) -> Sequence[Replaceable]:
        return IcebergAggregatesCompaction().planned(self.opened, self._sink, CompactionRequest())


def ratio_of(offset: int) -> float | None:
    """Some are null; the sums of the others are exact."""
    return None if offset % 3 == 0 else offset / 4 - 2


@dataclass
class _Work:
    """Writes the rows of each message, as the sink's files have them."""

    world: LatestInMemory
    lane: str
    seq: int
    run: str
    rows: dict[Message, Sequence[Change]] = field(default_factory=dict)

    def read(self, window: Window, covers: RangeSet, attempt: Attempt, fence: Fence) -> None:
        self._covers = covers
        messages = [(one.partition, offset) for one in covers for offset in range(one.start, one.until)]
        self.rows = {(at, offset): self.world.code(at.partition, offset) for at, offset in messages}

    def store(self, attempt: Attempt, fence: Fence, on_step: Listener) -> None:
        self._place = self.world.admin.place(
            self.world.opened, self.world.sink, self.lane, self.seq, attempt.generation
        )
        there = Path(self._place["folder"].removeprefix("file://"))
        there.mkdir(parents=True)
        schema = pa.schema([one for one in columns(self.world.opened.fields) if one.name != GENERATION])
        made = pa.Table.from_pylist(
            [*_written(self.rows, wide=self.world.wide, null_keys=self.world.null_keys)], schema=schema
        )
        # Two tasks.
        half = made.num_rows // 2
        pq.write_table(made.slice(0, half), there / "part-0.parquet")
        pq.write_table(made.slice(half), there / "part-1.parquet")
        on_step(Step.SINK_STORED)

    def verify(self) -> Receipt:
        tallies = tuple(
            PartitionTally(
                topic=one.topic,
                incarnation=one.incarnation,
                partition=one.partition,
                rows=Count(self._covers.only([one]).count(), "0" * 16),
            )
            for one in self._covers.partitions
        )
        sink = SinkReceipt(name=self.world.sink.name, type=self.world.kind, place=self._place)
        return Receipt(tallies=tallies, sinks=(sink,), dead_letters=None, started_at=1, finished_at=2)


def _typed(kind: str, value: bytes | None) -> Any:
    if value is None:
        return None
    return {"int": int, "integer": int, "double": float}.get(kind, str)(value.decode())


def _written(rows: dict[Message, Sequence[Change]], *, wide: bool, null_keys: bool) -> Iterator[dict[str, Any]]:
    for (log, offset), changes in rows.items():
        for index, one in enumerate(changes):
            key = NULLS if wide and null_keys and one.key is None else one.key
            # Two keys may have one hash.
            hashed = xxhash.xxh64_intdigest(str(key if key is None else key // 2).encode()) >> 1
            hashed = None if key is None and not null_keys else hashed
            spellings = WIDE_KEYS[key] if wide and key is not None else ((key, None),)
            id_, part = spellings[offset % len(spellings)]
            yield {
                "_topic": "orders",
                "_incarnation": log.incarnation,
                "_partition": log.partition,
                "_offset": offset,
                "_index": index,
                "_tombstone": False,
                "_digest": offset,
                "id": id_,
                "part": part,
                "value": one.value,
                # Of streams that have this field too.
                "number": offset,
                "count": offset,
                "ratio": ratio_of(offset),
                DELETED: one.deleted,
                KEY_HASH: hashed,
                BUCKET: None if hashed is None else hashed % BUCKETS,
            }


def rewritten(group: Sequence[FolderPart], folder: str, heard: Callable[[steps.CompactionStep], None]) -> int:
    """The rows that count in some folders, in one."""
    there = Path(folder.removeprefix("file://"))
    there.mkdir(parents=True)
    found = []
    for part in group:
        for window in part.windows:
            lost = part.lost.get(window.generation, RangeSet())
            for path in part.paths:
                rows = pq.read_table(path.removeprefix("file://"), partitioning=None)
                if not part.compacted:
                    rows = rows.append_column("_lane", pa.array([window.record.lane] * rows.num_rows, pa.string()))
                    rows = rows.append_column("_seq", pa.array([window.record.seq] * rows.num_rows, pa.int32()))
                    rows = rows.append_column(GENERATION, pa.array([window.generation] * rows.num_rows, pa.int64()))
                kept = [
                    row
                    for row in rows.to_pylist()
                    if row[GENERATION] == window.generation and (at(row["_partition"]), row["_offset"]) not in lost
                ]
                found.append(pa.Table.from_pylist(kept, schema=rows.schema))
    made = pa.concat_tables(found)
    pq.write_table(made, there / "part-0.parquet")
    heard(steps.CompactionStep.WRITTEN)
    return made.num_rows
