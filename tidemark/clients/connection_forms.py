"""Tidemark as an Airflow provider: its connection types, each with a form of named fields.

Airflow reads this by the entry point `apache_airflow_provider`, in the middle of its own start: nothing here may import
Airflow. A connection of another type with the same fields works as well: Tidemark goes by what a connection is used
for.
"""

from __future__ import annotations

from typing import Any

_HOOKS = "tidemark.airflow.hooks"
_INSECURE = (
    "allow_insecure",
    "Allow a line without TLS",
    "On loopback, or in a network that you trust.",
    {"type": ["boolean", "null"], "default": None},
)
_TEXT: dict[str, Any] = {"type": ["string", "null"]}
_SECRET: dict[str, Any] = {"type": ["string", "null"], "format": "password"}
_YES_NO: dict[str, Any] = {"type": ["boolean", "null"]}

_Field = tuple[str, str, str, dict[str, Any]]

_KAFKA: tuple[_Field, ...] = (
    ("bootstrap.servers", "Brokers", "host:port, with commas between.", _TEXT),
    ("security.protocol", "Security protocol", "PLAINTEXT, SSL, SASL_SSL or SASL_PLAINTEXT.", _TEXT),
    ("sasl.mechanism", "SASL mechanism", "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER.", _TEXT),
    ("sasl.username", "User", "Of PLAIN and SCRAM.", _TEXT),
    ("sasl.password", "Password", "Of PLAIN and SCRAM.", _SECRET),
    ("ssl.ca.location", "Certificate authority", "A file in PEM, on each machine.", _TEXT),
    ("ssl.certificate.location", "Client certificate", "A file in PEM, on each machine.", _TEXT),
    ("ssl.key.location", "Key of the client certificate", "A file in PEM, on each machine.", _TEXT),
    ("ssl.key.password", "Password of the key", "If it has one.", _SECRET),
    _INSECURE,
)
_ZOOKEEPER: tuple[_Field, ...] = (
    ("use_ssl", "TLS", "Needed for a login, unless lines without TLS are allowed.", _YES_NO),
    ("ca", "Certificate authority", "A file in PEM, on each machine.", _TEXT),
    ("certfile", "Client certificate", "A file in PEM, on each machine.", _TEXT),
    ("keyfile", "Key of the client certificate", "A file in PEM, on each machine.", _TEXT),
    ("keyfile_password", "Password of the key", "If it has one.", _SECRET),
    _INSECURE,
)
_POSTGRES: tuple[_Field, ...] = (
    ("sslmode", "TLS", "verify-full, or another mode of libpq.", _TEXT),
    ("sslrootcert", "Certificate authority", "A file in PEM, on each machine.", _TEXT),
    ("sslcert", "Client certificate", "A file in PEM, on each machine.", _TEXT),
    ("sslkey", "Key of the client certificate", "A file in PEM, on each machine.", _TEXT),
    _INSECURE,
)
_MYSQL: tuple[_Field, ...] = (
    ("ssl_mode", "TLS", "VERIFY_IDENTITY, VERIFY_CA, REQUIRED or DISABLED.", _TEXT),
    ("ssl_ca", "Certificate authority", "A file in PEM, on each machine.", _TEXT),
    ("ssl_cert", "Client certificate", "A file in PEM, on each machine.", _TEXT),
    ("ssl_key", "Key of the client certificate", "A file in PEM, on each machine.", _TEXT),
    _INSECURE,
)
_ICEBERG: tuple[_Field, ...] = (
    ("warehouse", "Warehouse", "If the server has several.", _TEXT),
    ("oauth2-server-uri", "Token server", "The catalog's own, if empty.", _TEXT),
    ("scope", "Scope of tokens", "catalog, if empty.", _TEXT),
    _INSECURE,
)


def get_provider_info() -> dict[str, Any]:
    """The provider in the form that Airflow's `provider_info.schema.json` describes."""
    return {
        "package-name": "tidemark-replay",
        "name": "Tidemark",
        "description": "Kafka topics become tables in bounded batches; any offsets are replayed, and an audit proves them.",
        "connection-types": [
            _type("kafka", "Kafka", _KAFKA, hidden=("host", "port", "schema", "login", "password", "extra")),
            _type(
                "hbase",
                "HBase",
                (("thrift2", "Thrift 2 gateways", "host:port, with commas between.", _TEXT),),
                hidden=("schema", "login", "password", "extra"),
                labels={"host": "Thrift gateways"},
                placeholders={"host": "gateway1,gateway2", "port": "9090"},
            ),
            _type(
                "zookeeper",
                "ZooKeeper",
                _ZOOKEEPER,
                hidden=("port", "schema", "extra"),
                labels={"host": "Ensemble"},
                placeholders={"host": "zk1:2181,zk2:2181"},
            ),
            _type("postgres", "PostgreSQL", _POSTGRES, hidden=("extra",), labels={"schema": "Database"}),
            _type("mysql", "MySQL or MariaDB", _MYSQL, hidden=("extra",), labels={"schema": "Database"}),
            _type(
                "registry",
                "schema registry",
                (_INSECURE,),
                hidden=("schema", "extra"),
                labels={"host": "Address"},
                placeholders={"host": "https://registry"},
            ),
            _type(
                "iceberg",
                "Iceberg REST catalog",
                _ICEBERG,
                hidden=("schema", "extra"),
                labels={"host": "Address", "login": "Client ID", "password": "Client secret, or a token"},
                placeholders={"host": "https://catalog"},
            ),
            # `extra` stays: settings of a file system are a map there.
            _type(
                "lake",
                "lake of files",
                (("path", "Folder", "From the root, or a URI.", _TEXT),),
                hidden=("host", "port", "schema", "login", "password"),
            ),
        ],
    }


def _type(
    name: str,
    title: str,
    fields: tuple[_Field, ...],
    *,
    hidden: tuple[str, ...],
    labels: dict[str, str] | None = None,
    placeholders: dict[str, str] | None = None,
) -> dict[str, Any]:
    return {
        "connection-type": f"tidemark_{name}",
        "hook-class-name": f"{_HOOKS}.{name.capitalize()}Hook",
        "hook-name": f"Tidemark: {title}",
        "ui-field-behaviour": {
            "hidden-fields": list(hidden),
            "relabeling": labels or {},
            "placeholders": placeholders or {},
        },
        "conn-fields": {
            key: {"label": label, "description": text, "schema": schema} for key, label, text, schema in fields
        },
    }
