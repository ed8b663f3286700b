"""Fields added to a stream file's text, whose other lines stay as they are, with their comments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import yaml

from tidemark.drafts.columns import Column
from tidemark.drafts.format import typed_as
from tidemark.drafts.json_types import ddl_of
from tidemark.errors import WrongUse

_BY_HAND = "write it by hand"


def with_fields(text: str, added: Mapping[str, Column], said: str) -> str:
    """The text with more fields at the end of those of its scheme, by their names in messages.

    `said`: a comment for each, where lines may have one.
    Raises WrongUse where the fields are written in a way that this does not know. Whether the text is a stream file with
    exactly these fields is for the caller to check.
    """
    scheme = _value(yaml.compose(text, Loader=yaml.SafeLoader), "scheme")
    fields, schema = _value(scheme, "fields"), _value(scheme, "schema")
    if isinstance(fields, yaml.MappingNode):
        named = [_as_yaml({one.name: typed_as(one.name, source, one.type)}) for source, one in added.items()]
        return _in_flow(text, fields, named) if fields.flow_style else _in_lines(text, fields, named, said)
    if isinstance(schema, yaml.ScalarNode):
        named = [f"`{one.name}` {ddl_of(one.type)}" for one in added.values()]
        return _in_schema(text, schema, named)
    raise WrongUse(f"the scheme has neither fields nor a schema of its own in this file: {_BY_HAND}")


def _value(node: yaml.Node | None, key: str) -> yaml.Node | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for named, value in node.value if named.value == key), None)


def _in_lines(text: str, fields: yaml.MappingNode, named: Sequence[str], said: str) -> str:
    (first, _), (_, last) = fields.value[0], fields.value[-1]
    lines = text.splitlines(keepends=True)
    at = last.end_mark.line + 1
    if last.end_mark.column == 0:
        # A text of several lines ends where the next one begins.
        at -= 1
    if not lines[at - 1].endswith("\n"):
        lines[at - 1] += _end(text)
    margin = " " * first.start_mark.column
    return "".join([*lines[:at], *(f"{margin}{one}  # {said}{_end(text)}" for one in named), *lines[at:]])


def _in_flow(text: str, fields: yaml.MappingNode, named: Sequence[str]) -> str:
    (_, last) = fields.value[-1]
    return _inserted(text, last.end_mark.index, "".join(f", {one}" for one in named))


def _in_schema(text: str, schema: yaml.ScalarNode, named: Sequence[str]) -> str:
    if schema.style not in ("|", ">"):
        # Before the quote, if it has one.
        return _inserted(text, schema.end_mark.index - (1 if schema.style else 0), "".join(f", {one}" for one in named))
    lines = text.splitlines(keepends=True)[schema.start_mark.line + 1 : schema.end_mark.line]
    if not schema.value.strip() or "--" in schema.value:
        raise WrongUse(f"the schema has comments of its own: {_BY_HAND}")
    of_schema = [one for one in lines if one.strip() and not one.strip().startswith("#")]
    margin = " " * min(len(one) - len(one.lstrip()) for one in of_schema)
    end = sum(map(len, text.splitlines(keepends=True)[: schema.start_mark.line + 1 + lines.index(of_schema[-1])]))
    return _inserted(text, end + len(of_schema[-1].rstrip()), "".join(f",{_end(text)}{margin}{one}" for one in named))


def _end(text: str) -> str:
    """The line ending of a file."""
    return "\r\n" if "\r\n" in text else "\n"


def _inserted(text: str, at: int, more: str) -> str:
    return text[:at] + more + text[at:]


def _as_yaml(field: Mapping[str, str | dict[str, str]]) -> str:
    """A field as it may stand between others, where a comma or a bracket of it would be one of YAML's."""
    dumped = yaml.safe_dump(field, default_flow_style=True, allow_unicode=True, width=1_000_000, sort_keys=False)
    return str(dumped).strip()[1:-1]
