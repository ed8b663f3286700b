"""Airflow finds the plugin here if this folder is its plugins folder. An installed wheel has an entry point instead."""

from tidemark.plugin.plugin import TidemarkPlugin

__all__ = ["TidemarkPlugin"]
