"""Benchmarks: two ways to do the same, timed in turns in one run. What counts is their ratio."""
