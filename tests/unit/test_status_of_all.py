"""`tidemark status` without a stream: all of them in a line each, whatever one of them cannot say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.streams_in_memory import TEXT, LookedAt, StreamInMemory
from tidemark.cli import app, finding
from tidemark.errors import Unreachable
from tidemark.runs.live.open_stream import OpenStream


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StreamInMemory:
    """A stream that lags by 5, and one whose server is away."""
    made = StreamInMemory(tmp_path)
    made.ends((0, 9))
    made.ingest("run 1")
    made.ends((0, 14))
    streams = tmp_path / "streams"
    streams.mkdir()
    for name in ("away", "orders"):
        (streams / f"{name}.yaml").write_text(TEXT.replace("stream: orders", f"stream: {name}"))

    def opened(path: Path) -> OpenStream:
        if path.stem == "away":
            raise Unreachable("ZooKeeper at zk:2181 does not answer")
        return made.opened

    monkeypatch.setattr(finding, "folders", lambda: [streams])
    monkeypatch.setattr(app, "open_stream", opened)
    for name in ("open_transactions", "retention", "timestamps"):
        monkeypatch.setattr(type(made.kafka), name, getattr(LookedAt, name), raising=False)
    return made


@pytest.mark.usefixtures("made")
def test_a_stream_that_cannot_be_asked_hides_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    from typer import Exit

    with pytest.raises(Exit) as ended:
        app.status()
    said = capsys.readouterr()
    assert [row.split()[:3] for row in said.out.splitlines()[1:]] == [["away", "not", "known"], ["orders", "OK", "5"]]
    assert "away: Unreachable: ZooKeeper at zk:2181 does not answer" in said.err
    assert ended.value.exit_code == Unreachable.exit_code
    with pytest.raises(Exit):
        app.status(as_json=True)
    away, orders = json.loads(capsys.readouterr().out)
    assert (away["problem"], orders["lag"]) == ("Unreachable: ZooKeeper at zk:2181 does not answer", "5")
