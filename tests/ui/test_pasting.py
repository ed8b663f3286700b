"""Every number and range that a page shows, pasted into every field that takes one, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Error, Page, expect

from demo.airflow import Airflow
from tests.support.browser import PAGES, SCREENSHOTS, logged_in

# What pages show: what their buttons copy, what stands in tables, and the windows that they name.
SHOWN = """[
    ...[...document.querySelectorAll("[data-copy]")].map((one) => one.dataset.copy),
    ...[...document.querySelectorAll("td.number, td.lane, td.topic, .bar-row .name, code")].map((one) => one.innerText.trim()),
]"""
TOPIC = r"[A-Za-z0-9._-]+(?:#\d+)?/\d+"
# A shape of each kind is pasted: what differs between two of them is digits alone.
KINDS = {
    "ranges": rf"{TOPIC}@\d+-\d+(?:, {TOPIC}@\d+-\d+)+",
    "range": rf"{TOPIC}@\d+-\d+",
    "coordinate": rf"{TOPIC}@\d+",
    "window": r"(?:ingest|(?:replay|backfill|erase)-[0-9a-f]+)/\d+",
    "number": r"\d{1,3}(?: \d{3})*",
    "partition": TOPIC,
}
# Whether a field has taken what stands there, and what is said of it.
OUTCOME = """(field) => {
    field = document.querySelector(field);
    // The page has led to another one.
    if (!field) return ["taken", ""];
    const seen = (words) => [...document.querySelectorAll(words)].filter((one) => one.checkVisibility());
    const said = seen(".problem:not(#problems), #no-window, #found[role=status]").map((one) => one.innerText.trim()).join(" ");
    if (!field.checkValidity()) return ["refused", field.validationMessage + " " + field.title];
    // What else the form needs is not filled in.
    if (!field.form.checkValidity()) return ["taken", ""];
    if (said) return ["refused", said];
    const done = seen("#answer, #summary, #groups section, #counted").some((one) => one.innerText.trim());
    return done && !/Looking …|Counting …|Resolving …/.test(document.body.innerText) ? ["taken", ""] : null;
}"""


@dataclass(frozen=True)
class Field:
    """A field of a page, what it takes, and what a refusal of the rest names. `first` fills in what else is needed."""

    page: str
    words: str
    takes: set[str]
    form: str
    first: Callable[[Page], object] = lambda page: None


def way(name: str) -> Callable[[Page], object]:
    return lambda page: page.select_option("[name=way]", name)


def in_topic(page: Page) -> None:
    page.fill("[name=where]", "cdn-logs")


def dead_letters(page: Page) -> None:
    way("dead_letters")(page)
    page.fill("[name=dead_letters]", "*")


def pace(page: Page) -> None:
    way("ranges")(page)
    page.fill("[name=ranges]", "cdn-logs/0@0-1")
    page.click("#more summary")


OFFSETS, WINDOW = "topic/partition@", "LANE/NUMBER"
# Those that the page itself reads, which asks nobody.
IN_THE_BROWSER = [
    Field("", "#coordinate", {"coordinate", "range"}, OFFSETS),
    Field("streams/cdn_logs", "#open-window input", {"window", "number"}, WINDOW),
    Field("streams/cdn_logs/messages", "[name=topic]", {"coordinate", "range", "number"}, OFFSETS),
    Field("streams/cdn_logs/messages", "[name=partition]", {"coordinate", "range", "number"}, OFFSETS),
    Field("streams/cdn_logs/messages", "[name=offset]", {"coordinate", "range", "number"}, OFFSETS),
]
ON_THE_SERVER = [
    Field("streams/cdn_logs/browse", "[name=where]", {"coordinate", "range", "partition"}, OFFSETS),
    Field("streams/cdn_logs/browse", "[name=window]", {"window"}, WINDOW, in_topic),
    Field("streams/cdn_logs/dead-letters", "[name=window]", {"window"}, WINDOW),
    Field("streams/cdn_logs/plan", "[name=records]", {"coordinate"}, OFFSETS, way("records")),
    Field("streams/cdn_logs/plan", "[name=ranges]", {"coordinate", "range", "ranges"}, OFFSETS, way("ranges")),
    Field("streams/cdn_logs/plan", "[name=window]", {"window"}, WINDOW, way("window")),
    Field("streams/cdn_logs/plan", "[name=dead_letters_window]", {"window"}, WINDOW, dead_letters),
    Field("streams/cdn_logs/plan", "[name=rate]", {"number"}, "such as 1000", pace),
    Field("streams/cdn_logs/plan", "[name=lanes]", {"number"}, "1 to 8", pace),
]
# Fields of other things: words, names, keys, filters and digests.
OTHERS = {
    "": {"filter"},
    "streams/cdn_logs": {"run"},
    "streams/cdn_logs/browse": {"filter"},
    "streams/cdn_logs/dead-letters": {"reason"},
    "streams/cdn_logs/plan": {"records_file", "key", "dead_letters", "selection", "reason"},
}


@pytest.fixture(scope="module")
def shown(ingested: Airflow) -> dict[str, list[str]]:
    """Of each kind, one of each shape that any page shows."""
    found: dict[tuple[str, str], str] = {}
    with logged_in(ingested, width=1280, patience_ms=60_000) as page:
        for path, drawn in PAGES.items():
            run = ""
            if path.endswith("run_id="):
                window = ingested.call("GET", "/tidemark/api/streams/cdn_logs/windows/ingest/1")[1]
                run = quote(window["attempt"]["run"].partition("/")[2])
            page.goto(f"{ingested.url}/tidemark/{path}{run}")
            page.locator(drawn).first.wait_for(state="attached")
            # What a page asks for by the way comes after what it is for.
            page.wait_for_load_state("networkidle")
            for text in page.evaluate(SHOWN):
                kind = next((name for name, form in KINDS.items() if re.fullmatch(form, text)), None)
                if kind is not None:
                    shape = re.sub(r"\d+", "0", re.sub(r"-[0-9a-f]{6,}/", "-0/", text))
                    found.setdefault((kind, shape), text)
    made: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for (kind, _), text in found.items():
        made[kind].append(text)
    # As the page of a plan copies the ranges of a partition, and as large numbers are shown.
    made["ranges"] = made["ranges"] or [f"{made['range'][0]}, {made['range'][0].replace('/0@', '/1@')}"]
    made["number"] = [*made["number"][:2], "9 007 199 254"]
    return made


@pytest.fixture
def page(ingested: Airflow) -> Iterator[Page]:
    """A browser that is logged in, where an ingest has run."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    with logged_in(ingested, width=1280, patience_ms=60_000) as opened:
        yield opened


