"""The ledger's contents, as people and programs read them."""
