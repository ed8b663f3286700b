"""Small disks, which are soon full."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Disk = Callable[[str], Path]


@pytest.fixture(name="disk")
def small_disks(tmp_path: Path) -> Iterator[Disk]:
    """Makes a disk of the given size."""
    mounted: list[Path] = []

    def made(size: str) -> Path:
        folder = tmp_path / f"disk-{size}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"a small disk cannot be mounted here, which takes root: {done.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield made
    for folder in mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path, left: int = 0) -> Path:
    """Take the room of a disk, but for some bytes. Whoever removes the file gives it back."""
    there = os.statvfs(disk)
    filling = disk / "filling"
    filling.write_bytes(bytes(there.f_bavail * there.f_frsize - left))
    return filling
