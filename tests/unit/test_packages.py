"""Sinks, schemes and ledgers of packages of one's own: a wrong one concerns the streams that name it, and no others."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.covering import REPOSITORY
from tests.support.packages import installed
from tests.support.stream_text import MINIMAL


@dataclass(frozen=True)
class Guide:
    """A page with a package, a stream that uses it, and the line of the stream file that an error names."""

    page: Path
    package: str
    type: str
    stream: str
    place: str


SINK = Guide(
    REPOSITORY / "docs" / "adding-a-sink.md",
    "json_lines",
    "json_lines",
    MINIMAL.replace("- type: hbase\n    table: orders", "- type: json_lines\n    folder: orders"),
    "9: sinks.0",
)
SCHEME = Guide(
    REPOSITORY / "docs" / "adding-a-scheme.md",
    "long_scheme",
    "long",
    MINIMAL.replace("type: json\n  fields:\n    id: integer", "type: long"),
    "4: scheme",
)
LEDGER = Guide(
    REPOSITORY / "docs" / "adding-a-ledger.md",
    "sqlite_ledger",
    "sqlite",
    f"{MINIMAL}ledger:\n  type: sqlite\n",
    "13: ledger",
)
GUIDES = (SINK, SCHEME, LEDGER)
# A stream of no package.
OTHER = MINIMAL.replace("stream: orders", "stream: others")


def python(packages: Path, *words: str, code: int = 0) -> str:
    """What a new process says; the packages are installed there."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (packages, REPOSITORY)))}
    ran = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == code, ran.stderr
    return ran.stdout + ran.stderr


def check(folder: Path, packages: Path, stream: str, code: int = 2) -> str:
    """`tidemark streams check` on a stream, and on one that names nothing of a package: that is always taken."""
    (folder / "mine.yaml").write_text(stream)
    (folder / "others.yaml").write_text(OTHER)
    words = ("-m", "tidemark", "streams", "check", str(folder / "mine.yaml"), str(folder / "others.yaml"))
    said = python(packages, *words, code=code)
    assert f"{folder / 'others.yaml'}: stream others" in said
    return said


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.type)
def test_the_packages_of_the_guides_are_taken(tmp_path: Path, guide: Guide) -> None:
    said = check(tmp_path, installed(guide.page, tmp_path / "site"), guide.stream, code=0)
    assert f"{tmp_path / 'mine.yaml'}: stream orders" in said


LINES = 'type: Literal["json_lines"]'
SQLITE = 'type: Literal["sqlite"]'
WRONG = {
    "a sink of another type": (SINK, LINES, 'type: Literal["parquet"]', "type has to be Literal['json_lines']"),
    "a sink's type of its own name": (SINK, LINES, 'type: Literal["lines"]', "type has to be Literal['json_"),
    "a sink without a type": (SINK, LINES, "type: str", "type has to be Literal['json_lines']"),
    "a sink without settings": (
        SINK,
        "Kind(JsonLinesSink,",
        "Kind(dict,",
        "are no class below tidemark.sinks.contract",
    ),
    "an unfinished sink": (SINK, "(FolderSettings)", "(SinkSettings)", "JsonLinesSink lacks connection"),
    "no kind of sink": (
        SINK,
        "KIND = Kind(",
        "KIND = print(",
        "expected a tidemark.sinks.contract.Kind, found NoneType",
    ),
    "a sink that ends": (SINK, "class JsonLinesSink", 'raise SystemExit("no VARIABLE")\n\n\nclass J', "no VARIABLE"),
    "a sink with unknown names": (SINK, "    name: Name", "    more: Unheard\n    name: Name", "Unheard"),
    "a ledger of another type": (LEDGER, SQLITE, 'type: Literal["hbase"]', "type has to be Literal['sqlite']"),
    "a ledger's type of its own name": (LEDGER, SQLITE, 'type: Literal["lite"]', "type has to be Literal['sqlite']"),
    "a ledger without a type": (LEDGER, SQLITE, "type: str", "type has to be Literal['sqlite']"),
    "a ledger without settings": (
        LEDGER,
        "Kind(SQLiteLedger,",
        "Kind(dict,",
        "are no class below tidemark.ledger.contract",
    ),
    "an unfinished ledger": (LEDGER, "def connection(", "def connected(", "SQLiteLedger lacks connection"),
    "no kind of ledger": (
        LEDGER,
        "KIND = LedgerKind(",
        "KIND = print(",
        "expected a tidemark.ledger.contract.LedgerKind",
    ),
    "a ledger that ends": (LEDGER, "class SQLiteLedger", 'raise SystemExit("no VARIABLE")\n\n\nclass S', "no VARIABLE"),
    "a ledger with unknown names": (LEDGER, "    sqlite: C", "    more: Unheard\n    sqlite: C", "Unheard"),
}


@pytest.mark.parametrize(("guide", "old", "new", "said"), WRONG.values(), ids=WRONG)
def test_a_package_that_is_no_use_is_refused_where_it_is_named(
    tmp_path: Path, guide: Guide, old: str, new: str, said: str
) -> None:
    packages = installed(guide.page, tmp_path / "site")
    settings = packages / guide.package / "settings.py"
    text = settings.read_text().replace(
        "from tidemark.sinks.contract import Kind", "from tidemark.sinks.contract import Kind, SinkSettings"
    )
    assert old in text
    settings.write_text(text.replace(old, new))
    found = check(tmp_path, packages, guide.stream)
    assert f"{tmp_path / 'mine.yaml'}:{guide.place}" in found
    assert f"the type {guide.type}: {guide.package}.settings:KIND cannot be loaded: " in found
    assert said in found


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.type)
def test_two_packages_with_one_type_are_refused(tmp_path: Path, guide: Guide) -> None:
    packages = installed(guide.page, tmp_path / "site")
    again = packages / "again-1.0.dist-info"
    again.mkdir()
    (again / "METADATA").write_text("Metadata-Version: 2.1\nName: again\nVersion: 1.0\n")
    (again / "entry_points.txt").write_text((packages / "guide-1.0.dist-info" / "entry_points.txt").read_text())
    assert "two packages bring this type" in check(tmp_path, packages, guide.stream)


RAISING = {
    "sink": (SINK, '    name: Name = "json_lines"', "    def problem_with(self, others):"),
    "ledger": (LEDGER, '    sqlite: ConnectionName = "sqlite_default"', "    def tables(self):"),
}


@pytest.mark.parametrize(("guide", "line", "method"), RAISING.values(), ids=RAISING)
def test_a_package_that_fails_at_a_stream_file_fails_at_no_other(
    tmp_path: Path, guide: Guide, line: str, method: str
) -> None:
    packages = installed(guide.page, tmp_path / "site")
    settings = packages / guide.package / "settings.py"
    raising = f'{line}\n\n{method}\n        raise KeyError("x")\n'
    settings.write_text(settings.read_text().replace(f"{line}\n", raising))
    assert f"{tmp_path / 'mine.yaml'}: KeyError: 'x'" in check(tmp_path, packages, guide.stream)


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.type)
def test_a_package_may_be_imported_before_tidemark(tmp_path: Path, guide: Guide) -> None:
    packages = installed(guide.page, tmp_path / "site")
    path = tmp_path / "mine.yaml"
    path.write_text(guide.stream)
    load = f"from tidemark.streams.loading import load; print(load(Path({str(path)!r})).stream.name)"
    said = python(packages, "-c", f"from pathlib import Path; import {guide.package}.settings; {load}")
    assert said == "orders\n"
