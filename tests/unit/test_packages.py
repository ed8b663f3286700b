"""Sinks, schemes, ledgers and stores of dead letters of packages of one's own.

A wrong one concerns the streams that name it, and no others.

All are installed beside each other, and one `tidemark streams check` looks at a stream of each.
"""

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
    "14: ledger",
)
LETTERS = Guide(
    REPOSITORY / "docs" / "adding-a-dead-letter-store.md",
    "json_letters",
    "json_letters",
    MINIMAL.replace(
        "dead_letters:\n  type: hbase\n  table: orders_dead",
        "dead_letters:\n  type: json_letters\n  folder: orders_dead",
    ),
    "11: dead_letters",
)
GUIDES = (SINK, SCHEME, LEDGER, LETTERS)
# A stream of no package.
OTHER = MINIMAL.replace("stream: orders", "stream: others")

# What is wrong with a package: its guide, a text of its settings, another text in its place, and what is said of it.
# TYPE is its type.
LINES = 'type: Literal["TYPE"]'
WRONG = {
    "a sink of another type": (SINK, LINES, 'type: Literal["parquet"]', "type has to be Literal['TYPE']"),
    "a sink's type of its own name": (SINK, LINES, 'type: Literal["lines"]', "type has to be Literal['TYPE']"),
    "a sink without a type": (SINK, LINES, "type: str", "type has to be Literal['TYPE']"),
    "a sink without settings": (
        SINK,
        "SinkType(JsonLinesSink,",
        "SinkType(dict,",
        "are no class below tidemark.sinks.contract",
    ),
    "an unfinished sink": (SINK, "(FolderSettings)", "(SinkSettings)", "JsonLinesSink lacks connection"),
    "no kind of sink": (
        SINK,
        "KIND = SinkType(",
        "KIND = print(",
        "expected a tidemark.sinks.contract.SinkType, found NoneType",
    ),
    "a sink that ends": (SINK, "class JsonLinesSink", 'raise SystemExit("no VARIABLE")\n\n\nclass J', "no VARIABLE"),
    "a sink with unknown names": (SINK, "    name: Name", "    more: Unheard\n    name: Name", "Unheard"),
    "a ledger of another type": (LEDGER, LINES, 'type: Literal["hbase"]', "type has to be Literal['TYPE']"),
    "a ledger's type of its own name": (LEDGER, LINES, 'type: Literal["lite"]', "type has to be Literal['TYPE']"),
    "a ledger without a type": (LEDGER, LINES, "type: str", "type has to be Literal['TYPE']"),
    "a ledger without settings": (
        LEDGER,
        "LedgerType(SQLiteLedger,",
        "LedgerType(dict,",
        "are no class below tidemark.ledger.stores.kind",
    ),
    "an unfinished ledger": (LEDGER, "def connection(", "def connected(", "SQLiteLedger lacks connection"),
    "no kind of ledger": (
        LEDGER,
        "KIND = LedgerType(",
        "KIND = print(",
        "expected a tidemark.ledger.stores.kind.LedgerType",
    ),
    "a ledger that ends": (LEDGER, "class SQLiteLedger", 'raise SystemExit("no VARIABLE")\n\n\nclass S', "no VARIABLE"),
    "a ledger with unknown names": (LEDGER, "    sqlite: C", "    more: Unheard\n    sqlite: C", "Unheard"),
    "a store of another type": (LETTERS, LINES, 'type: Literal["hbase"]', "type has to be Literal['TYPE']"),
    "a store without settings": (
        LETTERS,
        "    JsonLetters,\n",
        "    dict,\n",
        "are no class below tidemark.sinks.dead_letters.contract",
    ),
    "an unfinished store": (
        LETTERS,
        "import FileDeadLetters\n",
        "import DeadLetterSettings as FileDeadLetters\n",
        "JsonLetters lacks connection, most_bytes, place",
    ),
    "no kind of store": (
        LETTERS,
        "KIND = DeadLettersType(",
        "KIND = dict(kind=",
        "expected a tidemark.sinks.dead_letters.contract.DeadLettersType, found dict",
    ),
    "a store that ends": (LETTERS, "class JsonLetters", 'raise SystemExit("no VARIABLE")\n\n\nclass J', "no VARIABLE"),
}
RAISING = {
    "sink": (SINK, '    name: Name = "TYPE"\n', "    def problem_with(self, others):"),
    "store of dead letters": (LETTERS, '    server: ClassVar[str] = "the lake"\n', "    def owned(self):"),
    "ledger": (LEDGER, '    sqlite: ConnectionName = "sqlite_default"\n', "    def tables(self):"),
}


