"""Lists of servers in a connection: `host:port`, with commas between, checked before anything is asked of one of them."""

from __future__ import annotations

import re

# A name, an address, or one of IPv6 in brackets.
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_.])?|\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?\]", re.ASCII)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9_+.-]*://")


def servers_in(text: str, *, port: int | None = None) -> list[tuple[str, int]]:
    """The host and the port of each server. `port`: of those that name none. Raises ValueError that names the wrong one."""
    servers = []
    parts = [part.strip() for part in text.split(",")]
    for number, part in enumerate(parts, start=1):
        if not part:
            raise ValueError(f"{text!r} has no server in place {number} of its list: take the comma out")
        if (why := _why_not(part, port)) is not None:
            raise ValueError(f"{part!r} is no server: {why}; expected host:port, with commas between")
        host, colon, number_text = _parted(part)
        servers.append((host, int(number_text) if colon else port or 0))
    return servers


def joined(servers: list[tuple[str, int]]) -> str:
    """The servers as clients take them."""
    return ",".join(f"{host}:{port}" for host, port in servers)


def _parted(part: str) -> tuple[str, str, str]:
    end = part.find("]") + 1
    host, colon, port = part[end:].partition(":")
    return part[:end] + host, colon, port


def _why_not(part: str, usual: int | None) -> str | None:
    if any(mark in part for mark in "'\"`"):
        return "it has quotes"
    if scheme := _SCHEME.match(part):
        return f"it begins with {scheme.group()}"
    if any(one.isspace() for one in part):
        return "a space stands in it"
    host, colon, port = _parted(part)
    if not colon and usual is None:
        return "it has no port"
    if colon and not (port.isascii() and port.isdecimal()):
        return f"its port is {port!r}"
    if colon and not 1 <= int(port[:6]) <= 65_535:
        return f"its port is {port}, and ports go from 1 to 65535"
    return None if _HOST.fullmatch(host) else f"its host is {host!r}"
