"""Where a ledger's values are kept: HBase, ZooKeeper, a database, or a store of one's own."""
