"""`tidemark streams try`: what a stream makes of messages in files, without Kafka, a ledger or a connection."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from services.site import REPOSITORY
from tidemark.errors import EXIT_WRONG_USE

PAGE = REPOSITORY / "docs" / "stream-files.md"
SECTION = PAGE.read_text().partition("## Try a file on messages\n")[2].partition("\n## ")[0]


def tidemark(folder: Path, *words: str, code: int = 0) -> tuple[str, str]:
    """Run the command where the environment names no connection. Gives standard output and standard error."""
    path = f"{REPOSITORY}:{REPOSITORY / 'spark_jobs'}"
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": path}
    command = [sys.executable, "-m", "tidemark", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout, done.stderr


@pytest.mark.covers("N116")
def test_what_the_page_shows_is_what_the_command_prints(tmp_path: Path) -> None:
    file, messages, printed = re.findall(r"^```(?:yaml|text|console)\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
    (tmp_path / "orders.yaml").write_text(file)
    (tmp_path / "samples.txt").write_text(messages)
    command, _, output = printed.partition("\n")
    out, _ = tidemark(tmp_path, *command.removeprefix("$ tidemark ").split())
    assert [line.split() for line in out.splitlines()] == [line.split() for line in output.splitlines()]
    # Nothing is left behind: no ledger, no folder of a sink.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["orders.yaml", "samples.txt"]


@pytest.mark.covers("N116")
def test_the_files_of_a_folder_are_messages_and_their_bytes_are_kept(tmp_path: Path) -> None:
    text = PAGE.read_text()
    file = re.findall(
        r"^```yaml\n(.*?)^```$", text.partition("## Try a file on messages\n")[2], re.MULTILINE | re.DOTALL
    )
    (tmp_path / "orders.yaml").write_text(file[0])
    folder = tmp_path / "samples"
    folder.mkdir()
    (folder / "1").write_bytes(b'{"id": 1,\n "customer": "zo\xc3\xab"}\n')
    (folder / "2").write_bytes(b'{"id": 2, "customer": "\xff"}')
    (folder / "3").write_bytes(b'{"id": 9223372036854775807}')
    out, _ = tidemark(tmp_path, "streams", "try", "orders.yaml", "--messages", "samples", "--json")
    found = json.loads(out)
    assert found["rows"] == [
        {"message": 1, "index": 0, "fields": {"id": "1", "customer": "zo\u00eb"}},
        {"message": 3, "index": 0, "fields": {"id": "9223372036854775807"}},
    ]
    assert [one["message"] for one in found["dead_letters"]] == [2]
    assert (found["messages"], found["skipped"]) == (3, [])
    assert found["fields"] == {"id": "integer", "customer": "string", "paid": "boolean"}


@pytest.mark.covers("N116")
@pytest.mark.parametrize(
    ("change", "messages", "said"),
    [
        ("", "missing.txt", r"missing\.txt: No such file or directory: name a file with a message in each line"),
        ("", "empty.txt", r"empty\.txt has 0 messages; expected 1 to 10,000"),
        ("transform: {sql: SELECT nothing FROM messages}\n", "one.txt", r"transform"),
    ],
)
def test_what_cannot_be_tried_says_why(tmp_path: Path, change: str, messages: str, said: str) -> None:
    file = re.findall(r"^```yaml\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
    (tmp_path / "orders.yaml").write_text(file[0] + change)
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "one.txt").write_text("{}\n")
    _, error = tidemark(tmp_path, "streams", "try", "orders.yaml", "--messages", messages, code=EXIT_WRONG_USE)
    assert re.search(said, error)
    assert "Traceback" not in error
