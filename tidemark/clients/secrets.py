"""Which settings hold secrets, by their names; and which lines may carry them, or anything, without TLS."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

# Names of settings with secret values. Spark's own pattern for redaction matches fewer names.
SENSITIVE = (
    r"(?i)secret|passw(or)?d|passphrase|passcode|credential|token|jaas|account[._-]?key|access[._-]?key|api[._-]?key"
    r"|private[._-]?key|encryption[._-]?key|azure[.]sas|key[.]pem"
)
# Such names whose value is no secret: a switch, a time, a class, or the place of a secret.
_HARMLESS = re.compile(
    r"(?i)(enabled|file|path|dir|provider|providers|class|renewal[._-]?ratio|renewal[._-]?credentials|interval|wait|retries)$"
)
_LOOPBACK = re.compile(r"(127\.\d{1,3}\.\d{1,3}\.\d{1,3}|localhost|\[?::1\]?)", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Whether the name of a setting says that its value is a secret."""
    return re.search(SENSITIVE, name) is not None and _HARMLESS.search(name) is None


def secret_texts(settings: Mapping[str, object]) -> Iterator[str]:
    """The values of all settings whose names say that they are secrets, however deep they stand."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from secret_texts(value)
        elif isinstance(value, str) and value and is_secret(str(name)):
            yield value


def on_this_machine(servers: Iterable[str]) -> bool:
    """Whether all of these `host` or `host:port` are this machine, so that nobody is on the way to them."""
    hosts = [server.strip() for server in servers]
    return all(_LOOPBACK.fullmatch(re.sub(r"(?<=[^:]):\d+$|(?<=\]):\d+$", "", host)) for host in hosts)
