"""Airflow's hooks of Tidemark's connection types: each reads its connection as a stream does, and says what it would do."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from airflow.sdk import BaseHook

from tidemark.airflow.connections import from_airflow
from tidemark.clients.connections import Connection
from tidemark.clients.hbase.endpoint import hbase_endpoint
from tidemark.clients.iceberg_rest import rest_catalog
from tidemark.clients.kafka.endpoint import kafka_endpoint
from tidemark.clients.lake import file_system_settings, lake_folder
from tidemark.clients.schema_registry import registry_endpoint
from tidemark.clients.sql import database
from tidemark.clients.zookeeper import zookeeper_endpoint
from tidemark.errors import WrongUse


class TidemarkHook(BaseHook):
    """A connection, read and checked. `get_conn` returns the endpoint. Raises WrongUse and ConnectionMissing."""

    conn_name_attr = "conn_id"
    default_conn_name = ""

    def __init__(self, conn_id: str | None = None) -> None:
        super().__init__()
        self.conn_id = conn_id or self.default_conn_name

    @staticmethod
    @abstractmethod
    def read(connection: Connection) -> Any:
        """The endpoint of a connection. Raises WrongUse."""

    def get_conn(self) -> Any:
        return self.read(from_airflow(self.conn_id))

    def test_connection(self) -> tuple[bool, str]:
        """The answer of Airflow's button *Test*. No server is asked: the tasks' machines reach others than this one may."""
        try:
            return True, f"Tidemark can use it: {self.get_conn()}. No server was asked."
        except WrongUse as problem:
            return False, str(problem)


def _lake(connection: Connection) -> str:
    file_system_settings(connection)
    return lake_folder(connection)


class KafkaHook(TidemarkHook):
    """A Kafka cluster."""

    conn_type, hook_name, default_conn_name = "tidemark_kafka", "Tidemark: Kafka", "kafka_default"
    read = staticmethod(kafka_endpoint)


class HbaseHook(TidemarkHook):
    """Thrift gateways of an HBase."""

    conn_type, hook_name, default_conn_name = "tidemark_hbase", "Tidemark: HBase", "hbase_default"
    read = staticmethod(hbase_endpoint)


class ZookeeperHook(TidemarkHook):
    """An ensemble of ZooKeeper."""

    conn_type, hook_name, default_conn_name = "tidemark_zookeeper", "Tidemark: ZooKeeper", "zookeeper_default"
    read = staticmethod(zookeeper_endpoint)


class PostgresHook(TidemarkHook):
    """A database of PostgreSQL, for ledgers and dead letters."""

    conn_type, hook_name, default_conn_name = "tidemark_postgres", "Tidemark: PostgreSQL", "sql_default"
    read = staticmethod(database)


class MysqlHook(TidemarkHook):
    """A database of MySQL or MariaDB, for ledgers and dead letters."""

    conn_type, hook_name, default_conn_name = "tidemark_mysql", "Tidemark: MySQL or MariaDB", "sql_default"
    read = staticmethod(database)


class RegistryHook(TidemarkHook):
    """A schema registry."""

    conn_type, hook_name, default_conn_name = "tidemark_registry", "Tidemark: schema registry", "registry_default"
    read = staticmethod(registry_endpoint)


class IcebergHook(TidemarkHook):
    """A REST catalog of Iceberg tables."""

    conn_type, hook_name, default_conn_name = "tidemark_iceberg", "Tidemark: Iceberg REST catalog", "iceberg_default"
    read = staticmethod(rest_catalog)


class LakeHook(TidemarkHook):
    """The folder of the sinks of files."""

    conn_type, hook_name, default_conn_name = "tidemark_lake", "Tidemark: lake of files", "lake_default"
    read = staticmethod(_lake)