def outcome(page: Page, field: Field, text: str) -> list[str]:
    """What became of a text that was pasted: `taken`, or `refused` and what was said."""
    place = page.locator(field.words)
    place.fill("")
    place.focus()
    page.keyboard.insert_text(text)
    before = page.url.partition("?")[0]
    place.evaluate("(field) => field.form.requestSubmit()")
    for _ in range(600):
        if page.url.partition("?")[0] != before:
            return ["taken", ""]
        # It cannot be asked just while another page comes.
        with suppress(Error):
            if (found := page.evaluate(OUTCOME, field.words)) is not None:
                return list(found)
        page.wait_for_timeout(100)
    raise AssertionError(f"{field}: nothing became of {text!r}")


@pytest.mark.full
@pytest.mark.covers("U20")
@pytest.mark.parametrize(
    "field",
    [*IN_THE_BROWSER, *(pytest.param(one, marks=pytest.mark.full) for one in ON_THE_SERVER)],
    ids=lambda one: f"{one.page}{one.words}",
)
def test_what_is_shown_is_taken_or_the_field_says_what_it_takes(
    airflow: Airflow, page: Page, field: Field, shown: dict[str, list[str]]
) -> None:
    """The fields that the server judges are asked in the full run."""
    assert all(shown.values()), shown
    for kind, texts in shown.items():
        for text in texts:
            page.goto(f"{airflow.url}/tidemark/{field.page}")
            page.locator(field.words).wait_for(state="attached")
            field.first(page)
            word, said = outcome(page, field, text)
            if kind not in field.takes:
                assert word == "refused", (field, text)
            # A window, a partition or a number of this form may not be there. Then that is what is said.
            if word == "refused":
                there_is_not = re.search(r"no window|no committed window|at most|a range stands in ranges", said)
                assert field.form in said or there_is_not, (field, text, said)


@pytest.mark.full
@pytest.mark.covers("U20")
def test_each_field_for_text_is_one_of_these(airflow: Airflow, page: Page) -> None:
    """A new field is tried too, or is of something else."""
    fields: dict[str, set[str]] = {}
    for path in sorted({one.page for one in [*IN_THE_BROWSER, *ON_THE_SERVER]} | set(OTHERS)):
        page.goto(f"{airflow.url}/tidemark/{path}")
        expect(page.locator("main h1")).to_be_attached()
        found: list[Any] = page.locator("main input, main textarea").evaluate_all(
            "all => all.filter((one) => ['text', 'search', 'textarea'].includes(one.type)).map((one) => one.name || one.id)"
        )
        fields[path] = set(found)
    tried: dict[str, set[str]] = {}
    for one in [*IN_THE_BROWSER, *ON_THE_SERVER]:
        name = (
            one.words.removeprefix("[name=").removeprefix("#").removesuffix("]").replace("open-window input", "window")
        )
        tried.setdefault(one.page, set()).add(name)
    assert {path: names - OTHERS.get(path, set()) for path, names in fields.items()} == tried
