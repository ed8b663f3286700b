"""Where a lake is: the folder or bucket below which file sinks write, and the settings of its file system."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tidemark.clients.connections import Connection
from tidemark.errors import WrongUse

# Characters with a meaning of their own in a path of Spark or of delta-rs.
_TAKEN = "*?[]{}^\\%"
_OF_FILES = ("path", "hadoop")
# As Airflow's Amazon provider names them.
OBJECT_STORE = "aws"
_OF_BUCKETS = ("endpoint_url", "region_name", "aws_session_token", "allow_insecure")
_ROLES = "Give a key's id as login and its secret as password, or neither: then the machine's own role is used."
_NO_ROLES = dict.fromkeys(("role_arn", "assume_role_method", "assume_role_kwargs", "profile_name"), _ROLES)

# What attempts write for a table stands beside the table: see `beside`.
_BESIDE = re.compile(r"/_([^/]+)\.attempts(?=/|$)")


def beside(folder: str) -> str:
    """The folder with what attempts write before their windows are committed. No listing of the table's folder has it."""
    above, _, name = folder.rpartition("/")
    return f"{above}/_{name}.attempts"


def of_table(folder: str) -> str:
    """The folder itself; of one that stands beside a table, or lies in such a folder, that of the table."""
    return _BESIDE.sub(r"/\1", folder)


def lake_folder(connection: Connection) -> str:
    """The folder or URI below which file sinks write: the `path` among the extras, as in Airflow's File connections.

    Raises WrongUse for a relative path, since every program starts in a folder of its own. Raises WrongUse too for
    characters that not all programs take.
    """
    _only_files(connection)
    path = str(connection.required("path among its extras", connection.text("path")))
    if not path.startswith("/") and "://" not in path:
        raise WrongUse(
            f"connection {connection.name}: the path {path!r} among its extras is relative; expected one from the root, "
            "like /data/lake, or a URI"
        )
    if taken := [letter for letter in path if letter in _TAKEN]:
        raise WrongUse(
            f"connection {connection.name}: the path {path!r} among its extras has {taken[0]!r}, which has a meaning there"
        )
    if connection.kind == OBJECT_STORE and not path.startswith("s3a://"):
        raise WrongUse(
            f"connection {connection.name} is of the type {OBJECT_STORE}, and the path {path!r} among its extras is in no "
            "bucket: expected s3a://BUCKET/FOLDER"
        )
    return path.rstrip("/")


def _only_files(connection: Connection) -> None:
    if connection.kind == OBJECT_STORE:
        extras = (*_OF_FILES, *_OF_BUCKETS)
        return connection.only("a bucket", "login", "password", extras=extras, reasons=_NO_ROLES)
    return connection.only("files", extras=_OF_FILES)


def file_system_settings(connection: Connection) -> dict[str, str]:
    """Hadoop's settings for the file system of `path`: `hadoop` among the extras, names that begin with `fs.`.

    Raises WrongUse for any other name, and for a value that is no text. The error never quotes a value.
    """
    _only_files(connection)
    given = connection.extra.get("hadoop") or {}
    if not isinstance(given, Mapping):
        raise WrongUse(f"connection {connection.name}: hadoop among its extras is no map of settings")
    for name, value in given.items():
        if not str(name).startswith("fs.") or not isinstance(value, str):
            raise WrongUse(
                f"connection {connection.name}: hadoop among its extras sets {name}; expected settings of a file system, "
                "whose names begin with fs., each with a text"
            )
    return dict(given)
