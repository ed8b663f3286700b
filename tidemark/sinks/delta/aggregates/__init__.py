"""The sink `delta_aggregates`: a Delta table with counts, sums and the like of each key."""
