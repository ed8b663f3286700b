"""The sink `iceberg`: an Iceberg table that shows windows once they are committed."""
