"""A disk without room, where no job of Spark writes: ledgers in a file, tables of Delta, reports, and what commands print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.disks import Disk, fill, small_disks  # noqa: F401
from tests.support.streams_in_memory import StreamInMemory
from tidemark.audit.levels import Level
from tidemark.cli import stream_lookup
from tidemark.cli.commands import audit as commands
from tidemark.clients.sql import Database
from tidemark.errors import EXIT_FAILED, DiskFull, WrongUse
from tidemark.ledger.stores.doubt import swap_surely
from tidemark.ledger.stores.kind import RequestTimeouts
from tidemark.ledger.stores.sql import SQLLedgerStore
from tidemark.runs import auditing
from tidemark.sinks.delta import table

HEAD, RECORD = ("head", "ingest"), ("history", "ingest", "1")


@pytest.mark.covers("F18")
def test_a_ledger_in_a_file_says_at_once_that_it_has_no_room_and_stays_as_it_was(disk: Disk) -> None:
    """Nothing of a write is there, so nobody has to find out: it is not repeated for a minute."""
    folder = disk("256k")
    store = SQLLedgerStore(
        Database("sqlite", str(folder / "ledger.db")), "tidemark", "orders", None, RequestTimeouts(5.0, 1.0)
    )
    store.prepare()
    assert store.swap(HEAD, None, b"old")
    filling, large = fill(folder), bytes(50_000)
    for write in (
        lambda: swap_surely(store, HEAD, b"old", large, lambda _: False, patience=1.0),
        lambda: store.commit(HEAD, b"old", b"new", RECORD, large, None),
        lambda: store.put(("heartbeat", "ingest"), large),
    ):
        with pytest.raises(DiskFull, match=rf"The disk of SQLite at {folder}/ledger\.db is full.*Make room there"):
            write()
    assert list(store.scan(())) == [(HEAD, b"old")]
    filling.unlink()
    assert store.commit(HEAD, b"old", b"new", RECORD, large, None)
    assert dict(store.scan(())) == {HEAD: b"new", RECORD: large}


@pytest.mark.covers("F18")
def test_a_table_of_delta_on_a_full_disk_is_no_wrong_one(disk: Disk) -> None:
    folder = disk("256k")
    base, said = f"file://{folder}/table", rf"The disk of file://{folder}/table is full"
    for fields in ({"a": "string"}, {"a": "string", "b": "string"}):
        filling = fill(folder)
        with pytest.raises(DiskFull, match=said):
            table.prepare(base, table.columns(fields), "orders", "ledger")
        filling.unlink()
        table.prepare(base, table.columns(fields), "orders", "ledger")
    assert {"a", "b"} < {field.name for field in table.opened(base).schema().fields}


@pytest.mark.covers("F18")
def test_a_report_that_has_no_room_leaves_the_older_page_whole(
    tmp_path: Path,
    disk: Disk,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = StreamInMemory(tmp_path)
    made.ends((0, 3))
    made.ingest()
    auditing.audit_without_spark(made.opened, "run 1", Level.LEDGER)
    monkeypatch.setattr(stream_lookup, "opened", lambda stream: made.opened)
    folder = disk("64k")
    page = folder / "report.html"
    commands.report("orders", "run 1", page)
    whole = page.read_text()
    assert whole.rstrip().endswith("</html>")
    filling = fill(folder)
    # A longer one, which begins where the older one stands.
    monkeypatch.setattr(commands, "page_of", lambda *_: whole * 9)
    with pytest.raises(WrongUse, match=rf"--html {page}: the page cannot be written: No space left on device"):
        commands.report("orders", "run 1", page)
    filling.unlink()
    assert (page.read_text(), [*folder.iterdir()]) == (whole, [page])


@pytest.mark.slow
@pytest.mark.covers("F18")
@pytest.mark.parametrize("asked", [["streams", "schema"], ["--version"], ["--help"]])
def test_a_command_whose_output_has_no_room_says_so(asked: list[str]) -> None:
    program = [sys.executable, "-c", "from tidemark.cli.app import main; main()", *asked]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (EXIT_FAILED, 1)
    assert done.stderr.startswith("tidemark: DiskFull: The disk of what this command prints to is full")
