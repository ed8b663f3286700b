"""Dead letters in a table of a database: PostgreSQL, MySQL or MariaDB, or a file of SQLite on one machine."""
