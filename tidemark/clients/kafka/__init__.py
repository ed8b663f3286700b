"""Kafka as the domain sees it: topics as values, and the questions to a cluster."""
