"""The catalog of Iceberg tables: a database that says which version of a table's metadata is the newest.

Its tables are those of Iceberg's JDBC catalog, so other engines read it too. Metadata and manifests are files of the lake,
opened with the lake's own connection.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from pyarrow import fs
from pyiceberg.catalog import MetastoreCatalog
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

from tidemark.clients.connections import Connections
from tidemark.clients.sql import Database, NothingPrepared, check, database, describe_problem, engine, make_file
from tidemark.errors import Unreachable, WrongUse
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
    database: Database
    catalog: str
    table: str

    def __str__(self) -> str:
        return f"the Iceberg table {self.table} of the catalog {self.catalog} in {self.database}"

    @property
    def identifier(self) -> tuple[str, ...]:
        return tuple(self.table.split("."))


def located(connections: Connections, place: Mapping[str, str]) -> CatalogTable:
    """The table that a receipt names. Raises ConnectionMissing, WrongUse."""
    name = place["catalog"]
    kept_in = database(connections(name))
    if kept_in.kind not in _TRIED:
        raise WrongUse(
            f"connection {name} leads to {kept_in}: an Iceberg catalog is kept in PostgreSQL, or a file of SQLite"
        )
    return CatalogTable(place["base"], kept_in, place["catalog_name"], place["table"])


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


class _Catalog(SqlCatalog):
    """A catalog in a database that a connection names, whose line, time limits and errors are those of all databases here."""

    def __init__(self, where: CatalogTable, *, makes: bool = False) -> None:
        # Who only reads makes no tables.
        properties = {
            "py-io-impl": f"{LakeIO.__module__}.{LakeIO.__qualname__}",
            "init_catalog_tables": str(makes).lower(),
            **({_MAKES: "true"} if makes else {}),
        }
        MetastoreCatalog.__init__(self, where.catalog, **properties)
        self.engine = engine(where.database, _QUESTION_SECONDS)
        self._init_catalog()


@contextmanager
def answering(where: CatalogTable) -> Iterator[None]:
    """Within this, what the database or the lake says becomes an error of Tidemark's. Raises Unreachable, WrongUse."""
    try:
        with folders.naming(where.base):
            yield
    except DBAPIError as problem:
        check(where.database, problem, _TABLES, _RIGHTS)
        raise Unreachable(f"{where.database} did not answer: {describe_problem(problem)}") from problem


def create(where: CatalogTable, schema: Schema, spec: PartitionSpec, properties: Mapping[str, str]) -> None:
    """Make the table, with its namespace and the catalog's own tables, where they are missing."""
    make_file(where.database)
    with answering(where):
        catalog = _Catalog(where, makes=True)
        *namespace, _ = where.identifier
        with suppress(NamespaceAlreadyExistsError):
            catalog.create_namespace(tuple(namespace))
        # Another program may be first: then whose it is, is looked at.
        with suppress(TableAlreadyExistsError):
            catalog.create_table(where.identifier, schema, where.base, spec, properties=dict(properties))


def opened(where: CatalogTable) -> Table | None:
    """The newest version of a table; None if it does not exist. Raises Unreachable."""
    try:
        with answering(where):
            return _Catalog(where).load_table(where.identifier)
    except (NoSuchTableError, NoSuchNamespaceError, NothingPrepared):
        return None
