"""The options of a command that are the fields of a request: `tidemark.runs.requests.forms` declares them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Annotated, Any, TypeVar

import typer
from pydantic.fields import FieldInfo

from tidemark.cli import coordinates
from tidemark.runs.requests.forms import AuditRequest, BackfillRequest, EraseRequest, ReplayRequest, checked

Request = type[BackfillRequest] | type[ReplayRequest] | type[EraseRequest] | type[AuditRequest]
Command = TypeVar("Command", bound=Callable[..., None])
Asked = TypeVar("Asked", bound=BackfillRequest | ReplayRequest | EraseRequest | AuditRequest)

# Fields with another name. Long ones would be cut in a help of 80 columns.
NAMES = {"sinks": ("--sink",), "everything_before": ("--before-first",)}
# Options that may be repeated, and how their values become that of the field.
_REPEATED: Mapping[str, Callable[[list[str] | None], object]] = {
    "records": coordinates.records,
    "ranges": coordinates.ranges,
    "sinks": lambda given: given,
}
# On a command line, `tidemark.cli.confirmation` has the option.
OWN = frozenset({"dry_run"})


def takes(request: Request) -> Callable[[Command], Command]:
    """Give a command an option for each field of a request. It finds what people have written as `**given`, by field."""

    def with_options(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        own = [parameter for parameter in signature.parameters.values() if parameter.kind != Parameter.VAR_KEYWORD]
        fields = [
            _option(name, field, request)
            for name, field in request.model_fields.items()
            if name not in OWN and name not in signature.parameters
        ]
        stream, *others = own
        keyword_only = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in others]
        wanted = signature.replace(parameters=[stream, *fields, *keyword_only])
        # Where typer looks for them.
        setattr(command, "__signature__", wanted)  # noqa: B010
        command.__annotations__ = {name: parameter.annotation for name, parameter in wanted.parameters.items()} | {
            "return": None
        }
        return command

    return with_options


def values(given: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """People's options, as the values of a request's fields. Raises WrongUse naming the option or file, and line."""
    return {
        **{name: _REPEATED[name](value) if name in _REPEATED else value for name, value in given.items()},
        **more,
    }


def request(kind: type[Asked], given: Mapping[str, Any]) -> Asked:
    """The request with some values of `values`. Raises WrongUse naming each wrong option and what was expected."""
    return checked(kind, given, given, here=True, called=lambda field: _names(field)[0])


def _option(name: str, field: FieldInfo, request: Request) -> Parameter:
    names, text = _names(name), _with_options(field.description or "", request)
    default = "" if field.is_required() else field.default
    annotation: Any = type(default) if default is not None else int | None
    if name in _REPEATED:
        default, annotation = None, list[str] | None
        text = (
            f"{text} May be repeated."
            if name == "sinks"
            else f"{text} @FILE stands for the lines of a file. May be repeated."
        )
    section = (field.json_schema_extra or {}).get("section") if isinstance(field.json_schema_extra, dict) else None
    # As the form shows them; what it shows first stands among the other options.
    panel = None if section is None else str(section)
    annotated = Annotated[annotation, typer.Option(*names, help=text, rich_help_panel=panel)]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotated)


def _names(field: str) -> tuple[str, ...]:
    return NAMES.get(field, (f"--{field.replace('_', '-')}",))


def _with_options(text: str, request: Request) -> str:
    """A form's text, with options where it names other fields. Those of one word are also words of plain English."""
    fields = "|".join(name for name in request.model_fields if "_" in name)
    return re.sub(rf"\b({fields})\b", lambda found: _names(found[1])[0], text)
