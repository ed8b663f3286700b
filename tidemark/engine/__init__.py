"""A warm engine, seen from outside: where it listens, how a run is handed to it, and what it is asked."""
