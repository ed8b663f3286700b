"""Kafka as the domain sees it: topics as values, and the questions that are asked of a cluster."""
