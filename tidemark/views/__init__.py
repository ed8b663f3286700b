"""What the ledger says, as people and programs read it."""
