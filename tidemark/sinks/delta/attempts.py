"""The steps of an attempt on a Delta table, whoever writes its files."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidemark.sinks.delta import table
from tidemark.sinks.parquet import files


def store(
    base: str,
    versions: str,
    window: tuple[str, int],
    generation: int,
    check: Callable[[], None],
    write: Callable[[str], None],
) -> Sequence[str]:
    """Have the files written to the generation's folder, and add them to the table. Returns those that the table has then.

    `versions`: see `table.versions_of`. `window`: lane and number. `check` raises Fenced when the attempt has lost its window.
    """
    lane, seq = window
    check()
    write(table.partition_folder(base, generation))
    check()
    table.add(base, f"{versions}/{lane}", generation, f"{lane}/{seq}")
    # What the table holds, not what was written: `add` may have skipped this version.
    return held(base, generation)


def held(base: str, generation: int) -> Sequence[str]:
    """The files that the table has of an attempt."""
    return table.files_of(base).get(generation, ())


def discard(base: str, window: tuple[str, int], generation: int) -> None:
    """Remove what an attempt that never counts has written."""
    lane, seq = window
    if not table.remove(base, generation, f"{lane}/{seq}"):
        files.delete(table.partition_folder(base, generation))
