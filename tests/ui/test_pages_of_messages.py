"""The pages of a message, of a window and of the dead letters, with the real Airflow, in a real browser."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
from kafka import KafkaProducer
from playwright.sync_api import Page, Route, expect

from demo.airflow import Airflow
from services import environment
from services.site import Site
from tests.support.browser import SCREENSHOTS, logged_in
from tests.support.evil import EVIL
from tests.support.live_streams import Kafka
from tests.support.page_routes import NO_STREAM, NO_WINDOW
from tidemark.views.dead_letters import Group, InGroups, page_of, selects
from tidemark.views.values import as_plain

TOPIC, PARTITION = "cdn-logs", 2
# Markup, escape codes, marks of direction, and bytes that are no UTF-8.
HOSTILE = f"{EVIL}\x1b[31mred\x1b[0m\u202egnp.exe".encode()
SHOWN = f"{EVIL}\\x1b[31mred\\x1b[0m\\u202egnp.exe"
LARGE = b"x" * 10_000_000
# More than a line, with a number that no browser's own has.
ORDER = {"number": 2**53 + 1, "lines": [{"article": "{a: 1}, [b]"}], "none": []}
# 2026-11-20T13:00:00Z.
HOUR = 1_795_179_600_000


@dataclass(frozen=True)
class Sent:
    """Messages that are no log lines, which an ingest has read: where they are. `amounts`: JSON of one `customer`."""

    hostile: int
    large: int
    customer: str
    amounts: dict[int, int]

    def path(self, offset: int) -> str:
        return f"/tidemark/api/streams/cdn_logs/messages/{TOPIC}/{PARTITION}/{offset}"


@pytest.fixture(scope="module")
def sent(airflow: Airflow, kafka: Kafka) -> Sent:
    producer = KafkaProducer(**kafka.settings, max_request_size=11_000_000)
    hostile = producer.send(TOPIC, HOSTILE, EVIL.encode(), headers=[(EVIL, b"\xff\x00")], partition=PARTITION)
    large = producer.send(TOPIC, LARGE, None, partition=PARTITION)
    customer = secrets.token_hex(8)
    amounts = {
        amount: producer.send(
            TOPIC,
            json.dumps({"amount": amount, **ORDER}).encode(),
            customer.encode(),
            partition=PARTITION,
            timestamp_ms=at,
        )
        for amount, at in ((-5, HOUR), (7, HOUR + 1), (-6, HOUR + 3_599_999), (-7, HOUR + 3_600_000))
    }
    producer.flush()
    found = Sent(
        hostile.get(timeout=60).offset,
        large.get(timeout=60).offset,
        customer,
        {amount: one.get(timeout=60).offset for amount, one in amounts.items()},
    )
    producer.close()
    assert airflow.run("cdn_logs__ingest") == "success"
    return found


@pytest.fixture
def page(airflow: Airflow) -> Iterator[Page]:
    """A browser that is logged in."""
    with logged_in(airflow, width=1280) as opened:
        yield opened


def asked(airflow: Airflow, path: str, token: str | None) -> tuple[int, Any]:
    """An answer; on a slow machine, at the second or third look."""
    for _ in range(20):
        status, answer = airflow.call("GET", path, token=token)
        if status != 504:
            break
    return status, answer


def looks(airflow: Airflow) -> list[tuple[str, str]]:
    """Who has looked at which payload, as Airflow's audit log has it."""
    _, found = airflow.call("GET", "/api/v2/eventLogs?event=tidemark_payload&limit=100")
    return [(one["owner"], json.loads(one["extra"])["coordinate"]) for one in found["event_logs"]]


