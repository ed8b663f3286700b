"""Which ledger each stream of the browser tests has: some HBase, some ZooKeeper, so that every page is met on both.

`./run test full` runs these tests once more with each stream on the other one: TIDEMARK_OTHER_LEDGERS=1.
"""

from __future__ import annotations

import os

OTHER = os.environ.get("TIDEMARK_OTHER_LEDGERS") == "1"
_KINDS = ("hbase", "zookeeper")


def ledger(usual: str, connection: str = "") -> str:
    """What a stream file says of its ledger. A `connection` is one of the usual kind."""
    kind = _KINDS[(_KINDS.index(usual) + OTHER) % 2]
    named = f", {kind}: {connection}" if connection and kind == usual else ""
    return f"ledger: {{type: {kind}{named}}}\n"
