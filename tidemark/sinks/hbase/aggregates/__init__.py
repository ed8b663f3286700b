"""The sink `hbase_aggregates`: counts, sums and the like of each key and window."""
