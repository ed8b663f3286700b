"""What the repository holds: documents whose links lead somewhere, rooms that do not know the example, nothing too large."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.covering import REPOSITORY
from tidemark.errors import DELTALAKE, PROTOBUF, PYICEBERG, PYSPARK, SQL_PACKAGES

GENERAL = ("tidemark", "spark_jobs", "plugins")
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


def test_the_name_of_a_public_class_stands_once() -> None:
    """One word for one thing: whoever looks for a class finds the one that is meant."""
    found: dict[str, list[str]] = {}
    for folder in ("tidemark", "services", "demo"):
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            for name in re.findall(r"^ *class ([A-Z]\w*)", path.read_text(), re.MULTILINE):
                found.setdefault(name, []).append(str(path.relative_to(REPOSITORY)))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


# Pronouns, adverbs and participles say nothing of what an object holds. Each of these was a class once.
NO_NAMES = re.compile(
    r"Again|Anew|Bounded|Chosen|Compared|Comparing|Covered|Done|Elsewhere|Encoded|Ended|Facts|"
    r"Forecasted|Forgotten|Found|Frequent|Gone|Held|Holding|Itself|Known|Late|Left|Located|"
    r"Named|Opened|Owned|Passed|Passing|Published|Reached|Selected|Shown|Sparing|Spent|"
    r"Standing|Steered|Surroundings|Taken|Through|Turns|Unfit|Unsaid|Waits"
)


def test_no_class_is_named_by_a_word_that_says_nothing_of_it() -> None:
    """The names are words of Kafka, Spark, Airflow or Iceberg, else plain nouns, and a limit is `MAX_`."""
    found = []
    for folder in ("tidemark", "services", "demo"):
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef) and NO_NAMES.fullmatch(node.name):
                    found.append(f"{path.relative_to(REPOSITORY)}:{node.lineno}: class {node.name}")
                elif isinstance(node, ast.Name) and re.match(r"_?MOST(_|$)", node.id):
                    found.append(f"{path.relative_to(REPOSITORY)}:{node.lineno}: {node.id}")
    assert found == []


_IMPORT = re.compile(r"^\s*from (tidemark[\w.]*) import ([^\n(]+)$", re.MULTILINE)


def test_what_the_documents_import_is_there() -> None:
    """Packages of other people's import it too: a name that a page shows is a public one."""
    shown = {
        (found[1], name.partition("#")[0].split(" as ")[0].strip())
        for document in DOCUMENTS
        for found in _IMPORT.finditer(document.read_text())
        for name in found[2].split(",")
    }
    assert len(shown) > 20
    missing = [(module, name) for module, name in shown if not _is_there(module, name)]
    assert missing == []


