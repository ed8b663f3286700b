"""Who may see which streams, by Airflow's own auth manager and its own tables of teams. The page's tests do it by HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from airflow.api_fastapi.app import create_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.log import Log
from airflow.models.team import Team
from airflow.utils.session import create_session
from sqlalchemy import delete

from tidemark.plugin.access import LOOKED, may_see, may_see_files, may_trigger, note_look, note_steering

pytestmark = [pytest.mark.usefixtures("airflow_home"), pytest.mark.filterwarnings("ignore")]

TEAMS = ("red", "blue")
DAGS = {"red__ingest": "red", "blue__ingest": "blue", "open__ingest": None}


@pytest.fixture(autouse=True)
def _teams(airflow_home: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two teams, with a bundle and a DAG each, and a DAG of no team."""
    monkeypatch.setenv("AIRFLOW__CORE__MULTI_TEAM", "True")
    create_auth_manager()
    bundles = [f"of_{team}" for team in DAGS.values()]
    with create_session() as session:
        teams = {name: Team(name=name) for name in TEAMS}
        session.add_all(teams.values())
        for dag, team in DAGS.items():
            bundle = DagBundleModel(name=f"of_{team}")
            bundle.teams = [teams[team]] if team else []
            session.add(bundle)
            session.flush()
            session.add(DagModel(dag_id=dag, bundle_name=bundle.name, fileloc="x", relative_fileloc="x"))
    yield
    with create_session() as session:
        session.execute(delete(DagModel).where(DagModel.dag_id.in_(DAGS)))
        for bundle in session.query(DagBundleModel).where(DagBundleModel.name.in_(bundles)):
            bundle.teams = []
            session.delete(bundle)
        session.flush()
        session.execute(delete(Team).where(Team.name.in_(TEAMS)))


def user(role: str | None, *teams: str) -> Any:
    return SimpleAuthManagerUser(username="somebody", role=role, teams=list(teams))


@pytest.mark.covers("Q11")
@pytest.mark.parametrize(
    ("somebody", "seen"),
    [
        (user("viewer", "red"), {"red__ingest", "open__ingest"}),
        (user("op", "blue"), {"blue__ingest", "open__ingest"}),
        (user("viewer", *TEAMS), set(DAGS)),
        (user("viewer"), {"open__ingest"}),
        (user("admin"), set(DAGS)),
        (user(None, *TEAMS), set()),
        (user(""), set()),
    ],
    ids=["red", "blue", "both", "no team", "admin", "no role", "empty role"],
)
def test_a_stream_is_its_teams(somebody: Any, seen: set[str]) -> None:
    # A DAG that Airflow does not know, and whose team nobody knows, is shown to none.
    assert may_see(somebody, [*DAGS, "unknown__ingest"]) == seen
    assert may_see(somebody, []) == set()
    assert may_see_files(somebody) == (seen == set(DAGS))


def test_without_teams_who_sees_import_errors_sees_the_problems_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__MULTI_TEAM", "False")
    assert may_see_files(user("viewer"))
    assert not may_see_files(user(None))


@pytest.mark.covers("Q16")
@pytest.mark.parametrize(
    ("somebody", "may"),
    [
        (user("viewer", "red"), set()),
        (user("user", "red"), {"red__ingest", "open__ingest"}),
        (user("op", "blue"), {"blue__ingest", "open__ingest"}),
        (user("admin"), set(DAGS)),
        (user(None, *TEAMS), set()),
    ],
    ids=["a viewer", "a user", "an operator", "admin", "no role"],
)
def test_a_payload_is_for_those_who_may_trigger(somebody: Any, may: set[str]) -> None:
    """A DAG that Airflow does not know, and whose team nobody knows, is triggered by none."""
    assert {dag for dag in (*DAGS, "unknown__ingest") if may_trigger(somebody, dag)} == may


@pytest.mark.covers("Q16")
def test_each_look_is_in_airflows_audit_log() -> None:
    note_look(user("op"), "red__replay", "logs/2@31337")
    with create_session() as session:
        (found,) = session.query(Log).filter(Log.event == LOOKED)
        assert (found.owner, found.dag_id, json.loads(str(found.extra))) == (
            "somebody",
            "red__replay",
            {"coordinate": "logs/2@31337"},
        )
        session.delete(found)


@pytest.mark.covers("Q13")
def test_each_pause_and_cancel_is_in_airflows_audit_log() -> None:
    note_steering(user("op"), "red__replay", "cancel", "red__replay/1", "the wrong hour")
    with create_session() as session:
        (found,) = session.query(Log).filter(Log.event == "tidemark_cancel")
        assert (found.owner, found.dag_id, json.loads(str(found.extra))) == (
            "somebody",
            "red__replay",
            {"run": "red__replay/1", "reason": "the wrong hour"},
        )
        session.delete(found)
