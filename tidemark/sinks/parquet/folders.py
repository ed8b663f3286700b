"""Folders of files, by the names that receipts give them.

Such a name is a URI without escapes, as Spark and Hadoop take it: `file:///data/my lake/orders`. Arrow and delta-rs
take URIs with escapes, and name some schemes differently. A bucket's key is that of the lake's connection.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from urllib.parse import quote

import pyarrow as pa
from pyarrow import fs

from tidemark.clients.disks import is_full, lacks_rights
from tidemark.clients.object_stores import Access, access_to
from tidemark.errors import DiskFull, NotAuthorized, TidemarkError, Unreachable, WrongUse
from tidemark.ledger.records import Record

OWNER_FILE = "_tidemark_owner.json"
# The ledger that has taken the place of the one in the mark. The mark itself stays as it is: a folder is known by its time.
LEDGER_FILE = "_tidemark_ledger.json"
# Hadoop's names for the scheme that Arrow and delta-rs call `s3`.
_SCHEMES = {"s3a": "s3", "s3n": "s3"}
# Of what was written, and is not where it belongs.
MEANWHILE = "its disk may have been mounted or unmounted meanwhile. Mount it, and run again"
# What delta-rs says where a disk or a bucket has not done what it was asked to: other errors of its own are about the table.
_OF_STORES = re.compile(r"Object Store error|Generic (?!DeltaTable\b)\w+ error|Error performing|error sending request")
# What Arrow and delta-rs say of a bucket that does not take its key, and of one that does not exist.
_KEY_REFUSED = (
    "AWS Error ACCESS_DENIED",
    "AWS Error SIGNATURE_DOES_NOT_MATCH",
    "INVALID_ACCESS_KEY_ID",
    "403 Forbidden",
)
_GIVE_KEY = (
    "The bucket refuses the key: correct the connection, or let this key list, get, put and delete objects there"
)
_NO_BUCKET = ("AWS Error NO_SUCH_BUCKET", "enable the allow_bucket_creation option", "<Code>NoSuchBucket</Code>")
# Arrow sends checksums in a form that AWS knows since 2024, and few other servers do.
_CHECKSUMS = ("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")


def escaped(folder: str) -> str:
    """A folder or file as a URI with escapes."""
    scheme, _, rest = folder.partition("://")
    host, slash, path = rest.partition("/")
    return f"{_SCHEMES.get(scheme, scheme)}://{host}{slash}{quote(path)}"


@contextmanager
def opened(folder: str) -> Iterator[tuple[fs.FileSystem, str]]:
    """Arrow's file system of a folder or file, and the path there.

    Raises WrongUse for a folder that Arrow cannot open. An OSError in the block becomes an error as `naming` says.
    """
    with naming(folder):
        yield _located(folder)


# So many programs may remove the same folder at once; each that comes late looks again.
_REMOVERS = 5


def is_read(one: fs.FileInfo, below: str = "") -> bool:
    """Whether readers of Parquet take a file: they pass over what begins with a dot or an underscore, and folders of this.

    By its name, because some servers of objects list folders as files too, as s3proxy does. `below`: the folder's path.
    """
    name = one.path.removeprefix(f"{below}/") if below else one.base_name
    return one.is_file and name.endswith(".parquet") and not any(part[:1] in "._" for part in name.split("/"))


def remove(filesystem: fs.FileSystem, path: str) -> None:
    """Remove a folder or a file, if it exists. Another program may remove it, or what is in it, at the same moment."""
    for _ in range(_REMOVERS):
        kind = filesystem.get_file_info(path).type
        if kind == fs.FileType.NotFound:
            return
        with suppress(FileNotFoundError):
            if kind == fs.FileType.Directory:
                filesystem.delete_dir(path)
            else:
                filesystem.delete_file(path)
            return
    # It says itself what is wrong with a folder that is there and cannot be found.
    filesystem.delete_dir(path)


@contextmanager
def naming(folder: str) -> Iterator[None]:
    """Within this, an OSError becomes Unreachable, with the name of the folder. So does what delta-rs says of a store.

    A full disk becomes DiskFull. A disk that takes no writes, or a bucket that does not take the key, becomes NotAuthorized,
    and a bucket that does not exist becomes WrongUse: no retry helps.
    """
    try:
        yield
    except TidemarkError:
        raise
    except Exception as problem:
        # The library of Delta tables has errors of its own, with the system's words.
        said = str(problem)
        if is_full(said):
            raise DiskFull.of(folder) from problem
        if not isinstance(problem, OSError) and not _OF_STORES.search(said):
            raise
        raise refusal(folder, problem) from problem


def refusal(folder: str, problem: Exception) -> TidemarkError:
    """What a file system's refusal is: NotAuthorized or WrongUse where no retry helps, otherwise Unreachable."""
    said = str(problem)
    if denied := lacks_rights(folder, said):
        return denied
    if any(words in said for words in _KEY_REFUSED):
        return NotAuthorized(f"{folder}: {problem}. {_GIVE_KEY}")
    if any(words in said for words in _NO_BUCKET):
        return WrongUse(f"{folder}: {problem}. Create the bucket, or correct the path of the connection")
    return Unreachable(f"{folder}: {problem}")


