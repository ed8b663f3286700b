"""Dead letters in a Delta table, written and swept as the sink `delta` does."""
