"""A new folder that several streams want at the same moment: one of them has it, and the others are told so."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from pyarrow import fs

from tidemark.errors import Conflict, OwnedByAnother
from tidemark.sinks.delta import table
from tidemark.sinks.parquet import files, folders, marking

STREAMS = ("orders", "clicks", "payments", "logs")


def taking(own: Callable[[str, str], object], base: str) -> list[str]:
    """Those of the streams that were let in, of all that try at the same moment."""
    together = Barrier(len(STREAMS))

    def take(stream: str) -> bool:
        together.wait()
        try:
            own(base, stream)
        except (OwnedByAnother, Conflict):
            return False
        return True

    with ThreadPoolExecutor(len(STREAMS)) as pool:
        return [stream for stream, taken in zip(STREAMS, pool.map(take, STREAMS), strict=True) if taken]


def own_folder(base: str, stream: str) -> None:
    files.own(base, stream, f"ledger of {stream}", "files")


def own_table(base: str, stream: str) -> None:
    table.prepare(base, table.columns({"id": "string"}), stream, f"ledger of {stream}")


class LateMessages:
    """A file system on which each waits, once, for all others, after it has seen that nobody has the folder."""

    def __init__(self, real: fs.FileSystem) -> None:
        self._real = real
        self._together = Barrier(len(STREAMS))

    def create_dir(self, *words: Any, **more: Any) -> None:
        self._together.wait()
        self._real.create_dir(*words, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@pytest.fixture
def no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without a step that fails where a file is already: as a store of objects."""
    there = LateMessages(fs.SubTreeFileSystem("/", fs.LocalFileSystem()))
    monkeypatch.setattr(folders, "_located", lambda folder: (there, folder.removeprefix("file://")))


@pytest.mark.parametrize("own", [own_folder, own_table])
def test_one_of_many_streams_has_a_new_place(tmp_path: Path, own: Callable[[str, str], object]) -> None:
    # Of tables, one in thirty had two owners when the library was left to retry.
    for number in range(60):
        (winner,) = taking(own, f"file://{tmp_path}/{number}")
    own(base := f"file://{tmp_path}/{number}", winner)
    for other in {*STREAMS} - {winner}:
        with pytest.raises(OwnedByAnother, match=f"belongs to stream {winner}"):
            own(base, other)
    assert not list(tmp_path.glob("*/_tidemark_owner-*"))


@pytest.mark.usefixtures("no_links")
def test_no_two_have_a_folder_in_a_store_without_such_a_step(tmp_path: Path) -> None:
    for number in range(20):
        base = f"file://{tmp_path}/{number}"
        taken = taking(own_folder, base)
        assert len(taken) <= 1, taken
        assert taken in ([], [files.owner(base).get("stream")])


def test_who_has_died_while_it_took_a_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fs.SubTreeFileSystem("/", fs.LocalFileSystem())
    monkeypatch.setattr(folders, "_located", lambda folder: (real, folder.removeprefix("file://")))
    left = tmp_path / "_tidemark_owner-0123456789abcdef.json"
    left.write_text(json.dumps({"stream": "clicks", "ledger": "ledger of clicks", "sink": "files"}))
    base = f"file://{tmp_path}"
    with pytest.raises(
        Conflict, match=rf"another stream takes this folder at the same moment.* see whose .*{left.name} is"
    ):
        own_folder(base, "orders")
    assert files.owner(base) == {}
    # It does not stand in its own way.
    own_folder(base, "clicks")
    with pytest.raises(OwnedByAnother, match="belongs to stream clicks"):
        own_folder(base, "orders")


def test_a_mark_that_is_there_stays(tmp_path: Path) -> None:
    own_folder(f"file://{tmp_path}", "orders")
    marking.mark(f"file://{tmp_path}", "_tidemark_owner.json", {"stream": "clicks"})
    assert files.owner(f"file://{tmp_path}")["stream"] == "orders"
