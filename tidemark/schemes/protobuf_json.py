"""Messages of Protobuf as JSON, for people who look at one: whatever values it has.

This is also read by the process of `tidemark/views/messages/sandbox.py`, and imports nothing but Google's library.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from google.protobuf import json_format


def as_json(message: Any) -> Any:
    """A message as Google's library says it. Its parts that have no JSON there are objects of their fields.

    Such are a time of the year 300000, a number that is none in a `Value`, and an `Any` of a type that the schema lacks.
    """
    try:
        return _whole(message)
    except MemoryError:
        raise
    except Exception:  # of several kinds, by what is wrong
        return _by_parts(message)


def _whole(message: Any) -> Any:
    return json_format.MessageToDict(
        message,
        always_print_fields_with_no_presence=True,
        preserving_proto_field_name=True,
        descriptor_pool=message.DESCRIPTOR.file.pool,
    )


def _by_parts(message: Any) -> dict[str, Any]:
    fields = message.DESCRIPTOR.fields
    given = [field for field in fields if not field.has_presence or message.HasField(field.name)]
    parts = {field.name: _part(message, field) for field in given if _of_messages(field) is not None}
    alone = type(message)()
    alone.CopyFrom(message)
    for name in parts:
        alone.ClearField(name)
    try:
        others = _whole(alone)
    except MemoryError:
        raise
    except Exception:  # one of Google's own types
        others = {field.name: _plain(getattr(message, field.name)) for field in given if field.name not in parts}
    return {field.name: ({**others, **parts})[field.name] for field in given}


def _of_messages(field: Any) -> Any:
    """The message type of a field; None for a field of another type."""
    of = field.message_type
    return of.fields_by_name["value"].message_type if of is not None and of.GetOptions().map_entry else of


def _part(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.message_type.GetOptions().map_entry:
        return {str(key): as_json(value[key]) for key in value}
    return [as_json(one) for one in value] if field.is_repeated else as_json(value)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return str(value) if isinstance(value, (str, int, float)) else [*map(_plain, value)]
