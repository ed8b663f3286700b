"""Values that the sending program compressed one by one. Kafka's own compression is not among them."""

from __future__ import annotations

from typing import Literal

Decompress = Literal["gzip", "zstd", "snappy"]
# A value that becomes longer is invalid.
MAX_BYTES = 64 << 20