def _is_there(module: str, name: str) -> bool:
    """Whether a module has a name, by its text: nothing is imported, since Airflow takes seconds."""
    names: set[str] = set()
    for node in ast.parse(_source(module)).body:
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Import() | ast.ImportFrom():
                names |= {alias.asname or alias.name for alias in node.names}
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names |= {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
    return name in names or _source(f"{module}.{name}") != ""


def _source(module: str) -> str:
    """The text of a module, and nothing of one that is not there."""
    place = REPOSITORY.joinpath(*module.split("."))
    files = [place.with_suffix(".py"), place / "__init__.py"]
    return next((file.read_text() for file in files if file.exists()), "")


def test_a_name_that_is_not_there_would_be_noticed() -> None:
    assert _is_there("tidemark.airflow", "build_dags")
    assert _is_there("tidemark.ledger", "records")
    assert not _is_there("tidemark.airflow", "build_dag")
    assert not _is_there("tidemark.nowhere", "records")


# What runs a text as a program.
RUNS_TEXT = {"eval", "exec", "os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}


def calls_that_run_a_text(source: str) -> list[str]:
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [
        ast.unparse(call)
        for call in calls
        if ast.unparse(call.func) in RUNS_TEXT or any(word.arg == "shell" for word in call.keywords)
    ]


@pytest.mark.slow
@pytest.mark.covers("Q7")
def test_no_text_is_run_as_a_program() -> None:
    """No shell, no `eval`: programs are started with lists of arguments. For templates, see tests/dags/test_dag_files.py."""
    assert calls_that_run_a_text("subprocess.run('rm ' + name, shell=True); eval(name); os.system(name)") == [
        "subprocess.run('rm ' + name, shell=True)",
        "eval(name)",
        "os.system(name)",
    ]
    files = [path for room in (*GENERAL, "services") for path in (REPOSITORY / room).rglob("*.py")]
    assert len(files) > 200
    assert {path.name: found for path in files if (found := calls_that_run_a_text(path.read_text()))} == {}


UNPICKLES = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


def modules_that_unpickle(source: str) -> set[str]:
    nodes = list(ast.walk(ast.parse(source)))
    named = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    return UNPICKLES & {
        name.split(".")[0] for name in named | {str(n.module) for n in nodes if isinstance(n, ast.ImportFrom)}
    }


@pytest.mark.covers("Q22")
def test_only_a_process_its_own_child_and_its_sparks_workers_speak_pickle() -> None:
    assert modules_that_unpickle("import pickle as p\nfrom shelve import open") == {"pickle", "shelve"}
    files = [path for room in GENERAL for path in (REPOSITORY / room).rglob("*.py")]
    found = {str(path.relative_to(REPOSITORY)) for path in files if modules_that_unpickle(path.read_text())}
    # In a warm engine, Spark's workers give the run what its tasks have counted as they give it to every driver.
    assert found == {"tidemark/functions/child.py", "tidemark/spark/runtime/engine_run.py"}


@pytest.mark.parametrize("room", ["planning", "commit", "ledger"])
def test_the_core_names_no_sink(room: str) -> None:
    """Also not in words. HBase and Kafka are servers too, and `latest` is where a lane may begin."""
    sinks = {path.parent.name for path in (REPOSITORY / "tidemark" / "sinks").rglob("settings.py")}
    named = re.compile(
        rf"\b({'|'.join(sinks - {'hbase', 'kafka', 'latest', 'sql', 'dead_letters'})}|hbase_latest)\b", re.IGNORECASE
    )
    texts = {path: path.read_text() for path in (REPOSITORY / "tidemark" / room).rglob("*.py")}
    assert {"aggregates", "delta", "parquet"} < sinks
    assert texts
    assert {path.name: found[0] for path, text in texts.items() if (found := named.search(text))} == {}


# What others use of a sink's own rooms: the Parquet files of all lakes, and the salts that an older layout has in its keys.
_OF_FILES = ("tidemark.sinks.parquet", "tidemark.sinks.hbase.rows")


def test_only_the_registries_know_the_types_of_sinks() -> None:
    """A sink of another package is treated as any other: nothing outside asks for a type, but the kinds say what they can."""
    rooms = {REPOSITORY / "tidemark" / "sinks", REPOSITORY / "tidemark" / "spark" / "sinks"}
    types = {path.parent.name for path in (REPOSITORY / "tidemark" / "sinks").rglob("settings.py")} - {"dead_letters"}
    a_type = re.compile(rf"tidemark(?:\.spark)?\.sinks\.(?:dead_letters\.)?(?:{'|'.join(types)})\b[\w.]*")
    outside = [path for path in (REPOSITORY / "tidemark").rglob("*.py") if not rooms & set(path.parents)]
    outside.append(REPOSITORY / "tidemark" / "sinks" / "mounts.py")
    found = {
        str(path.relative_to(REPOSITORY)): named
        for path in outside
        if (named := {name for name in a_type.findall(path.read_text()) if not name.startswith(_OF_FILES)})
    }
    assert {"delta", "kafka"} < types
    assert found == {}


def prose(text: str) -> Iterator[str]:
    """The lines of a document without code, tables, and what is written from the code."""
    fenced = generated = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif line.startswith("<!--"):
            generated = line.startswith("<!-- from the code")
        elif not (fenced or generated or line.startswith("|")):
            yield line


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_no_line_of_prose_is_longer_than_a_terminal(document: Path) -> None:
    # An address cannot be broken.
    assert [line for line in prose(document.read_text()) if len(line) > 100 and "](https://" not in line] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_the_links_of_a_document_lead_somewhere(document: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
        if link.startswith("https://"):
            continue
        name, _, anchor = link.partition("#")
        target = (document.parent / name).resolve() if name else document
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.slow
def test_the_documents_are_a_site_with_every_page_in_its_menu(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "ARCHITECTURE" / "index.html").is_file()
    assert (tmp_path / "docs" / "adr" / "index.html").is_file()


# An index's name for Tidemark, in a command or a list of requirements. A folder, an image or a program may have any name.
_INSTALLS = re.compile(
    r"""tidemark\[ |                                        # an extra of it
    \binstall\s+['"`]?tidemark(?![\w./-]) |
    \b(?:pip3?|pipx|uvx?|poetry|pdm|conda)\s[^\n]*[\s'"]tidemark(?=[\s'"`=<>~;,]|$) |
    ^\s*(?:-\s*)?["']?tidemark\s*(?:[=~<>!]=|[<>]|@)        # a line of requirements""",
    re.VERBOSE | re.MULTILINE,
)


@pytest.mark.parametrize(
    "text",
    [
        "install tidemark[delta]",
        "pip install tidemark",
        "pip install 'tidemark>=1'",
        "uv add --dev tidemark",
        "tidemark==0.1.0",
        '  "tidemark>=0.1",',
    ],
)
def test_a_text_that_installs_a_stranger_would_be_noticed(text: str) -> None:
    assert _INSTALLS.search(text)


def test_no_text_tells_people_to_install_a_name_that_is_not_ours() -> None:
    """On the package index, `tidemark` is somebody else's project, whose code would run on the user's machine."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert project["name"] == "tidemark-replay"
    texts = {path: path.read_text(errors="replace") for path in tracked() if path != Path(__file__)}
    # What the history tells of former texts stays.
    found = {
        str(path.relative_to(REPOSITORY)): said[0]
        for path, text in texts.items()
        if path.name != "CHANGELOG.md" and (said := _INSTALLS.search(text))
    }
    assert found == {}


def test_the_packages_that_errors_name_are_those_of_the_project() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert extras["delta"] == [DELTALAKE]
    # Its catalog is a database.
    assert extras["iceberg"] == [PYICEBERG, *SQL_PACKAGES[:2]]
    assert [*PYSPARK] == extras["spark"]
    assert [*SQL_PACKAGES] == extras["sql"]
    assert [*PROTOBUF] == extras["protobuf"]
    written = [
        path.relative_to(REPOSITORY)
        for room in GENERAL
        for path in (REPOSITORY / room).rglob("*.py")
        if "pip install" in path.read_text()
    ]
    assert written
    # Each says it with the constants above, or with what a kind of sink requires: no bound stands there twice.
    bounds = re.compile("DELTALAKE|PROTOBUF|PYSPARK|SQL_PACKAGES|{requirement}")
    assert [path for path in written if not bounds.search((REPOSITORY / path).read_text())] == []


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