class Installed:
    """A folder of packages, and a folder with a stream of each."""

    def __init__(self, folder: Path) -> None:
        self.packages = folder / "site"
        self.streams = folder / "streams"
        self.streams.mkdir()
        self._numbers: dict[tuple[str, str], int] = {}
        self.said: list[str] = []

    def add(self, guide: Guide, name: str, old: str = "", new: str = "") -> None:
        number = self._numbers[guide.type, name] = len(self._numbers)
        installed(guide.page, self.packages, self.suffix(guide, name))
        settings = self.packages / f"{guide.package}_{number}" / "settings.py"
        type_ = self.type(guide, name)
        contract = "from tidemark.sinks.contract import SinkType"
        text = settings.read_text().replace(contract, f"{contract}, SinkSettings")
        assert old.replace("TYPE", type_) in text
        settings.write_text(text.replace(old.replace("TYPE", type_), new.replace("TYPE", type_)) if old else text)
        self.stream(guide, name).write_text(guide.stream.replace(f"type: {guide.type}\n", f"type: {type_}\n"))

    def suffix(self, guide: Guide, name: str) -> str:
        return f"_{self._numbers[guide.type, name]}"

    def type(self, guide: Guide, name: str) -> str:
        return f"{guide.type}{self.suffix(guide, name)}"

    def stream(self, guide: Guide, name: str) -> Path:
        return self.streams / f"{self.type(guide, name)}.yaml"

    def twice(self, guide: Guide, name: str) -> None:
        """Another package brings the same type."""
        self.add(guide, name)
        entries = self.packages / f"guide{self.suffix(guide, name)}-1.0.dist-info" / "entry_points.txt"
        again = self.packages / f"again{self.suffix(guide, name)}-1.0.dist-info"
        again.mkdir()
        (again / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {again.name}\nVersion: 1.0\n")
        (again / "entry_points.txt").write_text(entries.read_text())

    def check(self) -> None:
        """`tidemark streams check` on all streams, and on one that names nothing of a package: that is always taken."""
        (self.streams / "others.yaml").write_text(OTHER)
        files = map(str, sorted(self.streams.iterdir()))
        self.said = python(self.packages, "-m", "tidemark", "streams", "check", *files, code=2).splitlines()
        assert f"{self.streams / 'others.yaml'}: stream others" in self.said

    def said_of(self, guide: Guide, name: str) -> str:
        """What is said first of its stream, after the stream file's name."""
        path = str(self.stream(guide, name))
        return next(line for line in self.said if line.startswith(path)).removeprefix(path)


def python(packages: Path, *words: str, code: int = 0) -> str:
    """What a new process says; the packages are installed there."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (packages, REPOSITORY)))}
    ran = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == code, ran.stderr
    return ran.stdout + ran.stderr


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    made = Installed(tmp_path_factory.mktemp("packages"))
    for guide in GUIDES:
        made.add(guide, "as it is")
        made.twice(guide, "twice")
    for name, (guide, old, new, _) in WRONG.items():
        made.add(guide, name, old, new)
    for guide, line, method in RAISING.values():
        made.add(guide, "raising", line, f'{line}\n{method}\n        raise KeyError("x")\n')
    made.check()
    return made


@pytest.mark.slow
@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.type)
def test_the_packages_of_the_guides_are_taken(checked: Installed, guide: Guide) -> None:
    assert checked.said_of(guide, "as it is") == ": stream orders"


@pytest.mark.parametrize("name", WRONG)
def test_a_package_that_is_no_use_is_refused_where_it_is_named(checked: Installed, name: str) -> None:
    guide, *_, said = WRONG[name]
    type_ = checked.type(guide, name)
    found = checked.said_of(guide, name)
    assert found.startswith(f":{guide.place}")
    module = f"{guide.package}{checked.suffix(guide, name)}.settings"
    assert f"the type {type_}: {module}:KIND cannot be loaded: " in found
    assert said.replace("TYPE", type_) in found


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.type)
def test_two_packages_with_one_type_are_refused(checked: Installed, guide: Guide) -> None:
    assert "two packages bring this type" in checked.said_of(guide, "twice")


@pytest.mark.parametrize("guide", [guide for guide, *_ in RAISING.values()], ids=RAISING)
def test_a_package_that_fails_at_a_stream_file_fails_at_no_other(checked: Installed, guide: Guide) -> None:
    assert checked.said_of(guide, "raising") == ": KeyError: 'x'"


@pytest.mark.slow
@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.type)
def test_a_package_may_be_imported_before_tidemark(tmp_path: Path, guide: Guide) -> None:
    packages = installed(guide.page, tmp_path / "site")
    path = tmp_path / "mine.yaml"
    path.write_text(guide.stream)
    load = f"from tidemark.streams.loading import load; print(load(Path({str(path)!r})).stream.name)"
    said = python(packages, "-c", f"from pathlib import Path; import {guide.package}.settings; {load}")
    assert said == "orders\n"
