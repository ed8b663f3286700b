"""Values that were compressed by the program that sent them, each by itself. Kafka's own compression is none of these."""

from __future__ import annotations

from typing import Literal

Decompress = Literal["gzip", "zstd", "snappy"]
# A value that becomes longer is invalid.
MOST_BYTES = 64 << 20
