"""Reading what other people wrote in a process of its own: it ends when it takes too long, or too much memory.

This file is also the program of that process, and imports nothing of Tidemark there but how Protobuf becomes JSON.
"""

from __future__ import annotations

import gc
import json
import re
import resource
import signal
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from typing import Any

# Of processor time; and how long the process may take on a machine that is busy with other things.
SECONDS = 2.0
_PATIENCE_SECONDS = 20.0
_MEMORY_BYTES = 1 << 30
# Of a value that was compressed.
_MAX_DECOMPRESSED = 16 << 20
# Of processor time for the patterns of one name.
_SECONDS_A_NAME = 0.1
_TOO_MUCH = f"reading it took more than {SECONDS:g} s, or too much memory"


def asked_with_limits(question: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of a new process to a question of kind `record` or `names`; `problem` says why there is none."""
    ended, lines = _asked(question)
    if not ended or not lines:
        return {"problem": _TOO_MUCH}
    answer: dict[str, Any] = json.loads(lines[0])
    return answer


def cells_with_limits(question: Mapping[str, Any], most_deaths: int) -> tuple[list[Any], int]:
    """The cells of each value of a question of kind `cells`; None for one that could not be read. And how many processes died.

    A value of which a process dies costs no other one its cells: the next process begins with the value at which the one
    before has died. After more than `most_deaths`, what is left is not read.
    """
    values, cells, deaths = question["values"], list[Any](), 0
    while len(cells) < len(values) and deaths <= most_deaths:
        ended, lines = _asked({**question, "values": values[len(cells) :]})
        cells += map(json.loads, lines)
        if ended:
            break
        deaths += 1
        if not lines:
            cells.append(None)
    return [*cells, *[None] * (len(values) - len(cells))], deaths


def _asked(question: Mapping[str, Any]) -> tuple[bool, list[bytes]]:
    """Whether a new process has come to the end of a question, and the whole lines that it has answered."""
    # -P: no folder of the caller's is searched for modules first.
    command = [sys.executable, "-P", __file__]
    try:
        done = subprocess.run(
            command, input=json.dumps(question).encode(), capture_output=True, timeout=_PATIENCE_SECONDS, check=False
        )
        ended, said = done.returncode == 0, done.stdout
    except subprocess.TimeoutExpired as late:
        ended, said = False, late.stdout or b""
    *lines, _ = said.split(b"\n")
    return ended, lines


def _main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (int(SECONDS), int(SECONDS) + 1))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    question = json.loads(sys.stdin.buffer.read())
    for answer in {"record": _record, "cells": _cells, "names": _names}[question["kind"]](question):
        # Each is said before the next one is read, which may end the process.
        sys.stdout.write(f"{json.dumps(answer)}\n")
        sys.stdout.flush()


def _names(question: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The names whose first pattern matches the whole text, and none of the others, which leave it out.

    `slow` are those whose patterns took too long: one hard pattern says nothing of the others. Matching is interrupted by
    a signal, which Python looks for while it matches.
    """
    said: dict[str, list[str]] = {"names": [], "slow": []}
    each = min(_SECONDS_A_NAME, SECONDS / 2 / len(question["patterns"]))
    signal.signal(signal.SIGVTALRM, _too_slow)
    for name, (pattern, *others) in question["patterns"].items():
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, each)
            text = question["text"]
            if re.fullmatch(pattern, text) and not any(re.fullmatch(other, text) for other in others):
                said["names"].append(name)
        except TimeoutError:
            said["slow"].append(name)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    yield said


def _too_slow(*_: Any) -> None:
    raise TimeoutError


def _cells(question: Mapping[str, Any]) -> Iterator[list[Any] | None]:
    """The values at some paths of each value, which is JSON, or a record where it has a schema: null where nothing does.

    Else its text, and whether it is one, and no object or list. A value that is neither JSON nor a record has none of them.
    None for a value whose schema is none.
    """
    # Nothing of what is read refers to itself, and looking for that takes most of the time.
    gc.disable()
    readers: dict[int | None, Any] = {None: _json}
    for one in question["values"]:
        number = one["schema"]
        if number not in readers:
            readers[number] = _reader_or_none(*question["schemas"][number])
        read = readers[number]
        yield None if read is None else _of_value(one, question["paths"], read)


def _json(value: bytes) -> Any:
    # Numbers keep their digits.
    return json.loads(value, parse_int=_Digits, parse_float=_Digits)


