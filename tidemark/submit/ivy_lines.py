"""The lines that Ivy prints while Spark fetches `spark.jars.packages`, a hundred and more before a job's first one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

_MODULE = r"[\w.-]+[#][\w.-]+"
_LINE = re.compile(
    rf"""(?x) ^(?:
        Ivy\ Default\ Cache\ set\ to: | The\ jars\ for\ the\ packages\ stored\ in:
      | ::\ (?:loading\ settings|resolving\ dependencies|resolution\ report|retrieving)\b
      | {_MODULE}\ added\ as\ a\ dependency
      | downloading\ https?://
      | \s+(?:confs:\ |found\ {_MODULE};|\[SUCCESSFUL\ \]|{_MODULE};\S+\ (?:from|by)\ )
      | \s+::\ (?:modules\ in\ use|evicted\ modules):
      | \s+(?:-{{20,}}|\|.*\|)\s*$
      | \s+\d+\ artifacts\ copied
    )"""
)


def is_of_ivy(line: str) -> bool:
    """Whether Ivy says in this line that all is well. What it says of a package that it does not find stays."""
    return _LINE.match(line) is not None


def without_ivy(lines: Iterable[str]) -> Iterator[str]:
    return (line for line in lines if not is_of_ivy(line))


def saying_without_ivy(say: Callable[[str], None]) -> Callable[[str], None]:
    """The same, without Ivy's lines."""

    def said(line: str) -> None:
        if not is_of_ivy(line):
            say(line)

    return said
