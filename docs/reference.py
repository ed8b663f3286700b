"""The tables of the reference that are written from the code.

A table stands between two comments of a page. The first names what the table is of: `keys Source`, `fields replay`,
`commands`. What a key, a field, an option, a metric or an error means is said in the code, and there alone.

    python -m docs.reference          # names the pages whose tables are not what the code says, and ends with 1
    python -m docs.reference --write  # writes the tables; `./run docs --write` does so before it builds the site
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from typer.main import get_command

from tidemark import errors
from tidemark.cli.app import app
from tidemark.cli.request_options import NAMES, OWN
from tidemark.errors import EXIT_CODES, TidemarkError
from tidemark.runs.requests.forms import AuditRequest, BackfillRequest, EraseRequest, ReplayRequest
from tidemark.streams.model import Stream
from tidemark.submit.command import WarmEngine
from tidemark.views.event_time.calendar import WORDS
from tidemark.views.event_time.completeness import MISSINGS, RULES
from tidemark.views.metrics import COUNTERS, GAUGES

REPOSITORY = Path(__file__).resolve().parent.parent
_PAGES = sorted((REPOSITORY / "docs").glob("*.md"))
_MARKED = re.compile(r"(<!-- from the code: ([\w. -]+); ./run docs --write -->\n).*?(<!-- end -->\n)", re.DOTALL)
# What no number of a stream file comes near.
_NO_BOUND = 2**31 - 1
_SCHEMA = Stream.model_json_schema()
_MODELS: dict[str, Any] = {
    "Stream": _SCHEMA,
    **_SCHEMA["$defs"],
    # No part of a stream file, but of a connection.
    "WarmEngine": WarmEngine.model_json_schema(),
}


def table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of Markdown; a `|` in a cell would begin another one."""
    lines = [list(headings), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join("".join(f"| {cell} " if cell else "| " for cell in line) + "|" for line in lines)


# So many parts of one kind have a key, or commands an option, before it stands in the table of those that several have.
_SEVERAL = 3
# Kinds of parts, by the ends of their models' names, with the anchor of what several of them have.
_KINDS = {"Sink": "keys-of-several-types", "DeadLetters": "dead_letters"}
_KEYS = ("key", "type", "default", "meaning")


def keys(model: str) -> str:
    """The keys of a part of a stream file; those that several of its kind have are named after the table."""
    kind = next((kind for kind in _KINDS if model.endswith(kind)), None)
    several = _several_have(kind) if kind else []
    own, others = [row for row in _rows(model) if row not in several], [row for row in _rows(model) if row in several]
    also = "Also" if own else "It takes"
    named = f"{also} {', '.join(row[0] for row in others)}: [above](#{_KINDS[kind]})." if kind and others else ""
    return "\n\n".join(part for part in (table(_KEYS, own) if own else "", named) if part)


def shared(kind: str) -> str:
    """The keys that several parts of a kind have."""
    return table(_KEYS, _several_have(kind))


def _several_have(kind: str) -> list[tuple[str, ...]]:
    counted = Counter(row for model in _MODELS if model.endswith(kind) for row in _rows(model))
    words: dict[str, tuple[str, ...]] = {}
    for row, number in counted.most_common():
        if number >= _SEVERAL:
            words.setdefault(row[0], row)
    return [*words.values()]


def _rows(model: str) -> list[tuple[str, ...]]:
    """A row for each key of a part of a stream file."""
    required = _MODELS[model].get("required", ())
    rows: list[tuple[str, ...]] = []
    for key, one in _MODELS[model]["properties"].items():
        # A type is what chooses the model: a page has it in the heading of the table.
        if "const" in one and key in required:
            continue
        # Every scheme takes it, and has a heading of its own.
        if key == "keep":
            continue
        if "description" not in one:
            sys.exit(f"{model}.{key}: say what it means, as `description` of its Field")
        default = "required" if key in required else _default(one.get("default"))
        if key == "name" and model.endswith("Sink"):
            default = "the type"
        rows.append((f"`{key}`", _type(one), default, one["description"]))
    return rows


def _default(value: object) -> str:
    if isinstance(value, dict):
        return ""
    if value in (None, "", []):
        return "none"
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"


def _type(one: dict[str, Any]) -> str:
    """The values that a key takes, from its JSON schema."""
    if either := one.get("anyOf") or one.get("oneOf"):
        return " or ".join(dict.fromkeys(_type(way) for way in either if way.get("type") != "null"))
    if values := one.get("enum") or ([one["const"]] if "const" in one else None):
        return ", ".join(f"`{value}`" for value in values)
    match one.get("type"):
        case "array":
            return f"list of {_several(one['items'])}" + (f", at most {one['maxItems']}" if "maxItems" in one else "")
        case "object":
            inner = one.get("additionalProperties") or next(iter(one.get("patternProperties", {}).values()), None)
            within = f"map of {_several(inner)}" if isinstance(inner, dict) else "map"
            return within + (f", at most {one['maxProperties']}" if one.get("maxProperties", 1) > 1 else "")
        case "integer" | "number" as kind:
            least, most = one.get("minimum"), one.get("maximum")
            bounds = f", {least} to {most}" if most is not None and most < _NO_BOUND else f", from {least}"
            return f"{kind}{bounds if least is not None else ''}"
        case "string":
            return "time" if one.get("format") == "date-time" else "string"
        case "boolean":
            return "boolean"
        case None:
            return "map" if "$ref" in one else "anything"
        case other:
            raise NotImplementedError(other)


def _several(one: dict[str, Any]) -> str:
    word, comma, rest = _type(one).partition(",")
    if word.startswith("list"):
        return f"lists{word[4:]}{comma}{rest}"
    return f"{word}s{comma}{rest}" if word.isalpha() else f"{word}{comma}{rest}"


_Request = type[ReplayRequest] | type[BackfillRequest] | type[EraseRequest] | type[AuditRequest]
REQUESTS: dict[str, _Request] = {
    "replay": ReplayRequest,
    "backfill": BackfillRequest,
    "erase": EraseRequest,
    "audit": AuditRequest,
}


_FIELDS = ("field", "type", "default", "meaning")
# So many forms have a field before it stands in the table of those that several have.
_TWO = 2


def fields(form: str) -> str:
    """The fields of the form of a DAG; `several` for those that two forms or more have."""
    counted = Counter(row for one in REQUESTS for row in _fields(one))
    several: dict[str, tuple[str, ...]] = {}
    for row, number in counted.most_common():
        if number >= _TWO:
            several.setdefault(row[0], row)
    if form == "several":
        return table(_FIELDS, several.values())
    own = [row for row in _fields(form) if row not in several.values()]
    others = ", ".join(row[0] for row in _fields(form) if row in several.values())
    return f"{table(_FIELDS, own)}\n\nAlso {others}: [above](#fields-of-several-forms)."


@cache
def _fields(form: str) -> list[tuple[str, ...]]:
    # Airflow makes its home when it is imported.
    os.environ.setdefault("AIRFLOW_HOME", str(REPOSITORY / ".local" / "airflow-reference"))
    from tidemark.airflow.requests import params

    rows: list[tuple[str, ...]] = []
    for name, one in params(REQUESTS[form]).items():
        kinds = one.schema["type"]
        schema = {**one.schema, "type": kinds if isinstance(kinds, str) else next(k for k in kinds if k != "null")}
        default = _default(one.value) if isinstance(one.value, str | bool | None) else "required"
        rows.append((f"`{name}`", _type(schema), default, one.description or ""))
    return rows


def commands() -> str:
    """All commands, by what a person wants; what each does stands with its options."""
    top: Any = get_command(app)
    listed: dict[str, list[str]] = {}
    for name, *_ in _all():
        link = f"[`{name}`](commands.md#tidemark-{name.replace(' ', '-')})"
        listed.setdefault(top.get_command(None, name.split()[0]).rich_help_panel, []).append(link)
    return table(("to", "commands"), ((panel.lower(), ", ".join(links)) for panel, links in listed.items()))


def options() -> str:
    """All commands, each with what it says of itself, its example and its options; first what several take."""
    written = {name: _parameters(parameters) for name, *_, parameters in _all()}
    # What is a field of a form stands with the forms.
    formed = {name: [row for row in rows if _is_field(name, row[0])] for name, rows in written.items()}
    counted = Counter(row for name, rows in written.items() for row in rows if row not in formed[name])
    # Of an option that commands explain differently, the most common words.
    words: dict[str, Row] = {}
    for row, number in counted.most_common():
        if number >= _SEVERAL:
            words.setdefault(row[0], row)
    shared = [*words.values()]
    several = ("## Options of several commands", table(_OPTIONS, shared))
    each = (
        _command(name, [said, *more], example, written[name], formed[name], shared)
        for name, said, more, example, _ in _all()
    )
    return "\n\n".join([*several, *each])


def _is_field(command: str, words: str) -> bool:
    """Whether an option of a command is a field of the form of the same request."""
    fields = REQUESTS[command].model_fields.keys() - OWN if command in REQUESTS else set()
    return any(
        f"`{option}`" == words for field in fields for option in NAMES.get(field, (f"--{field.replace('_', '-')}",))
    )


def _all() -> Iterator[tuple[str, str, list[str], str, list[Any]]]:
    """Each command: its name, its first sentences, what more it says, its example, and its parameters."""

    def walk(group: Any, *names: str) -> Iterator[tuple[str, Any]]:
        for name in group.list_commands(None):
            command = group.get_command(None, name)
            if hasattr(command, "commands"):
                yield from walk(command, *names, name)
            else:
                yield " ".join((*names, name)), command

    for name, command in walk(get_command(app)):
        said, _, example = command.help.partition("Example: ")
        first, *more = (" ".join(part.split()) for part in said.strip().split("\n\n"))
        yield name, first, more, example.strip(), command.params


_OPTIONS = ("argument or option", "default", "meaning")
Row = tuple[str, str, str]


def _parameters(parameters: list[Any]) -> list[Row]:
    """The rows of a command's arguments and options."""
    rows = []
    for one in parameters:
        argument = one.param_type_name == "argument"
        default = "required" if one.required else _default(one.default) if one.default else ""
        words = f"`{one.name.upper()}`" if argument else ", ".join(f"`{word}`" for word in one.opts)
        rows.append((words, default, one.help))
    return rows


def _command(name: str, said: list[str], example: str, rows: list[Row], formed: list[Row], shared: list[Row]) -> str:
    own = [row for row in rows if row not in formed and row not in shared]
    others = [row for row in rows if row not in formed and row in shared]
    parts = [f"## `tidemark {name}`", *said, f"```sh\n{example}\n```"]
    if formed:
        parts.append(f"The [fields of the form](params.md#{name}) as options: {', '.join(row[0] for row in formed)}.")
    if own:
        parts.append(table(_OPTIONS, own))
    if others:
        also = "Also" if own or formed else "It takes"
        parts.append(f"{also} {', '.join(row[0] for row in others)}: [above](#options-of-several-commands).")
    return "\n\n".join(parts)


def metrics() -> str:
    """The metrics that a stream sends."""
    rows = [
        (f"`{name}`", kind, said)
        for kind, all_ in (("gauge", GAUGES), ("counter", COUNTERS))
        for name, said in all_.items()
    ]
    return table(("name", "kind", "meaning"), rows)


def exit_codes() -> str:
    """The exit codes of jobs and commands."""
    rows = []
    for code, one in EXIT_CODES.items():
        retried = "yes" if one.retried else "no" if code else ""
        if one.but:
            retried += f", except {', '.join(f'`{error.__name__}`' for error in one.but)}"
        rows.append((str(code), one.meaning, retried, one.to_do))
    return table(("code", "meaning", "retried by Airflow", "what to do"), rows)


def error_names() -> str:
    """Every error, from its docstring: `Raised when ...`, and the paragraph `To do: ...`."""
    rows = []
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, TidemarkError) and kind is not TidemarkError:
            said, _, to_do = " ".join((kind.__doc__ or "").split()).partition(" To do: ")
            if not said.startswith("Raised when ") or not to_do:
                sys.exit(f"{name}: expected a docstring with `Raised when ...` and a paragraph `To do: ...`")
            rows.append((f"`{name}`", str(kind.exit_code), said.removeprefix("Raised when "), to_do))
    return table(("name", "code", "raised when", "what to do"), rows)


