"""The registry of ledger types, one line each. Other packages add types by the entry point `tidemark.ledgers`."""

from __future__ import annotations

from tidemark.clients.connections import Connections
from tidemark.ledger.stores.contract import LedgerStore
from tidemark.ledger.stores.kind import LedgerSettings, LedgerType, RequestTimeouts
from tidemark.ledger.stores.settings import HBaseLedger, SQLLedger, ZooKeeperLedger
from tidemark.settings.packages import kinds_of_packages, refusing

GROUP = "tidemark.ledgers"

_BUILT_IN = {
    "hbase": LedgerType(HBaseLedger, "tidemark.ledger.stores.hbase:open_store"),
    "zookeeper": LedgerType(ZooKeeperLedger, "tidemark.ledger.stores.zookeeper:open_store"),
    "sql": LedgerType(SQLLedger, "tidemark.ledger.stores.sql:open_store"),
}


def ledger_store(
    settings: LedgerSettings, stream: str, connections: Connections, waits: RequestTimeouts | None = None
) -> LedgerStore:
    """The store of a stream's ledger. Opening it neither reads nor writes."""
    return KINDS[settings.type].opened(settings, stream, connections, waits)


def _refused(type_: str, why: str) -> LedgerType:
    return LedgerType(refusing(LedgerSettings, type_, why), "")  # type: ignore[type-abstract]


KINDS: dict[str, LedgerType] = {
    **_BUILT_IN,
    **kinds_of_packages(GROUP, LedgerType, LedgerSettings, _refused, _BUILT_IN),
}
