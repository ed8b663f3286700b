"""Tables of Iceberg: the library's own, in a folder, with a catalog in SQLite. Loaded by programs that have one."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from tests.simulation.actors import effect
from tests.simulation.lake import changed
from tidemark.sinks.iceberg import catalog, lanes
from tidemark.sinks.iceberg import table as iceberg_table


class Catalog(catalog.SqlTables):
    """Each way to the catalog is an effect."""

    def load_table(self, identifier: Any) -> Any:
        effect()
        return super().load_table(identifier)

    def commit_table(self, *what: Any) -> Any:
        return changed(lambda: super(Catalog, self).commit_table(*what))


def _sleep(seconds: float) -> None:
    from tests.simulation.world import now

    now().clocks.sleep(seconds)


def enter(stack: ExitStack) -> None:
    """From now on, the product's tables of Iceberg are in the world that is played."""
    if catalog.SqlTables is not Catalog:
        stack.enter_context(patch.object(catalog, "SqlTables", Catalog))
        # A table forgets lanes from the second one on.
        stack.enter_context(patch.object(lanes, "MAX_LANES", 1))
        stack.enter_context(patch.object(iceberg_table, "time", SimpleNamespace(sleep=_sleep)))
        stack.enter_context(patch.object(iceberg_table, "random", SimpleNamespace(uniform=lambda least, most: most)))
