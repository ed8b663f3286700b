"""A value that suits each field of Tidemark's connection forms, by type: those of Airflow's own form, and its extras."""

from __future__ import annotations

from pydantic import JsonValue

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
    "tidemark_iceberg": ({"host": "https://catalog", "login": "me", "password": "secret"}, {"warehouse": "w1"}),
    "tidemark_lake": ({}, {"path": "/data/lake"}),
}