@pytest.mark.covers("Q16")
def test_a_payload_is_for_those_who_may_replay_and_every_look_is_noted(
    airflow: Airflow, site: Site, sent: Sent
) -> None:
    tokens = {
        user: airflow.token_of(user, environment.password(site, user)) for user in ("viewer", "operator", "nobody")
    }
    path, named = sent.path(sent.hostile), f"{TOPIC}/{PARTITION}@{sent.hostile}"
    before = looks(airflow)
    status, masked = asked(airflow, path, tokens["viewer"])
    assert (status, masked["fate"], masked["may_see_payload"]) == (200, "dead letter", False)
    assert "gnp.exe" not in json.dumps(masked)
    assert masked["message"]["value"] == {"bytes": len(HOSTILE)}
    status, answer = asked(airflow, f"{path}?payload=true", tokens["viewer"])
    assert (status, answer["detail"]) == (403, "payloads are for those who may trigger cdn_logs__replay")
    for more in ("", "?payload=true"):
        assert asked(airflow, path + more, tokens["nobody"]) == (404, {"detail": NO_STREAM})
        assert airflow.call("GET", path + more, token=None)[0] == 401
    assert looks(airflow) == before
    status, shown = asked(airflow, f"{path}?payload=true", tokens["operator"])
    assert (status, shown["message"]["value"]["text"], shown["may_see_payload"]) == (200, SHOWN, True)
    assert ("operator", named) in looks(airflow)
    # Whoever may replay but does not ask for payloads is in no log.
    noted = len(looks(airflow))
    assert asked(airflow, path, tokens["operator"])[1]["message"]["value"] == {"bytes": len(HOSTILE)}
    assert len(looks(airflow)) == noted

    for place, detail in {
        "cdn-logs/2/2026-11-24T07:00:00": "has no zone",
        "cdn-logs/2/x": "is not a coordinate",
        "cdn-logs/9/2026-11-24T07:00:00Z": "Kafka has no partition cdn-logs/9",
        "cdn-logs/2/2026-11-24T07:00:00Z?payload=true": "shown by its offset",
    }.items():
        status, answer = asked(airflow, f"/tidemark/api/streams/cdn_logs/messages/{place}", airflow.token)
        assert status == 400
        assert detail in answer["detail"]
    api = "/tidemark/api/streams"
    assert asked(airflow, f"{api}/cdn_logs/windows/ingest/999999", airflow.token) == (
        404,
        {"detail": NO_WINDOW.format("cdn_logs", "ingest/999999")},
    )
    hidden = (sent.path(0), f"{api}/red_orders/windows/ingest/1", f"{api}/red_orders/dead-letters")
    for hidden_path in (hidden[0].replace("cdn_logs", "red_orders"), *hidden[1:]):
        assert asked(airflow, hidden_path, tokens["viewer"]) == (404, {"detail": NO_STREAM})
        assert airflow.call("GET", hidden_path, token=None)[0] == 401


