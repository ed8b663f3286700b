"""The pages with the streams of `shown`, for somebody who may see and do everything. Airflow has no database here."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from starlette.applications import Starlette
from starlette.responses import RedirectResponse
from starlette.routing import Mount, Route

from tests.pages.shown import BAD_FILE, UNREACHABLE, shown
from tests.support.known_streams import tables_of_known_streams
from tests.support.streams_in_memory import nowhere
from tidemark.clients.connections import Connections
from tidemark.errors import Unreachable
from tidemark.ledger.ledger import now_ms
from tidemark.plugin import access, parsing, scheduling
from tidemark.runs.live.open_stream import OpenStream
from tidemark.views.scheduling import RunInAirflow, Scheduling


def with_streams() -> Starlette:
    folder = Path(mkdtemp(prefix="tidemark-pages-"))
    made = {one.name: one.opened for one in shown(folder)}
    (folder / "prices.yaml").write_text(BAD_FILE)
    os.environ["TIDEMARK_STREAMS"] = str(folder)
    _without_airflow()
    # After what it takes from those modules has been replaced.
    from tidemark.plugin import streams
    from tidemark.plugin.app import build_app

    def opened(path: Path, connections: Connections, **_: object) -> OpenStream:
        if path.stem == UNREACHABLE:
            raise Unreachable("Kafka at kafka-2.example:9092 did not answer within 3 s")
        return replace(made[path.stem], connections=connections)

    stand_in = pytest.MonkeyPatch()
    stand_in.setattr(streams, "from_airflow", nowhere)
    stand_in.setattr(streams, "open_stream", opened)
    tables_of_known_streams(stand_in)
    app = build_app()
    app.dependency_overrides[access.get_user] = lambda: SimpleAuthManagerUser(username="somebody", role="admin")
    to_pages = Route("/", lambda request: RedirectResponse("/tidemark/"))
    return Starlette(routes=[to_pages, Mount("/tidemark", app)])


def _without_airflow() -> None:
    """What the pages ask of Airflow's database: who may see what, and whether its programs run."""

    def scheduled(dag_ids: Collection[str], *, with_errors: bool) -> dict[str, Scheduling]:
        now = now_ms()
        last = RunInAirflow("scheduled__now", "success", now - 1_200_000)
        return {one: Scheduling(one, now, due=now + 2_400_000, last=last) for one in dag_ids}

    def all_of(user: Any, dag_ids: Collection[str]) -> set[str]:
        return set(dag_ids)

    access.may_see = all_of
    access.known_dags = set  # type: ignore[assignment]
    access.may_see_files = lambda user: True
    access.may_trigger = lambda user, dag_id: True
    for note in ("note_look", "note_key_search", "note_steering"):
        setattr(access, note, lambda *noted: None)
    parsing.near_limits = lambda streams: []
    scheduling.scheduling_of = scheduled
