"""The sink `parquet`: files in a folder for each window and attempt."""
