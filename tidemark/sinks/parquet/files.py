"""Folders of Parquet results: one for each window and attempt, or a compacted one for several windows.

    BASE/_tidemark_owner.json
    BASE/lane=LANE/seq=NUMBER/generation=GENERATION/[by_FIELD=.../...]part-*.parquet
    BASE/lane=compacted/seq=NUMBER/generation=GENERATION/[by_FIELD=.../...]part-*.parquet

One attempt, or one compaction, writes a folder once. Columns that begin with an underscore are Tidemark's.
The files have all columns, so readers take nothing from the names of folders.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs

from tidemark.errors import LedgerContradiction, WrongUse
from tidemark.ledger.records import Record
from tidemark.offsets.authority import Authority
from tidemark.offsets.hashing import partition_seed
from tidemark.offsets.hashing_arrays import offset_hashes, row_hashes
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.offsets.tallies import Acknowledged, Acknowledgements, Count
from tidemark.sinks.contract import Erasing, gone_of_dead
from tidemark.sinks.owners import check_owner
from tidemark.sinks.parquet import folders, marking, rewriting, types
from tidemark.sinks.parquet.compactions import described, spans
from tidemark.sinks.parquet.parts import TYPE, FolderPart
from tidemark.types.renamed_fields import NEVER, Names, by_today

__all__ = ["TYPE", "WINDOW_COLUMNS"]

# In a compacted folder: the window that wrote a row, and its generation.
GENERATION = "_generation"
WINDOW_COLUMNS = ("_lane", "_seq", GENERATION)
# Stands for the lane in the folder's name. No lane has this name.
COMPACTED = "compacted"
COORDINATE = ("_topic", "_incarnation", "_partition", "_offset")
# The columns by which rows are counted.
_COUNTED = (*COORDINATE, "_index", "_digest")
# Spark's times have microseconds. Read as nanoseconds, times before 1678 or after 2262 would become other times.
FORMAT = ds.ParquetFileFormat(coerce_int96_timestamp_unit="us")
# A topic's name is read once, and rows have its number.
_TOPICS_ONCE = ds.ParquetFileFormat(dictionary_columns=["_topic"])
# The folder of an attempt, in a path below the base.
_ATTEMPT = re.compile(r"/lane=([^/]+)/seq=(\d+)/generation=(\d+)(?=/)")
# How many rows are in memory at a time.
_AT_A_TIME = 20_000
# How often files are listed anew where another program has removed one of them since.
_LOOKS = 5
# Whether a file has some rows, or says what they have; None of one that is gone.
Holding = Callable[[str], bool | None]


def _window_folder(base: str, lane: str, seq: int) -> str:
    return f"{base}/lane={lane}/seq={seq:09d}"


def attempt_folder(base: str, lane: str, seq: int, generation: int) -> str:
    return f"{_window_folder(base, lane, seq)}/generation={generation}"


def exists(folder: str) -> bool:
    with folders.opened(folder) as (filesystem, path):
        return bool(filesystem.get_file_info(path).type != fs.FileType.NotFound)


def delete(folder: str) -> None:
    """Remove a folder, if it exists."""
    with folders.opened(folder) as (filesystem, path):
        folders.remove(filesystem, path)


def held(most_bytes: int, *paths: str) -> Acknowledgements | None:
    """The rows of some folders or files, read without Spark. None if they are larger than `most_bytes`.

    The rows are read and counted in batches, so memory does not grow with the files.
    """
    listed: list[tuple[str, ds.Dataset]] = []
    for place in paths:
        with folders.opened(place) as (filesystem, path):
            dataset = dataset_at(filesystem, path, _TOPICS_ONCE)
            most_bytes -= sum(_sizes(filesystem, dataset.files))
            if most_bytes < 0:
                return None
            listed.append((place, dataset))
    sums: dict[TopicPartition, list[int]] = {}
    for place, dataset in listed:
        with folders.naming(place):
            # File by file: over all files at once, Arrow reads far ahead, and keeps the memory of it.
            for file in dataset.get_fragments():
                for batch in file.to_batches(columns=list(_COUNTED), batch_size=_AT_A_TIME, batch_readahead=2):
                    _count(batch, sums)
    return {
        at: Acknowledged(Count.of(messages, messages_ack), Count.of(written, written_ack), f"{content:016x}")
        for at, (messages, messages_ack, written, written_ack, content) in sums.items()
    }


def _sizes(filesystem: fs.FileSystem, paths: list[str]) -> Iterator[int]:
    """In bytes. Raises FileNotFoundError for a file that was removed since it was listed, as by a sweep of a later attempt."""
    for one in filesystem.get_file_info(paths):
        if one.type != fs.FileType.File:
            raise FileNotFoundError(f"{one.path} was removed while it was counted")
        yield one.size


def _count(batch: pa.RecordBatch, sums: dict[TopicPartition, list[int]]) -> None:
    """Add to the sums of each partition: messages, the XOR of their hashes, rows, the XORs of their hashes and digests."""
    if not batch.num_rows:
        return
    topics = batch.column("_topic")
    numbers, incarnations, partitions, offsets, indexes, digests = (
        one.to_numpy(zero_copy_only=False) for one in (topics.indices, *batch.columns[1:])
    )
    order = np.lexsort((partitions, incarnations, numbers))
    places = np.stack([numbers[order], incarnations[order], partitions[order]])
    starts = np.concatenate([[0], np.flatnonzero((np.diff(places) != 0).any(axis=0)) + 1])
    counted = [
        TopicPartition(topics.dictionary[int(number)].as_py(), int(partition), int(incarnation))
        for number, incarnation, partition in places[:, starts].T
    ]
    lengths = np.diff([*starts, batch.num_rows])
    seeds = np.repeat(np.array([partition_seed(at) for at in counted], dtype=np.uint64), lengths)
    messages = offset_hashes(seeds, offsets[order])
    rows = row_hashes(messages, indexes[order])
    first = indexes[order] == 0
    columns = zip(
        np.add.reduceat(first, starts, dtype=np.int64),
        np.bitwise_xor.reduceat(np.where(first, messages, np.uint64(0)), starts),
        lengths,
        np.bitwise_xor.reduceat(rows, starts),
        np.bitwise_xor.reduceat(digests[order].view(np.uint64), starts),
        strict=True,
    )
    for at, (number, ack, written, written_ack, content) in zip(counted, columns, strict=True):
        so_far = sums.setdefault(at, [0, 0, 0, 0, 0])
        so_far[0] += int(number)
        so_far[1] ^= int(ack)
        so_far[2] += int(written)
        so_far[3] ^= int(written_ack)
        so_far[4] ^= int(content)


def own(base: str, stream: str, ledger: str, sink: str) -> None:
    """Mark a base folder with this stream and the name of the sink. Readers find the windows by that name.

    Raises what `check_owner` and `marking.mark` raise, and WrongUse when the folder belongs to a sink of another name.
    """
    mine = {"stream": stream, "ledger": ledger, "sink": sink}
    if not (mark := owner(base)):
        folders.check_new(base)
        marking.mark(base, folders.OWNER_FILE, mine)
        mark = owner(base)
    if check_owner(base, mark, stream, ledger):
        take_over(base, ledger)
    if mark.get("sink") != sink:
        raise WrongUse(
            f"{base} has the results of sink {mark.get('sink')}, and the stream file now has it for sink {sink}. Results are "
            "found by the name of their sink: give it that name again, or name another folder and fill it by a replay."
        )


def owner(base: str) -> dict[str, str]:
    """Whose a base folder is, as `own` has marked it; empty while it has no mark."""
    with folders.opened(base) as (filesystem, path):
        names = [f"{path}/{name}" for name in (folders.OWNER_FILE, folders.LEDGER_FILE)]
        mark, later = filesystem.get_file_info(names)
        if mark.type == fs.FileType.NotFound:
            return {}
        said = dict(json.loads(_read(filesystem, mark.path)))
        if later.type != fs.FileType.NotFound:
            said |= json.loads(_read(filesystem, later.path))
        return said


def take_over(base: str, ledger: str) -> None:
    """Write another ledger of its stream into the mark of a base folder."""
    with folders.opened(base) as (filesystem, path):
        beside = f"{path}/{folders.LEDGER_FILE}-{secrets.token_hex(8)}"
        with filesystem.open_output_stream(beside) as out:
            out.write(json.dumps({"ledger": ledger}).encode())
        filesystem.move(beside, f"{path}/{folders.LEDGER_FILE}")


def _read(filesystem: fs.FileSystem, path: str) -> bytes:
    with filesystem.open_input_stream(path) as stored:
        return bytes(stored.read())


def sweep(base: str, record: Record) -> None:
    """Remove the folders that older attempts at the same window left."""
    with folders.opened(_window_folder(base, record.lane, record.seq)) as (filesystem, path):
        for info in filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True)):
            name, _, number = info.base_name.partition("=")
            if name == "generation" and number.isdecimal() and int(number) < record.attempt.generation:
                folders.remove(filesystem, info.path)


@dataclass(frozen=True)
class AttemptFolder:
    """A folder of one attempt, or of one compaction, as it lies on the file system."""

    folder: str
    lane: str
    seq: int
    generation: int

    @property
    def compacted(self) -> bool:
        return self.lane == COMPACTED


def on_disk(base: str) -> list[AttemptFolder]:
    """The folders below a base, whoever has written them, and whether they count or not."""
    return list(by_attempt(base))


def by_attempt(base: str) -> dict[AttemptFolder, list[str]]:
    """The folders below a base, each with the files in it that readers of Parquet take, named as the base is."""
    by_folder: dict[AttemptFolder, list[str]] = {}
    with folders.opened(base) as (filesystem, path):
        # One listing: an object store takes as long for each folder.
        listed = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True))
        for one in sorted(listed, key=lambda one: str(one.path)):
            below = one.path.removeprefix(path)
            if one.type == fs.FileType.File and (named := _ATTEMPT.match(below)) is not None:
                lane, seq, generation = named.groups()
                there = by_folder.setdefault(
                    AttemptFolder(f"{base}{named.group(0)}", lane, int(seq), int(generation)), []
                )
                if folders.is_read(one) and below.count("/") == named.group(0).count("/") + 1:
                    there.append(f"{base}{below}")
    return by_folder


def attempt_of(folder: str) -> AttemptFolder | None:
    """The attempt that a folder is of, by its name; None for a folder with another one."""
    named = _ATTEMPT.search(f"{folder}/")
    return None if named is None else AttemptFolder(folder, named[1], int(named[2]), int(named[3]))


def window_of(base: str, file: str) -> tuple[str, int]:
    """The lane and the number of the window whose attempt has written a file below a base."""
    named = _ATTEMPT.match(file.removeprefix(base))
    if named is None:
        raise LedgerContradiction(f"{file} lies in no folder of an attempt")
    return named[1], int(named[2])


def erase_dead(base: str, erasing: Erasing) -> None:
    """Remove the folders with erased rows that dead attempts have left.

    No later attempt has their names, so no sweep comes to them.
    """
    for folder in left_by_dead(base, [erasing]):
        delete(folder)


def left_by_dead(base: str, done: Sequence[Erasing]) -> Iterator[str]:
    """The folders that `erase_dead` removes, of any of some erasures."""
    for one in on_disk(base):
        if not one.compacted and (erased := gone_of_dead(done, one.generation)) and holds(one.folder, erased):
            yield one.folder


def left_by_committed(base: str, done: Sequence[Erasing]) -> Iterator[str]:
    """The folders of committed windows with rows that some erasures have taken."""
    committed = [({window.generation for window in one.standing.windows}, one.erased) for one in done]
    for folder in on_disk(base):
        gone = RangeSet(part for known, erased in committed if folder.generation in known for part in erased)
        if gone and holds(folder.folder, gone):
            yield folder.folder


def of_attempt(folder: str) -> list[tuple[fs.FileSystem, str]]:
    """The files of a folder whose attempt has ended, each with its file system."""
    with folders.opened(folder) as (filesystem, path):
        listed = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return [(filesystem, one.path) for one in sorted(listed, key=lambda one: str(one.path)) if folders.is_read(one)]


def rewrite_without(folder: str, erased: RangeSet) -> None:
    """Write the files of a folder again without the rows of some offsets, those that have such rows. Repeatable.

    A file is replaced in one step, so a reader meets the old one or the new one.
    """
    for filesystem, path in of_attempt(folder):
        above, _, name = path.rpartition("/")
        beside = f"{above}/_erasing-{name}"
        copy = rewriting.copied_without(
            f"{folder}/{name}",
            COORDINATE,
            partial(are_in, wanted=erased),
            partial(str, beside),
            filesystem.open_output_stream,
        )
        if copy is None:
            continue
        with folders.naming(folder):
            # Hadoop's checksum of the old file, which would be taken for that of the new one.
            folders.remove(filesystem, f"{above}/.{name}.crc")
            if copy:
                filesystem.move(beside, path)
            else:
                filesystem.delete_file(path)


def are_in(batch: pa.RecordBatch, wanted: RangeSet) -> np.ndarray:
    """Whether each row of a batch is at one of some offsets."""
    topics, incarnations, partitions, offsets = (
        batch.column(name).to_numpy(zero_copy_only=False) for name in COORDINATE
    )
    found = np.zeros(batch.num_rows, dtype=bool)
    for at in wanted.partitions:
        here = (partitions == at.partition) & (incarnations == at.incarnation) & (topics == at.topic)
        if not here.any():
            continue
        starts, untils = np.array(wanted.of(at), dtype=np.int64).T
        # -1 for an offset before the first range.
        nearest = np.searchsorted(starts, offsets, side="right") - 1
        found |= here & (nearest >= 0) & (offsets < untils[nearest])
    return found


def schema_of_file(part: FolderPart) -> pa.Schema:
    """The columns of the first file of a folder; none if it has no files."""
    with folders.opened(part.paths[0]) as (filesystem, path):
        return dataset_at(filesystem, path).schema


def tables_that_count(
    parts: Iterable[FolderPart], authority: Authority, was: Names | None = None
) -> Iterator[pa.Table]:
    """The rows that count, a table for each folder that has any, in the order of the folders.

    `was`: the older names of fields; None: those that are noted in the folder. Raises LedgerContradiction when a folder is
    missing.
    """
    counts, names = Counts(authority), lru_cache(types.names_of)
    for part in parts:
        if not part.holds:
            continue
        table = _table(part, names(part.base) if was is None else was)
        if part.compacted:
            generations = table.column(GENERATION).to_numpy()
        else:
            generations = np.full(table.num_rows, part.windows[0].generation)
        kept = table.filter(pa.array(counts.of(table, generations)))
        if kept.num_rows:
            # A file of an Iceberg table has the generation alone.
            named = [name for name in WINDOW_COLUMNS if name in kept.column_names]
            yield kept.drop_columns(named) if part.compacted else kept


def holds_erased(part: FolderPart) -> bool:
    """Whether a folder's files have rows of offsets that were erased. Reads their coordinates, if any were erased."""
    return holds(part.folder, part.erased)


