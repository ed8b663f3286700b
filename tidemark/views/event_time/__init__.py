"""How far a stream is in event time, and which hours are complete."""
