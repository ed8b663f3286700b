"""Counts, sums and the like of each key: what they are, and how rows become them. For all sinks that keep them."""
