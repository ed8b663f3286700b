"""The fetch settings of a stream file are those of the consumers that read its windows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.live_streams import Make
from tests.support.oracle import CDN
from tests.support.submitted import WINDOW_JOB, Submitted

# None is Kafka's default.
FETCH = {
    "fetch.min.bytes": 2,
    "fetch.max.bytes": 4096,
    "fetch.max.wait.ms": 30,
    "max.partition.fetch.bytes": 1024,
    "max.poll.records": 7,
    "receive.buffer.bytes": 70_000,
    "request.timeout.ms": 40_000,
}
# Many times as much as is fetched at a time.
LARGE = 200_000


@pytest.mark.covers("S1", "E12")
def test_the_consumers_have_the_settings_and_read_a_message_that_is_larger(make: Make, tmp_path: Path) -> None:
    live = make(CDN, source={"fetch": FETCH})
    live.produce(100)
    line = next(
        value for _, value in CDN.generate(1000, 100) if value and b"\t" in value and not CDN.outcome(value).reason
    )
    live.kafka.send([(live.topics[0], 0, None, line.replace(b"/", b"/" + LARGE * b"x", 1))])
    live.produce(100)
    run = live.new_run()
    arguments = live.job_arguments(run, live.pin(run).seq)
    conf = {"spark.log.level": "INFO"}
    said = Submitted(live.site, tmp_path / "job.log", WINDOW_JOB, *arguments, conf=conf).succeeds()

    configs = [one.group() for one in re.finditer(r"ConsumerConfig values: \n(?:\t\S.*\n)+", said)]
    readers = [one for one in configs if re.search(r"group\.id = tidemark-[0-9a-f]{16}\n", one)]
    assert readers
    for one in readers:
        settings = dict(re.findall(r"^\t(\S+) = (.*)$", one, re.MULTILINE))
        assert {name: settings[name] for name in FETCH} == {name: str(value) for name, value in FETCH.items()}
    live.assert_exactly_what_was_read()
    longest = max(len(text) for fields in live.independent.hbase().by_place().values() for text in fields.values())
    assert longest > LARGE
