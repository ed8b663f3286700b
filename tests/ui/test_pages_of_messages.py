"""The pages of a message, of a window and of the dead letters, with the real Airflow, in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest
from kafka import KafkaProducer
from playwright.sync_api import Page

from demo.airflow import Airflow
from services import environment
from services.site import Site
from tests.support.browser import SCREENSHOTS, logged_in
from tests.support.evil import EVIL
from tests.support.playground import Kafka

TOPIC, PARTITION = "cdn-logs", 2
# Markup, escape codes, marks of direction, and bytes that are no UTF-8.
HOSTILE = f"{EVIL}\x1b[31mred\x1b[0m\u202egnp.exe".encode()
SHOWN = f"{EVIL}\\x1b[31mred\\x1b[0m\\u202egnp.exe"
LARGE = b"x" * 10_000_000


@dataclass(frozen=True)
class Sent:
    """Two messages that are no log lines, which an ingest has read: where they are."""

    hostile: int
    large: int

    def path(self, offset: int) -> str:
        return f"/tidemark/api/streams/cdn_logs/messages/{TOPIC}/{PARTITION}/{offset}"


@pytest.fixture(scope="module")
def sent(airflow: Airflow, kafka: Kafka) -> Sent:
    producer = KafkaProducer(**kafka.settings, max_request_size=11_000_000)
    hostile = producer.send(TOPIC, HOSTILE, EVIL.encode(), headers=[(EVIL, b"\xff\x00")], partition=PARTITION)
    large = producer.send(TOPIC, LARGE, None, partition=PARTITION)
    producer.flush()
    found = Sent(hostile.get(timeout=60).offset, large.get(timeout=60).offset)
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
        assert asked(airflow, path + more, tokens["nobody"]) == (404, {"detail": "no such stream"})
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
    assert asked(airflow, f"{api}/cdn_logs/windows/ingest/999999", airflow.token) == (404, {"detail": "no such window"})
    hidden = (sent.path(0), f"{api}/red_orders/windows/ingest/1", f"{api}/red_orders/dead-letters")
    for hidden_path in (hidden[0].replace("cdn_logs", "red_orders"), *hidden[1:]):
        assert asked(airflow, hidden_path, tokens["viewer"]) == (404, {"detail": "no such stream"})
        assert airflow.call("GET", hidden_path, token=None)[0] == 401


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
    assert page.locator(".value pre").filter(has_text="img src").count() == 0
    page.screenshot(path=SCREENSHOTS / "message-masked.png", full_page=True)
    page.click("text=Show payloads")
    value = page.locator("#message .value", has_text="value").locator("pre").first
    value.wait_for()
    assert value.inner_text() == SHOWN
    assert "not UTF-8" in page.locator("#message .value", has_text="header").inner_text()
    # As the scheme reads it, and what is stored in place of a row.
    page.locator("#decoded", has_text="matches no pattern").wait_for()
    assert "dead letters" in page.locator("#rows").inner_text()
    page.screenshot(path=SCREENSHOTS / "message.png", full_page=True)
    # The next one is large, and cut.
    page.click("#after")
    page.locator("#title", has_text=f"@{sent.large}").wait_for()
    page.click("text=Show payloads")
    page.locator("#message .more", has_text="9 983 616 bytes more are not shown.").wait_for()
    page.locator("#decoded", has_text="more than 1 000 000 bytes").wait_for()
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
    counts = page.locator("#partitions tbody tr", has_text=f"{TOPIC}/{PARTITION}").locator("td").all_inner_texts()
    assert int(counts[7]) >= 2
    page.screenshot(path=SCREENSHOTS / "window.png", full_page=True)
    # From the run back to the window, as the tab of a run does.
    dag, run = asked(airflow, sent.path(sent.hostile), airflow.token)[1]["windows"][0]["run"].split("/", 1)
    page.goto(f"{airflow.url}/tidemark/run?dag_id={dag}&run_id={quote(run)}")
    page.locator("section a", has_text="ingest/").first.click()
    page.locator("#state", has_text="committed").wait_for()
    page.locator("#facts a", has_text="were written").click()
    group = page.locator(".group").filter(has=page.locator(f"text={TOPIC}/{PARTITION}@{sent.hostile}"))
    group.locator("button.primary").wait_for()
    page.screenshot(path=SCREENSHOTS / "dead-letters.png", full_page=True)
    group.locator("button.primary").click()
    dialog = page.locator("dialog")
    assert "Only of the lane or window ingest/" in dialog.inner_text()
    dialog.locator("input[name=reason]").fill("the ui test")
    dialog.locator("input[name=dry_run]").uncheck()
    page.screenshot(path=SCREENSHOTS / "dead-letters-replay.png")
    dialog.locator("button.primary").click()
    started = dialog.locator(".said a")
    started.wait_for()
    run = started.inner_text()
    assert airflow.wait("cdn_logs__replay", run) == "success"
    # In Airflow's own log it was this person's doing.
    _, found = airflow.call("GET", f"/api/v2/dags/cdn_logs__replay/dagRuns/{quote(run)}")
    assert (found["triggering_user_name"], found["conf"]["dead_letters_window"][:7]) == (environment.ADMIN, "ingest/")
    _, again = asked(airflow, sent.path(sent.hostile), airflow.token)
    assert again["fate"] == "dead letter"
    assert "redriven 1 times" in again["sentence"]
    assert again["windows"][0]["lane"].startswith("replay-")

    assert page.title().endswith("Tidemark")
    assert page.locator("img, main script").count() == 0
    assert all(url.startswith((airflow.url, "data:")) for url in requests)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_pages_are_readable_at_200_percent(airflow: Airflow, page: Page, sent: Sent, scheme: Any) -> None:
    """1,280 pixels at 200 % are 640: nothing is out of sight but what scrolls in a box of its own."""
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 640, "height": 900})
    query = f"topic={TOPIC}&partition={PARTITION}&offset={sent.hostile}"
    planned = {f"plan?ranges={TOPIC}/{PARTITION}@0-5": "#summary:not(:empty)"}
    pages = {f"messages?{query}": "#fate", "windows/ingest/1": "#state", "dead-letters": "h2"}
    for place, ready in {**pages, "completeness": "button.hour", "audits": "#audits > *", **planned}.items():
        page.goto(f"{airflow.url}/tidemark/streams/cdn_logs/{place}")
        page.locator(ready).first.wait_for()
        page.screenshot(path=SCREENSHOTS / f"narrow-{scheme}-{place.split('?')[0].split('/')[0]}.png", full_page=True)
        size = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert size[0] <= size[1], place
