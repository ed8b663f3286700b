"""`tidemark status` without a stream: all of them in a line each, the worst first, whatever one of them cannot say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.streams_in_memory import TEXT, LookedAt, StreamInMemory
from tidemark.cli import stream_lookup
from tidemark.cli.commands import ledger, status
from tidemark.errors import Unreachable
from tidemark.ledger.recovery.backup import retire
from tidemark.runs.live.open_stream import OpenStream

ASKED: list[str] = []


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StreamInMemory:
    """A stream that lags by 5, two whose server is away, and a file with a wrong key. ASKED are those that were opened."""
    ASKED.clear()
    made = StreamInMemory(tmp_path)
    made.ends((0, 9))
    made.ingest("run 1")
    made.ends((0, 14))
    streams = tmp_path / "streams"
    streams.mkdir()
    for name in ("away", "orders", "with_away"):
        other = "" if name == "orders" else "ledger: {type: zookeeper, zookeeper: zk_other}\n"
        about = f"stream: {name}\nowner: team {name}\ntags: [money]"
        (streams / f"{name}.yaml").write_text(TEXT.replace("stream: orders", about) + other)

    (streams / "payments.yaml").write_text(f"{TEXT.replace('stream: orders', 'stream: paid')}guarante: none\n")

    def opened(path: Path) -> OpenStream:
        ASKED.append(path.stem)
        if path.stem != "orders":
            raise Unreachable("ZooKeeper at zk:2181 does not answer")
        return made.opened

    monkeypatch.setattr(stream_lookup, "folders", lambda: [streams])
    monkeypatch.setattr(status, "open_stream", opened)
    for name in ("open_transactions", "retention", "timestamps"):
        monkeypatch.setattr(type(made.kafka), name, getattr(LookedAt, name), raising=False)
    return made


@pytest.mark.parametrize("command", [status.status, ledger.show])
def test_a_ledger_that_has_moved_says_so(
    made: StreamInMemory,
    command: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its stream is OK for as long as nothing is produced, and a stream file may name the older place by mistake."""
    monkeypatch.setattr(stream_lookup, "opened", lambda stream: made.opened)
    command("orders")
    assert "retired" not in capsys.readouterr().err
    retire(made.opened.ledger, "moved to ZooKeeper")
    command("orders")
    said = capsys.readouterr().err
    assert "this ledger of orders was retired, and is used no more: moved to ZooKeeper. Name the ledger that" in said


@pytest.mark.covers("U19")
@pytest.mark.usefixtures("made")
def test_a_stream_that_cannot_be_asked_hides_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    from typer import Exit

    with pytest.raises(Exit) as ended:
        status.status()
    said = capsys.readouterr()
    heading, *rows = said.out.splitlines()
    assert [row.split()[:3] for row in rows] == [
        ["paid", "INVALID"],
        ["away", "UNREACHABLE", "team"],
        ["with_away", "UNREACHABLE", "team"],
        ["orders", "OK", "5"],
    ]
    # A number ends where its heading ends.
    assert rows[3].index("5") == heading.index("lag") + 2
    assert rows[3].split()[-2:] == ["team", "orders"]
    assert "away: UNREACHABLE: Unreachable: ZooKeeper at zk:2181 does not answer" in said.err
    assert said.err.splitlines()[-1] == "1 INVALID, 2 UNREACHABLE, 1 OK"
    # It is the file that is wrong: its name, the line and the field.
    assert re.search(
        r"^paid: INVALID: InvalidStreamFile: \S+/payments\.yaml:\d+: guarante: unknown key", said.err, re.MULTILINE
    )
    # Servers that do not answer are waited for once, whatever the number of their streams.
    assert sorted(ASKED) == ["away", "orders"]
    # That of the first one, in the order of the files.
    assert ended.value.exit_code == Unreachable.exit_code
    with pytest.raises(Exit):
        status.status(as_json=True)
    paid, away, _, orders = json.loads(capsys.readouterr().out)
    assert (away["problem"], orders["lag"]) == ("Unreachable: ZooKeeper at zk:2181 does not answer", "5")
    assert [one["state"] for one in (paid, away, orders)] == ["INVALID", "UNREACHABLE", "OK"]
