"""The catalog of Iceberg tables: a database, or a REST server, that says which version of a table's metadata is the newest.

A database has the tables of Iceberg's JDBC catalog, so other engines read it too. Metadata and manifests are files of the
lake, opened with the lake's own connection.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from pyarrow import fs
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from sqlalchemy.exc import DBAPIError

from tidemark.clients.connections import Connection, Connections
from tidemark.clients.iceberg_rest import KINDS, RestCatalogServer, rest_catalog
from tidemark.clients.sql import Database, NothingPrepared, check, database, engine, make_file, unanswered
from tidemark.errors import Unreachable, WrongUse
from tidemark.sinks.iceberg import rest
from tidemark.sinks.parquet import folders

_TABLES = ("iceberg_tables", "iceberg_namespace_properties")
_RIGHTS = "select, insert, update and delete"
_QUESTION_SECONDS = 30.0
# Kinds of databases that were tried.
_TRIED = ("postgresql", "sqlite")

# It warns of each column without statistics, as of one with NaN.
logging.getLogger("pyiceberg.io.pyarrow").setLevel(logging.ERROR)


@dataclass(frozen=True)
class CatalogTable:
    """A table: its folder, and its name in a catalog."""

    base: str
    server: Database | RestCatalogServer
    catalog: str
    table: str

    def __str__(self) -> str:
        if isinstance(self.server, RestCatalogServer):
            return f"the Iceberg table {self.table} in {self.server}"
        return f"the Iceberg table {self.table} of the catalog {self.catalog} in {self.server}"

    @property
    def identifier(self) -> tuple[str, ...]:
        return tuple(self.table.split("."))


def located(connections: Connections, place: Mapping[str, str]) -> CatalogTable:
    """The table that a receipt names. Raises ConnectionMissing, WrongUse."""
    return CatalogTable(place["base"], _server(connections(place["catalog"])), place["catalog_name"], place["table"])


def _server(connection: Connection) -> Database | RestCatalogServer:
    if connection.kind in KINDS:
        return rest_catalog(connection)
    kept_in = database(connection)
    if kept_in.kind not in _TRIED:
        raise WrongUse(
            f"connection {connection.name} leads to {kept_in}: an Iceberg catalog is kept in PostgreSQL, or a file of "
            "SQLite, or by a REST server"
        )
    return kept_in


# Set where a table is made: else the folder of its metadata is there, or its disk is not mounted.
_MAKES = "tidemark.makes"


class LakeIO(PyArrowFileIO):
    """Files of the lake, by the names that receipts give them, with the key of the lake's connection."""

    def new_input(self, location: str) -> PyArrowFile:
        return _file(location)

    def new_output(self, location: str) -> PyArrowFile:
        with folders.opened(location) as (filesystem, path):
            # A bucket has no folders.
            if isinstance(filesystem, fs.LocalFileSystem):
                makes, above = _MAKES in self.properties, posixpath.dirname(path)
                if makes or posixpath.basename(above) != "metadata":
                    filesystem.create_dir(above, recursive=makes)
        return _file(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        name = location if isinstance(location, str) else location.location
        with folders.opened(name) as (filesystem, path):
            filesystem.delete_file(path)


def _file(location: str) -> PyArrowFile:
    with folders.opened(location) as (filesystem, path):
        return PyArrowFile(location, path, filesystem)


_FILE_IO = f"{LakeIO.__module__}.{LakeIO.__qualname__}"


class SqlTables(SqlCatalog):
    """A catalog in a database that a connection names, whose line, time limits and errors are those of all databases here."""

    def __init__(self, kept_in: Database, name: str, *, makes: bool) -> None:
        # Who only reads makes no tables.
        properties = {
            "py-io-impl": _FILE_IO,
            "init_catalog_tables": str(makes).lower(),
            **({_MAKES: "true"} if makes else {}),
        }
        MetastoreCatalog.__init__(self, name, **properties)
        self.engine = engine(kept_in, _QUESTION_SECONDS)
        self._init_catalog()


def _catalog(where: CatalogTable, *, makes: bool = False) -> Catalog:
    match where.server:
        case Database():
            return SqlTables(where.server, where.catalog, makes=makes)
        case RestCatalogServer():
            return rest.rest(where.server, where.catalog, _FILE_IO)


@contextmanager
def answering(where: CatalogTable) -> Iterator[None]:
    """Within this, what the catalog or the lake says becomes an error of Tidemark's. Raises Unreachable, WrongUse."""
    with (
        folders.naming(where.base),
        _database_answers(where.server) if isinstance(where.server, Database) else rest.answering(where.server),
    ):
        yield


@contextmanager
def _database_answers(kept_in: Database) -> Iterator[None]:
    try:
        yield
    except DBAPIError as problem:
        check(kept_in, problem, _TABLES, _RIGHTS)
        raise unanswered(kept_in, problem) from problem


def create(where: CatalogTable, schema: Schema, spec: PartitionSpec, properties: Mapping[str, str]) -> None:
    """Make the table, with its namespace and the catalog's own tables, where they are missing."""
    if isinstance(where.server, Database):
        make_file(where.server)
    with answering(where):
        catalog = _catalog(where, makes=True)
        *namespace, _ = where.identifier
        with suppress(NamespaceAlreadyExistsError):
            catalog.create_namespace(tuple(namespace))
        # Another program may be first: then whose it is, is looked at.
        with suppress(TableAlreadyExistsError):
            catalog.create_table(where.identifier, schema, where.base, spec, properties=dict(properties))


def opened(where: CatalogTable) -> Table | None:
    """The newest version of a table; None if it does not exist. Raises Unreachable."""
    said = ""
    while True:
        try:
            with answering(where):
                return _catalog(where).load_table(where.identifier)
        except (NoSuchTableError, NoSuchNamespaceError, NothingPrepared):
            return None
        except Unreachable as problem:
            # Between the catalog's answer and the look into the file that it names, others may have removed that file: a later
            # version does so with old ones. Then the catalog names another file by now.
            if not isinstance(problem.__cause__, FileNotFoundError) or str(problem) == said:
                raise
            said = str(problem)


def version_of(table: Table | None) -> str | None:
    """The mark that tells this version of a table from all others; None where there is no table."""
    return None if table is None else table.metadata_location