@pytest.mark.full
@pytest.mark.covers("U6", "U7", "U8", "U9")
def test_a_dead_letter_is_found_looked_at_and_replayed(airflow: Airflow, page: Page, sent: Sent) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(f"{airflow.url}/tidemark/streams/cdn_logs")
    page.click("#navigation >> text=Message")
    # The page's script has run.
    page.locator("#navigation [aria-current]", has_text="Message").wait_for()
    page.fill("input[name=topic]", TOPIC)
    page.fill("input[name=partition]", str(PARTITION))
    page.fill("input[name=offset]", str(sent.hostile))
    page.click("#which >> text=Find")
    page.locator("#fate", has_text="dead letter").wait_for()
    page.wait_for_url(lambda url: f"offset={sent.hostile}" in url)
    expect(page.locator(".value pre").filter(has_text="img src")).to_have_count(0)
    page.screenshot(path=SCREENSHOTS / "message-masked.png", full_page=True)
    page.click("text=Show payloads")
    value = page.locator("#message .value", has_text="value").locator("pre").first
    value.wait_for()
    expect(value).to_have_text(SHOWN, use_inner_text=True)
    expect(page.locator("#message .value", has_text="header")).to_contain_text("not UTF-8", use_inner_text=True)
    # What is stored in place of a row, beside it.
    expect(page.locator("#rows")).to_contain_text("dead letters", use_inner_text=True)
    page.screenshot(path=SCREENSHOTS / "message.png", full_page=True)
    # The next one is large, and cut.
    page.click("#after")
    page.locator("#title", has_text=f"@{sent.large}").wait_for()
    page.click("text=Show payloads")
    page.locator("#message .more", has_text="9 983 616 bytes more are not shown.").wait_for()
    # Offsets are exact beyond 2^53, also one after the other.
    far = 2**53 + 1
    page.fill("input[name=offset]", str(far))
    page.click("#which >> text=Find")
    page.locator("#title", has_text=f"@{far}").wait_for()
    page.click("#after")
    page.locator("#title", has_text=f"@{far + 1}").wait_for()
    page.locator("#fate", has_text="not in the topic yet").wait_for()
    page.go_back()

    # Which window, and where its dead letters are.
    page.goto(
        f"{airflow.url}/tidemark/streams/cdn_logs/messages?topic={TOPIC}&partition={PARTITION}&offset={sent.hostile}"
    )
    page.locator("#windows a", has_text="ingest/").first.click()
    page.locator("#state", has_text="committed").wait_for()
    counts = page.locator("#partitions tbody tr", has_text=f"{TOPIC}/{PARTITION}").locator("td")
    assert int(counts.nth(7).inner_text()) >= 2
    page.screenshot(path=SCREENSHOTS / "window.png", full_page=True)
    expect(page.locator("#facts")).to_contain_text("the one that committed", use_inner_text=True)
    # From the run back to the window, as the tab of a run does.
    dag, run = asked(airflow, sent.path(sent.hostile), airflow.token)[1]["windows"][0]["run"].split("/", 1)
    page.goto(f"{airflow.url}/tidemark/run?dag_id={dag}&run_id={quote(run)}")
    page.locator("section a", has_text="ingest/").first.wait_for()
    expect(page.locator("#of-progress")).to_have_text(f"Ingest: {run}", use_inner_text=True)
    expect(page.locator("#navigation .stream")).to_have_text("cdn_logs", use_inner_text=True)
    page.screenshot(path=SCREENSHOTS / "run-ingest.png", full_page=True)
    page.locator("section a", has_text="ingest/").first.click()
    page.locator("#state", has_text="committed").wait_for()
    # A name, to be copied as logs have it.
    expect(page.locator("#facts")).to_contain_text(re.compile(r"Generation\s*\d{13}(?!\d)"))
    page.locator("#facts a", has_text="were written").click()
    group = page.locator(".group").filter(has=page.locator(f"text={TOPIC}/{PARTITION}@{sent.hostile}"))
    replay = group.locator("button", has_text="Replay").first
    replay.wait_for()
    page.screenshot(path=SCREENSHOTS / "dead-letters.png", full_page=True)
    replay.click()
    dialog = page.locator("dialog")
    expect(dialog).to_contain_text("Only of the lane or window ingest/", use_inner_text=True)
    dialog.locator("input[name=reason]").fill("the ui test")
    expect(dialog.locator("button.primary")).to_have_text("Start the dry run", use_inner_text=True)
    dialog.locator("input[name=dry_run]").uncheck()
    expect(dialog.locator("button.primary")).to_have_text("Start the replay", use_inner_text=True)
    page.screenshot(path=SCREENSHOTS / "dead-letters-replay.png")
    dialog.locator("button.primary").click()
    started = dialog.locator(".said a")
    run = started.last.inner_text()
    # How far it is, which the page itself says to the end.
    started.first.click()
    page.wait_for_url("**/tidemark/run?dag_id=cdn_logs__replay&**")
    page.locator("#told", has_text="Finished.").wait_for(timeout=300_000)
    assert airflow.wait("cdn_logs__replay", run) == "success"
    # In Airflow's own log it was this person's doing.
    _, found = airflow.call("GET", f"/api/v2/dags/cdn_logs__replay/dagRuns/{quote(run)}")
    assert (found["triggering_user_name"], found["conf"]["dead_letters_window"][:7]) == (environment.ADMIN, "ingest/")
    _, again = asked(airflow, sent.path(sent.hostile), airflow.token)
    assert again["fate"] == "dead letter"
    assert "redriven 1 times" in again["sentence"]
    assert again["windows"][0]["lane"].startswith("replay-")

    assert page.title().endswith("Tidemark")
    expect(page.locator("img, main script")).to_have_count(0)
    assert all(url.startswith((airflow.url, "data:")) for url in requests)


