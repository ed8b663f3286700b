"""Hundreds of streams: what each parse of a DAG file, and each task, pays for them."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from airflow.sdk import Param
from airflow.sdk.definitions.context import _AIRFLOW_PARSING_CONTEXT_DAG_ID as ASKED
from airflow.sdk.definitions.param import process_params
from airflow.serialization.serialized_objects import DagSerialization

from services.site import REPOSITORY
from tests.support.stream_text import MINIMAL
from tidemark.airflow import build_dags, factory
from tidemark.airflow.parsing_limits import warn_near_limits
from tidemark.errors import WrongUse
from tidemark.streams.loading import load, name_in, stream_files
from tidemark.streams.parsing_limits import ParsingLimits, near_limits

KINDS = ("ingest", "backfill", "replay", "audit", "erase")
# Ways to write a stream's name: each is YAML for `odd name` of no other file.
WRITTEN = {
    "plain": "stream: plain\n",
    "quoted": "stream: 'quoted'\n",
    "escaped": 'stream: "e\\x73caped"\n',
    "spaced": "# a comment\n---\nstream  :   spaced   # another\n",
}


def write(folder: Path, *names: str) -> None:
    for name in names:
        said = WRITTEN.get(name, f"stream: {name}\n")
        (folder / f"of_{name}.yaml").write_text(MINIMAL.replace("stream: orders\n", said))


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are read as a whole, in their order."""
    found: list[str] = []

    def noted(path: Path) -> object:
        found.append(path.name)
        return load(path)

    monkeypatch.setattr(factory, "load", noted)
    return found


@pytest.mark.covers("N41")
@pytest.mark.parametrize("name", [*WRITTEN, "stream", "s7"])
def test_a_task_builds_the_dag_that_it_is_of_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loaded: list[str], name: str
) -> None:
    write(tmp_path, *WRITTEN, "stream", *(f"s{number}" for number in range(20)))
    (tmp_path / "later.yaml").write_text(MINIMAL.replace("stream: orders\n", "") + f"stream: {name}_too\n")
    whole = {dag.dag_id: DagSerialization.to_dict(dag) for dag in build_dags(tmp_path)}
    for kind in KINDS:
        loaded.clear()
        # As Airflow does for a task.
        monkeypatch.setenv(ASKED, f"{name}__{kind}")
        (found,) = build_dags(tmp_path)
        assert loaded == [f"of_{name}.yaml"]
        assert DagSerialization.to_dict(found) == whole[found.dag_id]
        assert found.dag_id == f"{name}__{kind}"


