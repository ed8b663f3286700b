"""Which offsets come next, or are asked for: what decides is pure, what asks Kafka and the ledger is beside it."""
