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
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from tidemark import errors
from tidemark.cli.app import app
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


def keys(model: str) -> str:
    """The keys of a part of a stream file."""
    required = _MODELS[model].get("required", ())
    rows = []
    for key, one in _MODELS[model]["properties"].items():
        # A type is what chooses the model: a page has it in the heading of the table.
        if "const" in one and key in required:
            continue
        if "description" not in one:
            sys.exit(f"{model}.{key}: say what it means, as `description` of its Field")
        default = "required" if key in required else _default(one.get("default"))
        rows.append((f"`{key}`", _type(one), default, one["description"]))
    return table(("key", "type", "default", "meaning"), rows)


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


def fields(form: str) -> str:
    """The fields of the form of a DAG."""
    # Airflow makes its home when it is imported.
    os.environ.setdefault("AIRFLOW_HOME", str(REPOSITORY / ".local" / "airflow-reference"))
    from tidemark.airflow.requests import params

    rows = []
    for name, one in params(REQUESTS[form]).items():
        kinds = one.schema["type"]
        schema = {**one.schema, "type": kinds if isinstance(kinds, str) else next(k for k in kinds if k != "null")}
        default = _default(one.value) if isinstance(one.value, str | bool | None) else "required"
        rows.append((f"`{name}`", _type(schema), default, one.description or ""))
    return table(("field", "type", "default", "meaning"), rows)


def commands() -> str:
    """All commands, a line each."""
    rows = ((f"[`tidemark {name}`](commands.md#tidemark-{name.replace(' ', '-')})", said) for name, said, *_ in _all())
    return table(("command", "does"), rows)


def options() -> str:
    """All commands, each with what it says of itself, its example and its options."""
    return "\n\n".join(_command(*one) for one in _all())


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


def _command(name: str, said: str, more: list[str], example: str, parameters: list[Any]) -> str:
    rows = []
    for one in parameters:
        argument = one.param_type_name == "argument"
        default = "required" if one.required else _default(one.default) if one.default else ""
        words = f"`{one.name.upper()}`" if argument else ", ".join(f"`{word}`" for word in one.opts)
        rows.append((words, default, one.help))
    parts = (
        f"## `tidemark {name}`",
        said,
        *more,
        f"```sh\n{example}\n```",
        table(("argument or option", "default", "meaning"), rows),
    )
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
    for one in (keys, fields, commands, options, metrics, exit_codes, error_names, rules, missing, hours)
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
