"""A deterministic simulation of the product: actors, servers in memory, a clock, and an oracle. See docs/simulation.md."""
