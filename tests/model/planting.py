"""Planting a bug: the product runs with other code for a while, wherever its functions were imported."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any


@contextmanager
def planted(module: str, old: str, new: str) -> Iterator[None]:
    """While the block runs, functions of `module` run as if `old` was `new` in its source, where it stands once.

    Functions keep their identity and get other code, so that those who have imported them by name get the bug too.
    """
    home = import_module(module)
    path = Path(inspect.getsourcefile(home) or "")
    source = path.read_text()
    assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in {module}: plant this bug anew"
    ast.parse(source.replace(old, new))
    changed = dict(_functions(compile(source.replace(old, new), str(path), "exec", dont_inherit=True)))
    before: list[tuple[FunctionType, CodeType]] = []
    for name, code in _functions(compile(source, str(path), "exec", dont_inherit=True)):
        if changed[name] != code:
            function = _found(home, name)
            assert function.__globals__ is vars(home), f"{name} of {module} is hidden behind {function.__module__}"
            before.append((function, function.__code__))
            function.__code__ = changed[name]
    assert before, f"{new!r} changes no function of {module}"
    try:
        yield
    finally:
        for function, code in before:
            function.__code__ = code


@contextmanager
def replaced(module: str, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """While the block runs, a function of `module` is what `make` makes of it, wherever it was imported.

    Other than a quote of its source, this needs no more of the function than its name and what it is given.
    """
    function = _found(import_module(module), name)
    assert not function.__code__.co_freevars, f"{name} of {module} is made by another function, and cannot be replaced"
    before = function.__code__, function.__defaults__, function.__kwdefaults__
    original = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    original.__kwdefaults__ = function.__kwdefaults__
    place = f"{module}:{name}"
    _REPLACED[place] = make(original)
    names: dict[str, Any] = {}
    exec(
        f"def instead(*given, **named):\n from {__name__} import _REPLACED\n return _REPLACED[{place!r}](*given, **named)",
        names,
    )
    function.__code__, function.__defaults__, function.__kwdefaults__ = names["instead"].__code__, None, None
    try:
        yield
    finally:
        function.__code__, function.__defaults__, function.__kwdefaults__ = before


_REPLACED: dict[str, Callable[..., Any]] = {}


def _functions(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    """The outermost functions of a module, and those of its classes, by their qualified names; not what has no name."""
    for one in code.co_consts:
        if isinstance(one, CodeType) and one.co_name != "<lambda>":
            if one.co_flags & inspect.CO_NEWLOCALS:
                yield one.co_qualname, one
            else:
                yield from _functions(one)


def _found(home: Any, name: str) -> FunctionType:
    found = home
    for part in name.split("."):
        found = inspect.getattr_static(found, part)
    found = getattr(found, "fget", found)
    found = getattr(found, "__func__", found)
    return inspect.unwrap(found)
