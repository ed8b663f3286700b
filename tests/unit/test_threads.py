"""Threads that use the same code for the first time at once, as those of Airflow's API server do when a page opens."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.protocol_world import LANE, RUN, NoWork, World
from tidemark.commit.protocol import commit, take
from tidemark.ledger.codec import encode

# Gives the records that each thread has read. Threads change places as often as they can.
READ = """
import sys, threading
sys.setswitchinterval(1e-6)
from tidemark.ledger.codec import decode
from tidemark.ledger.records import Record

stored, together, read = sys.stdin.buffer.read(), threading.Barrier(8), []

def look():
    together.wait()
    read.append(decode(stored, Record, "a record"))

threads = [threading.Thread(target=look) for _ in range(8)]
for one in threads: one.start()
for one in threads: one.join()
print(len(read), len({repr(one) for one in read}))
"""


@pytest.mark.parametrize("number", range(3))
def test_the_first_values_that_threads_read_end_no_process(number: int) -> None:
    """Of msgspec: without a lock, four of five such processes end with a segmentation fault."""
    world = World()
    world.open()
    record = commit(world.ledger, take(world.ledger, LANE, world.pin(), RUN), NoWork().verify())
    ran = subprocess.run(
        [sys.executable, "-c", READ], input=encode(record), capture_output=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stdout.split()) == (0, [b"8", b"1"]), ran.stderr.decode()
