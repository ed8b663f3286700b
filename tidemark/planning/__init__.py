"""Which offsets come next, and which a request asks for. Pure: nothing here asks Kafka or the ledger."""
