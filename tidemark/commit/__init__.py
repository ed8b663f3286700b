"""The commit protocol: how results and offsets become valid together, and who may do it."""
