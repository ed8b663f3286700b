"""What an older version of the program has written: values without the fields that it did not know yet."""

from __future__ import annotations

import json
from typing import Any

from tidemark.ledger.stores.contract import Key

# Of a window, and of a receipt's tallies: added after the first release. Each means nothing where it is not there.
_NEWER = ("sinks", "erases")


def as_older(key: Key, value: bytes) -> bytes:
    """A head or a record as an older version writes it; what needs a newer field stays as it is."""
    if key[0] not in ("head", "history"):
        return value
    found = json.loads(value)
    for window in _windows(found):
        for name in _NEWER:
            if name in window and window[name] is None:
                del window[name]
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode()


def as_newer(value: Any) -> Any:
    """A decoded value with all fields, whichever version has written it."""
    for window in _windows(value):
        window |= {name: None for name in _NEWER if name not in window}
    return value


def _windows(value: Any) -> list[dict[str, Any]]:
    """The windows of a record, or of a head's last record and its pending window."""
    held = [value, value.get("last") or {}, value.get("pending") or {}]
    return [one["window"] for one in held if one.get("window")]