def group(reason: str, number: int, offsets: range) -> Group:
    return Group(
        reason=reason,
        error="Error\u202e",
        number=number,
        too_often=0,
        selects=selects(reason),
        examples=[f"{TOPIC}/0@{offset}" for offset in offsets],
        windows=[],
        more_windows=0,
    )


@pytest.mark.covers("U9", "U8")
def test_reasons_are_text_and_messages_of_several_groups_are_picked(airflow: Airflow, page: Page) -> None:
    """With marks of direction and escape codes, and of any size: what the API says of them is made by its own view."""
    asked_for: list[dict[str, str]] = []

    def answer(route: Route) -> None:
        query = dict(parse_qsl(urlsplit(route.request.url).query))
        asked_for.append(query)
        many = 50 if "examples" in query else 5
        groups = [group(f"{EVIL}\x1b[31mred\u202egnp.exe", 60, range(many)), group("y" * 1_000_000, 2, range(70, 72))]
        found = InGroups(
            counted=62,
            windows=1,
            windows_counted=1,
            complete=True,
            not_counted=0,
            max_redrives=3,
            more_groups=0,
            groups=groups,
        )
        route.fulfill(json=as_plain(page_of(found)))

    page.route("**/api/streams/cdn_logs/dead-letters*", answer)
    page.goto(f"{airflow.url}/tidemark/streams/cdn_logs/dead-letters")
    titles = page.locator(".group h2 .reason")
    titles.nth(1).wait_for()
    hostile, long = titles.all_inner_texts()
    assert hostile == f"{EVIL}\\x1b[31mred\\u202egnp.exe"
    assert (len(long) < 1_100, long.endswith("y … and 999 000 bytes more")) == (True, True)
    expect(page.locator(".group p.reason").first).to_have_text("Error\\u202e", use_inner_text=True)
    expect(page.locator("img, main script")).to_have_count(0)
    # One button stands out, and the form is one line.
    expect(page.locator("button.primary")).to_have_text(["Replay all 62 …"])
    last, first = (
        page.get_by_role("button", name=name, exact=True).bounding_box() for name in ("Last 24 hours", "Show")
    )
    assert last
    assert first
    assert abs(last["y"] - first["y"]) < 10
    page.get_by_role("checkbox", name=f"Pick {TOPIC}/0@3", exact=True).check()
    page.get_by_role("button", name="Show more").click()
    more = page.get_by_role("checkbox", name=f"Pick {TOPIC}/0@49")
    more.check()
    assert asked_for == [{}, {"examples": "50"}]
    page.get_by_text("10 more are not listed").wait_for()
    # What was picked stays so.
    expect(page.get_by_role("checkbox", name=f"Pick {TOPIC}/0@3", exact=True)).to_be_checked()
    page.get_by_role("checkbox", name=f"Pick {TOPIC}/0@71").check()
    page.screenshot(path=SCREENSHOTS / "dead-letters-hostile.png", full_page=True)
    page.get_by_role("button", name="Replay the 3 picked messages …").click()
    expect(page.locator("dialog textarea")).to_have_value(f"{TOPIC}/0@3\n{TOPIC}/0@49\n{TOPIC}/0@71")


