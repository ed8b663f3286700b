"""A stream as it is now: its servers, its topics, and what Kafka says about them."""
