"""Functions of Spark's SQL that fetch what a message names, as a stranger may have written it."""

from __future__ import annotations

from pyspark.sql import DataFrame

from tidemark.errors import WrongUse
from tidemark.spark.runtime.plan_nodes import nodes_of

# How the names of their classes begin.
_XPATH = "XPath"


def refuse_fetching(rows: DataFrame, what: str) -> None:
    """Raises WrongUse for a plan that calls `xpath` or one of its kind. `what`: the key of the stream file, for the error.

    Their parser fetches the document type that a message names (`<!DOCTYPE a SYSTEM "http://...">`): a file of the worker, or
    anything that it can reach.
    """
    if any(node.kind.startswith(_XPATH) for node in nodes_of(rows)):
        raise WrongUse(
            f"{what}: xpath, xpath_string and their kind fetch what the document type of a message names, a file or an "
            "address within your network. Use `from_xml`, which fetches nothing, or a scheme `function` with the package "
            "defusedxml, as docs/samples.md shows"
        )
