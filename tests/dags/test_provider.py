"""Tidemark as a provider: each connection type's form has fields that its client reads, and none that it refuses."""

from __future__ import annotations

import json

import pytest
from pydantic import JsonValue

from tidemark.clients.connection_forms import get_provider_info
from tidemark_dags import hooks

# A value that suits each field, and those that Airflow's form has outside of the extras.
GIVEN: dict[str, tuple[dict[str, JsonValue], dict[str, JsonValue]]] = {
    "tidemark_kafka": (
        {},
        {
            "bootstrap.servers": "kafka:9093",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "me",
            "sasl.password": "secret",
        },
    ),
    "tidemark_hbase": ({"host": "gateway1,gateway2", "port": 9090}, {"thrift2": "gateway1:9091"}),
    "tidemark_zookeeper": ({"host": "zk1:2181,zk2:2181", "login": "me", "password": "secret"}, {"use_ssl": True}),
    "tidemark_postgres": (
        {"host": "127.0.0.1", "schema": "tide", "login": "me", "password": "secret"},
        {"allow_insecure": True},
    ),
    "tidemark_mysql": (
        {"host": "127.0.0.1", "schema": "tide", "login": "me", "password": "secret"},
        {"allow_insecure": True},
    ),
    "tidemark_registry": ({"host": "https://registry", "login": "me", "password": "secret"}, {}),
    "tidemark_lake": ({}, {"path": "/data/lake"}),
}
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
