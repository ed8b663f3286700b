"""All routes of the plugin's app, found in the app itself, and answers to them from the running Airflow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from email.message import Message
from typing import Any

from demo.airflow import Airflow
from services import environment
from services.site import Site

# A method and a path.
Route = tuple[str, str]

# What stands in the paths of routes.
VALUES = {
    "name": "cdn_logs", "lane": "ingest", "seq": "1", "topic": "cdn-logs", "partition": "0", "offset": "0",
    "version": "0", "kind": "messages", "hour": "2026-11-21T13Z", "action": "pause",
}  # fmt: skip

NO_STREAM = "no such stream: the page of all streams lists those that you may see"
NO_WINDOW = "{} has no window {}: its page Overview lists the windows of each lane"
BODY = {"kind": "replay", "fields": {"records": "cdn-logs/0@0"}, "reason": "who may"}


def routes_of(site: Site) -> list[Route]:
    """Every route of the app: a new one is among them."""
    program = (
        "import json; from tidemark.plugin.app import build_app\n"
        "print(json.dumps([[m, r.path] for r in build_app().routes for m in sorted(r.methods - {'HEAD'})]))"
    )
    env = {**os.environ, **environment.everything(site)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env, check=True)
    found = [(method, path) for method, path in json.loads(done.stdout.splitlines()[-1])]
    assert len(found) > 20
    return found


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Message
    text: str

    @property
    def detail(self) -> Any:
        return json.loads(self.text).get("detail")


def asked(
    airflow: Airflow,
    route: Route,
    token: str | None,
    headers: dict[str, str] | None = None,
    tries: int = 20,
    **values: str,
) -> Answer:
    """The answer to a route with a stream, a message and so on in its path; on a slow machine, at a later look."""
    method, path = route
    run = values.pop("run", "nowhere")
    if path.startswith("/files/"):
        values["name"] = "shared.js"
    url = f"{airflow.url}/tidemark{path.format(**{**VALUES, **values})}{'&' if '?' in path else '?'}run={run}"
    body = None if method == "GET" else json.dumps({**BODY, "run": run}).encode()
    given = {
        "Content-Type": "application/json",
        **({"Authorization": f"Bearer {token}"} if token else {}),
        **(headers or {}),
    }
    for _ in range(tries):
        request = urllib.request.Request(url, body, given, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                found = Answer(answer.status, answer.headers, answer.read().decode())
        except urllib.error.HTTPError as refused:
            found = Answer(refused.code, refused.headers, refused.read().decode())
        if found.status != 504:
            break
    return found