def holds(folder: str, wanted: RangeSet) -> bool:
    """Whether a file, or those of a folder, have rows of some offsets. One that cannot be read, as a kill leaves it, may."""
    if not wanted:
        return False
    with folders.opened(folder) as (filesystem, path):
        for _ in range(_LOOKS):
            with suppress(FileNotFoundError):
                return _holds_now(filesystem, path, wanted)
            # Another program has removed a file since it was listed, as a compaction does: what is gone holds nothing.
        return _holds_now(filesystem, path, wanted)


def _holds_now(filesystem: fs.FileSystem, path: str, wanted: RangeSet) -> bool:
    here = filesystem.get_file_info(path)
    inside = fs.FileSelector(path, allow_not_found=True, recursive=True)
    listed = [here] if here.type == fs.FileType.File else filesystem.get_file_info(inside)
    # Also those below `_temporary`, which no reader takes: Spark moves files out of it when a task ends.
    files = [one.path for one in listed if one.type == fs.FileType.File and one.path.endswith(".parquet")]
    try:
        return bool(files) and _have(ds.dataset(files, filesystem=filesystem, format=FORMAT), wanted)
    except pa.ArrowInvalid:
        return True


def _have(there: ds.FileSystemDataset, wanted: RangeSet) -> bool:
    dataset = uniform(there)
    for at in wanted.partitions:
        (hull,) = wanted.only([at]).hull()
        batches = dataset.to_batches(columns=[*COORDINATE], filter=is_within(hull), batch_size=_AT_A_TIME)
        if any(are_in(batch, wanted).any() for batch in batches):
            return True
    return False