def has_mark(base: str) -> bool:
    """Whether a folder of Parquet files has its owner's mark. Whoever writes there puts it there first."""
    return mark_of(base) is not None


def mark_of(base: str) -> str | None:
    """The time of the owner's mark of a folder, in nanoseconds, which tells it from a later one. None: no mark."""
    with opened(base) as (filesystem, path):
        info = filesystem.get_file_info(f"{path}/{OWNER_FILE}")
    return None if info.type == fs.FileType.NotFound else str(info.mtime_ns)


def check_stored(base: str, folder: str) -> None:
    """Raises Unreachable unless a folder that was just written stands where its owner's mark stands.

    Asked before anything counts: see `mounted.FolderMarks`.
    """
    with opened(folder) as (filesystem, path):
        there = filesystem.get_file_info(path).type != fs.FileType.NotFound
    if not there or not has_mark(base):
        what = f"{base} has no mark of its owner" if there else f"{folder} was written, and is not there"
        raise Unreachable(f"{what}: {MEANWHILE}")


_MARKED: ContextVar[frozenset[str]] = ContextVar("marked", default=frozenset())


@contextmanager
def keeping_marks(bases: Iterable[str]) -> Iterator[None]:
    """Within this, nobody gives a new mark to these folders and those below, which have one: see `check_new`."""
    token = _MARKED.set(_MARKED.get() | frozenset(bases))
    try:
        yield
    finally:
        _MARKED.reset(token)


def check_new(base: str) -> None:
    """Called by whoever is about to mark a folder that has no mark. Raises Unreachable for one that had a mark just now.

    Its disk has gone away. A mark in the empty mount point would be taken for the folder's own by a later job, which would
    commit what is gone once the disk is back.
    """
    if any(f"{base}/".startswith(f"{one}/") for one in _MARKED.get()):
        raise Unreachable(f"{base} had the mark of its owner just now, and has none: {MEANWHILE}")


def check_there(
    base: str, records: Iterable[Record], marked: Callable[[str], bool] = has_mark, named: str = "base"
) -> None:
    """Raises Unreachable for a folder without its owner's mark, although committed windows have named it.

    A disk that is not mounted looks like this: its folder is missing or empty, and it may come back with all that it had. So
    nobody may take it for deleted, or begin a new one. `records` are asked for only where there is no mark. Their places have
    the folder under the name `named`.
    """
    if marked(base) or not any(place.place.get(named) == base for record in records for place in record.places):
        return
    # Another run may have made the folder, and committed, while the records were read.
    if marked(base):
        return
    with opened(base) as (filesystem, path):
        there = filesystem.get_file_info(path).type != fs.FileType.NotFound
    what = "has no mark of its owner" if there else "is not there"
    raise Unreachable(f"{base} {what}, and windows have their results in it; its disk may not be mounted")


def path_of(folder: str) -> str:
    """The path of a folder on its file system, as Arrow lists it."""
    with opened(folder) as (_, path):
        return path


def options(folder: str) -> dict[str, str] | None:
    """The storage options with which delta-rs opens a folder."""
    access = access_to(folder)
    return None if access is None else access.for_delta()


@lru_cache(maxsize=16)
def _bucket(access: Access) -> fs.FileSystem:
    if access.endpoint is not None:
        os.environ.setdefault(*_CHECKSUMS)
    return fs.S3FileSystem(**access.for_arrow())


def _located(folder: str) -> tuple[fs.FileSystem, str]:
    if (access := access_to(folder)) is not None:
        return _bucket(access), folder.partition("://")[2]
    try:
        filesystem, path = fs.FileSystem.from_uri(escaped(folder))
    except pa.ArrowInvalid as problem:
        raise WrongUse(
            f"{folder} is not a folder that can be read without Spark: {problem}. Correct the path among the extras of the "
            "connection that the sink names in `files`"
        ) from problem
    return filesystem, path
