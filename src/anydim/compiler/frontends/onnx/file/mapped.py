"""Memory-maps a file for the duration of a block."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anydim.base.errors import ModelError


@contextmanager
def mapped(path: Path) -> Iterator[tuple[memoryview, os.stat_result]]:
    """The bytes of a file, and its stat data; ModelError if it is empty, OSError, ValueError."""
    with path.open("rb") as file:
        found = os.fstat(file.fileno())
        if not found.st_size:
            raise ModelError(f"{path} is empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
            data = memoryview(memory)
            try:
                yield data, found
            finally:
                data.release()
