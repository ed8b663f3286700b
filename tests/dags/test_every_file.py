"""Any stream file that loads has its DAGs, and one that does not load costs no other stream its own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pendulum
import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization
from airflow.timetables.base import TimeRestriction
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.covering import REPOSITORY
from tests.support.stream_text import MINIMAL
from tidemark.airflow import build_dags, factory
from tidemark.errors import InvalidStreamFile
from tidemark.streams.loading import load

KINDS = ("ingest", "backfill", "replay", "audit", "erase")
GOOD = {f"orders__{kind}" for kind in KINDS}
OTHERS = MINIMAL.replace("stream: orders", "stream: others")


def taken_by_airflow(dag: DAG) -> None:
    """What Airflow does with a DAG from its file to its first run; one that raises here stops all of its file."""
    dag.validate()
    kept = json.dumps(DagSerialization.to_dict(dag))
    # PostgreSQL refuses this character.
    assert "\\u0000" not in kept
    timetable = DagSerialization.from_dict(json.loads(kept)).timetable
    timetable.validate()
    begin = TimeRestriction(earliest=pendulum.datetime(2025, 1, 1), latest=None, catchup=False)
    info = timetable.next_dagrun_info(last_automated_data_interval=None, restriction=begin)
    assert (info is None) == (not dag.dag_id.endswith("__ingest"))


@pytest.mark.covers("E53")
@pytest.mark.parametrize(
    "part",
    [
        "schedule: {cron: every day}",
        "schedule: {cron: 0 0 30 2 *}",
        "schedule: {timezone: Europe/Atlantis}",
        "schedule: {timezone: Europe}",
        "engine: {retry_delay_seconds: 99999999999999}",
        "engine: {timeout_minutes: 99999999999999}",
    ],
)
def test_a_wrong_schedule_or_delay_costs_no_other_stream_its_dags(tmp_path: Path, part: str) -> None:
    (tmp_path / "others.yaml").write_text(OTHERS + part)
    (tmp_path / "zorders.yaml").write_text(MINIMAL)
    found = {dag.dag_id: dag for dag in build_dags(tmp_path)}
    assert set(found) == GOOD | {"others__invalid"}
    for dag in found.values():
        taken_by_airflow_even_if_invalid(dag)


def taken_by_airflow_even_if_invalid(dag: DAG) -> None:
    if dag.dag_id.endswith("__invalid"):
        dag.validate()
        assert "\\u0000" not in json.dumps(DagSerialization.to_dict(dag))
    else:
        taken_by_airflow(dag)


@pytest.mark.covers("E53")
@pytest.mark.parametrize("late", [False, True], ids=["built", "checked"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_whose_dags_cannot_be_built_costs_no_other_stream_its_dags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, late: bool
) -> None:
    """As Airflow reads it: its file, and every DAG that was begun while it ran."""
    streams = tmp_path / "streams"
    streams.mkdir()
    (streams / "others.yaml").write_text(OTHERS)
    (streams / "zorders.yaml").write_text(MINIMAL)
    module = factory._KINDS[kind]
    built = resolve_name(module)

    def validate(dag: DAG) -> None:
        if dag.dag_id == f"others__{kind}":
            raise RuntimeError("nobody thought of this")

    def only_orders(path: Path, stream: Any) -> DAG:
        dag = built(path, stream)
        if stream.name == "others":
            if late:
                monkeypatch.setattr(DAG, "validate", validate)
                return dag
            with dag:
                raise RuntimeError("nobody thought of this")
        return dag

    monkeypatch.setattr(factory, "resolve_name", lambda name: only_orders if name == module else resolve_name(name))
    monkeypatch.setenv("TIDEMARK_STREAMS", str(streams))
    (tmp_path / "tidemark_streams.py").write_bytes((REPOSITORY / "dags" / "tidemark_streams.py").read_bytes())
    bag = DagBag(dag_folder=str(tmp_path))
    assert bag.import_errors == {}
    assert set(bag.dags) == GOOD | {"others__invalid"}
    assert (
        "others.yaml: its DAGs cannot be built: RuntimeError: nobody thought of this"
        in bag.dags["others__invalid"].doc_md
    )


def test_invalid_files_of_like_names_are_both_shown(tmp_path: Path) -> None:
    for name in ("bad one.yaml", "bad_one.yml", "bad_one.yaml", f"{'long' * 60}.yaml"):
        (tmp_path / name).write_text("stream: [")
    found = [dag.dag_id for dag in build_dags(tmp_path)]
    assert len(set(found)) == 4
    assert all(name.partition("__invalid")[1] and len(name) <= 250 for name in found)


@pytest.mark.parametrize("name", [b"bad\xff.yaml", b"bad\n```.yaml"])
@pytest.mark.parametrize("key", ['"\\0"', '"\\ud800"', "'```'"])
def test_what_is_wrong_is_shown_whatever_characters_it_has(tmp_path: Path, name: bytes, key: str) -> None:
    path = os.fsencode(tmp_path) + b"/" + name
    Path(os.fsdecode(path)).write_text(f"{MINIMAL}{key}: 1\n")
    (found,) = build_dags(tmp_path)
    taken_by_airflow_even_if_invalid(found)
    found.doc_md.encode()


def columns(low: int, high: int, *words: str) -> st.SearchStrategy[str]:
    """A column of a cron expression, mostly one that means something."""
    number = st.integers(low, high).map(str)
    one = st.one_of(
        st.just("*"),
        number,
        st.sampled_from([*words, "*/2", "?", "R", "h", "x", "60", "-1", "1-"]),
        st.tuples(number, number).map("-".join),
        st.tuples(number, number).map("/".join),
    )
    return st.lists(one, min_size=1, max_size=2).map(",".join)


CRONS = st.one_of(
    st.tuples(
        columns(0, 59),
        columns(0, 23),
        columns(1, 31, "L", "l", "15W"),
        columns(1, 12, "jan", "DEC", "oct-feb", "2"),
        columns(0, 7, "mon", "SUN", "sat-mon", "fri#2", "5#5", "L5", "7-1"),
    ).map(" ".join),
    st.sampled_from(
        ["@hourly", "@quarterly", "@once", "@continuous", "@reboot", "@midnight", "0 0 29 2 *", "0 0 31 4 *"]
    ),
    st.sampled_from(["* * * * * *", "* * * * * * 2020", "", "*", "\t0 * * * *\n", "0\n*\n*\n*\n*"]),
    st.text(max_size=20),
)
ZONES = st.sampled_from(
    [
        *("UTC", "utc", "Europe/Berlin", "europe/berlin", "Asia/Kathmandu", "Etc/GMT+5", "EST5EDT", "localtime"),
        *("America/Argentina/Ushuaia", "Europe", "/etc/passwd", "../UTC", "+01:00", "zone.tab", "a" * 300, "", "\0"),
    ]
) | st.text(max_size=20)
ENGINES = st.fixed_dictionaries(
    {},
    optional={
        "retries": st.integers(-1, 101),
        "retry_delay_seconds": st.integers(),
        "timeout_minutes": st.integers(),
        "replay_timeout_minutes": st.integers(),
        "pool": st.text(max_size=20) | st.just("p" * 256),
        "master": st.text(max_size=20),
        "conf": st.dictionaries(st.text(max_size=10), st.text(max_size=10), max_size=2),
    },
)


@pytest.mark.covers("E53")
@settings(max_examples=30)
@given(cron=CRONS, zone=ZONES, engine=ENGINES, description=st.text(max_size=50))
def test_every_file_that_loads_has_dags_that_airflow_takes(
    tmp_path_factory: pytest.TempPathFactory, cron: str, zone: str, engine: dict[str, Any], description: str
) -> None:
    """Each part is tried alone too, so that a mistake in one does not hide what the others do."""
    path = tmp_path_factory.mktemp("streams") / "orders.yaml"
    parts = (
        {"schedule": {"cron": cron}},
        {"schedule": {"timezone": zone}},
        {"engine": engine},
        {"description": description},
    )
    for some in (*parts, {name: value for part in parts for name, value in part.items()}):
        path.write_text(yaml.safe_dump({**yaml.safe_load(MINIMAL), **some}, allow_unicode=True))
        try:
            load(path)
        except InvalidStreamFile as problem:
            said = str(problem).splitlines()
            assert all(line.startswith(f"{path}:") for line in said), said
            (dag,) = build_dags(path.parent)
            taken_by_airflow_even_if_invalid(dag)
            continue
        found = build_dags(path.parent)
        assert {dag.dag_id for dag in found} == GOOD
        for dag in found:
            taken_by_airflow(dag)


@settings(max_examples=200)
@given(CRONS)
def test_what_airflow_takes_is_taken(tmp_path_factory: pytest.TempPathFactory, cron: str) -> None:
    """The five columns that Airflow's timetable finds a next time for, except those that differ from read to read."""
    from airflow.timetables.trigger import CronTriggerTimetable

    from tidemark.streams.schedule import Schedule

    if len(cron.split()) != 5 or "r" in cron.lower().replace("fri", ""):
        return
    timetable = CronTriggerTimetable(cron, timezone="UTC")
    begin = TimeRestriction(earliest=pendulum.datetime(2025, 1, 1), latest=None, catchup=False)
    try:
        timetable.validate()
        taken = timetable.next_dagrun_info(last_automated_data_interval=None, restriction=begin) is not None
    except Exception:
        taken = False
    try:
        Schedule(cron=cron)
    except ValueError:
        assert not taken
    else:
        assert taken
