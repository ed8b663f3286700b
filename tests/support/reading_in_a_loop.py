"""Another program that reads a lake's table again and again, while Tidemark writes it: each answer is a line of JSON.

    python -m tests.support.reading_in_a_loop delta BASE COLUMN ...
    python -m tests.support.reading_in_a_loop iceberg FILE#CATALOG#TABLE COLUMN ...

It imports nothing of Tidemark. A line is the program's name and the sorted rows; `null` for a table that is not there yet.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.covering import REPOSITORY
from tests.support.waiting import until

Answer = list[list[Any]] | None


def states_seen(answers: Sequence[tuple[str, Answer]], states: Sequence[Answer]) -> set[int]:
    """The numbers of the states that were seen. Raises AssertionError for an answer that is no state, or an earlier one."""
    at, seen = 0, set()
    for program, answer in answers:
        known = [number for number in range(at, len(states)) if states[number] == answer]
        assert known, f"{program} saw {answer}, which is none of {states[at:]}"
        at = known[0]
        seen.add(at)
    return seen


@dataclass
class LoopOfReaders:
    """The process, which runs as long as the context."""

    kind: str
    place: str
    columns: Sequence[str]
    file: Path
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def __enter__(self) -> LoopOfReaders:
        words = [sys.executable, "-m", __name__, self.kind, self.place, *self.columns]
        with self.file.open("wb") as out:
            self._process = subprocess.Popen(words, cwd=REPOSITORY, stdout=out, stderr=subprocess.STDOUT)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def answers(self) -> list[tuple[str, Answer]]:
        """What the programs have answered so far, in order. Raises AssertionError where one of them failed."""
        lines = self.file.read_text().split("\n")[:-1]
        assert all(line.startswith("[") for line in lines), "\n".join(lines[-30:])
        return [tuple(json.loads(line)) for line in lines]

    def wait(self) -> None:
        """Until each program has begun to read after now, and has answered."""
        there = len(self.answers())
        until(lambda: len(self.answers()) >= there + 2 * _PROGRAMS, "the other programs read no more")


class LoopInAThread:
    """A thread that calls `read` again and again as long as the context. A failure of it fails the test."""

    def __init__(self) -> None:
        # How often `read` has come to its end.
        self.done = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._failed: Exception | None = None

    def read(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.set()
        self._thread.join(120)
        assert self._failed is None, self._failed

    def wait(self) -> None:
        """Until everything was read from now on."""
        there = self.done
        until(lambda: self._failed is not None or self.done >= there + 2, "the other programs read no more")
        assert self._failed is None, self._failed

    def _run(self) -> None:
        try:
            while not self._ends.is_set():
                self.read()
                self.done += 1
        except Exception as problem:
            self._failed = problem


_PROGRAMS = 3


def _answers(kind: str, place: str, columns: Sequence[str]) -> Iterator[tuple[str, Answer]]:
    import duckdb
    import polars as pl

    def by_duckdb(files: Sequence[str]) -> Answer:
        named = ", ".join(columns)
        return [[*row] for row in duckdb.sql(f"SELECT {named} FROM read_parquet({files})").fetchall()] if files else []

    if kind == "delta":
        from deltalake import DeltaTable

        while True:
            if not DeltaTable.is_deltatable(place):
                yield "deltalake", None
                continue
            table = DeltaTable(place)
            rows = table.to_pyarrow_table(columns=[*columns]).to_pylist()
            yield "deltalake", [[row[name] for name in columns] for row in rows]
            yield "polars", [[*row] for row in pl.scan_delta(place).select(columns).collect().rows()]
            yield "DuckDB", by_duckdb(DeltaTable(place).file_uris())
    else:
        from pyiceberg.catalog.sql import SqlCatalog
        from pyiceberg.exceptions import NoSuchTableError

        file, catalog, name = place.split("#")
        while True:
            try:
                named = SqlCatalog(catalog, uri=f"sqlite:///{file}").load_table(name)
            except NoSuchTableError:
                yield "pyiceberg", None
                continue
            rows = named.scan(selected_fields=tuple(columns)).to_arrow().to_pylist()
            yield "pyiceberg", [[row[name] for name in columns] for row in rows]
            yield "polars", [[*row] for row in pl.scan_iceberg(named.refresh()).select(columns).collect().rows()]
            yield "DuckDB", by_duckdb([one.file.file_path for one in named.refresh().scan().plan_files()])


if __name__ == "__main__":
    for program, rows in _answers(sys.argv[1], sys.argv[2], sys.argv[3:]):
        print(json.dumps([program, rows and sorted(rows)]), flush=True)
