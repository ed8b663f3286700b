"""The sink `kafka`: messages in a topic, with their origin in headers."""
