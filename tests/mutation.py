"""`./run mutate [FILE ...]`: does a quick test notice each small change to the core?

mutmut makes the changes, one at a time: another comparison, a missing argument, a number one higher. It runs the tests in
`tests/unit` that call the changed function. A change that neither these tests nor the types refuse has survived. Each survivor
stands in `tests/survivors.toml` with its reason, or lowers the score. The run fails when the score of a file is below 95 %.

Texts are left alone: the words of an error are no promise to the letter.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from mutmut.__main__ import collect_source_file_mutation_data, create_mutants
from mutmut.configuration import config
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.mutation.mutators import mutation_operators, operator_string
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.utils.file_utils import change_cwd, copy_also_copy_files, copy_src_dir, setup_source_paths
from mutmut.utils.format_utils import orig_function_and_class_names_from_key

from tests.trying import Trial

CORE = (
    "tidemark/commit/protocol.py",
    "tidemark/ledger/register.py",
    "tidemark/ledger/book.py",
    "tidemark/planning/planner.py",
    "tidemark/planning/checking.py",
    "tidemark/offsets/tallies.py",
    "tidemark/offsets/ranges.py",
    "tidemark/offsets/authority.py",
    "tidemark/planning/merging.py",
    "tidemark/planning/splitting.py",
    "tidemark/ledger/stores/doubt.py",
    "tidemark/ledger/records.py",
    "tidemark/ledger/codec.py",
    "tidemark/ledger/lookup.py",
    "tidemark/ledger/recovery/verifying.py",
    "tidemark/ledger/incarnations.py",
    "tidemark/ledger/ordering.py",
    "tidemark/ledger/sink_values.py",
    "tidemark/sinks/parquet/compactions.py",
    "tidemark/runs/requests/selecting.py",
    "tidemark/runs/skipping.py",
    "tidemark/planning/starting.py",
    "tidemark/runs/windows/lanes.py",
    "tidemark/audit/report.py",
    "tidemark/commit/fence.py",
    "tidemark/commit/error_budget.py",
    "tidemark/functions/retries.py",
)
SURVIVORS = Path("tests/survivors.toml")
# The copy of the tree that mutmut works on: nothing else in the tree is touched.
COPY = Path(".local/mutate")
TREE = Path(__file__).resolve().parent.parent
ENOUGH = 0.95
TYPES = (sys.executable, "-m", "mypy", "--no-warn-unused-ignores", "--output", "json")
# What a mutant may end as when something has noticed it. A timeout is a loop that never ends.
NOTICED = {"killed": "tests", "timeout": "tests", "segfault": "tests", "caught by type check": "types"}


@dataclass(frozen=True)
class Mutant:
    """One small change: `old` lines of a function became `new` ones."""

    file: str
    function: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.file} {self.function}\n    - {self.old}\n    + {self.new}"


@dataclass(frozen=True)
class Kept:
    """Why a survivor is no gap: it is `equivalent`, or the default run notices it in a test on servers."""

    equivalent: bool
    reason: str


def survivors() -> dict[Mutant, Kept]:
    """The kept list. Each entry names `equivalent` or `noticed_by`, with the reason."""
    found = {}
    for one in tomllib.loads(SURVIVORS.read_text())["survivor"]:
        mutant = Mutant(one["file"], one["function"], one["old"], one["new"])
        if ("equivalent" in one) == ("noticed_by" in one):
            raise SystemExit(f"{SURVIVORS}: {mutant} needs either equivalent or noticed_by")
        found[mutant] = Kept("equivalent" in one, one.get("equivalent") or one["noticed_by"])
    return found


def made(name: str, file: str) -> Mutant:
    """A mutant, by the lines that mutmut has changed."""
    function, of = orig_function_and_class_names_from_key(name)
    lines = get_diff_for_mutant(name, path=file).splitlines()
    changed = [line for line in lines if line[:1] in ("-", "+") and line[:3] not in ("---", "+++")]
    old, new = (" ".join(line[1:].strip() for line in changed if line[0] == sign) for sign in "-+")
    return Mutant(file, f"{of}.{function}" if of else function, old, new)


def report(files: list[str], found: dict[str, str]) -> bool:
    """Print the score of each file, and the survivors that are not on the kept list. True when each score is high enough."""
    kept, seen, enough = survivors(), set(), True
    mutants = [
        (str(data.path), name, found[name])
        for data, name, _ in collect_source_file_mutation_data(mutant_names=())[0]
        if name in found
    ]
    for file in files:
        counted: Counter[str] = Counter()
        alive = []
        of_file = [(name, status) for path, name, status in mutants if path == file]
        if not of_file:
            raise SystemExit(f"{file}: mutmut has found nothing to change, so there is no score")
        for name, status in of_file:
            if status in NOTICED:
                counted[NOTICED[status]] += 1
                continue
            mutant = made(name, file)
            if mutant not in kept:
                alive.append(f"{status}: {name} {mutant}")
                continue
            seen.add(mutant)
            counted["equivalent" if kept[mutant].equivalent else "servers"] += 1
        noticed = counted["tests"] + counted["types"] + counted["servers"]
        score = noticed / max(1, noticed + len(alive))
        enough &= score >= ENOUGH
        print(
            f"{file}: {score:.1%} of {noticed + len(alive)} noticed ({counted['tests']} by quick tests, "
            f"{counted['types']} by types, {counted['servers']} by tests on servers); {counted['equivalent']} are equivalent"
        )
        print("".join(f"  {one}\n" for one in alive), end="", flush=True)
    unused = [mutant for mutant in kept if mutant.file in files and mutant not in seen]
    print("".join(f"{SURVIVORS}: no longer a survivor, take it out: {one}\n" for one in unused), end="")
    return enough


def copied() -> Path:
    """A fresh copy of the tree as it is now, without what git ignores."""
    shutil.rmtree(COPY, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if Path(name).is_file():
            (COPY / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(name, COPY / name)
    return COPY


def refused_by_types(found: bytes, files: list[str]) -> set[str]:
    """The mutants that have an error of types which their original does not have.

    Every mutant of a method stands in the class, so that what it declares is declared again: that is none.
    """
    errors: dict[tuple[str, str], set[str]] = {}
    functions = {
        file: [
            (one.lineno, one.end_lineno or one.lineno, one.name)
            for one in ast.walk(ast.parse(Path(file).read_text()))
            if isinstance(one, ast.FunctionDef) and "__mutmut_" in one.name
        ]
        for file in files
    }
    for line in found.splitlines():
        error = json.loads(line)
        if error["severity"] == "error" and error["code"] != "no-redef":
            for start, end, name in functions.get(error["file"], ()):
                if start <= error["line"] <= end:
                    errors.setdefault((error["file"], name), set()).add(error["message"])
    return {
        f"{file.removesuffix('.py').replace('/', '.')}.{name}"
        for (file, name), said in errors.items()
        if not name.endswith("_orig") and said - errors.get((file, f"{name.rpartition('_')[0]}_orig"), set())
    }


def run(files: list[str], processes: int, seconds: float) -> bool:
    """Make the mutants, try them and report. True when each score is high enough."""
    set_mutant_under_test("mutant_generation")
    Path("mutants").mkdir()
    with redirect_stdout(StringIO()):
        copy_src_dir()
        copy_also_copy_files()
        setup_source_paths()
        create_mutants(processes)
    names: dict[str, list[str]] = {file: [] for file in files}
    for data, name, _ in collect_source_file_mutation_data(mutant_names=())[0]:
        names[str(data.path)].append(name)
    refused: dict[str, str] = {}
    # While the tests are watched.
    checking = subprocess.Popen(
        [*TYPES, "--cache-dir", str(TREE / ".local" / "mutate-types"), *files], cwd="mutants", stdout=subprocess.PIPE
    )

    def left() -> dict[str, list[str]]:
        refused.update(dict.fromkeys(refused_by_types(checking.communicate()[0], files), "caught by type check"))
        return {file: [name for name in names[file] if name not in refused] for file in files}

    enough = []

    def done(file: str) -> None:
        with change_cwd(".."):
            enough.append(report([file], refused | trial.found))

    with change_cwd("mutants"):
        arguments = [*config().pytest_add_cli_args_test_selection, *config().pytest_add_cli_args]
        trial = Trial(left, processes, seconds, done)
        trial.run(arguments)
    return all(enough)


def main() -> None:
    parser = argparse.ArgumentParser(prog="./run mutate", description=__doc__)
    parser.add_argument("files", nargs="*", default=CORE, help="files of the core; all of them without any")
    parser.add_argument("--processes", type=int, default=2, help="how many mutants are tried at once")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the tests of one mutant may take")
    asked = parser.parse_args()
    files = [str(Path(file)) for file in asked.files]
    if missing := [file for file in files if not Path(file).is_file()]:
        raise SystemExit(f"{', '.join(missing)}: no such file; the core is {', '.join(CORE)}")
    os.chdir(copied())
    # From here on everything comes from the copy, the tests too.
    sys.path[:] = [place for place in sys.path if not Path(place).resolve().is_relative_to(TREE) or ".venv" in place]
    for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
        del sys.modules[name]
    config().only_mutate = files
    mutation_operators[:] = [one for one in mutation_operators if one[1] is not operator_string]
    sys.exit(0 if run(files, asked.processes, asked.seconds) else 1)


if __name__ == "__main__":
    main()