def _reader_or_none(kind: str, schema: str, message: str) -> Any:
    try:
        return _READERS[kind](schema, message)
    except MemoryError:
        raise
    except Exception:  # whatever somebody has registered
        return None


def _avro(schema: str, _: str) -> Any:
    from fastavro import parse_schema, schemaless_reader

    parsed = parse_schema(json.loads(schema))
    return lambda value: schemaless_reader(BytesIO(value), parsed, None)


def _protobuf(schema: str, message: str) -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    from tidemark.schemes.protobuf_json import as_json

    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(b64decode(schema)).file:
        pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(message))
    return lambda value: as_json(kind.FromString(value))


_READERS: dict[str, Callable[[str, str], Any]] = {"avro": _avro, "protobuf": _protobuf}


def _plain_value(one: Mapping[str, Any]) -> bytes:
    """A value as it was before it was compressed. Raises what its library does, or ValueError, where it was not."""
    value, how = b64decode(one["value"]), one["decompress"]
    if how is None:
        return value
    # No value is compressed into nothing, though some of these take it for that.
    plain = _DECOMPRESSED[how](value) if value else None
    if plain is None or len(plain) > _MAX_DECOMPRESSED:
        raise ValueError("empty, or too long")
    return plain


def _of_gzip(value: bytes) -> bytes:
    import gzip

    with gzip.GzipFile(fileobj=BytesIO(value)) as file:
        return file.read(_MAX_DECOMPRESSED + 1)


def _of_zstd(value: bytes) -> bytes:
    import zstandard

    plain, left = b"", value
    # Several frames may follow one another. What it becomes is limited by the memory of this process.
    while left:
        frame = zstandard.ZstdDecompressor().decompressobj()
        plain += frame.decompress(left)
        if not frame.eof or len(plain) > _MAX_DECOMPRESSED:
            raise ValueError("cut off, or too long")
        left = frame.unused_data
    return plain


def _of_snappy(value: bytes) -> bytes:
    import snappy

    if value.startswith(b"\xff\x06\x00\x00sNaPpY"):
        reader = snappy.StreamDecompressor()
        plain = bytes(reader.decompress(value))
        if reader.remains:
            raise ValueError("cut off")
        return plain
    if value.startswith(b"\x82SNAPPY\x00"):
        from kafka.codec import snappy_decode

        return bytes(snappy_decode(value))
    return bytes(snappy.decompress(value))


_DECOMPRESSED = {"gzip": _of_gzip, "zstd": _of_zstd, "snappy": _of_snappy}


def _of_value(one: Mapping[str, Any], paths: list[list[str | int]], read: Callable[[bytes], Any]) -> list[Any]:
    try:
        record = read(_plain_value(one))
        return [_cell(_at(record, path)) for path in paths]
    except MemoryError:
        raise
    except Exception:  # whatever the bytes are
        return [None for _ in paths]


class _Digits(str):
    """A number of JSON as it is written."""


def _at(value: Any, path: list[str | int]) -> Any:
    for step in path:
        if isinstance(value, list):
            value = value[step] if isinstance(step, int) and step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


def _cell(value: Any) -> list[Any] | None:
    if value is None:
        return None
    if isinstance(value, (dict, list)):
        return [json.dumps(value, default=_plain, ensure_ascii=False), False]
    if isinstance(value, bool):
        return [str(value).lower(), True]
    return [value if isinstance(value, str) else _plain(value), True]


def _record(question: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield _text_of(question)


def _text_of(question: Mapping[str, Any]) -> dict[str, Any]:
    """A record as JSON, or a value without a schema as the text that it is when it is decompressed."""
    (one,) = question["values"]
    try:
        value = _plain_value(one)
    except MemoryError:
        raise
    except Exception:  # whatever the bytes are
        return {"problem": f"not {one['decompress']}, or too long when it is decompressed"}
    try:
        text = value.decode("utf-8", "backslashreplace")
        if one["schema"] is not None:
            kind, *by = question["schemas"][one["schema"]]
            record = _READERS[kind](*by)(value)
            text = json.dumps(record, default=_plain, ensure_ascii=False, indent=2)
    except MemoryError:
        raise
    except Exception as problem:  # whatever the bytes or the schema are
        return {"problem": f"not a record of the schema: {type(problem).__name__}"}
    if len(text) > question["most"]:
        return {"problem": f"it takes more than {question['most']:_} characters".replace("_", " ")}
    return {"text": text}


def _plain(value: Any) -> str:
    """A value that JSON lacks, as a text: bytes that are no UTF-8 have backslash codes."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


if __name__ == "__main__":
    _main()
