"""Results read back as DataFrames, without the rows that do not count."""