@pytest.mark.full
@pytest.mark.covers("U9", "U4")
def test_a_run_shows_reasons_as_text_and_numbers_to_the_last_digit(airflow: Airflow, page: Page, sent: Sent) -> None:
    """What its tasks have given, as Airflow keeps it: reasons of any content, and numbers that no browser's own has."""
    far = 2**53
    line = {"partition": f"{TOPIC}/0", "from": "0", "until": str(far), "offsets": str(far), "answer": "to be read"}
    one = {"at": f"{TOPIC}/0@1000", "index": 0, "columns": ["all"], "why": ""}
    none: dict[str, Any] = {
        f"{kind}_{what}": {} if what == "because" else [] for kind in ("new", "gone") for what in ("because", "at")
    }
    numbers = {"same": 1, "changed": 5, "new": 0, "gone": 0}
    reason = f"{EVIL}\x1b[31mred\u202egnp.exe{'y' * 5_000}"
    given = {
        "found": {"totals": {"to be read": str(far + 1)}, "answers": [line]},
        "changes": {
            "messages": 1,
            "not_compared": [],
            "places": [{"name": "sums", **numbers, "columns": {"all": 5}, "changed_at": [one], **none}],
            "reasons": [{"reason": reason, "number": 1, "first": f"{TOPIC}/0@1"}],
        },
    }

    def answer(route: Route) -> None:
        route.fulfill(json={"value": given[route.request.url.rpartition("/")[2]]})

    for task, name in (("check", "found"), ("show_changes", "changes")):
        page.route(f"**/{task}/xcomEntries?*", lambda route: route.fulfill(json={"total_entries": 1}))
        page.route(f"**/xcomEntries/{name}", answer)
    dag, run = asked(airflow, sent.path(sent.hostile), airflow.token)[1]["windows"][-1]["run"].split("/", 1)
    page.goto(f"{airflow.url}/tidemark/run?dag_id={dag}&run_id={quote(run)}")
    found = page.locator("#results section", has_text="Before the run")
    found.locator("tfoot td", has_text="9 007 199 254 740 993").wait_for()
    expect(found).to_contain_text("The first lines; the totals are of all.", use_inner_text=True)
    diff = page.locator("#results section", has_text="What the replay changes")
    lines = [" ".join(line.split()) for line in diff.locator("tbody tr").all_inner_texts()]
    examples = [f"sums changed {TOPIC}/0@1000 0 all", "sums changed and 4 more"]
    assert lines == ["sums 1 5 0 0 all 5", *examples]
    said = diff.locator(".description").inner_text()
    assert f"“{EVIL}\\x1b[31mred\\u202egnp.exeyyy" in said
    assert "more characters”: 1, such as" in said
    assert (len(said) < 1_400, page.locator("img, main script").count()) == (True, 0)


@pytest.mark.full
@pytest.mark.covers("U11")
def test_what_was_repaired_is_not_offered_to_be_repaired(airflow: Airflow, page: Page) -> None:
    """Findings that the audit after a repair still had are offered again."""
    none: dict[str, Any] = {"places": [], "holes": [], "overlaps": [], "problems": [], "sinks": None}
    audit = {"level": "full", "clean": False, "sentence": "missing 2", "repair_of": None, "problem": None, "at": 1}
    found = {"found": {**none, "selection": "0" * 64, "offsets": "2"}}
    audits = [
        {**audit, **found, "run": f"cdn_logs__audit/{name}", "repaired": repaired}
        for name, repaired in {
            "mended": {"run": "cdn_logs__audit/mended/after-repair", "at": 2, "clean": True},
            "not mended": {"run": "cdn_logs__audit/not/after-repair", "at": 2, "clean": False},
            "open": None,
        }.items()
    ]
    _, real = airflow.call("GET", "/tidemark/api/streams/cdn_logs/audits")
    answers = "**/api/streams/cdn_logs/audits*"
    page.route(answers, lambda route: route.fulfill(json={**real, "audits": audits, "more": False}))
    page.goto(f"{airflow.url}/tidemark/streams/cdn_logs/audits")
    sections = page.locator("#audits section")
    sections.nth(2).wait_for()
    for at, offered in enumerate([0, 1, 1]):
        expect(sections.nth(at).get_by_role("button", name="Repair")).to_have_count(offered)
    # Also where there are some already, another one can be started.
    # By its form in Airflow, or here.
    link = page.get_by_role("link", name="By its form in Airflow")
    expect(link).to_have_attribute("href", re.compile(r"/dags/cdn_logs__audit$"))
    page.get_by_role("button", name="Start an audit").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Level")).to_have_value("full")
    dialog.get_by_label("Level").select_option("source")
    expect(dialog.locator("p.quiet").last).to_have_text(
        re.compile("Looks at the ledger, and where the logs of Kafka begin")
    )
    # The whole ledger is looked at, and nothing is found that could be replayed.
    expect(dialog.get_by_label("Only these offsets")).to_be_hidden()
    expect(dialog.get_by_label("With its findings")).to_be_hidden()
    # Who only looks need not say why; who replays findings has to.
    reason = dialog.get_by_label("Reason")
    expect(reason).to_be_hidden()
    dialog.get_by_label("Level").select_option("full")
    dialog.get_by_label("With its findings").select_option("execute")
    expect(reason).to_be_visible()
    page.screenshot(path=SCREENSHOTS / "audit-start.png")
    dialog.get_by_label("Level").select_option("source")
    expect(reason).to_be_hidden()
    page.unroute(answers)
    dialog.get_by_role("button", name="Start the audit").click()
    page.wait_for_url("**/tidemark/run?dag_id=cdn_logs__audit&run_id=from_page__*")
    expect(page.locator("#asked dd")).to_have_text([re.compile("__audit/"), "source"])
    expect(page.locator("#verdict section").first).to_contain_text("level source")


