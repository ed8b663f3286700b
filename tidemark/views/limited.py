"""Reading what other people wrote in a process of its own: it ends when it takes too long, or too much memory.

This file is also the program of that process, and imports nothing of Tidemark there.
"""

from __future__ import annotations

import json
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from io import BytesIO
from typing import Any

from tidemark.sinks.double_texts import double_text

# Of processor time; and how long the process may take on a machine that is busy with other things.
SECONDS = 2.0
_PATIENCE_SECONDS = 20.0
_MEMORY_BYTES = 1 << 30
# Of processor time for the patterns of one name.
_SECONDS_A_NAME = 0.1
_TOO_MUCH = f"reading it took more than {SECONDS:g} s, or too much memory"


def asked_with_limits(question: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of a new process to a question of kind `regex`, `avro` or `names`; `problem` says why there is none."""
    # -P: no folder of the caller's is searched for modules first.
    command = [sys.executable, "-P", __file__]
    try:
        done = subprocess.run(
            command, input=json.dumps(question).encode(), capture_output=True, timeout=_PATIENCE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return {"problem": _TOO_MUCH}
    if done.returncode != 0 or not done.stdout:
        return {"problem": _TOO_MUCH}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (int(SECONDS), int(SECONDS) + 1))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    question = json.loads(sys.stdin.buffer.read())
    answer = {"regex": _regex, "avro": _avro, "names": _names}[question["kind"]](question)
    sys.stdout.write(json.dumps(answer))


def _regex(question: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the first pattern that matches the whole text. A group that took no part is null."""
    for name, regex, groups in question["patterns"]:
        # Java's classes such as \d are of ASCII. Python writes the name of a group in another way.
        pattern = re.compile(re.sub(r"\(\?<([A-Za-z])", r"(?P<\1", regex), re.ASCII)
        found = pattern.fullmatch(question["text"])
        if found is not None:
            return {"pattern": name, "fields": dict(zip(groups, found.groups(), strict=True))}
    return {"problem": "matches no pattern"}


def _names(question: Mapping[str, Any]) -> dict[str, Any]:
    """The names whose first pattern matches the whole text, and none of the others, which leave it out.

    `slow` are those whose patterns took too long: one hard pattern says nothing of the others. Matching is interrupted by
    a signal, which Python looks for while it matches.
    """
    found: dict[str, list[str]] = {"names": [], "slow": []}
    each = min(_SECONDS_A_NAME, SECONDS / 2 / len(question["patterns"]))
    signal.signal(signal.SIGVTALRM, _too_slow)
    for name, (pattern, *others) in question["patterns"].items():
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, each)
            text = question["text"]
            if re.fullmatch(pattern, text) and not any(re.fullmatch(other, text) for other in others):
                found["names"].append(name)
        except TimeoutError:
            found["slow"].append(name)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return found


def _too_slow(*_: Any) -> None:
    raise TimeoutError


def _avro(question: Mapping[str, Any]) -> dict[str, Any]:
    """The named fields of a record, each as the bytes of its text, in hexadecimal; a field that it lacks is null."""
    from fastavro import parse_schema, schemaless_reader

    schema = json.loads(question["schema"])
    try:
        found: Any = schemaless_reader(BytesIO(bytes.fromhex(question["value"])), parse_schema(schema), None)
    except MemoryError:
        raise
    except Exception as problem:  # whatever the bytes or the schema are
        return {"problem": f"not a record of the schema: {type(problem).__name__}"}
    return {"fields": {name: _avro_text(found.get(name)) for name in question["fields"]}}


def _avro_text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, bool):
        return str(value).lower().encode().hex()
    if isinstance(value, float):
        return double_text(value).encode().hex()
    if hasattr(value, "astimezone"):
        return f"{value:%Y-%m-%d %H:%M:%S.%f}".rstrip("0").rstrip(".").encode().hex()
    return str(value).encode().hex()


if __name__ == "__main__":
    _main()
