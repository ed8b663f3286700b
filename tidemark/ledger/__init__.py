"""The book of which offsets are in which results: register, heads and history of a stream."""
