"""What the repository holds: documents whose links lead somewhere, rooms that do not know the example, nothing too large."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.covering import REPOSITORY

GENERAL = ("tidemark", "spark_jobs", "plugins", "dags/tidemark_dags")
DOCUMENTS = sorted(path for path in REPOSITORY.glob("**/*.md") if not {".venv", ".local"} & set(path.parts))


def tracked() -> list[Path]:
    """The files that git has; of a tree without git, all but what is made here."""
    if (REPOSITORY / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True, text=True)
        return [path for name in listed.stdout.split("\0") if name and (path := REPOSITORY / name).is_file()]
    made = {
        ".venv",
        ".local",
        "__pycache__",
        ".ruff_cache",
        ".mypy_cache",
        ".pytest_cache",
        ".hypothesis",
        ".import_linter_cache",
    }
    return [path for path in REPOSITORY.rglob("*") if path.is_file() and not made & set(path.parts)]


def anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, as they are made from their words."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("room", GENERAL)
def test_what_is_general_does_not_name_the_example(room: str) -> None:
    files = [path for path in (REPOSITORY / room).rglob("*") if path.suffix in (".py", ".js", ".html", ".css")]
    assert files
    assert [path for path in files if "cdn" in path.read_text().lower()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_the_links_of_a_document_lead_somewhere(document: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
        if link.startswith("https://"):
            continue
        name, _, anchor = link.partition("#")
        target = (document.parent / name).resolve() if name else document
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_there_are_documents() -> None:
    assert REPOSITORY / "README.md" in DOCUMENTS
    assert len(DOCUMENTS) > 10


def test_git_holds_no_jars_and_nothing_large() -> None:
    files = tracked()
    assert len(files) > 100
    assert [path for path in files if path.suffix in (".jar", ".class", ".whl")] == []
    assert [path for path in files if path.stat().st_size > 1_000_000] == []


def test_no_path_of_a_machine_stands_in_a_file() -> None:
    home = re.compile(r"/(?:home|Users)/[a-z]|(?<![\w.])/root/|(?<![\w.])/work/[a-z]+/")
    found = [path for path in tracked() if home.search(path.read_text(errors="replace"))]
    # An image has paths of its own.
    assert [path for path in found if path != Path(__file__) and "docker" not in path.parts] == []
