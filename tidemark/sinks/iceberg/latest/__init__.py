"""The sink `iceberg_latest`: an Iceberg table with the newest row of each key."""
