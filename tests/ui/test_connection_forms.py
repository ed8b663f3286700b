"""Tidemark's connection types, as a person makes connections of them: by the form in Airflow's UI, in a real browser."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from demo.airflow import Airflow
from services import environment
from services.site import Site
from tests.support.browser import SCREENSHOTS, logged_in
from tests.support.connection_values import GIVEN
from tidemark.clients.connection_forms import get_provider_info

TYPES = {one["connection-type"]: one for one in get_provider_info()["connection-types"]}
# As the pages read a connection: in the process of Airflow's API, from its database.
READ = """
import json, sys
from tidemark.airflow import hooks
asked = json.loads(sys.argv[1])
print(json.dumps({name: getattr(hooks, hook)(name).test_connection() for name, hook in asked.items()}))
"""


@pytest.fixture
def page(airflow: Airflow) -> Iterator[Page]:
    with logged_in(airflow, width=1280) as found:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        yield found


@pytest.mark.full
@pytest.mark.covers("N72")
def test_a_connection_of_each_type_is_made_by_its_form_and_read(airflow: Airflow, site: Site, page: Page) -> None:
    assert set(GIVEN) == set(TYPES)
    hooks = {}
    for kind, (fields, extras) in GIVEN.items():
        name = f"made_{kind}"
        airflow.call("DELETE", f"/api/v2/connections/{name}")
        form = new_connection(page, airflow, name, kind)
        assert_as_described(form, kind)
        for field, value in {**fields, **extras}.items():
            fill(form, field, value, extra=field in extras)
        page.screenshot(path=SCREENSHOTS / f"connection-{kind}.png", full_page=True)
        form.get_by_role("button", name="Save").click()
        expect(form).to_be_hidden()
        _, made = airflow.call("GET", f"/api/v2/connections/{name}")
        assert made["conn_type"] == kind
        # Airflow shows no secret.
        shown = {field: value for field, value in fields.items() if field != "password"}
        assert {field: made[field] for field in shown} == shown
        sent = {field: value for field, value in json.loads(made["extra"] or "{}").items() if value is not None}
        assert set(sent) == set(extras)
        hooks[name] = TYPES[kind]["hook-class-name"].rpartition(".")[2]
    env = {**os.environ, **environment.everything(site), "_AIRFLOW_PROCESS_CONTEXT": "server"}
    done = subprocess.run(
        [sys.executable, "-c", READ, json.dumps(hooks)], capture_output=True, text=True, env=env, check=False
    )
    assert done.returncode == 0, done.stderr
    assert {name: said for name, (good, said) in json.loads(done.stdout.splitlines()[-1]).items() if not good} == {}


def new_connection(page: Page, airflow: Airflow, name: str, kind: str) -> Locator:
    page.goto(f"{airflow.url}/connections")
    page.get_by_role("button", name="Add Connection").first.click()
    form = page.get_by_role("dialog")
    form.locator("input[name=connection_id]").fill(name)
    box = form.get_by_role("combobox").first
    box.fill(kind)
    box.press("Enter")
    form.get_by_text("Standard Fields").wait_for()
    return form


def assert_as_described(form: Locator, kind: str) -> None:
    """Each field of the type is there under its label, and none that the type hides."""
    described = TYPES[kind]
    for field in described["ui-field-behaviour"]["hidden-fields"]:
        if field != "extra":
            expect(form.locator(f"[name={field}]")).to_have_count(0)
    open_section(form, "Extra Fields")
    for field in described["conn-fields"].values():
        expect(form.get_by_text(field["label"], exact=True).first).to_be_visible()


def open_section(form: Locator, name: str) -> None:
    """One section is open at a time."""
    section = form.get_by_role("button", name=name, exact=True)
    if section.get_attribute("aria-expanded") != "true":
        section.click()
    expect(section).to_have_attribute("aria-expanded", "true")


def fill(form: Locator, name: str, value: object, *, extra: bool) -> None:
    if not extra:
        open_section(form, "Standard Fields")
        form.locator(f"[name={name}]").fill(str(value))
        return
    open_section(form, "Extra Fields")
    if isinstance(value, bool):
        form.locator(f"[id='switch:element_{name}']").click()
    else:
        form.locator(f"[id='element_{name}']").fill(str(value))
