"""A schema registry's reasons against a schema. Imports nothing: stream files are read with it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RefusedSchema:
    """A schema of a registry that is not read, and why: what was written with it becomes dead letters."""

    why: str
