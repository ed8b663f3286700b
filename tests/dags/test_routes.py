"""Every route of the pages, with Airflow's own auth manager: who is nobody gets nothing, and who may look changes nothing."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from airflow.api_fastapi.app import create_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.utils.session import create_session
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from pydantic import BaseModel
from sqlalchemy import delete
from starlette.applications import Starlette
from starlette.routing import Match, Mount

from tests.support.claiming import claim_lane
from tests.support.known_streams import KnownStream, tables
from tests.support.page_routes import NO_WINDOW
from tests.support.pages_in_memory import opened_by_pages, page_ledger, routes
from tests.support.stream_text import MINIMAL
from tests.support.streams_in_memory import TEXT, LookedAt, StreamInMemory, offsets
from tests.support.timed_streams import Place, Timed, TimedKafka, minutes
from tests.support.waiting import until
from tidemark.audit.comparison import PlaceComparison, ReplayComparison
from tidemark.audit.levels import Level
from tidemark.audit.report import AuditReport, PlaceReport
from tidemark.clients.connections import Connections
from tidemark.clients.kafka.topics import TopicLog
from tidemark.errors import LedgerContradiction, StaleLedger, Unreachable
from tidemark.ledger.ledger import record_key
from tidemark.ledger.records import LaneKind
from tidemark.plugin import stream_access, streams
from tidemark.plugin.access import get_user
from tidemark.plugin.app import build_app
from tidemark.plugin.routes import messages as messages_routes
from tidemark.plugin.routes import plans as plans_routes
from tidemark.plugin.routes import steering as steering_routes
from tidemark.plugin.routes import windows as windows_routes
from tidemark.runs.auditing import audit_without_spark, store_report
from tidemark.runs.comparisons import store_comparison
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests import answers
from tidemark.runs.requests.forms import ReplayRequest, checked
from tidemark.runs.requests.plan import digest, plan_request
from tidemark.runs.windows import lanes
from tidemark.views import erasure_preview
from tidemark.views.event_time.completeness import TimeSpan
from tidemark.views.event_time.progress import hour_name, progress
from tidemark.views.messages.fates import Fate
from tidemark.views.newer_windows import newer_windows

__all__ = ["page_ledger", "tables"]

pytestmark = [pytest.mark.usefixtures("airflow_home"), pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page_ledger: str) -> FastAPI:
    """The app, with a stream whose DAG Airflow does not know: so nobody may see it."""
    create_auth_manager()
    folder = tmp_path / "streams"
    folder.mkdir()
    (folder / "orders.yaml").write_text(f"{MINIMAL}ledger: {{type: {page_ledger}}}\n")
    monkeypatch.setenv("TIDEMARK_STREAMS", str(folder))
    return build_app()


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    """Somebody who is logged in, and may see no DAG."""
    app.dependency_overrides[get_user] = lambda: SimpleAuthManagerUser(username="somebody", role="viewer")
    with Described(app) as found:
        yield found


class Described(TestClient):
    """Looks at each answer of the API: it has what its description says, and nothing else."""

    def request(self, method: str, url: Any, **more: Any) -> Any:
        answer = super().request(method, url, **more)
        assert isinstance(self.app, FastAPI)
        asked = {"type": "http", "method": method, "path": answer.url.path}
        for route in routes(self.app):
            found = route.responses.get(answer.status_code, {}).get("model") or route.response_model
            if route.matches(asked)[0] == Match.FULL and isinstance(found, type) and issubclass(found, BaseModel):
                found.model_validate_json(answer.text, strict=True, extra="forbid")
        return answer


# The routes that answer POST, each with a body. The first two only look.
POSTS: dict[str, dict[str, Any]] = {
    "/api/streams/{name}/plan": {"kind": "replay", "fields": {"ranges": "orders/0@0-1"}},
    "/api/streams/{name}/erasure": {"fields": {"records": "orders/0@0"}},
    "/api/streams/{name}/progress/{action}": {"run": "orders__replay/1", "reason": "a test"},
}


def ask(client: TestClient, route: APIRoute, stream: str = "orders") -> Any:
    path = address(route).replace("orders", stream)
    return client.post(path, json=POSTS[route.path]) if route.path in POSTS else client.get(path)


def address(route: APIRoute) -> str:
    """An address of a route, with something for each part of its path and for each parameter that it needs."""
    given = {"name": "orders", "lane": "ingest", "seq": "1", "action": "pause", "kind": "messages"}
    path = re.sub(r"\{(\w+)\}", lambda found: given.get(found[1], "1"), route.path)
    needed = (one.alias for one in route.dependant.query_params if one.field_info.is_required())
    asked = "&".join(f"{name}={given.get(name, '1')}" for name in needed)
    return f"{path}?{asked}"


@pytest.mark.covers("Q11", "Q13", "U4")
def test_every_route_asks_who_is_there_and_most_only_look(app: FastAPI) -> None:
    found = routes(app)
    assert {"/", "/streams/{name}", "/api/streams/{name}/coverage", "/api/openapi.json"} <= {one.path for one in found}
    of_pages = {"/streams/{name}/audits", "/streams/{name}/completeness", "/api/streams/{name}/completeness/{hour}"}
    assert of_pages <= {one.path for one in found}
    for route in found:
        assert get_user in [one.call for one in route.dependant.dependencies], route.path
        assert route.methods == ({"POST"} if route.path in POSTS else {"GET"}), route.path
    with TestClient(app) as stranger:
        for route in found:
            answer = ask(stranger, route)
            assert (answer.status_code, "orders" in answer.text.replace(str(answer.url), "")) == (401, False), (
                route.path
            )
            assert answer.headers["content-security-policy"].startswith("default-src 'self'")


@pytest.mark.covers("Q11")
def test_every_route_of_a_stream_asks_for_the_right_to_see_it(
    app: FastAPI, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_streams = [route for route in routes(app) if "{name}" in route.path and "/files/" not in route.path]
    assert len(of_streams) >= 6
    for route in of_streams:
        answer = ask(client, route)
        assert answer.status_code == 404, route.path
        # Nothing tells a stream that somebody may not see from one that there is not.
        other = ask(client, route, "nowhere")
        assert (other.status_code, other.text) == (404, answer.text)
    # The stream is there, for those who may see it.
    monkeypatch.setattr(stream_access, "may_see", lambda _, dags: set(dags))
    assert client.get("/api/streams").json()["streams"] == ["orders"]
    assert client.get("/streams/orders").status_code == 200


@pytest.mark.covers("U4")
def test_what_is_asked_is_answered_with_exact_offsets(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a ledger and a Kafka in memory."""
    far = 2**53
    orders = StreamInMemory(tmp_path, kafka=LookedAt(), text=TEXT)
    orders.ends((far + 1, far + 11))
    orders.ingest("orders__ingest/first")
    orders.ends((far + 1, far + 12), (0, 5))
    monkeypatch.setattr(stream_access, "may_see", lambda _, dags: set(dags))
    opened_by_pages(monkeypatch, orders)

    def asked(path: str) -> Any:
        answer = client.get(f"/api/streams/orders{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    assert asked("")["partitions"][0]["position"] == str(far + 11)
    line = asked("/line")
    assert (line["lag"], line["last_commit"]["run"]) == ("1", "orders__ingest/first")
    assert line["unread_since"] == (far + 11) * 1000
    # Of too many partitions, the worst: here the one with a lag.
    worst = asked("?partitions=1")
    assert ([one["lag"] for one in worst["partitions"]], worst["more_partitions"]) == (["1"], 1)
    (bar, _) = asked("/coverage")["bars"]
    without = asked("/coverage?gaps=true")
    assert (without["bars"], without["partitions"], without["of"]) == ([], 0, 2)
    assert [(one["state"], one["from"], one["until"]) for one in bar["blocks"]] == [
        ("ingest", str(far + 1), str(far + 11)),
        ("unread", str(far + 11), str(far + 12)),
    ]
    (zoomed,) = asked(f"/coverage?partition=orders/0&from={far + 10}")["bars"]
    assert (zoomed["from"], zoomed["pixels"]) == (str(far + 10), 2)
    assert [(one["window"], one["lag"]) for one in asked("/trend")["windows"]] == [(1, "0")]
    # What is asked for and is not there is a mistake of who asks, in words.
    answer = client.get("/api/streams/orders/coverage?partition=orders/7")
    assert (answer.status_code, answer.json()) == (
        400,
        {"detail": "partition: the stream has no partition orders/7 now"},
    )


@pytest.mark.covers("U19")
@pytest.mark.parametrize("number", [20, 400])
def test_some_of_many_streams_are_a_small_answer_in_the_order_of_all(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Whatever the number of streams: the same size, and the worst of all of them first."""
    orders = StreamInMemory(tmp_path, kafka=LookedAt(), text=TEXT)
    orders.ends((0, 10))
    orders.ingest("orders__ingest/first")
    monkeypatch.setattr(stream_access, "may_see", lambda _, dags: set(dags) - {"hidden__ingest"})
    monkeypatch.setattr(stream_access, "known_dags", set)
    opened_by_pages(monkeypatch, orders)

    def opened(path: Path, connections: Connections, **_: object) -> OpenStream:
        if path.stem == f"many_{number - 3}":
            raise LedgerContradiction("two windows have read it")
        return replace(orders.opened, connections=connections)

    monkeypatch.setattr(streams, "open_stream", opened)
    for name in ["hidden", *(f"many_{one}" for one in range(number - 2))]:
        about = f"stream: {name}\nowner: team {name[-1]}\ntags: [money]"
        (tmp_path / "streams" / f"{name}.yaml").write_text(MINIMAL.replace("stream: orders", about))

    def asked(path: str = "") -> Any:
        answer = client.get(f"/api/triage{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    until(lambda: asked()["unknown"] == 0, "some streams are not asked")
    found = asked("?count=10")
    assert [one["stream"] for one in found["streams"]][:2] == [f"many_{number - 3}", "many_0"]
    assert found["streams"][0]["problem"] == "LedgerContradiction: two windows have read it"
    assert found["states"] == [{"state": "UNREACHABLE", "streams": 1}, {"state": "OK", "streams": number - 2}]
    assert (found["found"], found["of"], found["tags"]) == (number - 1, number - 1, ["money"])
    assert len(json.dumps(found)) < 15_000
    # A page that is beyond the end is the last one.
    assert [one["stream"] for one in asked("?state=UNREACHABLE&first=50&count=10")["streams"]] == [f"many_{number - 3}"]
    assert {one["owner"] for one in asked("?owner=team+1&count=100")["streams"]} == {"team 1"}
    assert asked("?words=hidden")["streams"] == []
    for wrong in ("?state=BAD", "?sort=size", "?count=101", "?words=" + "a" * 201):
        assert client.get(f"/api/triage{wrong}").status_code == 422, wrong


@pytest.mark.covers("N42")
def test_the_list_of_streams_says_that_a_dag_file_comes_near_airflows_limits(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the time that Airflow's DAG processor has noted itself; to those who may see what is wrong with files."""
    monkeypatch.setattr(stream_access, "may_see", lambda _, dags: set(dags))
    monkeypatch.setattr(stream_access, "may_see_files", lambda _: True)

    def took(seconds: float, *, stale: bool = False) -> list[str]:
        with create_session() as session:
            session.merge(DagBundleModel(name="dags-folder"))
            session.flush()
            session.merge(
                DagModel(
                    dag_id="orders__ingest",
                    bundle_name="dags-folder",
                    fileloc="/dags/orders.py",
                    last_parse_duration=seconds,
                    is_stale=stale,
                )
            )
        found: list[str] = client.get("/api/streams").json()["problems"]
        return found

    try:
        assert took(3.0) == []
        (said,) = took(23.0)
        assert said.startswith(
            "/dags/orders.py: The DAGs of 1 stream file took 23.0 of the 50 s that [dag_processor] dag_"
        )
        assert "build_dags(..., shard=(1, 2))" in said
        assert took(23.0, stale=True) == []
        took(23.0)
        monkeypatch.setattr(stream_access, "may_see_files", lambda _: False)
        assert client.get("/api/streams").json() == {"streams": ["orders"], "problems": []}
    finally:
        with create_session() as session:
            session.execute(delete(DagModel).where(DagModel.dag_id == "orders__ingest"))


@pytest.mark.covers("N2", "U4")
def test_a_hole_is_in_the_status_though_nobody_has_opened_the_picture(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the stream, and of its line among all streams."""
    orders = StreamInMemory(tmp_path, kafka=LookedAt(), text=TEXT)
    for end in (10, 20, 30):
        orders.ends((0, end))
        orders.ingest(f"orders__ingest/{end}")
    del orders.store.values[record_key("ingest", 2)]
    monkeypatch.setattr(stream_access, "may_see", lambda _, dags: set(dags))
    opened_by_pages(monkeypatch, orders)
    monkeypatch.setenv("AIRFLOW__TIDEMARK__PAGE_CACHE_SECONDS", "0")
    again = build_app()
    again.dependency_overrides[get_user] = lambda: SimpleAuthManagerUser(username="somebody", role="viewer")
    with Described(again) as looking:
        for path in ("", "/line"):
            until(
                lambda path=path: looking.get(f"/api/streams/orders{path}").json()["holes"],
                "the status says nothing of holes",
            )
            found = looking.get(f"/api/streams/orders{path}").json()
            assert (found["holes"], found["more_holes"]) == (["orders/0@10-20"], 0)


class Looked(TimedKafka, LookedAt):
    """Kafka as the pages ask it, with times of the messages. `slow` is until when it does not answer about them."""

    slow: threading.Event | None = None

    def first_at_or_after(self, logs: Mapping[str, TopicLog], timestamp_ms: int, isolation: str) -> dict[Place, Any]:
        if self.slow is not None:
            assert self.slow.wait(60)
        return super().first_at_or_after(logs, timestamp_ms, isolation)


@pytest.fixture
def timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Timed:
    """What the pages ask: a ledger and a Kafka in memory, for somebody who may see the stream."""
    made = Timed(tmp_path, kafka=Looked(logs={}), text=TEXT)
    monkeypatch.setattr(stream_access, "may_see", lambda _, dags: set(dags))
    opened_by_pages(monkeypatch, made)
    return made


@pytest.mark.covers("U10")
def test_the_calendar_and_the_answer_of_an_hour(client: TestClient, timed: Timed) -> None:
    timed.kafka.send(0, minutes(61), minutes(70), minutes(130))
    timed.now = minutes(200)
    timed.ingest()
    timed.kafka.send(0, minutes(65), minutes(135))

    def asked(path: str) -> Any:
        answer = client.get(f"/api/streams/orders/completeness{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    found = asked("")
    assert (found["now"], found["watermark"], found["first"]) == (minutes(200), minutes(125), minutes(61))
    assert len(found["hours"]) == 168
    first = hour_name(TimeSpan(minutes(0), minutes(60)))
    four = asked(f"?since={first}&hours=9")["hours"]
    assert [one["word"] for one in four] == ["before the first message", "complete", "not read yet", "not over"]
    assert [one["missing"] for one in four] == ["0", "0", "2", "0"]
    # The same as the command line says, and what a backfill can read.
    span = TimeSpan(minutes(60), minutes(120))
    (answer,) = progress(timed.opened).answers(span)
    whole = asked(f"/{hour_name(span)}")
    (partition,) = whole["partitions"]
    assert (whole["word"], partition["rule"], whole["unread_after"]) == ("complete", answer.rule.value, "2")
    assert whole["backfill"] == []

    api = "/api/streams/orders/completeness"
    for path, status, said in (
        ("?since=yesterday", 400, "since: 'yesterday' is not a time"),
        ("/2026-11-21T13:30Z", 400, "hour: 2026-11-21T13:30Z: no hour begins then"),
        ("?hours=169", 422, "at most 168"),
    ):
        answer_of = client.get(api + path)
        assert (answer_of.status_code, said in answer_of.text) == (status, True), answer_of.text


def test_a_calendar_that_takes_longer_than_a_viewer_waits_comes_later(
    app: FastAPI,
    timed: Timed,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka = timed.kafka
    assert isinstance(kafka, Looked)
    timed.kafka.send(0, minutes(1))
    timed.now = minutes(100)
    timed.ingest()
    monkeypatch.setenv("AIRFLOW__TIDEMARK__PAGE_WAIT_SECONDS", "0.2")
    slow = build_app()
    slow.dependency_overrides[get_user] = lambda: SimpleAuthManagerUser(username="somebody", role="viewer")
    kafka.slow = threading.Event()
    with TestClient(slow) as client:
        answer = client.get("/api/streams/orders/completeness")
        assert answer.status_code == 504, answer.text
        assert "they are still being asked" in answer.json()["detail"]
        kafka.slow.set()
        for _ in range(300):
            if (answer := client.get("/api/streams/orders/completeness?hours=1")).status_code != 504:
                break
        assert answer.status_code == 200, answer.text


@pytest.mark.covers("U11")
def test_the_audits_and_their_reports(client: TestClient, timed: Timed) -> None:
    api = "/api/streams/orders/audits"
    none = client.get(api).json()
    assert (none["audits"], none["more"]) == ([], False)
    assert [one["name"] for one in none["levels"]] == [one.value for one in Level]
    timed.kafka.send(0, minutes(1), minutes(2))
    timed.ingest()
    audit_without_spark(timed.opened, "orders__audit/first", Level.LEDGER)
    timed.now += 1
    place = PlaceReport(
        name="hbase",
        expected=2,
        found=1,
        missing=1,
        different=0,
        extra=0,
        twice=0,
        debris=0,
        missing_at=("orders/0@1",),
    )
    findings = timed.opened.ledger.store_selection(offsets((0, 1, 2)))
    report = AuditReport(
        stream="orders",
        run="orders__audit/second",
        at=timed.now,
        code_version="v",
        coverage=(),
        ledger_problems=(),
        places=(place,),
        findings=findings,
    )
    store_report(timed.opened, report)
    second, first = client.get(api).json()["audits"]
    assert (first["run"], first["level"], first["clean"]) == ("orders__audit/first", "ledger", True)
    assert (second["clean"], second["found"]["selection"]) == (False, findings.digest)
    # What the page links to: the report, and the message of a finding.
    (coordinate,) = second["found"]["places"][0]["at"]["missing"]
    assert coordinate == "orders/0@1"
    page = client.get("/streams/orders/audit", params={"run": second["run"]})
    assert (page.status_code, "orders/0@1" in page.text) == (200, True)
    shown = client.get(f"{api}?limit=1").json()
    assert ([one["run"] for one in shown["audits"]], shown["more"]) == (["orders__audit/second"], True)
    assert client.get(f"{api}?limit=101").status_code == 422


@pytest.mark.covers("U4")
def test_the_description_names_what_there_is_to_ask(client: TestClient) -> None:
    described = client.get("/api/openapi.json").json()
    paths = set(described["paths"])
    assert {"/api/streams", "/api/streams/{name}", "/api/streams/{name}/line", "/api/streams/{name}/coverage"} <= paths
    # Pages are no part of it, and every question says what it answers.
    assert not any(path in paths for path in ("/", "/streams/{name}", "/files/{version}/{name}"))
    for path, methods in described["paths"].items():
        assert all(one["description"] for one in methods.values()), path
    # What the newest routes answer is named too.
    answers = described["components"]["schemas"]
    assert {"plan", "partitions", "left_out", "replaces", "estimate"} <= set(answers["PlanShown"]["properties"])
    assert {"lanes", "may_steer"} <= set(answers["ProgressOfRun"]["properties"])
    names = {one["name"] for one in described["paths"]["/api/streams/{name}/coverage"]["get"]["parameters"]}
    assert {"name", "width", "first", "count", "partition", "from", "until", "gaps"} == names


def mounted(app: FastAPI) -> Starlette:
    """The app as Airflow mounts it, which is served below a path itself."""
    return Starlette(routes=[Mount("/airflow/tidemark", app)])


@pytest.mark.covers("U4")
def test_the_description_says_of_every_answer_what_it_has(app: FastAPI, client: TestClient) -> None:
    """Enough for a program that makes a client of it: where the API is, and the fields of each answer."""
    described = client.get("/api/openapi.json").json()
    operations = {
        (path, method): found for path, methods in described["paths"].items() for method, found in methods.items()
    }
    assert len(operations) > 12
    for (path, method), operation in operations.items():
        for status, answer in operation["responses"].items():
            ((kind, content),) = answer["content"].items()
            if path == "/api/openapi.json" or (kind in ("text/html", "text/plain") and status == "200"):
                continue
            name = content["schema"]["$ref"].rpartition("/")[2]
            assert described["components"]["schemas"][name]["properties"], (path, status)
            assert status == "200" or name == "Problem", (path, status)
        wanted = {"411", "413", "415"} if method == "post" else set()
        assert path == "/api/openapi.json" or wanted | {"401", "403", "404", "422", "503", "504"} <= set(
            operation["responses"]
        ), path
    assert described["servers"] == [{"url": ""}]
    with TestClient(mounted(app)) as below:
        assert below.get("/airflow/tidemark/api/openapi.json").json()["servers"] == [{"url": "/airflow/tidemark"}]


@pytest.mark.covers("Q11")
def test_a_stranger_in_a_browser_is_led_to_the_login(app: FastAPI) -> None:
    """Who follows a link that a colleague has sent. Programs get JSON, as before."""
    page = "/airflow/tidemark/streams/orders"
    with TestClient(mounted(app)) as stranger:
        answer = stranger.get(f"{page}/messages?topic=a%22b&offset=1", headers={"Accept": "text/html,*/*"})
        assert (answer.status_code, answer.headers["content-type"]) == (401, "text/html; charset=utf-8")
        (link,) = re.findall(r'href="([^"]+)"', answer.text)
        address, _, query = unescape(link).partition("?")
        assert address == "/airflow/api/v2/auth/login"
        (target,) = parse_qs(query)["next"]
        assert target == f"{page}/messages?topic=a%22b&offset=1"
        assert "orders" not in answer.text.replace(link, "")
        assert answer.headers["content-security-policy"].startswith("default-src 'self'")
        assert stranger.get(page).json() == {"detail": "Not authenticated"}


@pytest.mark.covers("U4")
@pytest.mark.parametrize("asked", ["width=0", "width=9999999", "count=51", "from=-1", "until=9223372036854775808"])
def test_a_question_out_of_bounds_is_refused_by_its_name(client: TestClient, asked: str) -> None:
    answer = client.get(f"/api/streams/orders/coverage?{asked}")
    assert answer.status_code == 422
    # A sentence, as for any other problem.
    assert answer.json()["detail"].startswith(f"{asked.partition('=')[0]}: expected ")


def test_only_the_files_of_the_pages_are_served(client: TestClient) -> None:
    assert client.get("/files/0/shared.js").headers["content-type"] == "text/javascript; charset=utf-8"
    for name in ("..%2Fapp.py", "nothing.js", "%2e%2e", "app.py"):
        assert client.get(f"/files/0/{name}").status_code == 404


@pytest.mark.covers("U22")
def test_browsers_keep_the_files_of_a_version_and_ask_for_those_of_another(client: TestClient) -> None:
    (version,) = set(re.findall(r"files/([^/]+)/", client.get("/").text))
    for name in ("shared.js", "page.css"):
        assert client.get(f"/files/{version}/{name}").headers["cache-control"] == "private, max-age=31536000, immutable"
        # As after an upgrade, or as somebody makes up: what is there now, and nobody keeps it under that name.
        assert client.get(f"/files/0123456789abcdef/{name}").headers["cache-control"] == "no-store"
    assert client.get("/").headers["cache-control"] == "no-store"


@pytest.mark.covers("U22")
@pytest.mark.parametrize("path", ["/nowhere", "/streams/orders/zzz", "/streams/orders/windows/ingest/1/more"])
def test_an_address_that_is_none_has_a_page_and_programs_have_a_sentence(client: TestClient, path: str) -> None:
    page = client.get(path, headers={"Accept": "text/html,application/xhtml+xml"})
    assert (page.status_code, "There is no such page" in page.text) == (404, True)
    # Its scripts and styles are found from there.
    (script,) = re.findall(r'src="([^"]+/missing.js)"', page.text)
    assert client.get(str(page.url.join(script))).status_code == 200
    assert client.get(path).json() == {"detail": "Not Found"}
    # What is wrong with an address is said there too, in words that are text.
    for asked, status in (("", 422), ("?run=%3Cimg%20src=x%3E", 404)):
        page = client.get(f"/streams/<img src=x>/audit{asked}", headers={"Accept": "text/html"})
        assert (page.status_code, "<main" in page.text, "<img" in page.text) == (status, True, False)
    assert client.get("/api/zzz", headers={"Accept": "text/html"}).json() == {"detail": "Not Found"}


def test_the_pages_name_only_files_that_there_are(client: TestClient, app: FastAPI) -> None:
    folder = Path(stream_access.__file__).parent / "page"
    for path in folder.iterdir():
        for named in re.findall(r"""(?:src|href)="(?:\.\./)*files/([^"]+)"|from "\./([^"]+)\"""", path.read_text()):
            assert (folder / (named[0] or named[1])).exists(), (path.name, named)


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StreamInMemory:
    """A stream whose offsets no number of JavaScript holds, of which ten were read; somebody may see it."""
    made = StreamInMemory(tmp_path, kafka=LookedAt(), text=TEXT)
    made.ends((FAR, FAR + 10))
    made.ingest("orders__ingest/first")
    made.ends((FAR, FAR + 12))
    monkeypatch.setattr(stream_access, "may_see", lambda _, dags: set(dags))
    opened_by_pages(monkeypatch, made)
    return made


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KnownStream:
    """Twelve dead letters, a row, and no Kafka any more; somebody may see them."""
    made = KnownStream(tmp_path, [*[Fate.DEAD_LETTER] * 12, Fate.STORED])
    made.ends((0, 13))
    while made.ingest("orders__ingest/first") is not None:
        pass
    monkeypatch.setattr(stream_access, "may_see", lambda _, dags: set(dags))
    opened_by_pages(monkeypatch, made)
    made.log.away = True
    monkeypatch.setattr(made.log, "topics", _away)
    return made


def _away(*_: Any) -> Any:
    raise Unreachable("Kafka at k:1 did not answer")


@pytest.mark.covers("U8", "Q25")
def test_dead_letters_are_filtered_while_kafka_is_away(client: TestClient, known: KnownStream) -> None:
    api = "/api/streams/orders/dead-letters"

    def asked(**query: Any) -> Any:
        answer = client.get(api, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    # The stream itself is shown by its ledger, and says what is away; what needs Kafka is refused.
    shown = client.get("/api/streams/orders")
    assert (shown.status_code, shown.json()["kafka_problem"]) == (200, "Kafka at k:1 did not answer")
    assert client.get("/api/streams/orders/coverage").status_code == 503
    assert asked()["counted"] == 12
    assert (asked(window="ingest/2")["counted"], asked(reason="bad 0")["counted"]) == (5, 6)
    # So many are named as are asked for.
    named = [sum(len(one["examples"]) for one in asked(**query)["groups"]) for query in ({}, {"examples": 50})]
    assert named == [10, 12]
    assert client.get(api, params={"examples": 51}).status_code == 422


@pytest.mark.covers("U9")
def test_a_hostile_reason_is_text_and_names_its_group(client: TestClient, known: KnownStream) -> None:
    hostile = "\x1b[31mred\u202egnp"
    for offset, row in known.dead.held.items():
        reason = (hostile if offset % 2 else "y" * 100_000).encode()
        known.dead.held[offset] = replace(row, fields={**row.fields, "reason": reason, "error": b"\xffError\x07"})
    short, long = sorted(client.get("/api/streams/orders/dead-letters").json()["groups"], key=lambda one: one["reason"])
    assert (short["selects"], short["shown"]["reason"]["text"]) == (hostile, "\\x1b[31mred\\u202egnp")
    assert short["shown"]["error"]["text"].endswith("Error\\x07")
    assert (long["selects"], long["shown"]["reason"]["more"]) == (None, 99_000)
    assert client.get("/api/streams/orders/dead-letters", params={"reason": hostile}).json()["counted"] == 6


@pytest.mark.covers("U4")
def test_a_message_and_its_window_are_described(
    client: TestClient, known: KnownStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages_routes, "may_trigger", lambda *_: False)
    for offset in (0, 12, 99):
        found = client.get(f"/api/streams/orders/messages/orders/0/{offset}")
        assert found.status_code == 200, found.text
        assert found.json()["kafka"]["sentence"] == "Unreachable: Kafka at k:1 did not answer"
    window = client.get("/api/streams/orders/windows/ingest/1")
    assert (window.status_code, window.json()["messages"]["dead_letters"]) == (200, 5)


FAR = 2**53 + 1
PLAN = "/api/streams/orders/plan"


def resolve(client: TestClient, **fields: Any) -> Any:
    return client.post(PLAN, json={"kind": "replay", "fields": fields})


@pytest.mark.covers("U12")
def test_a_plan_says_what_would_be_read_and_replaced(client: TestClient, far: StreamInMemory) -> None:
    records = "\n".join(f"orders/0@{offset}" for offset in (FAR + 3, FAR + 4, FAR + 7, FAR + 11, FAR + 99, 5))
    before = dict(far.store.values)
    answer = resolve(client, records=records)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    (part,) = found["partitions"]
    assert (found["offsets"], part["offsets"], part["more_ranges"]) == ("3", "3", 0)
    assert [(one["from"], one["until"]) for one in part["ranges"]] == [
        (str(FAR + 3), str(FAR + 5)),
        (str(FAR + 7), str(FAR + 8)),
    ]
    assert [(one["from"], one["answer"]) for one in found["left_out"]["answers"]] == [
        ("5", answers.EXPIRED),
        (str(FAR + 11), answers.THE_INGESTS),
        (str(FAR + 99), answers.NOT_YET),
    ]
    (window,) = found["replaces"]
    assert (window["window"], window["run"], window["offsets"]) == ("ingest/1", "orders__ingest/first", "3")
    # It is what the command line and the DAG select, and nothing was written.
    request = checked(ReplayRequest, {"records": records, "reason": "why", "dry_run": True}, {})
    chosen = plan_request(far.opened, request)
    assert found["plan"] == digest(far.opened, chosen)
    assert far.store.values == before


@pytest.mark.covers("U12")
def test_a_stale_plan_is_refused_by_the_page_and_by_the_run(client: TestClient, far: StreamInMemory) -> None:
    ranges = f"orders/0@{FAR}-{FAR + 12}"
    plan = resolve(client, ranges=f"orders/0@{FAR}-{FAR + 5}").json()["plan"]
    of_all = resolve(client, ranges=ranges).json()["plan"]
    # What the ingest reads elsewhere is nothing to a plan; what it reads of the plan's own offsets is.
    far.ingest("orders__ingest/second")
    assert resolve(client, ranges=f"orders/0@{FAR}-{FAR + 5}", plan=plan).status_code == 200
    answer = resolve(client, ranges=ranges, plan=of_all)
    assert answer.status_code == 409
    assert f"the plan {of_all[:12]} of orders is stale" in answer.json()["detail"]
    # Another replay of the same offsets: the results that the plan would replace are others by now.
    request = {"ranges": f"orders/0@{FAR}-{FAR + 5}", "reason": "a fix", "dry_run": False, "plan": plan}
    chosen = plan_request(far.opened, checked(ReplayRequest, request, {}))
    lane = claim_lane(far.opened, LaneKind.REPLAY, "cli/other", chosen.ranges, "another fix")
    lanes.plan_lane(far.opened, lane, "cli/other")
    far.process(lane, "cli/other")
    lanes.finish(far.opened, lane)
    with pytest.raises(StaleLedger, match="Plan again"):
        plan_request(far.opened, checked(ReplayRequest, request, {}))


@pytest.mark.covers("U26")
def test_what_a_replay_of_the_command_line_changes_is_asked_of_the_ledger(
    client: TestClient, far: StreamInMemory
) -> None:
    api, run = "/api/streams/orders/comparison", "cli/20261121T070000Z-1"
    assert client.get(api, params={"run": run}).json() == {"comparison": None}
    place = PlaceComparison(name="parquet", before=3, after=3, same=1, changed=2, new=0, gone=0, columns={"id": 2})
    found = ReplayComparison(
        stream="orders", run=run, at=1, code_version="v", stream_digest="d", selection="e", offsets=3, messages=3,
        stored=3, skipped=0, dead_letters=0, places=(place,), not_compared=(), reasons=(),
    )  # fmt: skip
    store_comparison(far.opened, found)
    answer = client.get(api, params={"run": run})
    assert answer.status_code == 200
    (changed,) = answer.json()["comparison"]["places"]
    assert (changed["name"], changed["changed"], changed["columns"]) == ("parquet", 2, {"id": 2})
    assert client.get(api, params={"run": "cli/another"}).json() == {"comparison": None}


@pytest.mark.covers("U26")
def test_a_window_says_which_windows_have_replaced_its_results(client: TestClient, far: StreamInMemory) -> None:
    address = "/api/streams/orders/windows"
    assert client.get(f"{address}/ingest/1/newer").json() == {"offsets": "10", "count": "10", "newer": [], "more": 0}
    for by, end in (("cli/one", FAR + 5), ("orders__replay/two", FAR + 2)):
        lane = claim_lane(far.opened, LaneKind.REPLAY, by, offsets((0, FAR, end)), "a fix")
        lanes.plan_lane(far.opened, lane, by)
        far.process(lane, by)
        lanes.finish(far.opened, lane)
    found = client.get(f"{address}/ingest/1/newer").json()
    assert (found["offsets"], found["count"]) == ("10", "5")
    assert [(one["kind"], one["run"], one["offsets"]) for one in found["newer"]] == [
        ("replay", "orders__replay/two", "2"),
        ("replay", "cli/one", "3"),
    ]
    # Of a replay, what another one has replaced.
    first = found["newer"][1]["window"]
    again = client.get(f"{address}/{first}/newer").json()
    assert (again["count"], [one["offsets"] for one in again["newer"]]) == ("3", ["2"])
    none = client.get(f"{address}/ingest/7/newer")
    assert (none.status_code, none.json()["detail"]) == (
        404,
        NO_WINDOW.format("orders", "ingest/7"),
    )


@pytest.mark.covers("U26")
@pytest.mark.usefixtures("client", "far")
def test_a_history_that_takes_longer_than_a_viewer_waits_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were each look to read it anew, the page would wait for ever, and the others for its reads."""
    go_on, reads = threading.Event(), list[int]()

    def slow(opened: OpenStream, lane: str, seq: int) -> Any:
        reads.append(seq)
        go_on.wait(60)
        return newer_windows(opened, lane, seq)

    monkeypatch.setattr(windows_routes, "newer_windows", slow)
    monkeypatch.setenv("AIRFLOW__TIDEMARK__PAGE_WAIT_SECONDS", "0.2")
    app = build_app()
    app.dependency_overrides[get_user] = lambda: SimpleAuthManagerUser(username="somebody", role="viewer")
    with TestClient(app) as found:
        looks = [found.get("/api/streams/orders/windows/ingest/1/newer").status_code for _ in range(3)]
        go_on.set()
        answer = until(
            lambda: (
                one if (one := found.get("/api/streams/orders/windows/ingest/1/newer")).status_code != 504 else None
            ),
            "no answer",
        )
    assert (looks, answer.status_code, reads) == ([504] * 3, 200, [1])


@pytest.mark.covers("U12")
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"records": "orders/0@1\norders/x@2"}, "line 2: 'orders/x@2' is not a coordinate"),
        ({"records": '[["orders", 0, 1],\n["orders", 0]]'}, "line 2"),
        ({"records": "<img src=x onerror=alert(1)>"}, "line 1: '<img src=x onerror=alert(1)>' is not a coordinate"),
        ({"ranges": "orders/0@1-2", "records": "orders/0@1"}, "fill in exactly one of"),
        ({"ranges": "orders/0@1-2", "nothing": "x"}, "unknown: nothing"),
        ({"since": "2026-11-24T07:00:00"}, "since: "),
        ({"selection": "0" * 64}, "has no stored selection"),
    ],
)
def test_a_plan_of_something_wrong_names_it(
    client: TestClient, far: StreamInMemory, fields: dict[str, Any], said: str
) -> None:
    answer = resolve(client, **fields)
    assert (answer.status_code, said in answer.json()["detail"]) == (400, True), answer.text


@pytest.mark.covers("U24", "Q11")
def test_what_would_be_erased_is_shown_before_and_a_key_is_for_those_who_may_erase(
    client: TestClient, far: StreamInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    may: set[str] = set()
    noted: list[str] = []
    monkeypatch.setattr(plans_routes, "may_trigger", lambda _, dag: dag in may)
    monkeypatch.setattr(plans_routes, "note_key_search", lambda _, dag, question: noted.append(f"{dag} {question}"))
    before = dict(far.store.values)

    def asked(**fields: Any) -> Any:
        return client.post("/api/streams/orders/erasure", json={"fields": fields})

    records = f"orders/0@{FAR + 3}\norders/0@{FAR + 4}"
    found = asked(records=records).json()
    ((part,), (span,)) = (found["partitions"], found["partitions"][0]["ranges"])
    assert (found["offsets"], part["offsets"], found["may_start"]) == ("2", "2", False)
    assert (span["from"], span["until"]) == (str(FAR + 3), str(FAR + 5))
    assert {"hbase", "the source"} <= {one["name"] for one in found["places"]}
    assert asked(records=records, plan=found["plan"]).status_code == 200
    answer = asked(records=f"orders/0@{FAR + 3}", plan=found["plan"])
    assert (answer.status_code, "is stale" in answer.json()["detail"]) == (409, True)
    answer = asked(records=f"orders/0@{FAR + 11}")
    assert (answer.status_code, "Only what was read can be erased" in answer.json()["detail"]) == (400, True)
    # What has a key is as good as a payload.
    for field in ("key", "records_file"):
        answer = asked(**{field: "customer 4711"})
        assert (answer.status_code, "orders__erase" in answer.json()["detail"]) == (403, True)
    may.add("orders__erase")
    monkeypatch.setattr(erasure_preview, "MAX_READ", 3)
    answer = asked(key="customer 4711")
    assert (answer.status_code, "a page reads up to 3 to look for a key" in answer.json()["detail"]) == (400, True)
    (told,) = noted
    assert re.fullmatch("orders__erase [0-9a-f]{64}", told)
    assert asked(records=records).json()["may_start"] is True
    assert far.store.values == before


@pytest.mark.covers("Q13")
def test_another_site_cannot_have_anything_done(client: TestClient, far: StreamInMemory) -> None:
    body = '{"kind": "replay", "fields": {"ranges": "orders/0@1-2"}}'
    as_json = {"content-type": "application/json"}
    for headers, status in (
        ({**as_json, "sec-fetch-site": "cross-site"}, 403),
        ({**as_json, "sec-fetch-site": "same-site"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({**as_json, "content-length": "7000000"}, 413),
        ({**as_json, "sec-fetch-site": "same-origin"}, 200),
    ):
        assert client.post(PLAN, content=body, headers=headers).status_code == status, headers


@pytest.mark.covers("U13", "Q13")
def test_a_viewer_sees_the_progress_and_steers_nothing(
    client: TestClient, far: StreamInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, api = "orders__replay/manual 1", "/api/streams/orders/progress"
    chosen = offsets((0, FAR, FAR + 4))
    lane = claim_lane(far.opened, LaneKind.REPLAY, run, chosen, "a fixed parser")
    lanes.plan_lane(far.opened, lane, run)
    noted: list[tuple[str, ...]] = []
    may: set[str] = set()
    monkeypatch.setattr(steering_routes, "may_trigger", lambda _, dag: dag in may)
    monkeypatch.setattr(steering_routes, "note_steering", lambda _, *said: noted.append(said))

    def steer(action: str, reason: str = "") -> Any:
        return client.post(f"{api}/{action}", json={"run": run, "reason": reason})

    (found,) = (seen := client.get(api, params={"run": run}).json())["lanes"]
    assert (found["state"], found["reason"], found["left"], seen["may_steer"]) == ("open", "a fixed parser", "4", False)
    assert found["pending"]["window"] == f"{lane}/1"
    for action in ("pause", "resume", "cancel"):
        answer = steer(action, "no right to")
        assert (answer.status_code, "orders__replay" in answer.json()["detail"]) == (403, True)
    may.add("orders__backfill")
    assert steer("cancel", "the other DAG's right").status_code == 403
    assert (noted, client.get(api, params={"run": run}).json()["lanes"]) == ([], [found])
    may.add("orders__replay")
    assert steer("pause").status_code == 400
    (paused,) = steer("pause", "until noon").json()["lanes"]
    assert (paused["state"], paused["paused"]["reason"]) == ("paused", "until noon")
    assert steer("resume").json()["lanes"][0]["state"] == "open"
    far.process(lane, run)
    assert client.get(api, params={"run": lane}).json()["lanes"][0]["left"] == "0"
    lanes.finish(far.opened, lane)
    (done,) = client.get(api, params={"run": run}).json()["lanes"]
    assert (done["state"], done["left"], done["partitions"][0]["until"]) == ("done", "0", str(FAR + 4))
    answer = steer("cancel", "too late")
    assert (answer.status_code, "nothing to cancel" in answer.json()["detail"]) == (400, True)
    # Another one is cancelled before its first window.
    other = claim_lane(far.opened, LaneKind.REPLAY, "orders__replay/2", offsets((0, FAR, FAR + 3)), "again")
    answer = client.post(f"{api}/cancel", json={"run": other, "reason": "the wrong hour"})
    (cancelled,) = answer.json()["lanes"]
    assert (cancelled["state"], cancelled["closed_early"]) == ("cancelled", "the wrong hour")
    assert (cancelled["offsets"], cancelled["left"]) == ("3", "3")
    assert [one[:3] for one in noted] == [
        ("orders__replay", "pause", run),
        ("orders__replay", "resume", run),
        ("orders__replay", "cancel", run),
        ("orders__replay", "cancel", other),
    ]
    assert client.get(api, params={"run": "nowhere"}).status_code == 400
