"""Settles a lane of a stream, as the next run does: STREAM_FILE LANE. For tests that end it on its way."""

import sys
from pathlib import Path

from tidemark.runs.live.open_stream import open_stream
from tidemark.runs.windows import lanes

lanes.finish(open_stream(Path(sys.argv[1])), sys.argv[2])
