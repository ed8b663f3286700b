"""Schemas of Avro records, as far as a stream file needs them. Spark reads the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tidemark.schemes.json_depth import TOO_DEEP, too_deep


def record_fields(schema: str) -> list[str]:
    """The names of a record's fields. Raises ValueError if the text is not a record's schema."""
    return [str(one["name"]) for one in record(schema)["fields"]]


def record(schema: str) -> dict[str, Any]:
    """A record's schema, checked to have fields with names. Raises ValueError."""
    if too_deep(schema.encode(errors="replace")):
        raise ValueError(f"the schema is {TOO_DEEP}")
    try:
        schema_ = json.loads(schema)
    except ValueError:
        raise ValueError("the schema is not JSON") from None
    if not isinstance(schema_, dict) or schema_.get("type") != "record" or not isinstance(schema_.get("fields"), list):
        raise ValueError("the schema is not one of a record")
    if not all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in schema_["fields"]):
        raise ValueError("a field of the schema has no name")
    return schema_


def schema_text(path: Path) -> str:
    """The text of a schema file. Raises ValueError."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as problem:
        raise ValueError(f"schema_file: {path} cannot be read: {problem.strerror}") from problem
    except UnicodeDecodeError as problem:
        raise ValueError(f"schema_file: {path} is not UTF-8") from problem
