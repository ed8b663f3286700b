"""Spark itself: its session, what is shipped to workers, progress, failures."""
