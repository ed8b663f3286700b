"""Where HBase's Thrift gateways are, and the error for a table that HBase does not have: without HBase's client."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.clients.connections import Connection
from tidemark.clients.server_lists import servers_in
from tidemark.errors import WrongUse

_NO_HBASE_TLS = (
    "The clients of HBase's Thrift gateways speak no TLS here: put a gateway on each host, listening on loopback, or a "
    "tunnel that does it, as stunnel, and name its near end."
)


class TableMissing(Exception):
    """Raised when HBase has no table of this name."""


@dataclass(frozen=True)
class HBaseEndpoint:
    """Host and port of an HBase Thrift gateway, and of `others` that serve the same HBase."""

    host: str
    port: int
    others: tuple[tuple[str, int], ...] = ()

    @property
    def gateways(self) -> tuple[tuple[str, int], ...]:
        return ((self.host, self.port), *self.others)

    def __str__(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.gateways)


def hbase_endpoint(connection: Connection) -> HBaseEndpoint:
    """The Thrift 1 gateways: `host` has one or several, separated by commas. A gateway without a port has the connection's."""
    _only_gateways(connection)
    return _gateways(connection, connection.required("host", connection.host))


def hbase2_endpoint(connection: Connection) -> HBaseEndpoint:
    """The Thrift 2 gateways: `thrift2` among the extras, `host:port` separated by commas."""
    _only_gateways(connection)
    return _gateways(connection, str(connection.required("thrift2 among its extras", connection.text("thrift2"))))


def _only_gateways(connection: Connection) -> None:
    if connection.extra.get("use_ssl") is False:
        # `use_ssl: false` says how it is.
        return connection.only("HBase", "host", "port", extras=("thrift2", "use_ssl"))
    return connection.only("HBase", "host", "port", extras=("thrift2",), reasons={"use_ssl": _NO_HBASE_TLS})


def _gateways(connection: Connection, hosts: str) -> HBaseEndpoint:
    try:
        gateways = servers_in(hosts, port=connection.port)
    except ValueError as problem:
        if connection.port is None and "no port" in str(problem):
            connection.required("port", connection.port)
        raise WrongUse(f"connection {connection.name} names a wrong gateway: {problem}") from None
    return HBaseEndpoint(*gateways[0], tuple(gateways[1:]))
