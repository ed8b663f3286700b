"""Erased values in what servers keep on their disks and in their topics, as a stranger finds them: what the documents promise.

`tests/unit/test_erased_from_everywhere.py` has the sinks and the dead letters whose files are ours.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest

from services import control, environment
from services.site import Site
from tests.support.command_line import asked
from tests.support.flushing import flush_and_compact
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import Example, Outcome
from tests.support.sink_topics import written
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("spark")

SECRET = "anna@secret.org, whom a stranger looks for"
PEOPLE = Example(
    "people",
    {"source": {"topics": []}, "scheme": {"type": "json", "fields": {"id": "string", "n": "integer"}}, "sinks": []},
    ("people",),
    1,
    lambda count, first: iter(()),
    lambda value: Outcome(None, None),
)


def of(name: str) -> bytes:
    return json.dumps({"id": name, "n": 5}).encode()


def send(live: LiveStream) -> None:
    """At offset 1 a row with the secret, at offset 3 a dead letter with it."""
    values = [of("a"), of(SECRET), of("b"), b"no JSON of " + SECRET.encode(), b"no JSON"]
    live.kafka.send((live.topics[0], 0, None, value) for value in values)


def erase(live: LiveStream) -> dict[str, str]:
    """Erase both messages. Gives what the list of remains says, by the name of the place."""
    records = [part for offset in (1, 3) for part in ("--records", f"{live.topics[0]}/0@{offset}")]
    done = asked("erase", "--yes", str(live.file), *records, "--reason", "request 4711")
    assert done["erased"]["offsets"] == 2
    return {one["name"]: one["remains"] for one in done["places"]}


def holding(folder: Path) -> set[str]:
    """The files below a folder whose bytes have the secret. Servers move and remove their files meanwhile."""
    found = set()
    for one in folder.rglob("*"):
        try:
            if one.is_file() and SECRET.encode() in one.read_bytes():
                found.add(str(one.relative_to(folder)))
        except FileNotFoundError:
            continue
    return found


@pytest.mark.covers("E65")
def test_hbase_drops_it_with_a_major_compaction_and_kafka_keeps_it(make: Make) -> None:
    live = make(PEOPLE)
    tables = {name: f"{live.name}_{name}" for name in ("hbase", "hbase_latest", "hbase_aggregates", "dead_letters")}
    topic = f"{live.name}-out"
    live.kafka.create(topic, 1)
    sinks: list[dict[str, Any]] = [
        {"type": "hbase", "table": tables["hbase"]},
        {"type": "hbase_latest", "table": tables["hbase_latest"], "folder": "newest", "key": "id"},
        {
            "type": "hbase_aggregates",
            "table": tables["hbase_aggregates"],
            "folder": "sums",
            "key": "id",
            "values": {"all": {"sum": "n"}},
        },
        {"type": "kafka", "topic": topic},
    ]
    live.rewrite(sinks=sinks, dead_letters={"type": "hbase", "table": tables["dead_letters"]})
    send(live)
    live.ingest()
    data = live.site.folder("hbase") / "data" / "data" / "default"

    def held() -> set[str]:
        return {name for name, table in tables.items() if holding(data / table)}

    flush_and_compact(live.site, *tables.values())
    assert held() == {*tables}
    remains = erase(live)
    flush_and_compact(live.site, *tables.values())
    # The files that it has replaced leave the table's folder a little later.
    until(lambda: not held(), "HBase has not removed the files that a compaction has replaced")
    # No reader is told of it, and nothing is left for a person to do; but for the files of a history.
    for name in ("hbase_latest", "hbase_aggregates"):
        assert "until: tidemark compact" in remains.pop(name)
    assert {remains[name] for name in tables.keys() & remains.keys()} == {""}
    # Other consumers see it, and the list says so.
    assert "stays in its topics" in remains["kafka"]
    values = [value for _, _, _, value in written(live, topic)]
    assert any(SECRET.encode() in value for value in values if value is not None)


@pytest.mark.covers("E65")
@pytest.mark.parametrize("server", ["postgresql", "mariadb"])
def test_a_database_drops_it_when_the_table_is_written_again(server: str, make: Make, site: Site) -> None:
    control.up(site, [server])
    table = f"dead_{server}"
    live = make(PEOPLE)
    connection = {"postgresql": "sql_default", "mariadb": "mysql_default"}[server]
    live.rewrite(
        sinks=[{"type": "parquet", "folder": live.name}],
        dead_letters={"type": "sql", "sql": connection, "table": table},
    )
    send(live)
    live.ingest()
    folder = site.folder(server) / "data"
    files = folder / "base" if server == "postgresql" else folder / environment.DATABASE
    written_out(site, server)
    assert holding(files)
    assert erase(live)["dead_letters"] == ""
    rewritten(site, server, table)
    deadline = time.monotonic() + 60
    while (left := holding(files)) and time.monotonic() < deadline:
        written_out(site, server)
    assert left == set()


def written_out(site: Site, server: str) -> None:
    """Have the server write what it has in memory into its files."""
    if server == "postgresql":
        in_postgresql(site, "CHECKPOINT")
    else:
        in_mariadb(site, "SET GLOBAL innodb_max_dirty_pages_pct = 0", "FLUSH TABLES")
        time.sleep(1)


def rewritten(site: Site, server: str, table: str) -> None:
    """What docs/erasure.md says to do."""
    tables = (table, f"{table}_attempts")
    if server == "postgresql":
        in_postgresql(site, *(f"VACUUM FULL {one}" for one in tables), "CHECKPOINT")
    else:
        in_mariadb(site, *(f"OPTIMIZE TABLE {one}" for one in tables))


def in_postgresql(site: Site, *statements: str) -> None:
    with psycopg.connect(
        host="127.0.0.1",
        port=site.port("postgresql"),
        user=environment.DATABASE,
        password=environment.database_password(site),
        dbname=environment.DATABASE,
        autocommit=True,
    ) as connection:
        for one in statements:
            connection.execute(one.encode())


def in_mariadb(site: Site, *statements: str) -> None:
    found = environment.database_password(site, "mariadb")
    with (
        pymysql.connect(
            host="127.0.0.1",
            port=site.port("mariadb"),
            user=environment.DATABASE,
            password=found,
            database=environment.DATABASE,
            autocommit=True,
        ) as connection,
        connection.cursor() as cursor,
    ):
        for one in statements:
            cursor.execute(one)
