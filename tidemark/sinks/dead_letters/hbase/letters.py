"""Dead letters in HBase, to read from."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.clients.connections import Connections
from tidemark.ledger.ledger import Ledger
from tidemark.sinks.hbase.table import ResultTable, result_table


def open_letters(place: Mapping[str, str], _ledger: Ledger, connections: Connections) -> ResultTable:
    return result_table(connections, place["connection"], place["table"])
