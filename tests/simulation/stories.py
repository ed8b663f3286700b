"""What programs with sinks of files and messages have more of: steps that matter to these when they follow one another.

A second word says what happens in the middle of a step.
"""

from __future__ import annotations

# They take some times as long as others, so few seeds have them.
SHARE = 0.07
SINKS = (
    *[("hbase", "parquet"), ("parquet", "hbase")] * 3,
    *[("hbase", "delta"), ("delta", "hbase")],
    *[("hbase", "kafka"), ("hbase", "kafka", "parquet"), ("hbase", "sums", "parquet")],
)
STORIES = (
    ("compact files",),
    ("replay", "replay"),
    ("replay, dies", "time", "cancel", "compact files"),
    ("replay, dies", "time", "cancel", "erase"),
    ("replay, dies", "time", "cancel", "erase", "erase"),
    ("replay, dies", "again"),
    ("replay, dies", "erase"),
    ("ingest, dies", "ingest"),
    ("replay, unheard", "again"),
    ("ingest, unheard", "ingest"),
    ("compact files, unheard", "compact files"),
    ("compact files, stops", "replay", "compact files"),
    ("replay", "compact files, stops", "erase"),
    ("compact files, sleeps", "compact files", "wake"),
    ("compact files, sleeps", "replay", "compact files", "wake"),
    ("compact files, sleeps", "erase", "wake"),
    ("replay", "compact files, doubts", "compact files", "wake"),
    ("compact files, doubts", "compact files", "wake"),
    ("results, sleeps", "compact files", "wake"),
    ("replay", "results, sleeps", "compact files, half", "wake", "wake"),
    ("replay", "results, early", "compact files, half", "wake", "wake"),
    ("results, early", "replay", "compact files", "wake"),
    ("results, early", "replay", "compact files", "wake"),
    ("compact files, waits", "replay", "compact files", "wake"),
    ("replay", "compact files, waits", "compact files", "wake"),
    ("replay", "results, early", "replay", "compact files", "wake"),
)
# What readers of folders meet: of one seed of ten.
READERS_STORIES = tuple(one for one in STORIES if any(step.startswith("results") for step in one))
# Of programs with tables instead of folders.
OF_TABLES = (
    ("replay", "replay"),
    ("replay, dies", "time", "cancel", "erase"),
    ("replay, dies", "again"),
    ("ingest, dies", "ingest"),
    ("replay, unsure", "again"),
    ("replay, unsure", "erase", "replay"),
    ("erase, unsure", "ingest"),
    ("ingest, unsure", "ingest"),
    ("results, sleeps", "replay", "wake"),
)
