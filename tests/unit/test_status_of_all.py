"""`tidemark status` without a stream: all of them in a line each, the worst first, whatever one of them cannot say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.streams_in_memory import TEXT, LookedAt, StreamInMemory
from tidemark.cli import app, stream_lookup
from tidemark.errors import Unreachable
from tidemark.runs.live.open_stream import OpenStream

ASKED: list[str] = []


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StreamInMemory:
    """A stream that lags by 5, and two whose server is away. ASKED are the streams that were opened."""
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

    def opened(path: Path) -> OpenStream:
        ASKED.append(path.stem)
        if path.stem != "orders":
            raise Unreachable("ZooKeeper at zk:2181 does not answer")
        return made.opened

    monkeypatch.setattr(stream_lookup, "folders", lambda: [streams])
    monkeypatch.setattr(app, "open_stream", opened)
    for name in ("open_transactions", "retention", "timestamps"):
        monkeypatch.setattr(type(made.kafka), name, getattr(LookedAt, name), raising=False)
    return made


@pytest.mark.covers("U19")
@pytest.mark.usefixtures("made")
def test_a_stream_that_cannot_be_asked_hides_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    from typer import Exit

    with pytest.raises(Exit) as ended:
        app.status()
    said = capsys.readouterr()
    heading, *rows = said.out.splitlines()
    assert [row.split()[:3] for row in rows] == [
        ["away", "UNREACHABLE", "team"],
        ["with_away", "UNREACHABLE", "team"],
        ["orders", "OK", "5"],
    ]
    # A number ends where its heading ends.
    assert rows[2].index("5") == heading.index("lag") + 2
    assert rows[2].split()[-3:] == ["team", "orders", "money"]
    assert "away: Unreachable: ZooKeeper at zk:2181 does not answer" in said.err
    assert said.err.splitlines()[-1] == "2 UNREACHABLE, 1 OK"
    # Servers that do not answer are waited for once, whatever the number of their streams.
    assert sorted(ASKED) == ["away", "orders"]
    assert ended.value.exit_code == Unreachable.exit_code
    with pytest.raises(Exit):
        app.status(as_json=True)
    away, _, orders = json.loads(capsys.readouterr().out)
    assert (away["problem"], orders["lag"]) == ("Unreachable: ZooKeeper at zk:2181 does not answer", "5")
    assert (away["state"], orders["state"]) == ("UNREACHABLE", "OK")