def is_within(wanted: OffsetRange) -> pc.Expression:
    """Whether a row is of one of some offsets: files and parts of files whose statistics say no are not read."""
    at = wanted.partition
    return (
        # As a text: what a file says of a column of views cannot be compared with one.
        (pc.field("_topic").cast(pa.string()) == at.topic)
        & (pc.field("_incarnation") == at.incarnation)
        & (pc.field("_partition") == at.partition)
        & (pc.field("_offset") >= wanted.start)
        & (pc.field("_offset") < wanted.until)
    )


def check_not_gone(part: FolderPart, place: str, filesystem: fs.FileSystem, path: str) -> None:
    """Raises LedgerContradiction when one of a part's folders is not there."""
    if filesystem.get_file_info(path).type == fs.FileType.NotFound:
        raise LedgerContradiction(
            f"{place} is gone, and {described(spans(part.names))} have their results there. "
            "Replay their offsets to write them again."
        )


def _table(part: FolderPart, was: Names = NEVER) -> pa.Table:
    tables = []
    for place in part.paths:
        with folders.opened(place) as (filesystem, path):
            check_not_gone(part, place, filesystem, path)
            dataset = dataset_at(filesystem, path)
            table = dataset.to_table().cast(alike(dataset))
            tables.append(table.rename_columns([*by_today(was, dict.fromkeys(table.column_names))]))
    # One of several files may have been rewritten after a change of the columns.
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="permissive")


