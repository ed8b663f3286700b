"""The job that compacts a sink: its type says how."""

from __future__ import annotations

import argparse
from pathlib import Path

from tidemark.errors import EXIT_DONE
from tidemark.runs.live.open_stream import open_stream
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.kinds import kind_of, sink_to_compact
from tidemark.sinks.taking_over import check_sink


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="process_window compact")
    parser.add_argument("--stream-file", type=Path, required=True)
    parser.add_argument("--sink", required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument(
        "--before", type=int, help="only windows committed before this time, in milliseconds since 1970"
    )
    parser.add_argument("--windows", type=int, help="at most this many, the oldest ones")
    parser.add_argument("--again", action="store_true", help="compacted folders too")
    options = parser.parse_args(arguments)
    opened = open_stream(options.stream_file)
    asked = CompactionRequest(options.before, options.windows, options.again)
    sink = sink_to_compact(opened.stream.sinks, opened.stream.name, options.sink)
    check_sink(opened, sink)
    kind_of(sink.type).make_spark().compact(opened, sink, options.run, asked)
    return EXIT_DONE
