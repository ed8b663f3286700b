"""The types of fields: one model for all schemes and sinks, and how each target writes them."""
