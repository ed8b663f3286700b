"""The sink `hbase_latest`: a row for each key, with the values of its newest message."""
