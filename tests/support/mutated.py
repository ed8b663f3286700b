"""Stream files with mistakes of all kinds: lines taken, doubled and moved, values that belong elsewhere, and odd characters."""

from __future__ import annotations

import random
import re
from itertools import pairwise

from services.site import REPOSITORY
from tests.support.stream_text import MINIMAL

VALUES = [
    *("&a [*a]", "*a", "!!python/object/apply:os.system ['id']", "!!binary aGk=", "!!set {a}", "!!omap [a: 1]"),
    *("!!timestamp 9999-99-99", "9" * 400, "-" + "9" * 30, "1e999", ".inf", ".nan", "0x" + "f" * 50, "0o777"),
    *("1_000_000", "1:30:00", "yes", "no", "~", "''", '"\\ud800"', '"\\0"', "\u202e", "\U0001f600", "{}", "[]"),
    *("[[[[]]]]", "? [a]\n: b", "<<: {a: 1}", "2026-11-21", "2026-11-21T07:00:00+99:00", "*/0 * * * *", "0 0 31 2 *"),
    *("(a+)+$", "(?P<x>", "\\", "%", "{{ x }}", "../../etc/passwd", "/dev/zero", "a" * 300, "\t", "!x y", "- - -"),
    *(
        "|\n  x",
        ">",
        "'",
        '"',
        "#",
        "@",
        "`",
        "&",
        "1.0",
        "true",
        "null",
        "2147483648",
        "9223372036854775808",
        "-1",
        "0",
    ),
    *("\x85", "\u2028", "\ufeff", "1969-12-31", "0001-01-01T00:00:00Z", "[a, [b, {c: d}]]", "{a: {b: [1, null]}}"),
]
CHARACTERS = [0, 1, 7, 27, 127, 133, 0xA0, 0x2028, 0xFEFF, 0x1F600, 0x202E, 0x660]


def documents() -> list[str]:
    """The example stream, and every piece of YAML in the documents."""
    found = [(REPOSITORY / "dags" / "streams" / "cdn_logs.yaml").read_text()]
    for path in sorted((REPOSITORY / "docs").glob("*.md")):
        found += re.findall(r"```yaml\n(.*?)```", path.read_text(), re.DOTALL)
    return found


class Mutations:
    """Mutated documents, the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._documents = documents()
        self._keys = sorted(set(re.findall(r"^\s*-?\s*([a-z_]+):", "\n".join(self._documents), re.MULTILINE)))

    def next(self) -> str:
        chance = self._chance
        # The example has most of what there is.
        text = chance.choice([self._documents[0], chance.choice(self._documents)])
        for _ in range(chance.randint(1, 4)):
            text = self._once(text)
        return text

    def _once(self, text: str) -> str:
        chance, lines = self._chance, text.split("\n")
        at, kind = chance.randrange(len(lines)), chance.random()
        line = lines[at]
        if kind < 0.4 and ":" in line:
            lines[at] = f"{line.partition(':')[0]}: {chance.choice(VALUES)}"
        elif kind < 0.5:
            lines.insert(at, chance.choice(lines))
        elif kind < 0.6 and len(lines) > 1:
            del lines[at]
        elif kind < 0.7:
            within = chance.randrange(len(line) + 1)
            lines[at] = line[:within] + chance.choice(VALUES) + line[within:]
        elif kind < 0.8:
            lines.insert(at, f"{' ' * chance.choice([0, 2, 4, 6])}{chance.choice(self._keys)}: {chance.choice(VALUES)}")
        elif kind < 0.9:
            lines[at] = " " * chance.randint(0, 8) + line.strip()
        else:
            whole = "\n".join(lines)
            within = chance.randrange(len(whole) + 1)
            return whole[:within] + chr(chance.choice(CHARACTERS)) + whole[within:]
        return "\n".join(lines)


def by_hand() -> dict[str, bytes]:
    """What no mutation comes to."""
    example = documents()[0]
    letters = "abcdefghi"
    bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{own}: &{own} [{','.join([f'*{before}'] * 10)}]\n" for before, own in pairwise(letters)
    )
    return {
        "aliases of aliases": bomb.encode(),
        "deep lists": b"[" * 5_000,
        "deep maps": b"".join(b" " * depth + b"a:\n" for depth in range(700)),
        "deep braces": b"{" * 1_000 + b"a" + b"}" * 1_000,
        "zeros": b"\0" * 10,
        "no UTF-8": b"stream: \xff\xfe",
        "nothing": b"",
        "a large number": b"stream: " + b"9" * 200_000,
        "itself": b"&a {stream: *a}",
        "itself in a list": b"stream: a\nsource: &s {topics: [*s]}\n",
        "two documents": example.encode() + b"\n---\nstream: x\n",
        "a wrong merge": b"<<: [1,2]\nstream: a",
        "tabs": b"\tstream: a",
        "a key twice": b"stream: a\nstream: b\n",
        "keys of other types": b"1: 2\n2.5: 3\ntrue: 4\n[a]: 5\n? {b: c}\n: 6\n",
        "no schema at all": MINIMAL.replace("  fields:\n    id: integer\n", "  schema: null\n").encode(),
        "a folder as a time zone": example.replace("timezone: UTC", "timezone: ../../../etc/passwd").encode(),
    }
