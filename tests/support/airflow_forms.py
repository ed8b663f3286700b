"""The forms in Airflow's own pages, filled in as people do it: in a real browser."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

from demo.airflow import PATIENCE_SECONDS, Airflow


def open_form(page: Page, airflow: Airflow, dag: str) -> Locator:
    """A DAG's page, and on it the button Trigger."""
    page.goto(f"{airflow.url}/dags/{dag}")
    page.get_by_test_id("trigger-dag-button").click()
    form = page.get_by_role("dialog")
    form.get_by_role("button", name="Trigger", exact=True).wait_for()
    return form


def open_section(form: Locator, name: str) -> None:
    """One section is open at a time."""
    form.get_by_role("button", name=re.compile(f"^{name}:")).click()


def switch(form: Locator, name: str) -> None:
    one = form.locator(f"input[name=element_{name}]")
    before = one.is_checked()
    form.locator(f"[id='switch:element_{name}']").click()
    expect(one).to_be_checked(checked=not before)


def choose(form: Locator, name: str, value: str) -> None:
    """One of the values of a field that takes only those: written into its box, as people do who know it."""
    box = form.locator(f"#element_{name}").get_by_role("combobox")
    box.fill(value)
    box.press("Enter")
    expect(form.locator(f"input[name=element_{name}]")).to_have_value(value)


def press_trigger(form: Locator, page: Page) -> str:
    """Press the form's own Trigger; gives the id of the run, whose page is shown then."""
    form.get_by_role("button", name="Trigger", exact=True).click()
    page.wait_for_url("**/runs/manual__*")
    return page.url.partition("/runs/")[2].partition("/")[0].partition("?")[0]


def send_form(form: Locator, page: Page, state: str) -> str:
    """Press the form's own Trigger, and look at the run until it has ended; gives its id."""
    run = press_trigger(form, page)
    badge = page.get_by_test_id("header-card").get_by_test_id("state-badge")
    expect(badge).to_have_text(state, ignore_case=True, timeout=PATIENCE_SECONDS * 1000)
    return run
