"""The sink `hbase_latest`: the newest value of each key."""
