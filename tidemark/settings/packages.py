"""Types that your own packages add by entry points: sinks, schemes and ledgers."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection
from importlib.metadata import entry_points
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import create_model, model_validator

from tidemark.settings.parts import Part

log = logging.getLogger(__name__)

K = TypeVar("K")
P = TypeVar("P", bound=Part)


def kinds_of_packages(
    group: str, kind: type[K], base: Any, refused: Callable[[str, str], K], taken: Collection[str]
) -> dict[str, K]:
    """The kinds that the entry points of a group name, by type. The settings of each are a subclass of `base`.

    For a kind that cannot be used, `refused` makes a kind from its type and the reason. Then only stream files that
    name the type are invalid. A type that is `taken` stays Tidemark's own.
    """
    packages: dict[str, K] = {}
    for entry in entry_points(group=group):
        if entry.name in taken:
            log.warning("the entry point %s = %s is ignored: Tidemark has this type itself", entry.name, entry.value)
            continue
        try:
            loaded = entry.load()
            if not isinstance(loaded, kind):
                raise TypeError(f"expected a {kind.__module__}.{kind.__name__}, found {type(loaded).__name__}")
            if entry.name in packages:
                raise ValueError("two packages bring this type")
            _check(getattr(loaded, "settings", None), base, entry.name)
            packages[entry.name] = loaded
        except (Exception, SystemExit) as problem:
            # Whatever fails in the package's import concerns only the streams that use the package.
            packages[entry.name] = refused(entry.name, f"{entry.value} cannot be loaded: {problem}")
    return packages


def _check(settings: Any, base: Any, type_: str) -> None:
    """Raises TypeError for settings that would break the reading of every stream file."""
    if not (isinstance(settings, type) and issubclass(settings, base)):
        raise TypeError(f"its settings are no class below {base.__module__}.{base.__name__}")
    made: Any = settings
    if inspect.isabstract(made):
        raise TypeError(f"{made.__name__} lacks {', '.join(sorted(made.__abstractmethods__))}")
    made.model_rebuild()
    said = made.model_fields["type"].annotation
    if get_origin(said) is not Literal or get_args(said) != (type_,):
        raise TypeError(f"{made.__name__}.type has to be Literal[{type_!r}], the name of its entry point")


def refusing(base: type[P], type_: str, why: str, **fields: Any) -> type[P]:
    """Settings that no stream file can have; the error says why."""

    def refuse(_: object) -> object:
        raise ValueError(f"the type {type_}: {why}")

    made: Any = create_model
    return made(  # type: ignore[no-any-return]
        f"Refused{base.__name__}",
        __base__=base,
        __validators__={"refuse": model_validator(mode="before")(refuse)},
        type=(Literal[type_], ...),
        **fields,
    )