_LOCAL, _ZONED = pa.timestamp("us"), pa.timestamp("us", "UTC")


def dataset_at(
    filesystem: fs.FileSystem, path: str, file_format: ds.ParquetFileFormat = FORMAT
) -> ds.FileSystemDataset:
    """One file, or those of a folder and of the folders within it that readers take."""
    if path.endswith(".parquet"):
        return ds.dataset(path, filesystem=filesystem, format=file_format)
    listed = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
    names = sorted(one.path for one in listed if folders.is_read(one, path))
    return ds.dataset(names, schema=None if names else pa.schema([]), filesystem=filesystem, format=file_format)


def uniform(dataset: ds.FileSystemDataset) -> ds.FileSystemDataset:
    """The same files, with the types that all files of ours have."""
    return ds.dataset(dataset.files, schema=alike(dataset), filesystem=dataset.filesystem, format=FORMAT)


def alike(dataset: ds.FileSystemDataset) -> pa.Schema:
    """The schema with the types that all files of ours have, whoever wrote them and when."""
    schema = dataset.schema
    local = [one.name for one in schema if one.type == _LOCAL]
    if local:
        # The times of older files (INT96) have no zone. They are in UTC. Arrow tells them from times that have none by
        # their unit, where it is not told to take microseconds.
        unmarked = ds.dataset(dataset.files[:1], filesystem=dataset.filesystem, format="parquet").schema
        local = [name for name in local if unmarked.field(name).type == _LOCAL]
    return pa.schema(
        [
            one.with_type(_ZONED if one.type == _LOCAL and one.name not in local else rewriting.without_views(one.type))
            for one in schema
        ]
    )


class Counts:
    """Looks up which rows count. The segments of a partition become arrays once, however many folders are looked up."""

    def __init__(self, authority: Authority) -> None:
        self._authority = authority
        self._arrays: dict[TopicPartition, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def of(self, table: pa.Table, generations: np.ndarray) -> np.ndarray:
        """Whether each row has the generation that counts at its coordinate."""
        counting = np.zeros(table.num_rows, dtype=bool)
        offsets = table.column("_offset").to_numpy()
        incarnations = table.column("_incarnation").to_numpy()
        partitions = table.column("_partition").to_numpy()
        topics = table.column("_topic").to_numpy()
        for at in self._authority.partitions:
            here = (partitions == at.partition) & (incarnations == at.incarnation) & (topics == at.topic)
            if not here.any():
                continue
            starts, untils, counts = self._segments(at)
            # -1 for an offset before the first segment.
            before = np.searchsorted(starts, offsets, side="right") - 1
            counting |= here & (before >= 0) & (offsets < untils[before]) & (generations == counts[before])
        return counting

    def _segments(self, at: TopicPartition) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if at not in self._arrays:
            starts, untils, generations = np.array(self._authority.segments(at), dtype=np.int64).T
            self._arrays[at] = starts, untils, generations
        return self._arrays[at]
