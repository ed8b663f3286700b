"""The steps of a Parquet compaction, also while windows are written and read; who rewrites the rows is given.

    1 claimed    from now on, earlier compactions can replace nothing
    2 written    a new folder has the rows that count in the old folders
    3 verified   the new folder was read back, and has the same rows
    4 replaced   one compare-and-set: the new folder counts instead of the old ones
    5 removed    the old folders, and what killed compactions have left
    6 finished   the claim is released

After a crash at any step, run the compaction again. A folder is removed only when its replacement counts. A folder that
the ledger does not name counts for no reader.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum

from msgspec import structs

from tidemark.errors import WrongUse
from tidemark.ledger.ledger import Ledger
from tidemark.sinks.contract import CompactionRequest, SinkContext
from tidemark.sinks.parquet import compacting, compactions, folders
from tidemark.sinks.parquet import files as parquet_files
from tidemark.sinks.parquet.compactions import CompactedFolder, spans
from tidemark.sinks.parquet.parts import FolderPart, parts

log = logging.getLogger(__name__)

_MAX_ROWS = 2**63 - 1


class CompactionStep(StrEnum):
    """The step that the compaction has just done."""

    CLAIMED = "claimed"
    WRITTEN = "written"
    VERIFIED = "verified"
    REPLACED = "replaced"
    REMOVED = "removed"
    FINISHED = "finished"


Listener = Callable[[CompactionStep], None]
# Steps 2 and 3: writes the rows that count in some folders into a new folder, and returns their number.
Rewrite = Callable[[Sequence[FolderPart], str, Listener], int]


def nobody(step: CompactionStep) -> None:
    """A listener that ignores all steps."""


def compact(
    opened: SinkContext,
    sink: compacting.Folders,
    run: str,
    asked: CompactionRequest,
    rewrite: Rewrite,
    on_step: Listener = nobody,
) -> list[CompactedFolder]:
    """Compact what is asked for, and finish what an earlier compaction left; returns the new folders.

    Raises Fenced when another compaction of the sink has begun meanwhile, and WrongUse for a sink under a new name.
    Also raises what `rewrite` raises, TooLarge, OwnedByAnother.
    """
    ledger = opened.ledger
    base = sink.base(opened.connections)
    register = ledger.register()
    if register is None:
        raise WrongUse(f"{ledger.stream} has not been read yet: there is nothing to compact")
    marked = [base] if folders.has_mark(base) else []
    folders.check_there(base, (window.record for window in ledger.committed()))
    with folders.keeping_marks(marked):
        parquet_files.own(base, ledger.stream, register[1].ledger, sink.name)

    def heard(step: CompactionStep) -> None:
        log.info("compaction of %s/%s: %s", ledger.stream, sink.name, step.value)
        on_step(step)

    held = compactions.claim(ledger, sink.name, run)
    heard(CompactionStep.CLAIMED)
    view = ledger.view(sink.name)
    with _unless_fenced(ledger, held):
        chosen = compacting.choose(parts(view.windows, view.authority, sink.name, held.value, sink.type), base, asked)
        groups = compacting.groups(chosen)
    made: list[CompactedFolder] = []
    for number, group in enumerate(groups, 1):
        folder = _planned(opened, held, base, number, group)
        compactions.check_room(ledger, compactions.replaced(held, structs.replace(folder, rows=_MAX_ROWS)))
        with _unless_fenced(ledger, held):
            rows = rewrite(group, folder.folder, heard)
            # What it replaces is removed afterwards.
            folders.check_stored(base, folder.folder)
        made.append(structs.replace(folder, rows=rows))
        held = compactions.replace(ledger, held, made[-1])
        heard(CompactionStep.REPLACED)
    # A ledger that took the place of this one meanwhile may name what is removed.
    with folders.keeping_marks([base]):
        parquet_files.own(base, ledger.stream, register[1].ledger, sink.name)
    compacting.remove_replaced(ledger, held.value, base, _claim(held).generation)
    heard(CompactionStep.REMOVED)
    compactions.finish(ledger, held)
    heard(CompactionStep.FINISHED)
    return made


@contextmanager
def _unless_fenced(ledger: Ledger, held: compactions.StoredCompactions) -> Iterator[None]:
    """Whatever fails in the block does so as Fenced where another compaction has begun: it removes folders."""
    try:
        yield
    except Exception:
        compactions.check_held(ledger, held)
        raise


def _claim(held: compactions.StoredCompactions) -> compactions.Claim:
    if held.value.claim is None:
        raise ValueError("nobody holds this compaction")
    return held.value.claim


def _planned(
    opened: SinkContext, held: compactions.StoredCompactions, base: str, number: int, group: Sequence[FolderPart]
) -> CompactedFolder:
    claim = _claim(held)
    return CompactedFolder(
        base=base,
        folder=parquet_files.attempt_folder(base, parquet_files.COMPACTED, number, claim.generation),
        generation=claim.generation,
        windows=spans(name for part in group for name in part.names),
        rows=0,
        run=claim.run,
        at=opened.ledger.clock(),
    )