@pytest.mark.full
@pytest.mark.covers("U14")
def test_an_avro_record_that_is_not_read_in_time_says_so(airflow: Airflow, page: Page, sent: Sent) -> None:
    """Also where no sink is left to be asked. Its times are those of the viewer."""
    late = {"detail": "HBase (hbase_default) and Kafka (kafka_default) did not answer within 5 s"}

    def answer(route: Route) -> None:
        if "whole=true" in route.request.url:
            route.fulfill(status=503, json=late)
        else:
            found = route.fetch()
            route.fulfill(response=found, json={**found.json(), "not_asked": [], "has_record": True})

    page.route("**/api/streams/cdn_logs/messages/**", answer)
    query = f"topic={TOPIC}&partition={PARTITION}&offset={sent.hostile}"
    page.goto(f"{airflow.url}/tidemark/streams/cdn_logs/messages?{query}")
    page.click("text=Show payloads")
    page.locator("#record", has_text=f"Not read: {late['detail']}").wait_for()
    at = asked(airflow, sent.path(sent.hostile), airflow.token)[1]["windows"][0]["committed_at"]
    committed = page.locator("#sentence time").first
    assert committed.get_attribute("datetime") == f"{datetime.fromtimestamp(at // 1000, UTC):%Y-%m-%dT%H:%M:%S}.000Z"
    assert page.locator("#sentence").inner_text()[0].isupper()


@pytest.mark.full
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_pages_are_readable_at_200_percent(airflow: Airflow, page: Page, sent: Sent, scheme: Any) -> None:
    """1,280 pixels at 200 % are 640: nothing is out of sight but what scrolls in a box of its own."""
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 640, "height": 900})
    query = f"topic={TOPIC}&partition={PARTITION}&offset={sent.hostile}"
    planned = {f"plan?ranges={TOPIC}/{PARTITION}@0-5": "#summary:not(:empty)"}
    pages = {f"messages?{query}": "#fate", "windows/ingest/1": "#state", "dead-letters": "h2"}
    dag, run = asked(airflow, sent.path(sent.hostile), airflow.token)[1]["windows"][-1]["run"].split("/", 1)
    of_run = {f"../../run?dag_id={dag}&run_id={quote(run)}": "#results td"}
    for place, ready in {**pages, "completeness": "button.hour", "audits": "#audits > *", **planned, **of_run}.items():
        page.goto(f"{airflow.url}/tidemark/streams/cdn_logs/{place}")
        page.locator(ready).first.wait_for()
        page.screenshot(
            path=SCREENSHOTS / f"narrow-{scheme}-{place.split('?')[0].strip('./').split('/')[0]}.png", full_page=True
        )
        size = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert size[0] <= size[1], place


