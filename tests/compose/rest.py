"""rest.py PASSWORD METHOD PATH [BODY]: ask Airflow's API as `admin`, and print status and answer as JSON.

A program of its own, because it runs in the network namespace of the engine.
"""

import json
import sys
import urllib.error
import urllib.request

URL = "http://127.0.0.1:8080"


def call(method: str, path: str, body: object = None, token: str | None = None) -> tuple[int, object]:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def main(password: str, method: str, path: str, body: str = "null") -> None:
    status, login = call("POST", "/auth/token", {"username": "admin", "password": password})
    assert status == 201, (status, login)
    assert isinstance(login, dict)
    print(json.dumps(call(method, path, json.loads(body), login["access_token"])))


if __name__ == "__main__":
    main(*sys.argv[1:])
