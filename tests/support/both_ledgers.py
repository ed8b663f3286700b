"""Which ledger each stream of the browser tests has: some HBase, some ZooKeeper, so that every page is met on both.

TIDEMARK_LEDGERS=other gives each stream the other one of the two, and `sql` gives all of them PostgreSQL. `./run test full`
runs these tests once more with each, so that every page test is met on all three.
"""

from __future__ import annotations

import os

GIVEN = os.environ.get("TIDEMARK_LEDGERS", "")
SQL = GIVEN == "sql"
_OTHER = {"hbase": "zookeeper", "zookeeper": "hbase"}

if GIVEN not in ("", "other", "sql"):
    raise SystemExit(f"TIDEMARK_LEDGERS is 'other' or 'sql', or not set; it is {GIVEN!r}")


def ledger(usual: str, connection: str = "") -> str:
    """What a stream file says of its ledger. A `connection` is one of the usual kind."""
    kind = "sql" if SQL else _OTHER[usual] if GIVEN else usual
    named = f", {kind}: {connection}" if connection and kind == usual else ""
    return f"ledger: {{type: {kind}{named}}}\n"
