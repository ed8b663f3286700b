"""Dead letters in a table of a database: PostgreSQL, or a file of SQLite on one machine."""