@pytest.mark.covers("U28", "Q16")
def test_who_may_look_through_payloads(airflow: Airflow, site: Site, sent: Sent) -> None:
    api = "/tidemark/api/streams/cdn_logs/browse"
    tokens = {
        user: airflow.token_of(user, environment.password(site, user)) for user in ("viewer", "operator", "nobody")
    }
    place = f"{TOPIC}/{PARTITION}@{sent.hostile}-{sent.hostile + 1}"
    before = len(looks(airflow))
    status, answer = asked(airflow, f"{api}/messages?where={place}", tokens["viewer"])
    assert (status, answer["lines"][0]["value"], answer["may_see_payload"]) == (200, {"bytes": len(HOSTILE)}, False)
    filtered = quote("value contains 'a'")
    for more in ("payload=true", f"filter={filtered}", f"payload=true&filter={filtered}"):
        assert asked(airflow, f"{api}/messages?where={place}&{more}", tokens["viewer"])[0] == 403
    assert asked(airflow, f"{api}/messages/file?where={place}", tokens["viewer"])[0] == 403
    for more in ("", "/file"):
        path = f"{api}/dead-letters{more}?where={place}"
        assert asked(airflow, path, tokens["nobody"])[0] == 404
        assert airflow.call("GET", path, token=None)[0] == 401
    assert len(looks(airflow)) == before
    status, answer = asked(airflow, f"{api}/messages?where={place}&payload=true", tokens["operator"])
    assert (status, answer["lines"][0]["value"]["text"], answer["searched"]) == (200, SHOWN, [place])
    assert ("operator", f"messages of {place}") in looks(airflow)
    for query, wrong, said in (
        ("where=elsewhere/0", 400, "the stream reads no topic elsewhere"),
        ("where=__consumer_offsets", 400, "the stream reads no topic __consumer_offsets"),
        (f"payload=true&filter={'x' * 10_000}", 422, "filter"),
        (f"payload=true&filter={quote('amount < 0')}", 400, "for JSON, write $.amount"),
        ("go_on=0:0:1:another:0:1", 503, "deleted and created again"),
        ("window=ingest/999999", 400, "no committed window"),
    ):
        status, answer = asked(airflow, f"{api}/messages?{query}", airflow.token)
        assert (status, said in answer["detail"]) == (wrong, True), answer


