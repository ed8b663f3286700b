"""The comparison and the report of an audit: messages, coverage, and messages that Kafka has deleted."""
