"""The use cases: ingest, replay, backfill, redrive, skip. They ask Kafka and the ledger, plan, and pin."""
