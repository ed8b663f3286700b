"""Who may see and do what on the pages, with Airflow's real auth manager: all routes, found in the app itself."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.airflow import Airflow
from services import environment
from services.site import REPOSITORY, Site
from tests.support.claiming import claim_lane
from tests.support.page_routes import NO_STREAM, Route, asked, routes_of
from tidemark.ledger.records import LaneKind
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.runs import steering
from tidemark.runs.live.open_stream import open_stream

# Those of no team, and of each team.
NO_TEAM = {"cdn_logs", "evil"}
SEEN = {
    environment.ADMIN: {*NO_TEAM, "red_orders", "blue_orders"},
    "red_viewer": {*NO_TEAM, "red_orders"},
    "blue_viewer": {*NO_TEAM, "blue_orders"},
    "viewer": NO_TEAM,
    "replayer": {"cdn_logs"},
    "nobody": set(),
}
# These take a body, and only look. Every other route that is not GET has to refuse those who may only look.
LOOKS = {("POST", "/api/streams/{name}/plan"), ("POST", "/api/streams/{name}/erasure")}


@pytest.fixture(scope="module")
def routes(site: Site) -> list[Route]:
    return routes_of(site)


@pytest.fixture(scope="module")
def tokens(airflow: Airflow, site: Site) -> dict[str, str]:
    """Of each user, who has logged in."""
    users = [*SEEN, "operator"]
    return {user: airflow.token_of(user, environment.password(site, user)) for user in users}


@pytest.mark.covers("Q11")
def test_strangers_see_nothing(airflow: Airflow, routes: list[Route]) -> None:
    for route in routes:
        for name in ("cdn_logs", "nowhere"):
            answer = asked(airflow, route, None, name=name)
            assert answer.status == 401, route
            assert "cdn" not in answer.text
            assert asked(airflow, route, "a.b.c", name=name).status in (401, 403), route
    # What is no route asks nobody, and says nothing.
    assert asked(airflow, ("GET", "/nowhere"), None).status == 404


@pytest.mark.full
@pytest.mark.covers("Q11")
@pytest.mark.parametrize("user", SEEN)
def test_a_stream_is_shown_to_those_who_may_see_its_dag(
    airflow: Airflow, routes: list[Route], tokens: dict[str, str], user: str
) -> None:
    """As Airflow itself decides, for real users of two teams, and for one with rights by DAG. Each route says the same."""
    listed = json.loads(asked(airflow, ("GET", "/api/streams"), tokens[user]).text)
    assert set(listed["streams"]) == SEEN[user]
    of_streams = [route for route in routes if "{name}" in route[1] and not route[1].startswith("/files/")]
    assert len(of_streams) > 15
    for stream in (*SEEN[environment.ADMIN], "unknown"):
        may = stream in SEEN[user]
        # Airflow answers 403 or 404 for a DAG that the user may not see, or that it does not know.
        path = f"/api/v2/dags/{stream}__ingest"
        assert (airflow.call("GET", path, token=tokens[user])[0] == 200) == may
        if may and stream != "cdn_logs":
            continue
        for route in of_streams:
            answer = asked(airflow, route, tokens[user], name=stream)
            if may:
                assert answer.status not in (401, 500), route
                assert answer.text != json.dumps({"detail": NO_STREAM}, separators=(",", ":")), route
                continue
            # Nothing tells it from one that there is not. A page says so in its script's words.
            assert answer.status == 404, route
            assert "<nav" in answer.text or answer.detail == NO_STREAM, route
    # Of which team a file is that cannot be read, or that has no DAG, nobody knows: only who may see all of them is told.
    told = ["broken.yaml", "Airflow has no DAG unknown__ingest"] if user == environment.ADMIN else []
    assert [said in problem for said, problem in zip(told, listed["problems"], strict=True)] == [True] * len(told)


@pytest.fixture
def replay(ingested: Airflow, streams: dict[str, Path]) -> Iterator[str]:
    """The lane of a replay that somebody could pause."""
    opened = open_stream(streams["everybody"] / "cdn_logs.yaml")
    chosen = RangeSet([OffsetRange(TopicPartition("cdn-logs", 0), 0, 1)])
    lane = claim_lane(opened, LaneKind.REPLAY, f"cli/{secrets.token_hex(4)}", chosen, "who may")
    yield lane
    steering.cancel(opened, lane, "it was only tried who may")


@pytest.mark.covers("Q13", "Q11")
def test_who_may_only_look_changes_nothing(
    airflow: Airflow, routes: list[Route], tokens: dict[str, str], replay: str
) -> None:
    acting = [route for route in routes if route[0] != "GET"]
    assert set(acting) >= LOOKS
    for route in acting:
        answer = asked(airflow, route, tokens["viewer"], run=replay)
        assert answer.status == (200 if route in LOOKS else 403), (route, answer.text)
    # By DAG: who may trigger the replays may pause one and see payloads, and may start no backfill.
    steer = ("POST", "/api/streams/{name}/progress/{action}")
    assert asked(airflow, steer, tokens["replayer"], run=replay).status == 200
    payload = "/tidemark/api/streams/cdn_logs/messages/cdn-logs/0/0?payload=true"
    assert airflow.call("GET", payload, token=tokens["viewer"])[0] == 403
    assert airflow.call("GET", payload, token=tokens["replayer"])[0] in (200, 504)
    conf = {"logical_date": None, "conf": {"holes": True, "reason": "who may", "dry_run": True}}
    assert airflow.call("POST", "/api/v2/dags/cdn_logs__backfill/dagRuns", conf, tokens["replayer"])[0] == 403
    # Every other method is refused, whoever asks.
    paths = {path for _, path in routes}
    for path in paths:
        for method in {"POST", "PUT", "PATCH", "DELETE"} - {one for one, other in routes if other == path}:
            assert asked(airflow, (method, path), tokens[environment.ADMIN]).status == 405, (method, path)


@pytest.mark.covers("Q13")
def test_no_other_site_has_anything_done(
    airflow: Airflow, routes: list[Route], tokens: dict[str, str], replay: str
) -> None:
    for route in (one for one in routes if one[0] != "GET"):
        for headers, status in (
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Sec-Fetch-Site": "same-site"}, 403),
            ({"Content-Type": "text/plain"}, 415),
            ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
            ({"Content-Length": "100000000"}, 413),
        ):
            answer = asked(airflow, route, tokens[environment.ADMIN], headers, run=replay)
            assert answer.status == status, (route, headers)
    assert (
        airflow.call("GET", f"/tidemark/api/streams/cdn_logs/progress?run={replay}")[1]["lanes"][0]["state"] == "open"
    )


@pytest.mark.covers("Q14")
def test_every_answer_has_a_strict_policy(airflow: Airflow, routes: list[Route], tokens: dict[str, str]) -> None:
    """Scripts are those of the package, and never a part of a page. The report of an audit has no script at all."""
    pages = 0
    for route in routes:
        answer = asked(airflow, route, tokens[environment.ADMIN])
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'self'; frame-ancestors 'self'"), route
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        if answer.headers.get_content_type() == "text/html":
            pages += 1
            assert "<script src=" in answer.text
            assert "<script>" not in answer.text
            assert "style=" not in answer.text
    assert pages >= 9
    scripts = sorted((REPOSITORY / "tidemark" / "plugin" / "page").glob("*.js"))
    assert len(scripts) >= 9
    writers = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "srcdoc", "javascript:")
    for script in scripts:
        assert [word for word in writers if word in script.read_text()] == [], script.name
