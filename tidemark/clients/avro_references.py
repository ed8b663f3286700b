"""One Avro schema of a schema and of those that it refers to by the names of their types."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

# The depth that the text of a schema may have.
_DEEPEST: Final = 200
_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})


def joined(schema: str, others: Iterable[str]) -> str:
    """The schema, with each type of the others defined where it is named first. Raises ValueError.

    Each definition stands there once, so the text is no longer than all texts together.
    """
    return json.dumps(_Joining(map(_read, others)).of(_read(schema), "", 0))


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(f"one is nested deeper than {_DEEPEST} levels") from None
    except ValueError:
        raise ValueError("one is not JSON") from None


class _Joining:
    def __init__(self, others: Iterable[Any]) -> None:
        # Each definition, and the namespace in which it stands.
        self._given = {
            name: (definition, within) for other in others for name, definition, within in _definitions(other, "", 0)
        }
        self._defined: set[str] = set()

    def of(self, schema: Any, namespace: str, depth: int) -> Any:
        """A schema that stands in a namespace, with the definitions of what it names."""
        _check(depth)
        if isinstance(schema, list):
            return [self.of(branch, namespace, depth + 1) for branch in schema]
        if isinstance(schema, str):
            for name in dict.fromkeys((_qualified(schema, namespace), schema)):
                if name in self._given and name not in self._defined:
                    return self.of(*self._given[name], depth)
            return schema
        if not isinstance(schema, dict):
            return schema
        made = dict(schema)
        if _is_named(schema):
            name = _full_name(schema, namespace)
            if name in self._defined:
                return name
            self._defined.add(name)
            namespace, _, made["name"] = name.rpartition(".")
            # Even if it is empty: otherwise the type would be of the namespace around it.
            made["namespace"] = namespace
        for part, type_ in _parts(schema):
            made[part] = self.of(type_, namespace, depth + 1)
        if isinstance(schema.get("fields"), list):
            made["fields"] = [
                {**field, "type": self.of(field["type"], namespace, depth + 1)} if _is_field(field) else field
                for field in schema["fields"]
            ]
        return made


def _definitions(schema: Any, namespace: str, depth: int) -> Iterator[tuple[str, Any, str]]:
    """The named types in a schema, by their full names, and the namespace in which each stands."""
    _check(depth)
    if isinstance(schema, list):
        for branch in schema:
            yield from _definitions(branch, namespace, depth + 1)
    elif isinstance(schema, dict):
        if _is_named(schema):
            yield (name := _full_name(schema, namespace)), schema, namespace
            namespace = name.rpartition(".")[0]
        fields = schema["fields"] if isinstance(schema.get("fields"), list) else []
        for branch in [*(part for _, part in _parts(schema)), *(field["type"] for field in fields if _is_field(field))]:
            yield from _definitions(branch, namespace, depth + 1)


def _parts(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The schemas within one that has no fields, or whose type is a schema itself."""
    return (
        (part, schema[part]) for part in ("type", "items", "values") if isinstance(schema.get(part), (str, list, dict))
    )


def _is_field(field: Any) -> bool:
    return isinstance(field, dict) and "type" in field


def _is_named(schema: dict[str, Any]) -> bool:
    kind, name = schema.get("type"), schema.get("name")
    return isinstance(kind, str) and kind in _NAMED and isinstance(name, str)


def _full_name(schema: dict[str, Any], namespace: str) -> str:
    own = schema.get("namespace")
    return _qualified(schema["name"], own if isinstance(own, str) else namespace)


def _qualified(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _check(depth: int) -> None:
    if depth > _DEEPEST:
        raise ValueError(f"one is nested deeper than {_DEEPEST} levels")
