"""Fixtures of the quick tests."""

from __future__ import annotations

import pytest


@pytest.fixture
def hbase_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables by key in HBase are in memory, of a cluster for each host."""
    from tests.support.hbase_in_memory import GatewayInMemory
    from tidemark.sinks.hbase.keyed import table

    monkeypatch.setattr(table, "Gateway", GatewayInMemory)
