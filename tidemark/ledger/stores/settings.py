"""The keys of a ledger in HBase, in ZooKeeper, and in a database, in a stream file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from tidemark.ledger.stores.kind import LedgerSettings
from tidemark.settings.parts import ConnectionName, Part, Table, form

# The name that other tools give the reader of offsets. In ZooKeeper it is a part of a path, where `.` and `..` mean others.
Group = Annotated[
    str,
    form(
        r"^[^./\x00-\x1f\x7f][^/\x00-\x1f\x7f]*$", "a name without / and control characters, which begins with no dot"
    ),
    Field(max_length=200),
]


class HBaseLedger(LedgerSettings):
    """The ledger in HBase."""

    server: ClassVar[str] = "HBase"

    type: Literal["hbase"]
    hbase: ConnectionName = Field(default="hbase_default", description="The connection.")
    table: Table = Field(default="tidemark_ledger", description="The table. Streams may share it.")
    offsets_table: Table | None = Field(
        default="stream_kafka_offsets",
        description="The table of offsets for other tools, written after each commit. `null` for none.",
    )
    group: Group | None = Field(
        default=None,
        description="The group in the [rows of that table](layouts.md#offsets-for-other-tools), otherwise the stream's name.",
    )

    @property
    def connection(self) -> str:
        return self.hbase

    def tables(self) -> Iterable[str]:
        return [table for table in (self.table, self.offsets_table) if table]


NodePath = Annotated[
    str, form(r"^(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+$", "the path of a node, as /tidemark/orders"), Field(max_length=200)
]


class StormNodes(Part):
    """The offset nodes of Storm's Kafka spout: `ZK_ROOT/ID/partition_N`, as its `SpoutConfig` names them."""

    zk_root: Annotated[NodePath, Field(description="The root of the spout's nodes, `zkRoot`.")]
    id: Group | None = Field(default=None, description="The spout's `id`, otherwise the stream's name.")


def _root_alone(said: object) -> object:
    return {"zk_root": said} if isinstance(said, str) else said


class ZooKeeperLedger(LedgerSettings):
    """The ledger in ZooKeeper."""

    server: ClassVar[str] = "ZooKeeper"

    type: Literal["zookeeper"]
    zookeeper: ConnectionName = Field(
        default="zookeeper_default",
        description="The connection, with login and password: no other login can open the nodes.",
    )
    path: NodePath = Field(default="/tidemark", description="The root of the ledger's nodes. Streams may share it.")
    consumers: NodePath | None = Field(
        default="/consumers",
        description="The root of the offset nodes of Kafka's old consumers, for other tools. `null` for none.",
    )
    group: Group | None = Field(
        default=None, description="The group of the nodes below `consumers`, otherwise the stream's name."
    )
    storm: Annotated[StormNodes, BeforeValidator(_root_alone, json_schema_input_type=StormNodes | NodePath)] | None = (
        Field(
            default=None,
            description="Offset nodes as Storm's Kafka spout has them, for other tools: `zk_root` and `id`, or the root alone.",
        )
    )

    @property
    def connection(self) -> str:
        return self.zookeeper


# SQL that names a table so needs no quotes. PostgreSQL cuts longer names.
SQLTable = Annotated[
    str,
    form(r"^[a-z_][a-z0-9_]*$", "a name of lower-case letters, digits and _, as tidemark_ledger"),
    Field(max_length=50),
]


class SQLLedger(LedgerSettings):
    """The ledger in a database: PostgreSQL, MySQL or MariaDB, or a file of SQLite for one machine."""

    server: ClassVar[str] = "the ledger's database"

    type: Annotated[Literal["sql"], Field(description="Optional.")] = "sql"
    sql: ConnectionName = Field(
        default="sql_default", description="The connection, of Airflow's type `postgres`, `mysql` or `sqlite`."
    )
    table: SQLTable = Field(default="tidemark_ledger", description="The table. Streams may share it.")
    offsets_table: SQLTable | None = Field(
        default="tidemark_offsets",
        description="The table of [offsets for people and other tools](layouts.md#the-ledger-in-sql), "
        "written with each commit. `null` for none.",
    )

    @property
    def connection(self) -> str:
        return self.sql

    @property
    def database(self) -> str:
        return self.sql

    @property
    def database_tables(self) -> frozenset[str]:
        return frozenset({self.table} | ({self.offsets_table} if self.offsets_table is not None else set()))
