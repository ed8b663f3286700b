"""The sink `delta_latest`: a Delta table with the newest row of each key."""
