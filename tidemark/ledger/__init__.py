"""Which offsets are in which results: register, heads and history of a stream."""
