"""What docs/adding-a-dead-letter-store.md says is so: its package is installed as it stands there, and used."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.support.covering import REPOSITORY
from tests.support.live_streams import Make
from tests.support.oracle import CDN
from tests.support.packages import CommandLine, installed
from tests.support.waiting import until

pytestmark = pytest.mark.covers("O15")

GUIDE = REPOSITORY / "docs" / "adding-a-dead-letter-store.md"


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    return installed(GUIDE, tmp_path / "site")


@pytest.mark.full
def test_the_store_of_the_guide_keeps_each_dead_letter_once(make: Make, packages: Path) -> None:
    live = make(CDN)
    live.rewrite(
        sinks=[{"type": "parquet", "folder": live.name}],
        dead_letters={"type": "json_letters", "folder": f"{live.name}_dead"},
        # Stricter than the example: so there are more of them.
        checks=[*CDN.stream.get("checks", []), {"invalid_when": "code = 200", "reason": "not yet"}],
    )
    file = str(live.file)
    tidemark = CommandLine(live.site, packages)
    lake = Path(live.site.folder("lake")) / f"{live.name}_dead"
    live.produce(300)
    # By the topics alone: this process does not know the package, and so not the stream.
    places = [(topic, partition) for topic in live.topics for partition in range(live.example.partitions)]
    ends = {place: len(range(number, 300, len(places))) for number, place in enumerate(places)}
    dead = {"{}/{}@{}".format(*place) for place in live.expected(ends).dead}

    def counting() -> dict[str, str]:
        rows = json.loads(tidemark("results", file, "--dead-letters", "--limit", "10000", "--json"))
        found = {row["coordinate"]: row["fields"]["reason"] for row in rows}
        assert len(found) == len(rows)
        return found

    # Killed as soon as it has written dead letters: all of them count or none.
    killed = tidemark.start("run", file, "--run", "mine")
    until(lambda: list(lake.glob("lane=*/seq=*/generation=*")) or killed.poll() is not None, "nothing was written", 300)
    assert killed.poll() is None, killed.communicate()[1]
    for process in [*psutil.Process(killed.pid).children(recursive=True), psutil.Process(killed.pid)]:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    killed.communicate()
    before = counting()
    tidemark("run", file, "--run", "another", "--take-over")
    wanted = counting()
    assert before in ({}, wanted)
    assert dead < set(wanted)
    assert {reason for coordinate, reason in wanted.items() if coordinate not in dead} == {"not yet"}
    groups = json.loads(tidemark("dead-letters", file, "--json"))["groups"]
    assert sum(one["number"] for one in groups) == len(wanted)
    # After a redrive, of each coordinate the newer one counts and no other.
    tidemark("replay", "--yes", file, "--dead-letters", "*", "--reason", "a bug fix")
    assert counting() == wanted
    assert len({folder.parent.parent for folder in lake.glob("lane=*/seq=*/generation=*")}) == 2
    erased = sorted(wanted)[0]
    done = json.loads(tidemark("erase", "--yes", file, "--records", erased, "--reason", "request 4711", "--json"))
    assert [one["remains"] for one in done["places"] if one["name"] == "dead_letters"] == [""]
    del wanted[erased]
    assert counting() == wanted
    assert audited(tidemark("audit", file, "--json")) == (len(wanted), len(wanted), 0)
    # What is gone is missed.
    for part in lake.glob("lane=replay-*/seq=*/generation=*/part-*.json"):
        part.unlink()
    assert audited(tidemark("audit", file, "--json", code=1)) == (len(wanted), 0, len(wanted))


def audited(report: str) -> tuple[int, int, int]:
    (place,) = [one for one in json.loads(report)["places"] if one["name"] == "dead letters"]
    return place["expected"], place["found"], place["missing"]
