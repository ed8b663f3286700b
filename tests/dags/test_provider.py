"""Tidemark as a provider: each connection type's form has fields that its client reads, and none that it refuses."""

from __future__ import annotations

import json

import pytest

from tests.support.connection_values import GIVEN
from tidemark.airflow import hooks
from tidemark.clients.connection_forms import get_provider_info

TYPES = {one["connection-type"]: one for one in get_provider_info()["connection-types"]}


@pytest.mark.covers("N72")
@pytest.mark.parametrize("name", sorted(TYPES))
def test_what_the_form_gives_is_what_the_client_reads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fields, extras = GIVEN[name]
    kind = TYPES[name]
    assert set(extras) <= set(kind["conn-fields"])
    assert not set(fields) & set(kind["ui-field-behaviour"]["hidden-fields"])
    # As the form sends it: what nobody has filled in is null.
    sent = {**dict.fromkeys(kind["conn-fields"]), **extras}
    monkeypatch.setenv("AIRFLOW_CONN_TRIED", json.dumps({"conn_type": name, **fields, "extra": sent}))
    hook = getattr(hooks, kind["hook-class-name"].rpartition(".")[2])
    assert hook.conn_type == name
    assert hook.hook_name == kind["hook-name"]
    good, said = hook("tried").test_connection()
    assert good, said
    assert "secret" not in said


@pytest.mark.covers("N72")
def test_a_connection_that_does_not_suffice_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_TRIED", json.dumps({"conn_type": "tidemark_lake", "extra": {"path": "lake"}}))
    good, said = hooks.LakeHook("tried").test_connection()
    assert (good, "the path 'lake' among its extras is relative" in said) == (False, True)
