"""A ledger that is moved, damaged or lost: backups, rebuilding from the history, verifying."""
