"""Who may see what. Only this module knows Airflow's security modules, which are not among its public interfaces."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Collection
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import (
    AccessView,
    DagAccessEntity,
    DagDetails,
    TeamDetails,
)
from airflow.api_fastapi.core_api.security import get_user
from airflow.configuration import conf
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.log import Log
from airflow.models.team import Team, dag_bundle_team_association_table
from airflow.utils.session import create_session
from sqlalchemy import select

log = logging.getLogger(__name__)

__all__ = [
    "get_user",
    "known_dags",
    "may_see",
    "may_see_files",
    "may_trigger",
    "name_of",
    "note_key_search",
    "note_look",
    "note_steering",
]

# The names of the events in Airflow's audit log; the second one with what was done: pause, resume or cancel.
LOOKED = "tidemark_payload"
SEARCHED = "tidemark_key_search"
STEERED = "tidemark_{}"
# Who has looked at which message, or for which key, just now. Others of Airflow's processes note such a look once more.
_ONE_LOOK_SECONDS = 60.0
_looks: dict[tuple[str, ...], float] = {}
_looks_lock = threading.Lock()


def may_see(user: Any, dag_ids: Collection[str]) -> set[str]:
    """The DAGs among these that a person may see, and so may see their streams. Leaves out DAGs that Airflow does not know.

    The rule is that of Airflow's own list of DAGs: a DAG belongs to a team, which is the team of the DAG's bundle.
    """
    manager = get_auth_manager()
    by_team: dict[str | None, set[str]] = defaultdict(set)
    for dag_id, team in _teams(dag_ids):
        by_team[team].add(dag_id)
    return {
        dag_id
        for team, of_team in by_team.items()
        for dag_id in manager.filter_authorized_dag_ids(dag_ids=of_team, user=user, method="GET", team_name=team)
    }


def known_dags(dag_ids: Collection[str]) -> set[str]:
    """The DAGs among these that Airflow knows, also those that it has dropped since."""
    return {dag_id for dag_id, _ in _teams(dag_ids)}


def may_trigger(user: Any, dag_id: str) -> bool:
    """Whether a person may trigger runs of a DAG. False for a DAG that Airflow does not know."""
    manager = get_auth_manager()
    return any(
        manager.is_authorized_dag(
            method="POST", access_entity=DagAccessEntity.RUN, details=DagDetails(id=dag_id, team_name=team), user=user
        )
        for _, team in _teams([dag_id])
    )


def note_look(user: Any, dag_id: str, coordinate: str) -> None:
    """Write into Airflow's audit log, and into the log, that a person looks at the payload of a message.

    A page asks several times for one look. Raises when the audit log cannot be written: then nobody should be shown anything.
    """
    _note_once(user, LOOKED, dag_id, coordinate=coordinate)


def note_key_search(user: Any, dag_id: str, question: str) -> None:
    """As `note_look`, of a search for the messages with a key. `question` is a digest: the key may be personal data."""
    _note_once(user, SEARCHED, dag_id, question=question)


def _note_once(user: Any, event: str, dag_id: str, **extra: str) -> None:
    look, now = (user.get_name(), dag_id, *extra.values()), time.monotonic()
    with _looks_lock:
        for one in [one for one, noted in _looks.items() if now - noted > _ONE_LOOK_SECONDS]:
            del _looks[one]
        known = look in _looks
    if not known:
        _note(user, event, dag_id, **extra)
        with _looks_lock:
            _looks[look] = now


def note_steering(user: Any, dag_id: str, action: str, run: str, reason: str) -> None:
    """Write into Airflow's audit log, and into the log, that a person pauses, resumes or cancels a backfill or replay.

    Raises when the audit log cannot be written: then nothing should be done.
    """
    _note(user, STEERED.format(action), dag_id, run=run, reason=reason)


def _note(user: Any, event: str, dag_id: str, **extra: str) -> None:
    name = user.get_name()
    log.info("%s: %s of %s, %s", name, event, dag_id, extra)
    with create_session() as session:
        session.add(Log(event=event, dag_id=dag_id, owner=name, extra=json.dumps(extra)))


def name_of(user: Any) -> str:
    """Who asks, as Airflow names this person in its audit log."""
    return str(user.get_name())


def may_see_files(user: Any) -> bool:
    """Whether a person may see the problems of files whose stream, and so whose team, is unknown.

    That takes the right to see import errors; if Airflow has teams, in each of them.
    """
    manager = get_auth_manager()
    if not manager.is_authorized_view(access_view=AccessView.IMPORT_ERRORS, user=user):
        return False
    if not conf.getboolean("core", "multi_team", fallback=False):
        return True
    teams = Team.get_all_team_names()
    return all(manager.is_authorized_team(method="GET", details=TeamDetails(name=team), user=user) for team in teams)


def _teams(dag_ids: Collection[str]) -> list[tuple[str, str | None]]:
    """The DAGs among these that Airflow knows, each with its team, if it has one."""
    bundle = dag_bundle_team_association_table.c
    wanted = (
        select(DagModel.dag_id, bundle.team_name)
        .join(DagBundleModel, DagModel.bundle_name == DagBundleModel.name)
        .join(dag_bundle_team_association_table, DagBundleModel.name == bundle.dag_bundle_name, isouter=True)
        .where(DagModel.dag_id.in_(dag_ids))
    )
    with create_session() as session:
        return [(dag_id, team) for dag_id, team in session.execute(wanted)]
