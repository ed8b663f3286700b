"""What docs/adding-a-sink.md says is so: its package is installed as it stands there, and used from the command line."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.support.covering import REPOSITORY
from tests.support.live_streams import Make
from tests.support.oracle import ORDERS
from tests.support.packages import CommandLine, installed
from tests.support.waiting import until

GUIDE = REPOSITORY / "docs" / "adding-a-sink.md"


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    return installed(GUIDE, tmp_path / "site")


@pytest.mark.full
def test_the_sink_of_the_guide_stores_each_row_once(make: Make, packages: Path) -> None:
    live = make(ORDERS)
    live.rewrite(sinks=[{"type": "json_lines", "folder": f"{live.name}_lines"}, {"type": "hbase", "table": live.name}])
    file = str(live.file)
    tidemark = CommandLine(live.site, packages)
    lake = Path(live.site.folder("lake")) / f"{live.name}_lines"
    live.produce(300)
    places = [(topic, partition) for topic in live.topics for partition in range(live.example.partitions)]
    ends = {place: len(range(number, 300, len(places))) for number, place in enumerate(places)}
    wanted = sorted(
        (f"{topic}/{partition}@{offset}", index, row.get("id"), row.get("customer"))
        for (topic, partition, offset, index), row in live.expected(ends).rows.items()
    )
    assert len(wanted) > 200

    def counting() -> list[tuple[str, int, str | None, str | None]]:
        rows = json.loads(tidemark("results", file, "--limit", "10000", "--json"))
        return sorted(
            (row["coordinate"], row["index"], row["fields"].get("id"), row["fields"].get("customer")) for row in rows
        )

    # Killed as soon as it writes: all of it counts or nothing, should the test have been slower than its commit.
    killed = tidemark.start("run", file, "--run", "mine")
    until(lambda: list(lake.glob("lane=*/seq=*/generation=*")) or killed.poll() is not None, "nothing was written", 300)
    assert killed.poll() is None, killed.communicate()[1]
    for process in [*psutil.Process(killed.pid).children(recursive=True), psutil.Process(killed.pid)]:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    killed.communicate()
    assert counting() in ([], wanted)
    tidemark("run", file, "--run", "mine", "--take-over")
    assert counting() == wanted
    # After a replay of a part, of each coordinate the newer row counts and no other.
    tidemark("replay", "--yes", file, "--ranges", f"{live.topics[0]}/0@5-15", "--reason", "a bug fix")
    assert len({folder.parent.parent for folder in lake.glob("lane=*/seq=*/generation=*")}) == 2
    assert counting() == wanted
    assert audited(tidemark("audit", file, "--json")) == (len(wanted), len(wanted), 0, 0)
    # What is gone is missed.
    for part in lake.glob("lane=ingest/seq=*/generation=*/part-*.json"):
        part.unlink()
    expected, found, missing, different = audited(tidemark("audit", file, "--json", code=1))
    assert (expected, different) == (len(wanted), 0)
    assert missing == len(wanted) - found > 0


def audited(report: str) -> tuple[int, int, int, int]:
    (place,) = [one for one in json.loads(report)["places"] if one["name"] == "json_lines"]
    return place["expected"], place["found"], place["missing"], place["different"]


def test_without_the_package_only_its_streams_are_refused(make: Make, packages: Path) -> None:
    live, other = make(ORDERS), make(ORDERS)
    live.rewrite(sinks=[{"type": "json_lines", "folder": "lines"}])
    file = str(live.file)
    tidemark = CommandLine(live.site, packages)
    (packages / "json_lines" / "settings.py").write_text("import nowhere\n")
    ran = tidemark.start("streams", "check", file, str(other.file))
    out, said = ran.communicate(timeout=300)
    assert ran.returncode == 2, said
    assert "the type json_lines: json_lines.settings:KIND cannot be loaded: No module named 'nowhere'" in out + said
    assert f"{other.file}: " not in said