@pytest.mark.covers("N41")
def test_a_task_imports_what_makes_its_own_dag_alone(tmp_path: Path) -> None:
    """That of audits loads much of Airflow, by which each task would begin a third of a second later."""
    write(tmp_path, "s1")
    program = (
        "import sys; from pathlib import Path; from tidemark.airflow import build_dags\n"
        "print([dag.dag_id for dag in build_dags(Path(sys.argv[1]))])\n"
        "print([name for name in ('audit', 'erase', 'ingest') if f'tidemark.airflow.{name}' in sys.modules])"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    environment = {**os.environ, ASKED: "s1__ingest"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=REPOSITORY, timeout=120)
    assert done.stdout.splitlines() == ["['s1__ingest']", "['ingest']"], done.stderr


@pytest.mark.covers("N41")
def test_a_task_finds_its_dag_wherever_its_name_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = MINIMAL.replace("stream: orders\n", "")
    (tmp_path / "a.yaml").write_text("stream: [")
    (tmp_path / "b.yaml").write_text(f"{text}stream: last\nno_such_key: 1\n")
    (tmp_path / "c.yaml").write_text(f"{text}stream: last\n")
    (tmp_path / "d.yaml").write_text(f"{text}description: &name hidden\nstream: *name\n")
    (tmp_path / "e.yaml").write_text(f"{text}stream: last\n")
    whole = {dag.dag_id for dag in build_dags(tmp_path)}
    assert whole == {
        *(f"{stream}__{kind}" for stream in ("last", "hidden") for kind in KINDS),
        *(f"{file}__invalid" for file in "abe"),
    }
    for asked in whole:
        monkeypatch.setenv(ASKED, asked)
        assert asked in {dag.dag_id for dag in build_dags(tmp_path)}


def test_the_name_of_a_file_is_that_of_its_stream(tmp_path: Path) -> None:
    examples = stream_files(REPOSITORY / "dags" / "streams")
    assert examples
    assert all(name_in(path) == load(path).stream.name for path in examples)
    write(tmp_path, *WRITTEN)
    for path in stream_files(tmp_path):
        assert name_in(path) == load(path).stream.name
    path = tmp_path / "other.yaml"
    nested = "scheme: {stream: not_this}\nlist: [stream, not_this]\n? stream\n: this\n"
    for text, name in {nested: "this", "- stream\n- x\n": None, "": None, "stream: [x]\n": None, "a: {": None}.items():
        path.write_text(text)
        assert name_in(path) == name
    assert name_in(tmp_path / "missing.yaml") is None
    path.write_bytes(b"\xff\xfe stream")
    assert name_in(path) is None
    path.write_text("[" * 100_000)
    assert name_in(path) is None


@pytest.mark.covers("N42")
@pytest.mark.parametrize("of", [1, 2, 5])
def test_each_stream_is_in_one_shard(tmp_path: Path, of: int) -> None:
    names = [f"s{number}" for number in range(30)]
    write(tmp_path, *names, *WRITTEN)
    shards = [[dag.dag_id for dag in build_dags(tmp_path, shard=(number, of))] for number in range(1, of + 1)]
    assert all(shards)
    assert Counter(one for shard in shards for one in shard) == Counter(dag.dag_id for dag in build_dags(tmp_path))
    assert all(len(shard) % len(KINDS) == 0 for shard in shards)
    # It stays in its shard when other streams come and go.
    write(tmp_path, "one_more")
    again = [[dag.dag_id for dag in build_dags(tmp_path, shard=(number, of))] for number in range(1, of + 1)]
    assert all(set(before) <= set(now) for before, now in zip(shards, again, strict=True))


@pytest.mark.covers("N42")
def test_what_is_wrong_is_shown_by_one_shard(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        folder.mkdir()
        # The same name in both, and files that name nobody.
        write(folder, "twice")
        (folder / "bad.yaml").write_text("stream: [")
    (second / "worse one.yaml").write_text("- x")
    (second / "worse_one.yaml").write_text("- x")
    found = Counter(dag.dag_id for number in (1, 2, 3) for dag in build_dags(first, second, shard=(number, 3)))
    assert set(found.values()) == {1}
    assert {one for one in found if "__invalid" not in one} == {f"twice__{kind}" for kind in KINDS}
    assert len([one for one in found if "__invalid" in one]) == 5


@pytest.mark.parametrize("shard", [(0, 2), (3, 2), (1, 0), (-1, 2)])
def test_a_shard_that_is_none_is_refused(tmp_path: Path, shard: tuple[int, int]) -> None:
    with pytest.raises(WrongUse, match="expected a number from 1"):
        build_dags(tmp_path, shard=shard)


@pytest.mark.covers("N41")
def test_a_form_is_stored_once_and_each_field_checked_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow checks a field against JSON's schema of schemas, which takes a millisecond, whenever it looks at it."""
    write(tmp_path, "s1")
    fields = looks = 0
    resolve = Param.resolve

    def counted(self: Param, *given: object, **more: object) -> object:
        nonlocal looks
        looks += 1
        return resolve(self, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Param, "resolve", counted)
    dags = build_dags(tmp_path)
    for dag in dags:
        fields += len(dag.params)
        kept = DagSerialization.to_dict(dag)["dag"]
        assert [name for name, _ in kept["params"]] == list(dag.params)
        assert not any("params" in task["__var"] for task in kept["tasks"])
        assert len(json.dumps(kept)) < 20_000
    assert fields > 50
    assert looks <= 3 * fields


def test_a_task_has_the_fields_of_its_form(tmp_path: Path) -> None:
    write(tmp_path, "s1")
    (dag,) = [one for one in build_dags(tmp_path) if one.dag_id == "s1__replay"]
    given = {"records": "orders/0@5", "dry_run": False, "reason": "a test"}
    for task in dag.tasks:
        found = process_params(dag, task, {**given}, suppress_exception=False)
        assert found.keys() == dag.params.keys()
        assert (found["records"], found["dry_run"], found["window"]) == ("orders/0@5", False, None)


@pytest.mark.covers("N42")
def test_a_folder_that_comes_near_airflows_limits_says_so(caplog: pytest.LogCaptureFixture) -> None:
    assert near_limits(3, ParsingLimits()) is None
    assert near_limits(13, ParsingLimits(30, 500)) == "13.0 of the 30 s that [core] dagbag_import_timeout allows"
    said = near_limits(11, ParsingLimits(300, 50))
    assert said == "22.0 of the 50 s that [dag_processor] dag_file_processor_timeout allows"
    # Zero: no limit.
    assert near_limits(1000, ParsingLimits(0, 0)) is None
    with caplog.at_level(logging.WARNING):
        warn_near_limits(7, 1.0)
        assert caplog.text == ""
        warn_near_limits(700, 29.0)
    assert "DAGs of 700 stream files take 29.0 of the 30 s" in caplog.text
    assert "shard=(1, 2)" in caplog.text
