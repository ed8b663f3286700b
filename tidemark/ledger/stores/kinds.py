"""The registry of ledger types, one line each. Other packages add types by the entry point `tidemark.ledgers`."""

from __future__ import annotations

from tidemark.clients.connections import Connections
from tidemark.ledger.stores.contract import LedgerStore
from tidemark.ledger.stores.kind import LedgerKind, LedgerSettings, Waits
from tidemark.ledger.stores.settings import HBaseLedger, SQLLedger, ZooKeeperLedger
from tidemark.settings.packages import kinds_of_packages, refusing

GROUP = "tidemark.ledgers"

_BUILT_IN = {
    "hbase": LedgerKind(HBaseLedger, "tidemark.ledger.stores.hbase:open_store"),
    "zookeeper": LedgerKind(ZooKeeperLedger, "tidemark.ledger.stores.zookeeper:open_store"),
    "sql": LedgerKind(SQLLedger, "tidemark.ledger.stores.sql:open_store"),
}


def ledger_store(
    settings: LedgerSettings, stream: str, connections: Connections, waits: Waits | None = None
) -> LedgerStore:
    """The store of a stream's ledger. Opening it neither reads nor writes."""
    return KINDS[settings.type].opened(settings, stream, connections, waits)


def _refused(type_: str, why: str) -> LedgerKind:
    return LedgerKind(refusing(LedgerSettings, type_, why), "")  # type: ignore[type-abstract]


KINDS: dict[str, LedgerKind] = {
    **_BUILT_IN,
    **kinds_of_packages(GROUP, LedgerKind, LedgerSettings, _refused, _BUILT_IN),
}
