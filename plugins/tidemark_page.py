"""Airflow finds the plugin here when this folder is its plugins folder; an installed wheel has an entry point instead."""

from tidemark_plugin.plugin import TidemarkPlugin

__all__ = ["TidemarkPlugin"]
