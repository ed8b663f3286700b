"""The one rule for commands that replace, remove or move something: they show it, and ask before they act.

`changes` gives a command `--yes` and `--dry-run`, and a `Confirmation`, from which alone it learns whether it may act.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Annotated, Any

import typer

from tidemark.cli.output import error
from tidemark.errors import EXIT_WRONG_USE, NotConfirmed

Command = Callable[..., None]

_YES = Annotated[bool, typer.Option("--yes", help="act without asking; needed without a terminal")]
_DRY_RUN = Annotated[bool, typer.Option("--dry-run", help="only show what would be done; change nothing")]


def at_terminal() -> bool:
    """Whether a person can be shown something here, and asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()


class Confirmation:
    """Whether a command may act: as its options say, or as the person at its terminal answers."""

    def __init__(self, *, yes: bool, dry_run: bool) -> None:
        # Where somebody writes both, the careful one counts.
        self.dry_run = dry_run
        self.yes = yes and not dry_run
        self.declined = False

    @property
    def shows(self) -> bool:
        """Whether the command has to show first what it would do."""
        return not self.yes

    def check_somebody_answers(self) -> None:
        """Raises NotConfirmed where a question would find no person, and no option has answered it."""
        if not (self.yes or self.dry_run or at_terminal()):
            raise NotConfirmed(
                "this changes something, and there is no terminal to ask at. Say --yes to do it, or --dry-run to see what it "
                "would do"
            )

    def agrees(self, question: str) -> bool:
        """Whether to do what the question names. Raises NotConfirmed."""
        if self.yes:
            return True
        if self.dry_run:
            error(f"dry run, nothing was changed. Without --dry-run: {question}")
            return False
        self.check_somebody_answers()
        try:
            agreed = typer.confirm(question, err=True)
        except typer.Abort:
            # The end of the input is no consent.
            agreed = False
            error("")
        if not agreed:
            self.declined = True
            error("Nothing was changed.")
        return agreed


def always(_: Mapping[str, Any]) -> bool:
    """Say that a command changes something whatever its options are."""
    return True


def changes(when: Callable[[Mapping[str, Any]], bool] = always) -> Callable[[Command], Command]:
    """Give a command its two options and its `asking`. `when` says by the other options whether it changes anything.

    Before the command begins, it is refused where nobody can answer. It ends with 2 when a person has said no.
    """

    def with_options(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        others = [parameter for name, parameter in signature.parameters.items() if name != "asking"]
        without = signature.replace(parameters=others)
        # Names that `takes` gives the command, as `**given`.
        rest = [parameter.name for parameter in others if parameter.kind == Parameter.VAR_KEYWORD]

        @functools.wraps(command)
        def asked_first(*args: Any, yes: bool = False, dry_run: bool = False, **given: Any) -> None:
            asking = Confirmation(yes=yes, dry_run=dry_run)
            bound = without.bind(*args, **given)
            bound.apply_defaults()
            named = {name: value for name, value in bound.arguments.items() if name not in rest}
            for name in rest:
                named |= bound.arguments[name]
            if when(named):
                asking.check_somebody_answers()
            command(asking=asking, **named)
            if asking.declined:
                raise typer.Exit(EXIT_WRONG_USE)

        own = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=False, annotation=annotation)
            for name, annotation in (("yes", _YES), ("dry_run", _DRY_RUN))
        ]
        wanted = sorted([*others, *own], key=lambda parameter: parameter.kind)
        # Where typer looks for them.
        setattr(asked_first, "__signature__", signature.replace(parameters=wanted))  # noqa: B010
        asked_first.__annotations__ = {parameter.name: parameter.annotation for parameter in wanted} | {"return": None}
        return asked_first

    return with_options