def rules() -> str:
    """The rules by which a span of event time is complete in a partition, or not."""
    return table(("rule", "meaning"), ((f"`{rule.value}`", said) for rule, said in RULES.items()))


def missing() -> str:
    """Why offsets that may belong to a span are in no window."""
    return table(("word", "meaning"), ((f"`{kind.value}`", said) for kind, said in MISSINGS.items()))


def hours() -> str:
    """The words for an hour of a stream in the calendar."""
    return table(("word", "meaning"), ((word.value, said) for word, said in WORDS.items()))


_TABLES: dict[str, Callable[..., str]] = {
    one.__name__: one
    for one in (keys, shared, fields, commands, options, metrics, exit_codes, error_names, rules, missing, hours)
}


def written(page: str, shown: set[str]) -> str:
    """A page with its tables as the code has them; what they are of is added to `shown`."""

    def one(found: re.Match[str]) -> str:
        name, *of = found[2].split()
        shown.update(of)
        return f"{found[1]}\n{_TABLES[name](*of)}\n\n{found[3]}"

    return _MARKED.sub(one, page)


def main(*, write: bool) -> int:
    """Write the tables, or name the pages where they are other ones. Returns the exit code."""
    shown: set[str] = set()
    wrong = []
    for page in _PAGES:
        text = page.read_text("utf-8")
        if (new := written(text, shown)) != text:
            wrong.append(page.relative_to(REPOSITORY))
            if write:
                page.write_text(new, "utf-8")
    if not write and wrong:
        print(f"not what the code says: {', '.join(map(str, wrong))}. Write their tables: ./run docs --write")
    # Some schemes have no keys but those of all schemes.
    own = {name for name, one in _MODELS.items() if one["properties"].keys() - {"type", "keep"}}
    if left_out := sorted(own - shown):
        print(
            f"no page has a table of: {', '.join(left_out)}. Add `<!-- from the code: keys {left_out[0]}; ...` to one"
        )
    return int(bool(left_out or (wrong and not write)))


if __name__ == "__main__":
    sys.exit(main(write="--write" in sys.argv[1:]))
