"""Tidemark's page in Airflow."""
