"""The hashes of `hashing.py` for many rows at once, with NumPy: the same 64 bits, unsigned.

XXH64 of an input of 4 or 8 bytes is one round and the final mix (the specification of xxHash, sections "XXH64, step 5" and
"step 6"). Each value has a seed of its own, which is the hash so far.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]

_PRIMES = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_P1, _P2, _P3, _P4, _P5 = map(np.uint64, _PRIMES)


def offset_hashes(seeds: Hashes, offsets: NDArray[np.int64]) -> Hashes:
    """`hashing.offset_hash` of each row, from the seed of its partition."""
    mixed = _rotated(offsets.astype(np.uint64) * _P2, 31) * _P1
    return _avalanche(_rotated((seeds + _P5 + np.uint64(8)) ^ mixed, 27) * _P1 + _P4)


def row_hashes(coordinates: Hashes, indexes: NDArray[np.int32]) -> Hashes:
    """`hashing.row_hash` of each row, from the hash of its coordinate."""
    index = indexes.astype(np.uint32).astype(np.uint64)
    return _avalanche(_rotated((coordinates + _P5 + np.uint64(4)) ^ (index * _P1), 23) * _P2 + _P3)


def _rotated(values: Hashes, bits: int) -> Hashes:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _avalanche(values: Hashes) -> Hashes:
    values = (values ^ (values >> np.uint64(33))) * _P2
    values = (values ^ (values >> np.uint64(29))) * _P3
    return values ^ (values >> np.uint64(32))
