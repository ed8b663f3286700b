"""What an audit compares and reports: messages, coverage, and messages that Kafka has deleted."""