@pytest.mark.full
@pytest.mark.covers("U28", "U8", "U24")
def test_dead_letters_of_an_hour_are_found_by_an_amount_and_replayed(airflow: Airflow, page: Page, sent: Sent) -> None:
    """And what is shown has an address, is exported, and goes on from where a question has ended."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.goto(f"{airflow.url}/tidemark/streams/cdn_logs")
    page.click("#navigation >> text=Browse")
    page.select_option("[name=kind]", "dead-letters")
    page.fill("input[name=where]", "")
    page.fill("input[name=since]", "2026-11-20T13:00")
    page.fill("input[name=until]", "2026-11-20T14:00")
    page.fill("input[name=filter]", f'$.amount < 0 and key = "{sent.customer}"')
    page.get_by_role("button", name="Look", exact=True).click()
    rows = page.locator("#found tbody tr")
    rows.nth(1).wait_for()
    named = [f"{TOPIC}/{PARTITION}@{sent.amounts[amount]}" for amount in (-5, -6)]
    assert [row.locator("td").nth(1).inner_text().strip() for row in rows.all()] == named
    page.locator("#searched", has_text=re.compile(r"^2 of \d+ dead letters that were looked at fit")).wait_for()
    page.wait_for_url(lambda url: "filter=%24.amount" in url)
    rows.first.locator("summary").click()
    # JSON stands line by line, and what was sent is there too.
    value = rows.first.locator(".value").filter(has_text="As it was sent")
    shown = json.dumps({"amount": -5, **ORDER}, indent=2)
    expect(value.locator("pre").first).to_have_text(shown, use_inner_text=True)
    value.get_by_text("As it was sent").click()
    expect(value.locator("pre").nth(1)).to_have_text(json.dumps({"amount": -5, **ORDER}), use_inner_text=True)
    page.screenshot(path=SCREENSHOTS / "browse-dead-letters.png", full_page=True)
    page.get_by_role("button", name="Pick all").click()
    page.get_by_role("button", name="Replay the 2 picked messages …").click()
    expect(page.locator("dialog textarea")).to_have_value("\n".join(named))
    page.keyboard.press("Escape")
    page.click("text=Erase them …")
    page.locator("#summary", has_text="2 messages of 1 partition would be erased for good.").wait_for()
    page.go_back()
    rows.nth(1).wait_for()
    for form, begins in (("CSV", "topic,partition,offset"), ("JSON lines", '{"topic": "cdn-logs"')):
        with page.expect_download() as downloading:
            page.get_by_role("button", name=f"Export as {form}").click()
        text = downloading.value.path().read_text()
        assert text.startswith(begins)
        assert len(text.splitlines()) == 2 + (form == "CSV")
    # The address is the page.
    page.goto(page.url)
    rows.nth(1).wait_for()
    # The newest messages of a partition, which are hostile, and those before them.
    page.goto(f"{airflow.url}/tidemark/streams/cdn_logs/browse?where={TOPIC}/{PARTITION}&newest=true")
    rows.nth(49).wait_for()
    expect(rows.first).to_contain_text("masked", use_inner_text=True)
    page.get_by_role("button", name="Show payloads").click()
    hostile = rows.filter(has_text=f"@{sent.hostile}")
    hostile.locator("summary").click()
    expect(hostile.locator(".value").filter(has_text="value,").locator("pre").first).to_have_text(
        SHOWN, use_inner_text=True
    )
    page.screenshot(path=SCREENSHOTS / "browse-newest.png", full_page=True)
    first = rows.first.locator("td").nth(1).inner_text()
    page.get_by_role("button", name="Older 50").click()
    page.get_by_role("button", name="Previous").wait_for()
    rows.filter(has_text=first.strip()).wait_for(state="detached")
    page.get_by_role("button", name="Previous").click()
    rows.filter(has_text=first.strip()).wait_for()
    expect(page.locator("main img, main script")).to_have_count(0)


@pytest.mark.full
@pytest.mark.covers("U28", "Q15")
@pytest.mark.usefixtures("sent")
def test_rows_in_files_are_looked_through_as_those_in_hbase(airflow: Airflow, page: Page) -> None:
    api = "/tidemark/api/streams/cdn_logs/browse/results"
    filtered = f"payload=true&filter={quote('size > 100')}"
    newest = {
        sink: [
            (one["coordinate"], one["fields"]["path"]["text"])
            for one in asked(airflow, f"{api}?sink={sink}&newest=true&count=60&{filtered}", airflow.token)[1]["lines"]
        ]
        for sink in ("hbase", "parquet")
    }
    assert newest["hbase"] == newest["parquet"]
    assert len({*newest["hbase"]}) == 60
    # No page begins empty.
    page.goto(f"{airflow.url}/tidemark/streams/cdn_logs/browse")
    page.locator("#found tbody tr").nth(49).wait_for()
    page.select_option("[name=kind]", "results")
    page.locator("[name=sink] option", has_text="parquet").wait_for(state="attached")
    page.select_option("[name=sink]", "parquet")
    page.fill("[name=filter]", "size > 100")
    page.click("#which >> text=The newest")
    rows = page.locator("#found tbody tr")
    rows.nth(49).wait_for()
    page.locator("#searched", has_text=re.compile(r"^50 of \d+ rows that were looked at fit\.")).wait_for()

    def shown() -> list[str]:
        return [one.strip() for one in rows.locator("td.topic").all_inner_texts()]

    first = shown()
    assert first == [coordinate for coordinate, _ in newest["hbase"][:50]]
    rows.first.locator("summary").click()
    rows.first.locator("dl.fields dd", has_text=newest["hbase"][0][1]).wait_for()
    page.screenshot(path=SCREENSHOTS / "browse-rows.png", full_page=True)
    page.get_by_role("button", name="Older 50").click()
    page.get_by_role("button", name="Previous").wait_for()
    expect(rows.locator("td.topic").first).to_have_text(newest["hbase"][50][0])
    # The address is the page.
    page.reload()
    expect(rows.locator("td.topic").first).to_have_text(newest["hbase"][50][0])
    expect(page.locator("[name=sink]")).to_have_value("parquet")
    with page.expect_download() as downloading:
        page.get_by_role("button", name="Export as CSV").click()
    header, *lines = downloading.value.path().read_text().splitlines()
    assert header.startswith("topic,partition,offset,incarnation,timestamp,key,value,headers,deleted,clientip,")
    exported = ["{}/{}@{}".format(*one.split(",")[:3]) for one in lines]
    assert exported == shown()
