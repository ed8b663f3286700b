"""The pages in Firefox, with the real Airflow."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest

from demo.airflow import Airflow
from tests.support.browser import PAGES, SCREENSHOTS
from tests.support.firefox import FOUND, button, firefox, one

pytestmark = pytest.mark.skipif(FOUND is None, reason="there is no Firefox here: install firefox-esr or firefox")

CHOSEN = "#coverage-chosen code"
WITHIN = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"


@pytest.mark.covers("U32")
def test_the_pages_are_drawn_and_offsets_are_chosen_in_firefox(ingested: Airflow) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    window = ingested.call("GET", "/tidemark/api/streams/cdn_logs/windows/ingest/1")[1]
    run = quote(window["attempt"]["run"].partition("/")[2])
    with firefox() as page:
        page.log_in(ingested.url, str(ingested.token))
        for path, drawn in PAGES.items():
            page.open(f"{ingested.url}/tidemark/{path}{run if path.endswith('run_id=') else ''}")
            page.wait_for(f"!!{one(drawn)}")
            assert page.value(WITHIN), path
            name = re.sub(r"\W+", "-", path.partition("?")[0].removeprefix("streams/cdn_logs")).strip("-")
            page.screenshot(SCREENSHOTS / f"firefox-{name or ('stream' if path else 'streams')}.png")
        page.open(f"{ingested.url}/tidemark/streams/cdn_logs")
        page.wait_for(f"!!{one('#plots figure')} && !!{one('.bar-row svg.bar')}")
        page.drag(one(".bar-row[data-partition='cdn-logs/0'] svg.bar"), 0.01, 0.06)
        chosen = page.wait_for(f"{one(CHOSEN)}?.textContent")
        assert re.fullmatch(r"cdn-logs/0@[0-9]+-[0-9]+", chosen)
        page.click(button("Replay …"))
        # The dialog asks for the reason first.
        page.wait_for("document.activeElement?.name === 'reason'")
        page.write("seen in Firefox")
        page.screenshot(SCREENSHOTS / "firefox-replay.png")
        page.click(button("Start the dry run"))
        run = page.wait_for("[...document.querySelectorAll('.said a')].at(-1)?.textContent")
        assert page.said == []
    _, started = ingested.call("GET", f"/api/v2/dags/cdn_logs__replay/dagRuns/{run}")
    assert started["conf"] == {"ranges": chosen, "reason": "seen in Firefox", "dry_run": True}
