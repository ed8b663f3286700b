"""Which gateways a connection names."""

from __future__ import annotations

import pytest

from tidemark.clients.connections import Connection
from tidemark.clients.hbase.endpoint import HBaseEndpoint, hbase2_endpoint, hbase_endpoint
from tidemark.errors import WrongUse


def test_one_gateway_or_several() -> None:
    assert hbase_endpoint(Connection("hbase", "a", 9090)) == HBaseEndpoint("a", 9090)
    several = hbase_endpoint(Connection("hbase", "a, b:9095", 9090))
    assert several.gateways == (("a", 9090), ("b", 9095))
    assert str(several) == "a:9090,b:9095"


def test_thrift_2_is_among_the_extras() -> None:
    connection = Connection("hbase", "a", 9090, extra={"thrift2": "a:9091,b:9091"})
    assert hbase2_endpoint(connection).gateways == (("a", 9091), ("b", 9091))
    with pytest.raises(WrongUse, match="connection hbase has no thrift2 among its extras"):
        hbase2_endpoint(Connection("hbase", "a", 9090))


@pytest.mark.parametrize(("host", "port"), [("a,", 1), ("a:b", 1), (":9090", 1), ("a:1:2", 1)])
def test_what_is_no_gateway_is_refused(host: str, port: int) -> None:
    with pytest.raises(
        WrongUse, match=r"connection hbase names a wrong gateway: .* host:port, with commas between|in place 2"
    ):
        hbase_endpoint(Connection("hbase", host, port))


def test_a_gateway_without_a_port_is_refused() -> None:
    with pytest.raises(WrongUse, match="connection hbase has no port"):
        hbase_endpoint(Connection("hbase", "a:1,b", None))
