"""The commands, one module each, or one for each group of them. No command calls another."""
