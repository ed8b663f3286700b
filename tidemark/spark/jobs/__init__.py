"""The jobs that Spark runs: windows, an audit, a compaction."""
