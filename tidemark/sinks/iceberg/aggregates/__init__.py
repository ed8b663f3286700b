"""The sink `iceberg_aggregates`: an Iceberg table with counts, sums and the like of each key."""
