"""Maps a model file into memory, and says what bytes are that are no ONNX model."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anydim.base.errors import ModelError
from anydim.base.read_files import open_regular


@contextmanager
def map_file(path: Path) -> Iterator[tuple[memoryview, os.stat_result]]:
    """The bytes of a file, and its stat data.

    Raises ModelError if it is empty, OSError if it cannot be read, as a pipe.
    """
    with open_regular(str(path)) as file:
        found = os.fstat(file.fileno())
        if not found.st_size:
            raise ModelError(f"{path} is empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
            data = memoryview(memory)
            try:
                yield data, found
            finally:
                data.release()


_FIRST = 64  # bytes
_MARKS = {
    b"version https://git-lfs": "it is a pointer of Git LFS: `git lfs pull` brings the model",
    b"manifest.json": "it is a model that anydim saved: ad.load takes it",
    b"html": "it is a web page, perhaps an error of the download",
    b"pk\3\4": "it is an archive, such as torch.save writes: torch.onnx.export makes ONNX models",
}


def no_model(data: bytes | memoryview, name: str) -> ModelError:
    """The error for bytes that are no ONNX model."""
    first = bytes(data[:_FIRST]).lower()
    hint = next((hint for mark, hint in _MARKS.items() if mark in first), "")
    return ModelError(f"{name} is not an ONNX model, or the file is truncated", hint)
