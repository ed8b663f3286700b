"""`./run pages`: it shows each stream in the state that it was made for, and begins again when a file has changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from services.site import REPOSITORY
from tests.pages import shown
from tests.support.servers import free_ports
from tests.support.waiting import until

STATES = {
    "prices": "INVALID",
    shown.UNREACHABLE: "UNREACHABLE",
    "payments": "HOLES",
    "shipments": "STOPPED",
    "returns": "NEW",
    "customers": "OK",
    "orders": "OK",
}


def test_the_pages_are_shown_without_any_server(tmp_path: Path) -> None:
    port = free_ports()
    log = (tmp_path / "log").open("w")
    command = [sys.executable, "-m", "tests.pages", "--port", str(port)]
    # What it keeps is of its own folder: two of these at once must not meet.
    env = {**os.environ, "TIDEMARK_STATE": str(tmp_path / "state")}
    program = subprocess.Popen(command, cwd=REPOSITORY, env=env, stdout=log, stderr=log)

    def asked(path: str) -> Any:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/tidemark/{path}", timeout=30) as answer:
                return answer.read()
        except (urllib.error.HTTPError, OSError):
            assert program.poll() is None, (tmp_path / "log").read_text()
            return None

    def states() -> dict[str, str]:
        found = json.loads(asked("api/triage?count=100") or "{}").get("streams", ())
        return {one["stream"]: one["state"] for one in found}

    try:
        until(lambda: states() == STATES, "the streams are not all in their states")
        for path in ("", "streams/orders", "streams/orders/dead-letters", "streams/payments/completeness"):
            assert b"<html" in asked(path)
        found = json.loads(asked("api/streams/orders/dead-letters"))
        assert found["counted"] == sum(one["number"] for one in found["groups"]) > 40
    finally:
        program.terminate()
        program.wait(60)
        log.close()
